"""The best plan: every plan of a grid scored at once, the first few simulated.

The grid has every way to cut heads, layers, experts and tokens that the devices allow, tensor
parallelism within the nearest links (Narayanan et al. 2021, arXiv:2104.04473, takeaway 1). What
cannot run is counted by its reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from accelsim.confidence.best import is_tie, near_best_probability
from accelsim.cost.memory import memory_short
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.estimation.pareto import pareto_mask
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.quantity import duration
from accelsim.training.grid import GridScores, Report, ScoredPlans
from accelsim.training.iteration import Iteration
from accelsim.training.nearest import fitting_words
from accelsim.training.plan import ParallelismPlan, check_ranges
from accelsim.training.score import TIME_PARTS
from accelsim.training.setup import TrainingSetup
from accelsim.training.simulated_iteration import simulate_iteration
from accelsim.training.trust import iteration_log_sigma
from accelsim.workloads.graph import IntArray

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
    plans: tuple[Values, ...]
    pareto: tuple[Values, ...]
    considered: int
    rejected: Mapping[str, int]
    search_s: float
    is_complete: bool


@frozen
class SearchRequest:
    """What is asked of a search.

    Attributes:
        fixed: Fields of plans that stay as they are.
        usd_per_hour: Price of one device; None where unknown.
        report: Called with groups done, groups in all and what is scored now.
    """

    fixed: Values
    usd_per_hour: float | None = None
    report: Report | None = None

    def __post_init__(self) -> None:
        """Refuse fields that no plan has.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self.fixed)


def search_plans(setup: TrainingSetup, request: SearchRequest) -> Search:
    """Find the plan with the least time of one iteration.

    Ctrl-C ends it with what it has found.

    Args:
        setup: Model and devices.
        request: What is asked.

    Raises:
        DoesNotFitError: If no plan fits.
        InvalidValueError: If no plan divides the model and the batch.
    """
    start = time.perf_counter()
    grid, is_complete = GridScores(), True
    try:
        grid.add_grid(setup, request.fixed, request.report)
    except KeyboardInterrupt:
        is_complete = False
    if not grid.groups:
        if not is_complete:
            raise KeyboardInterrupt
        raise _nothing_divides(setup, grid.rejected)
    scored = grid.joined()
    fitting = scored.take(scored.memory_bytes <= setup.capacity_bytes)
    if not len(fitting):
        raise _nothing_fits(setup, scored)
    grid.rejected[_MEMORY] += len(scored) - len(fitting)
    best, rows, front = _simulated_best(setup, fitting, request.usd_per_hour)
    return Search(
        best=best,
        plans=rows,
        pareto=front,
        considered=grid.considered,
        rejected={reason: count for reason, count in grid.rejected.items() if count},
        search_s=time.perf_counter() - start,
        is_complete=is_complete,
    )


def search_devices(setup: TrainingSetup, request: SearchRequest) -> tuple[Search, TrainingSetup]:
    """The best plan, and where: on half of the devices, or half of those, where no plan on all of
    them is faster, or none divides them and the batch; see `search_plans`.
    """
    count, is_odd = divmod(setup.device_count, 2)
    is_fixed = bool(is_odd) or "dp" in request.fixed
    half = TrainingSetup(setup.run, setup.cluster, count, setup.conditions)
    try:
        search = search_plans(setup, request)
    except InvalidValueError:  # more devices than samples
        if not is_fixed:
            with suppress(InvalidValueError):
                return search_devices(half, request)
        raise
    best = search.plans[0]
    if is_fixed or best["compute_fraction"] > _WORKS_ALONE:
        return search, setup
    try:
        fewer, used = search_devices(half, request)
    except (DoesNotFitError, InvalidValueError):
        return search, setup
    is_faster = fewer.plans[0]["iteration_s"] < best["iteration_s"]
    return (fewer, used) if is_faster else (search, setup)


def _simulated_best(
    setup: TrainingSetup, fitting: ScoredPlans, usd_per_hour: float | None
) -> tuple[ParallelismPlan, tuple[Values, ...], tuple[Values, ...]]:
    """The plan with the least simulated time, the first plans, and those that no other beats in
    time, memory and energy together, all with their simulated figures.

    The first by score and those of the front of scores are simulated; a plan has one time.
    """
    by_time = np.argsort(fitting.iteration_s, kind="stable")[:_SIMULATED]
    slowest_s = fitting.iteration_s[by_time[0]] * _WORTH_SIMULATING
    fastest = by_time[fitting.iteration_s[by_time] <= slowest_s]
    indices = np.unique(np.concatenate([fastest, _front(setup, fitting)])).tolist()
    runs = [simulate_iteration(setup, fitting.plans.plan(i), setup.run.batch) for i in indices]
    rows = [
        _row(setup, run, dynamic_j, usd_per_hour)
        for run, dynamic_j in zip(runs, fitting.energy_j[indices].tolist(), strict=True)
    ]
    # plans whose times differ by rounding alone are ordered by memory
    goals = np.array([[float(f"{row[name] or 0.0:.12g}") for name in _GOALS] for row in rows])
    order = np.lexsort(goals.T[::-1]).tolist()
    among_first = set(fastest.tolist())
    shown = [n for n in order if indices[n] in among_first or n == order[0]]
    distinct, row_of_goals = np.unique(goals, axis=0, return_index=True)
    front = [rows[n] for n in row_of_goals[pareto_mask(distinct)].tolist()]
    reasons = _reasons(runs, order[0])
    return runs[order[0]].plan, tuple(rows[n] | reasons[n] for n in shown), tuple(front)


def _reasons(runs: Sequence[Iteration], first: int) -> list[Document]:
    """Why each plan loses to the first, and how sure that is."""
    best = runs[first]
    times = np.array([run.iteration_s for run in runs])
    sigmas = [iteration_log_sigma(run) for run in runs]
    chances = near_best_probability(times, np.array(sigmas)).tolist()
    leader = (best.iteration_s, sigmas[first])
    return [
        {
            "why": _why(run, best, is_tied=is_tie((run.iteration_s, sigma), leader)),
            "near_best_probability": chance,
        }
        for run, sigma, chance in zip(runs, sigmas, chances, strict=True)
    ]


def _front(setup: TrainingSetup, fitting: ScoredPlans) -> IntArray:
    """Places of plans that no other's score beats in time, memory and energy together, at most
    `_FRONT` of them, evenly from the fastest to the slowest.
    """
    energy_j = setup.energy_j(fitting.energy_j, fitting.iteration_s)
    if energy_j is None:
        energy_j = fitting.energy_j
    goals = np.stack([fitting.iteration_s, fitting.memory_bytes, energy_j], axis=1)
    distinct, first_rows = np.unique(goals, axis=0, return_index=True)
    front: IntArray = first_rows[pareto_mask(distinct)]
    return front[np.unique(np.linspace(0, len(front) - 1, _FRONT).round().astype(np.int64))]


def _row(
    setup: TrainingSetup, run: Iteration, dynamic_j: float, usd_per_hour: float | None
) -> Document:
    price = None if usd_per_hour is None else usd_per_hour * setup.device_count / SECONDS_PER_HOUR
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
    extra_s = {name: run.time_s[name] - best.time_s[name] for name in TIME_PARTS}
    name = max(extra_s, key=extra_s.__getitem__)
    if extra_s[name] <= _AS_FAST * best.iteration_s:
        return "best" if run is best else "as fast"
    tied = "tied, " if is_tied else ""
    return f"{tied}{name.replace('_', ' ')} +{duration(extra_s[name])}"


def _nothing_divides(setup: TrainingSetup, rejected: Mapping[str, int]) -> InvalidValueError:
    reasons = "; ".join(f"{reason}: {count}" for reason, count in rejected.items() if count)
    allowed = f"devices and a batch that some plan divides ({reasons or 'no plan at all'})"
    value = f"{setup.device_count} devices, batch {setup.run.batch}"
    return InvalidValueError("plan", value, allowed, "Change gpus, the batch, or the fields named.")


def _nothing_fits(setup: TrainingSetup, scored: ScoredPlans) -> DoesNotFitError:
    least = int(scored.memory_bytes.argmin())
    plan = scored.plans.plan(least)
    rank = int(scored.worst_stage[least]) * plan.pipeline_stride
    remedy = (
        f"That is rank {rank} of {plan}, the plan that needs the least. "
        f"{fitting_words(setup, plan)}"
    )
    needed = float(scored.memory_bytes[least])
    return memory_short(setup.run.device, needed, setup.capacity_bytes, remedy)
