"""One iteration of one plan, task by task on the engine."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.estimation.passes import run_passes
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.schedule import device_settings, pass_result
from accelsim.estimation.simulate import SimulatedPass, simulated
from accelsim.frozen import frozen
from accelsim.simulation.timeline import Timeline
from accelsim.training.candidates import CandidatePlans
from accelsim.training.data_parallel import DataParallel, beside, data_parallel, exposed_s
from accelsim.training.layers import BlockCosts, operator_frame
from accelsim.training.plan import ParallelismPlan
from accelsim.training.schedules.pipeline import PipelineRun, PipelineWork, simulate_pipeline
from accelsim.training.schedules.schedule import SCHEDULES as SIMULATED
from accelsim.training.schedules.schedule import pipeline_order
from accelsim.training.schedules.sharded import ShardedRun, ShardedWork, simulate_sharded
from accelsim.training.score import TIME_PARTS, Scores, StageTimes, score, stage_times
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StagedPlans, StageTable, stage_table
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import Phase

if TYPE_CHECKING:
    import pandas as pd

#: Microbatches of a sharded iteration that are simulated; the others take what the last one took.
_SHARDED_MICROBATCHES = 3
#: Parts of a pass that the device's own simulation has, too.
_OF_DEVICE = ("compute", "tensor", "context", "expert")


@frozen(slots=False, eq=False)
class Iteration:
    """One iteration of a plan.

    Attributes:
        setup: Model and devices.
        plan: The plan.
        microbatch_count: Microbatches.
        scores: The plan's closed form, memory and energy.
        time_s: Exposed seconds by name in `score.TIME_PARTS`, as simulated.
        run: The simulation; None for schedules that have a closed form alone.
        costs: Blocks of the model.
        unit: How the plan's ranks run a microbatch, among them.
    """

    setup: TrainingSetup
    plan: ParallelismPlan
    microbatch_count: int
    scores: Scores
    time_s: dict[str, float]
    run: PipelineRun | ShardedRun | None
    costs: BlockCosts
    unit: int

    @property
    def forward_flop(self) -> float:
        """Model FLOP of one microbatch's forward pass on all ranks that share it."""
        return self._flop("flop")

    @property
    def again_flop(self) -> float:
        """What recomputation does again of them."""
        names = {"none": None, "selective": "selective_flop", "full": "again_flop"}
        name = names[self.plan.recompute]
        return 0.0 if name is None else self._flop(name)

    def _flop(self, name: str) -> float:
        own = float(self.costs[name][self.unit].sum())
        return own * self.plan.tp * self.plan.cp

    @property
    def iteration_s(self) -> float:
        """Sum of all parts."""
        return sum(self.time_s.values())

    @cached_property
    def memory_bytes(self) -> float:
        """Memory of the worst rank."""
        return float(self.scores.memory_bytes[0])

    @property
    def worst_rank(self) -> int:
        """The first rank of the stage that needs the most memory."""
        return int(self.scores.worst_stage[0]) * self.plan.pipeline_stride

    def to_frame(self) -> pd.DataFrame:
        """Operators of one microbatch on one rank, forward and backward, with what each costs."""
        return operator_frame(self.setup.run_of(self.unit))

    @property
    def timeline(self) -> Timeline | None:
        """Tasks of the iteration, if they were recorded; None for a closed form."""
        return None if self.run is None else self.run.timeline


def simulate_iteration(
    setup: TrainingSetup, plan: ParallelismPlan, global_batch: int, *, record: bool = False
) -> Iteration:
    """Simulate one iteration.

    Args:
        setup: Model and devices.
        plan: A plan that fits the model.
        global_batch: Samples of an iteration.
        record: Whether to keep every task for the timeline.

    Raises:
        InvalidValueError: If the plan does not divide the batch.
    """
    plans = CandidatePlans.of([plan])
    count = plan.microbatch_count(global_batch)
    counts, units, costs = np.array([count]), setup.units(plans), setup.costs()
    scores = score(setup, plans, counts, units, costs)
    table = stage_table(costs, units, plans["chunks"], plan.pp, plan.stage_layers)
    staged = StagedPlans(setup, plans, table, np.zeros(1, dtype=np.int64), counts)
    times = stage_times(staged)
    data = data_parallel(staged, times.forward_s[:, 0], times.backward_s[:, 0])
    parts = {name: float(column[0]) for name, column in scores.time_s.items()}
    run: PipelineRun | ShardedRun | None = None
    if plan.zero == 3 and plan.pp == 1:
        run = _sharded(staged, costs, int(units[0]), times, data, record=record)
        shown = np.array([_sharded_exposed_s(run, times, count)])
        parts["data"] = float(beside(shown, data.moved_s, staged)[0]) + _besides(scores, data)
    elif plan.schedule in SIMULATED:
        one_chunk = np.ones(1, dtype=np.int64)  # each as if it were a stage
        cut = stage_table(costs, units, one_chunk, plan.pp * plan.chunks, plan.stage_layers)
        chunk_times = stage_times(replace(staged, table=cut))
        run = _pipeline(plan, count, table, chunk_times, data, times, record=record)
        parts |= _pipeline_parts(plan, run, parts, times, data, count)
    update_s = parts["optimizer"]
    if plan.pp == 1:
        extra_s, update_s = _device_extra_s(setup, plan, count, table, update_s)
        parts["other"] += extra_s
    _settle(parts, update_s)
    return Iteration(setup, plan, count, scores, parts, run, costs, int(units[0]))


def _settle(parts: dict[str, float], update_s: float) -> None:
    """Take what `other` is below 0 from other parts, so that none is below 0 and the sum stays.

    The device's simulation takes less than the parts where a small update stays in caches, or where
    passes overlap: the update gives down to what its rows take there, then the passes give.
    """
    missing = max(-parts["other"], 0.0)
    parts["other"] = max(parts["other"], 0.0)
    for name, least in (("optimizer", update_s), *((name, 0.0) for name in TIME_PARTS)):
        given = min(max(parts[name] - least, 0.0), missing)
        parts[name] -= given
        missing -= given


def _pipeline(
    plan: ParallelismPlan,
    count: int,
    table: StageTable,
    chunk_times: StageTimes,
    data: DataParallel,
    times: StageTimes,
    *,
    record: bool,
) -> PipelineRun:
    order = pipeline_order(plan.schedule, plan.pp, count, plan.chunks)
    forward, backward, weight = (
        column.reshape(plan.chunks, plan.pp).T
        for column in (chunk_times.forward_s, chunk_times.backward_s, chunk_times.weight_s)
    )
    apart = weight if order.has_weight_passes else np.zeros_like(weight)
    size = table["parameters"][0]
    share = size / size[0] if size[0] else np.zeros(plan.pp)
    gathered = exposed_s(data.gather_s, times.forward_s[:, 0] * plan.overlap, data.bucket_count)
    hidden = plan.overlap and plan.local_steps == 1
    work = PipelineWork(
        forward_s=forward,
        backward_s=backward - apart,
        weight_s=apart,
        send_s=float(times.send_s[0]),
        reduce_s=share * data.reduce_s[0] * (plan.zero < 2),
        bucket_count=int(data.bucket_count[0]) if hidden else 1,
        update_s=np.full(plan.pp, float(data.update_s[0] + gathered[0])),
    )
    return simulate_pipeline(order, work, record=record)


def _pipeline_parts(
    plan: ParallelismPlan,
    run: PipelineRun,
    parts: dict[str, float],
    times: StageTimes,
    data: DataParallel,
    count: int,
) -> dict[str, float]:
    """What the simulation says of the bubble and of the reductions."""
    busy = count * float((times.forward_s + times.backward_s).max())
    computed, reduced = run.compute_end_s.max(), run.reduce_end_s.max()
    found = {"pipeline_bubble": max(float(computed) - busy, 0.0)}
    if plan.zero < 2:
        window_s = times.backward_s[:, 0] / plan.chunks * plan.overlap
        buckets = np.where(plan.overlap, data.bucket_count, 1)
        reductions = float(exposed_s(data.reduce_s / plan.chunks, window_s, buckets)[0])
        found["data"] = parts["data"] - reductions + float(reduced - computed)
    return found


def _sharded(
    staged: StagedPlans,
    costs: BlockCosts,
    unit: int,
    times: StageTimes,
    data: DataParallel,
    *,
    record: bool,
) -> ShardedRun:
    """Blocks of one rank, whose transfers share the time of all by their parameters."""
    blocks, count = costs.block_count, int(staged.microbatch_count[0])
    size = costs["parameters"][unit]
    share = size / size.sum() if size.sum() else np.full(blocks, 1.0 / blocks)
    work = ShardedWork(
        forward_s=_spread(costs, unit, times.forward_s[0, 0], "forward"),
        backward_s=_spread(costs, unit, times.backward_s[0, 0], "backward"),
        gather_s=share * data.block_gather_s[0] * blocks,
        reduce_s=share * data.block_reduce_s[0] * blocks,
        update_s=float(data.update_s[0]),
        overlap=bool(staged["overlap"][0]),
    )
    return simulate_sharded(work, min(count, _SHARDED_MICROBATCHES), record=record)


def _spread(costs: BlockCosts, unit: int, total_s: float, way: str) -> FloatArray:
    """A pass's time over its blocks, by what takes longer: their computation or their issue."""
    columns = [costs[f"{part}_{way}_s"][unit] for part in ("compute", "issue")]
    weight = max(columns, key=np.sum)
    share: FloatArray = weight if weight.any() else np.ones_like(weight)
    spread: FloatArray = total_s * (share / share.sum())
    return spread


def _sharded_exposed_s(run: ShardedRun, times: StageTimes, count: int) -> float:
    ends = run.microbatch_end_s
    last = float(ends[-1] - ends[-2]) if len(ends) > 1 else float(ends[-1])
    total = float(ends[-1]) + (count - len(ends)) * last
    return max(total - count * float((times.forward_s + times.backward_s)[0, 0]), 0.0)


def _besides(scores: Scores, data: DataParallel) -> float:
    """What data parallelism takes besides reductions and gathers."""
    return float(scores.time_s["data"][0] - data.exposed_s[0])


def _device_extra_s(
    setup: TrainingSetup, plan: ParallelismPlan, count: int, table: StageTable, update_s: float
) -> tuple[float, float]:
    """What the device's own simulation of the passes and of a rank's share of the update adds
    (input copies, gaps between launches), and what the rows of the update take there.
    """
    changes: dict[str, Any] = {"batch": plan.microbatch * count, "accumulation": count}
    changes |= {"shard": plan.shard, "lora_rank": plan.lora_rank}
    run = replace(setup.run, cluster=setup.cluster, **changes)
    passes = [
        max(
            sum(float(table[f"{name}_{word}_s"][0, 0]) for name in _OF_DEVICE),
            float(table[f"issue_{word}_s"][0, 0]),
        )
        for word in ("forward", "backward")
    ]
    seconds, _, fixed = setup.update_per_parameter
    held = float(table["trained_parameters"][0, 0] + table["trained_experts"][0, 0])
    own_s = 0.0 if plan.optimizer_offload else update_s
    share = own_s / (held * seconds + fixed) if held else 1.0
    whole = simulated(run, run_passes(run))
    periods = [_period_s(run, one, share) for one in whole.passes]
    period_s, rows_s = np.transpose(periods) @ [one.repeats for one in whole.passes]
    return float(period_s) - count * sum(passes) - own_s, float(rows_s) if own_s else update_s


def _period_s(run: ResolvedRun, one: SimulatedPass, share: float) -> tuple[float, float]:
    """Time of a pass whose optimizer rows take a share of what they take for all parameters, and
    what those rows take.
    """
    is_update = one.graph.phase == int(Phase.OPTIMIZER)
    part = np.where(is_update, share, 1.0)
    costs = replace(one.table, time_s=part * one.table.time_s, energy_j=part * one.table.energy_j)
    result = pass_result(costs, device_settings(run, one.input_bytes, is_decode=False))
    return min(result.steady_state_s, result.latency_s), float(costs.time_s[is_update].sum())
