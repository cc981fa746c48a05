"""Fused attention on a GPU: FlashAttention-style kernels in prefill and training, split-KV kernels
in decoding.

Scores never reach memory (Dao et al., 2022 and 2023): traffic is queries, keys, values and output
once. Blocks of a causal or windowed mask that hold no visible pair are skipped, so the executed
FLOP are those of the visible pairs rounded up to blocks. With few queries the kernel is bound by
reading the cache, shared by the query heads of a group (GQA; Ainslie et al., 2023) or by all heads
(MLA; DeepSeek-V2, 2024). The backward pass does five block products where the forward pass does
two. Boards before Ampere have no FlashAttention and run xFormers' CUTLASS kernel, which does not
hide its softmax.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.contraction import visible_pairs
from accelsim.cost.gpu.gemm import KernelWork, contraction_costs
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.table import RowCosts, Rows
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind

#: Queries and keys one thread block works on (FlashAttention-2 tiles), and keys of one slice of
#: split-KV decoding.
_QUERY_BLOCK, _KEY_BLOCK, _KEY_SLICE = 64.0, 128.0, 256.0
#: Rows of the smallest matrix instruction; fewer queries than this are padded (PTX ISA,
#: mma.m16n8k16).
_INSTRUCTION_ROWS = 16.0
#: Elementwise work per score: scale, running maximum, exponential, sum and rescaling, in FP32-lane
#: FLOP.
_SOFTMAX_FLOP = 8.0
_BACKWARD_PRODUCTS = 2.5
#: What xFormers' CUTLASS kernel takes of the vector lanes per score, not hidden: 64 sequences
#: of 1024 tokens with 16 heads of 16, 32, 64 and 128 take 4.9, 5.8, 7.4 and 14.7 ms on a V100 and
#: 3.4, 3.5, 4.3 and 8.2 ms on an A100 (facebookresearch/xformers, pull request 587): 0.45 clocks of
#: 64 lanes on either besides the products, one after the other: 29 instructions.
_EXPOSED_FLOP = 2.0 * 29.0
#: Heads are padded to what kernels are compiled for: 32, 64, 96, 128, and 64 more each
#: (flash_api.cpp and CUTLASS's example 41).
_HEAD_STEP, _WIDE_HEAD, _WIDE_HEAD_STEP = 32.0, 128.0, 64.0


def attention_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Attention as one operator, forward or backward.

    Products and softmax overlap: the longer of the two counts (estimate); they add up without
    FlashAttention. Block sizes after FlashAttention-2 (Dao, arXiv:2307.08691, 2023), slices of the
    keys after Flash-Decoding (Dao et al., 2023).
    """
    backward = rows.kind == OperatorKind.ATTENTION_BACKWARD
    products = _BACKWARD_PRODUCTS if backward else 1.0
    flop, blocks, work, padded, sliced = rows.without_batch(_of_a_sequence)
    executed = np.ceil(rows["batch"] * blocks / machine.sm_count) * machine.sm_count * work
    rate = _rate(rows, machine, backward=backward)
    arithmetic_s = executed * padded * products / rate
    # Split-KV decoding sums its slices, and the backward pass its partial gradients, in a second
    # short kernel.
    reduction_s = machine.parameters.memory.kernel_latency_s * np.maximum(sliced, float(backward))
    compute_s = _joined(arithmetic_s, executed * products, machine)
    flop = rows["batch"] * flop * products
    kernel = KernelWork(compute_s, flop, rows.bytes, extra_latency_s=reduction_s)
    return contraction_costs(rows, kernel, machine, machine.parameters.spread.attention)


def _rate(rows: Rows, machine: GpuMachine, *, backward: bool) -> FloatArray:
    """Block products' rate with every SM busy, FLOP/s.

    As `reached_flop_per_s`: FlashAttention-2 reaches 165 TFLOP/s of an RTX 4090 (Zhang et al.,
    SageAttention, ICLR 2025), all that it sums in FP32.
    """
    rate = machine.product_rate(rows, machine.parameters.attention.efficiency)
    return rate * machine.parameters.attention.backward_efficiency if backward else rate


def _padded(head_dim: FloatArray) -> FloatArray:
    step = np.where(head_dim <= _WIDE_HEAD, _HEAD_STEP, _WIDE_HEAD_STEP)
    return np.ceil(head_dim / step) * step


def _joined(arithmetic_s: FloatArray, scores: FloatArray, machine: GpuMachine) -> FloatArray:
    """Time of block products and softmax. Blocks of FlashAttention (Dao et al., 2022 and 2023)."""
    if machine.generation.has_flash_attention:
        rate = machine.vector_flop_per_s * machine.parameters.memory.special_efficiency
        return np.maximum(arithmetic_s, scores * _SOFTMAX_FLOP / rate)
    return arithmetic_s + scores * _EXPOSED_FLOP / machine.vector_flop_per_s


def _block_pairs(rows: Rows, visible: FloatArray) -> FloatArray:
    """Pairs a mask leaves, counting whole blocks along its edges: a causal mask has one, a window a
    second.

    Blocks as FlashAttention-2 skips them (Dao, arXiv:2307.08691, 2023, section 3.1).
    """
    q_len, kv_len, causal = rows["q_len"], rows["kv_len"], rows["causal"]
    rounding = q_len * _KEY_BLOCK / 2.0
    if not rows["window"].any():
        return np.minimum(visible + rounding, q_len * kv_len)
    every = visible_pairs(q_len, kv_len, causal, np.zeros_like(q_len))
    every = np.minimum(every + rounding, q_len * kv_len)
    return np.where(rows["window"] > 0, np.minimum(visible + 2 * rounding, every), every)


def _of_a_sequence(rows: Rows) -> FloatArray:
    """What one sequence of each row brings to a forward pass, shape (5, r): FLOP; blocks, which
    run in whole waves over the SMs; pairs of a block; FLOP of a pair in padded heads; whether it is
    decoded in slices of its keys.

    A block is 64 queries of one head against the keys they see on average. With few queries, the
    query heads that share keys fill one instruction together, and slices of 256 keys are blocks of
    their own.

    Blocks of FlashAttention (Dao et al., 2022 and 2023).
    """
    q_len, heads = rows["q_len"], rows["heads"]
    pairs = visible_pairs(q_len, rows["kv_len"], rows["causal"], rows["window"])
    flop = heads * pairs * 2.0 * (rows["head_dim"] + rows["value_dim"])
    keys_seen = _block_pairs(rows, pairs) / np.maximum(q_len, 1.0)
    shared = np.maximum(heads / np.maximum(rows["kv_heads"], 1.0), 1.0)
    short = q_len <= _INSTRUCTION_ROWS
    blocks = heads * np.where(short, np.ceil(keys_seen / _KEY_SLICE), np.ceil(q_len / _QUERY_BLOCK))
    padded_queries = np.maximum(_INSTRUCTION_ROWS / shared, q_len)
    work = np.where(short, padded_queries * _KEY_SLICE, _QUERY_BLOCK * keys_seen)
    padded = 2.0 * (_padded(rows["head_dim"]) + _padded(rows["value_dim"]))
    sliced = short & (rows["kv_len"] > _KEY_SLICE)
    return np.stack([flop, blocks, work, padded, sliced])
