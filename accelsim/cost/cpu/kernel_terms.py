"""The physical quantities a kernel's time is made of.

A kernel's time is modelled as a sum of terms, each a quantity times a coefficient with a unit: a
start (s), work (s per FLOP), bytes read, written and packed (s per byte), bytes beyond the
second-level cache, beyond the last-level cache, of weights that are in no cache, of fresh pages, of
images that fill no whole vectors, two counts of the kernel's own loops, and what is added where
other operators have evicted the inner caches. With non-negative
coefficients the sum keeps the model's laws: more work, more bytes or a larger working set never
take less time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accelsim.cost.table import Rows
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, OperatorGraph, is_kind
from accelsim.workloads.operator import ATTENTION_KINDS, CONV_KINDS, RECURRENT_KINDS, OperatorKind

_K = OperatorKind
_LINE_BYTES = 64.0
#: Channels of a block (Georganas et al., SC 2018, section II), and those of an image, which are
#: read as they are.
_BLOCK = 16.0
_IMAGE_CHANNELS = 4
#: Terms of a kernel's time, in column order, with the unit of the quantity.
TERMS = (
    "start",  # 1
    "flop",  # FLOP executed
    "read_bytes",
    "write_bytes",
    "weight_bytes",
    "cold_weight_bytes",
    "bytes_beyond_l2",
    "bytes_beyond_l3",
    "fresh_bytes",
    "loop_count",  # of its main loop: rows, outputs, lookups, steps, multiply-adds of whole tiles
    "inner_count",  # of the loop inside or beside it: taps, elements, stretches, lines
    "evicted",  # 1 where others have overwritten the inner caches
    "partial_bytes",  # of images whose channels fill no whole vectors
)
#: Kinds that take rows of tables.
LOOKUP_KINDS = frozenset({_K.EMBEDDING, _K.EMBEDDING_BAG})
_NORMS = (_K.LAYER_NORM, _K.RMS_NORM, _K.GROUP_NORM, _K.BATCH_NORM, _K.SOFTMAX)
#: Kinds that pass over their operands in order; lookups over what they write.
_STREAMING = LOOKUP_KINDS.union(
    _NORMS, (_K.ELEMENTWISE, _K.COPY, _K.REDUCTION, _K.POOLING, _K.SCATTER, _K.OPTIMIZER)
)
WORK_TERMS = np.array([term in {"flop", "loop_count", "inner_count"} for term in TERMS])
MEMORY_TERMS = np.array([term.endswith(("bytes", "_l2", "_l3")) for term in TERMS])


def share_beyond(size_bytes: FloatArray | float, capacity_bytes: float) -> FloatArray:
    """Share of a working set that a cache does not serve: 0 at half its capacity, 1 at twice,
    linear in the log.

    Estimate: the width of the rise rests on no publication.
    """
    position = np.log2(np.maximum(size_bytes, 1.0) / capacity_bytes)
    return np.clip((position + 1.0) / 2.0, 0.0, 1.0)


@frozen
class Context:
    """Where and how rows run.

    Attributes:
        l1_bytes: First-level data cache of one core.
        l2_bytes: Second-level cache of one core.
        l3_bytes: Last-level cache.
        reuse_bytes: Bytes touched between two uses of a row's weights, shape (n,) or a scalar: 0
            where it runs again and again, infinite where they always come from main memory.
        is_training: Whether the graph has backward rows: norms then keep statistics, recurrent
            layers their gates.
        page_fault_bytes: Outputs above this size are always fresh memory.
        fresh_bytes: Fresh memory of each row where it is known, shape (n,); it replaces that rule.
        memory_bytes: Bytes beside weights that each row reads or writes and that come from main
            memory, shape (n,) or a scalar: a cache of keys and values, what was written long
            before, buffers used last long before.
        evicted: How far other operators overwrite the inner caches between two runs of a row, shape
            (n,) or a scalar: 0 for the same operator again and again, 1 for models that exceed
            those caches.
    """

    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    reuse_bytes: FloatArray | float
    is_training: bool
    page_fault_bytes: float
    fresh_bytes: FloatArray | None = None
    evicted: FloatArray | float = 0.0
    memory_bytes: FloatArray | float = 0.0

    def cold(self, count: int) -> FloatArray:
        """Share of each row's weights that come from main memory, shape (count,)."""
        reuse = np.broadcast_to(np.asarray(self.reuse_bytes, dtype=np.float64), (count,))
        return share_beyond(np.minimum(reuse, 1e18), self.l3_bytes)


def kernel_terms(graph: OperatorGraph, context: Context) -> FloatArray:
    """Quantities of each row's terms, shape (n, len(TERMS)).

    Estimate: terms add up, where a roofline (Williams et al., CACM 52(4), 2009) takes the longest.

    Args:
        graph: Operators, n rows.
        context: Caches and state of memory.
    """
    moved = graph.read_bytes + graph.write_bytes
    cold = context.cold(len(graph))
    cached = graph.weight_bytes * (1.0 - cold)
    working_set_bytes = moved + cached
    beyond_l2 = share_beyond(working_set_bytes, context.l2_bytes)
    reused_beyond_l2 = share_beyond(np.asarray(context.reuse_bytes), context.l2_bytes)
    weights_beyond_l2 = np.maximum(beyond_l2, reused_beyond_l2)
    beyond_l3 = working_set_bytes * share_beyond(working_set_bytes, context.l3_bytes)
    from_memory = np.broadcast_to(np.asarray(context.memory_bytes, dtype=np.float64), moved.shape)
    # whose own long rows tell the cost of a byte of main memory
    streams = is_kind(graph.kind, _STREAMING)
    counts = np.zeros((len(graph), 2))
    partial = np.zeros(len(graph))
    flop = graph.flop.copy()
    for kind, index in graph.rows_by_kind():
        rows = Rows(graph, index, kind)
        if kind in _COUNTS:
            for place, column in enumerate(_COUNTS[kind](rows)):
                counts[index, place] = column
        if kind in ATTENTION_KINDS:
            flop[index] *= _visible_fraction(rows)
        elif kind in _BLOCKED:
            partial[index] = _partial_bytes(rows)
    evicted = np.broadcast_to(np.asarray(context.evicted, dtype=np.float64), moved.shape)
    columns = [
        np.ones(len(graph)),
        flop,
        graph.read_bytes,
        graph.write_bytes,
        graph.weight_bytes,
        graph.weight_bytes * cold + np.where(streams, 0.0, from_memory),
        moved * beyond_l2 + cached * weights_beyond_l2,
        np.where(streams, np.maximum(beyond_l3, np.minimum(from_memory, moved)), beyond_l3),
        _fresh_bytes(graph, context),
        counts,
        evicted,
        partial,
    ]
    return np.column_stack(columns)


def _fresh_bytes(graph: OperatorGraph, context: Context) -> FloatArray:
    if context.fresh_bytes is not None:
        return context.fresh_bytes
    in_place = graph.kind == _K.OPTIMIZER
    always = (graph.write_bytes > context.page_fault_bytes) & ~in_place
    return np.where(always, graph.write_bytes, 0.0)


_BLOCKED = (_K.CONV, _K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT)


def _partial_bytes(rows: Rows) -> FloatArray:
    """Bytes of a convolution's images whose channels fill no whole vectors of 16, shape (k,):
    copied into blocks one by one (Georganas et al., SC 2018, section II).

    The few channels of a first image are read as they are. Gradients of weights are counted for
    depthwise convolutions alone.
    """
    copied = np.zeros(len(rows))
    for end, few in (("in", _IMAGE_CHANNELS), ("out", 0)):
        channels = rows[f"channels_{end}"]
        pixels = rows[f"{end}_d"] * rows[f"{end}_h"] * rows[f"{end}_w"]
        copied += channels * pixels * ((channels % _BLOCK > 0) & (channels > few))
    if rows.kind == _K.CONV_BACKWARD_WEIGHT:
        copied = np.where((rows["groups"] > 1) & (rows["kernel_w"] <= 3), copied, 0.0)
    return copied * rows["batch"] * rows.element_bytes


def _visible_fraction(rows: Rows) -> FloatArray:
    """Share of query-key pairs that a causal kernel computes: blocks above the diagonal are skipped
    (Dao, FlashAttention-2, arXiv:2307.08691); those on it count by half.
    """
    return np.where((rows["causal"] > 0) & (rows["q_len"] > 1), 0.5, 1.0)


# -- counts of a kernel's main loop and of the inner one

_Counts = tuple[FloatArray, FloatArray | float]


def _product_counts(rows: Rows) -> _Counts:
    """Products with edges filled to a 6 x 16 and to a 16 x 16 block (of oneDNN 3.12's AVX-512
    kernels).

    Blocks in registers: Goto and van de Geijn, ACM TOMS 34(3), 2008.
    """
    batch, m, n, k = (np.maximum(rows[name], 1.0) for name in ("batch", "m", "n", "k"))
    wide = np.ceil(n / _BLOCK) * _BLOCK * k
    return 6.0 * batch * np.ceil(m / 6) * wide, batch * np.ceil(m / _BLOCK) * _BLOCK * wide


def _conv_counts(rows: Rows) -> _Counts:
    """Work with channels filled to 16, the lanes of its vectors (Georganas et al., SC 2018, section
    II), and output lines times taps.

    The few channels of an image are read as they are, forward up to 15 (oneDNN
    jit_avx512_common_conv_kernel.cpp, init_conf).
    """
    volume = rows["kernel_d"] * rows["kernel_h"] * rows["kernel_w"]
    end = "in" if rows.kind == _K.CONV_TRANSPOSE else "out"
    images, groups = rows["batch"], np.maximum(rows["groups"], 1.0)
    pixels = rows[f"{end}_d"] * rows[f"{end}_h"] * rows[f"{end}_w"]
    inside, outside = (
        np.ceil(rows[name] / groups / _BLOCK) * _BLOCK for name in ("channels_in", "channels_out")
    )
    few = _BLOCK - 1 if rows.kind == _K.CONV else _IMAGE_CHANNELS
    as_is = (rows["channels_in"] <= few) & (groups == 1)
    inside = np.where(as_is, rows["channels_in"], inside)
    blocks = np.ceil(rows["channels_out"] / _BLOCK)
    lines = images * rows["out_d"] * rows["out_h"] * blocks * volume
    return groups * images * pixels * volume * inside * outside, lines


def _attention_counts(rows: Rows) -> _Counts:
    """Scores and heads.

    One pass over the scores of each head: Dao et al., FlashAttention, arXiv:2205.14135.
    """
    heads = rows["batch"] * rows["heads"]
    return heads * rows["q_len"] * rows["kv_len"] * _visible_fraction(rows), heads


def _stretch_counts(rows: Rows) -> _Counts:
    """Elements, and stretches after the first (ATen/TensorIterator.cpp, coalesce_dimensions)."""
    return rows["elements"], np.maximum(rows["runs"], 1.0) - 1.0


def _row_counts(rows: Rows) -> _Counts:
    """Rows and elements."""
    return rows["rows"], rows["rows"] * rows["columns"]


def _pooling_counts(rows: Rows) -> _Counts:
    """Outputs and taps."""
    outputs = rows["batch"] * rows["channels"] * rows["out_pixels"]
    return outputs, outputs * np.maximum(rows["kernel_volume"], 1.0)


def _lookup_counts(rows: Rows) -> _Counts:
    """Lookups, and cache lines that they take.

    Estimate: rows begin where lines do.
    """
    lines = np.ceil(rows["width"] * rows.element_bytes / _LINE_BYTES)
    return rows["lookups"], rows["lookups"] * lines


def _recurrent_counts(rows: Rows) -> _Counts:
    """Steps of both directions, and gate elements.

    Cells of Hochreiter and Schmidhuber, Neural Computation 9(8), 1997, one step after the other.
    """
    steps = rows["steps"] * np.maximum(rows["directions"], 1.0)
    return steps, steps * rows["batch"] * rows["hidden_size"]


_COUNTS: dict[OperatorKind, Callable[[Rows], _Counts]] = {
    _K.BATCH_NORM: lambda rows: (rows["columns"], rows["rows"] * rows["columns"]),
    _K.OPTIMIZER: lambda rows: (rows["tensors"], rows["parameters"]),
    _K.MOE_ROUTING: lambda rows: (rows["tokens"], rows["tokens"] * rows["experts"]),
    _K.POOLING: _pooling_counts,
    **dict.fromkeys((_K.ELEMENTWISE, _K.COPY), _stretch_counts),
    **dict.fromkeys((_K.GEMM, _K.BATCHED_GEMM), _product_counts),
    **dict.fromkeys((_K.EMBEDDING, _K.EMBEDDING_BAG, _K.SCATTER), _lookup_counts),
    **dict.fromkeys(RECURRENT_KINDS, _recurrent_counts),
    **dict.fromkeys(CONV_KINDS, _conv_counts),
    **dict.fromkeys(ATTENTION_KINDS, _attention_counts),
    **dict.fromkeys(
        (_K.LAYER_NORM, _K.RMS_NORM, _K.GROUP_NORM, _K.SOFTMAX, _K.REDUCTION), _row_counts
    ),
}
