"""Finds attention written out as products and softmax, and merges it into one row.

The pattern is product, elementwise rows and copies (scale, mask, cast, one more column for an
attention sink), softmax over the keys, elementwise rows (dropout), product. Where any part is
missing the rows stay as they are, as do those of a training step. Attention weights that something
else reads (``need_weights=True``) are still written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from accelsim.workloads.capture.torch.aten import Kernel, Operand
from accelsim.workloads.operator import OperatorKind, Phase

if TYPE_CHECKING:
    from accelsim.workloads.capture.torch.recorder import Row

_K = OperatorKind
_BETWEEN = frozenset({_K.ELEMENTWISE, _K.COPY, _K.SCATTER})
_MOST_ROWS = 16  # between softmax and product; more is not attention


class _Reader:
    """The rows with their consumers."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.consumers: list[list[int]] = [[] for _ in rows]
        for number, row in enumerate(rows):
            for source in row.sources:
                self.consumers[source].append(number)

    def kind(self, number: int) -> OperatorKind:
        return self.rows[number].kernel.kind

    def size(self, number: int) -> int:
        kernel = self.rows[number].kernel
        written = kernel.writes or kernel.waits
        return written[0].elements if written else 0

    def inner(self, number: int, size: int, columns: int) -> bool:
        """Whether a row works on the scores, with or without the sink's column, or on one statistic
        per query.
        """
        if self.kind(number) is _K.REDUCTION:
            return self.rows[number].kernel.dims[1] == columns
        sizes = (size, size // columns * (columns - 1), size // max(columns - 1, 1) * columns)
        return self.kind(number) in _BETWEEN and self.size(number) in sizes

    def climb(self, start: int, columns: int) -> tuple[int, list[int]] | None:
        """From a softmax up to the product that feeds it, and the rows passed; side branches
        (masks) stay outside.
        """
        size = self.size(start)
        sizes = {size}
        if self.kind(start) is _K.COPY:
            sizes.add(size // columns * (columns - 1))
        for source in sorted(self.rows[start].sources, reverse=True):
            readers = self.consumers[source]
            reductions = [n for n in readers if self.kind(n) is _K.REDUCTION]
            statistics = [n for n in reductions if self.inner(n, size, columns)]
            if len(readers) - len(statistics) != 1:
                continue
            if self.kind(source) is _K.BATCHED_GEMM and self.size(source) in sizes:
                return source, statistics
            further = self.climb(source, columns) if self.inner(source, size, columns) else None
            if further is not None:
                return further[0], [*further[1], source, *statistics]
        return None

    def descend(self, start: int, columns: int) -> tuple[list[int], list[int]] | None:
        """From a softmax down to the products that read it, and the rows passed."""
        size = self.size(start)
        passed, level = set[int](), {start}
        while level and len(passed) <= _MOST_ROWS:
            readers = self.readers(level) - passed
            level = {n for n in readers if self.inner(n, size, columns)}
            products = sorted(n for n in readers if self.kind(n) is _K.BATCHED_GEMM)
            if products:  # with the rows that read one member and feed another
                members = {start} | passed
                beside = [n for n in self.readers(members) - members if self.readers({n}) & members]
                passed.update(n for n in beside if self.inner(n, size, columns))
                return products, sorted(passed)
            passed |= level
        return None

    def readers(self, numbers: Iterable[int]) -> set[int]:
        """Rows that wait for any of some rows."""
        return {reader for number in numbers for reader in self.consumers[number]}


def merge_attention(rows: list[Row]) -> list[Row]:
    """Rows with every written-out attention merged; the same list where there is none.

    Args:
        rows: Rows in launch order.
    """
    if any(row.phase is Phase.BACKWARD for row in rows):
        return rows
    reader = _Reader(rows)
    softmaxes = [n for n, row in enumerate(rows) if row.kernel.kind is _K.SOFTMAX]
    leader = list(range(len(rows)))
    merged: dict[int, Row] = {}
    for members, row in filter(None, (_attention(reader, n) for n in softmaxes)):
        merged[members[-1]] = row
        for number in members:
            leader[number] = members[-1]
    return _reordered(rows, leader, merged) if merged else rows


def _attention(reader: _Reader, softmax: int) -> tuple[list[int], Row] | None:
    """Rows of the attention that a softmax belongs to, from product to product, and the row that
    they are together.
    """
    rows = reader.rows
    columns = rows[softmax].kernel.dims[1]
    up, down = reader.climb(softmax, columns), reader.descend(softmax, columns)
    if up is None or down is None or len(down[0]) != 1:
        return None
    (first, before), ((last,), after) = up, down
    count, q_len, kv_len, head_dim = rows[first].kernel.dims
    context_count, context_len, value_dim, weights = rows[last].kernel.dims
    is_joined = (context_count, context_len, weights) == (count, q_len, kv_len)
    if not is_joined or kv_len not in (columns, columns - 1):
        return None
    members = [first, *before, softmax, *after, last]
    shape = rows[softmax].kernel.reads[0].shape
    heads = shape[-3] if len(shape) > 3 else 1
    dims = (count // heads, heads, heads, q_len, kv_len, head_dim, value_dim, 0, 0, 0)
    watched = [n for n in (softmax, *after) if not set(reader.consumers[n]) <= set(members)]
    weights_written = [x for n in watched for x in rows[n].kernel.writes[:1]]
    writes = (*rows[last].kernel.writes, *weights_written)
    kernel = Kernel(_K.ATTENTION, dims, _outer_reads(rows, members), writes)
    return members, replace(rows[last], kernel=kernel, name="attention", path=rows[softmax].path)


def _reordered(rows: list[Row], leader: Sequence[int], merged: Mapping[int, Row]) -> list[Row]:
    """Rows with the merged ones in place of their members; the same list where they would wait for
    each other.
    """
    waits: dict[int, set[int]] = {number: set() for number in leader}
    for number, row in zip(leader, rows, strict=True):
        waits[number] |= {leader[source] for source in row.sources} - {number}
    try:
        order = _order(waits)
    except CycleError:
        return rows
    position = {number: index for index, number in enumerate(order)}
    result = [merged.get(number, rows[number]) for number in order]
    for number, row in zip(order, result, strict=True):
        row.sources = {position[source] for source in waits[number]}
    return result


def _order(waits: dict[int, set[int]]) -> list[int]:
    """Launch order of the merged rows: the old order wherever dependencies allow."""
    sorter = TopologicalSorter(waits)
    sorter.prepare()
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, number)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order


def _outer_reads(rows: Sequence[Row], members: Sequence[int]) -> tuple[Operand, ...]:
    """What the members read that none of them has written before."""
    inner, outer = set[int](), list[Operand]()
    for kernel in (rows[n].kernel for n in sorted(members)):
        outer += [x for x in kernel.reads if x.storage not in inner]
        inner |= {x.storage for x in kernel.writes}
    return tuple(outer)
