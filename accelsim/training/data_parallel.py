"""What data parallelism adds to an iteration: reduced gradients, gathered weights, the update.

Gradients travel in buckets while the backward pass still runs (Li et al. 2020, arXiv:2006.15704);
ZeRO scatters and gathers instead (Rajbhandari et al. 2020, arXiv:1910.02054, section 7: 2 psi up to
stage 2, 3 psi at stage 3); FSDP gathers the next block while one computes (Zhao et al. 2023,
arXiv:2304.11277, section 4.3).
"""

from __future__ import annotations

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.training.memory import gradient_width_bytes
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StagedPlans
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
#: Bytes that a host's Adam step moves for one parameter: read and write three FP32 tensors, read
#: the gradient, write the weight (Ren et al. 2021, arXiv:2101.06840, section 4).
_HOST_UPDATE_BYTES = 28.0


@frozen(eq=False)
class DataParallel:
    """Columns of k plans.

    Attributes:
        reduce_s: Reduction of the first stage's gradients at the iteration's end.
        bucket_count: Buckets it is done in.
        gather_s: Weights gathered again after the update.
        block_gather_s: Weights of one block under FSDP.
        block_reduce_s: Gradients of one block under FSDP.
        moved_s: All transfers of an iteration, one after the other.
        exposed_s: What of all these nothing hides, and what computation beside them loses.
        update_s: The optimizer's step.
        energy_j: Dynamic energy of the step on all devices.
    """

    reduce_s: FloatArray
    bucket_count: IntArray
    gather_s: FloatArray
    block_gather_s: FloatArray
    block_reduce_s: FloatArray
    moved_s: FloatArray
    exposed_s: FloatArray
    update_s: FloatArray
    energy_j: FloatArray


def exposed_s(reduce_s: FloatArray, window_s: FloatArray, bucket_count: IntArray) -> FloatArray:
    """What is left of n equal transfers that each wait for an equal part of a computation.

    Estimate: the last transfer, and where they are slower what the n - 1 before it are behind.

    Args:
        reduce_s: All transfers, one after the other.
        window_s: The computation.
        bucket_count: n.
    """
    behind = np.maximum(reduce_s - window_s, 0.0) * (bucket_count - 1)
    return (reduce_s + behind) / bucket_count


def data_parallel(
    staged: StagedPlans, forward_s: FloatArray, backward_s: FloatArray
) -> DataParallel:
    """Reductions, gathers and updates.

    Buckets behind the backward pass: Li et al. 2020, arXiv:2006.15704; volumes of ZeRO: Rajbhandari
    et al. 2020, arXiv:1910.02054, section 7.

    Args:
        staged: k plans and their stages.
        forward_s: Forward pass of one microbatch on the first stage, shape (k,).
        backward_s: Its backward pass.
    """
    count = staged.microbatch_count
    blocks = staged.sums("block_counts")[:, 0]
    size = staged.updated[:, 0] * staged.setup.gradient_bytes
    buckets = np.clip(np.ceil(size / staged["bucket_bytes"]), 1, blocks).astype(np.int64)
    overlaps = staged["overlap"]
    sharded = staged["zero"] == 3
    hidden_in = np.where(overlaps, buckets, 1)
    reduce, gather = _transfers(staged, np.where(sharded, _gathers(staged, blocks), hidden_in))
    last = backward_s / staged["chunks"]
    of_chunk = reduce / staged["chunks"]  # those of chunks before it are on their way earlier
    shown = exposed_s(of_chunk, np.where(overlaps, last, 0.0), hidden_in)
    shown += exposed_s(gather, np.where(overlaps, forward_s, 0.0), hidden_in)
    moved = (gather / blocks, reduce / blocks)
    fsdp = count * _fsdp_exposed_s(staged, blocks, forward_s / blocks, backward_s / blocks, *moved)
    reduction_count = np.where((staged["zero"] == 2) & (count > 1), count, 1)
    shown = np.where(sharded, fsdp, shown * reduction_count)
    every = np.where(sharded, count * (reduce + 2.0 * gather), reduce * reduction_count + gather)
    shown = beside(shown, every, staged) + _averaging(staged) + _histograms_s(staged)
    update, energy = _updates(staged)
    return DataParallel(
        reduce_s=np.where(sharded, 0.0, reduce),
        bucket_count=buckets,
        gather_s=np.where(sharded, 0.0, gather),
        block_gather_s=np.where(sharded, moved[0], 0.0),
        block_reduce_s=np.where(sharded, moved[1], 0.0),
        moved_s=every,
        exposed_s=shown,
        update_s=update,
        energy_j=energy,
    )


def beside(exposed: FloatArray, moved: FloatArray, staged: StagedPlans) -> FloatArray:
    """Exposed transfers, and what computation loses to those that run beside it.

    A collective's kernels hold multiprocessors that the products beside it lack: 16 to 32 of a
    GPU (NCCL's channels, a block each; DeepSeek-V3, arXiv:2412.19437, section 3.2.2: 20 of 132).

    Args:
        exposed: What nothing hides, s.
        moved: All transfers, s.
        staged: The plans.
    """
    lost = staged.setup.communication_share * np.maximum(moved - exposed, 0.0)
    slowed: FloatArray = exposed + np.where(staged["overlap"], lost, 0.0)
    return slowed


def _gathers(staged: StagedPlans, blocks: FloatArray) -> FloatArray:
    """Messages that sharded weights travel in."""
    if staged.setup.run.stack.gathers == "layer":
        return blocks
    return np.maximum(staged.sums("tensors")[:, 0], blocks)


def _transfers(staged: StagedPlans, messages: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradients and weights of the first stage: time to reduce and to gather them once, in so many
    messages.

    Volumes of ZeRO's stages: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.
    """
    zero = staged["zero"]
    part_s = np.where(zero == 3, 1e-6 * staged.setup.run.stack.version.rank_part_us, 0.0)

    def collective_s(
        kind: OperatorKind, payload: FloatArray, size: IntArray, stride: IntArray
    ) -> FloatArray:
        """Estimate: messages follow one another, each with a fixed time for every rank's part."""
        once = staged.setup.collective_s(kind, payload / messages, size, stride)
        total_s: FloatArray = messages * (once + part_s * np.where(size > 1, size, 0))
        return total_s

    expert, tables = staged.sums("expert_parameters")[:, 0], staged.sums("table_parameters")[:, 0]
    dense = staged.sums("parameters")[:, 0] - expert - tables
    width = gradient_width_bytes(staged.setup, staged.microbatch_count > 1)
    weight = staged.setup.run.precision.weight.bytes
    ranks, (experts, spread) = staged.data_ranks, staged.expert_ranks
    reduce, gather = np.zeros(len(staged)), np.zeros(len(staged))
    for parameters, trained, size, shared, stride in (
        (dense, "trained_parameters", ranks, staged.state_ranks, staged["tp"]),
        (expert, "trained_experts", experts, experts, spread),
    ):
        if not parameters.any():
            continue
        updated = staged.sums(trained)[:, 0]
        payload = updated * width
        fetched = np.where(zero == 3, parameters, updated) * weight
        all_reduced = collective_s(_K.ALL_REDUCE, payload, size, stride)
        scattered = collective_s(_K.REDUCE_SCATTER, payload, shared, stride)
        across = (payload / shared, size // shared, stride * shared)
        scattered += collective_s(_K.ALL_REDUCE, *across)
        gathered = collective_s(_K.ALL_GATHER, fetched, shared, stride)
        reduced = np.where(zero == 0, all_reduced, scattered)
        reduce += np.where(staged["local_steps"] > 1, 0.0, reduced)
        gather += np.where(zero == 0, 0.0, gathered)
    return reduce, gather


def _fsdp_exposed_s(
    staged: StagedPlans,
    blocks: FloatArray,
    forward_s: FloatArray,
    backward_s: FloatArray,
    gather_s: FloatArray,
    reduce_s: FloatArray,
) -> FloatArray:
    """What one microbatch waits for blocks of weights and gradients.

    Prefetched blocks as in Zhao et al. 2023, arXiv:2304.11277, section 4.3; estimate: transfers
    have the link to themselves.

    The first block of each pass waits for its weights, each further one only for what is left of
    its transfers once the block before it has computed.
    """
    overlaps = staged["overlap"]
    moved = gather_s + reduce_s
    ahead = np.maximum(gather_s - np.where(overlaps, forward_s, 0.0), 0.0)
    behind = np.maximum(moved - np.where(overlaps, backward_s, 0.0), 0.0)
    shown: FloatArray = moved + gather_s + (blocks - 1) * (ahead + behind)
    return shown


def _averaging(staged: StagedPlans) -> FloatArray:
    """Parameters averaged every so many steps.

    Local SGD: Stich, ICLR 2019, arXiv:1805.09767.
    """
    apart = staged["local_steps"] > 1
    if not apart.any():
        return np.zeros(len(staged))
    parameters = (staged.updated + staged.sums("table_parameters"))[:, 0]
    payload = parameters * staged.setup.run.precision.weight.bytes
    once = staged.setup.collective_s(_K.ALL_REDUCE, payload, staged.data_ranks, staged["tp"])
    return np.where(apart, once / staged["local_steps"], 0.0)


def _histograms_s(staged: StagedPlans) -> FloatArray:
    """Histograms of boosted trees, summed over the ranks once for each level (Ke et al. 2017,
    LightGBM: data-parallel trees).
    """
    levels, level_bytes = staged.setup.histograms
    if not levels:
        return np.zeros(len(staged))
    payload = np.full(len(staged), level_bytes)
    once = staged.setup.collective_s(_K.ALL_REDUCE, payload, staged["dp"], staged["tp"])
    return levels * staged.microbatch_count * once


def _updates(staged: StagedPlans) -> tuple[FloatArray, FloatArray]:
    """Optimizer's step of the largest stage, and its energy on all devices.

    States sharded as in Rajbhandari et al. 2020, arXiv:1910.02054, section 5: a rank updates its
    share.
    """
    parameters = staged.updated / np.where(staged["zero"] >= 1, staged.state_ranks, 1)[:, None]
    most, total = parameters.max(axis=1), parameters.sum(axis=1)
    seconds, joules, fixed = staged.setup.update_per_parameter
    update = most * seconds + np.where(most > 0, fixed, 0.0)
    energy = total * joules * staged.data_ranks * staged["tp"]
    offloaded = staged["optimizer_offload"]
    if not offloaded.any():
        return update, energy
    on_host = most * _host_seconds(staged.setup)
    return np.where(offloaded, on_host, update), np.where(offloaded, 0.0, energy)


def _host_seconds(setup: TrainingSetup) -> float:
    """Seconds for one parameter of a step on the host: gradients down, step, weights up.

    Ren et al. 2021, arXiv:2101.06840, section 4, without overlap of the three.

    Raises:
        InvalidValueError: If the memory of the host is not known.
    """
    rate = setup.host_memory_bytes_per_s
    if rate is None:
        remedy = "Name a cluster whose node has a host of the catalogue."
        raise InvalidValueError("optimizer_offload", True, "a host of known memory", remedy)
    moved = setup.gradient_bytes + setup.run.precision.weight.bytes
    return moved / setup.host_link_bytes_per_s + _HOST_UPDATE_BYTES / rate
