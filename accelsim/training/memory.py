"""Memory of the ranks of each stage: weights, gradients, states, activations, buffers.

States follow ZeRO's accounting (Rajbhandari et al. 2020, arXiv:1910.02054, section 5), activations
the schedule's microbatches in flight (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
Gradients that several microbatches add to are kept in FP32 beside a master copy of the weights, as
Megatron-LM keeps them. All ranks of a stage hold the same; the worst rank is the first of its
stage.
"""

from __future__ import annotations

import numpy as np

from accelsim.plain import Document
from accelsim.training.candidates import CandidatePlans
from accelsim.training.plan import SCHEDULES
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StagedPlans
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

#: What memory goes to; the sum is a rank's.
MEMORY_PARTS = (
    "weight_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "activation_bytes",
    "working_bytes",
    "buffer_bytes",
    "allocator_bytes",
    "reserve_bytes",
)
_FP32_BYTES = 4.0
_DUALPIPE = SCHEDULES.index("dualpipe")


def state_bytes(
    parameter_count: FloatArray | float,
    zero: IntArray | int,
    ranks: IntArray | int,
    *,
    weight_bytes: float = 2.0,
    gradient_bytes: FloatArray | float = 2.0,
    optimizer_bytes: float = 12.0,
    trained_count: FloatArray | float | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
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
    counts = (parameter_count, trained, trained)
    weight, gradient, optimizer = (
        size * width / count for size, width, count in zip(counts, widths, shared, strict=True)
    )
    return weight, gradient, optimizer


def gradient_width_bytes(setup: TrainingSetup, is_wide: BoolArray) -> FloatArray:
    """Bytes of one gradient, where it is kept in FP32 beside a master copy and where it is not."""
    alone = setup.gradient_bytes
    has_master = setup.run.precision.trained.master_weight is not None
    return np.where(is_wide & has_master, max(alone, _FP32_BYTES), alone)


def keeps_wide_gradients(staged: StagedPlans) -> BoolArray:
    """Whether gradients are held in FP32: by trainers that split layers or stages.

    Megatron-LM has a buffer of FP32 gradients whatever the number of microbatches (Korthikanti et
    al. 2022, arXiv:2205.05198, figure 1: 18 bytes a parameter). Data parallelism alone holds
    gradients as wide as weights (Rajbhandari et al. 2020, arXiv:1910.02054, table 1: 16 bytes;
    FSDP2 has as many, 4 each of weights and gradients and 8 of states).
    """
    wide: BoolArray = staged["tp"] * staged["pp"] > 1
    return wide


def in_flight(plans: CandidatePlans, microbatch_count: IntArray, stage_count: int) -> FloatArray:
    """Microbatches whose activations each stage keeps, in whole stages, shape (k, stages).

    All of GPipe's; p - s of 1F1B's; ((v - 1) p + 2 (p - s) - 1) / v of the interleaved schedule
    (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3); as many as the first stage's p of
    ZB-H1's, whose weight gradients keep them longer (Qi et al. 2024, arXiv:2401.10241, section
    2.3).
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
    chunks_held: FloatArray = np.minimum(total, most) / chunks
    return chunks_held


def worst_memory(staged: StagedPlans) -> tuple[dict[str, FloatArray], IntArray]:
    """Memory of the stage that needs the most, by name in `MEMORY_PARTS`, and that stage, shape
    (k,) each.

    Estimate: the allocator loses a share of activations and of what passes work with; see `setup`.

    Args:
        staged: k plans and their stages.
    """
    setup = staged.setup
    activations, working = _activations(staged), staged.sums("working_bytes")
    fraction = setup.fragmentation_fraction
    lost_ratio = fraction / (1.0 - fraction)  # reserved beyond what is live, over that
    reserve = setup.reserve_bytes(staged.plans)[:, None]
    parts = _held(staged) | {
        "activation_bytes": activations,
        "working_bytes": working,
        "buffer_bytes": _buffers(staged),
        "allocator_bytes": lost_ratio * (activations + working),
        "reserve_bytes": np.broadcast_to(reserve, working.shape),
    }
    worst = np.sum([parts[name] for name in MEMORY_PARTS], axis=0).argmax(axis=1)
    plan = np.arange(len(staged))
    return {name: parts[name][plan, worst] for name in MEMORY_PARTS}, worst


def _held(staged: StagedPlans) -> dict[str, FloatArray]:
    """Weights, gradients and states: of dense layers, of experts and of tables.

    Rajbhandari et al. 2020, arXiv:1910.02054, section 5.
    """
    setup = staged.setup
    tables = staged.sums("table_parameters")
    widths: Document = {
        "weight_bytes": 1.0,
        "gradient_bytes": gradient_width_bytes(setup, keeps_wide_gradients(staged))[:, None],
        "optimizer_bytes": setup.state_bytes,
    }
    parts = [
        state_bytes(
            staged.sums(weights),
            staged["zero"][:, None],
            ranks[:, None],
            trained_count=staged.sums(trained),
            **widths,
        )
        for weights, ranks, trained in (
            ("weight_bytes", staged.state_ranks, "trained_parameters"),
            ("expert_weight_bytes", staged.expert_ranks[0], "trained_experts"),
        )
    ]
    weight, gradient, optimizer = (sum(pair) for pair in zip(*parts, strict=True))
    shared_tables = tables / staged.data_ranks[:, None]  # each rank holds tables of its own
    on_device = ~staged["optimizer_offload"][:, None]
    copies_held = np.where(staged["schedule"] == _DUALPIPE, 2.0, 1.0)[:, None]
    return {
        "weight_bytes": copies_held * weight + shared_tables * setup.run.precision.held_bytes,
        "gradient_bytes": copies_held * gradient * on_device,
        "optimizer_bytes": (optimizer + shared_tables * setup.state_bytes) * on_device,
    }


def _activations(staged: StagedPlans) -> FloatArray:
    """What waits for backward passes; a layer that is computed again is held once more.

    Microbatches in flight: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3; a layer's
    input alone with full recomputation: Chen et al. 2016, arXiv:1604.06174.
    """
    saved = staged.sums("saved_bytes")
    saved_per_microbatch = staged.recomputed(
        staged.sums("input_bytes"), staged.sums("selective_saved_bytes"), saved
    )
    again = staged.recomputed(staged.sums("again_bytes"), staged.sums("selective_again_bytes"))
    chunks = in_flight(staged.plans, staged.microbatch_count, saved.shape[1])
    waiting = saved_per_microbatch * chunks
    on_device = np.where(staged["activation_offload"][:, None], 0.0, waiting)
    return np.where(on_device > 0, on_device + again, staged.sums("block_saved_bytes"))


def _buffers(staged: StagedPlans) -> FloatArray:
    """Weights gathered from other ranks, and gradients on their way.

    FSDP gathers the block that runs and the next one, and has one block's gradients whole (Zhao et
    al. 2023, arXiv:2304.11277); so has stage 2, which then keeps its own part of them. Others send
    gradients in buckets, to other ranks or to the host.
    """
    setup, zero = staged.setup, staged["zero"][:, None]
    width = setup.run.precision.weight.bytes
    trained = np.minimum(staged.sums("block_parameters"), staged.updated)
    block = trained * setup.gradient_bytes
    gathered = staged.sums("pair_parameters") * width
    bucket = np.minimum(staged["bucket_bytes"][:, None], staged.sums("parameters") * width)
    sent = np.where(zero >= 2, np.maximum(block, bucket), bucket)
    buffers = sent + np.where(zero == 3, gathered, 0.0)
    travels = (staged.data_ranks > 1) | staged["optimizer_offload"]
    return np.where(travels[:, None], buffers, 0.0)
