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
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.graph import (
    BoolArray,
    FloatArray,
    IntArray,
    OperatorGraph,
    compressed_rows,
    is_kind,
)
from accelsim.workloads.operator import CONTRACTION_KINDS, OWN_STATISTICS, OperatorKind, Phase

if TYPE_CHECKING:
    from accelsim.workloads.lowering import LoweredBatch

_K = OperatorKind
#: What a stack joins elementwise operators with: each other and reductions, or also the products
#: and convolutions before them; "activations" joins sums of two tensors to convolutions alone.
Fuses = Literal["pointwise", "epilogues", "activations"]
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


def fuse_elementwise(graph: OperatorGraph, fuses: Fuses = "epilogues") -> OperatorGraph:
    """Fuse elementwise rows (and foldable batch norms) into their producers.

    FLOP of matrix rows stay those of the matrix arithmetic, what is fused behind them stands in
    `epilogue_flop`; fused arithmetic is added to memory-bound rows. Tensors a backward pass needs
    are still written, except where the compiler generates the kernels: there the backward pass
    makes what stayed inside one again from what it read (the min-cut partitioner of Ansel et al.,
    section 5; a gated layer keeps gate, up and product).

    Args:
        graph: Rows in launch order.
        fuses: What is joined; see `Fuses`.

    Returns:
        A graph with fewer rows, never more bytes, and the same matrix FLOP.
    """
    fusion = _Fusion.of(graph, fuses)
    member, fused, count = fusion.member, fusion.fused, len(fusion.heads)
    producer = fusion.producer[fused]
    hidden = graph.write_bytes[producer]
    training = bool((graph.phase == Phase.BACKWARD).any())
    written = fusion.written
    inner = np.minimum(graph.saved_bytes[fused], hidden) * training * ~written[producer]
    # saved for the backward pass: written all the same, unless that makes it again
    still_written, made_again = (
        (inner, 0.0 * inner) if fuses != "pointwise" else (0.0 * inner, inner)
    )
    read_bytes = _sum(graph.read_bytes, member, count) - _sum(hidden, member[fused], count)
    write_bytes = _sum(graph.write_bytes * written, member, count)
    write_bytes += _sum(still_written, member[fused], count)
    weight_owner = graph.weight_bytes.copy()
    heads = fusion.heads
    weight_owner[fused & (graph.kind == _K.BATCH_NORM)] = 0.0  # folded
    matrix = is_kind(graph.kind[heads], CONTRACTION_KINDS)
    behind = np.where(
        fused & (graph.kind == _K.ELEMENTWISE), graph.flop, 0.0
    )  # folded norms cost nothing
    offset, dependency = _regrouped_edges(graph, member, count)
    picked = graph.take(heads)
    return replace(
        picked,
        flop=np.where(matrix, graph.flop[heads], _sum(graph.flop, member, count)),
        read_bytes=np.maximum(read_bytes, 0.0),
        write_bytes=write_bytes,
        weight_bytes=_sum(weight_owner, member, count),
        saved_bytes=_sum(graph.saved_bytes, member, count) - _sum(made_again, member[fused], count),
        dependency_offset=offset,
        dependency=dependency,
        epilogue_flop=np.where(matrix, _sum(behind, member, count), 0.0),
    )


def fuse_batch(lowered: LoweredBatch, fuses: Fuses) -> LoweredBatch:
    """The scenarios of an inference pass with rows fused as `fuse_elementwise` has each; which rows
    are fused does not depend on sizes.

    Args:
        lowered: Scenarios of one pass.
        fuses: What is joined; see `Fuses`.
    """
    graph = lowered.launched()
    fusion = _Fusion.of(graph, fuses)
    rows = np.argsort(fusion.member, kind="stable")  # of one fused operator after the other
    column = lowered.order[rows]
    inner = np.where(fusion.fused, lowered.order[fusion.producer], -1)[rows]
    alike = np.stack([column, fusion.written[rows], inner], axis=1)
    starts = np.searchsorted(fusion.member[rows], np.arange(len(fusion.heads) + 1))
    sorts: dict[bytes, int] = {}
    order = np.array(
        [
            sorts.setdefault(alike[start:end].tobytes(), len(sorts))
            for start, end in pairwise(starts.tolist())
        ]
    )
    first_of_sort = np.unique(order, return_index=True)[1]
    members = np.concatenate(
        [np.arange(starts[sort], starts[sort + 1]) for sort in first_of_sort.tolist()]
    )
    column, inner, rows = column[members], inner[members], rows[members]
    bounds = np.concatenate([[0], np.cumsum(np.diff(starts)[first_of_sort])[:-1]])
    heads = lowered.order[fusion.heads[first_of_sort]]

    def total(values: FloatArray, counts: BoolArray | None = None) -> FloatArray:
        selected = values[:, column] if counts is None else values[:, column] * counts
        summed: FloatArray = np.add.reduceat(selected, bounds, axis=1)
        return summed

    is_fused, kind = inner >= 0, lowered.kind[column]
    hidden = np.add.reduceat(lowered.write_bytes[:, inner] * is_fused, bounds, axis=1)
    matrix = is_kind(lowered.kind[heads], CONTRACTION_KINDS)
    behind = total(lowered.flop, is_fused & (kind == _K.ELEMENTWISE))
    offset, dependency = _regrouped_edges(graph, fusion.member, len(fusion.heads))
    return replace(
        lowered,
        kind=lowered.kind[heads],
        dtype=lowered.dtype[heads],
        dims=lowered.dims[:, heads],
        flop=np.where(matrix, lowered.flop[:, heads], total(lowered.flop)),
        read_bytes=np.maximum(total(lowered.read_bytes) - hidden, 0.0),
        write_bytes=total(lowered.write_bytes, fusion.written[rows]),
        weight_bytes=total(lowered.weight_bytes, ~(is_fused & (kind == _K.BATCH_NORM))),
        epilogue_flop=np.where(matrix, behind, 0.0),
        copied_bytes=lowered.input_bytes(),
        name=tuple(lowered.name[row] for row in heads.tolist()),
        path=tuple(lowered.path[row] for row in heads.tolist()),
        order=order,
        dependency_offset=offset,
        dependency=dependency,
    )


@frozen(eq=False)
class _Fusion:
    """Which of n rows join which.

    Attributes:
        heads: First row of each of the fused operators, shape (c,), in the order they are launched:
            where its last row was, all that any of its rows waits for is there.
        member: The fused operator of each row, shape (n,).
        fused: Whether a row joins the one that makes its operand, shape (n,).
        producer: The last row that each row waits for, shape (n,); -1 for none.
        written: Whether a row of another operator, or none, reads what each row writes, shape (n,).
    """

    heads: IntArray
    member: IntArray
    fused: BoolArray
    producer: IntArray
    written: BoolArray

    @classmethod
    def of(cls, graph: OperatorGraph, fuses: Fuses) -> _Fusion:
        """What joins what in a graph."""
        group = _groups(graph, fuses)
        heads, member = np.unique(group, return_inverse=True)
        rows = np.arange(len(graph))
        tails = np.zeros(len(heads), dtype=np.int64)
        np.maximum.at(tails, member, rows)
        order = np.argsort(tails)
        member = np.argsort(order)[member]
        written = _is_read_outside(graph, member)
        return cls(heads[order], member, group != rows, _producer(graph), written)


def _producer(graph: OperatorGraph) -> IntArray:
    """Last row each row waits for; -1 for none."""
    last = np.full(len(graph), -1, dtype=np.int64)
    has_dependency = np.diff(graph.dependency_offset) > 0
    last[has_dependency] = graph.dependency[graph.dependency_offset[1:][has_dependency] - 1]
    return last


def _groups(graph: OperatorGraph, fuses: Fuses) -> IntArray:
    """Head row of the fused operator each row belongs to."""
    producer = _producer(graph)
    consumers = np.bincount(graph.dependency, minlength=len(graph))
    pointwise = fuses == "pointwise"
    producers = _OWN if pointwise else _OWN | _LIBRARY
    takes = np.isin(graph.kind, list(producers))
    fusable = graph.kind == _K.ELEMENTWISE
    source = np.maximum(producer, 0)
    convolved = np.isin(graph.kind[source], [_K.CONV, _K.CONV_TRANSPOSE])
    inference = not (graph.phase == Phase.BACKWARD).any()
    generated = np.isin(graph.kind[source], list(_OWN)) & pointwise
    fusable |= np.isin(graph.kind, _GENERATED) & generated
    norms = (graph.kind == _K.BATCH_NORM) & (convolved | generated) & inference
    norms[norms] = [
        not graph.name[row].endswith(f".{OWN_STATISTICS}") for row in np.flatnonzero(norms).tolist()
    ]
    fusable |= norms
    joins = fusable & (producer >= 0) & ((consumers[source] == 1) | generated) & takes[source]
    joins &= graph.phase == graph.phase[source]
    apart = (np.diff(graph.dependency_offset) > 1) & (fuses == "activations")
    head = np.arange(len(graph), dtype=np.int64)
    for row in np.flatnonzero(joins).tolist():
        producer_head = head[producer[row]]
        if not (apart[row] and graph.kind[producer_head] == _K.GEMM):
            head[row] = producer_head
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
