"""Cycles of one systolic array, active processing elements of a row-stationary one, and the traffic
a scratchpad forces.

A product has M output pixels, N filters and a window of K. The stall-free closed forms equal
SCALE-Sim v2 and v3 (Samajdar et al., ISPASS 2020) cycle for cycle: every fold fills and drains the
array before the next begins. The pipelined forms are for arrays that load the next fold's
stationary operand while the present one streams, as the TPU does (Jouppi et al., ISCA 2017, section
2): the skew is paid once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import Dataflow
from accelsim.workloads.graph import FloatArray

#: Which of M, N and K lies down the array, across it, and streams through it.
_SIDES = {
    Dataflow.OUTPUT_STATIONARY: (0, 1, 2),
    Dataflow.WEIGHT_STATIONARY: (2, 1, 0),
    Dataflow.INPUT_STATIONARY: (2, 0, 1),
}

#: Bytes of one partial sum over those of one output element: 32-bit sums of bytes (Jouppi et al.,
#: ISCA 2017, section 2).
_ACCUMULATOR_BYTES = 4.0


class Folding(NamedTuple):
    """A product on an array; columns of the broadcast shape.

    Attributes:
        down: Side along the array's rows.
        across: Side along its columns.
        stream: Vectors that stream through in each fold.
        rows: R.
        columns: C.
        row_folds: Folds of `down`.
        column_folds: Folds of `across`.
    """

    down: FloatArray
    across: FloatArray
    stream: FloatArray
    rows: FloatArray
    columns: FloatArray
    row_folds: FloatArray
    column_folds: FloatArray


def folding(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
) -> Folding:
    """How a product folds over an array (Samajdar et al., ISPASS 2020).

    Args:
        m: As in `systolic_cycles`, like the other arguments.
        n: Filters.
        k: Window.
        rows: R >= 1.
        columns: C >= 1.
        dataflow: As in `systolic_cycles`.

    Raises:
        InvalidValueError: If the array is empty or the dataflow has no closed form.
    """
    if not (np.all(np.asarray(rows) >= 1) and np.all(np.asarray(columns) >= 1)):
        raise InvalidValueError("rows x columns", (rows, columns), "at least 1 x 1")
    if dataflow not in _SIDES:
        raise InvalidValueError("dataflow", dataflow, "output, weight or input stationary")
    *sides, height, width = np.broadcast_arrays(
        *(np.asarray(side, dtype=np.float64) for side in (m, n, k, rows, columns))
    )
    down, across, stream = (sides[place] for place in _SIDES[dataflow])
    folds = np.ceil(down / height), np.ceil(across / width)
    return Folding(down, across, stream, height, width, *folds)


def systolic_cycles(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
) -> FloatArray:
    """Stall-free cycles of one product on a rows x columns array, as SCALE-Sim counts them.

    OS: ceil(M/R) ceil(N/C) (K + R + C - 2); WS: ceil(K/R) ceil(N/C) (M + 2R + C - 2); IS: ceil(K/R)
        ceil(M/C)
    (N + 2R + C - 2). Samajdar et al., "A systematic methodology for characterizing scalability of
    DNN accelerators using SCALE-Sim", ISPASS 2020.

    Args:
        m: Output pixels, >= 0.
        n: Filters, >= 0.
        k: Window, >= 0.
        rows: R >= 1.
        columns: C >= 1.
        dataflow: OUTPUT_STATIONARY, WEIGHT_STATIONARY or INPUT_STATIONARY.

    Returns:
        Cycles, broadcast shape; 0 for an empty product.

    Raises:
        InvalidValueError: If the array is empty or the dataflow has no closed form.
    """
    return _cycles(folding(m, n, k, rows, columns, dataflow), dataflow, pipelined=False)


def pipelined_cycles(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
) -> FloatArray:
    """Cycles when folds follow each other without draining the array in between.

    Jouppi et al., ISCA 2017 (TPU), section 2: the next weights load while the present tile streams.

    Each fold takes the longer of its stream and the R cycles that load (or unload) the stationary
    operand in the shadow of the fold before; the first load and the last skew are paid once. Never
    more than `systolic_cycles`.

    Args:
        m: As in `systolic_cycles`, like the other arguments.
        n: Filters.
        k: Window.
        rows: R >= 1.
        columns: C >= 1.
        dataflow: As in `systolic_cycles`.
    """
    return _cycles(folding(m, n, k, rows, columns, dataflow), dataflow, pipelined=True)


def _cycles(product: Folding, dataflow: Dataflow, *, pipelined: bool) -> FloatArray:
    fills = 1 if dataflow is Dataflow.OUTPUT_STATIONARY else 2
    once = fills * product.rows + product.columns - 2
    folds = product.row_folds * product.column_folds
    cycles = folds * (product.stream + once)
    if pipelined:
        overlapped = folds * np.maximum(product.stream, product.rows) + once
        cycles = np.minimum(overlapped, cycles)
    has_work = (folds > 0) & (product.stream > 0)
    return np.where(has_work, cycles, 0.0)


def row_stationary_active_pes(
    kernel_rows: ArrayLike, output_rows: ArrayLike, rows: float, columns: float
) -> FloatArray:
    """Processing elements at work in Eyeriss' row-stationary mapping.

    A set of kernel_rows x output_rows elements convolves one channel; sets stack in strips of the
    array. Sets wider than the strips fold over several passes. Chen et al., Eyeriss, JSSC 52(1),
    2017, section III; reproduces the active counts of its table V within 3 %.

    Args:
        kernel_rows: Height of the filter, >= 1; taller than the array folds.
        output_rows: Height of the output, >= 1.
        rows: Array height.
        columns: Array width.

    Returns:
        Elements, 1 to rows x columns, broadcast shape.
    """
    height = np.minimum(np.maximum(np.asarray(kernel_rows, dtype=np.float64), 1.0), rows)
    width = np.maximum(np.asarray(output_rows, dtype=np.float64), 1.0)
    strips = np.floor(rows / height)
    narrow = strips * np.floor(columns / width) * width
    places = strips * columns
    passes = np.ceil(width / places)
    sets = np.floor(places / width)
    wide = np.where(width >= places, width / passes, np.maximum(sets, 1.0) * width)
    active: FloatArray = height * np.where(width <= columns, narrow, wide)
    return active


def memory_traffic_bytes(
    left_bytes: ArrayLike,
    right_bytes: ArrayLike,
    output_bytes: ArrayLike,
    sram_bytes: float,
    sides: tuple[ArrayLike, ArrayLike],
) -> FloatArray:
    """Main-memory bytes of one product under the best of three loop orders, with half the
    scratchpad per buffer.

    Everything fits: each operand moves once. Otherwise the least of: a chunk of the left operand
    stays while the right streams past it; the reverse; a block of partial sums stays while both
    stream, square where the results are not narrower than its side. Double buffering leaves half
    the capacity to each chunk. Follows the reuse analysis of Yang et al., Interstellar, ASPLOS
    2020.

    Args:
        left_bytes: Left operand (activations), >= 0.
        right_bytes: Right operand (weights), >= 0.
        output_bytes: Results, written once, >= 0.
        sram_bytes: Scratchpad capacity; infinite for none needed, > 0.
        sides: Rows and columns of the results, >= 1.

    Returns:
        Bytes, broadcast shape; at least each operand once.
    """
    if not sram_bytes > 0:
        raise InvalidValueError("sram_bytes", sram_bytes, "a capacity above 0")
    left, right, output, m, n = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left_bytes, right_bytes, output_bytes, *sides))
    )
    half = sram_bytes / 2
    keep_left = left + right * np.maximum(np.ceil(left / half), 1.0)
    keep_right = right + left * np.maximum(np.ceil(right / half), 1.0)
    m, n = np.maximum(m, 1.0), np.maximum(n, 1.0)
    area = np.maximum(half / np.maximum(output * _ACCUMULATOR_BYTES / (m * n), 1e-9), 1.0)
    narrow = np.minimum(np.minimum(m, n), np.sqrt(area))
    wide = np.minimum(np.maximum(m, n), area / narrow)
    across, down = np.where(n <= m, (narrow, wide), (wide, narrow))
    keep_output = left * np.ceil(n / across) + right * np.ceil(m / down)
    best = np.minimum(np.minimum(keep_left, keep_right), keep_output)
    traffic: FloatArray = np.where(left + right + output <= sram_bytes, left + right, best) + output
    return traffic
