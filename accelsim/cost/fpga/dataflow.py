"""Streaming dataflow designs: every layer its own hardware, images flowing through.

A layer is a matrix-vector unit of MH x MW weights with PE x SIMD multipliers; it takes
(MH/PE)(MW/SIMD) cycles per input vector, and the slowest layer sets the frame rate (Umuroglu et
al., FINN, FPGA 2017, section 4). Lookup tables, block RAM and DSP blocks follow FINN-R's cost model
(Blott et al., ACM TRETS 11(3), 2018). Folding factors divide the matrix, and all weights stay on
chip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from accelsim.cost.fpga.fpga_parameters import FpgaParameters
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import FpgaProfile
from accelsim.hardware.sourced import value_of
from accelsim.workloads.graph import FloatArray

#: Widest operands multiplied in lookup tables; wider ones take DSP blocks.
_LUT_MULTIPLIER_BITS = 4
#: Words of an 18 kbit block RAM and their width, narrowest first (AMD UG573).
_BRAM18_WORDS = np.array([16384, 8192, 4096, 2048, 1024, 512])
_BRAM18_WIDTHS = np.array([1, 2, 4, 9, 18, 36])
#: Place of the widest words, for memories no deeper than they.
_WIDEST = 5
#: Deepest weight memory built from lookup tables (64 bits each) instead of block RAM: FINN-R.
_DISTRIBUTED_DEPTH = 128
_RESOURCES = ("lut_count", "bram_18k_count", "dsp_count")


@frozen
class StreamingNode:
    """One layer as a matrix-vector unit.

    Attributes:
        name: Layer name.
        mw: Matrix width: inputs of one output, >= 1.
        mh: Matrix height: outputs, >= 1.
        vectors: Input vectors per image (output pixels; 1 for fully connected layers), >= 1.
        weight_bits: Bits of a weight.
        activation_bits: Bits of an input.
        start_fraction: Share of an image that must arrive before the node starts (1 for fully
            connected layers).
        load_cycles: Cycles in which a window generator with a buffer of one whole map takes it in
            and gives no windows (the first FINN library, 2017); 0 for line buffers and fully
            connected layers.
    """

    name: str
    mw: int
    mh: int
    vectors: float
    weight_bits: int
    activation_bits: int
    start_fraction: float = 1.0
    load_cycles: float = 0.0


@frozen(eq=False)
class DataflowDesign:
    """A folded network; columns of shape (nodes,).

    Attributes:
        pe: Rows computed in parallel.
        simd: Columns computed in parallel.
        cycles: Cycles per image.
        fps: Images per second of the slowest node.
        latency_s: Time of the first image.
        lut_count: Lookup tables of the design.
        bram_18k_count: Block RAM halves.
        dsp_count: DSP blocks.
    """

    pe: FloatArray
    simd: FloatArray
    cycles: FloatArray
    fps: float
    latency_s: float
    lut_count: float
    bram_18k_count: float
    dsp_count: float


def node_cycles(
    mw: ArrayLike, mh: ArrayLike, vectors: ArrayLike, pe: ArrayLike, simd: ArrayLike
) -> FloatArray:
    """Cycles of one node per image: (MH/PE)(MW/SIMD) per input vector (FINN, FPGA 2017, section
    4.2).

    Args:
        mw: Matrix width.
        mh: Matrix height.
        vectors: Input vectors per image.
        pe: Divisor of mh.
        simd: Divisor of mw.
    """
    folds = np.ceil(np.asarray(mh) / np.asarray(pe)) * np.ceil(np.asarray(mw) / np.asarray(simd))
    return np.asarray(folds * np.asarray(vectors))


def lut_estimate(
    mw: float,
    pe: ArrayLike,
    simd: ArrayLike,
    weight_bits: int,
    activation_bits: int,
    values: FpgaParameters,
) -> FloatArray:
    """Lookup tables of one matrix-vector unit: c0 + c1 PE (multipliers + adder tree + accumulator).

    Multipliers take SIMD (2 ceil((W+A)/6) - 1)(W+A) where they are not DSP blocks, the tree (W+A)(2
    SIMD - 1), the accumulator W + A + log2(MW) bits. Blott et al., FINN-R, 2018. Products of binary
    operands are one bit wide (XNOR and popcount; FINN, FPGA 2017, section 4.2).

    Args:
        mw: Matrix width.
        pe: Rows in parallel.
        simd: Columns in parallel.
        weight_bits: W.
        activation_bits: A.
        values: `lut_base` is c0, `lut_ratio` c1.
    """
    lanes = np.asarray(simd, dtype=np.float64)
    binary = weight_bits == activation_bits == 1
    bits = 1 if binary else weight_bits + activation_bits
    in_luts = max(weight_bits, activation_bits) <= _LUT_MULTIPLIER_BITS
    multipliers = lanes * (2 * np.ceil(bits / 6) - 1) * bits if in_luts else 0.0
    accumulator = bits + np.ceil(np.log2(max(mw, 1)))
    per_row = multipliers + bits * (2 * lanes - 1) + accumulator
    return np.asarray(values.lut_base + values.lut_ratio * np.asarray(pe) * per_row)


def dsp_estimate(
    pe: ArrayLike, simd: ArrayLike, weight_bits: int, activation_bits: int
) -> FloatArray:
    """DSP blocks of one unit: one per multiplier up to 48 bits, none where lookup tables multiply.
    FINN-R, 2018.
    """
    multipliers = np.asarray(pe, dtype=np.float64) * np.asarray(simd, dtype=np.float64)
    if max(weight_bits, activation_bits) <= _LUT_MULTIPLIER_BITS:
        return np.zeros_like(multipliers)
    blocks: FloatArray = multipliers * np.ceil((weight_bits + activation_bits) / 48)
    return blocks


def bram18_estimate(
    mw: float, mh: float, pe: ArrayLike, simd: ArrayLike, weight_bits: int
) -> FloatArray:
    """18 kbit block RAMs that hold one unit's weights: depth MW MH / (PE SIMD), width PE SIMD W.
    FINN-R, 2018.

    Memories no deeper than 128 words are lookup tables instead (`weight_lut_estimate`).

    Args:
        mw: Matrix width.
        mh: Matrix height.
        pe: Rows in parallel.
        simd: Columns in parallel.
        weight_bits: W.
    """
    lanes = np.asarray(pe, dtype=np.float64) * np.asarray(simd, dtype=np.float64)
    depth = mw * mh / lanes
    width = lanes * weight_bits
    narrow = np.searchsorted(_BRAM18_WIDTHS[:_WIDEST], width)
    shape = np.where((width > _BRAM18_WIDTHS[_WIDEST - 1]) & (depth > 512), _WIDEST - 1, narrow)
    blocks = np.ceil(depth / _BRAM18_WORDS[shape]) * np.ceil(width / _BRAM18_WIDTHS[shape])
    return np.where(depth <= _DISTRIBUTED_DEPTH, 0.0, blocks)


def weight_lut_estimate(
    mw: float, mh: float, pe: ArrayLike, simd: ArrayLike, weight_bits: int
) -> FloatArray:
    """Lookup tables that hold weights too shallow for block RAM: PE SIMD W ceil(depth / 64).
    FINN-R, 2018.

    Args:
        mw: Matrix width.
        mh: Matrix height.
        pe: Rows in parallel.
        simd: Columns in parallel.
        weight_bits: W.
    """
    lanes = np.asarray(pe, dtype=np.float64) * np.asarray(simd, dtype=np.float64)
    depth = mw * mh / lanes
    luts = lanes * weight_bits * np.ceil(depth / 64)
    return np.where(depth <= _DISTRIBUTED_DEPTH, luts, 0.0)


def pipeline_latency_s(cycles: FloatArray, start_fractions: ArrayLike, clock_hz: float) -> float:
    """Time of the first image: each node waits for its share of the one before, the slowest then
    passes the image.

    Blott et al., TRETS 11(3), 2018 (FINN-R).

    With fully connected layers (share 1) it is the sum of all nodes' cycles.

    Args:
        cycles: Cycles per image of each node, shape (nodes,).
        start_fractions: Share of an image each node needs before it starts, 0 to 1, shape (nodes,).
        clock_hz: Clock.
    """
    waits = cycles * np.asarray(start_fractions)
    slowest = int(np.argmax(cycles))
    return float(waits.sum() + cycles[slowest] - waits[slowest]) / clock_hz


@lru_cache(maxsize=4096)
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _candidates(node: StreamingNode, values: FpgaParameters) -> FloatArray:
    """Every folding of a node, fewest cycles first, shape (f, 6)."""
    grid = np.meshgrid(_divisors(node.mh), _divisors(node.mw), indexing="ij")
    pe, simd = (axis.reshape(-1).astype(np.float64) for axis in grid)
    table = _foldings(node, pe, simd, values)
    return table[np.lexsort((table[:, 1], table[:, 0]))]


def _foldings(
    node: StreamingNode, pe: FloatArray, simd: FloatArray, values: FpgaParameters
) -> FloatArray:
    """Columns cycles, luts, bram, dsp, pe, simd of foldings of a node, shape (f, 6)."""
    bits = (node.weight_bits, node.activation_bits)
    matrix = (node.mw, node.mh, pe, simd, bits[0])
    luts = lut_estimate(node.mw, pe, simd, *bits, values) + weight_lut_estimate(*matrix)
    cycles = node.load_cycles + node_cycles(node.mw, node.mh, node.vectors, pe, simd)
    blocks = bram18_estimate(*matrix)
    multipliers = dsp_estimate(pe, simd, *bits)
    return np.stack([cycles, luts, blocks, multipliers, pe, simd], axis=1)


def _fold(tables: Sequence[FloatArray], target_cycles: float, weights: FloatArray) -> FloatArray:
    """The cheapest folding of each node that meets a cycle target, shape (nodes, 6)."""
    chosen = []
    for table in tables:
        meeting = table[table[:, 0] <= target_cycles]
        pool = meeting if len(meeting) else table[:1]
        chosen.append(pool[int(np.argmin(pool[:, 1:4] @ weights))])
    return np.array(chosen)


def _budget(device: FpgaProfile, *, whole: bool = False) -> FloatArray:
    """Usable (or all) lookup tables, 18 kbit RAMs (an UltraRAM counts as 16) and DSP blocks;
    infinite where unknown.

    Sizes of the RAMs: AMD UG573.
    """
    usable = 1.0 if whole else value_of(device.usable_fraction, 1.0)
    resources = (device.lut_count, device.bram_36k_count, device.dsp_count)
    luts, blocks, multipliers = (np.inf if r is None else r.value for r in resources)
    blocks = 2.0 * blocks + 16.0 * value_of(device.uram_count, 0)
    return usable * np.array([luts, blocks, multipliers])


def fold_network(
    nodes: Sequence[StreamingNode],
    device: FpgaProfile,
    values: FpgaParameters,
    target_fps: float | None = None,
) -> DataflowDesign:
    """The fastest (or, with a target, the smallest) folding of a network that fits a device.

    Bisects the cycle target; for each, every node takes the folding that uses the least share of
    the device. All nodes are held to one rate, as in FINN-R (Blott et al., TRETS 11(3), 2018).

    Args:
        nodes: Layers, at least one.
        device: Resources and fabric clock.
        values: Parameters.
        target_fps: Frames per second to reach; None takes the most that fits.

    Raises:
        DoesNotFitError: Naming the resource that is short.
        InvalidValueError: If there is no node, or the rate is no positive number or beyond the
            largest layer unfolded.
    """
    if not nodes:
        raise InvalidValueError("nodes", nodes, "at least one layer with weights")
    if target_fps is not None and not 0 < target_fps < np.inf:
        raise InvalidValueError(
            "target_fps",
            target_fps,
            "images per second above 0",
            "Leave it out for the most that fits.",
        )
    tables = [_candidates(node, values) for node in nodes]
    budget = _budget(device)
    clock = device.fabric_clock_hz.value
    weights = 1.0 / np.where(np.isfinite(budget), budget, 1e9)
    slowest = max(float(table[-1, 0]) for table in tables)
    if target_fps is not None:
        chosen = _fold(tables, clock / target_fps, weights)
        reached = clock / float(chosen[:, 0].max())
        if reached < target_fps:
            most = f"at most {reached:,.1f} images per second"
            allowed = f"{most}: the largest layer unfolded takes that long"
            raise InvalidValueError("target_fps", target_fps, allowed)
        return _design(_fitting(chosen, budget, device), nodes, clock)
    chosen = _fitting(_fold(tables, slowest, weights), budget, device)
    for tried in _bisected(tables, slowest, weights, budget):
        chosen = tried
    return _design(chosen, nodes, clock)


def _bisected(
    tables: Sequence[FloatArray], slowest: float, weights: FloatArray, budget: FloatArray
) -> Iterator[FloatArray]:
    """Foldings that fit, each faster than the one before."""
    low, high = max(float(table[0, 0]) for table in tables), slowest
    for _ in range(48):
        middle = np.sqrt(low * high)
        tried = _fold(tables, middle, weights)
        if (tried[:, 1:4].sum(axis=0) <= budget).all():
            yield tried
            high = middle
        else:
            low = middle


def _fitting(chosen: FloatArray, budget: FloatArray, device: FpgaProfile) -> FloatArray:
    """The same folding.

    Raises:
        DoesNotFitError: Naming the resource whose need is largest against the budget.
    """
    needed = chosen[:, 1:4].sum(axis=0)
    short = int(np.argmax(needed / budget))
    if needed[short] > budget[short]:
        remedy = "Use a larger device, narrower weights, or the overlay flow."
        raise DoesNotFitError(
            device.name, _RESOURCES[short], float(needed[short]), float(budget[short]), remedy
        )
    return chosen


def design_of_folding(
    nodes: Sequence[StreamingNode],
    pe: FloatArray,
    simd: FloatArray,
    device: FpgaProfile,
    values: FpgaParameters,
) -> DataflowDesign:
    """The design of given folding factors; one that someone chose may fill the whole device.

    Args:
        nodes: Layers, at least one.
        pe: Rows in parallel of each, shape (nodes,).
        simd: Columns in parallel.
        device: Resources and fabric clock.
        values: Parameters.

    Raises:
        DoesNotFitError: Naming the resource that is short.
    """
    sides = zip(nodes, pe[:, None], simd[:, None], strict=True)
    chosen = np.concatenate([_foldings(node, p, s, values) for node, p, s in sides])
    fitting = _fitting(chosen, _budget(device, whole=True), device)
    return _design(fitting, nodes, device.fabric_clock_hz.value)


def _design(chosen: FloatArray, nodes: Sequence[StreamingNode], clock_hz: float) -> DataflowDesign:
    """The design of the chosen foldings.

    The slowest layer sets the rate: Umuroglu et al., FINN, FPGA 2017, section 4.
    """
    cycles = chosen[:, 0]
    used = chosen[:, 1:4].sum(axis=0)
    # The first image's map is loaded while the node before gives it, but for the one that enters
    # the design.
    running = cycles - np.array([node.load_cycles for node in nodes])
    through = pipeline_latency_s(running, [node.start_fraction for node in nodes], clock_hz)
    return DataflowDesign(
        pe=chosen[:, 4],
        simd=chosen[:, 5],
        cycles=cycles,
        fps=clock_hz / float(cycles.max()),
        latency_s=through + nodes[0].load_cycles / clock_hz,
        lut_count=float(used[0]),
        bram_18k_count=float(used[1]),
        dsp_count=float(used[2]),
    )
