"""One iteration of one plan, task by task on the engine."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from accelsim.training.candidates import CandidatePlans
from accelsim.training.data_parallel import DataParallel, beside, data_parallel, exposed_s
from accelsim.training.iteration import Iteration
from accelsim.training.layers import BlockCosts
from accelsim.training.plan import ParallelismPlan
from accelsim.training.schedules.pipeline import PipelineRun, PipelineWork, simulate_pipeline
from accelsim.training.schedules.schedule import SCHEDULES as SIMULATED
from accelsim.training.schedules.schedule import pipeline_order
from accelsim.training.schedules.sharded import ShardedRun, ShardedWork, simulate_sharded
from accelsim.training.score import StageTimes, longest_cycle_s, score, stage_times
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StagedPlans, stage_table
from accelsim.training.trust import iteration_correction
from accelsim.workloads.graph import FloatArray

#: How often the microbatches that are simulated fill a long pipeline, and the share of the steady
#: state's cycle that one more of them takes at least there.
_FILLED, _STEADY = (2, 3), 0.99
#: Microbatches of a sharded iteration that are simulated; the others take what the last one took.
_SHARDED_MICROBATCHES = 3


def simulate_iteration(
    setup: TrainingSetup, plan: ParallelismPlan, global_batch: int, *, record: bool = False
) -> Iteration:
    """One iteration of a plan, as long as the user's own runs say.

    Its closed form is exact where all layers are on one stage and each rank holds them whole. Other
    plans are simulated, and all whose tasks are kept; what an iteration takes depends on neither.
    Kept tasks are as predicted without the user's runs.

    Args:
        setup: Model and devices.
        plan: A plan that fits the model.
        global_batch: Samples of an iteration.
        record: Whether to keep every task for the timeline.

    Raises:
        InvalidValueError: If the plan does not divide the batch.
    """
    iteration = _as_predicted(setup, plan, global_batch, record=record)
    if setup.run.learned is None:
        return iteration
    ratio = math.exp(iteration_correction(iteration).shift)
    return replace(
        iteration, time_s={name: ratio * time for name, time in iteration.time_s.items()}
    )


def _as_predicted(
    setup: TrainingSetup, plan: ParallelismPlan, global_batch: int, *, record: bool
) -> Iteration:
    """One iteration of a plan, whatever the user's own runs say."""
    plans = CandidatePlans.of([plan])
    count = plan.microbatch_count(global_batch)
    counts, units, costs = np.array([count]), setup.units(plans), setup.costs()
    scores = score(setup, plans, counts, units, costs)
    parts = {name: float(column[0]) for name, column in scores.time_s.items()}
    iteration = Iteration(setup, plan, count, scores, parts, None, costs, int(units[0]))
    is_sharded = plan.zero == 3 and plan.pp == 1
    if plan.schedule not in SIMULATED or not (record or is_sharded or plan.pp > 1):
        return iteration
    table = stage_table(costs, units, plans["chunks"], plan.pp, plan.stage_layers)
    staged = StagedPlans(setup, plans, table, np.zeros(1, dtype=np.int64), counts)
    run, simulated = (_sharded if is_sharded else _pipeline)(iteration, staged, record=record)
    is_exact = plan.pp == 1 and not is_sharded
    return replace(iteration, run=run, time_s=parts if is_exact else parts | simulated)


def _pipeline(
    iteration: Iteration, staged: StagedPlans, *, record: bool
) -> tuple[PipelineRun | None, dict[str, float]]:
    """The tasks of a plan's stages, if they are kept, and what the simulation says of the bubble
    and of the reductions.
    """
    plan, count, times = iteration.plan, iteration.microbatch_count, stage_times(staged)
    data = data_parallel(staged, times.forward_s[:, 0], times.backward_s[:, 0])
    work = _pipeline_work(iteration, staged, times, data)
    pair_s = float((times.forward_s + times.backward_s).max())
    cycle_s = float(longest_cycle_s(times)[0]) if plan.schedule == "1f1b" else pair_s
    computed_s, late_s = _ends_s(plan, work, count, cycle_s)
    time_s = {"pipeline_bubble": max(computed_s - count * pair_s, 0.0)}
    if plan.zero < 2:
        window_s = times.backward_s[:, 0] / plan.chunks * plan.overlap
        buckets = np.where(plan.overlap, data.bucket_count, 1)
        reductions = float(exposed_s(data.reduce_s / plan.chunks, window_s, buckets)[0])
        time_s["data"] = iteration.time_s["data"] - reductions + late_s
    return _run(plan, work, count, record=True) if record else None, time_s


def _run(
    plan: ParallelismPlan, work: PipelineWork, count: int, *, record: bool = False
) -> PipelineRun:
    order = pipeline_order(plan.schedule, plan.pp, count, plan.chunks)
    return simulate_pipeline(order, work, record=record)


def _ends_s(
    plan: ParallelismPlan, work: PipelineWork, count: int, cycle_s: float
) -> tuple[float, float]:
    """When the last pass of a pipeline ends, and how much later the last reduction.

    Of many microbatches as many as fill the pipeline a few times are simulated, with and without
    one filling: each further one takes what one of those takes, once that is the cycle of the
    steady state, which every event graph comes to (Baccelli et al., Synchronization and Linearity,
    1992). A pipeline that is not there yet is simulated whole.

    Args:
        plan: The plan.
        work: What its passes take.
        count: Microbatches.
        cycle_s: The least time from a microbatch to the next in the steady state.
    """
    rounds = [filled * plan.pp for filled in _FILLED]
    counts = [count] if count <= sum(rounds) else rounds
    runs = [_run(plan, work, microbatches) for microbatches in counts]
    ends = [float(run.compute_end_s.max()) for run in runs]
    if len(runs) > 1:
        each_s = (ends[1] - ends[0]) / plan.pp
        if each_s < _STEADY * cycle_s:
            runs = [_run(plan, work, count)]
            ends = [float(runs[0].compute_end_s.max())]
        else:
            ends.append(ends[1] + (count - rounds[1]) * max(each_s, cycle_s))
    late_s = float(runs[-1].reduce_end_s.max() - runs[-1].compute_end_s.max())
    return ends[-1], late_s


def _pipeline_work(
    iteration: Iteration, staged: StagedPlans, times: StageTimes, data: DataParallel
) -> PipelineWork:
    """What the tasks of stages and chunks take.

    Estimate: gradients go with parameters, and gathered weights hide behind the first forward pass.
    """
    plan, table = iteration.plan, staged.table
    one_chunk = np.ones(1, dtype=np.int64)  # each as if it were a stage
    places = (np.array([iteration.unit]), one_chunk, plan.pp * plan.chunks, plan.stage_layers)
    chunk_times = stage_times(replace(staged, table=stage_table(iteration.costs, *places)))
    forward, backward, weight = (
        column.reshape(plan.chunks, plan.pp).T
        for column in (chunk_times.forward_s, chunk_times.backward_s, chunk_times.weight_s)
    )
    apart = weight if plan.schedule.startswith("zb") else np.zeros_like(weight)
    size = table["parameters"][0]
    share = size / size[0] if size[0] else np.zeros(plan.pp)
    gathered = exposed_s(data.gather_s, times.forward_s[:, 0] * plan.overlap, data.bucket_count)
    hidden = plan.overlap and plan.local_steps == 1
    return PipelineWork(
        forward_s=forward,
        backward_s=backward - apart,
        weight_s=apart,
        send_s=float(times.send_s[0]),
        reduce_s=share * data.reduce_s[0] * (plan.zero < 2),
        bucket_count=int(data.bucket_count[0]) if hidden else 1,
        update_s=np.full(plan.pp, float(data.update_s[0] + gathered[0])),
    )


def _sharded(
    iteration: Iteration, staged: StagedPlans, *, record: bool
) -> tuple[ShardedRun | None, dict[str, float]]:
    """Blocks of one rank, whose transfers share the time of all by their parameters, and what the
    simulation says of these.

    Order of FSDP's blocks: Zhao et al. 2023, arXiv:2304.11277. Estimate: transfers of a block go
    with its parameters.
    """
    costs, unit, count = iteration.costs, iteration.unit, iteration.microbatch_count
    times = stage_times(staged)
    data = data_parallel(staged, times.forward_s[:, 0], times.backward_s[:, 0])
    blocks, size = costs.block_count, costs["parameters"][unit]
    share = size / size.sum() if size.sum() else np.full(blocks, 1.0 / blocks)
    work = ShardedWork(
        forward_s=_spread(costs, unit, times.forward_s[0, 0], "forward"),
        backward_s=_spread(costs, unit, times.backward_s[0, 0], "backward"),
        gather_s=share * data.block_gather_s[0] * blocks,
        reduce_s=share * data.block_reduce_s[0] * blocks,
        update_s=float(data.update_s[0]),
        overlap=bool(staged["overlap"][0]),
    )
    run = simulate_sharded(work, min(count, _SHARDED_MICROBATCHES), record=record)
    shown = np.array([_sharded_exposed_s(run, times, count)])
    besides = iteration.time_s["data"] - float(data.exposed_s[0])
    return run, {"data": float(beside(shown, data.moved_s, staged)[0]) + besides}


def _spread(costs: BlockCosts, unit: int, total_s: float, way: str) -> FloatArray:
    """A pass's time over its blocks, by what takes longer: their computation or their issue."""
    columns = [costs[f"{resource}_{way}_s"][unit] for resource in ("compute", "issue")]
    weight = max(columns, key=np.sum)
    share: FloatArray = weight if weight.any() else np.ones_like(weight)
    spread: FloatArray = total_s * (share / share.sum())
    return spread


def _sharded_exposed_s(run: ShardedRun, times: StageTimes, count: int) -> float:
    """What an iteration takes beyond its passes.

    Estimate: microbatches beyond those simulated take what the last of these took.
    """
    ends = run.microbatch_end_s
    last = float(ends[-1] - ends[-2]) if len(ends) > 1 else float(ends[-1])
    total = float(ends[-1]) + (count - len(ends)) * last
    return max(total - count * float((times.forward_s + times.backward_s)[0, 0]), 0.0)
