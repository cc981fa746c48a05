"""What a systolic array does with a product beside taking time: mapping, utilisation, scratchpad
accesses.

The counts follow from the folds alone and equal those of SCALE-Sim v2 and v3 (Samajdar et al.,
ISPASS 2020; simulator code at 22f88b17 and 1d62b68a) where those count what the array does. Its
reports differ from its own simulation in four places, which ``compat="scalesim"`` reproduces: the
cycle count is one less than simulated; the fill of weight- and input-stationary folds counts one
array width too long in the utilisation; every output-stationary fold adds R + C to the output
writes; and the overall utilisation divides by the cycles so reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from accelsim.cost.systolic.cycles import systolic_cycles
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import Dataflow
from accelsim.workloads.graph import FloatArray

__all__ = ["COMPATIBLE", "ArrayCounts", "Compatibility", "array_counts"]

Compatibility = Literal["", "scalesim"]
COMPATIBLE: Final[tuple[Compatibility, ...]] = ("", "scalesim")


@dataclass(frozen=True, slots=True, eq=False)
class ArrayCounts:
    """One product on one array; every column has the broadcast shape of the products and arrays.

    Attributes:
        cycles: Stall-free cycles.
        mapping_efficiency_fraction: Elements with work, mean over the folds.
        utilisation_fraction: Multiply-adds over elements x cycles.
        overall_utilisation_fraction: The same over reported cycles (the same thing without
            ``compat``).
        input_reads: Activation words read from their scratchpad.
        weight_reads: Weight words.
        output_writes: Output or partial-sum words written.
    """

    cycles: FloatArray
    mapping_efficiency_fraction: FloatArray
    utilisation_fraction: FloatArray
    overall_utilisation_fraction: FloatArray
    input_reads: FloatArray
    weight_reads: FloatArray
    output_writes: FloatArray


def array_counts(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
    compat: Compatibility = "",
) -> ArrayCounts:
    """Counts of products of M pixels, N filters and a window of K.

    Samajdar et al., ISPASS 2020 (SCALE-Sim).

    Args:
        m: Output pixels, >= 1.
        n: Filters, >= 1.
        k: Window, >= 1.
        rows: R >= 1.
        columns: C >= 1.
        dataflow: Output, weight or input stationary.
        compat: "scalesim" for what its reports print.

    Raises:
        InvalidValueError: If an array or product is empty, or `compat` is unknown.
    """
    if compat not in COMPATIBLE:
        raise InvalidValueError("compat", compat, "'' or 'scalesim'")
    pixels, filters, window, r, c = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (m, n, k, rows, columns))
    )
    if pixels.size and min(float(x.min()) for x in (pixels, filters, window)) < 1:
        raise InvalidValueError("m, n, k", "a side below 1", "products of at least 1 x 1 x 1")
    cycles = systolic_cycles(pixels, filters, window, r, c, dataflow)
    down = pixels if dataflow is Dataflow.OUTPUT_STATIONARY else window
    across = pixels if dataflow is Dataflow.INPUT_STATIONARY else filters
    row_folds, column_folds = np.ceil(down / r), np.ceil(across / c)
    folds = row_folds * column_folds
    spent, reported, extra = cycles, cycles, np.zeros_like(cycles)
    if compat:
        is_output = dataflow is Dataflow.OUTPUT_STATIONARY
        reported = cycles - 1
        spent = cycles if is_output else cycles + folds * (c - 1)
        extra = folds * (r + c) if is_output else extra
    work = pixels * filters * window
    inputs, weights, outputs = _accesses(pixels, filters, window, row_folds, column_folds, dataflow)
    return ArrayCounts(
        cycles=reported,
        mapping_efficiency_fraction=down * across / (folds * r * c),
        utilisation_fraction=work / (r * c * spent),
        overall_utilisation_fraction=work / (r * c * reported),
        input_reads=inputs,
        weight_reads=weights,
        output_writes=outputs + extra,
    )


def _accesses(
    m: FloatArray,
    n: FloatArray,
    k: FloatArray,
    row_folds: FloatArray,
    column_folds: FloatArray,
    dataflow: Dataflow,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scratchpad words: the streamed operands once per fold across them, partial sums once per fold
    of the window.
    """
    if dataflow is Dataflow.OUTPUT_STATIONARY:
        return m * k * column_folds, n * k * row_folds, m * n
    if dataflow is Dataflow.WEIGHT_STATIONARY:
        return m * k * column_folds, n * k, m * n * row_folds
    return m * k, n * k * column_folds, m * n * row_folds
