"""Operator graphs straight from table columns, without a row-by-row builder.

Each function turns dimension columns into the columns of an `OperatorGraph`: FLOP with a
multiply-add as 2, each operand moved once. Rows are unconnected: a table's rows are measurements
apart from each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accelsim.confidence.residual import run_log_sigma
from accelsim.cost.contraction import visible_pairs
from accelsim.cost.roofline import Roofline
from accelsim.cost.table import CostTable
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.errors import UnsupportedOperatorError
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import ATTENTION_KINDS, MAX_DIMENSIONS, OperatorKind, Phase

_K = OperatorKind
#: FLOP per element of operators on vectors: an exponential or logarithm counts as its polynomial.
FLOP_PER_ELEMENT = {"pow": 20, "powu": 20, "gelu": 8, "tanh": 6, "softmax": 6, "ln": 8}
TWO_INPUTS = ("add", "mul", "div", "pow")
#: Elementwise operators of the measured sets.
ELEMENTWISE = (*TWO_INPUTS, "addu", "mulu", "divu", "powu", "relu", "gelu", "tanh")
_VECTOR_KINDS = {"softmax": _K.SOFTMAX, "ln": _K.LAYER_NORM}
_GATES = {_K.RNN: 1.0, _K.LSTM: 4.0, _K.GRU: 3.0}


def graph_of_columns(
    kind: ArrayLike,
    dims: Sequence[ArrayLike],
    dtype: Dtype,
    *,
    flop: ArrayLike,
    read: ArrayLike,
    write: ArrayLike,
    weight: ArrayLike = 0.0,
) -> OperatorGraph:
    """A graph of unconnected rows; scalars stand for whole columns."""
    count = np.broadcast(*map(np.asarray, dims), flop, read, write).size

    def column(values: ArrayLike) -> FloatArray:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)).copy()

    sizes = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    for index, values in enumerate(dims):
        sizes[:, index] = values
    name = ("",) * count
    return OperatorGraph(
        kind=np.broadcast_to(np.asarray(kind, dtype=np.int16), (count,)).copy(),
        dims=sizes,
        dtype=np.full(count, int(dtype), dtype=np.int8),
        phase=np.full(count, Phase.FORWARD, dtype=np.int8),
        flop=column(flop),
        read_bytes=column(read),
        write_bytes=column(write),
        weight_bytes=column(weight),
        saved_bytes=np.zeros(count),
        name=name,
        path=name,
        dependency_offset=np.zeros(count + 1, dtype=np.int64),
        dependency=np.zeros(0, dtype=np.int64),
    )


def gemm_graph(
    batch: FloatArray,
    m: FloatArray,
    n: FloatArray,
    k: FloatArray,
    dtype: Dtype,
    *,
    batched: BoolArray,
    weight: Dtype | None = None,
    output: Dtype | None = None,
) -> OperatorGraph:
    """Products with output m x n and contraction k; a batched one multiplies two activations, a
    plain one has weights.

    Args:
        batch: Independent products, shape (r,).
        m: Rows of the output.
        n: Columns of the output.
        k: Contraction.
        dtype: Format of the operands.
        batched: Which rows are products of activations.
        weight: Format weights are stored in; that of the operands where None.
        output: Format of the result; that of the operands where None.
    """
    width = DTYPE_BYTES[dtype]
    out = DTYPE_BYTES[dtype if output is None else output]
    right = DTYPE_BYTES[dtype if weight is None else weight] * batch * k * n
    return graph_of_columns(
        np.where(batched, _K.BATCHED_GEMM, _K.GEMM),
        (batch, m, n, k),
        dtype,
        flop=2.0 * batch * m * n * k,
        read=width * batch * m * k + np.where(batched, right, 0.0),
        weight=np.where(batched, 0.0, right),
        write=out * batch * m * n,
    )


def vector_graph(
    op: NDArray[Any], rows: FloatArray, columns: FloatArray, dtype: Dtype = Dtype.FP32
) -> OperatorGraph:
    """Elementwise operators, softmax ("softmax") and layer normalisation ("ln") over rows x columns
    elements.

    add, mul, div and pow take two inputs; their forms ending in u take a tensor and a number.
    """
    elements = rows * columns
    width = DTYPE_BYTES[dtype]
    row_wise = np.isin(op, list(_VECTOR_KINDS))
    inputs = np.where(np.isin(op, TWO_INPUTS), 2.0, 1.0)
    names, inverse = np.unique(op, return_inverse=True)
    each = [str(name) for name in names]
    per_element = np.array([FLOP_PER_ELEMENT.get(name, 1.0) for name in each])[inverse]
    kinds = np.array([_VECTOR_KINDS.get(name, _K.ELEMENTWISE) for name in each])[inverse]
    dims = (
        np.where(row_wise, rows, elements),
        np.where(row_wise, columns, inputs),
        np.where(row_wise, 0.0, per_element),
    )
    flop = per_element * elements
    return graph_of_columns(
        kinds,
        dims,
        dtype,
        flop=flop,
        read=width * elements * inputs,
        write=width * elements,
    )


class Window(NamedTuple):
    """Window of convolutions; pairs are (height, width).

    Attributes:
        kernel: Its sides.
        padding: Rows and columns of zeros on each side of the input.
        stride: The same both ways.
    """

    kernel: tuple[FloatArray, FloatArray]
    padding: tuple[FloatArray, FloatArray]
    stride: FloatArray


def conv_graph(
    kind: OperatorKind,
    batch: FloatArray,
    channels: tuple[FloatArray, FloatArray],
    size: tuple[FloatArray, FloatArray],
    window: Window,
    dtype: Dtype,
) -> OperatorGraph:
    """2-D convolutions, forward or a gradient, without groups; pairs are (in, out) channels and
    (height, width).

    Args:
        kind: CONV, CONV_BACKWARD_DATA or CONV_BACKWARD_WEIGHT; gradients keep the forward pass's
            dimensions.
        batch: Images.
        channels: Input and output channels.
        size: Input height and width.
        window: Window.
        dtype: Format.
    """
    ones = np.ones_like(batch)
    width = DTYPE_BYTES[dtype]
    kernel, padding, stride = window
    out = [
        np.floor((edge + 2 * pad - side) / stride) + 1
        for edge, pad, side in zip(size, padding, kernel, strict=True)
    ]
    inputs = width * batch * channels[0] * size[0] * size[1]
    outputs = width * batch * channels[1] * out[0] * out[1]
    weights = width * channels[0] * channels[1] * kernel[0] * kernel[1]
    read, weight, write = {
        _K.CONV: (inputs, weights, outputs),
        _K.CONV_BACKWARD_DATA: (outputs, weights, inputs),
        _K.CONV_BACKWARD_WEIGHT: (inputs + outputs, np.zeros_like(inputs), weights),
    }[kind]
    dims = (batch, *channels, ones, ones, *size, ones, *out, ones, *kernel, stride, ones)
    flop = 2.0 * batch * out[0] * out[1] * channels[0] * channels[1] * kernel[0] * kernel[1]
    return graph_of_columns(kind, dims, dtype, flop=flop, read=read, weight=weight, write=write)


def recurrent_graph(
    kind: OperatorKind, batch: FloatArray, steps: FloatArray, hidden: FloatArray, dtype: Dtype
) -> OperatorGraph:
    """One recurrent layer whose input is as wide as its state, forward."""
    width = DTYPE_BYTES[dtype]
    gates = _GATES[kind]
    weights = gates * 2.0 * hidden**2
    return graph_of_columns(
        kind,
        (batch, steps, hidden, hidden, np.ones_like(batch)),
        dtype,
        flop=2.0 * batch * steps * weights,
        read=width * batch * steps * hidden,
        weight=width * weights,
        write=width * batch * steps * hidden,
    )


def attention_graph(
    batch: FloatArray,
    heads: tuple[FloatArray, FloatArray],
    lengths: tuple[FloatArray, FloatArray],
    head_dim: FloatArray,
    window: FloatArray,
    dtype: Dtype,
    cache: Dtype,
) -> OperatorGraph:
    """Causal attention as one operator; pairs are (query, key-value) heads and (query, key)
    lengths.

    Args:
        batch: Sequences.
        heads: Query heads and key-value heads.
        lengths: New tokens and tokens in the cache, the new ones included.
        head_dim: Width of a head.
        window: Keys a query sees at most; 0 sees all.
        dtype: Format of the arithmetic.
        cache: Format of stored keys and values.
    """
    query, keys = lengths
    width = DTYPE_BYTES[dtype]
    stored = DTYPE_BYTES[cache]
    seen = np.where(window > 0, np.minimum(keys, query + window), keys)
    tensor = width * batch * heads[0] * query * head_dim
    zero = np.zeros_like(batch)
    return graph_of_columns(
        _K.ATTENTION,
        (batch, *heads, query, keys, head_dim, head_dim, zero + 1, window, zero),
        dtype,
        flop=4.0 * batch * heads[0] * query * keys * head_dim,
        read=tensor + 2.0 * stored * batch * heads[1] * seen * head_dim,
        write=tensor,
    )


def roofline_s(graph: OperatorGraph, device: DeviceProfile) -> FloatArray:
    """max(FLOP / peak, bytes / bandwidth) of each row, shape (n,); NaN where the device has no rate
    for a row.

    Attention counts the pairs its mask leaves, since no kernel computes the others.
    """
    line = Roofline.of(device)
    try:
        return line.time_s(graph.flop * _visible_fraction(graph), graph.bytes, graph.dtype)
    except UnsupportedOperatorError:
        return np.full(len(graph), np.nan)


def _visible_fraction(graph: OperatorGraph) -> FloatArray:
    fraction = np.ones(len(graph))
    rows = np.flatnonzero(np.isin(graph.kind, list(ATTENTION_KINDS)))
    if rows.size:
        names = ("q_len", "kv_len", "causal", "window")
        query, keys, causal, window = (graph.dimension(name, rows, _K.ATTENTION) for name in names)
        fraction[rows] = visible_pairs(query, keys, causal, window) / np.maximum(query * keys, 1.0)
    return fraction


def issued_time_s(time_s: FloatArray, dispatch_s: FloatArray) -> float:
    """End of the last row when the host issues rows one after the other and the device runs them in
    order, s.
    """
    if not len(time_s):
        return 0.0
    issued = np.cumsum(dispatch_s)
    after = np.cumsum(time_s[::-1])[::-1]  # from the start of each row to the end of the last
    return float((issued + after).max())


def correlated_log_sigma(
    costs: CostTable, graph: OperatorGraph, repeats: FloatArray | float = 1.0
) -> float:
    """Standard deviation of ln(true / predicted) of a whole run; see `run_log_sigma`."""
    return run_log_sigma(
        graph.kind, costs.time_s * repeats, costs.log_sigma, costs.shared_log_sigma
    )
