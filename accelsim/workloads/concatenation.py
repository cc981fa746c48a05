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
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, compressed_rows
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
    is_copy = graph.kind == OperatorKind.COPY
    read_bytes, write_bytes, is_elided = (
        graph.read_bytes.copy(),
        graph.write_bytes.copy(),
        np.zeros(len(graph), dtype=bool),
    )
    consumers = graph.reader_count
    for row in np.flatnonzero(is_copy).tolist():
        sole_producers = [
            int(source) for source in graph.dependencies_of(row) if consumers[source] == 1
        ]
        if sole_producers:
            is_elided[row] = _write_in_place(graph, row, sole_producers, read_bytes, write_bytes)
    return _gathered(
        _without(replace(graph, read_bytes=read_bytes, write_bytes=write_bytes), is_elided)
    )


def _write_in_place(
    graph: OperatorGraph,
    row: int,
    sole_producers: list[int],
    read_bytes: FloatArray,
    write_bytes: FloatArray,
) -> bool:
    """Take the bytes of one copy that its sole producers write in place; whether nothing is left of
    it.
    """
    copied, offered = graph.write_bytes[row], graph.read_bytes[row]
    if copied > offered:
        return False  # repetition or padding: more is written than the producers have
    if len(graph.dependencies_of(row)) == 1:
        # A selection or transposition: the producer writes it instead of what it would have
        # written.
        write_bytes[sole_producers[0]] -= max(
            float(graph.write_bytes[sole_producers[0]]) - copied, 0.0
        )
        return True
    placed = float(sum(graph.write_bytes[source] for source in sole_producers))
    read_bytes[row] = max(offered - placed, 0.0)
    write_bytes[row] = max(copied - placed, 0.0)
    return bool(read_bytes[row] == 0.0)


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
    sources_through_copies: list[int] = graph.dependencies_of(row).tolist()
    for source in list(sources_through_copies):
        if graph.kind[source] == OperatorKind.COPY and consumers[source] == 1:
            sources_through_copies += graph.dependencies_of(source).tolist()
    return sources_through_copies
