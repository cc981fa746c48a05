"""From a scenario to the fleet that answers it at the least cost, energy or carbon.

Every layout of every device has a bound: what full batches serve, what the peak computes. A
programme chooses one way for each service and job by these bounds; what it chooses is searched as
`accelsim.serve` and `accelsim.train` do (all of a service's replicas behind their router, all plans
of a job), and the programme is solved again until it chooses nothing but what was searched. Its
answer is then the best, since all else is at its bound (branch and bound; Land and Doig,
Econometrica 28(3), 1960).

The answer is at the median of the model's error; what more certainty costs stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from accelsim.arguments import checked
from accelsim.capacity.answer import CapacityPlan, FleetAnswer, reason
from accelsim.capacity.candidates import Candidate, candidates
from accelsim.capacity.fleet import FleetProblem, solve
from accelsim.capacity.fleet_answer import fleet_answer, ways_to_own
from accelsim.capacity.fleet_ways import Question, Way, WayMaker, names_of
from accelsim.capacity.misses import no_plan
from accelsim.capacity.rows import candidate_rows
from accelsim.capacity.scenario import Scenario, load_scenario
from accelsim.catalog.workloads import workload
from accelsim.economics.dates import is_mixed
from accelsim.errors import InvalidValueError
from accelsim.estimation.pareto import pareto_mask
from accelsim.plain import Document
from accelsim.workloads.graph import IntArray

_ALTERNATIVES = 4
#: Cost of a runner-up over that of the best from which on it is not searched; the first is to the
#: end where it may be below that.
_WORTH_SEARCHING = 2.0
_LOADS = (0.5, 2.0)
#: Certainty about the model whose price stands beside the answer.
_CERTAINTIES = (0.8, 0.9)
Report = Callable[[float, float | None, str], None]


@checked
def plan(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    *,
    report: Any | None = None,
    best_alone: bool = False,
) -> CapacityPlan:
    """Recommend the cheapest fleet for the services and jobs of a scenario.

    Args:
        scenario: File, its content, or a scenario.
        report: Called with what is done, all of it, and a label.
        best_alone: Leave out what is beside the recommended fleet: others, certainty, other loads.

    Returns:
        The recommended fleet with runner-ups, or the constraints that no fleet keeps together.

    Raises:
        InputError: If a field is wrong, a name is unknown, or no offer matches.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    for task in (*scenario.services, *scenario.jobs):
        workload(task.model)
    planner = _Planner(scenario, report or (lambda *_: None))
    return planner.best_alone() if best_alone else planner.answer()


@dataclass(slots=True)
class _Planner:
    """One scenario, its offers, and what was found out about their devices."""

    scenario: Scenario
    report: Report
    offers: list[Candidate] = field(init=False)
    left_out: list[str] = field(init=False)
    maker: WayMaker = field(init=False)

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
        self.maker = WayMaker(self.scenario, self.offers)
        devices = list(dict.fromkeys(offer.device for offer in self.offers))
        for index, device in enumerate(devices):
            self.report(index, len(devices), device)
            self.maker.ask(device)
        if self._decides("energy", limits.power_w) or self._decides(
            "carbon", limits.carbon_kgco2e_per_month
        ):
            self.maker.need_energy()

    def _keeps_kinds(self) -> bool:
        """Whether price kinds differ in more than the price."""
        is_committed = any(kind.startswith("committed") for kind in self.scenario.candidates.kinds)
        fails = self.scenario.reliability.spot_mtbf_s is not None
        return fails or (is_committed and bool(self.scenario.jobs))

    def best_alone(self) -> CapacityPlan:
        """The recommended fleet, with nothing beside it."""
        question = self._asked
        ways, problem = self.best(question)
        told = (
            no_plan(self.maker, problem, question, self.best)
            if ways is None
            else {"recommended": fleet_answer(self.maker, ways, is_sure=True)}
        )
        return CapacityPlan(self.scenario, warnings=self._warnings(), **told)

    @property
    def _asked(self) -> Question:
        """What a fleet is planned for."""
        limits = self.scenario.constraints
        return Question(_z(limits.slo_probability), _z(limits.deadline_probability))

    def answer(self) -> CapacityPlan:
        """The plan."""
        question = self._asked
        ways, problem = self.best(question)
        if ways is None:
            told = no_plan(self.maker, problem, question, self.best)
            rows = candidate_rows(self.maker, None, question, self.bound)
            return CapacityPlan(
                self.scenario, candidates=tuple(rows), warnings=self._warnings(), **told
            )
        best = fleet_answer(self.maker, ways, is_sure=True)
        others = self._alternatives(best, question)
        self.report(0, None, "certainty")
        certainty = self._certainty(best)
        front = _pareto([best, *others])
        rows = candidate_rows(self.maker, best, question, self.bound)
        return CapacityPlan(
            self.scenario,
            recommended=best,
            certainty=tuple(certainty),
            candidates=tuple(rows),
            alternatives=tuple(others),
            pareto=tuple(front),
            ways=tuple(row for way in ways for row in ways_to_own(self.maker, way)),
            sensitivity=(*self._sensitivity(best, question), *_price_limit(best, others)),
            cost_by_month=tuple(self._months(question)),
            reason=reason(self.scenario, best, others),
            warnings=self._warnings(),
        )

    def _need_carbon(self) -> None:
        """Leave out offers of unknown carbon where it decides."""
        if not self._decides("carbon", self.scenario.constraints.carbon_kgco2e_per_month):
            return
        offers = [offer for offer in self.offers if offer.kgco2e_per_kwh is not None]
        if len(offers) < len(self.offers):
            count = len(self.offers) - len(offers)
            self.left_out.append(f"{count} offers in regions whose carbon is unknown")
        if not offers:
            basis = self.scenario.constraints.carbon_basis
            allowed = f"regions whose {basis} intensity is known"
            raise InvalidValueError("carbon_basis", basis, allowed, "Widen candidates.regions.")
        self.offers = offers

    def _decides(self, goal: str, limit: float | None) -> bool:
        return self.scenario.objective == goal or limit is not None

    def _check_quota(self) -> None:
        for name in self.scenario.constraints.quota:
            if not any(name in names_of(offer) for offer in self.offers):
                allowed = "a provider, device or offer among the candidates"
                raise InvalidValueError("quota", name, allowed)

    def best(
        self, question: Question, most_usd: float = math.inf
    ) -> tuple[list[Way] | None, FleetProblem]:
        """The best fleet of searched ways alone; None where it costs more than `most_usd`."""
        while True:
            ways = list(self.maker.ways(question))
            problem = self.maker.problem(ways, question)
            solution = solve(problem)
            if solution is None:
                return None, problem
            chosen = _chosen(ways, solution)
            unknown = [way for way in chosen if not way.is_final]
            if _usd(chosen) > most_usd:
                return None, problem
            if not unknown:
                return chosen, problem
            is_by_cost = not problem.limits and (question.goal or self.scenario.objective) == "cost"
            for way in unknown:
                self.report(0, None, self.maker.offer(way).device)
                self.maker.refine(way, _least_usd(ways, way.task) if is_by_cost else math.inf)

    def bound(self, question: Question) -> list[Way] | None:
        """The best fleet as far as it is known: no fleet is better."""
        ways = list(self.maker.ways(question))
        solution = solve(self.maker.problem(ways, question))
        return None if solution is None else _chosen(ways, solution)

    def _alternatives(self, best: FleetAnswer, question: Question) -> list[FleetAnswer]:
        """The best fleets without the devices of those before."""
        fleets: list[FleetAnswer] = []
        without, most_usd = best.choices, _WORTH_SEARCHING * best.cost_usd_per_month
        while len(fleets) < _ALTERNATIVES:
            other = replace(question, without=without)
            least = self.bound(other)
            if least is None or _usd(least) > most_usd:
                break
            ways, _ = self.best(other, most_usd if fleets else math.inf)
            if ways is None:
                break
            fleets.append(fleet_answer(self.maker, ways))
            without += fleets[-1].choices
        return fleets

    def _certainty(self, best: FleetAnswer) -> list[Document]:
        """What more certainty about the model takes, where the median is planned for."""
        limits = self.scenario.constraints
        if limits.slo_probability is not None or limits.deadline_probability is not None:
            return []
        rows: list[Document] = []
        for probability in _CERTAINTIES:
            question = Question(_z(probability), _z(probability), is_billed=True)
            ways, _ = self.best(question)
            if ways is None:
                rows.append({"probability": probability, "offers": []})
                continue
            fleet = fleet_answer(self.maker, ways)
            names = ("offers", "device_count", "instance_count", "cost_usd_per_month")
            amounts = ("energy_j_per_month", "carbon_kgco2e_per_month")
            row = fleet.to_dict()
            changes = {offer.device for offer in fleet.offers} != {o.device for o in best.offers}
            rows.append(
                {"probability": probability}
                | {name: row[name] for name in (*names, *amounts)}
                | {"changes_decision": changes}
            )
        return rows

    def _sensitivity(self, best: FleetAnswer, question: Question) -> list[Document]:
        """What other loads would choose."""
        chosen = {offer.device for offer in best.offers}
        rows: list[Document] = []
        for load in _LOADS:
            ways, _ = self.best(replace(question, load=load))
            fleet = None if ways is None else fleet_answer(self.maker, ways)
            offers = () if fleet is None else fleet.offers
            rows.append(
                {
                    "parameter": "load_ratio",
                    "value": load,
                    "offers": [offer.to_dict() for offer in offers],
                    "cost_usd_per_month": None if fleet is None else fleet.cost_usd_per_month,
                    "changes_decision": {offer.device for offer in offers} != chosen,
                }
            )
        return rows

    def _months(self, question: Question) -> list[float | None]:
        """Cost of each month under growth."""
        costs: list[float | None] = []
        growth = np.array([s.growth_fraction_per_month for s in self.scenario.services])
        for month in range(self.scenario.months if self.scenario.months > 1 else 0):
            loads = tuple(((1 + growth) ** month).tolist())
            ways, _ = self.best(replace(question, load=loads))
            costs.append(None if ways is None else _usd(ways))
        return costs

    def _warnings(self) -> tuple[str, ...]:
        energy = (
            "energy and carbon are of the devices in use, of training with hosts where they are "
            "known; carbon with the site's overhead"
        )
        dates = {offer.quote.offer.dated(offer.quote.kind) for offer in self.offers}
        mixed = f"prices of {min(filter(None, dates), default='')} and {max(dates)} are compared"
        models = (workload(task.model) for task in (*self.scenario.services, *self.scenario.jobs))
        notices = dict.fromkeys(notice for model in models for notice in model.notices)
        left_out = (f"left out: {reason}" for reason in dict.fromkeys(self.left_out))
        return (energy, *notices, *([mixed] if is_mixed(dates) else []), *left_out)


def _chosen(ways: Sequence[Way], solution: IntArray) -> list[Way]:
    return [ways[index] for index in solution.tolist()]


def _usd(ways: Sequence[Way]) -> float:
    return sum(way.usd_per_month for way in ways)


def _least_usd(ways: Sequence[Way], task: int) -> float:
    """Cost of the cheapest searched way of a service or job; infinite where there is none."""
    final = (way.usd_per_month for way in ways if way.is_final and way.task == task)
    return min(final, default=math.inf)


def _z(probability: float | None) -> float:
    """The quantile of the model's error that a probability is planned at; the median's for None."""
    return 0.0 if probability is None else NormalDist().inv_cdf(probability)


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
