"""Memory of the ranks of each stage: weights, gradients, states, activations, buffers.

States follow ZeRO's accounting (Rajbhandari et al. 2020, arXiv:1910.02054, section 5), activations
the schedule's microbatches in flight (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
Gradients that several microbatches add to are kept in FP32 beside a master copy of the weights, as
Megatron-LM keeps them. All ranks of a stage hold the same; the worst rank is the first of its
stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsim.training.candidates import Candidates, distinct_rows
from accelsim.training.plan import RECOMPUTE, SCHEDULES
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StageTable
from accelsim.workloads.graph import FloatArray, IntArray

#: What memory goes to; the sum is a rank's.
MEMORY_PARTS = (
    "weight_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "activation_bytes",
    "working_bytes",
    "buffer_bytes",
    "reserve_bytes",
)
_FP32_BYTES = 4.0
_GPIPE, _DUALPIPE = SCHEDULES.index("gpipe"), SCHEDULES.index("dualpipe")
_FULL, _SELECTIVE = RECOMPUTE.index("full"), RECOMPUTE.index("selective")
#: Blocks whose gathered weights are held at once under FSDP: the one that runs and the next.
_GATHERED_BLOCKS = 2.0


def state_bytes(
    parameter_count: Any,
    zero: Any,
    ranks: Any,
    *,
    weight_bytes: float = 2.0,
    gradient_bytes: Any = 2.0,
    optimizer_bytes: float = 12.0,
    trained_count: Any | None = None,
) -> tuple[Any, Any, Any]:
    """Weights, gradients and optimizer states of one rank.

    Rajbhandari et al. 2020, arXiv:1910.02054, figure 1 and table 1: 2 + 2 + 12 bytes a parameter
    for Adam in mixed precision, of which stage 1 shares 12, stage 2 also the gradients, stage 3
    all.

    Args:
        parameter_count: Parameters that the ranks hold copies of.
        zero: ZeRO stage, 0 to 3.
        ranks: Ranks that share states.
        weight_bytes: Bytes of a weight.
        gradient_bytes: Bytes of a gradient.
        optimizer_bytes: Bytes of a parameter's states and master copy.
        trained_count: Parameters that have gradients and states; all where None.

    Returns:
        Bytes each.
    """
    shared = [np.where(np.asarray(zero) >= stage, ranks, 1) for stage in (3, 2, 1)]
    widths = (weight_bytes, gradient_bytes, optimizer_bytes)
    trained = parameter_count if trained_count is None else trained_count
    held = (parameter_count, trained, trained)
    weight, gradient, optimizer = (
        size * width / count for size, width, count in zip(held, widths, shared, strict=True)
    )
    return weight, gradient, optimizer


def gradient_width_bytes(setup: TrainingSetup, microbatch_count: IntArray) -> FloatArray:
    """Bytes of one gradient."""
    alone = setup.gradient_bytes
    has_master = setup.run.precision.master_weight is not None
    several = max(alone, _FP32_BYTES) if has_master else alone
    return np.where(microbatch_count > 1, several, alone)


def in_flight(plans: Candidates, microbatch_count: IntArray, stage_count: int) -> FloatArray:
    """Microbatches whose activations each stage keeps, in whole stages, shape (k, stages).

    `training.schedules.schedule.most_in_flight` says the same of one stage.
    """
    stage = np.arange(stage_count)
    total = (microbatch_count * plans["chunks"])[:, None]
    chunks = plans["chunks"][:, None]
    names = np.array(SCHEDULES)[plans["schedule"]][:, None]
    interleaved = (chunks - 1) * stage_count + 2 * (stage_count - stage) - 1
    most = np.select(
        [names == "gpipe", names == "interleaved", names == "1f1b", names == "dualpipe"],
        [total, interleaved, stage_count - stage, stage_count + 1],
        stage_count,
    )
    held: FloatArray = np.minimum(total, most) / chunks
    return held


def worst_memory(
    setup: TrainingSetup,
    plans: Candidates,
    table: StageTable,
    row: IntArray,
    microbatch_count: IntArray,
) -> dict[str, FloatArray]:
    """Memory of the stage that needs the most, shape (k,) each: "memory_bytes", "worst_stage" and
    "memory." with each name in `MEMORY_PARTS`.

    Args:
        setup: Model and devices.
        plans: k plans of one number of stages.
        table: Their stages.
        row: Row of each plan in it, shape (k,).
        microbatch_count: Microbatches of each, shape (k,).
    """
    held, fixed = _alike(setup, plans, table, row, microbatch_count)
    total = np.sum(list(fixed.values()), axis=0)[held]
    first, waits = _waiting_alike(plans, row, microbatch_count)
    fragmented = 1.0 / (1.0 - setup.conditions.fragmentation_fraction)
    saved = _activations(plans.take(first), table, row[first], microbatch_count[first]) * fragmented
    total += saved[waits]
    worst = total.argmax(axis=1)
    parts = {name: part[held, worst] for name, part in fixed.items()}
    parts["activation_bytes"] = saved[waits, worst]
    found = {f"memory.{name}": parts[name] for name in MEMORY_PARTS}
    return found | {"memory_bytes": total[np.arange(len(total)), worst], "worst_stage": worst}


def _alike(
    setup: TrainingSetup,
    plans: Candidates,
    table: StageTable,
    row: IntArray,
    microbatch_count: IntArray,
) -> tuple[IntArray, dict[str, FloatArray]]:
    """All but activations of each sort of plans that hold the same, and each plan's sort."""
    words = ("dp", "zero", "shard_group", "optimizer_offload")
    _, bucket = np.unique(plans["bucket_bytes"], return_inverse=True)
    doubled = plans["schedule"] == _DUALPIPE
    several = microbatch_count > 1
    first, sort = distinct_rows(row, bucket, doubled, several, *(plans[name] for name in words))
    own, place = plans.take(first), row[first]
    fragmented = 1.0 / (1.0 - setup.conditions.fragmentation_fraction)
    working = table["working_bytes"][place]
    return sort, {
        **_held(setup, own, table, place, microbatch_count[first]),
        "working_bytes": working * fragmented,
        "buffer_bytes": _buffers(setup, own, table, place),
        "reserve_bytes": np.full(working.shape, setup.conditions.reserve_bytes),
    }


def _waiting_alike(
    plans: Candidates, row: IntArray, microbatch_count: IntArray
) -> tuple[IntArray, IntArray]:
    """The first of each sort of plans with the same activations, and each plan's sort."""
    most = (plans["chunks"] + 1) * plans["pp"]  # GPipe alone keeps more chunks than these
    total = microbatch_count * plans["chunks"]
    under_way = np.where(plans["schedule"] == _GPIPE, total, np.minimum(total, most))
    words = ("schedule", "recompute", "activation_offload")
    return distinct_rows(row, under_way, *(plans[name] for name in words))


def _held(
    setup: TrainingSetup,
    plans: Candidates,
    table: StageTable,
    row: IntArray,
    microbatch_count: IntArray,
) -> dict[str, FloatArray]:
    """Weights, gradients and states: of dense layers, of experts and of tables."""
    copies = {name: plans[name] for name in ("dp", "cp", "tp")}
    ranks = copies["dp"] * copies["cp"]
    states = np.where(plans["shard_group"] > 0, plans["shard_group"], ranks)
    spread = plans["ep"] * _expert_tp(plans)
    experts = np.maximum(ranks * copies["tp"] // spread, 1)
    expert, tables = table["expert_parameters"][row], table["table_parameters"][row]
    dense = table["parameters"][row] - expert - tables
    policy = setup.run.precision
    widths: dict[str, Any] = {
        "weight_bytes": policy.weight.bytes,
        "gradient_bytes": gradient_width_bytes(setup, microbatch_count)[:, None],
        "optimizer_bytes": setup.state_bytes,
    }
    zero = plans["zero"][:, None]
    trained = (table["trained_parameters"][row], table["trained_experts"][row])
    parts = [
        state_bytes(dense, zero, states[:, None], trained_count=trained[0], **widths),
        state_bytes(expert, zero, experts[:, None], trained_count=trained[1], **widths),
    ]
    weight, gradient, optimizer = (sum(pair) for pair in zip(*parts, strict=True))
    shared_tables = tables / ranks[:, None]  # each rank holds tables of its own
    on_device = ~plans["optimizer_offload"].astype(bool)[:, None]
    copies_held = np.where(plans["schedule"] == _DUALPIPE, 2.0, 1.0)[:, None]
    return {
        "weight_bytes": copies_held * weight + shared_tables * policy.weight.bytes,
        "gradient_bytes": copies_held * gradient,
        "optimizer_bytes": (optimizer + shared_tables * setup.state_bytes) * on_device,
    }


def _expert_tp(plans: Candidates) -> IntArray:
    """Ranks that share an expert's columns; see `Shard.expert_tp`."""
    alone = plans["ep"] == 1
    return np.where(plans["etp"] > 0, plans["etp"], np.where(alone, plans["tp"], 1))


def _activations(
    plans: Candidates, table: StageTable, row: IntArray, microbatch_count: IntArray
) -> FloatArray:
    """What waits for backward passes; a layer that is computed again is held once more."""
    stage_count = table.block_counts.shape[1]
    recompute = plans["recompute"][:, None]
    saved = table["saved_bytes"][row]
    selective = saved - table["inner_saved_bytes"][row]
    inputs = table.block_counts[row] * table.boundary_bytes[row][:, None]
    kept = np.select([recompute == _FULL, recompute == _SELECTIVE], [inputs, selective], saved)
    again = np.where(recompute == _FULL, table.again_bytes[row], 0.0)
    waiting = kept * in_flight(plans, microbatch_count, stage_count)
    on_device = np.where(plans["activation_offload"].astype(bool)[:, None], 0.0, waiting)
    return np.where(on_device > 0, on_device + again, table.block_saved_bytes[row])


def _buffers(
    setup: TrainingSetup, plans: Candidates, table: StageTable, row: IntArray
) -> FloatArray:
    """Weights gathered from other ranks, and buckets of gradients on their way."""
    block = table.layer_parameters[row]
    width = setup.run.precision.weight.bytes
    gathered = _GATHERED_BLOCKS * block * width + block * setup.gradient_bytes
    bucket = np.minimum(plans["bucket_bytes"][:, None], table["parameters"][row] * width)
    ranks = (plans["dp"] * plans["cp"])[:, None]
    found = np.where(plans["zero"][:, None] == 3, gathered, bucket)
    return np.where(ranks > 1, found, 0.0)
