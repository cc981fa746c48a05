"""The best plan: every plan of a grid scored at once, the first few simulated.

The grid has every way to cut heads, layers, experts and tokens that the devices allow, tensor
parallelism within the nearest links (Narayanan et al. 2021, arXiv:2104.04473, takeaway 1). What
cannot run is counted by its reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from accelsim.cost.memory import memory_short
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.estimation.pareto import pareto_mask
from accelsim.estimation.run import ResolvedRun
from accelsim.frozen import frozen
from accelsim.hardware.cluster import Cluster
from accelsim.training.candidates import CandidatePlans
from accelsim.training.iteration import Iteration, simulate_iteration
from accelsim.training.plan import (
    CLOSED_FORM,
    RECOMPUTE,
    SCHEDULES,
    ParallelismPlan,
    check_model,
)
from accelsim.training.score import TIME_PARTS, Scores, score
from accelsim.training.setup import TrainingSetup
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

Report = Callable[[float, float | None, str], None]
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
_LARGEST_TENSOR = 64
_LARGEST_MICROBATCH = 1024
_FEWEST_TOKENS = 1024
_CHUNKS = (2, 3, 4, 6, 8, 12)
_MEMORY = "needs more memory than a device has"
_DIVIDE = "dp x microbatch does not divide the batch"
_INTERLEAVE = "interleaving needs a multiple of pp microbatches"
_SCHEDULE = "zero-bubble schedules and dualpipe need 2 pp microbatches"
_KEPT = "zero-bubble schedules keep activations: no full recomputation"
_EVEN = "dualpipe needs an even pp"
#: Schedules of the grid; those with a closed form alone are looked at where they are named.
_SCHEDULES = ("1f1b", "gpipe", "zb-h1")


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


@frozen(eq=False)
class Scored:
    """Plans that divide the model and the batch, and their scores.

    Attributes:
        plans: k plans.
        microbatch_count: Microbatches of each, shape (k,).
        scores: Their scores.
    """

    plans: CandidatePlans
    microbatch_count: IntArray
    scores: Scores


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
    them is faster; see `search_plans`.
    """
    found = search_plans(setup, named, usd_per_hour, report)
    first = found.plans[0]
    count, over = divmod(setup.device_count, 2)
    if over or "dp" in named or first["compute_fraction"] > _WORKS_ALONE:
        return found, setup
    half = TrainingSetup(setup.run, setup.cluster, count, setup.conditions)
    try:
        fewer, used = search_devices(half, named, usd_per_hour, report)
    except (DoesNotFitError, InvalidValueError):
        return found, setup
    is_faster = fewer.plans[0]["iteration_s"] < first["iteration_s"]
    return (fewer, used) if is_faster else (found, setup)


def score_groups(
    setup: TrainingSetup, named: Mapping[str, Any], report: Report | None, found: list[Scored]
) -> Iterator[tuple[int, Counter[str]]]:
    """Score group after group of the grid into `found`; counts of what was looked at."""
    groups = candidate_groups(setup, named)
    for place, (label, candidates) in enumerate(groups):
        if report is not None:
            report(place, len(groups), label)
        kept, counts, reasons = _dividing(setup, candidates)
        if len(kept):
            found.append(score_all(setup, kept, counts))
        yield len(candidates), reasons


def score_all(setup: TrainingSetup, plans: CandidatePlans, counts: IntArray) -> Scored:
    """Score plans that divide the model and the batch.

    Args:
        setup: Model and devices.
        plans: k plans.
        counts: Microbatches of each, shape (k,).
    """
    units = setup.units(plans)
    return Scored(plans, counts, score(setup, plans, counts, units, setup.costs()))


def candidate_groups(
    setup: TrainingSetup, named: Mapping[str, Any]
) -> list[tuple[str, CandidatePlans]]:
    """The grid: groups of plans that share how a rank's layers are cut.

    Args:
        setup: Model and devices.
        named: Fields that stay as they are.

    Raises:
        InvalidValueError: If a named field is out of range.
    """
    groups = []
    for tp, cp, ep, sp in _cuts(setup, named):
        cut = {"tp": tp, "cp": cp, "ep": ep, "sp": sp}
        for pp in _stage_counts(setup, named, tp * cp):
            dp = setup.device_count // (tp * cp * pp)
            plan = _plan_or_none(setup, dict(named) | cut | {"dp": dp, "pp": pp})
            if plan is not None:
                groups += [
                    (str(plan), CandidatePlans.grid(plan, **axes))
                    for axes in _choices(setup, named, plan)
                ]
    return groups


def _plan_or_none(setup: TrainingSetup, values: Mapping[str, Any]) -> ParallelismPlan | None:
    """A plan of these fields before schedules and ZeRO stages are chosen; None where the model does
    not allow it.
    """
    own = {name: value for name, value in values.items() if name not in CHOSEN}
    own["zero"] = int("shard_group" in own)
    try:
        plan = ParallelismPlan(**own)
        check_model(plan, setup.run.workload, setup.run.seq_len)
    except InvalidValueError:
        return None
    return plan


#: Fields of plans that are chosen once it is known how layers are cut.
CHOSEN = ("microbatch", "zero", "recompute", "schedule", "chunks")


def _divisors(number: int, largest: int) -> list[int]:
    return [count for count in range(1, min(number, largest) + 1) if number % count == 0]


def _cuts(setup: TrainingSetup, named: Mapping[str, Any]) -> Iterator[tuple[int, int, int, bool]]:
    """Ways to cut layers: (tp, cp, ep, sp)."""
    model, count = setup.run.workload, setup.device_count
    if model.family is None or not model.family.shards:
        yield named.get("tp", 1), named.get("cp", 1), named.get("ep", 1), False
        return
    mixture = model.parameters.mixture
    nearest = count if setup.cluster is None else _nearest_devices(setup.cluster)
    tensor = _divisors(count, min(nearest, _LARGEST_TENSOR))
    context = _divisors(count, max(setup.run.seq_len // _FEWEST_TOKENS, 1))
    experts = [1] if mixture is None else _divisors(mixture.experts, count)
    axes: dict[str, list[Any]] = {
        "tp": [tp for tp in tensor if model.parameters.heads % tp == 0],
        "cp": [cp for cp in context if cp & (cp - 1) == 0],
        "ep": experts,
        "sp": [False, True],
    }
    values = [[named[name]] if name in named else axis for name, axis in axes.items()]
    for tp, cp, ep, sp in product(*values):
        if not sp or tp > 1:
            yield tp, cp, ep, sp


def _nearest_devices(cluster: Cluster) -> int:
    """Devices of the nearest links: of a server, or of the scale-up domain that it is part of."""
    return max(cluster.tiers[0].device_count, cluster.node.device_count)


def _stage_counts(setup: TrainingSetup, named: Mapping[str, Any], ranks: int) -> list[int]:
    left, over = divmod(setup.device_count, ranks)
    if over:
        return []
    family = setup.run.workload.family
    is_split = family is not None and family.shards
    stages = _divisors(left, setup.run.workload.parameters.layers if is_split else 1)
    return [
        pp
        for pp in stages
        if named.get("pp", pp) == pp and named.get("dp", left // pp) == left // pp
    ]


def _choices(
    setup: TrainingSetup, named: Mapping[str, Any], plan: ParallelismPlan
) -> list[dict[str, list[Any]]]:
    """Values of the fields that do not change how layers are cut, without and with chunks."""
    local = max(setup.run.batch // plan.dp, 1)
    shared: dict[str, list[Any]] = {
        "microbatch": [
            2**power for power in range(11) if 2**power <= min(local, _LARGEST_MICROBATCH)
        ],
        "zero": _zero_stages(plan),
        "recompute": [word for word in RECOMPUTE if word != "selective" or _drops(setup.run)],
    }
    if plan.pp == 1:
        own: list[dict[str, list[Any]]] = [{"schedule": ["1f1b"], "chunks": [1]}]
    else:
        layers = setup.run.workload.parameters.layers
        chunks = [count for count in _CHUNKS if layers % (plan.pp * count) == 0]
        closed = [name for name in CLOSED_FORM if name == named.get("schedule")]
        own = [{"schedule": [*_SCHEDULES, *closed], "chunks": [1]}]
        own += [{"schedule": ["interleaved"], "chunks": chunks}] if chunks else []
    return [axes for kinds in own if (axes := _kept(shared | kinds, named)) is not None]


def _drops(run: ResolvedRun) -> bool:
    """Whether selective recomputation drops anything: not inside attention that is fused."""
    return run.selective != "attention" or not run.fused_attention


def _zero_stages(plan: ParallelismPlan) -> list[int]:
    """ZeRO stages that the other fields of a plan allow."""
    if plan.local_steps > 1:
        return [0]
    least, most = int(plan.shard_group is not None), 3 if plan.pp == 1 else 1
    return list(range(least, most + 1))


def _kept(axes: dict[str, list[Any]], named: Mapping[str, Any]) -> dict[str, list[Any]] | None:
    """Axes with named fields as they are; None where schedule and chunks named are of others."""
    kept = {name: [named[name]] if name in named else axis for name, axis in axes.items()}
    for name in ("schedule", "chunks"):
        if name in named and named[name] not in axes[name]:
            return None
    return kept


def _dividing(
    setup: TrainingSetup, plans: CandidatePlans
) -> tuple[CandidatePlans, IntArray, Counter[str]]:
    """Plans that can be run, their microbatches, and how many cannot, by the first reason."""
    samples = plans["dp"] * plans["microbatch"]
    counts = setup.run.batch // samples
    names = np.array(SCHEDULES)[plans["schedule"]]
    stages = plans["pp"]
    chunked = names == "interleaved"
    zero_bubble = np.char.startswith(names, "zb")
    long = zero_bubble | (names == "dualpipe")
    is_full = plans["recompute"] == RECOMPUTE.index("full")
    checks = (
        (_KEPT, ~zero_bubble | ~is_full),
        (_SCHEDULE, ~long | (counts >= 2 * stages)),
        (_EVEN, (names != "dualpipe") | (stages % 2 == 0)),
        (_DIVIDE, setup.run.batch % samples == 0),
        (_INTERLEAVE, ~chunked | (counts % stages == 0)),
    )
    kept = np.ones(len(plans), dtype=bool)
    reasons: Counter[str] = Counter()
    for reason, passes in checks:
        reasons[reason] += int((kept & ~passes).sum())
        kept &= passes
    return plans.take(kept), counts[kept], reasons


def fits(setup: TrainingSetup, part: Scored) -> BoolArray:
    """Which plans are within a device's memory, shape (k,)."""
    within: BoolArray = part.scores.memory_bytes <= setup.capacity_bytes
    return within


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
    among = set(first.tolist())
    shown = [
        rows[number] | {"why": _why(runs[number].time_s, best.time_s)}
        for number in order
        if places[number] in among or runs[number] is best
    ]
    distinct, kept = np.unique(goals, axis=0, return_index=True)
    front = [rows[number] for number in kept[pareto_mask(distinct)].tolist()]
    return best.plan, tuple(shown), tuple(front)


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


def _why(own: Mapping[str, float], best: Mapping[str, float]) -> str:
    """Where a plan loses the most time to the best one."""
    more = {name: own[name] - best[name] for name in TIME_PARTS}
    name = max(more, key=lambda part: more[part])
    if more[name] <= _AS_FAST * sum(best.values()):
        return "best" if own is best else "as fast"
    return f"{name.replace('_', ' ')} +{more[name]:.3g} s"


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
    from accelsim.training.nearest import fitting_words

    remedy = (
        f"That is rank {rank} of {plan}, the plan that needs the least. "
        f"{fitting_words(setup, plan)}"
    )
    return memory_short(setup.run.device, needed, setup.capacity_bytes, remedy)
