"""From a scenario to the fleet that answers it at the least cost, energy or carbon.

Each device is scored in closed form: what it carries back to back in batches short enough that one
can be waited for and the next answered within the limit. These scores are upper bounds; a
mixed-integer programme chooses the fleet, the queue of every device chosen is simulated for what it
carries under Poisson arrivals, and the programme is solved again until it chooses none but
simulated devices. Its answer is then the best under simulated rates, since the scores of all other
devices are still upper bounds. Jobs are done in one of the ways that keep their deadline. Times are
taken at the quantile that makes the limit hold with the probability asked for; what is found is
checked by joint draws of model error, arrivals and failures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, product
from pathlib import Path
from typing import Any

import numpy as np

from accelsim.arguments import checked
from accelsim.capacity.amounts import (
    AMOUNTS,
    HOURS_PER_MONTH,
    SECONDS_PER_MONTH,
    Uses,
    names_of,
)
from accelsim.capacity.answer import (
    CapacityPlan,
    FleetAnswer,
    OfferCount,
    doubts,
    reason,
)
from accelsim.capacity.candidates import Candidate, ServiceAnswer, candidates
from accelsim.capacity.draws import Draws
from accelsim.capacity.fleet import FleetProblem, InstanceFleet
from accelsim.capacity.jobs import JobWay, ways
from accelsim.capacity.scenario import Scenario, load_scenario
from accelsim.capacity.search import irreducible_conflict, solve
from accelsim.capacity.token_service import service_answer
from accelsim.catalog.workloads import workload
from accelsim.economics.carbon import embodied_kgco2e
from accelsim.economics.dates import is_mixed
from accelsim.errors import InvalidValueError
from accelsim.estimation.pareto import pareto_mask
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.graph import FloatArray

_ALTERNATIVES = 4
#: How often the planned risk is halved until the draws hold.
_HALVINGS = 5
#: Most instances beside the scenario's redundancy that may be needed for those that are down.
_SPARES = 3
_LOADS = (0.5, 2.0, 10.0)
_PROBABILITIES = (0.5, 0.99)
_EFFICIENCIES = (0.8, 1.25)
_ERRORS = (0.5, 2.0)


@frozen
class _Question:
    """What a fleet is looked for, beside the scenario.

    Attributes:
        probability: That limits of time hold.
        load: Of each service (or of all), and of jobs where it is one number, over the scenario's.
        without: Devices, and hardware of one's own, left out.
        goal: Objective in place of the scenario's.
        efficiency: Speed of all devices over the predicted one.
        error: Spread of the model's error over the known one.
        spares: Instances of each service that may be down, beside the scenario's redundancy.
    """

    probability: float
    load: float | FloatArray = 1.0
    without: tuple[str, ...] = ()
    goal: str = ""
    efficiency: float = 1.0
    error: float = 1.0
    spares: int = 0

    @property
    def work(self) -> float:
        """Time of a job over the scenario's."""
        return (self.load if isinstance(self.load, float) else 1.0) / self.efficiency


@checked
def plan(scenario: str | Path | Mapping[str, Any] | Scenario) -> CapacityPlan:
    """Recommend a fleet.

    Args:
        scenario: File, its content, or a scenario.

    Returns:
        The recommended fleet with runner-ups, or the constraints that no fleet keeps together.

    Raises:
        InputError: If a field is wrong, a name is unknown, or no offer matches.
    """
    asked = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    for one in (*asked.services, *asked.jobs):
        workload(one.model)
    return _Planner(asked).answer()


@dataclass(slots=True)
class _Planner:
    """One scenario, its offers, and what was found out about their devices."""

    scenario: Scenario
    offers: list[Candidate] = field(init=False)
    left_out: list[str] = field(init=False)
    answers: dict[tuple[int, str], ServiceAnswer] = field(default_factory=dict)
    refined: dict[tuple[int, str, float], float] = field(default_factory=dict)
    ways: list[JobWay] = field(init=False)
    gap_fraction: float = 0.0

    def __post_init__(self) -> None:
        limits = self.scenario.constraints
        self.offers, self.left_out = candidates(
            self.scenario.candidates,
            limits.carbon_basis,
            limits.residency,
            self._keeps_kinds(),
        )
        self._need_carbon()
        self._check_quota()
        self._score()
        self.ways, without_way = ways(self.scenario, self.offers)
        self.left_out += without_way

    def _keeps_kinds(self) -> bool:
        """Whether price kinds differ in more than the price."""
        is_committed = any(kind.startswith("committed") for kind in self.scenario.candidates.kinds)
        fails = self.scenario.reliability.spot_mtbf_s is not None
        return fails or (is_committed and bool(self.scenario.jobs))

    @property
    def _wanted(self) -> float:
        """Probability that all are planned for at first: the largest that is asked."""
        limits = self.scenario.constraints
        asked = [limits.slo_probability] if self.scenario.services else []
        asked += [limits.deadline_probability] if self.scenario.jobs else []
        return max(asked)

    def answer(self) -> CapacityPlan:
        wanted = self._wanted
        best, problem = self._best(_Question(wanted))
        if best is None:
            conflicts = self._conflicts(problem)
            return CapacityPlan(self.scenario, conflicts=conflicts, warnings=self._warnings())
        recommended = self._checked() or self._fleet_answer(best, problem, _Question(wanted))
        others = self._alternatives(recommended)
        front = _pareto([recommended, *others, *self._extremes()])
        sensitivity = [*self._sensitivity(recommended), *_price_limit(recommended, others)]
        return CapacityPlan(
            self.scenario,
            recommended=recommended,
            alternatives=tuple(others),
            pareto=tuple(front),
            sensitivity=tuple(sensitivity),
            cost_by_month=tuple(self._months(wanted)),
            reason=reason(self.scenario, recommended, others),
            warnings=(*doubts(recommended, self.scenario), *self._warnings()),
        )

    def _need_carbon(self) -> None:
        """Leave out offers of unknown carbon where it decides."""
        if not self._decides("carbon", self.scenario.constraints.carbon_kgco2e_per_month):
            return
        known = [offer for offer in self.offers if offer.kgco2e_per_kwh is not None]
        if len(known) < len(self.offers):
            count = len(self.offers) - len(known)
            self.left_out.append(f"{count} offers in regions whose carbon is unknown")
        if not known:
            basis = self.scenario.constraints.carbon_basis
            allowed = f"regions whose {basis} intensity is known"
            raise InvalidValueError("carbon_basis", basis, allowed, "Widen candidates.regions.")
        self.offers = known

    def _decides(self, goal: str, limit: float | None) -> bool:
        return self.scenario.objective == goal or limit is not None

    def _check_quota(self) -> None:
        for name in self.scenario.constraints.quota:
            if not any(name in names_of(offer) for offer in self.offers):
                allowed = "a provider, device or offer among the candidates"
                raise InvalidValueError("quota", name, allowed)

    def _score(self) -> None:
        """Ask each device about each service, and keep why it cannot."""
        limits = self.scenario.constraints
        needs_energy = self._decides("energy", limits.power_w)
        needs_energy |= self._decides("carbon", limits.carbon_kgco2e_per_month)
        for place, service in enumerate(self.scenario.services):
            for device in dict.fromkeys(offer.device for offer in self.offers):
                found = service_answer(service, device)
                if isinstance(found, str):
                    self.left_out.append(f"{device}, {service.name}: {found}")
                elif needs_energy and not found.has_energy:
                    self.left_out.append(f"{device}, {service.name}: its energy is unknown")
                else:
                    self.answers[place, device] = found

    def _rate_per_s(self, place: int, device: str, factor: float) -> float:
        """Upper bound of what one replica carries, or the simulated rate once there is one."""
        known = self.refined.get((place, device, factor))
        if known is not None:
            return known
        found = self.answers.get((place, device))
        return 0.0 if found is None else found.bound_per_s(factor)

    def _refine(self, place: int, device: str, factor: float) -> None:
        generator = RandomStreams(self.scenario.seed).stream("arrivals", place)
        carried = self.answers[place, device].carried_per_s(factor, generator)
        self.refined[place, device, factor] = carried

    def _factor(self, place: int, device: str, asked: _Question) -> float:
        """Time at a quantile of the model's error over the predicted time."""
        from statistics import NormalDist

        found = self.answers.get((place, device))
        sigma = 0.0 if found is None else found.log_sigma
        quantile = NormalDist().inv_cdf(asked.probability) * sigma * asked.error
        return math.exp(quantile) / asked.efficiency

    def _replicas(self, place: int, offer: Candidate) -> int:
        """Replicas of a service that an instance holds."""
        found = self.answers.get((place, offer.device))
        return 0 if found is None else offer.device_count // found.ranks

    def _problem(self, asked: _Question) -> FleetProblem:
        """The programme under the rates known by now."""
        services = self.scenario.services
        demand = asked.load * np.array([service.requests_per_s for service in services])
        rate = np.zeros((len(services), len(self.offers)))
        for place in range(len(services)):
            for column, offer in enumerate(self.offers):
                if offer.choice not in asked.without:
                    factor = self._factor(place, offer.device, asked)
                    one = self._rate_per_s(place, offer.device, factor)
                    rate[place, column] = one * self._replicas(place, offer)
        open_ways = self._open_ways(asked)
        amounts = self._uses.amounts(rate, open_ways, demand)
        limits = {name: amount for name, amount in amounts.items() if amount.limit is not None}
        objective = amounts[AMOUNTS[asked.goal or self.scenario.objective]]
        redundancy = self.scenario.constraints.redundancy + asked.spares
        job = np.array([way.job for way in open_ways], dtype=np.int64)
        jobs = len(self.scenario.jobs)
        return FleetProblem(demand, rate, objective, limits, redundancy, job, jobs)

    @property
    def _uses(self) -> Uses:
        return Uses(self.scenario, self.offers, self.answers)

    def _open_ways(self, asked: _Question) -> list[JobWay]:
        """Ways that keep their deadline."""
        jobs = self.scenario.jobs
        return [
            way
            for way in (one.at(asked.work) for one in self.ways)
            if self.offers[way.column].choice not in asked.without
            and way.time_at_s(asked.probability, asked.error) <= jobs[way.job].deadline_s
        ]

    def _best(self, asked: _Question) -> tuple[InstanceFleet | None, FleetProblem]:
        """The best fleet of simulated devices alone."""
        while True:
            problem = self._problem(asked)
            fleet = solve(problem)
            if fleet is None:
                return None, problem
            used = {(p, self.offers[column].device) for p, column in np.argwhere(fleet.count > 0)}
            keys = [(int(p), device, self._factor(p, device, asked)) for p, device in used]
            new = [key for key in keys if key not in self.refined]
            if not new:
                self.gap_fraction = max(self.gap_fraction, fleet.gap_fraction)
                return fleet, problem
            for key in sorted(new):
                self._refine(*key)

    def _checked(self, without: tuple[str, ...] = (), goal: str = "") -> FleetAnswer | None:
        """The best fleet whose latency holds with the probability asked for in the draws: where it
        does not, as the errors of several devices come together, it is planned for half the risk;
        where that is no help, for one instance more that is down.
        """
        reliability = self.scenario.reliability
        fails = reliability.instance_mtbf_s or reliability.spot_mtbf_s
        most = _SPARES if fails and self.scenario.services else 0
        for spares, halvings in product(range(most + 1), range(_HALVINGS)):
            risk = (1 - self._wanted) / 2**halvings
            planned = _Question(1 - risk, without=without, goal=goal, spares=spares)
            fleet, problem = self._best(planned)
            if fleet is None:
                return None
            answer = self._fleet_answer(fleet, problem, planned)
            if answer.keeps(self.scenario.constraints):
                return answer
        return None

    def _alternatives(self, best: FleetAnswer) -> list[FleetAnswer]:
        """The best fleets without the devices of those before."""
        found: list[FleetAnswer] = []
        without = best.choices
        while len(found) < _ALTERNATIVES and (answer := self._checked(without)) is not None:
            found.append(answer)
            without = without + answer.choices
        return found

    def _extremes(self) -> list[FleetAnswer]:
        """The best fleet of each other objective whose figures are known of all candidates."""
        is_metered = all(answer.has_energy for answer in self.answers.values())
        is_metered &= all(way.energy_j is not None for way in self.ways)
        is_known = all(offer.kgco2e_per_kwh is not None for offer in self.offers)
        known = {"cost": True, "energy": is_metered, "carbon": is_metered and is_known}
        goals = [goal for goal, is_sure in known.items() if is_sure]
        answers = [self._checked(goal=g) for g in goals if g != self.scenario.objective]
        return [answer for answer in answers if answer is not None]

    def _sensitivity(self, recommended: FleetAnswer) -> list[Document]:
        """What other loads, speeds and certainty would choose."""
        wanted = self._wanted
        rows = [("load_ratio", x, _Question(wanted, load=x)) for x in _LOADS]
        rows += [("efficiency_ratio", x, _Question(wanted, efficiency=x)) for x in _EFFICIENCIES]
        rows += [("model_error_ratio", x, _Question(wanted, error=x)) for x in _ERRORS]
        rows += [("probability", x, _Question(x)) for x in _PROBABILITIES if x != wanted]
        chosen = {offer.device for offer in recommended.offers}
        found = []
        for parameter, value, asked in rows:
            fleet, _ = self._best(asked)
            offers = [] if fleet is None else self._counts(fleet, self._open_ways(asked))
            devices = {offer.device for offer in offers}
            counts = [offer.to_dict() for offer in offers]
            cost = None if fleet is None else sum(o.cost_usd_per_month for o in offers)
            found.append(
                {
                    "parameter": parameter,
                    "value": value,
                    "offers": counts,
                    "cost_usd_per_month": cost,
                    "changes_decision": devices != chosen,
                }
            )
        return found

    def _months(self, probability: float) -> list[float | None]:
        """Cost of each month under growth."""
        costs: list[float | None] = []
        growth = np.array([s.growth_fraction_per_month for s in self.scenario.services])
        for month in range(self.scenario.months if self.scenario.months > 1 else 0):
            asked = _Question(probability, load=(1 + growth) ** month)
            fleet, _ = self._best(asked)
            offers = [] if fleet is None else self._counts(fleet, self._open_ways(asked))
            costs.append(sum(o.cost_usd_per_month for o in offers) if offers else None)
        return costs

    def _counts(self, fleet: InstanceFleet, open_ways: Sequence[JobWay]) -> list[OfferCount]:
        counts = fleet.count.sum(axis=0)
        found: dict[int, tuple[int, float]] = {}
        for column in np.flatnonzero(counts).tolist():
            hourly = self.offers[column].quote.instance_usd_per_hour
            found[column] = (int(counts[column]), counts[column] * hourly * HOURS_PER_MONTH)
        for way in (open_ways[place] for place in fleet.ways):
            runs = self.scenario.jobs[way.job].runs_per_month
            count, usd = found.get(way.column, (0, 0.0))
            more = way.cost_usd(self.offers[way.column], runs) * runs
            found[way.column] = (count + way.count, usd + more)
        return [
            OfferCount(self.offers[c].quote.quote_id, self.offers[c].device, count, float(usd))
            for c, (count, usd) in sorted(found.items())
        ]

    def _fleet_answer(
        self, fleet: InstanceFleet, problem: FleetProblem, asked: _Question
    ) -> FleetAnswer:
        open_ways = self._open_ways(asked)
        taken = [open_ways[place] for place in fleet.ways]
        amounts = self._uses.amounts(problem.rate_per_s, open_ways, problem.demand_per_s)
        columns = {*np.flatnonzero(fleet.count.sum(axis=0)), *(way.column for way in taken)}
        metered = all(
            self.answers[int(p), self.offers[c].device].has_energy
            for p, c in np.argwhere(fleet.count > 0)
        )
        metered &= all(way.energy_j is not None for way in taken)
        is_known = metered and all(self.offers[c].kgco2e_per_kwh is not None for c in columns)
        capacity = (fleet.count * problem.rate_per_s).sum(axis=1)
        headroom = [*(capacity / problem.demand_per_s - 1), *self._spare(taken, asked)]
        draws = self._draws(asked.probability)
        return FleetAnswer(
            offers=tuple(self._counts(fleet, open_ways)),
            cost_usd_per_month=fleet.uses(amounts["budget"]),
            energy_j_per_month=fleet.uses(amounts["power"]) * SECONDS_PER_MONTH
            if metered
            else None,
            carbon_kgco2e_per_month=fleet.uses(amounts["carbon"]) if is_known else None,
            slo_probability=draws.slo_probability(fleet),
            headroom_fraction=float(min(headroom)),
            placement=(*self._placement(fleet), *self._job_placement(taken)),
            deadline_probability=draws.deadline_probability(taken),
            embodied_kgco2e_per_month=self._embodied(fleet, taken),
        )

    def _embodied(self, fleet: InstanceFleet, taken: Sequence[JobWay]) -> tuple[float, float]:
        """Carbon of making instances, those of services held all month, those of jobs as long as
        they run.
        """
        counts = fleet.count.sum(axis=0)
        held = [(c, counts[c] * SECONDS_PER_MONTH) for c in np.flatnonzero(counts).tolist()]
        for way in taken:
            runs = self.scenario.jobs[way.job].runs_per_month
            held.append((way.column, way.count * way.time_s * runs))
        shares = [
            embodied_kgco2e(1, self.offers[column].accelerator_count, seconds)
            for column, seconds in held
        ]
        return sum(low for low, _ in shares), sum(high for _, high in shares)

    def _spare(self, taken: Sequence[JobWay], asked: _Question) -> list[float]:
        """Work that each job could have more, within its deadline."""
        jobs = self.scenario.jobs
        times = [way.time_at_s(asked.probability, asked.error) for way in taken]
        return [jobs[w.job].deadline_s / t - 1 for w, t in zip(taken, times, strict=True)]

    def _job_placement(self, taken: Sequence[JobWay]) -> tuple[Document, ...]:
        return tuple(
            {
                "job": self.scenario.jobs[way.job].name,
                "offer": self.offers[way.column].quote.quote_id,
                "count": way.count,
                "time_s": way.time_s,
                "cost_usd": way.cost_usd(
                    self.offers[way.column], self.scenario.jobs[way.job].runs_per_month
                ),
            }
            for way in taken
        )

    def _placement(self, fleet: InstanceFleet) -> tuple[Document, ...]:
        return tuple(
            {
                "service": self.scenario.services[place].name,
                "offer": self.offers[column].quote.quote_id,
                "count": int(fleet.count[place, column]),
                "requests_per_s": float(fleet.load_per_s[place, column]),
            }
            for place, column in np.argwhere(fleet.count > 0)
        )

    def _draws(self, planned: float) -> Draws:
        """Batches are as large as `planned`, the probability planned for, allows."""
        factors = {pair: self._factor(*pair, _Question(planned)) for pair in self.answers}
        return Draws(self.scenario, self.offers, self.answers, factors)

    def _conflicts(self, problem: FleetProblem) -> tuple[str, ...]:
        """Constraints that cannot hold together, none of which can be left out."""
        services = self.scenario.services
        alone = [
            f"services.{service.name}.{service.limits[0][0]}"
            for place, service in enumerate(services)
            if not problem.rate_per_s[place].any()
        ]
        undone = sorted(set(range(problem.job_count)) - set(problem.job.tolist()))
        deadlines = [f"jobs.{job.name}.deadline_s" for job in self.scenario.jobs]
        alone += [deadlines[place] for place in undone]
        if alone:
            return (*alone, "candidates.devices")
        names = irreducible_conflict(problem)
        loads = [f"services.{service.name}.requests_per_s" for service in services] + deadlines
        return (*(f"constraints.{_FIELDS.get(name, name)}" for name in names), *loads)

    def _warnings(self) -> tuple[str, ...]:
        energy = "energy and carbon are of the devices and the site; hosts are not counted"
        dates = {offer.quote.offer.dated(offer.quote.kind) for offer in self.offers}
        mixed = f"prices of {min(filter(None, dates), default='')} and {max(dates)} are compared"
        better = f"a fleet better by up to {self.gap_fraction:.1%} than one shown may exist"
        stopped = f"a search stopped at its time limit: {better}"
        left_out = (f"left out: {reason}" for reason in self.left_out)
        flagged = ((mixed, is_mixed(dates)), (stopped, self.gap_fraction > 0))
        return (energy, *(words for words, is_so in flagged if is_so), *left_out)


_FIELDS = {
    "budget": "budget_usd_per_month",
    "power": "power_w",
    "carbon": "carbon_kgco2e_per_month",
}


def _pareto(fleets: Sequence[FleetAnswer]) -> list[FleetAnswer]:
    """Fleets that no other beats in cost, energy and carbon at once, cheapest first; unknown
    carbon counts as worst.
    """
    distinct = list({fleet.offers: fleet for fleet in fleets}.values())
    is_kept = pareto_mask(np.array([fleet.objectives for fleet in distinct]))
    kept = compress(distinct, is_kept)
    return sorted(kept, key=lambda fleet: fleet.cost_usd_per_month)


def _price_limit(recommended: FleetAnswer, others: Sequence[FleetAnswer]) -> list[Document]:
    """How much dearer the recommended offers may become before the runner-up is cheaper."""
    if not others or others[0].cost_usd_per_month < recommended.cost_usd_per_month:
        return []
    second = others[0]
    return [
        {
            "parameter": "price_ratio",
            "value": second.cost_usd_per_month / recommended.cost_usd_per_month,
            "offers": [offer.to_dict() for offer in second.offers],
            "cost_usd_per_month": second.cost_usd_per_month,
            "changes_decision": True,
        }
    ]
