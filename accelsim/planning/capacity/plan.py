"""From a scenario to the fleet that answers it at the least cost, energy or carbon.

Each device is scored in closed form: what it carries back to back in batches short enough that one
can be waited for and the next answered within the limit. These scores are upper bounds; a
mixed-integer programme chooses the fleet, the queue of every device chosen is simulated for what it
carries under Poisson arrivals, and the programme is solved again until it chooses none but
simulated devices. Its answer is then the best under simulated rates, since the scores of all other
devices are still upper bounds. Times are taken at the quantile that makes the limit hold with the
probability asked for; what is found is checked by joint draws of model error and arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.errors import InvalidValueError
from accelsim.planning.capacity.answer import CapacityPlan, FleetAnswer, OfferCount, reason
from accelsim.planning.capacity.batch_queue import largest_rate_per_s, latencies_s
from accelsim.planning.capacity.candidates import (
    Candidate,
    DeviceAnswer,
    candidates,
    device_answer,
)
from accelsim.planning.capacity.fleet import (
    Amount,
    Fleet,
    FleetProblem,
    irreducible_conflict,
    solve,
)
from accelsim.planning.capacity.scenario import Scenario, load_scenario
from accelsim.simulation.randomness import RandomStreams
from accelsim.workload_catalog import workload
from accelsim.workloads.graph import FloatArray

__all__ = ["plan"]

HOURS_PER_MONTH: Final = HOURS_PER_YEAR / 12
_SECONDS_PER_MONTH: Final = HOURS_PER_MONTH * 3600.0
_JOULE_PER_KWH: Final = 3.6e6
_QUANTILE: Final = 0.99
_ALTERNATIVES: Final = 4
#: How often the planned risk is halved until the draws hold.
_HALVINGS: Final = 5
#: Requests of one draw; 10 lie beyond the 99th percentile.
_DRAWN_REQUESTS: Final = 1000
_LOADS: Final = (0.5, 2.0, 10.0)
_PROBABILITIES: Final = (0.5, 0.99)


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
    for service in asked.services:
        workload(service.model)
    return _Planner(asked).answer()


@dataclass(slots=True)
class _Planner:
    """One scenario, its offers, and what was found out about their devices."""

    scenario: Scenario
    offers: list[Candidate] = field(init=False)
    left_out: list[str] = field(init=False)
    answers: dict[tuple[int, str], DeviceAnswer] = field(default_factory=dict)
    refined: dict[tuple[int, str, float], float] = field(default_factory=dict)
    is_proven: bool = True

    def __post_init__(self) -> None:
        limits = self.scenario.constraints
        self.offers, self.left_out = candidates(self.scenario.candidates, limits.carbon_basis)
        self._need_carbon()
        self._check_quota()
        self._score()

    def answer(self) -> CapacityPlan:
        wanted = self.scenario.constraints.slo_probability
        best, problem = self._best(wanted)
        if best is None:
            conflicts = self._conflicts(problem)
            return CapacityPlan(self.scenario, conflicts=conflicts, warnings=self._warnings())
        recommended = self._checked() or self._fleet_answer(best, problem, wanted)
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
            warnings=(*_doubt(recommended, wanted), *self._warnings()),
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
            if not any(name in _names(offer) for offer in self.offers):
                allowed = "a provider, device or offer among the candidates"
                raise InvalidValueError("quota", name, allowed)

    def _score(self) -> None:
        """Ask each device about each service, and keep why it cannot."""
        limits = self.scenario.constraints
        needs_energy = self._decides("energy", limits.power_w)
        needs_energy |= self._decides("carbon", limits.carbon_kgco2e_per_month)
        for place, service in enumerate(self.scenario.services):
            for device in dict.fromkeys(offer.device for offer in self.offers):
                found = device_answer(service, device)
                if isinstance(found, str):
                    self.left_out.append(f"{device}, {service.name}: {found}")
                elif needs_energy and not found.has_energy:
                    self.left_out.append(f"{device}, {service.name}: its energy is unknown")
                else:
                    self.answers[place, device] = found

    def _rate_per_s(self, place: int, device: str, factor: float) -> float:
        """Upper bound of what one device carries, or the simulated rate once there is one."""
        known = self.refined.get((place, device, factor))
        if known is not None:
            return known
        found = self.answers.get((place, device))
        if found is None:
            return 0.0
        batch = found.times.within(self.scenario.services[place].latency_p99_s / factor)
        return found.times.saturated_rate_per_s(batch) / factor

    def _refine(self, place: int, device: str, factor: float) -> None:
        found, service = self.answers[place, device], self.scenario.services[place]
        limit = service.latency_p99_s / factor
        generator = RandomStreams(self.scenario.seed).stream("arrivals", place)
        rate = largest_rate_per_s(found.times, limit, found.times.within(limit), generator)
        self.refined[place, device, factor] = rate / factor

    def _factor(self, place: int, device: str, probability: float) -> float:
        """Time at a quantile of the model's error over the predicted time."""
        from statistics import NormalDist

        found = self.answers.get((place, device))
        sigma = 0.0 if found is None else found.log_sigma
        return math.exp(NormalDist().inv_cdf(probability) * sigma)

    def _problem(
        self,
        probability: float,
        load: float | FloatArray = 1.0,
        without: Sequence[str] = (),
        goal: str = "",
    ) -> FleetProblem:
        """The programme under the rates known by now."""
        services = self.scenario.services
        demand = load * np.array([service.requests_per_s for service in services])
        rate = np.zeros((len(services), len(self.offers)))
        for place in range(len(services)):
            for column, offer in enumerate(self.offers):
                if offer.device not in without:
                    factor = self._factor(place, offer.device, probability)
                    one = self._rate_per_s(place, offer.device, factor)
                    rate[place, column] = one * offer.device_count
        amounts = self._amounts(rate)
        limits = {name: amount for name, amount in amounts.items() if amount.limit is not None}
        goal = goal or self.scenario.objective
        objective = {"cost": "budget", "energy": "power", "carbon": "carbon"}[goal]
        redundancy = self.scenario.constraints.redundancy
        return FleetProblem(demand, rate, amounts[objective], limits, redundancy)

    def _amounts(self, rate: FloatArray) -> dict[str, Amount]:
        """What instances and load use: cost and carbon a month, mean power, instances."""
        limits, offers = self.scenario.constraints, self.offers
        idle, dynamic = self._power(rate)
        price = np.array([o.quote.instance_usd_per_hour for o in offers]) * HOURS_PER_MONTH
        per_w = np.array([_kgco2e_per_w(o) for o in offers])
        none, one = np.zeros_like(rate), np.ones(len(offers))
        amounts = {
            "budget": Amount(price, none, limits.budget_usd_per_month),
            "power": Amount(idle, dynamic, limits.power_w),
            "carbon": Amount(idle * per_w, dynamic * per_w, limits.carbon_kgco2e_per_month),
            "instance_count": Amount(one, none, limits.instance_count),
        }
        for name, count in limits.quota.items():
            is_of = np.array([float(name in _names(offer)) for offer in offers])
            amounts[f"quota.{name}"] = Amount(is_of, none, count)
        return amounts

    def _power(self, rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Idle power of an instance, and joules of a request on top, site overhead included."""
        idle, dynamic = np.zeros(rate.shape[1]), np.zeros_like(rate)
        for column, offer in enumerate(self.offers):
            for place, service in enumerate(self.scenario.services):
                found = self.answers.get((place, offer.device))
                if found is None or found.idle_w is None or not found.has_energy:
                    continue
                one = rate[place, column] / offer.device_count
                share = service.mean_load_fraction * offer.pue_ratio
                idle[column] = found.idle_w * offer.device_count * offer.pue_ratio
                dynamic[place, column] = found.dynamic_j_at(one) * share
        return idle, dynamic

    def _best(
        self,
        probability: float,
        load: float | FloatArray = 1.0,
        without: Sequence[str] = (),
        goal: str = "",
    ) -> tuple[Fleet | None, FleetProblem]:
        """The best fleet of simulated devices alone."""
        while True:
            problem = self._problem(probability, load, without, goal)
            fleet = solve(problem)
            if fleet is None:
                return None, problem
            used = {(p, self.offers[column].device) for p, column in np.argwhere(fleet.count > 0)}
            keys = [(int(p), device, self._factor(p, device, probability)) for p, device in used]
            new = [key for key in keys if key not in self.refined]
            if not new:
                self.is_proven &= fleet.is_proven
                return fleet, problem
            for key in sorted(new):
                self._refine(*key)

    def _checked(self, without: Sequence[str] = (), goal: str = "") -> FleetAnswer | None:
        """The best fleet whose latency holds with the probability asked for in the draws: where it
        does not, as the errors of several devices come together, it is planned for half the risk.
        """
        wanted = self.scenario.constraints.slo_probability
        for halvings in range(_HALVINGS):
            planned = 1 - (1 - wanted) / 2**halvings
            fleet, problem = self._best(planned, without=without, goal=goal)
            if fleet is None:
                return None
            answer = self._fleet_answer(fleet, problem, planned)
            if answer.slo_probability >= wanted:
                return answer
        return None

    def _alternatives(self, best: FleetAnswer) -> list[FleetAnswer]:
        """The best fleets without the devices of those before."""
        found: list[FleetAnswer] = []
        without = best.devices
        while len(found) < _ALTERNATIVES and (answer := self._checked(without)) is not None:
            found.append(answer)
            without = without + answer.devices
        return found

    def _extremes(self) -> list[FleetAnswer]:
        """The best fleet of each other objective whose figures are known of all candidates."""
        is_metered = all(answer.has_energy for answer in self.answers.values())
        is_known = all(offer.kgco2e_per_kwh is not None for offer in self.offers)
        known = {"cost": True, "energy": is_metered, "carbon": is_metered and is_known}
        goals = [goal for goal, is_sure in known.items() if is_sure]
        answers = [self._checked(goal=g) for g in goals if g != self.scenario.objective]
        return [answer for answer in answers if answer is not None]

    def _devices(self, fleet: Fleet) -> tuple[str, ...]:
        return tuple(self.offers[c].device for c in np.flatnonzero(fleet.count.sum(axis=0)))

    def _sensitivity(self, recommended: FleetAnswer) -> list[dict[str, Any]]:
        """What other loads and other certainty would choose."""
        wanted = self.scenario.constraints.slo_probability
        rows = [("load_ratio", load, self._best(wanted, load)) for load in _LOADS]
        rows += [("slo_probability", p, self._best(p)) for p in _PROBABILITIES if p != wanted]
        chosen = {offer.device for offer in recommended.offers}
        found = []
        for parameter, value, (fleet, problem) in rows:
            devices = () if fleet is None else self._devices(fleet)
            counts = [] if fleet is None else [o.to_dict() for o in self._counts(fleet)]
            cost = (
                None if fleet is None else fleet.uses(self._amounts(problem.rate_per_s)["budget"])
            )
            found.append(
                {
                    "parameter": parameter,
                    "value": value,
                    "offers": counts,
                    "cost_usd_per_month": cost,
                    "changes_decision": set(devices) != chosen,
                }
            )
        return found

    def _months(self, probability: float) -> list[float | None]:
        """Cost of each month under growth."""
        costs: list[float | None] = []
        growth = np.array([s.growth_fraction_per_month for s in self.scenario.services])
        for month in range(self.scenario.months if self.scenario.months > 1 else 0):
            fleet, problem = self._best(probability, (1 + growth) ** month)
            budget = self._amounts(problem.rate_per_s)["budget"]
            costs.append(None if fleet is None else fleet.uses(budget))
        return costs

    def _counts(self, fleet: Fleet) -> list[OfferCount]:
        counts = fleet.count.sum(axis=0)
        found = []
        for column in np.flatnonzero(counts).tolist():
            offer, count = self.offers[column], int(counts[column])
            cost = count * offer.quote.instance_usd_per_hour * HOURS_PER_MONTH
            found.append(OfferCount(offer.quote.quote_id, offer.device, count, cost))
        return found

    def _fleet_answer(self, fleet: Fleet, problem: FleetProblem, planned: float) -> FleetAnswer:
        amounts = self._amounts(problem.rate_per_s)
        columns = np.flatnonzero(fleet.count.sum(axis=0))
        metered = all(
            self.answers[int(p), self.offers[c].device].has_energy
            for p, c in np.argwhere(fleet.count > 0)
        )
        is_known = metered and all(self.offers[c].kgco2e_per_kwh is not None for c in columns)
        capacity = (fleet.count * problem.rate_per_s).sum(axis=1)
        return FleetAnswer(
            offers=tuple(self._counts(fleet)),
            cost_usd_per_month=fleet.uses(amounts["budget"]),
            energy_j_per_month=fleet.uses(amounts["power"]) * _SECONDS_PER_MONTH
            if metered
            else None,
            carbon_kgco2e_per_month=fleet.uses(amounts["carbon"]) if is_known else None,
            slo_probability=self._slo_probability(fleet, planned),
            headroom_fraction=float((capacity / problem.demand_per_s).min() - 1),
            placement=self._placement(fleet),
        )

    def _placement(self, fleet: Fleet) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "service": self.scenario.services[place].name,
                "offer": self.offers[column].quote.quote_id,
                "count": int(fleet.count[place, column]),
                "requests_per_s": float(fleet.load_per_s[place, column]),
            }
            for place, column in np.argwhere(fleet.count > 0)
        )

    def _slo_probability(self, fleet: Fleet, planned: float) -> float:
        """Share of the draws in which each service keeps its limit: the error of each device's
        model is one factor on all its times, arrivals are split over its replicas at random.
        Batches are as large as `planned`, the probability the fleet was planned for, allows.
        """
        held = sum(self._holds(fleet, planned, draw) for draw in range(self.scenario.draws))
        return held / self.scenario.draws

    def _holds(self, fleet: Fleet, planned: float, draw: int) -> bool:
        for place, service in enumerate(self.scenario.services):
            late = 0.0
            for column in np.flatnonzero(fleet.count[place]).tolist():
                share = fleet.load_per_s[place, column] / service.requests_per_s
                late += share * self._late_share(fleet, planned, (place, column), draw)
            if late > 1 - _QUANTILE:
                return False
        return True

    def _late_share(self, fleet: Fleet, planned: float, pair: tuple[int, int], draw: int) -> float:
        """Share of the answers of one replica that come late."""
        place, column = pair
        streams = RandomStreams(self.scenario.seed)
        offer, service = self.offers[column], self.scenario.services[place]
        found = self.answers[place, offer.device]
        error = streams.stream(f"model error {offer.device}", draw).standard_normal()
        factor = math.exp(found.log_sigma * error)
        replicas = fleet.count[place, column] * offer.device_count
        rate = fleet.load_per_s[place, column] / replicas
        if rate == 0:
            return 0.0
        safety = self._factor(place, offer.device, planned)
        batch = found.times.within(service.latency_p99_s / safety)
        generator = streams.stream("checked arrivals", draw, place, column)
        arrivals = np.cumsum(generator.exponential(size=_DRAWN_REQUESTS)) / rate
        by_size = [factor * time for time in found.times.up_to(batch)]
        return float(np.mean(latencies_s(arrivals, by_size) > service.latency_p99_s))

    def _conflicts(self, problem: FleetProblem) -> tuple[str, ...]:
        """Constraints that cannot hold together, none of which can be left out."""
        services = self.scenario.services
        alone = [
            f"services.{service.name}.latency_p99_s"
            for place, service in enumerate(services)
            if not problem.rate_per_s[place].any()
        ]
        if alone:
            return (*alone, "candidates.devices")
        names = irreducible_conflict(problem)
        loads = [f"services.{service.name}.requests_per_s" for service in services]
        return (*(f"constraints.{_FIELDS.get(name, name)}" for name in names), *loads)

    def _warnings(self) -> tuple[str, ...]:
        energy = "energy and carbon are of the devices and the site; hosts are not counted"
        stopped = "a search stopped at its time limit: a better fleet than one shown may exist"
        left_out = (f"left out: {reason}" for reason in self.left_out)
        return (energy, *(() if self.is_proven else (stopped,)), *left_out)


_FIELDS: Final = {
    "budget": "budget_usd_per_month",
    "power": "power_w",
    "carbon": "carbon_kgco2e_per_month",
}


def _doubt(recommended: FleetAnswer, wanted: float) -> tuple[str, ...]:
    """What to know of a fleet whose latency holds less often than asked for."""
    found = recommended.slo_probability
    words = f"no fleet was found whose latency holds in {wanted:.0%} of the draws: {found:.0%}"
    return () if found >= wanted else (words,)


def _names(offer: Candidate) -> tuple[str, ...]:
    """What a quota may call an offer."""
    of = offer.quote.offer
    return (of.provider, str(of.device), of.offer_id)


def _kgco2e_per_w(offer: Candidate) -> float:
    """Carbon of a watt over a month; 0 where unknown, which is told apart where it is read."""
    return (offer.kgco2e_per_kwh or 0.0) * _SECONDS_PER_MONTH / _JOULE_PER_KWH


def _pareto(fleets: Sequence[FleetAnswer]) -> list[FleetAnswer]:
    """Fleets that no other beats in cost, energy and carbon at once, cheapest first; unknown
    carbon counts as worst.
    """
    distinct = list({fleet.offers: fleet for fleet in fleets}.values())
    points = [fleet.objectives for fleet in distinct]
    kept = [
        fleet
        for fleet, point in zip(distinct, points, strict=True)
        if not any(
            other != point and all(o <= p for o, p in zip(other, point, strict=True))
            for other in points
        )
    ]
    return sorted(kept, key=lambda fleet: fleet.cost_usd_per_month)


def _price_limit(recommended: FleetAnswer, others: Sequence[FleetAnswer]) -> list[dict[str, Any]]:
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
