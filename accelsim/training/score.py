"""Time, energy and memory of many plans at once, in closed form.

A plan's iteration is the work of its busiest stage, the pipeline's bubble, and what data
parallelism, the optimizer and the input add that nothing hides. `iteration` simulates the same task
by task; the two agree exactly where stages are alike.
"""

from __future__ import annotations

import numpy as np

from accelsim.frozen import frozen
from accelsim.training.candidates import CandidatePlans
from accelsim.training.data_parallel import DataParallel, data_parallel
from accelsim.training.layers import BlockCosts
from accelsim.training.memory import worst_memory
from accelsim.training.plan import SCHEDULES
from accelsim.training.schedules.bubble import dualpipe_bubble_s, zero_bubble_v_bubble_s
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StagedPlans, stage_table
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray
from accelsim.workloads.operator import OperatorKind

#: What an iteration's time goes to, exposed seconds each; the sum is the iteration.
TIME_PARTS = (
    "compute",
    "tensor",
    "context",
    "expert",
    "pipeline_bubble",
    "data",
    "optimizer",
    "input",
    "other",
)
_CODES = {name: code for code, name in enumerate(SCHEDULES)}
#: Parts of a microbatch's passes.
_WORK = ("compute", "tensor", "context", "expert")


@frozen(eq=False)
class Scores:
    """Columns of k plans.

    Attributes:
        time_s: Exposed seconds by name in `TIME_PARTS`, shape (k,) each.
        worst_stage: Stage of the rank that needs the most memory.
        memory: Memory of that rank by part.
        energy_j: Dynamic energy of all devices in one iteration.
    """

    time_s: dict[str, FloatArray]
    worst_stage: IntArray
    memory: dict[str, FloatArray]
    energy_j: FloatArray

    @property
    def iteration_s(self) -> FloatArray:
        """Sum of all parts."""
        return np.asarray(sum(self.time_s.values()))

    @property
    def memory_bytes(self) -> FloatArray:
        """Memory of the worst rank."""
        return np.asarray(sum(self.memory.values()))


@frozen(eq=False)
class StageTimes:
    """What one microbatch takes on each stage, shape (k, stages) each.

    Attributes:
        forward_s: Forward pass with its collectives, no faster than it is issued.
        backward_s: Backward pass with what is computed again.
        weight_s: Its part for gradients of weights.
        parts: Exposed seconds of both by name ("compute", "tensor", "context", "expert").
        send_s: A send to the next stage, shape (k,).
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    parts: dict[str, FloatArray]
    send_s: FloatArray


def score(
    setup: TrainingSetup,
    plans: CandidatePlans,
    microbatch_count: IntArray,
    units: IntArray,
    costs: BlockCosts,
) -> Scores:
    """Score plans.

    Args:
        setup: Model and devices.
        plans: k plans of one number of stages that fit the model and the batch.
        microbatch_count: Microbatches of each, shape (k,).
        units: Unit of each plan in `costs`, shape (k,).
        costs: Blocks of every unit.
    """
    keys = np.stack([units, plans["chunks"]], axis=1)
    distinct, row = np.unique(keys, axis=0, return_inverse=True)
    unit, chunks = distinct.T
    table = stage_table(costs, unit, chunks, int(plans["pp"][0]), plans.stage_layers)
    staged = StagedPlans(setup, plans, table, row.ravel(), microbatch_count)
    times = stage_times(staged)
    data = data_parallel(staged, times.forward_s[:, 0], times.backward_s[:, 0])
    memory, worst_stage = worst_memory(staged)
    return Scores(
        time_s=_times(staged, times, data),
        worst_stage=worst_stage,
        memory=memory,
        energy_j=_energy_j(staged) + data.energy_j,
    )


def stage_times(staged: StagedPlans) -> StageTimes:
    """Times of one microbatch on each stage.

    Full recomputation runs the forward pass again, its collectives too: Chen et al. 2016,
    arXiv:1604.06174.

    Args:
        staged: k plans and their stages.
    """
    setup = staged.setup
    ranks = staged.data_ranks * staged["tp"]
    slowest = setup.conditions.slowest_ratio(ranks)[:, None]
    forward, issue_f = _direction(staged, "forward")
    backward, issue_b = _direction(staged, "backward")
    for name in ("tensor", "context", "expert"):
        backward[name] = backward[name] + staged.recomputed(forward[name], 0.0)
    backward["compute"] = backward["compute"] + _again(staged, "compute_s")
    exchange_s = _exchange_s(staged)
    for parts in (forward, backward):
        parts["expert"] = parts["expert"] + exchange_s
        parts["compute"] = parts["compute"] * slowest
    of_stage_s = np.where(staged["pp"] > 1, 1e-6 * setup.run.stack.version.stage_us, 0.0)[:, None]
    issue_f = issue_f + of_stage_s / 2.0
    issue_b = issue_b + _again(staged, "issue_s") + of_stage_s / 2.0
    total_f = np.asarray(sum(forward.values()))
    waits = staged.sums("expert_parameters") * setup.run.stack.version.experts_wait > 0
    forward_s = np.where(waits, total_f + issue_f, np.maximum(total_f, issue_f))
    backward_s = np.maximum(sum(backward.values()), issue_b)
    offloaded = staged["activation_offload"][:, None]
    moved_s = np.where(offloaded, staged.sums("saved_bytes") / setup.host_link_bytes_per_s, 0.0)
    return StageTimes(
        np.maximum(forward_s, moved_s),
        np.maximum(backward_s, moved_s),
        np.minimum(staged.sums("weight_gradient_s") * slowest, backward_s),
        {name: forward[name] + backward[name] for name in forward},
        _send_s(staged, ranks),
    )


def _again(staged: StagedPlans, name: str) -> FloatArray:
    """What recomputation adds to the backward pass of each stage, shape (k, stages)."""
    return staged.recomputed(staged.sums(f"again_{name}"), staged.sums(f"selective_{name}"))


def _direction(staged: StagedPlans, way: str) -> tuple[dict[str, FloatArray], FloatArray]:
    """Exposed seconds of a pass by part, and the time to issue it.

    Estimate: of collectives that run beside products a rank's first piece is shown, and what
    outlasts the products.
    """
    parts = {name: staged.sums(f"{name}_{way}_s") for name in _WORK}
    ranks, tensor = staged["tp"][:, None], parts["tensor"]
    hidden = np.maximum(tensor - parts["compute"], 0.0)
    cut_up = tensor / ranks + hidden * (1.0 - 1.0 / ranks)
    parts["tensor"] = np.where(staged["tensor_overlap"][:, None], cut_up, tensor)
    expert, beside = parts["expert"], np.minimum(parts["expert"], parts["compute"])
    shown = expert - beside * (1.0 - staged.setup.communication_share)
    parts["expert"] = np.where(_hides_experts(staged)[:, None], shown, expert)
    return parts, staged.sums(f"issue_{way}_s")


def _hides_experts(staged: StagedPlans) -> BoolArray:
    """Whether the exchanges of experts run beside another microbatch's computation, shape (k,)."""
    is_overlapped = staged["expert_overlap"] | (staged["schedule"] == _CODES["dualpipe"])
    hides: BoolArray = is_overlapped & (staged.microbatch_count > 1)
    return hides


def _exchange_s(staged: StagedPlans) -> FloatArray:
    """All-to-all of what embedding tables give, each held by one rank (Naumov et al. 2019,
    arXiv:1906.00091, section 4).
    """
    payload = staged.sums("pooled_bytes")
    if not payload.any():
        return np.zeros(payload.shape)
    group = (staged.data_ranks, staged["tp"])
    exchanged = staged.setup.collective_s(OperatorKind.ALL_TO_ALL, payload.sum(axis=1), *group)
    return exchanged[:, None]


def _send_s(staged: StagedPlans, stride: IntArray) -> FloatArray:
    if (staged["pp"] == 1).all():
        return np.zeros(len(staged))
    payload, pair = staged.table.boundary_bytes[staged.row], np.full(len(staged), 2)
    return staged.setup.collective_s(OperatorKind.SEND_RECV, payload, pair, stride)


def _times(staged: StagedPlans, times: StageTimes, data: DataParallel) -> dict[str, FloatArray]:
    """Seconds of an iteration by part. Estimate: parts add up, and input waits for nothing else."""
    count, plan = staged.microbatch_count, np.arange(len(staged))
    pair_s = times.forward_s + times.backward_s
    busiest = pair_s.argmax(axis=1)
    work = {name: count * column[plan, busiest] for name, column in times.parts.items()}
    busy = count * pair_s[plan, busiest]
    bubble = _bubble_s(staged, times)
    loader = staged.setup.conditions.loader_samples_per_s
    waits = np.zeros(len(staged))
    if loader:
        local = count * staged["microbatch"] / (staged["tp"] * staged["cp"] * staged["pp"])
        iteration = busy + bubble + data.exposed_s + data.update_s
        waits = np.maximum(local / loader - iteration, 0.0)
    parts = work | {
        "pipeline_bubble": bubble,
        "data": data.exposed_s,
        "optimizer": data.update_s,
        "input": waits,
        "other": busy - sum(work.values()),
    }
    if int(staged["pp"][0]) == 1:
        _run_together(parts, staged)
    return {name: parts[name] for name in TIME_PARTS}


def _run_together(parts: dict[str, FloatArray], staged: StagedPlans) -> None:
    """Issue the passes that follow each other on one stage ahead, and copy their inputs.

    Estimate: in the steady state of `estimation.schedule` an iteration takes the longest of what
    its device works, what the host issues and what is copied: a pass that waits for its host makes
    up for it beside one that does not. One microbatch's passes and the update are one such
    iteration. What they take less than their parts, the update gives where its rows are faster than
    those of large ones, then the passes.
    """
    count, table, row = staged.microbatch_count, staged.table, staged.row
    of_unit = {name: column[row] for name, column in table.unit_values.items()}
    ways = np.stack(
        [
            [np.sum([table[f"{name}_{way}_s"] for name in _WORK], axis=0), table[f"issue_{way}_s"]]
            for way in ("forward", "backward")
        ]
    )[..., row, 0]
    apart, (busy, issue) = ways.max(axis=1).sum(axis=0), ways.sum(axis=0)
    seconds, _, fixed = staged.setup.update_per_parameter
    held_s = np.maximum(staged.updated[:, 0] * seconds + fixed, 1e-30)
    own_s = np.where(staged["optimizer_offload"], 0.0, parts["optimizer"])
    rows_s = of_unit["update_s"] * own_s / held_s
    update = (rows_s, of_unit["update_issue_s"])
    single = np.maximum.reduce([busy + update[0], issue + update[1], of_unit["copy_s"]])
    many = count * np.maximum.reduce([busy, issue, of_unit["copy_s"]]) + np.maximum(*update)
    parts["other"] += np.where(count == 1, single, many) - count * apart - own_s
    missing = np.maximum(-parts["other"], 0.0)
    parts["other"] += missing
    gives = [("optimizer", own_s - rows_s), *((name, parts[name]) for name in TIME_PARTS)]
    for name, most in gives:
        reduction = np.minimum(np.clip(most, 0.0, parts[name]), missing)
        parts[name] -= reduction
        missing -= reduction


def _bubble_s(staged: StagedPlans, times: StageTimes) -> FloatArray:
    """Time of the pipeline beyond the busiest stage's own work.

    1F1B and interleaved: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; ZB-H1: Qi et al.
    2024, arXiv:2401.10241.

    Formulas of `training.schedules.bubble` for stages that differ: what all stages but the busiest
    take for one microbatch, over the chunks; of schedules that are not simulated, by the stages'
    means. In 1F1B stage s has at most p - s microbatches under way, so that sends also lengthen its
    cycle.
    """
    pair_s = times.forward_s + times.backward_s
    stages = pair_s.shape[1]
    if stages == 1:
        return np.zeros(len(staged))
    busiest_s = pair_s.max(axis=1)
    others_s = pair_s.sum(axis=1) - busiest_s
    others_weight_s = times.weight_s.sum(axis=1) - times.weight_s.max(axis=1)
    columns = (times.forward_s, times.backward_s, times.weight_s)
    forward, backward, weight = (column.mean(axis=1) for column in columns)
    dualpipe = dualpipe_bubble_s(stages, forward + backward, backward, weight)
    schedule = staged["schedule"]
    ideal = np.select(
        [schedule == _CODES[name] for name in ("interleaved", "zb-h1", "zb-v", "dualpipe")],
        [
            others_s / staged["chunks"],
            np.maximum(others_s - 2.0 * others_weight_s, 0.0),
            zero_bubble_v_bubble_s(stages, forward, backward, weight),
            np.maximum(dualpipe, 0.0),
        ],
        others_s,
    )
    cycle_s = np.maximum(longest_cycle_s(times) - busiest_s, 0.0)
    waits = np.maximum(staged.microbatch_count - stages, 0) * cycle_s
    sends = 2.0 * (stages - 1) * times.send_s
    bubble: FloatArray = ideal + sends + np.where(schedule == _CODES["1f1b"], waits, 0.0)
    return bubble


def longest_cycle_s(times: StageTimes) -> FloatArray:
    """Least time from a microbatch to the next in 1F1B, shape (k,): a round trip from a stage to a
    later one, or to itself, over the microbatches that the first may have under way more.

    A cycle's time over its tokens bounds the rate of an event graph: Baccelli et al.,
    Synchronization and Linearity, 1992.

    Args:
        times: Of one microbatch on each stage.
    """
    pair = times.forward_s + times.backward_s
    before = np.cumsum(np.pad(pair, ((0, 0), (1, 0))), axis=1)
    cycle: FloatArray = pair.max(axis=1)
    for hops in range(1, pair.shape[1]):
        passed = (before[:, hops + 1 :] - before[:, : -hops - 1]).max(axis=1)
        cycle = np.maximum(cycle, (passed + 2.0 * hops * times.send_s) / (hops + 1))
    return cycle


def _energy_j(staged: StagedPlans) -> FloatArray:
    """Dynamic energy of the passes on all devices.

    Estimate: all ranks of a stage draw alike, and energies of passes add up.
    """
    forward, backward = (
        staged.sums(f"energy_{name}_j").sum(axis=1) for name in ("forward", "backward")
    )
    again = _again(staged, "energy_j").sum(axis=1)
    ranks = staged.data_ranks * staged["tp"]
    energy: FloatArray = ranks * staged.microbatch_count * (forward + backward + again)
    return energy
