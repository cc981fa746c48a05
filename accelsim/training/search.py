"""The best plan: every plan of a grid scored at once, the first few simulated.

The grid has every way to cut heads, layers, experts and tokens that the devices allow, tensor
parallelism within the nearest links (Narayanan et al. 2021, arXiv:2104.04473, takeaway 1). What
cannot run is counted by its reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accelsim.confidence.best import is_tie, near_best_probability
from accelsim.cost.memory import memory_short
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.estimation.pareto import pareto_mask
from accelsim.frozen import frozen
from accelsim.quantity import duration
from accelsim.training.candidates import CandidatePlans
from accelsim.training.grid import Report, Scored, fits, score_groups
from accelsim.training.iteration import Iteration
from accelsim.training.nearest import fitting_words
from accelsim.training.plan import (
    ParallelismPlan,
)
from accelsim.training.score import TIME_PARTS
from accelsim.training.setup import TrainingSetup
from accelsim.training.simulated_iteration import simulate_iteration
from accelsim.training.trust import iteration_log_sigma
from accelsim.workloads.graph import FloatArray, IntArray

#: Plans that are simulated, and how much slower than the first their score may be.
_SIMULATED = 8
_WORTH_SIMULATING = 1.05
#: Plans of the front that are simulated at most.
_FRONT = 16
#: Share of an iteration that devices compute above which half of them are never faster.
_WORKS_ALONE = 0.7
_GOALS = ("iteration_s", "memory_bytes", "energy_j")
#: Share of an iteration by which two plans differ that are equally fast.
_AS_FAST = 1e-9
_MEMORY = "needs more memory than a device has"


@frozen(eq=False)
class Search:
    """What a search found.

    Attributes:
        best: The plan with the least simulated time.
        plans: Best plans with their figures, best first; those behind the first say why.
        pareto: Plans that no other beats in time, memory and energy together, fastest first.
        considered: Plans looked at.
        rejected: Plans that cannot run, by reason.
        search_s: Seconds it took.
        is_complete: Whether all plans were looked at.
    """

    best: ParallelismPlan
    plans: tuple[Mapping[str, Any], ...]
    pareto: tuple[Mapping[str, Any], ...]
    considered: int
    rejected: Mapping[str, int]
    search_s: float
    is_complete: bool


def search_plans(
    setup: TrainingSetup,
    named: Mapping[str, Any],
    usd_per_hour: float | None = None,
    report: Report | None = None,
) -> Search:
    """Find the plan with the least time of one iteration.

    Ctrl-C ends it with what it has found.

    Args:
        setup: Model and devices.
        named: Fields that stay as they are.
        usd_per_hour: Price of one device; None where unknown.
        report: Called with groups done, groups in all and what is scored now.

    Raises:
        DoesNotFitError: If no plan fits.
        InvalidValueError: If no plan divides the model and the batch.
    """
    start = time.perf_counter()
    found: list[Scored] = []
    rejected: Counter[str] = Counter()
    considered, is_complete = 0, True
    try:
        for candidates, reasons in score_groups(setup, named, report, found):
            considered += candidates
            rejected.update(reasons)
    except KeyboardInterrupt:
        is_complete = False
    if not found:
        if not is_complete:
            raise KeyboardInterrupt
        raise _nothing_divides(setup, rejected)
    whole = _fitting(setup, found)
    rejected[_MEMORY] += sum(len(part.plans) for part in found) - len(whole.plans)
    if not len(whole.plans):
        raise _nothingfits(setup, found)
    best, shown, front = _simulated_best(setup, whole, usd_per_hour)
    return Search(
        best=best,
        plans=shown,
        pareto=front,
        considered=considered,
        rejected={reason: count for reason, count in rejected.items() if count},
        search_s=time.perf_counter() - start,
        is_complete=is_complete,
    )


def search_devices(
    setup: TrainingSetup,
    named: Mapping[str, Any],
    usd_per_hour: float | None = None,
    report: Report | None = None,
) -> tuple[Search, TrainingSetup]:
    """The best plan, and where: on half of the devices, or half of those, where no plan on all of
    them is faster, or none divides them and the batch; see `search_plans`.
    """
    count, over = divmod(setup.device_count, 2)
    is_whole = bool(over) or "dp" in named
    half = TrainingSetup(setup.run, setup.cluster, count, setup.conditions)
    try:
        found = search_plans(setup, named, usd_per_hour, report)
    except InvalidValueError:  # more devices than samples
        if is_whole:
            raise
        return search_devices(half, named, usd_per_hour, report)
    first = found.plans[0]
    if is_whole or first["compute_fraction"] > _WORKS_ALONE:
        return found, setup
    try:
        fewer, used = search_devices(half, named, usd_per_hour, report)
    except (DoesNotFitError, InvalidValueError):
        return found, setup
    is_faster = fewer.plans[0]["iteration_s"] < first["iteration_s"]
    return (fewer, used) if is_faster else (found, setup)


@frozen(eq=False)
class _Fitting:
    """Plans that fit, of all groups, with their times, memory and energy, shape (k,) each."""

    plans: CandidatePlans
    iteration_s: FloatArray
    memory_bytes: FloatArray
    energy_j: FloatArray


def _fitting(setup: TrainingSetup, scored: Sequence[Scored]) -> _Fitting:
    within = [fits(setup, part) for part in scored]
    columns = (
        np.concatenate(
            [getattr(part.scores, name)[f] for part, f in zip(scored, within, strict=True)]
        )
        for name in ("iteration_s", "memory_bytes", "energy_j")
    )
    plans = [part.plans.take(f) for part, f in zip(scored, within, strict=True)]
    return _Fitting(CandidatePlans.joined(plans), *columns)


def _simulated_best(
    setup: TrainingSetup, whole: _Fitting, usd_per_hour: float | None
) -> tuple[ParallelismPlan, tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]:
    """The plan with the least simulated time, the first plans, and those that no other beats in
    time, memory and energy together, all with their simulated figures.

    The first by score and those of the front of scores are simulated; a plan has one time.
    """
    first = np.argsort(whole.iteration_s, kind="stable")[:_SIMULATED]
    first = first[whole.iteration_s[first] <= whole.iteration_s[first[0]] * _WORTH_SIMULATING]
    places = np.unique(np.concatenate([first, _front(setup, whole)])).tolist()
    runs = [simulate_iteration(setup, whole.plans.plan(place), setup.run.batch) for place in places]
    rows = [
        _row(setup, run, float(whole.energy_j[place]), usd_per_hour)
        for run, place in zip(runs, places, strict=True)
    ]
    goals = np.array([[_known(row[name]) for name in _GOALS] for row in rows])
    order = np.lexsort(goals.T[::-1]).tolist()
    best = runs[order[0]]
    shown = _shown(runs, rows, order)
    among = set(first.tolist())
    kept_rows = [
        row
        for number, row in zip(order, shown, strict=True)
        if places[number] in among or number == order[0]
    ]
    distinct, kept = np.unique(goals, axis=0, return_index=True)
    front = [rows[number] for number in kept[pareto_mask(distinct)].tolist()]
    return best.plan, tuple(kept_rows), tuple(front)


def _shown(
    runs: Sequence[Iteration], rows: Sequence[dict[str, Any]], order: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows in their order, with why each loses to the first and how sure that is."""
    best = runs[order[0]]
    times = np.array([run.iteration_s for run in runs])
    sigmas = [iteration_log_sigma(run) for run in runs]
    chances = near_best_probability(times, np.array(sigmas)).tolist()
    leader = (best.iteration_s, sigmas[order[0]])
    ties = [is_tie((run.iteration_s, own), leader) for run, own in zip(runs, sigmas, strict=True)]
    return [
        rows[number]
        | {"why": _why(runs[number], best, is_tied=ties[number])}
        | {"near_best_probability": chances[number]}
        for number in order
    ]


def _known(value: float | None) -> float:
    return 0.0 if value is None else value


def _front(setup: TrainingSetup, whole: _Fitting) -> IntArray:
    """Places of plans that no other's score beats in time, memory and energy together, at most
    `_FRONT` of them, evenly from the fastest to the slowest.
    """
    energy = setup.energy_j(whole.energy_j, whole.iteration_s)
    known = whole.energy_j if energy is None else energy
    goals = np.stack([whole.iteration_s, whole.memory_bytes, known], axis=1)
    distinct, first = np.unique(goals, axis=0, return_index=True)
    places: IntArray = first[pareto_mask(distinct)]
    taken = np.unique(np.linspace(0, len(places) - 1, _FRONT).round().astype(np.int64))
    return places[taken]


def _row(
    setup: TrainingSetup, run: Iteration, dynamic_j: float, usd_per_hour: float | None
) -> dict[str, Any]:
    price = None if usd_per_hour is None else usd_per_hour * setup.device_count / 3600.0
    return {
        "plan": str(run.plan),
        "iteration_s": run.iteration_s,
        "compute_fraction": run.time_s["compute"] / run.iteration_s,
        "samples_per_s": setup.run.batch / run.iteration_s,
        "memory_bytes": run.memory_bytes,
        "energy_j": setup.energy_j(dynamic_j, run.iteration_s),
        "cost_usd": None if price is None else price * run.iteration_s,
    }


def _why(run: Iteration, best: Iteration, *, is_tied: bool) -> str:
    """Where a plan loses the most time to the best one, and whether it cannot be told from it."""
    more = {name: run.time_s[name] - best.time_s[name] for name in TIME_PARTS}
    name = max(more, key=lambda part: more[part])
    if more[name] <= _AS_FAST * best.iteration_s:
        return "best" if run is best else "as fast"
    tied = "tied, " if is_tied else ""
    return f"{tied}{name.replace('_', ' ')} +{duration(more[name])}"


def _nothing_divides(setup: TrainingSetup, rejected: Mapping[str, int]) -> InvalidValueError:
    reasons = "; ".join(f"{reason}: {count}" for reason, count in rejected.items() if count)
    allowed = f"devices and a batch that some plan divides ({reasons or 'no plan at all'})"
    asked = f"{setup.device_count} devices, batch {setup.run.batch}"
    return InvalidValueError("plan", asked, allowed, "Change gpus, the batch, or the fields named.")


def _nothingfits(setup: TrainingSetup, found: list[Scored]) -> DoesNotFitError:
    part = min(found, key=lambda scored: float(scored.scores.memory_bytes.min()))
    row = int(part.scores.memory_bytes.argmin())
    plan = part.plans.plan(row)
    needed = float(part.scores.memory_bytes[row])
    rank = int(part.scores.worst_stage[row]) * plan.pipeline_stride
    remedy = (
        f"That is rank {rank} of {plan}, the plan that needs the least. "
        f"{fitting_words(setup, plan)}"
    )
    return memory_short(setup.run.device, needed, setup.capacity_bytes, remedy)
