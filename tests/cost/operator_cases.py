"""Small operator graphs that the cost-model tests share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.dtype import Dtype, precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.graph import OperatorGraph, concatenate
from accelsim.workloads.operator import (
    COLLECTIVE_KINDS,
    DIMENSIONS,
    MAX_DIMENSIONS,
    OperatorKind,
    Phase,
)


def gemm(m: int, n: int, k: int, dtype: str = "fp32") -> OperatorGraph:
    builder = GraphBuilder(precision(dtype))
    builder.linear(builder.input(m, k), n, bias=False, name="projection")
    return builder.build()


def conv(
    batch: int,
    channels_in: int,
    channels_out: int,
    size: int,
    kernel: int = 3,
    groups: int = 1,
    dtype="fp32",
):
    builder = GraphBuilder(precision(dtype))
    builder.conv(builder.input(batch, channels_in, size, size), channels_out, kernel, groups=groups)
    return builder.build()


def add(elements: int, dtype: str = "fp32") -> OperatorGraph:
    builder = GraphBuilder(precision(dtype))
    x = builder.input(elements)
    builder.add(x, builder.input(elements))
    return builder.build()


def attention(
    batch: int, heads: int, q_len: int, kv_len: int, causal: bool = False, dtype="fp32"
) -> OperatorGraph:
    builder = GraphBuilder(precision(dtype))
    q = builder.input(batch, heads, q_len, 64)
    k = builder.input(batch, heads, q_len, 64)
    builder.attention(q, k, k, causal=causal, context_len=kv_len - q_len)
    return builder.build()


def lstm(batch: int, steps: int, hidden: int, dtype="fp32") -> OperatorGraph:
    builder = GraphBuilder(precision(dtype))
    builder.recurrent(builder.input(batch, steps, hidden), hidden)
    return builder.build()


def row(
    kind: OperatorKind,
    dims: tuple[int, ...],
    *,
    dtype=Dtype.FP32,
    flop=0.0,
    read=0.0,
    write=0.0,
    weights=0.0,
    phase=Phase.FORWARD,
) -> OperatorGraph:
    """One row, column by column."""
    assert len(dims) == len(DIMENSIONS[kind]) or kind in {
        OperatorKind.COPY,
        OperatorKind.ELEMENTWISE,
        OperatorKind.OPTIMIZER,
        OperatorKind.REDUCTION,
        *COLLECTIVE_KINDS,
    }  # the last are mostly 0
    padded = np.zeros((1, MAX_DIMENSIONS), dtype=np.int64)
    padded[0, : len(dims)] = dims
    return OperatorGraph(
        kind=np.array([kind], dtype=np.int16),
        dims=padded,
        dtype=np.array([dtype], dtype=np.int8),
        phase=np.array([phase], dtype=np.int8),
        flop=np.array([flop], dtype=float),
        read_bytes=np.array([read], dtype=float),
        write_bytes=np.array([write], dtype=float),
        weight_bytes=np.array([weights], dtype=float),
        saved_bytes=np.zeros(1),
        name=(kind.label,),
        path=("",),
        dependency_offset=np.zeros(2, dtype=np.int64),
        dependency=np.zeros(0, dtype=np.int64),
    )


def inference_zoo(dtype: str = "fp32", batch: int = 2) -> OperatorGraph:
    """One row or more of every forward kind."""
    b = GraphBuilder(precision(dtype))
    image = b.input(batch, 32, 28, 28)
    x = b.conv(image, 64, 3, name="conv")
    x = b.conv(x, 64, 3, groups=64, name="depthwise")
    x = b.conv(x, 64, 3, groups=4, name="grouped")
    x = b.conv(x, 32, 2, stride=2, padding=0, transposed=True, name="transposed")
    x = b.pool(b.batch_norm(x), 2)
    x = b.group_norm(x, 4)
    b.reduce(x, batch, 32)
    b.concat([x, x])
    tokens = b.input(batch, 16, 64)
    y = b.rms_norm(b.layer_norm(tokens))
    y = b.activation(b.linear(y, 128), "gelu")
    y = b.softmax(b.add(y, y))
    heads = b.input(batch, 4, 16, 32)
    b.attention(heads, heads, heads, causal=True)
    b.matmul(heads, b.view(heads, batch, 4, 32, 16))
    b.grouped_linear(b.input(32 * batch, 64), 64, groups=8, active=8)
    b.moe_routing(b.input(32 * batch, 8), 2)
    for cell in ("rnn", "lstm", "gru"):
        b.recurrent(tokens, 32, cell=cell)
    b.embedding(b.input(batch, 16), 1000, 64)
    b.embedding_bag(batch, 20, 1000, 64)
    b.trees(b.input(100 * batch, 20), 50, 6)
    return b.build()


def training_rows(dtype: Dtype = Dtype.FP32) -> OperatorGraph:
    """Rows that only training has, and transfers."""
    width = dtype.bytes
    conv_dims = (2, 32, 64, 1, 1, 28, 28, 1, 28, 28, 1, 3, 3, 1, 1)
    conv_flop, maps = 2.0 * 2 * 784 * 64 * 32 * 9, 2 * 784 * 96 * width
    kinds = OperatorKind
    parts = [
        row(
            kinds.CONV_BACKWARD_DATA,
            conv_dims,
            dtype=dtype,
            flop=conv_flop,
            read=maps,
            phase=Phase.BACKWARD,
        ),
        row(
            kinds.CONV_BACKWARD_WEIGHT,
            conv_dims,
            dtype=dtype,
            flop=conv_flop,
            read=maps,
            phase=Phase.BACKWARD,
        ),
        row(
            kinds.ATTENTION_BACKWARD,
            (2, 4, 4, 64, 64, 32, 32, 1, 0, 0),
            dtype=dtype,
            phase=Phase.BACKWARD,
            flop=5.0 * 2 * 2 * 4 * 64 * 64 * 32,
            read=2 * 4 * 64 * 32 * width * 5,
        ),
        row(
            kinds.SCATTER,
            (64, 32, 1000),
            dtype=dtype,
            read=64 * 32 * width,
            write=64 * 32 * width,
            phase=Phase.BACKWARD,
        ),
        row(
            kinds.OPTIMIZER,
            (100_000, 2, 10),
            dtype=dtype,
            flop=1e6,
            read=16e5,
            write=12e5,
            phase=Phase.OPTIMIZER,
        ),
        row(kinds.TREE_HISTOGRAM, (1000, 20, 10, 6, 256), dtype=dtype, read=2e4),
        row(kinds.HOST_TO_DEVICE, (100_000, 1), dtype=dtype, read=1e5),
    ]
    return concatenate(parts)


def emptied(graph: OperatorGraph) -> OperatorGraph:
    """The same rows with nothing to do: every size, FLOP and byte 0."""
    zero = np.zeros(len(graph))
    columns = dict.fromkeys(("flop", "read_bytes", "write_bytes", "weight_bytes"), zero)
    return replace(graph, dims=np.zeros_like(graph.dims), **columns)
