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
from accelsim.training.candidates import Candidates
from accelsim.training.memory import gradient_width_bytes
from accelsim.training.setup import TrainingSetup
from accelsim.training.stages import StageTable
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
        exposed_s: What of all these nothing hides.
        update_s: The optimizer's step.
        energy_j: Dynamic energy of the step on all devices.
    """

    reduce_s: FloatArray
    bucket_count: IntArray
    gather_s: FloatArray
    block_gather_s: FloatArray
    block_reduce_s: FloatArray
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
    setup: TrainingSetup,
    plans: Candidates,
    table: StageTable,
    row: IntArray,
    microbatch_count: IntArray,
    forward_s: FloatArray,
    backward_s: FloatArray,
) -> DataParallel:
    """Reductions, gathers and updates of plans of one number of stages.

    Args:
        setup: Model and devices.
        plans: k plans.
        table: Their stages.
        row: Row of each plan in it, shape (k,).
        microbatch_count: Microbatches of each, shape (k,).
        forward_s: Forward pass of one microbatch on the first stage, shape (k,).
        backward_s: Its backward pass.
    """
    reduce, gather = _transfers(setup, plans, table, row, microbatch_count)
    buckets = _bucket_counts(setup, plans, table, row)
    overlaps = plans["overlap"].astype(bool)
    last = backward_s / plans["chunks"]
    of_chunk = reduce / plans["chunks"]  # those of chunks before it are on their way earlier
    shown = exposed_s(of_chunk, np.where(overlaps, last, 0.0), np.where(overlaps, buckets, 1))
    shown += exposed_s(gather, np.where(overlaps, forward_s, 0.0), np.where(overlaps, buckets, 1))
    blocks = table.block_counts[row, 0]
    by_block = (gather / blocks, reduce / blocks)
    sharded = plans["zero"] == 3
    passes = (forward_s / blocks, backward_s / blocks)
    fsdp = microbatch_count * _fsdp_exposed_s(plans, blocks, *passes, *by_block)
    each = np.where((plans["zero"] == 2) & (microbatch_count > 1), microbatch_count, 1)
    shown = np.where(sharded, fsdp, shown * each) + _averaging(setup, plans, table, row)
    shown += _histograms_s(setup, plans, microbatch_count)
    update, energy = _updates(setup, plans, table, row)
    none = np.zeros(len(plans))
    return DataParallel(
        reduce_s=np.where(sharded, none, reduce),
        bucket_count=buckets,
        gather_s=np.where(sharded, none, gather),
        block_gather_s=np.where(sharded, by_block[0], none),
        block_reduce_s=np.where(sharded, by_block[1], none),
        exposed_s=shown,
        update_s=update,
        energy_j=energy,
    )


def _transfers(
    setup: TrainingSetup,
    plans: Candidates,
    table: StageTable,
    row: IntArray,
    microbatch_count: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Gradients and weights of the first stage: time to reduce and to gather them once."""
    expert = table["expert_parameters"][row, 0]
    dense = table["parameters"][row, 0] - expert - table["table_parameters"][row, 0]
    width = gradient_width_bytes(setup, microbatch_count)
    weight = setup.run.precision.weight.bytes
    ranks = plans["dp"] * plans["cp"]
    spread = np.where(plans["ep"] > 1, plans["ep"] * np.maximum(plans["etp"], 1), plans["tp"])
    experts = np.maximum(ranks * plans["tp"] // spread, 1)
    keeps_apart = plans["local_steps"] > 1
    reduce, gather = np.zeros(len(plans)), np.zeros(len(plans))
    group = np.where(plans["shard_group"] > 0, plans["shard_group"], ranks)
    trained = (table["trained_parameters"][row, 0], table["trained_experts"][row, 0])
    for parameters, updated, size, shared, stride in (
        (dense, trained[0], ranks, group, plans["tp"]),
        (expert, trained[1], experts, experts, spread),
    ):
        if not parameters.any():
            continue
        payload = updated * width
        fetched = np.where(plans["zero"] == 3, parameters, updated) * weight
        whole = setup.collective_s(_K.ALL_REDUCE, payload, size, stride)
        scattered = setup.collective_s(_K.REDUCE_SCATTER, payload, shared, stride)
        across = (payload / shared, size // shared, stride * shared)
        scattered += setup.collective_s(_K.ALL_REDUCE, *across)
        gathered = setup.collective_s(_K.ALL_GATHER, fetched, shared, stride)
        reduce += np.where(keeps_apart, 0.0, np.where(plans["zero"] == 0, whole, scattered))
        gather += np.where(plans["zero"] == 0, 0.0, gathered)
    return reduce, gather


def _bucket_counts(
    setup: TrainingSetup, plans: Candidates, table: StageTable, row: IntArray
) -> IntArray:
    """Buckets of the first stage's gradients, no more than its blocks."""
    size = _updated(table)[row, 0] * setup.gradient_bytes
    counts = np.ceil(size / plans["bucket_bytes"])
    found: IntArray = np.clip(counts, 1, table.block_counts[row, 0]).astype(np.int64)
    return found


def _fsdp_exposed_s(
    plans: Candidates,
    blocks: FloatArray,
    forward_s: FloatArray,
    backward_s: FloatArray,
    gather_s: FloatArray,
    reduce_s: FloatArray,
) -> FloatArray:
    """What one microbatch waits for blocks of weights and gradients.

    The first block of each pass waits for its weights, each further one only for what is left of
    its transfers once the block before it has computed.
    """
    overlaps = plans["overlap"].astype(bool)
    moved = gather_s + reduce_s
    ahead = np.maximum(gather_s - np.where(overlaps, forward_s, 0.0), 0.0)
    behind = np.maximum(moved - np.where(overlaps, backward_s, 0.0), 0.0)
    shown: FloatArray = gather_s + reduce_s + gather_s + (blocks - 1) * (ahead + behind)
    return shown


def _averaging(
    setup: TrainingSetup, plans: Candidates, table: StageTable, row: IntArray
) -> FloatArray:
    """Parameters averaged every so many steps."""
    apart = plans["local_steps"] > 1
    if not apart.any():
        return np.zeros(len(plans))
    tables = table["table_parameters"][row, 0]
    payload = (_updated(table)[row, 0] + tables) * setup.run.precision.weight.bytes
    ranks = plans["dp"] * plans["cp"]
    once = setup.collective_s(_K.ALL_REDUCE, payload, ranks, plans["tp"])
    return np.where(apart, once / plans["local_steps"], 0.0)


def _histograms_s(
    setup: TrainingSetup, plans: Candidates, microbatch_count: IntArray
) -> FloatArray:
    """Histograms of boosted trees, summed over the ranks once for each level (Ke et al. 2017,
    LightGBM: data-parallel trees).
    """
    levels, level_bytes = setup.histograms
    if not levels:
        return np.zeros(len(plans))
    payload = np.full(len(plans), level_bytes)
    once = setup.collective_s(_K.ALL_REDUCE, payload, plans["dp"], plans["tp"])
    return levels * microbatch_count * once


def _updated(table: StageTable) -> FloatArray:
    """Parameters that the optimizer updates in every step: all but tables and frozen weights."""
    return table["trained_parameters"] + table["trained_experts"]


def _updates(
    setup: TrainingSetup, plans: Candidates, table: StageTable, row: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Optimizer's step of the largest stage, and its energy on all devices."""
    ranks = plans["dp"] * plans["cp"]
    shared = np.where(plans["shard_group"] > 0, plans["shard_group"], ranks)
    held = _updated(table)
    share = np.where(plans["zero"] >= 1, shared, 1)
    most, whole = held.max(axis=1)[row] / share, held.sum(axis=1)[row] / share
    seconds, joules, fixed = setup.update_per_parameter
    update = most * seconds + np.where(most > 0, fixed, 0.0)
    energy = whole * joules * ranks * plans["tp"]
    offloaded = plans["optimizer_offload"].astype(bool)
    if not offloaded.any():
        return update, energy
    on_host = most * _host_seconds(setup)
    return np.where(offloaded, on_host, update), np.where(offloaded, 0.0, energy)


def _host_seconds(setup: TrainingSetup) -> float:
    """Seconds for one parameter of a step on the host: gradients down, step, weights up."""
    rate = setup.host_memory_bytes_per_s
    if rate is None:
        remedy = "Name a cluster whose node has a host of the catalogue."
        raise InvalidValueError("optimizer_offload", True, "a host of known memory", remedy)
    moved = setup.gradient_bytes + setup.run.precision.weight.bytes
    return moved / setup.host_link_bytes_per_s + _HOST_UPDATE_BYTES / rate
