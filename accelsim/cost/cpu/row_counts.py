"""What vectors make of operators that go through rows: norms, softmax, reductions, scans
and sorts.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.cpu.kind_rows import KindRows, rows_of_kind
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.variant import Trait

_Counts = tuple[FloatArray, FloatArray, FloatArray]
_LINE_BYTES = 64.0
#: Reductions that leave or order every element.
_SUMS = frozenset({"cumsum", "cumprod", "cummax", "cummin"})
_SCANS = _SUMS | {"logcumsumexp", "sort", "argsort", "kthvalue", "median"}
#: Reductions whose results are places or truths.
_TRUTHS = frozenset({"all", "any"})
_EXTREMES = frozenset({"amax", "amin"})
_MEANS = frozenset({"mean"})
_LOGARITHMS = frozenset({"_log_softmax", "_log_softmax_backward_data", "log_softmax"})
_MASKED = frozenset({"_masked_softmax"})


def row_counts(rows: KindRows) -> _Counts:
    """Rows, vectors of a cache line, and elements left over from whole vectors, shape (k,).

    Args:
        rows: Rows of norms, softmaxes or reductions.
    """
    count, columns, lanes = rows["rows"], rows["columns"], _LINE_BYTES / rows.width
    return count, count * np.ceil(columns / lanes), count * (columns % lanes)


def softmax_counts(rows: KindRows) -> _Counts:
    """As `row_counts`, with what a row leaves of whole vectors in the time of one element (ATen
    vec_host_softmax_lastdim).

    A row shorter than a vector is taken element by element. A part vector after whole ones takes as
    long as an element; in a softmax of 16 bits sixteen of its elements 3 ns each, further ones 5 up
    to the fifth and 8 beyond: 28, 50, 116, 147, 78 and 196 ns a row of 32, 37, 42, 47, 48 and 63
    (EPYC 9005, torch 2.13). One that leaves out what a mask names takes all elements one by one:
    3.6 ns each, 10.4 in bf16.

    Args:
        rows: Rows of the kind.
    """
    count, vectors, _ = row_counts(rows)
    columns, lanes = rows["columns"], _LINE_BYTES / rows.width
    left = columns % lanes
    parts = np.where(columns < lanes, np.minimum(columns, 16.0), left > 0)
    logarithm = rows.is_operation(_LOGARITHMS)
    masked = rows.is_operation(_MASKED)
    across = rows.has_trait(Trait.ACROSS)
    rest = left % 16
    halves = left - rest + 2.5 * rest - np.minimum(rest, 5.0)
    single = np.where(
        masked, columns, np.where((rows.width == 2) & ~logarithm & ~rows.is_backward, halves, parts)
    )
    return (
        count,
        np.where(across, count * columns / lanes, vectors),
        np.where(across, 0.0, count * single),
    )


def reduction_counts(rows: KindRows) -> _Counts:
    """Rows, vectors of a cache line (elements for a maximum's place), and what is left of blocks of
    four 32-byte vectors.

    Of places and truths elements are counted, what is left is taken one by one (ATen Reduce.h,
    vectorized_inner_reduction). Where the innermost axis stays, and of gradients, which are added
    up over samples, as `_outer_counts` says.

    Args:
        rows: Rows of the kind.
    """
    count, vectors, _ = row_counts(rows)
    columns = rows["columns"]
    placed = rows.has_trait(Trait.PLACES) | rows.is_operation(_TRUTHS)
    left = count * (columns % (2.0 * _LINE_BYTES / rows.width))
    outer = rows.has_trait(Trait.OUTER) | (rows.is_backward & ~placed)
    scans = rows.is_operation(_SCANS)
    first, second, third = (
        np.select([scans, outer], [scan, way], plain)
        for scan, way, plain in zip(
            _scan_counts(rows),
            _outer_counts(rows),
            (count, np.where(placed, count * columns, vectors), np.where(placed, 0.0, left)),
            strict=True,
        )
    )
    return first, second, third


def _outer_counts(rows: KindRows) -> _Counts:
    """Vectors, stretches, and elements left over from vectors of reductions whose innermost axis
    stays; shape (k,).

    A maximum goes through four vectors of 32 bytes side by side, and through what a stretch leaves
    of them element by element: 137 x 41 stretches of 504 floats take 360 us, of which 300 are the
    last 24 of each. Sums take single vectors, a mean those of the 32-bit copy of its input (ATen
    Reduce.h, vectorized_outer_reduction; SumKernel.cpp; EPYC 9005).

    Args:
        rows: Rows of the kind.
    """
    extreme = rows.is_operation(_EXTREMES)
    mean = rows.is_operation(_MEANS)
    count, inner, width = rows["rows"], rows["inner"], rows.width
    lanes = np.select([extreme, mean], [128.0 / width, np.full(len(rows), 8.0)], 32.0 / width)
    together = np.where(inner > 0, inner, np.maximum(count, 1.0))
    stretches = rows["columns"] * count / together
    return stretches * np.floor(together / lanes), stretches, stretches * (together % lanes)


def _scan_counts(rows: KindRows) -> _Counts:
    """Rows, elements, and what each costs further, shape (k,): comparisons of a sort, steps across
    the last axis.

    Args:
        rows: Rows of the kind.
    """
    count, columns = rows["rows"], rows["columns"]
    elements = count * columns
    is_sum = rows.is_operation(_SUMS)
    spread = rows.has_trait(Trait.ACROSS)
    compared = elements * np.log2(np.maximum(columns, 2.0))
    return count, elements, np.where(is_sum, elements * spread, compared)


def mean_copy_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes of the 32-bit copy that a mean in 16 bits makes of its input, written and read, shape
    (n,).
    """
    rows = rows_of_kind(graph, OperatorKind.REDUCTION)
    narrow = (rows.width == 2) & rows.is_operation(_MEANS)
    copied = np.zeros(len(graph))
    copied[rows.index] = 8.0 * rows["rows"] * rows["columns"] * narrow
    return copied
