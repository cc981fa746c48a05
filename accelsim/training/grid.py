"""The grid of a search: every way to cut heads, layers, experts and tokens that the devices allow,
tensor parallelism within the nearest links (Narayanan et al. 2021, arXiv:2104.04473, takeaway 1),
scored group by group. What cannot run is counted by its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.training.candidates import CandidatePlans
from accelsim.training.plan import CLOSED_FORM, RECOMPUTE, SCHEDULES, ParallelismPlan, check_model
from accelsim.training.score import Scores, score
from accelsim.training.setup import TrainingSetup
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

Report = Callable[[float, float | None, str], None]
_LARGEST_TENSOR = 64
_LARGEST_MICROBATCH = 1024
_FEWEST_TOKENS = 1024
_CHUNKS = (2, 3, 4, 6, 8, 12)
_DIVIDE = "dp x microbatch does not divide the batch"
_INTERLEAVE = "interleaving needs a multiple of pp microbatches"
_SCHEDULE = "zero-bubble schedules and dualpipe need 2 pp microbatches"
_KEEPS = "zero-bubble schedules keep activations: no full recomputation"
_EVEN = "dualpipe needs an even pp"
#: Schedules of the grid; those with a closed form alone are looked at where they are named.
_SCHEDULES = ("1f1b", "gpipe", "zb-h1")


@frozen(eq=False)
class ScoredPlans:
    """k plans that divide the model and the batch, and their scores, shape (k,) each.

    Attributes:
        plans: The plans.
        iteration_s: Time of an iteration.
        memory_bytes: Memory of the worst rank.
        worst_stage: Its stage.
        energy_j: Dynamic energy of all devices in one iteration.
    """

    plans: CandidatePlans
    iteration_s: FloatArray
    memory_bytes: FloatArray
    worst_stage: IntArray
    energy_j: FloatArray

    def __len__(self) -> int:
        return len(self.plans)

    def take(self, rows: IntArray | BoolArray) -> ScoredPlans:
        """Some of the plans, by place or mask."""
        return ScoredPlans(
            self.plans.take(rows),
            self.iteration_s[rows],
            self.memory_bytes[rows],
            self.worst_stage[rows],
            self.energy_j[rows],
        )


@dataclass
class GridScores:
    """Scores of a grid so far: groups of plans, plans looked at, and those rejected by reason."""

    groups: list[tuple[CandidatePlans, Scores]] = field(default_factory=list)
    considered: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def add_grid(self, setup: TrainingSetup, fixed: Values, report: Report | None = None) -> None:
        """Score group after group of a grid.

        Args:
            setup: Model and devices.
            fixed: Fields that stay as they are.
            report: Called with groups done, groups in all and what is scored now.
        """
        groups = candidate_groups(setup, fixed)
        divided = [_dividing(setup, candidates) for _, candidates in groups]
        for plans, *_ in divided:
            setup.units(plans)  # all are named before the first is priced, in one call
        for index, (label, candidates) in enumerate(groups):
            if report is not None:
                report(index, len(groups), label)
            plans, microbatch_count, reasons = divided[index]
            if len(plans):
                units = setup.units(plans)
                scores = score(setup, plans, microbatch_count, units, setup.costs())
                self.groups.append((plans, scores))
            self.considered += len(candidates)
            self.rejected.update(reasons)

    def joined(self) -> ScoredPlans:
        """All plans that were scored, one group at least."""
        plans, scores = zip(*self.groups, strict=True)
        return ScoredPlans(
            CandidatePlans.joined(plans),
            np.concatenate([group.iteration_s for group in scores]),
            np.concatenate([group.memory_bytes for group in scores]),
            np.concatenate([group.worst_stage for group in scores]),
            np.concatenate([group.energy_j for group in scores]),
        )


def candidate_groups(setup: TrainingSetup, fixed: Values) -> list[tuple[str, CandidatePlans]]:
    """The grid: groups of plans that share how a rank's layers are cut.

    Args:
        setup: Model and devices.
        fixed: Fields that stay as they are.
    """
    groups = []
    for tp, cp, ep, sp in _cuts(setup, fixed):
        cut = {"tp": tp, "cp": cp, "ep": ep, "sp": sp}
        for pp in _stage_counts(setup, fixed, tp * cp):
            dp = setup.device_count // (tp * cp * pp)
            plan = _plan_or_none(setup, dict(fixed) | cut | {"dp": dp, "pp": pp})
            if plan is not None:
                groups += [
                    (str(plan), CandidatePlans.grid(plan, **axes))
                    for axes in _choices(setup, fixed, plan)
                ]
    return groups


def _plan_or_none(setup: TrainingSetup, values: Values) -> ParallelismPlan | None:
    """A plan of these fields before schedules and ZeRO stages are chosen; None where the model does
    not allow it.
    """
    plan_fields = {name: value for name, value in values.items() if name not in CHOSEN}
    plan_fields["zero"] = int("shard_group" in plan_fields)
    try:
        plan = ParallelismPlan(**plan_fields)
        check_model(plan, setup.run.workload, setup.run.seq_len)
    except InvalidValueError:
        return None
    return plan


#: Fields of plans that are chosen once it is known how layers are cut.
CHOSEN = ("microbatch", "zero", "recompute", "schedule", "chunks")


def _divisors(number: int, largest: int) -> list[int]:
    return [count for count in range(1, min(number, largest) + 1) if number % count == 0]


def _cuts(setup: TrainingSetup, fixed: Values) -> Iterator[tuple[int, int, int, bool]]:
    """Ways to cut layers: (tp, cp, ep, sp), with tp within the nearest links (Narayanan et al.
    2021, arXiv:2104.04473, takeaway 1).
    """
    model, count = setup.run.workload, setup.device_count
    if model.family is None or not model.family.shards:
        yield fixed.get("tp", 1), fixed.get("cp", 1), fixed.get("ep", 1), False
        return
    nearest = count  # devices of the nearest links: of a server, or of its scale-up domain
    if setup.cluster is not None:
        nearest = max(setup.cluster.tiers[0].device_count, setup.cluster.node.device_count)
    tensor = _divisors(count, min(nearest, _LARGEST_TENSOR))
    context = _divisors(count, max(setup.run.seq_len // _FEWEST_TOKENS, 1))
    mixture = model.parameters.mixture
    axes: dict[str, list[int]] = {
        "tp": [tp for tp in tensor if model.parameters.heads % tp == 0],
        "cp": [cp for cp in context if cp & (cp - 1) == 0],
        "ep": [1] if mixture is None else _divisors(mixture.experts, count),
        "sp": [False, True],
    }
    for tp, cp, ep, sp in product(*_narrowed(axes, fixed).values()):
        if not sp or tp > 1:
            yield tp, cp, ep, bool(sp)


def _narrowed(axes: Values, fixed: Values) -> Document:
    """Values of fields, of those that are fixed the one."""
    return {name: [fixed[name]] if name in fixed else axis for name, axis in axes.items()}


def _stage_counts(setup: TrainingSetup, fixed: Values, ranks: int) -> list[int]:
    left, over = divmod(setup.device_count, ranks)
    if over:
        return []
    family = setup.run.workload.family
    is_split = family is not None and family.shards
    stages = _divisors(left, setup.run.workload.parameters.layers if is_split else 1)
    return [
        pp
        for pp in stages
        if fixed.get("pp", pp) == pp and fixed.get("dp", left // pp) == left // pp
    ]


def _choices(setup: TrainingSetup, fixed: Values, plan: ParallelismPlan) -> Iterator[Values]:
    """Values of the fields that do not change how layers are cut, without and with chunks."""
    largest = min(max(setup.run.batch // plan.dp, 1), _LARGEST_MICROBATCH)
    shared: Document = {
        "microbatch": [2**power for power in range(largest.bit_length())],
        "zero": _zero_stages(plan),
        "recompute": list(RECOMPUTE),
    }
    if setup.run.selective == "attention" and setup.run.fused_attention:
        shared["recompute"].remove("selective")  # drops nothing inside attention that is fused
    for axes in _schedules(setup, fixed, plan.pp):
        if all(fixed.get(name, axis[0]) in axis for name, axis in axes.items()):
            yield _narrowed(shared | axes, fixed)


def _schedules(setup: TrainingSetup, fixed: Values, stages: int) -> Iterator[Document]:
    """Schedules without chunks and with them."""
    if stages == 1:
        yield {"schedule": ["1f1b"], "chunks": [1]}
        return
    closed = [name for name in CLOSED_FORM if name == fixed.get("schedule")]
    yield {"schedule": [*_SCHEDULES, *closed], "chunks": [1]}
    layers = setup.run.workload.parameters.layers
    chunks = [count for count in _CHUNKS if layers % (stages * count) == 0]
    if chunks and "stage_layers" not in fixed:
        yield {"schedule": ["interleaved"], "chunks": chunks}


def _zero_stages(plan: ParallelismPlan) -> list[int]:
    """ZeRO stages that the other fields of a plan allow."""
    if plan.local_steps > 1:
        return [0]
    least, most = int(plan.shard_group is not None), 3 if plan.pp == 1 else 1
    return list(range(least, most + 1))


def _dividing(
    setup: TrainingSetup, plans: CandidatePlans
) -> tuple[CandidatePlans, IntArray, Counter[str]]:
    """Plans that can be run, their microbatches, and how many cannot, by the first reason.

    Microbatches as interleaving (Narayanan et al. 2021, arXiv:2104.04473, section 2.2), zero-bubble
    schedules (Qi et al. 2024, arXiv:2401.10241) and DualPipe (DeepSeek-V3, arXiv:2412.19437) need
    them.
    """
    samples = plans["dp"] * plans["microbatch"]
    counts = setup.run.batch // samples
    names = np.array(SCHEDULES)[plans["schedule"]]
    stages = plans["pp"]
    chunked = names == "interleaved"
    zero_bubble = np.char.startswith(names, "zb")
    long = zero_bubble | (names == "dualpipe")
    is_full = plans["recompute"] == RECOMPUTE.index("full")
    checks = (
        (_KEEPS, ~zero_bubble | ~is_full),
        (_SCHEDULE, ~long | (counts >= 2 * stages)),
        (_EVEN, (names != "dualpipe") | (stages % 2 == 0)),
        (_DIVIDE, setup.run.batch % samples == 0),
        (_INTERLEAVE, ~chunked | (counts % stages == 0)),
    )
    is_possible = np.ones(len(plans), dtype=bool)
    reasons: Counter[str] = Counter()
    for reason, passes in checks:
        reasons[reason] += int((is_possible & ~passes).sum())
        is_possible &= passes
    return plans.take(is_possible), counts[is_possible], reasons
