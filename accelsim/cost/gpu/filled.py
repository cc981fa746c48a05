"""Kernels with their batch filled up: a smaller batch takes no longer than a larger one.

Libraries pad, and tables of measured kernels scatter: a size may have been measured slower than a
larger one. Each row takes the least of its own time and those of the same row with the side that
grows with a batch filled up. Rows that differ in that side alone are a *family*: the times of its
larger sizes are worked out once, and each of its rows looks its least up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.table import Rows
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray
from accelsim.workloads.operator import CONV_KINDS, DIMENSIONS, OperatorKind, Phase

_K = OperatorKind
#: Sides that grow with a batch. A smaller one is filled up to a larger where it took longer than
#: that; what a board's relatives gain with more sequences begins at another number of cores.
FILLED: Mapping[OperatorKind, str] = {
    **dict.fromkeys((_K.ATTENTION, _K.BATCHED_GEMM), "batch"),
    **dict.fromkeys((_K.GEMM, _K.GROUPED_GEMM), "m"),
    **dict.fromkeys(CONV_KINDS, "batch"),
}
#: Most sizes that convolutions are filled up to: their tables scatter from one size to the next.
_CONVOLUTION_REACH = 4
#: Sizes to fill up to, eight an octave.
_SIZES = np.array(
    sorted({2.0**octave * part // 8 for octave in range(1, 11) for part in range(8, 17)})
)
#: Parts of the way from one of them to the next, where the sides leave whole ones.
_PARTS = 8
#: A row's hash is multiplied by the golden ratio of 64 bits (Knuth, TAOCP 3, 6.4) and folded.
_ODD, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
#: Columns that grow with a side.
_GROW = frozenset({"flop", "read_bytes", "write_bytes"})


@frozen(eq=False)
class FilledRows(Rows):
    """Rows with one side filled up to a size each, shape (r,).

    Attributes:
        base: The rows as they are, q of them.
        base_index: Which of them each row is, shape (r,).
        side: Dimension that is filled up.
        size: Its sizes, shape (r,).
    """

    base: Rows
    base_index: IntArray
    side: str
    size: FloatArray

    @classmethod
    def of(cls, base: Rows, base_index: IntArray, side: str, size: FloatArray) -> FilledRows:
        """Some rows filled up."""
        return cls(base.graph, base.index[base_index], base.kind, base, base_index, side, size)

    def _dimension(self, name: str) -> FloatArray:
        return self.size if name == self.side else self.base[name][self.base_index]

    def without_batch(self, figures: Callable[[Rows], FloatArray]) -> FloatArray:
        """As `Rows.without_batch`, worked out once for all sizes of a row's batch."""
        if self.side != "batch":
            return figures(self)
        return self.base.without_batch(figures).take(self.base_index, axis=-1)

    def column(self, name: str) -> Any:
        """As `Rows.column`; what grows with the side is as much larger, shape (r,)."""
        values = self.base.column(name)
        if name not in _GROW or (name == "write_bytes" and self.side == "k"):
            return values[self.base_index]
        grown = self.size / np.maximum(self.base[self.side], 1.0)[self.base_index]
        if name == "read_bytes" and self.kind == _K.ATTENTION:
            query, stored = sequence_reads(self.base)
            apart = np.minimum(values, query + stored * self.base.element_bytes)
            return values[self.base_index] + apart[self.base_index] * (grown - 1.0)
        return values[self.base_index] * grown


def sequence_reads(rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Bytes of the queries, and elements of keys and values, that the sequences of attention rows
    bring each for itself; shape (r,) each.

    A latent row serves as key and value: DeepSeek-V2, arXiv:2405.04434.
    """
    query = rows.element_bytes * rows["batch"] * rows["heads"] * rows["q_len"] * rows["head_dim"]
    key_count = np.where(
        rows["window"] > 0,
        np.minimum(rows["kv_len"], rows["q_len"] + rows["window"] - 1.0),
        rows["kv_len"],
    )
    latent = rows["latent"]
    width = np.where(latent > 0, latent, rows["kv_heads"] * (rows["head_dim"] + rows["value_dim"]))
    return query, np.maximum(rows["batch"] * key_count * width, 1.0)


def least_filled_s(
    rows: Rows, time_s: FloatArray, filled_s: Callable[[FilledRows], FloatArray]
) -> FloatArray:
    """The least of r rows' own times and those of the same rows filled up, and no less than that of
    the size to fill up to below; shape (r,).

    Args:
        rows: Rows of a kind in `FILLED`.
        time_s: Their own times, shape (r,).
        filled_s: Times of rows that are filled up.
    """
    least_s = time_s.copy()
    for side, is_filled in _filled_sides(rows):
        side_rows = Rows(rows.graph, rows.index[is_filled], rows.kind)
        least_s[is_filled] = _least_of_side_s(side_rows, side, time_s[is_filled], filled_s)
    return least_s


def _filled_sides(rows: Rows) -> Iterator[tuple[str, BoolArray]]:
    """Sides that grow with a batch, and which of r rows each grows in: products that yield the
    gradients of weights are summed up over the batch.
    """
    is_gradient = rows.column("phase") == int(Phase.BACKWARD)
    is_gradient &= (rows.kind == _K.GEMM) & (rows.column("weight_bytes") == 0)
    for side, is_filled in ((FILLED[rows.kind], ~is_gradient), ("k", is_gradient)):
        if is_filled.any():
            yield side, is_filled


def _least_of_side_s(
    rows: Rows, side: str, time_s: FloatArray, filled_s: Callable[[FilledRows], FloatArray]
) -> FloatArray:
    size = rows[side]
    above = np.searchsorted(_SIZES, size, side="right")
    below = np.maximum(above - 1, 0)
    grows = above < len(_SIZES)
    if not grows.any():
        return time_s
    family_row, family = _families(rows, side)
    reach = _CONVOLUTION_REACH if rows.kind in CONV_KINDS else len(_SIZES)
    is_needed = _reached(family[grows], below[grows], len(family_row), reach)
    grid_family, grid_place = np.nonzero(is_needed)
    is_between = grows & (size > _SIZES[below])
    inner, inner_size = _sizes_between(size, below, is_between)
    distinct, distinct_of = _distinct([family[inner].astype(np.float64), inner_size])
    base_index = family_row[np.concatenate([grid_family, family[inner[distinct]]])]
    sizes = np.concatenate([_SIZES[grid_place], inner_size[distinct]])
    filled_times_s = filled_s(FilledRows.of(rows, base_index, side, sizes))
    grid_s = np.full(is_needed.shape, np.inf)
    grid_s[is_needed] = filled_times_s[: len(grid_place)]
    least_s = np.where(is_between, np.inf, time_s)
    np.minimum.at(least_s, inner, filled_times_s[len(grid_place) :][distinct_of])
    larger_s = _least_within(grid_s, reach)[family, np.minimum(below + 1, len(_SIZES) - 1)]
    from_below_s = np.minimum(grid_s[family, below], larger_s)
    held_s = np.maximum(np.minimum(least_s, larger_s), from_below_s)
    filled = np.where(size >= _SIZES[below], held_s, np.minimum(least_s, from_below_s))
    return np.where(grows, filled, time_s)


def _families(rows: Rows, side: str) -> tuple[IntArray, IntArray]:
    """Rows that differ in one side alone: a row of each of f families, shape (f,), and the family
    of each row, shape (r,).
    """
    size = np.maximum(rows[side], 1.0)
    columns = [rows[name] for name in DIMENSIONS[rows.kind] if name != side]
    columns += [rows.column(name) for name in ("dtype", "phase", "weight_bytes")]
    columns.append(rows.epilogue_flop)
    columns += [rows.column(name) / size for name in ("flop", "read_bytes", "write_bytes")]
    return _distinct(columns)


def _distinct(columns: Sequence[NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """A row of all equal rows, and which of these each row equals; columns of shape (r,).

    Rows are told apart by 64 bits of hash: of a million rows two that differ are taken for equal
    once in 4e7 calls.
    """
    content = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        content = (content ^ column.astype(np.float64).view(np.uint64)) * _ODD
        content ^= content >> _HALF
    _, distinct_row, distinct_of = np.unique(content, return_index=True, return_inverse=True)
    return distinct_row, distinct_of


def _reached(family: IntArray, below: IntArray, count: int, reach: int) -> BoolArray:
    """Sizes to fill up to that rows of each family look at: that below them and so many above;
    shape (count, sizes).
    """
    edges = np.zeros((count, len(_SIZES) + 1), dtype=np.int64)
    np.add.at(edges, (family, below), 1)
    np.add.at(edges, (family, np.minimum(below + reach + 1, len(_SIZES))), -1)
    return np.cumsum(edges[:, :-1], axis=1) > 0


def _least_within(grid_s: FloatArray, reach: int) -> FloatArray:
    """The least of each size and so many from it on; shape (families, sizes)."""
    if reach >= grid_s.shape[1]:
        return np.minimum.accumulate(grid_s[:, ::-1], axis=1)[:, ::-1]
    least = grid_s.copy()
    for step in range(1, reach):
        np.minimum(least[:, :-step], grid_s[:, step:], out=least[:, :-step])
    return least


def _sizes_between(
    size: FloatArray, below: IntArray, is_between: BoolArray
) -> tuple[IntArray, FloatArray]:
    """Sizes from each of r sides to the next to fill up to, in `_PARTS` of the way there from the
    one below: place of the side and size.

    Estimate: kernels take whole vectors of a side, so that one of more than 128 is rounded up to
    such a part, by 1.6 % at most.

    Args:
        size: Sides, shape (r,).
        below: Place of the size to fill up to below each, shape (r,).
        is_between: Whether a side is none of these sizes itself, shape (r,).
    """
    above = np.minimum(below + 1, len(_SIZES) - 1)
    upper = _SIZES[above]
    step = np.maximum((upper - _SIZES[below]) / _PARTS, 1.0)
    parts = (np.ceil(size / step) + np.arange(_PARTS)[:, None]) * step
    step_index, row = np.nonzero((parts < upper) & is_between)
    return row, parts[step_index, row]
