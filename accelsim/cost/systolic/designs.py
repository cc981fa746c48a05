"""Many array designs at once: cycles, memory stalls and energy of a model's products on each, in
one vectorised pass.

A graph is lowered to matrix products (im2col for convolutions; scores and context for attention;
one product per step for recurrent layers). Grouped products go to different arrays, or side by side
on the diagonal of a weight-stationary one; the arrays left split pixels or filters, whichever ends
first. Operators without a product run on a vector unit of one lane per array column. Stalls are
those of `stalled_run`, energy that of `EnergyCoefficients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple, TypeVar

import numpy as np

from accelsim.cost.contraction import Contraction
from accelsim.cost.systolic.counts import PARTIAL_SUM_BITS, access_bits, moving_bits
from accelsim.cost.systolic.energy import EnergyCoefficients
from accelsim.cost.systolic.products import Products, pack_groups
from accelsim.cost.systolic.stalls import ArrayProduct, StalledRun, stalled_run, tile_words
from accelsim.dtype import Dtype
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import MOST_MULTIPLY_ADDERS, Dataflow
from accelsim.workloads.graph import BoolArray, FloatArray

_LARGEST_SIDE = 65536
#: Beyond any circuit (a fast ring oscillator).
_FASTEST_CLOCK_HZ = 1e12
_LARGEST = {
    **dict.fromkeys(("input_sram_bytes", "weight_sram_bytes", "output_sram_bytes"), np.inf),
    "bandwidth_bytes_per_s": np.inf,
    "clock_hz": _FASTEST_CLOCK_HZ,
    "weight_density_fraction": 1.0,
}


@frozen
class ArrayDesign:
    """One design.

    Attributes:
        rows: R of each array.
        columns: C of each array.
        dataflow: Output, weight or input stationary.
        input_sram_bytes: Scratchpad of activations, both halves, per array.
        weight_sram_bytes: Of weights.
        output_sram_bytes: Of results.
        bandwidth_bytes_per_s: Of main memory, shared by all arrays and operands.
        count: Arrays.
        clock_hz: Array clock.
        pipelined: Whether folds overlap their fills; False is SCALE-Sim's form.
        weight_density_fraction: Non-zero share of structured sparse weights the array skips; 1 is
            dense.
    """

    rows: int
    columns: int
    dataflow: Dataflow
    input_sram_bytes: float
    weight_sram_bytes: float
    output_sram_bytes: float
    bandwidth_bytes_per_s: float
    count: int = 1
    clock_hz: float = 1e9
    pipelined: bool = False
    weight_density_fraction: float = 1.0

    def __post_init__(self) -> None:
        for field in ("rows", "columns", "count"):
            value = getattr(self, field)
            if not (isinstance(value, int | np.integer) and 1 <= value <= _LARGEST_SIDE):
                raise InvalidValueError(
                    f"array {field}", value, f"a whole number from 1 to {_LARGEST_SIDE}"
                )
        if self.element_count > MOST_MULTIPLY_ADDERS:
            allowed = f"at most {MOST_MULTIPLY_ADDERS:,}, ten wafers'"
            raise InvalidValueError(
                "multiply-adders", self.element_count, allowed, "Take smaller or fewer arrays."
            )
        for field, most in _LARGEST.items():
            value = getattr(self, field)
            if not (0 < value <= most and value < np.inf):
                allowed = "and finite" if most == np.inf else f"at most {most:g}"
                raise InvalidValueError(field, value, f"above 0, {allowed}")
        if self.dataflow is Dataflow.ROW_STATIONARY:
            raise InvalidValueError(
                "dataflow", self.dataflow.value, "output, weight or input stationary"
            )

    @property
    def element_count(self) -> int:
        """Multiply-adders of all arrays."""
        return self.rows * self.columns * self.count

    @property
    def sram_bytes(self) -> float:
        """Scratchpads of all arrays."""
        return sum(self.pads_bytes) * self.count

    @property
    def pads_bytes(self) -> tuple[float, float, float]:
        """Scratchpads of inputs, weights and outputs of one array."""
        return self.input_sram_bytes, self.weight_sram_bytes, self.output_sram_bytes


@frozen(eq=False)
class DesignCosts:
    """A model on d designs; every column has shape (d,).

    Attributes:
        latency_s: One pass.
        compute_s: Stall-free array time.
        vector_s: Of operators without a product.
        dram_bytes: Moved to and from main memory.
        utilisation_fraction: Multiply-adds over elements x cycles.
        energy_parts_j: Dynamic energy by part.
    """

    latency_s: FloatArray
    compute_s: FloatArray
    vector_s: FloatArray
    dram_bytes: FloatArray
    utilisation_fraction: FloatArray
    energy_parts_j: dict[str, FloatArray]


def refuse_small_scratchpads(products: Products, design: ArrayDesign, dtype: Dtype) -> None:
    """Raise for the product that lacks most: each half of a scratchpad must hold one tile.

    Samajdar et al., ISPASS 2020 (SCALE-Sim) and its double-buffered scratchpads.

    Raises:
        DoesNotFitError: Naming the layer and the bytes short.
    """
    shape = products.shape
    array = (design.rows, design.columns, design.dataflow)
    tiles = 2 * tile_words(shape.m, shape.n, shape.k, *array) * dtype.bytes
    short = np.maximum(tiles - np.array(design.pads_bytes)[:, None], 0.0).sum(axis=0)
    if not short.size or short.max() <= 0:
        return
    worst = int(np.argmax(short))
    name = products.graph.name[int(products.row[worst])]
    label = f"{design.rows}x{design.columns} {design.dataflow.value} array, layer {name!r},"
    remedy = "Enlarge the scratchpads, or take a smaller array: each half must hold one tile."
    raise DoesNotFitError(
        label, "scratchpad bytes", design.sram_bytes + short[worst], design.sram_bytes, remedy
    )


def design_costs(
    products: Products,
    designs: Sequence[ArrayDesign],
    dtype: Dtype,
    coefficients: EnergyCoefficients,
    *,
    process_nm: float,
    memory: str,
) -> DesignCosts:
    """Latency and energy of one pass on every design.

    Samajdar et al., ISPASS 2020 (SCALE-Sim) and its double-buffered scratchpads; energy as
    Accelergy counts it (Wu et al., ICCAD 2019).

    Args:
        products: What runs.
        designs: d designs whose scratchpads hold a tile of each layer (`refuse_small_scratchpads`).
        dtype: Operand format; partial sums take 4 bytes.
        coefficients: Energy per action.
        process_nm: Node of the chip.
        memory: Main-memory technology, such as "HBM2".

    Raises:
        MissingCoefficientError: If an energy coefficient is missing.
    """
    chip = _Chip(dtype, coefficients, process_nm, memory)
    columns: dict[str, FloatArray] = {}
    kinds = [(design.dataflow, design.pipelined) for design in designs]
    for kind in dict.fromkeys(kinds):
        index = [i for i, other in enumerate(kinds) if other == kind]
        found = _same_dataflow(products, [designs[i] for i in index], chip)
        for name, values in found.items():
            columns.setdefault(name, np.zeros(len(designs)))[index] = values
    own = {f.name: columns.pop(f.name) for f in fields(DesignCosts) if f.name in columns}
    return DesignCosts(**own, energy_parts_j=columns)


class _Chip(NamedTuple):
    dtype: Dtype
    coefficients: EnergyCoefficients
    process_nm: float
    memory: str


@frozen(eq=False)
class _Columns:
    """Design columns, shape (d, 1); scratchpads (3, d, 1)."""

    rows: FloatArray
    columns: FloatArray
    count: FloatArray
    pads_bytes: FloatArray
    words_per_cycle: FloatArray
    clock_hz: FloatArray
    density: FloatArray


def _columns(designs: Sequence[ArrayDesign], width: float) -> _Columns:
    def column(name: str) -> FloatArray:
        return np.array([getattr(d, name) for d in designs], dtype=np.float64).T[..., None]

    clock = column("clock_hz")
    return _Columns(
        rows=column("rows"),
        columns=column("columns"),
        count=column("count"),
        pads_bytes=column("pads_bytes"),
        words_per_cycle=column("bandwidth_bytes_per_s") / width / clock,
        clock_hz=clock,
        density=column("weight_density_fraction"),
    )


@frozen(eq=False)
class _Share:
    """What one array runs of each product: `rounds` products (m x k) by (k x n); shape (d, l).

    `packed` groups share the array in one product, so that a `packed`-th of its weights is not
    zero.
    """

    rounds: FloatArray
    arrays: FloatArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    packed: FloatArray


def _shares(shape: Contraction, columns: _Columns, dataflow: Dataflow) -> tuple[_Share, ...]:
    """The ways to spread products over the arrays of each design; groups share a weight-stationary
    array's diagonal.
    """
    dense = replace(shape, k=np.ceil(shape.k * columns.density))
    packed: FloatArray | float = 1.0
    if dataflow is Dataflow.WEIGHT_STATIONARY and shape.groups.max(initial=1.0) > 1:
        dense, packed = pack_groups(dense, columns.rows, columns.columns)
    groups, m, n, k, packed = np.broadcast_arrays(dense.groups, dense.m, dense.n, dense.k, packed)
    used = np.minimum(groups, columns.count)
    rounds, left = np.ceil(groups / used), np.floor(columns.count / used)
    pixels = _Share(rounds, used * np.minimum(left, m), np.ceil(m / left), n, k, packed)
    if columns.count.max() <= 1:
        return (pixels,)
    return pixels, replace(pixels, arrays=used * np.minimum(left, n), m=m, n=np.ceil(n / left))


def _same_dataflow(
    products: Products, designs: Sequence[ArrayDesign], chip: _Chip
) -> dict[str, FloatArray]:
    """Columns of `DesignCosts` and parts of the energy for designs of one dataflow."""
    columns, shape = _columns(designs, chip.dtype.bytes), products.shape
    share, run = _best_share(shape, columns, designs[0], chip.dtype)
    run.words[1] /= share.packed
    times = products.repeat * share.rounds
    cycles, compute = (times * run.cycles).sum(axis=1), (times * run.compute_cycles).sum(axis=1)
    clock, count = columns.clock_hz[:, 0], columns.count[:, 0]
    lanes = columns.columns[:, 0] * count
    vector_s = products.vector_flop / (lanes * clock)
    copies = times * share.arrays
    window = np.ceil(shape.k * columns.density)  # zero weights are skipped
    macs = (products.repeat * shape.groups * shape.m * shape.n * window).sum(axis=1)
    elements = columns.rows[:, 0] * lanes
    busy = np.divide(macs, elements * cycles, out=np.zeros_like(macs), where=cycles > 0)
    moved_bytes = (copies * run.words.sum(axis=0)).sum(axis=1) * chip.dtype.bytes
    sram_j = _scratchpads_j(share, run, copies, columns, designs[0].dataflow, chip)
    return {
        "latency_s": cycles / clock + vector_s,
        "compute_s": compute / clock,
        "vector_s": vector_s,
        "dram_bytes": moved_bytes,
        "utilisation_fraction": np.minimum(busy, 1.0),
    } | _energy_parts_j(macs, sram_j, moved_bytes, products.vector_flop, designs[0].dataflow, chip)


def _best_share(
    shape: Contraction, columns: _Columns, design: ArrayDesign, dtype: Dtype
) -> tuple[_Share, StalledRun]:
    """The quickest way to spread each product, and its run; arrays share the memory evenly."""
    best: tuple[_Share, StalledRun] | None = None
    for share in _shares(shape, columns, design.dataflow):
        sides = (share.m, share.n, share.k, columns.rows, columns.columns)
        run = stalled_run(
            ArrayProduct(*sides, design.dataflow),
            columns.pads_bytes / dtype.bytes,
            columns.words_per_cycle / share.arrays,
            partial_sum_words=max(PARTIAL_SUM_BITS / 8.0 / dtype.bytes, 1.0),
            pipelined=design.pipelined,
        )
        if best is not None:
            wins = share.rounds * run.cycles < best[0].rounds * best[1].cycles
            share, run = _where(wins, share, best[0]), _where(wins, run, best[1])  # noqa: PLW2901
        best = share, run
    assert best is not None
    return best


_Fields = TypeVar("_Fields", _Share, StalledRun)


def _where(wins: BoolArray, chosen: _Fields, otherwise: _Fields) -> _Fields:
    """Columns of `chosen` where it wins, elsewhere those of the other."""
    columns = (
        np.where(wins, getattr(chosen, field.name), getattr(otherwise, field.name))
        for field in fields(chosen)
    )
    return type(chosen)(*columns)


def _scratchpads_j(
    share: _Share,
    run: StalledRun,
    copies: FloatArray,
    columns: _Columns,
    dataflow: Dataflow,
    chip: _Chip,
) -> FloatArray:
    """Energy of the scratchpads of inputs, weights and outputs, shape (3, d): read as
    `access_bits` says and written once per word loaded.

    Action counts after Accelergy (Wu, Emer and Sze, ICCAD 2019).
    """
    bits = 8.0 * chip.dtype.bytes
    shape = Contraction(share.rounds, share.m, share.n, share.k)
    array = (columns.rows, columns.columns, dataflow)
    accesses = access_bits(shape, *array, bits, 1.0 / share.packed) + run.words * bits
    per_bit_j = chip.coefficients.per_sram_bit_j(columns.pads_bytes[..., 0], chip.process_nm)
    energy: FloatArray = (copies * accesses).sum(axis=2) * per_bit_j
    return energy


def _energy_parts_j(
    macs: FloatArray,
    sram_j: FloatArray,
    moved_bytes: FloatArray,
    vector_flop: float,
    dataflow: Dataflow,
    chip: _Chip,
) -> dict[str, FloatArray]:
    """Energy by part, shape (d,) each.

    A multiply-add reads two operand registers and reads and writes a partial sum. Operands and,
    unless they stay, partial sums move one element per cycle.

    Action counts after Accelergy (Wu, Emer and Sze, ICCAD 2019).
    """
    known, node_nm, bits = chip.coefficients, chip.process_nm, 8.0 * chip.dtype.bytes
    per_mac_j = known.per_mac_j(chip.dtype, node_nm)
    register_bits = 2.0 * (bits + PARTIAL_SUM_BITS)
    return {
        "mac_j": macs * per_mac_j,
        "register_j": macs * register_bits * known.per_register_bit_j(node_nm),
        **dict(zip(("input_sram_j", "weight_sram_j", "output_sram_j"), sram_j, strict=True)),
        "wire_j": macs * moving_bits(bits, dataflow) * known.per_hop_bit_j(node_nm, bits),
        "dram_j": moved_bytes * 8.0 * known.per_dram_bit_j(chip.memory),
        "vector_j": np.full(len(macs), vector_flop / 2.0 * per_mac_j),
    }
