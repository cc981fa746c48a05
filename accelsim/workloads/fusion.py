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
from accelsim.plain import Document
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
    members = fusion.members(np.arange(len(graph)))
    columns, saved_bytes = _fused_columns(graph, members), graph.saved_bytes[members.row]
    is_hidden = (members.inner >= 0) & ~fusion.written[members.inner]
    is_hidden &= (graph.phase == Phase.BACKWARD).any()
    hidden = members.total(np.minimum(saved_bytes, graph.write_bytes[members.inner]) * is_hidden)
    columns["saved_bytes"] = members.total(saved_bytes)
    # What the backward pass needs is written all the same, unless that makes it again.
    if fuses == "pointwise":
        columns["saved_bytes"] -= hidden
    else:
        columns["write_bytes"] += hidden
    return replace(graph.take(fusion.heads), **columns, **_regrouped_edges(graph, fusion))


def fuse_batch(lowered: LoweredBatch, fuses: Fuses) -> LoweredBatch:
    """The scenarios of an inference pass with rows fused as `fuse_elementwise` has each; which rows
    are fused does not depend on sizes.

    Args:
        lowered: Scenarios of one pass.
        fuses: What is joined; see `Fuses`.
    """
    graph = lowered.launched()
    fusion = _Fusion.of(graph, fuses)
    launches = fusion.members(lowered.order)
    alike = np.stack([launches.row, launches.written, launches.inner], axis=1)
    bounds = pairwise([*launches.start.tolist(), len(alike)])
    sorts: dict[bytes, int] = {}
    order = np.array(
        [sorts.setdefault(alike[start:end].tobytes(), len(sorts)) for start, end in bounds]
    )
    members = launches.subset(np.unique(order, return_index=True)[1])
    heads = members.head.tolist()
    return replace(
        lowered,
        **_fused_columns(lowered, members),
        **_regrouped_edges(graph, fusion),
        kind=lowered.kind[members.head],
        dtype=lowered.dtype[members.head],
        dims=lowered.dims[:, members.head],
        copied_bytes=lowered.input_bytes(),
        name=tuple(lowered.name[row] for row in heads),
        path=tuple(lowered.path[row] for row in heads),
        order=order,
    )


@frozen(eq=False)
class _Members:
    """Rows of c fused operators, k in all, those of one after those of the one before.

    Attributes:
        head: First row of each operator, shape (c,).
        start: Where its rows start, shape (c,).
        row: The rows, shape (k,).
        inner: The row that each joins, shape (k,); -1 for none.
        written: Whether a row of another operator, or none, reads what it writes, shape (k,).
    """

    head: IntArray
    start: IntArray
    row: IntArray
    inner: IntArray
    written: BoolArray

    def total(self, values: FloatArray) -> FloatArray:
        """Sums of each operator's rows, shape (..., c) from (..., k)."""
        total: FloatArray = np.add.reduceat(values, self.start, axis=-1)
        return total

    def subset(self, operators: IntArray) -> _Members:
        """Rows of some of the operators."""
        counts = np.diff(self.start, append=len(self.row))[operators]
        start = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(self.start[operators] - start, counts)
        columns = (self.row[places], self.inner[places], self.written[places])
        return _Members(self.head[operators], start, *columns)


def _fused_columns(rows: OperatorGraph | LoweredBatch, members: _Members) -> Document:
    """FLOP and bytes of fused operators, in all scenarios.

    Estimate: what lies between fused rows moves no bytes (XLA: Snider and Liang 2023), and a batch
    norm that is folded into weights costs nothing.
    """
    total = members.total
    columns = (rows.flop, rows.read_bytes, rows.write_bytes, rows.weight_bytes)
    flop, read_bytes, write_bytes, weight_bytes = (column[..., members.row] for column in columns)
    is_fused, kind = members.inner >= 0, rows.kind[members.row]
    hidden_bytes = rows.write_bytes[..., members.inner] * is_fused
    is_behind = is_fused & (kind == _K.ELEMENTWISE)
    is_folded = is_fused & (kind == _K.BATCH_NORM)
    is_matrix = is_kind(rows.kind[members.head], CONTRACTION_KINDS)
    return {
        "flop": np.where(is_matrix, rows.flop[..., members.head], total(flop)),
        "read_bytes": np.maximum(total(read_bytes) - total(hidden_bytes), 0.0),
        "write_bytes": total(write_bytes * members.written),
        "weight_bytes": total(weight_bytes * ~is_folded),
        "epilogue_flop": np.where(is_matrix, total(flop * is_behind), 0.0),
    }


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

    def members(self, order: IntArray) -> _Members:
        """Rows of the fused operators, by their places in columns that hold the n rows in some
        order.
        """
        rows = np.argsort(self.member, kind="stable")
        inner = np.where(self.fused, order[self.producer], -1)[rows]
        start = np.searchsorted(self.member[rows], np.arange(len(self.heads)))
        return _Members(order[self.heads], start, order[rows], inner, self.written[rows])


def _producer(graph: OperatorGraph) -> IntArray:
    """Last row each row waits for; -1 for none."""
    last = np.full(len(graph), -1, dtype=np.int64)
    has_dependency = np.diff(graph.dependency_offset) > 0
    last[has_dependency] = graph.dependency[graph.dependency_offset[1:][has_dependency] - 1]
    return last


def _groups(graph: OperatorGraph, fuses: Fuses) -> IntArray:
    """Head row of the fused operator each row belongs to."""
    producer = _producer(graph)
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
    joins = (
        fusable & (producer >= 0) & ((graph.reader_count[source] == 1) | generated) & takes[source]
    )
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
    written = np.ones(len(graph), dtype=bool)
    written[graph.dependency] = False
    written[graph.dependency[member[graph.reader] != member[graph.dependency]]] = True
    return written


def _regrouped_edges(graph: OperatorGraph, fusion: _Fusion) -> Document:
    """Dependencies among fused operators: those of all their rows, less the inner ones."""
    edges: list[set[int]] = [set() for _ in fusion.heads]
    targets, sources = fusion.member[graph.reader], fusion.member[graph.dependency]
    for target, source in zip(targets.tolist(), sources.tolist(), strict=True):
        if source < target:
            edges[target].add(source)
    offset, dependency = compressed_rows([sorted(sources) for sources in edges])
    return {"dependency_offset": offset, "dependency": dependency}
