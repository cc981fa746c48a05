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

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from accelsim.cost.contraction import Contraction
from accelsim.cost.systolic.cycles import folding, systolic_cycles
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import Dataflow
from accelsim.workloads.graph import FloatArray

Compatibility = Literal["", "scalesim"]
#: Width of a partial sum, whatever the operands' (Jouppi et al., ISCA 2017, section 2: 32-bit
#: accumulators).
PARTIAL_SUM_BITS = 32.0


@frozen(eq=False)
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
    if compat not in get_args(Compatibility):
        raise InvalidValueError("compat", compat, "'' or 'scalesim'")
    pixels, filters, window, rows, columns = np.broadcast_arrays(
        *(np.asarray(side, dtype=np.float64) for side in (m, n, k, rows, columns))
    )
    if any(side.size and side.min() < 1 for side in (pixels, filters, window)):
        raise InvalidValueError("m, n, k", "a side below 1", "products of at least 1 x 1 x 1")
    sides = (pixels, filters, window, rows, columns, dataflow)
    cycles = systolic_cycles(*sides)
    down, across, _, height, width, row_folds, column_folds = folding(*sides)
    is_output = dataflow is Dataflow.OUTPUT_STATIONARY
    folds, elements = row_folds * column_folds, height * width
    spent, reported, extra = cycles, cycles, np.zeros_like(cycles)
    if compat:
        reported = cycles - 1
        spent = cycles if is_output else cycles + folds * (width - 1)
        extra = folds * (height + width) if is_output else extra
    # Streamed operands are read once per fold across them, partial sums written once per fold of
    # the window; the stationary operand moves once.
    moves = {
        Dataflow.OUTPUT_STATIONARY: (column_folds, row_folds, 1.0),
        Dataflow.WEIGHT_STATIONARY: (column_folds, 1.0, row_folds),
        Dataflow.INPUT_STATIONARY: (1.0, column_folds, row_folds),
    }
    inputs, weights, outputs = moves[dataflow]
    work = pixels * filters * window
    return ArrayCounts(
        cycles=reported,
        mapping_efficiency_fraction=down * across / (folds * elements),
        utilisation_fraction=work / (elements * spent),
        overall_utilisation_fraction=work / (elements * reported),
        input_reads=pixels * window * inputs,
        weight_reads=filters * window * weights,
        output_writes=pixels * filters * outputs + extra,
    )


def access_bits(
    shape: Contraction,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
    bits: FloatArray | float,
    weight_share: FloatArray | float,
) -> FloatArray:
    """Bits read and written at the scratchpads of inputs, weights and partial sums by one product
    of each group, shape (3, ...).

    Action counts as Accelergy's (Wu et al., ICCAD 2019).

    Args:
        shape: Products of at least 1 x 1 x 1.
        rows: R.
        columns: C.
        dataflow: Stationary operand.
        bits: Of one operand.
        weight_share: Share of the weights that are read.
    """
    counts = array_counts(shape.m, shape.n, shape.k, rows, columns, dataflow)
    sums = (2.0 * counts.output_writes - shape.m * shape.n) * PARTIAL_SUM_BITS
    return np.stack([counts.input_reads * bits, counts.weight_reads * weight_share * bits, sums])


def moving_bits(bits: FloatArray | float, dataflow: Dataflow) -> FloatArray | float:
    """Bits that a multiply-add passes on to the next element: both operands, or the one that
    streams and, unless it stays, the partial sum (dataflows of Samajdar et al., ISPASS 2020).
    """
    return 2.0 * bits if dataflow is Dataflow.OUTPUT_STATIONARY else bits + PARTIAL_SUM_BITS
