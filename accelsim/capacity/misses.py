"""Why there is no plan: what contradicts, and what each limit would have to become."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from accelsim.capacity.fleet import FleetProblem, irreducible_conflict, least_use
from accelsim.capacity.fleet_ways import Question, Way, WayMaker
from accelsim.plain import Document

_FIELDS = {
    "budget": "budget_usd_per_month",
    "power": "power_w",
    "carbon": "carbon_kgco2e_per_month",
}
Best = Callable[[Question], tuple[list[Way] | None, FleetProblem]]


def no_plan(maker: WayMaker, problem: FleetProblem, question: Question, best: Best) -> Document:
    """Fields of a plan without a fleet: conflicts, near misses, and the reason in words.

    Args:
        maker: What made the ways.
        problem: The problem without a fleet.
        question: What was asked.
        best: The best fleet of a question.
    """
    conflicts, misses = _unable(maker, problem, question)
    if not conflicts:
        conflicts, misses = _contradicting(maker, problem, question, best)
    told = "; ".join(str(miss["words"]) for miss in misses)
    text = f"No fleet keeps all of these: {', '.join(conflicts)}."
    return {
        "conflicts": tuple(conflicts),
        "near_misses": tuple(misses),
        "reason": f"{text} {told}." if told else f"{text} Loosen one of them.",
    }


def _miss(constraint: str, limit: float, needed: float | None, unit: str) -> Document:
    """What a limit would have to become."""
    is_known = needed is not None and math.isfinite(needed)
    nearest = f"the nearest is {needed:,.4g}{unit}" if is_known else "nothing is near it"
    return {
        "constraint": constraint,
        "limit": limit,
        "needed": needed if is_known else None,
        "words": f"{constraint} is {limit:,.4g}{unit}; {nearest}",
    }


def _unable(
    maker: WayMaker, problem: FleetProblem, question: Question
) -> tuple[list[str], list[Document]]:
    """Services that nothing carries and jobs that nothing does, whatever the other limits."""
    conflicts, misses = [], []
    services = maker.scenario.services
    missing = sorted(set(range(problem.task_count)) - set(problem.task.tolist()))
    for task in missing:
        if task < len(services):
            service = services[task]
            name, time_s = _least_short(maker, task)
            fields = {field.split("_")[0]: (field, limit) for field, _, limit in service.limits}
            limit_field, limit = fields.get(name.split("_")[0], next(iter(fields.values())))
            conflicts.append(f"services.{service.name}.{limit_field}")
            misses.append(_miss(conflicts[-1], limit, time_s, " s"))
        else:
            index = task - len(services)
            job = maker.scenario.jobs[index]
            conflicts.append(f"jobs.{job.name}.deadline_s")
            misses.append(
                _miss(conflicts[-1], job.deadline_s, _least_time(maker, index, question), " s")
            )
    return ([*conflicts, "candidates.devices"] if conflicts else []), misses


def _least_short(maker: WayMaker, service: int) -> tuple[str, float | None]:
    """The limit that the nearest device misses, and its time there."""
    misses = [
        missed
        for (index, device) in maker.answers
        if index == service and (missed := maker.shortfall(service, device)) is not None
    ]
    return min(misses, key=lambda missed: missed[1], default=("", None))


def _least_time(maker: WayMaker, job: int, question: Question) -> float | None:
    """The least time that a job takes on any offers, searched where it may be the least."""
    waiting = list(maker.any_time(job, question))
    while waiting:
        way = min(waiting, key=lambda candidate: candidate.time_s)
        if way.is_final:
            return way.time_s
        maker.refine(way)
        waiting = list(maker.any_time(job, question))
    return None


def _contradicting(
    maker: WayMaker, problem: FleetProblem, question: Question, best: Best
) -> tuple[list[str], list[Document]]:
    """Limits that contradict each other and the loads; what each would have to be."""
    constraints = maker.scenario.constraints
    if constraints.redundancy:
        ways, alone = best(replace(question, redundancy=0))
        if ways is not None:
            return ["constraints.redundancy", *_loads(maker)], [
                _miss("constraints.redundancy", constraints.redundancy, 0, " instances")
            ]
        problem = alone
    names = irreducible_conflict(problem)
    misses = [
        _miss(_field(name), problem.limits[name], _needed(maker, name, question), "")
        for name in names
    ]
    return [*(_field(name) for name in names), *_loads(maker)], misses


def _field(name: str) -> str:
    return f"constraints.{_FIELDS.get(name, name)}"


def _needed(maker: WayMaker, name: str, question: Question) -> float | None:
    """The least that a limit would have to be, all else as asked, of searched ways alone."""
    while True:
        ways = list(maker.ways(question))
        problem = maker.problem(ways, question)
        least, chosen = least_use(problem, name)
        if chosen is None:
            return None
        unknown = [ways[way] for way in chosen.tolist() if not ways[way].is_final]
        if not unknown:
            return least
        for way in unknown:
            maker.refine(way)


def _loads(maker: WayMaker) -> list[str]:
    services = [f"services.{service.name}.requests_per_s" for service in maker.scenario.services]
    return [*services, *(f"jobs.{job.name}.deadline_s" for job in maker.scenario.jobs)]
