"""Operator graphs of matrix and vector operators straight from table columns, without a row-by-row
builder: FLOP with a multiply-add as 2, each operand moved once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.scoreboard.columns import FLOP_PER_ELEMENT, TWO_INPUTS, graph_of_columns
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
_VECTOR_KINDS = {"softmax": _K.SOFTMAX, "ln": _K.LAYER_NORM}
_GATES = {_K.RNN: 1.0, _K.LSTM: 4.0, _K.GRU: 3.0}


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
