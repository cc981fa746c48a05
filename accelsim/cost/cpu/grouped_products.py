"""Grouped products and grouped convolutions on a CPU: those that the framework runs group by group,
each on its own.

Each group's rows times its matrix takes what a linear layer of as many rows does (torch 2.13, ATen
``_grouped_mm``): eight groups of 32 rows with 512 x 3584 matrices take 12.35 ms in fp32 and 3.16 in
bf16, eight linear layers 12.25 and 3.13, one batched product 12.26 and 3.02; groups of four rows in
bf16 0.104, 0.108 and 0.069 ms (EPYC 9005, one thread).

So do small batches of grouped fp32 convolutions of single taps on one thread (ATen
Convolution.cpp), with a copy of each group's image before and one of all results behind: four
images of 64 pixels with 768 and 3072 channels in four groups take 3.06 ms, four convolutions of a
quarter of the channels 2.91 and the copies 0.09 (oneDNN's grouped kernel would take 1.9).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.cpu.convolutions import runs_by_group
from accelsim.cost.cpu.kernel_terms import Context
from accelsim.cost.cpu.kind_rows import rows_of_kind
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, OperatorKind

_K = OperatorKind
#: Operators that multiply all matrices in one call of the library; every other grouped product goes
#: group by group.
_BATCHED = frozenset({"bmm", "baddbmm", "addbmm"})


_CONVS = (_K.CONV, _K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT)


def product_counts(graph: OperatorGraph, threads: int) -> FloatArray:
    """Products that each row runs one after the other, shape (n,): the groups that have rows, 1
    where it is one call.

    Of few rows each falls into any group alike.

    Args:
        graph: Operators, n rows.
        threads: Threads of the framework.
    """
    counts = np.ones(len(graph))
    rows = _grouped(graph)
    rows = rows[~graph.is_operation(_BATCHED)[rows]]
    groups, m = (
        np.maximum(graph.dimension(name, rows, _K.GROUPED_GEMM), 1.0) for name in ("groups", "m")
    )
    counts[rows] = groups * (1.0 - (1.0 - 1.0 / groups) ** m)
    for kind in _CONVS:
        images = rows_of_kind(graph, kind)
        apart = runs_by_group(images, threads)
        counts[images.index[apart]] = images["groups"][apart]
    return counts


def as_products(
    graph: OperatorGraph, context: Context, counts: FloatArray
) -> tuple[OperatorGraph, Context]:
    """The graph with one of its products, or with a batched one, in place of each grouped one, and
    its share of memory.

    Of a convolution that runs by groups it has one group's.

    Args:
        graph: Operators, n rows.
        context: Their caches and buffers.
        counts: Products of each row, shape (n,).
    """
    rows = _grouped(graph)
    single = np.flatnonzero((counts > 1.0) & (graph.kind != _K.GROUPED_GEMM))
    if not len(rows) and not len(single):
        return graph, context
    groups, m = (
        np.maximum(graph.dimension(name, rows, _K.GROUPED_GEMM), 1.0) for name in ("groups", "m")
    )
    alone = counts[rows] > 1.0
    kind, dims, weights = graph.kind.copy(), graph.dims.copy(), graph.weight_bytes.copy()
    kind[rows] = np.where(alone, _K.GEMM, _K.BATCHED_GEMM)
    dims[rows, 0] = np.where(alone, 1, groups)
    dims[rows, 1] = np.maximum(np.rint(m / np.where(alone, counts[rows], groups)), 1.0)
    weights[rows] /= np.where(alone, groups, 1.0)
    for name in (
        "channels_in",
        "channels_out",
        "groups",
    ):  # of which each group of a convolution has its part
        dims[single, DIMENSIONS[_K.CONV].index(name)] //= counts[single].astype(dims.dtype)
    weights[single] /= counts[single]
    copied = np.ones(len(graph))
    copied[single] = 2.0
    products = replace(
        graph,
        kind=kind,
        dims=dims,
        flop=graph.flop / counts,
        read_bytes=graph.read_bytes * copied / counts,
        write_bytes=graph.write_bytes * copied / counts,
        weight_bytes=weights,
    )
    fresh = None if context.fresh_bytes is None else context.fresh_bytes / counts
    return products, replace(context, fresh_bytes=fresh, memory_bytes=context.memory_bytes / counts)


def _grouped(graph: OperatorGraph) -> IntArray:
    return np.flatnonzero(graph.kind == _K.GROUPED_GEMM)
