"""Costs of a graph on a software stack: what the stack reaches of the model of kernels.

A cost model predicts the kernels of the libraries it was fitted to. Another stack has kernels,
tilings and a framework of its own; how much longer its operators take is a ratio per family of
operators, and how far whole networks scatter about that is shared by all rows of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accelsim.confidence.residual import group_of
from accelsim.cost.attention_kernels import AttentionKernel, attention_s
from accelsim.cost.limit import PowerLimit, under_limit
from accelsim.cost.table import CostTable
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, OperatorGraph, is_kind
from accelsim.workloads.operator import (
    COLLECTIVE_KINDS,
    CONTRACTION_KINDS,
    CONV_KINDS,
    DIMENSIONS,
    TRANSFER_KINDS,
    OperatorKind,
    Phase,
)

Codes: TypeAlias = NDArray[np.integer[Any]]

#: Families whose ratios are told apart, by group of operators; links belong to none.
_FAMILY_OF_GROUP = {
    "product": "product",
    "attention": "product",
    "recurrent": "product",
    "convolution": "convolution",
    "gradient": "convolution",
    "memory": "memory",
}
_ORDER = ("", "convolution", "product", "memory")
_IS_LINK = COLLECTIVE_KINDS | TRANSFER_KINDS
#: Place in `_ORDER` by operator kind.
_PLACE = np.array(
    [
        0 if kind in _IS_LINK else _ORDER.index(_FAMILY_OF_GROUP[group_of(kind)])
        for kind in range(max(OperatorKind) + 1)
    ]
)
#: Formats whose convolutions have a layout that is faster than others: those of matrix cores.
_LAID_OUT_BYTES = 2.0
#: Operators that a compiler which generates kernels leaves to libraries.
_LIBRARY_CALLS = CONTRACTION_KINDS | {OperatorKind.EMBEDDING_BAG}
_WINDOW, _STRIDE, _GROUPS = (
    [DIMENSIONS[OperatorKind.CONV].index(name) for name in names]
    for names in (("kernel_d", "kernel_h", "kernel_w"), ("stride",), ("groups",))
)
_SCORE_SIDES = [
    DIMENSIONS[OperatorKind.ATTENTION].index(side) for side in ("batch", "heads", "q_len", "kv_len")
]
_SCORE_BYTES = 2.0 + 6.0 + 8.0 + 6.0 + 2.0
_PRODUCT_SIDES = [DIMENSIONS[OperatorKind.GEMM].index(side) for side in ("m", "n", "k")]


@frozen
class MatrixVector:
    """Kernels of a stack's own for products of few rows with weights, on one device.

    Attributes:
        rows: Most rows that they take.
        weight_s: Time of the vector units for a weight in a format they widen.
        byte_s: Time to read a byte of such weights.
        plain_byte_s: Time to read a byte of others.
    """

    rows: int
    weight_s: float
    byte_s: float
    plain_byte_s: float


@frozen
class KernelMaker:
    """A stack that brings kernels of its own.

    Attributes:
        name: Of the stack: surfaces measured under it count before those of other stacks.
        fused_quantisation: Share of the products of a format ("fp8" with a scale per tensor,
            "fp8-block", "fp4") whose input the kernel before them quantises.
        is_llama_cpp: Whether its products are llama.cpp's.
        stream_thread_count: Threads of a CPU that run a batch, beside as many batches as there are
            such streams; None where a batch has all.
    """

    name: str
    fused_quantisation: tuple[tuple[str, float], ...] = ()
    is_llama_cpp: bool = False
    stream_thread_count: int | None = None

    def fused(self, form: str) -> float:
        """The share of one format; 0 where none is known."""
        return dict(self.fused_quantisation).get(form, 0.0)


@frozen
class FamilySpread:
    """Spread of ln(true / predicted) of networks that spend their time in one family of operators.

    Attributes:
        whole: Of networks of any kind; of rows that belong to links.
        convolution: Of convolutions.
        product: Of matrix products, attention and recurrent cells.
        memory: Of all else.
        decode: Of a decode step.
    """

    whole: float = 0.0
    convolution: float = 0.0
    product: float = 0.0
    memory: float = 0.0
    decode: float = 0.0


@frozen
class StackEffect:
    """What a stack does to the costs of a graph on one class of devices.

    Attributes:
        convolution: Time of convolutions over the model's.
        product: Time of matrix products, attention and recurrent cells over the model's.
        memory: Time of all else over the model's.
        decode: Time of every operator of a decode step over the model's.
        transform_s: Least time to turn a feature map's layout into that of the matrix cores'
            convolutions and back, each; None where maps are laid out so.
        group_norm_passes: Times that a group norm goes over its map besides one read and one write.
        host: Time to issue an operator over the class's.
        library_call_s: Time to call a library's kernel and the generated ones around it; None where
            operators are issued one by one, or replayed.
        spread: Spread of ln(true / predicted) by family; what rows of all families share.
        matrix_vector: Its kernels for few rows; None where it calls the library's.
        sums_ratio: Arithmetic time of products in 16 bits over the class's, by the format of sums.
        of_arithmetic: Whether the ratios are of the operators' arithmetic alone: chips whose memory
            is moved ahead of their arrays.
        wide_byte_s: Time to move a byte, where what operators of 16 bits read and write is of 32; 0
            where it is not.
        attention: The kernel of attention where it is not the model's.
        cast_s: Time to cast an element that a product of 8 bits or fewer takes; 0 where casts are
            part of other kernels.
        limit: Power limit set on the board that it runs on; None where its own holds.
    """

    convolution: float = 1.0
    product: float = 1.0
    memory: float = 1.0
    decode: float = 1.0
    transform_s: float | None = None
    group_norm_passes: int = 0
    host: float = 1.0
    library_call_s: float | None = None
    spread: FamilySpread = FamilySpread()
    matrix_vector: MatrixVector | None = None
    sums_ratio: float = 1.0
    of_arithmetic: bool = False
    wide_byte_s: float = 0.0
    attention: AttentionKernel | None = None
    cast_s: float = 0.0
    limit: PowerLimit | None = None

    @classmethod
    def of(cls, ratios: Mapping[str, float], **others: Any) -> StackEffect:
        """Effect with the ratios of some families."""
        return cls(**{**ratios, **others})


def operator_families(kind: Codes) -> list[str]:
    """Family of each row, length n; empty for rows that belong to links."""
    return [_ORDER[index] for index in _PLACE[kind].tolist()]


def on_stack(
    table: CostTable, graph: OperatorGraph, effect: StackEffect, *, is_decode: bool
) -> CostTable:
    """Costs of n rows on a stack.

    Estimate: ratios of whole families, fitted to published whole networks (`tools.refit`).

    Args:
        table: Costs of the model of kernels.
        graph: The rows.
        effect: What the stack does.
        is_decode: Whether the rows are of a decode step.
    """
    kind = graph.kind
    ratio = _by_family(1.0, effect, kind, is_decode=is_decode)
    spread = _by_family(effect.spread.whole, effect.spread, kind, is_decode=is_decode)
    if effect.of_arithmetic:
        table = _with_arithmetic(table, ratio)
        return replace(table, context_log_sigma=np.hypot(table.context_log_sigma, spread))
    table = _with_sums(table, graph, effect.sums_ratio)
    if effect.matrix_vector is not None:
        table = _with_matrix_vector(table, graph, effect.matrix_vector)
    turned_s = _turned_s(table, graph, effect)
    if effect.wide_byte_s:
        turned_s = turned_s + _wide_bytes(graph) * effect.wide_byte_s
    if effect.cast_s:
        turned_s = turned_s + _cast_elements(graph) * effect.cast_s
    costs = replace(
        table,
        time_s=table.time_s * ratio + turned_s,
        compute_s=table.compute_s * ratio,
        memory_s=table.memory_s * ratio + turned_s,
        dispatch_s=_issued_s(table.dispatch_s * effect.host, graph, effect),
        context_log_sigma=np.hypot(table.context_log_sigma, spread),
    )
    if effect.attention is not None:
        costs = _with_attention(costs, graph, effect.attention)
    return costs if effect.limit is None else under_limit(costs, effect.limit)


def _by_family(
    of_links: float, values: StackEffect | FamilySpread, kind: Codes, *, is_decode: bool
) -> FloatArray:
    """The value of each row's family, shape (n,)."""
    by_family = [values.convolution, values.product, values.memory]
    if is_decode:
        by_family = [values.decode] * len(by_family)
    ratios: FloatArray = np.array([of_links, *by_family])[_PLACE[kind]]
    return ratios


def _turned_s(table: CostTable, graph: OperatorGraph, effect: StackEffect) -> FloatArray:
    """Time to turn the maps that group norms and convolutions of matrix cores read and write, shape
    (n,).

    Two kernels that read and write their map once. Windows of one position that do not stride
    multiply maps as they are, as do convolutions of single channels. Estimate: two kernels of one
    pass each at the row's own time per byte.
    """
    map_bytes = graph.read_bytes + graph.write_bytes
    moved_bytes = np.maximum(table.bytes, map_bytes)  # what caches hold is read there, too
    byte_s = table.memory_s / np.maximum(moved_bytes, 1.0)
    is_norm = graph.kind == OperatorKind.GROUP_NORM
    turned_s: FloatArray = is_norm * effect.group_norm_passes * map_bytes / 2.0 * byte_s
    if effect.transform_s is None:
        return turned_s
    window, stride, groups = (
        graph.dims[:, places].prod(axis=1) for places in (_WINDOW, _STRIDE, _GROUPS)
    )
    is_laid_out = (DTYPE_BYTES[graph.dtype] <= _LAID_OUT_BYTES) | (graph.dtype == Dtype.TF32)
    turned = is_kind(graph.kind, CONV_KINDS) & is_laid_out & (groups == 1)
    turned &= (window > 1) | (stride > 1)
    both_s = 2.0 * (effect.transform_s + map_bytes * byte_s)
    return np.where(turned, both_s, turned_s)


def _wide_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes that activations of 32 bits move besides those of 16, shape (n,).

    Kernels of their own convert what a product takes, 4 bytes read and 2 written, and yields, 2 and
    4 (ggml_cuda_op_mul_mat_cublas). Attention is not one operator: a score is written, converted,
    read and written by the softmax, converted again and read. Estimate: every conversion goes
    through memory.
    """
    is_attention = graph.kind == OperatorKind.ATTENTION
    scores = graph.dims[:, _SCORE_SIDES].astype(np.float64).prod(axis=1)
    times = np.where(is_kind(graph.kind, CONTRACTION_KINDS), 3.0, 1.0)
    moved = times * (graph.read_bytes + graph.write_bytes) + is_attention * _SCORE_BYTES * scores
    is_half = (DTYPE_BYTES[graph.dtype] == _LAID_OUT_BYTES) & (_PLACE[graph.kind] > 0)
    wide_bytes: FloatArray = is_half * moved
    return wide_bytes


def _cast_elements(graph: OperatorGraph) -> FloatArray:
    """Elements that are cast for each product in 8 bits or fewer, shape (n,).

    The forward pass casts its input and its weight, the product for the input's gradient the
    gradient that comes in; the one for the weight's takes both again (Micikevicius et al. 2022, FP8
    formats for deep learning, arXiv:2209.05433).
    """
    m, n, k = (graph.dims[:, column].astype(np.float64) for column in _PRODUCT_SIDES)
    is_cast = (graph.kind == OperatorKind.GEMM) & (DTYPE_BYTES[graph.dtype] < _LAID_OUT_BYTES)
    is_forward = graph.phase == int(Phase.FORWARD)
    ends = np.array([name.endswith(".grad_input") for name in graph.name], dtype=bool)
    elements = np.where(is_forward, m * k + k * n, np.where(ends, m * k, 0.0))
    cast_elements: FloatArray = is_cast * elements
    return cast_elements


def _with_attention(table: CostTable, graph: OperatorGraph, kernel: AttentionKernel) -> CostTable:
    """Attention at the rates of a kernel, which hold its memory traffic."""
    compute_s, is_replaced = attention_s(graph, kernel)
    return replace(
        table,
        time_s=np.where(is_replaced, compute_s, table.time_s),
        compute_s=np.where(is_replaced, compute_s, table.compute_s),
    )


def _issued_s(eager_s: FloatArray, graph: OperatorGraph, effect: StackEffect) -> FloatArray:
    """Time to issue each row, no more than eager code takes; shape (n,).

    Estimate: the wrapper of a compiled network takes its time for each call of a library, with the
    generated kernels in between.
    """
    if effect.library_call_s is None:
        return eager_s
    called = is_kind(graph.kind, _LIBRARY_CALLS)
    return np.where(called, np.minimum(eager_s, effect.library_call_s), 0.0)


def _with_sums(table: CostTable, graph: OperatorGraph, ratio: float) -> CostTable:
    """Products in 16 bits whose sums are of another format than libraries take."""
    if ratio == 1.0:
        return table
    halves = (graph.kind == OperatorKind.GEMM) & (DTYPE_BYTES[graph.dtype] == _LAID_OUT_BYTES)
    return _with_arithmetic(table, np.where(halves, ratio, 1.0))


def _with_arithmetic(table: CostTable, ratio: FloatArray) -> CostTable:
    """Arithmetic that takes so much longer, as far as it does not hide behind memory.

    Roofline (Williams et al., CACM 52(4), 2009).
    """
    compute_s = table.compute_s * ratio
    gained_s = np.maximum(table.compute_s, table.memory_s) - np.maximum(compute_s, table.memory_s)
    return replace(table, time_s=table.time_s - gained_s, compute_s=compute_s)


def _with_matrix_vector(table: CostTable, graph: OperatorGraph, kernels: MatrixVector) -> CostTable:
    """Products of few rows by kernels that read each weight once, widen it, and multiply it.

    Estimate: reading and widening add up, as measured figures of an RTX 3090 and an A40 in 16 and
    4 bits differ by (llama.cpp's CUDA kernels, ggml-cuda/mmvq.cu).
    """
    m, n, k = (graph.dims[:, column].astype(np.float64) for column in _PRODUCT_SIDES)
    few = (graph.kind == OperatorKind.GEMM) & (m <= kernels.rows) & (graph.weight_bytes > 0)
    widened = graph.weight_bytes < n * k * DTYPE_BYTES[graph.dtype]
    compute_s = np.where(widened, n * k * kernels.weight_s, 0.0)
    memory_s = table.bytes * np.where(widened, kernels.byte_s, kernels.plain_byte_s)
    return replace(
        table,
        time_s=np.where(few, memory_s + compute_s, table.time_s),
        compute_s=np.where(few, compute_s, table.compute_s),
        memory_s=np.where(few, memory_s, table.memory_s),
    )
