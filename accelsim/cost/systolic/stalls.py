"""Memory stalls of a systolic array with a double-buffered scratchpad and a memory port per
operand.

Half of each scratchpad holds what the array uses, the other half what is being loaded. An operand
that does not fit its half keeps a part there and fetches the rest again in every pass; the better
of the two fold orders counts. The reuse analysis follows Yang et al., Interstellar, ASPLOS 2020.
Loading overlaps computing, except for the first tile and the last result, which nothing can hide:
time is fill + max(compute, words per port) + drain. That is at least the compute time and at least
every port's words over its bandwidth, falls with bandwidth and capacity, and converges to the
stall-free form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from accelsim.cost.systolic.cycles import pipelined_cycles, systolic_cycles
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import Dataflow
from accelsim.workloads.graph import FloatArray

__all__ = ["MemoryPorts", "Scratchpads", "StalledRun", "stalled_run", "tile_words"]


@dataclass(frozen=True, slots=True, eq=False)
class Scratchpads:
    """Capacity of each operand's scratchpad in words, both halves together; scalars or arrays that
    broadcast.
    """

    input_words: ArrayLike
    weight_words: ArrayLike
    output_words: ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPorts:
    """Words per array cycle of each operand's memory port, and of the memory behind all of them."""

    input_words_per_cycle: ArrayLike = np.inf
    weight_words_per_cycle: ArrayLike = np.inf
    output_words_per_cycle: ArrayLike = np.inf
    shared_words_per_cycle: ArrayLike = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class StalledRun:
    """One product on one array with its memory; columns of the broadcast shape.

    Attributes:
        cycles: Total.
        compute_cycles: Stall-free cycles.
        fill_cycles: Before the first multiply-add.
        drain_cycles: After the last one.
        input_words: Words fetched from main memory.
        weight_words: Words of weights fetched.
        output_words: Words written, spilled partial sums and their way back included.
    """

    cycles: FloatArray
    compute_cycles: FloatArray
    fill_cycles: FloatArray
    drain_cycles: FloatArray
    input_words: FloatArray
    weight_words: FloatArray
    output_words: FloatArray

    @property
    def stall_cycles(self) -> FloatArray:
        """Cycles beyond the stall-free ones."""
        return self.cycles - self.compute_cycles


class _Words(NamedTuple):
    """Words of each operand."""

    inputs: FloatArray
    weights: FloatArray
    outputs: FloatArray


class _Shape(NamedTuple):
    m: FloatArray
    n: FloatArray
    k: FloatArray
    rows: FloatArray
    columns: FloatArray


def tile_words(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Words of inputs, weights and outputs that must be on chip before anything can run: one tile
    and one vector.

    Samajdar et al., ISPASS 2020 (SCALE-Sim) and its double-buffered scratchpads.

    Args:
        m: As in `systolic_cycles`, like the other arguments.
        n: Filters.
        k: Window.
        rows: R.
        columns: C.
        dataflow: Which operand is the tile.
    """
    shape = _broadcast(m, n, k, rows, columns)
    return tuple(_tile(shape, dataflow))  # type: ignore[return-value]


def stalled_run(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    dataflow: Dataflow,
    scratchpads: Scratchpads,
    ports: MemoryPorts,
    *,
    partial_sum_words: float = 1.0,
    pipelined: bool = False,
) -> StalledRun:
    """Cycles and main-memory words of products of M pixels, N filters and a window of K.

    Samajdar et al., ISPASS 2020 (SCALE-Sim) and its double-buffered scratchpads.

    Args:
        m: Output pixels, >= 1.
        n: Filters, >= 1.
        k: Window, >= 1.
        rows: R >= 1.
        columns: C >= 1.
        dataflow: Output, weight or input stationary.
        scratchpads: Capacities; each half must hold its tile (`tile_words`).
        ports: Bandwidths, > 0.
        partial_sum_words: Width of a partial sum over that of an operand.
        pipelined: Whether folds overlap their fills (`pipelined_cycles`).

    Raises:
        InvalidValueError: If a bandwidth or capacity is not above 0, or the array is empty.
    """
    shape = _broadcast(m, n, k, rows, columns)
    halves = _Words(*(_positive("scratchpad", size) / 2 for size in _sizes(scratchpads)))
    rates = _Words(*(_positive("bandwidth", rate) for rate in _rates(ports)))
    shared = _positive("bandwidth", ports.shared_words_per_cycle)
    form = pipelined_cycles if pipelined else systolic_cycles
    compute = form(*shape, dataflow)
    tile, last = _tile(shape, dataflow), _last_result(shape, dataflow)
    fill = _port_cycles(_Words(tile.inputs, tile.weights, np.zeros_like(last)), rates, shared)
    drain = _port_cycles(_Words(np.zeros_like(last), np.zeros_like(last), last), rates, shared)
    best: tuple[FloatArray, _Words] | None = None
    for words in _orders(shape, dataflow, halves, partial_sum_words):
        hidden = _Words(
            words.inputs - tile.inputs, words.weights - tile.weights, words.outputs - last
        )
        total = fill + np.maximum(compute, _port_cycles(hidden, rates, shared)) + drain
        best = (total, words) if best is None else _better(best, total, words)
    assert best is not None
    columns_ = np.broadcast_arrays(best[0], compute, fill, drain, *best[1])
    return StalledRun(*columns_)


def _better(
    best: tuple[FloatArray, _Words], total: FloatArray, words: _Words
) -> tuple[FloatArray, _Words]:
    """The quicker order; of two equally quick ones the one that moves less."""
    old, kept = best
    wins = (total < old) | ((total == old) & (sum(words) < sum(kept)))
    return np.where(wins, total, old), _Words(
        *(np.where(wins, a, b) for a, b in zip(words, kept, strict=True))
    )


def _broadcast(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, rows: ArrayLike, columns: ArrayLike
) -> _Shape:
    return _Shape(
        *np.broadcast_arrays(
            *(np.asarray(side, dtype=np.float64) for side in (m, n, k, rows, columns))
        )
    )


def _sizes(pads: Scratchpads) -> tuple[ArrayLike, ...]:
    return pads.input_words, pads.weight_words, pads.output_words


def _rates(ports: MemoryPorts) -> tuple[ArrayLike, ...]:
    return ports.input_words_per_cycle, ports.weight_words_per_cycle, ports.output_words_per_cycle


def _positive(field: str, value: ArrayLike) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > 0):
        raise InvalidValueError(field, value, "above 0")
    return array


def _port_cycles(words: _Words, rates: _Words, shared: FloatArray) -> FloatArray:
    """Cycles the slowest port needs; the memory behind them carries all words."""
    each = np.maximum(
        np.maximum(words.inputs / rates.inputs, words.weights / rates.weights),
        words.outputs / rates.outputs,
    )
    cycles: FloatArray = np.maximum(each, (words.inputs + words.weights + words.outputs) / shared)
    return cycles


def _tile(shape: _Shape, dataflow: Dataflow) -> _Words:
    """One stationary tile and one vector of what streams past it."""
    m, n, k, rows, columns = shape
    if dataflow is Dataflow.OUTPUT_STATIONARY:
        down, across = np.minimum(m, rows), np.minimum(n, columns)
        return _Words(down, across, across)
    if dataflow is Dataflow.WEIGHT_STATIONARY:
        down, across = np.minimum(k, rows), np.minimum(n, columns)
        return _Words(down, down * across, across)
    down, across = np.minimum(k, rows), np.minimum(m, columns)
    return _Words(down * across, down, across)


def _last_result(shape: _Shape, dataflow: Dataflow) -> FloatArray:
    """Words still to be written when the last multiply-add is done: the last fold's tile, or its
    last vector.
    """
    m, n, _, rows, columns = shape
    across = m if dataflow is Dataflow.INPUT_STATIONARY else n
    width: FloatArray = across - (np.ceil(across / columns) - 1) * columns
    if dataflow is not Dataflow.OUTPUT_STATIONARY:
        return width
    height: FloatArray = m - (np.ceil(m / rows) - 1) * rows
    return height * width


def _orders(
    shape: _Shape, dataflow: Dataflow, halves: _Words, width: float
) -> tuple[_Words, _Words]:
    """Main-memory words of each operand under both fold orders."""
    m, n, k, rows, columns = shape
    if dataflow is Dataflow.OUTPUT_STATIONARY:
        return _output_orders(shape, halves)
    is_weight = dataflow is Dataflow.WEIGHT_STATIONARY
    across, stream, operand = (n, m, halves.inputs) if is_weight else (m, n, halves.weights)
    orders = _stationary_orders(across, stream, k, rows, columns, operand, halves.outputs, width)
    if is_weight:
        column_first, row_first = (_Words(streamed, n * k, sums) for streamed, sums in orders)
    else:
        column_first, row_first = (_Words(m * k, streamed, sums) for streamed, sums in orders)
    return column_first, row_first


def _refetched(strip: FloatArray, capacity: FloatArray, passes: FloatArray) -> FloatArray:
    """Words fetched for `passes` uses of a strip of which `capacity` stays."""
    words: FloatArray = strip + (passes - 1) * np.maximum(strip - capacity, 0.0)
    return words


def _output_orders(shape: _Shape, halves: _Words) -> tuple[_Words, _Words]:
    m, n, k, rows, columns = shape
    row_folds, column_folds = np.ceil(m / rows), np.ceil(n / columns)
    column_first = _Words(
        _refetched(m * k, halves.inputs, column_folds),
        column_folds * _refetched(n * k / column_folds, halves.weights, row_folds),
        m * n,
    )
    row_first = _Words(
        row_folds * _refetched(m * k / row_folds, halves.inputs, column_folds),
        _refetched(n * k, halves.weights, row_folds),
        m * n,
    )
    return column_first, row_first


def _stationary_orders(
    across: FloatArray,
    stream: FloatArray,
    k: FloatArray,
    rows: FloatArray,
    columns: FloatArray,
    operand: FloatArray,
    results: FloatArray,
    width: float,
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Words of the streamed operand and of the results, column folds outside and row folds outside.

    A partial sum that does not stay on chip between two row folds is written and read back.
    """
    row_folds, column_folds = np.ceil(k / rows), np.ceil(across / columns)
    outputs, operands = stream * across, stream * k
    strip = np.maximum(width * outputs / column_folds - results, 0.0)
    column_first = (
        _refetched(operands, operand, column_folds),
        outputs + 2 * (row_folds - 1) * column_folds * strip,
    )
    whole = np.maximum(width * outputs - results, 0.0)
    row_first = (
        row_folds * _refetched(operands / row_folds, operand, column_folds),
        outputs + 2 * (row_folds - 1) * whole,
    )
    return column_first, row_first
