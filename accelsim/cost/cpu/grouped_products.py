"""Grouped products on a CPU: those that the framework runs group by group, each on its own.

Each group's rows times its matrix takes what a linear layer of as many rows does (torch 2.13, ATen
``_grouped_mm``): eight groups of 32 rows with 512 x 3584 matrices take 12.35 ms in fp32 and 3.16 in
bf16, eight linear layers 12.25 and 3.13, one batched product 12.26 and 3.02; groups of four rows in
bf16 0.104, 0.108 and 0.069 ms (EPYC 9005, one thread).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.cpu.kernel_terms import Context
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
#: Operators that multiply all matrices in one call of the library; every other grouped product goes
#: group by group.
_BATCHED = frozenset({"bmm", "baddbmm", "addbmm"})


def product_counts(graph: OperatorGraph) -> FloatArray:
    """Products that each row runs one after the other, shape (n,): the groups that have rows, 1
    where it is one call.

    Of few rows each falls into any group alike. Occupancy: Feller, An Introduction to Probability
    Theory, volume 1, 1968.

    Args:
        graph: Operators, n rows.
    """
    counts = np.ones(len(graph))
    rows = np.flatnonzero((graph.kind == _K.GROUPED_GEMM) & ~graph.is_operation(_BATCHED))
    groups, m = (
        np.maximum(graph.dimension(name, rows, _K.GROUPED_GEMM), 1.0) for name in ("groups", "m")
    )
    counts[rows] = groups * (1.0 - (1.0 - 1.0 / groups) ** m)
    return counts


def as_products(
    graph: OperatorGraph, context: Context, counts: FloatArray
) -> tuple[OperatorGraph, Context]:
    """The graph with one of its products, or with a batched one, in place of each grouped one, and
    its share of memory.

    Args:
        graph: Operators, n rows.
        context: Their caches and buffers.
        counts: Products of each row, shape (n,).
    """
    rows = np.flatnonzero(graph.kind == _K.GROUPED_GEMM)
    if not len(rows):
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
    products = replace(
        graph,
        kind=kind,
        dims=dims,
        flop=graph.flop / counts,
        read_bytes=graph.read_bytes / counts,
        write_bytes=graph.write_bytes / counts,
        weight_bytes=weights,
    )
    fresh = None if context.fresh_bytes is None else context.fresh_bytes / counts
    return products, replace(context, fresh_bytes=fresh, memory_bytes=context.memory_bytes / counts)
