"""Which library kernel runs each row of a graph, and the physical quantities its time is made of.

A kernel's time is modelled as a sum of terms, each a physical quantity times a coefficient with a unit: a start (s), work (s
per FLOP), bytes packed, read and written (s per byte), bytes beyond the second-level cache, beyond the last-level cache, of
weights that are in no cache, of fresh pages, and up to three counts of the kernel's own loops (rows, taps, steps). With
non-negative coefficients the sum keeps the model's laws: more work, more bytes or a larger working set never take less time.
The names of kernels follow the framework's operators as captures name them, because two operators of one kind (a copy that
transposes and one that does not) are different code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.dtype import DTYPE_BYTES, Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, OperatorKind, Phase

__all__ = ["MEMORY_TERMS", "TERMS", "WORK_TERMS", "Context", "kernel_coordinates", "kernel_names", "kernel_terms"]

_K = OperatorKind
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
    "first_count",
    "second_count",
    "third_count",
)
WORK_TERMS = np.array([term in {"flop", "first_count", "second_count", "third_count"} for term in TERMS])
MEMORY_TERMS = np.array([term.endswith(("bytes", "_l2", "_l3")) for term in TERMS])

_ALIASES = {
    "adam": "adamw",
    "lamb": "adamw",
    "momentum": "sgd",
    "_to_copy": "to_bf16",
    "select_backward": "copy",
    "slice_backward": "copy",
    "relu6": "hardtanh",
    "threshold": "relu",
    "_safe_softmax": "_softmax",
    "fill": "zeros",
    "full": "zeros",
    "ones": "zeros",
    "expand": "clone",
    "contiguous": "clone",
    "stack": "cat",
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d",
    "square": "pow",
    "addcmul": "mul",
    "where": "add",
    "masked_fill": "add",
    "erf": "gelu",
    "cos": "exp",
    "sin": "exp",
    "log": "exp",
    "hardtanh_backward": "threshold_backward",
    "hardswish_backward": "threshold_backward",
    "leaky_relu_backward": "threshold_backward",
    "amax": "sum",
    "max": "sum",
    "mse_loss": "mean",
    "log_sigmoid_forward": "gelu",
}
#: Kernels known by the operator's own name, whatever its dimensions.
_NAMED = frozenset(
    "relu gelu silu sigmoid tanh hardswish hardsigmoid hardtanh leaky_relu neg rsqrt pow exp zeros native_dropout sub mul div"
    " threshold_backward gelu_backward silu_backward sigmoid_backward tanh_backward to_bf16 native_dropout_backward clone cat"
    " copy topk index gather max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d max_pool2d_with_indices_backward"
    " adamw sgd _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data mean".split()
)
_BY_KIND = {
    _K.BATCHED_GEMM: "bmm",
    _K.CONV_TRANSPOSE: "conv_transpose",
    _K.ATTENTION_BACKWARD: "attention_backward",
    _K.RMS_NORM: "rms_norm",
    _K.GROUP_NORM: "group_norm",
    _K.EMBEDDING: "embedding",
    _K.EMBEDDING_BAG: "embedding_bag",
    _K.SCATTER: "embedding_backward",
    _K.MOE_ROUTING: "topk",
    _K.OPTIMIZER: "adamw",
    _K.COPY: "copy",
    _K.SOFTMAX: "_softmax",
    _K.POOLING: "avg_pool2d",
    _K.ELEMENTWISE: "mul_scalar",
    _K.GRU: "gru",
}
_CONVS = frozenset({_K.CONV, _K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT})
#: Rows up to which a product has a kernel of its own.
THIN_ROWS = 16


@dataclass(frozen=True, slots=True)
class Context:
    """Where and how rows run.

    Attributes:
        l2_bytes: Second-level cache of one core.
        l3_bytes: Last-level cache.
        cold_fraction: Share of each row's weights that come from main memory, shape (n,) or a scalar, 0 to 1.
        is_training: Whether the graph has backward rows: norms then keep statistics, recurrent layers their gates.
        page_fault_bytes: Outputs above this size are always fresh memory.
        fresh_fraction: Share of smaller outputs that are fresh memory, 0 to 1.
    """

    l2_bytes: float
    l3_bytes: float
    cold_fraction: FloatArray | float
    is_training: bool
    page_fault_bytes: float
    fresh_fraction: float = 0.0


def _plain(name: str) -> str:
    stripped = name.rsplit(".", 1)[0] if name.endswith((".layer0",)) else name
    stripped = stripped.rstrip("_")
    return _ALIASES.get(stripped, stripped)


def kernel_names(graph: OperatorGraph, *, is_training: bool, threads: int = 1) -> NDArray[np.str_]:
    """Kernel of each row, shape (n,); empty where none is known.

    Args:
        graph: Operators, n rows.
        is_training: See `Context`.
        threads: Threads of the framework, on which its choice of a convolution library depends.
    """
    names = np.zeros(len(graph), dtype="<U40")
    backward = graph.phase == int(Phase.BACKWARD)
    for kind in (OperatorKind(code) for code in np.unique(graph.kind).tolist()):
        rows = np.flatnonzero(graph.kind == int(kind))
        names[rows] = (
            _conv_names(graph, kind, rows, threads)
            if kind in _CONVS
            else _names_of(graph, kind, rows, backward[rows], is_training)
        )
    return names


def _names_of(
    graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64], backward: NDArray[np.bool_], is_training: bool
) -> NDArray[np.str_]:
    if kind == _K.GEMM:
        m, weights = graph.dimension("m", rows, kind), graph.weight_bytes[rows] > 0
        forward = np.where(weights, np.where(m <= THIN_ROWS, "linear_thin", "linear"), "mm_nn")
        return np.where(backward, np.where(weights, "mm_nn", "mm_tn"), forward)
    if kind == _K.ATTENTION:
        return np.where(graph.dimension("q_len", rows, kind) <= 4, "attention_decode", "attention")
    if kind == _K.LAYER_NORM:
        return np.where(backward, "layer_norm_backward", "layer_norm")
    if kind == _K.BATCH_NORM:
        forward = "batch_norm_train" if is_training else "batch_norm"
        return np.where(backward, "batch_norm_backward", forward)
    if kind == _K.LSTM:
        return np.where(backward, "lstm_backward", "lstm_train" if is_training else "lstm")
    if kind == _K.REDUCTION:
        plain = np.array([_plain(graph.name[row]) for row in rows.tolist()])
        inner = np.where(plain == "mean", "mean", "sum")
        return np.where(backward, "sum_rows", inner)
    default = _BY_KIND.get(kind, "")
    found = [name if (name := _plain(graph.name[row])) in _NAMED else default for row in rows.tolist()]
    return _binary_names(graph, rows, np.array(found, dtype="<U40")) if kind == _K.ELEMENTWISE else np.array(found)


def _binary_names(graph: OperatorGraph, rows: NDArray[np.int64], names: NDArray[np.str_]) -> NDArray[np.str_]:
    """Elementwise rows by what they read: two full operands, one and a short one, one."""
    plain = np.array([_plain(graph.name[row]) for row in rows.tolist()], dtype="<U40")
    elements, width = graph.dimension("elements", rows, _K.ELEMENTWISE), DTYPE_BYTES[graph.dtype[rows]]
    operands = (graph.read_bytes[rows] + graph.weight_bytes[rows]) / np.maximum(elements * width, 1.0)
    adding = np.isin(plain, ["add", "mul", "sub", "div"]) | ~np.isin(plain, list(_NAMED))
    two = np.where(np.isin(plain, ["mul", "sub", "div"]), plain, "add")
    inputs = graph.dimension("inputs", rows, _K.ELEMENTWISE)
    one = np.where(inputs >= 2, "add_bias", "mul_scalar")
    picked = np.where(operands > 1.5, two, np.where(operands > 0, one, "zeros"))
    return np.where(adding, picked, names)


def _conv_names(graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64], threads: int) -> NDArray[np.str_]:
    """Convolutions by shape and by library: in fp32 the framework multiplies small ones itself (ATen Convolution.cpp)."""

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    height, width, batch = size("kernel_h"), size("kernel_w"), size("batch")
    pointwise = size("kernel_d") * height * width == 1
    depthwise = (size("groups") > 1) & (size("groups") >= size("channels_in"))
    special = (size("stride") > 1) | (size("dilation") > 1) | (batch >= 16) | ~pointwise | (threads > 1)
    pixels = size("in_d") * size("in_h") * size("in_w")
    large = (size("groups") > 1) | ((height > 3) & (width > 3)) | (batch > 1) | (batch * size("channels_in") * pixels > 20480)
    library = (special & large) | (graph.dtype[rows] != int(Dtype.FP32))
    if kind != _K.CONV:
        base = "conv_grad_input" if kind == _K.CONV_BACKWARD_DATA else "conv_grad_weight"
        return np.where(depthwise, f"{base}_depthwise", np.where(library, base, f"{base}_native"))
    flat = (size("in_h") == 1) & (size("in_w") > 1) & (height == 1)
    base = np.where(pointwise, "conv_1x1", np.where(flat, "conv_1d", "conv"))
    more = np.where(library, base, np.char.add(base, "_native"))
    return np.where(depthwise, "conv_depthwise", np.where(size("groups") > 1, "conv_grouped", more))


def _beyond(size_bytes: FloatArray, capacity_bytes: float) -> FloatArray:
    """Share of a working set that a cache of this capacity does not serve: 0 at half of it, 1 at twice, linear in the log."""
    position = np.log2(np.maximum(size_bytes, 1.0) / capacity_bytes)
    share: FloatArray = np.clip((position + 1.0) / 2.0, 0.0, 1.0)
    return share


def kernel_terms(graph: OperatorGraph, context: Context) -> FloatArray:
    """Quantities of each row's terms, shape (n, len(TERMS)).

    Args:
        graph: Operators, n rows.
        context: Caches and state of memory.
    """
    moved = graph.read_bytes + graph.write_bytes
    cold = np.broadcast_to(np.asarray(context.cold_fraction, dtype=np.float64), moved.shape)
    held = moved + graph.weight_bytes * (1.0 - cold)
    always = graph.write_bytes > context.page_fault_bytes
    fresh = np.where(always, graph.write_bytes, graph.write_bytes * context.fresh_fraction)
    counts = np.zeros((len(graph), 3))
    flop = graph.flop.copy()
    for kind in (OperatorKind(code) for code in np.unique(graph.kind).tolist()):
        rows = np.flatnonzero(graph.kind == int(kind))
        counts[rows] = _counts(graph, kind, rows, context)
        if kind in {_K.ATTENTION, _K.ATTENTION_BACKWARD}:
            flop[rows] *= _visible_fraction(graph, kind, rows)
    columns = [
        np.ones(len(graph)),
        flop,
        graph.read_bytes,
        graph.write_bytes,
        graph.weight_bytes,
        graph.weight_bytes * cold,
        held * _beyond(held, context.l2_bytes),
        held * _beyond(held, context.l3_bytes),
        fresh,
    ]
    terms: FloatArray = np.column_stack([*columns, counts])
    return terms


def _query_block(q_len: FloatArray) -> FloatArray:
    """Queries the framework's attention kernel takes at a time (ATen FlashAttentionKernel.cpp)."""
    block: FloatArray = np.where(q_len >= 768, 256.0, np.where(q_len >= 192, 64.0, 32.0))
    return block


def _visible_fraction(graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64]) -> FloatArray:
    """Share of query-key pairs a blocked causal kernel computes."""
    causal, q_len = graph.dimension("causal", rows, kind), graph.dimension("q_len", rows, kind)
    share: FloatArray = np.where(
        (causal > 0) & (q_len > 1), np.minimum(1.0, 0.5 + 0.5 * _query_block(q_len) / np.maximum(q_len, 1.0)), 1.0
    )
    return share


def _counts(graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64], context: Context) -> FloatArray:
    """The three loop counts of a kind, shape (k, 3)."""

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    none = np.zeros(len(rows))
    names = DIMENSIONS[kind]
    if kind in {_K.GEMM, _K.BATCHED_GEMM}:  # products with edges filled up to the micro-kernel's block
        batch, m, n, k = (np.maximum(size(x), 1.0) for x in ("batch", "m", "n", "k"))
        blocks = batch * np.ceil(m / 6) * np.ceil(n / 16)
        wide = batch * np.ceil(m / 16) * 16 * np.ceil(n / 64) * 64
        return np.column_stack([96.0 * blocks * k, wide * k, blocks])
    if "kernel_w" in names:
        volume = size("kernel_d") * size("kernel_h") * size("kernel_w")
        groups = np.maximum(size("groups"), 1.0)
        channels_in, channels_out = size("channels_in") / groups, size("channels_out") / groups
        pixels = size("batch") * size("out_d") * size("out_h") * size("out_w")
        filled = groups * pixels * volume * np.ceil(channels_in / 16) * 16 * np.ceil(channels_out / 16) * 16
        lines = size("batch") * size("out_d") * size("out_h") * np.ceil(size("channels_out") / 16)
        return np.column_stack([filled, lines * volume, groups * size("batch")])
    if kind in {_K.ATTENTION, _K.ATTENTION_BACKWARD}:
        heads = size("batch") * size("heads")
        pairs = heads * size("q_len") * size("kv_len") * _visible_fraction(graph, kind, rows)
        return np.column_stack([pairs, heads, heads * np.ceil(size("q_len") / _query_block(size("q_len"))) * np.ceil(size("kv_len") / 512)])
    if kind == _K.BATCH_NORM:
        return np.column_stack([size("columns"), size("rows") * size("columns"), none])
    if names == ("rows", "columns"):
        columns, lanes = size("columns"), 64.0 / DTYPE_BYTES[graph.dtype[rows]]
        return np.column_stack([size("rows"), size("rows") * np.ceil(columns / lanes), size("rows") * (columns % lanes)])
    if kind == _K.POOLING:
        outputs = size("batch") * size("channels") * size("out_pixels")
        return np.column_stack([outputs, outputs * size("kernel_volume"), size("batch") * size("channels")])
    if kind in {_K.EMBEDDING, _K.EMBEDDING_BAG, _K.SCATTER}:
        row_bytes = size("width") * DTYPE_BYTES[graph.dtype[rows]]
        lines = size("lookups") * np.ceil(row_bytes / 64.0)
        table = size("table_rows") * row_bytes
        return np.column_stack([size("lookups"), lines * _beyond(table, context.l2_bytes), lines * _beyond(table, context.l3_bytes)])
    if kind in {_K.LSTM, _K.GRU, _K.RNN}:
        steps = size("steps") * np.maximum(size("directions"), 1.0)
        own = 4.0 * size("hidden_size") ** 2 * DTYPE_BYTES[graph.dtype[rows]]
        return np.column_stack([steps, steps * size("batch") * size("hidden_size"), steps * own])
    if kind == _K.OPTIMIZER:
        return np.column_stack([size("tensors"), size("parameters"), none])
    if kind == _K.MOE_ROUTING:
        return np.column_stack([size("tokens"), size("tokens") * size("experts"), none])
    return np.column_stack([size("elements") if "elements" in names else none, none, none])


_COORDINATES = {
    _K.GEMM: ("m", "n", "k"),
    _K.BATCHED_GEMM: ("batch", "m", "n", "k"),
    _K.ATTENTION: ("batch", "heads", "q_len", "kv_len", "head_dim", "causal"),
    _K.ATTENTION_BACKWARD: ("batch", "heads", "q_len", "head_dim", "causal"),
    _K.ELEMENTWISE: ("elements",),
    _K.LSTM: ("batch", "steps", "input_size", "hidden_size"),
    _K.GRU: ("batch", "steps", "input_size", "hidden_size"),
    _K.OPTIMIZER: ("parameters", "tensors"),
}
#: Dimensions that kernels handle in whole vectors or blocks.
_ALIGNED = frozenset({"n", "k", "channels_in", "channels_out", "columns", "head_dim", "hidden_size", "width"})
_CONV_COORDINATES = ("batch", "channels_in", "channels_out", "out_h", "kernel_w", "stride", "groups")


def kernel_coordinates(graph: OperatorGraph, context: Context) -> list[FloatArray]:
    """Place of each row in its kernel's shape space: base-2 logarithms of its dimensions, then its cold share.

    Args:
        graph: Operators, n rows.
        context: As for `kernel_terms`.

    Returns:
        One vector per row; rows of one kernel have the same length.
    """
    cold = np.broadcast_to(np.asarray(context.cold_fraction, dtype=np.float64), (len(graph),))
    cold = np.where(graph.weight_bytes > 0, cold, 0.0)
    places: list[FloatArray] = [np.zeros(0)] * len(graph)
    for kind in (OperatorKind(code) for code in np.unique(graph.kind).tolist()):
        rows = np.flatnonzero(graph.kind == int(kind))
        names = DIMENSIONS[kind]
        chosen = _CONV_COORDINATES if "kernel_w" in names else _COORDINATES.get(kind, names)
        sizes = [np.log2(np.maximum(graph.dimension(name, rows, kind), 0.5) * 1.0) for name in chosen]
        filled = [0.5 * (graph.dimension(name, rows, kind) % 16 == 0) for name in chosen if name in _ALIGNED]
        block = np.column_stack([*sizes, *filled, 2.0 * cold[rows]])
        for row, place in zip(rows.tolist(), block, strict=True):
            places[row] = place
    return places
