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
    down, across, stream = (sides[index] for index in _SIDES[dataflow])
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
    ceil(M/C) (N + 2R + C - 2). Samajdar et al., "A systematic methodology for characterizing
    scalability of DNN accelerators using SCALE-Sim", ISPASS 2020.

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
    """Folds of SCALE-Sim (Samajdar et al., ISPASS 2020), pipelined as in the TPU (Jouppi et al.,
    ISCA 2017).
    """
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
    return height * np.where(width <= columns, narrow, wide)


def row_stationary_product_pes(output_rows: ArrayLike, rows: float, columns: float) -> FloatArray:
    """Processing elements at work on a product of so many rows, one element each, whole or folded
    into sets of at most one or two widths of the array, whichever fills it best.

    Chen et al., Eyeriss, JSSC 52(1), 2017, section III: a mapping folds what is wider than the
    array, and its compiler picks the best; equal folds are an estimate.

    Args:
        output_rows: Rows of the product, >= 1.
        rows: Array height.
        columns: Array width.

    Returns:
        Elements, mean over the folds, shape of `output_rows`.
    """
    height = np.maximum(np.asarray(output_rows, dtype=np.float64), 1.0)
    folds = np.stack([np.ceil(height / width) for width in (np.inf, 2 * columns, columns)])
    folds = np.maximum(folds, 1.0)
    widest = np.ceil(height / folds)
    active = row_stationary_active_pes(1.0, widest, rows, columns)
    best: FloatArray = (active * height / (folds * widest)).max(axis=0)
    return best


def memory_traffic_bytes(
    left_bytes: ArrayLike,
    right_bytes: ArrayLike,
    output_bytes: ArrayLike,
    sram_bytes: float,
) -> FloatArray:
    """Main-memory bytes of one product under the best of its loop orders, with half the scratchpad
    for a chunk of an operand and half for partial sums and what streams.

    Everything fits: each operand moves once. Otherwise the left operand is cut into parts and the
    right streams past each, or the reverse: what half the scratchpad holds of a part stays, the
    rest of it streams past each block of partial sums. Follows the reuse analysis of Yang et al.,
    Interstellar, ASPLOS 2020.

    Args:
        left_bytes: Left operand (activations), >= 0.
        right_bytes: Right operand (weights), >= 0.
        output_bytes: Results, written once, >= 0.
        sram_bytes: Scratchpad capacity; infinite for none needed, > 0.

    Returns:
        Bytes, broadcast shape; at least each operand once.
    """
    if not sram_bytes > 0:
        raise InvalidValueError("sram_bytes", sram_bytes, "a capacity above 0")
    left, right, output = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left_bytes, right_bytes, output_bytes))
    )
    half = sram_bytes / 2
    blocks = output * _ACCUMULATOR_BYTES / half
    best = np.minimum(
        _operand_bytes(left, right, blocks, half), _operand_bytes(right, left, blocks, half)
    )
    traffic: FloatArray = np.where(left + right + output <= sram_bytes, left + right, best) + output
    return traffic


def _operand_bytes(
    stationary: FloatArray, streamed: FloatArray, blocks: FloatArray, half: float
) -> FloatArray:
    """Bytes of both operands under the best number of parts of the one that is kept.

    Estimate: blocks count as fractions. More parts move less until all of a part stays, its sums
    are one block, or what streams more outweighs it.

    Args:
        stationary: Bytes of the operand that is cut, shape (r,).
        streamed: Of the other, read once per part.
        blocks: Blocks that all partial sums fill.
        half: Bytes of a part that stay.
    """
    least = np.minimum(
        np.minimum(stationary / half, blocks), np.sqrt(stationary * blocks / (streamed + half))
    )
    parts = np.maximum([np.floor(least), np.ceil(least)], 1.0)
    stays = np.minimum(stationary, parts * half)
    past = (stationary - stays) * np.maximum(blocks / parts, 1.0)
    best: FloatArray = (parts * streamed + stays + past).min(axis=0)
    return best
