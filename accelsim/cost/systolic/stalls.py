"""Memory stalls of a systolic array with a double-buffered scratchpad per operand and one main
memory.

Half of each scratchpad holds what the array uses, the other half what is being loaded. An operand
that does not fit its half keeps a part there and fetches the rest again in every pass; the better
of the two fold orders counts. The reuse analysis follows Yang et al., Interstellar, ASPLOS 2020.
Loading overlaps computing, except for the first tile and the last result, which nothing can hide:
time is fill + max(compute, words over bandwidth) + drain. That is at least the compute time and at
least all words over the bandwidth, falls with bandwidth and capacity, and converges to the
stall-free form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from accelsim.cost.systolic.cycles import Folding, folding, pipelined_cycles, systolic_cycles
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import Dataflow
from accelsim.workloads.graph import FloatArray

#: Places of operands in all columns of words.
_INPUTS, _WEIGHTS, _OUTPUTS = range(3)
#: What is fetched again in every column fold, and what in every row fold.
_REFETCHED = {
    Dataflow.OUTPUT_STATIONARY: (_INPUTS, _WEIGHTS),
    Dataflow.WEIGHT_STATIONARY: (_INPUTS, _OUTPUTS),
    Dataflow.INPUT_STATIONARY: (_WEIGHTS, _OUTPUTS),
}


class ArrayProduct(NamedTuple):
    """Products on an array; columns that broadcast.

    Attributes:
        m: Output pixels, >= 1.
        n: Filters, >= 1.
        k: Window, >= 1.
        rows: R >= 1.
        columns: C >= 1.
        dataflow: Output, weight or input stationary.
    """

    m: ArrayLike
    n: ArrayLike
    k: ArrayLike
    rows: ArrayLike
    columns: ArrayLike
    dataflow: Dataflow


@frozen(eq=False)
class StalledRun:
    """One product on one array with its memory; columns of the broadcast shape.

    Attributes:
        cycles: Total.
        compute_cycles: Stall-free cycles.
        words: Inputs and weights fetched from main memory, and results written to it, spilled
            partial sums and their way back included; shape (3, ...).
    """

    cycles: FloatArray
    compute_cycles: FloatArray
    words: FloatArray


def tile_words(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
) -> FloatArray:
    """Words of inputs, weights and outputs that must be on chip before anything can run: one
    stationary tile and one vector of what streams past it, shape (3, ...).

    Samajdar et al., ISPASS 2020 (SCALE-Sim) and its double-buffered scratchpads.

    Args:
        m: As in `systolic_cycles`, like the other arguments.
        n: Filters.
        k: Window.
        rows: R.
        columns: C.
        dataflow: Which operand is the tile.
    """
    product = folding(m, n, k, rows, columns, dataflow)
    down, across = (
        np.minimum(product.down, product.rows),
        np.minimum(product.across, product.columns),
    )
    tiles = {
        Dataflow.OUTPUT_STATIONARY: (down, across, across),
        Dataflow.WEIGHT_STATIONARY: (down, down * across, across),
        Dataflow.INPUT_STATIONARY: (down * across, down, across),
    }
    return np.stack(tiles[dataflow])


def stalled_run(
    product: ArrayProduct,
    scratchpad_words: Sequence[ArrayLike] | FloatArray,
    words_per_cycle: ArrayLike = np.inf,
    *,
    partial_sum_words: float = 1.0,
    pipelined: bool = False,
) -> StalledRun:
    """Cycles and main-memory words of products of M pixels, N filters and a window of K.

    Samajdar et al., ISPASS 2020 (SCALE-Sim) and its double-buffered scratchpads.

    Args:
        product: The products and the array.
        scratchpad_words: Capacity of the scratchpads of inputs, weights and outputs, both halves
            together; each half must hold its tile (`tile_words`).
        words_per_cycle: Bandwidth of main memory, > 0.
        partial_sum_words: Width of a partial sum over that of an operand.
        pipelined: Whether folds overlap their fills (`pipelined_cycles`).

    Raises:
        InvalidValueError: If a bandwidth or capacity is not above 0, or the array is empty.
    """
    m, n, k, rows, columns, rate, *pads = np.broadcast_arrays(
        *(np.asarray(side, dtype=np.float64) for side in product[:5]),
        _positive("bandwidth", words_per_cycle),
        *(_positive("scratchpad", size) for size in scratchpad_words),
    )
    dataflow = product.dataflow
    sides = (m, n, k, rows, columns, dataflow)
    compute = (pipelined_cycles if pipelined else systolic_cycles)(*sides)
    folded = folding(*sides)
    once = np.stack([m * k, n * k, m * n])
    exposed = tile_words(*sides)[:_OUTPUTS].sum(axis=0) + _last_result(folded, dataflow)
    best: StalledRun | None = None
    for words in _orders(folded, once, dataflow, np.stack(pads) / 2, partial_sum_words):
        hidden = np.maximum(compute, (words.sum(axis=0) - exposed) / rate)
        run = StalledRun(exposed / rate + hidden, compute, words)
        best = run if best is None else _better(best, run)
    assert best is not None
    return best


def _better(best: StalledRun, run: StalledRun) -> StalledRun:
    """The quicker order; of two equally quick ones the one that moves less."""
    moves_less = run.words.sum(axis=0) < best.words.sum(axis=0)
    wins = (run.cycles < best.cycles) | ((run.cycles == best.cycles) & moves_less)
    cycles = np.where(wins, run.cycles, best.cycles)
    return StalledRun(cycles, best.compute_cycles, np.where(wins, run.words, best.words))


def _positive(field: str, value: ArrayLike) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > 0):
        raise InvalidValueError(field, value, "above 0")
    return array


def _last_result(product: Folding, dataflow: Dataflow) -> FloatArray:
    """Words still to be written when the last multiply-add is done: the last fold's tile, or its
    last vector.
    """
    width: FloatArray = product.across - (product.column_folds - 1) * product.columns
    if dataflow is not Dataflow.OUTPUT_STATIONARY:
        return width
    return (product.down - (product.row_folds - 1) * product.rows) * width


def _orders(
    product: Folding, once: FloatArray, dataflow: Dataflow, halves: FloatArray, width: float
) -> Iterator[FloatArray]:
    """Main-memory words of each operand with column folds outside, and with row folds outside.

    A partial sum that does not stay on chip between two row folds is written and read back.
    """
    streamed, reused = _REFETCHED[dataflow]
    row_folds, column_folds = product.row_folds, product.column_folds
    is_sum = reused == _OUTPUTS
    held = once[reused] * (width if is_sum else 1.0)
    for streamed_strips, reused_strips in ((1.0, column_folds), (row_folds, 1.0)):
        words = once.copy()
        words[streamed] += _again(once[streamed], halves[streamed], column_folds, streamed_strips)
        again = _again(held, halves[reused], row_folds, reused_strips)
        words[reused] += again * (2.0 if is_sum else 1.0)
        yield words


def _again(
    words: FloatArray, capacity: FloatArray, passes: FloatArray, strips: FloatArray | float
) -> FloatArray:
    """Words fetched again for `passes` uses of each strip, of which `capacity` stays.

    Reuse after Yang et al. (Interstellar, ASPLOS 2020).
    """
    return strips * (passes - 1) * np.maximum(words / strips - capacity, 0.0)
