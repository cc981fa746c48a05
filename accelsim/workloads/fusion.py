"""Compiled execution: elementwise chains fused into the operator before them.

What graph compilers do to a forward or training graph (TensorRT layer fusion; XLA fusion, Snider &
Liang 2023; oneDNN post-ops): an elementwise operator whose operand was just produced, and is read
by nobody else, runs inside its producer and the tensor between them never reaches memory. In
inference a batch norm behind a convolution is folded into its weights. A compiler that calls
library kernels for products and convolutions (torch.compile without max-autotune; Ansel et al.,
ASPLOS 2024) fuses the others among themselves and leaves these alone: norms over rows and copies
too run inside the operator before them, which still writes what others read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.workloads.graph import (
    BoolArray,
    FloatArray,
    IntArray,
    OperatorGraph,
    compressed_rows,
    is_kind,
)
from accelsim.workloads.operator import CONTRACTION_KINDS, OWN_STATISTICS, OperatorKind, Phase

_K = OperatorKind
#: Kinds that take an elementwise epilogue: not the gradient of a filter, which goes to the
#: optimizer.
_LIBRARY = CONTRACTION_KINDS - {_K.CONV_BACKWARD_WEIGHT}
_OWN = {
    _K.ELEMENTWISE,
    _K.LAYER_NORM,
    _K.RMS_NORM,
    _K.BATCH_NORM,
    _K.GROUP_NORM,
    _K.SOFTMAX,
    _K.REDUCTION,
    _K.POOLING,
    _K.EMBEDDING,
    _K.COPY,
}


#: What a compiler that generates its kernels joins with them besides elementwise operators.
_GENERATED = (_K.LAYER_NORM, _K.RMS_NORM, _K.GROUP_NORM, _K.COPY)


def fuse_elementwise(graph: OperatorGraph, *, epilogues: bool = True) -> OperatorGraph:
    """Fuse elementwise rows (and foldable batch norms) into their producers.

    FLOP of matrix rows stay those of the matrix arithmetic, what is fused behind them stands in
    `epilogue_flop`; fused arithmetic is added to memory-bound rows. Tensors a backward pass needs
    are still written, except where the compiler generates the kernels: there the backward pass
    makes what stayed inside one again from what it read (the min-cut partitioner of Ansel et al.,
    section 5; a gated layer keeps gate, up and product).

    Args:
        graph: Rows in launch order.
        epilogues: Whether matrix products and convolutions take elementwise rows too.

    Returns:
        A graph with fewer rows, never more bytes, and the same matrix FLOP.
    """
    group = _groups(graph, epilogues=epilogues)
    heads, member = np.unique(group, return_inverse=True)
    rows, count = np.arange(len(graph)), len(heads)
    tails = np.zeros(count, dtype=np.int64)
    np.maximum.at(tails, member, rows)
    # A fused operator runs where its last row did: then all that any of its rows waits for is
    # there.
    order = np.argsort(tails)
    heads, tails, member = heads[order], tails[order], np.argsort(order)[member]
    fused = group != rows
    producer = _producer(graph)[fused]
    hidden = graph.write_bytes[producer]
    training = bool((graph.phase == Phase.BACKWARD).any())
    written = _is_read_outside(graph, member)
    inner = np.minimum(graph.saved_bytes[fused], hidden) * training * ~written[producer]
    # saved for the backward pass: written all the same, unless that makes it again
    kept, made_again = (inner, 0.0 * inner) if epilogues else (0.0 * inner, inner)
    read = _sum(graph.read_bytes, member, count) - _sum(hidden, member[fused], count)
    write = _sum(graph.write_bytes * written, member, count)
    write += _sum(kept, member[fused], count)
    weight_owner = graph.weight_bytes.copy()
    folded = fused & (graph.kind == _K.BATCH_NORM)
    weight_owner[folded] = 0.0
    matrix = is_kind(graph.kind[heads], CONTRACTION_KINDS)
    behind = np.where(
        fused & (graph.kind == _K.ELEMENTWISE), graph.flop, 0.0
    )  # folded norms cost nothing
    offset, dependency = _regrouped_edges(graph, member, count)
    picked = graph.take(heads)
    return replace(
        picked,
        flop=np.where(matrix, graph.flop[heads], _sum(graph.flop, member, count)),
        read_bytes=np.maximum(read, 0.0),
        write_bytes=write,
        weight_bytes=_sum(weight_owner, member, count),
        saved_bytes=_sum(graph.saved_bytes, member, count) - _sum(made_again, member[fused], count),
        dependency_offset=offset,
        dependency=dependency,
        epilogue_flop=np.where(matrix, _sum(behind, member, count), 0.0),
    )


def _producer(graph: OperatorGraph) -> IntArray:
    """Last row each row waits for; -1 for none."""
    last = np.full(len(graph), -1, dtype=np.int64)
    some = np.diff(graph.dependency_offset) > 0
    last[some] = graph.dependency[graph.dependency_offset[1:][some] - 1]
    return last


def _groups(graph: OperatorGraph, *, epilogues: bool) -> IntArray:
    """Head row of the fused operator each row belongs to."""
    producer = _producer(graph)
    consumers = np.bincount(graph.dependency, minlength=len(graph))
    producers = _OWN | _LIBRARY if epilogues else _OWN
    takes = np.isin(graph.kind, list(producers))
    fusable = graph.kind == _K.ELEMENTWISE
    source = np.maximum(producer, 0)
    convolved = np.isin(graph.kind[source], [_K.CONV, _K.CONV_TRANSPOSE])
    inference = not (graph.phase == Phase.BACKWARD).any()
    generated = np.isin(graph.kind[source], list(_OWN)) & (not epilogues)
    fusable |= np.isin(graph.kind, _GENERATED) & generated
    norms = (graph.kind == _K.BATCH_NORM) & (convolved | generated) & inference
    norms[norms] = [
        not graph.name[row].endswith(f".{OWN_STATISTICS}") for row in np.flatnonzero(norms).tolist()
    ]
    fusable |= norms
    joins = fusable & (producer >= 0) & ((consumers[source] == 1) | generated) & takes[source]
    joins &= graph.phase == graph.phase[source]
    head = np.arange(len(graph), dtype=np.int64)
    for row in np.flatnonzero(joins).tolist():
        head[row] = head[producer[row]]
    return head


def _is_read_outside(graph: OperatorGraph, member: IntArray) -> BoolArray:
    """Whether a row of another fused operator, or none, reads what each row writes."""
    reader = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_offset))
    written = np.ones(len(graph), dtype=bool)
    written[graph.dependency] = False
    written[graph.dependency[member[reader] != member[graph.dependency]]] = True
    return written


def _sum(values: FloatArray, member: IntArray, count: int) -> FloatArray:
    return np.bincount(member, weights=values, minlength=count).astype(np.float64)


def _regrouped_edges(
    graph: OperatorGraph, member: IntArray, count: int
) -> tuple[IntArray, IntArray]:
    """Dependencies among fused operators: those of all their rows, less the inner ones."""
    edges: list[set[int]] = [set() for _ in range(count)]
    reader = np.repeat(np.arange(len(graph)), np.diff(graph.dependency_offset))
    for target, source in zip(
        member[reader].tolist(), member[graph.dependency].tolist(), strict=True
    ):
        if source < target:
            edges[target].add(source)
    return compressed_rows([sorted(sources) for sources in edges])
