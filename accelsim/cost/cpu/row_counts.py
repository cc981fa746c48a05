"""What vectors make of operators that go through rows: norms, softmax, reductions, scans and sorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.dtype import DTYPE_BYTES
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

__all__ = ["mean_copy_bytes", "reduction_counts", "row_counts", "softmax_counts"]

_Counts = tuple[FloatArray, FloatArray, FloatArray]
#: Reductions that leave or order every element.
_SCANS: Final = ("cum", "logcumsumexp", "sort", "argsort", "kthvalue", "median")


def row_counts(rows: FloatArray, columns: FloatArray, width: FloatArray) -> _Counts:
    """Rows, vectors of a cache line, and elements left over from whole vectors, shape (k,).

    Args:
        rows: Rows, shape (k,).
        columns: Elements of each.
        width: Bytes of an element.
    """
    lanes = 64.0 / width
    return rows, rows * np.ceil(columns / lanes), rows * (columns % lanes)


def softmax_counts(
    names: Sequence[str],
    backward: NDArray[np.bool_],
    rows: FloatArray,
    columns: FloatArray,
    width: FloatArray,
) -> _Counts:
    """As `row_counts`, with what a row leaves of whole vectors in the time of one element (ATen
    vec_host_softmax_lastdim).

    A row shorter than a vector is taken element by element. A part vector after whole ones takes as
    long as an element; in a softmax of 16 bits sixteen of its elements 3 ns each, further ones 5 up
    to the fifth and 8 beyond: 28, 50, 116, 147, 78 and 196 ns a row of 32, 37, 42, 47, 48 and 63
    (EPYC 9005, torch 2.13). One that leaves out what a mask names takes all elements one by one:
    3.6 ns each, 10.4 in bf16.

    Args:
        names: Operators, k of them.
        backward: Whether they are gradients, shape (k,).
        rows: Rows, shape (k,).
        columns: Elements of each.
        width: Bytes of an element.
    """
    _, vectors, _ = row_counts(rows, columns, width)
    lanes = 64.0 / width
    left = columns % lanes
    parts = np.where(columns < lanes, np.minimum(columns, 16.0), left > 0)
    logarithm = np.array(["log_softmax" in name for name in names], dtype=bool)
    masked = np.array([name.startswith("_masked") for name in names], dtype=bool)
    across = np.array([name.endswith(".across") for name in names], dtype=bool)
    rest = left % 16
    halves = left - rest + 2.5 * rest - np.minimum(rest, 5.0)
    single = np.where(
        masked, columns, np.where((width == 2) & ~logarithm & ~backward, halves, parts)
    )
    return (
        rows,
        np.where(across, rows * columns / lanes, vectors),
        np.where(across, 0.0, rows * single),
    )


def reduction_counts(
    names: Sequence[str],
    backward: NDArray[np.bool_],
    rows: FloatArray,
    columns: FloatArray,
    inner: FloatArray,
    width: FloatArray,
) -> _Counts:
    """Rows, vectors of a cache line (elements for a maximum's place), and what is left of blocks of
    four 32-byte vectors.

    Of places and truths elements are counted, what is left is taken one by one (ATen Reduce.h,
    vectorized_inner_reduction). Where the innermost axis stays, and of gradients, which are added
    up over samples, as `_outer_counts` says.

    Args:
        names: Operators, k of them.
        backward: Whether they are gradients, shape (k,).
        rows: Results, shape (k,).
        columns: Elements of each.
        inner: Results that lie together; 0 where all do.
        width: Bytes of an element.
    """
    _, vectors, _ = row_counts(rows, columns, width)
    placed = np.isin([name.rpartition(".")[2] for name in names], ["place", "all", "any"])
    left = rows * (columns % (128.0 / width))
    outer = np.array([".outer" in name for name in names], dtype=bool) | (backward & ~placed)
    scans = np.array([name.startswith(_SCANS) for name in names], dtype=bool)
    first, second, third = (
        np.select([scans, outer], [scan, way], plain)
        for scan, way, plain in zip(
            _scan_counts(names, rows, columns),
            _outer_counts(names, rows, columns, inner, width),
            (rows, np.where(placed, rows * columns, vectors), np.where(placed, 0.0, left)),
            strict=True,
        )
    )
    return first, second, third


def _outer_counts(
    names: Sequence[str],
    rows: FloatArray,
    columns: FloatArray,
    inner: FloatArray,
    width: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Vectors, stretches, and elements left over from vectors of reductions whose innermost axis
    stays; shape (k,).

    A maximum goes through four vectors of 32 bytes side by side, and through what a stretch leaves
    of them element by element: 137 x 41 stretches of 504 floats take 360 us, of which 300 are the
    last 24 of each. Sums take single vectors, a mean those of the 32-bit copy of its input (ATen
    Reduce.h, vectorized_outer_reduction; SumKernel.cpp; EPYC 9005).

    Args:
        names: Names of the reductions.
        rows: Results, shape (k,).
        columns: Elements of each.
        inner: Results that lie together; 0 where all do.
        width: Bytes of an element.
    """
    most = np.array([name.startswith(("amax", "amin")) for name in names], dtype=bool)
    mean = np.array([name.startswith("mean") for name in names], dtype=bool)
    lanes = np.select([most, mean], [128.0 / width, np.full(len(names), 8.0)], 32.0 / width)
    together = np.where(inner > 0, inner, np.maximum(rows, 1.0))
    stretches = columns * rows / together
    return stretches * np.floor(together / lanes), stretches, stretches * (together % lanes)


def _scan_counts(
    names: Sequence[str], rows: FloatArray, columns: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, elements, and what each costs further, shape (k,): comparisons of a sort, steps across
    the last axis.

    Args:
        names: Names of scans and sorts.
        rows: Rows, shape (k,).
        columns: Elements of each.
    """
    elements = rows * columns
    is_sum = np.array([name.startswith("cum") for name in names], dtype=bool)
    spread = np.array([name.endswith(".across") for name in names], dtype=bool)
    compared = elements * np.log2(np.maximum(columns, 2.0))
    return rows, elements, np.where(is_sum, elements * spread, compared)


def mean_copy_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes of the 32-bit copy that a mean in 16 bits makes of its input, written and read, shape
    (n,).
    """
    kind = OperatorKind.REDUCTION
    found = (graph.kind == int(kind)) & (DTYPE_BYTES[graph.dtype] == 2)
    rows = np.array(
        [row for row in np.flatnonzero(found).tolist() if graph.name[row].startswith("mean")],
        dtype=np.int64,
    )
    copied = np.zeros(len(graph))
    copied[rows] = (
        8.0 * graph.dimension("rows", rows, kind) * graph.dimension("columns", rows, kind)
    )
    return copied
