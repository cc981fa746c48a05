"""Compiled execution: data movement folded into the operators around it.

Graph compilers place the operands of a concatenation side by side in one buffer, so that each
producer writes its share there and the copy disappears (TensorRT Developer Guide, "Types of
fusions": eliminating concatenations; XLA and torch.compile do the same with pointwise producers). A
copy that only rearranges or selects what one operator wrote runs in that operator's epilogue.
Operands that others read as well keep their place and are still copied. Gathered rows go straight
into a product of small matrices, whose operands a thread block holds in shared memory (the dot
interaction of recommenders: NVIDIA DeepLearningExamples, PyTorch/Recommendation/DLRM, fused
embedding and interaction kernels).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.dtype import DTYPE_BYTES
from accelsim.workloads.graph import BoolArray, IntArray, OperatorGraph, compressed_rows
from accelsim.workloads.operator import LOOKUP_KINDS, OperatorKind, Phase

#: Operands of one product that fit beside each other in the shared memory of an SM (CUDA C++
#: Programming Guide: 64 KiB or more since compute capability 7.0).
_SMALL_BYTES = 65536.0


def elide_copies(graph: OperatorGraph) -> OperatorGraph:
    """Let the producers of copied tensors write into the copy's result.

    Args:
        graph: Rows in launch order; with a backward pass it is returned as it is (copies are
            tensors to keep).

    Returns:
        A graph with fewer rows, never more bytes, and the same FLOP.
    """
    if bool((graph.phase == Phase.BACKWARD).any()):
        return graph
    read_bytes, write_bytes = graph.read_bytes.copy(), graph.write_bytes.copy()
    is_elided, consumers = np.zeros(len(graph), dtype=bool), graph.reader_count
    for row in np.flatnonzero(graph.kind == OperatorKind.COPY).tolist():
        producers = graph.dependencies_of(row)
        sole = producers[consumers[producers] == 1]
        copied, offered = graph.write_bytes[row], graph.read_bytes[row]
        if not len(sole) or copied > offered:
            continue  # repetition or padding: more is written than the producers have
        if len(producers) == 1:
            # A selection or transposition: the producer writes it instead of what it would have
            # written.
            write_bytes[sole] -= np.maximum(graph.write_bytes[sole] - copied, 0.0)
            is_elided[row] = True
        else:
            placed = graph.write_bytes[sole].sum()
            read_bytes[row] = max(offered - placed, 0.0)
            write_bytes[row] = max(copied - placed, 0.0)
            is_elided[row] = read_bytes[row] == 0.0
    graph = replace(graph, read_bytes=read_bytes, write_bytes=write_bytes)
    return _gathered(_without(graph, is_elided))


def _without(graph: OperatorGraph, is_elided: BoolArray) -> OperatorGraph:
    """The graph less some rows, whose readers wait for what those rows waited for."""
    if not is_elided.any():
        return graph
    sources: list[set[int]] = []
    new_row = np.cumsum(~is_elided) - 1
    edges: list[list[int]] = []
    for row in range(len(graph)):
        waits: set[int] = set()
        for source in graph.dependencies_of(row):
            waits |= sources[source] if is_elided[source] else {source}
        sources.append(waits)
        if not is_elided[row]:
            edges.append(sorted(int(new_row[source]) for source in waits))
    offset, dependency = compressed_rows(edges)
    return replace(graph.take(~is_elided), dependency_offset=offset, dependency=dependency)


def _gathered(graph: OperatorGraph) -> OperatorGraph:
    """Gathers that only a product of small matrices reads write nothing, and it reads nothing of
    them.

    Estimate: operands of up to `_SMALL_BYTES` stay in shared memory.
    """
    batch, m, n, k = graph.dims[:, :4].T.astype(np.float64)
    operand_bytes = (m * k + k * n) * DTYPE_BYTES[graph.dtype]
    is_small = (graph.kind == OperatorKind.BATCHED_GEMM) & (operand_bytes <= _SMALL_BYTES)
    consumers = graph.reader_count
    read_bytes, write_bytes = graph.read_bytes.copy(), graph.write_bytes.copy()
    for row in np.flatnonzero(is_small & (batch > 1)).tolist():
        for source in _sources_through_copies(graph, row, consumers):
            if graph.kind[source] in LOOKUP_KINDS and consumers[source] == 1:
                read_bytes[row] = max(read_bytes[row] - write_bytes[source], 0.0)
                write_bytes[source] = 0.0
    return replace(graph, read_bytes=read_bytes, write_bytes=write_bytes)


def _sources_through_copies(graph: OperatorGraph, row: int, consumers: IntArray) -> list[int]:
    """Rows that `row` waits for, and those that a copy for it alone waits for."""
    sources: list[int] = graph.dependencies_of(row).tolist()
    for source in list(sources):
        if graph.kind[source] == OperatorKind.COPY and consumers[source] == 1:
            sources += graph.dependencies_of(source).tolist()
    return sources
