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
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.contraction import Contraction
from accelsim.cost.systolic.counts import array_counts
from accelsim.cost.systolic.energy import EnergyCoefficients, EnergyParts
from accelsim.cost.systolic.products import PARTIAL_SUM_BYTES, Products
from accelsim.cost.systolic.stalls import (
    MemoryPorts,
    Scratchpads,
    StalledRun,
    stalled_run,
    tile_words,
)
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.hardware.profile import MOST_MULTIPLY_ADDERS, Dataflow
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray

__all__ = [
    "ArrayDesign",
    "DesignCosts",
    "design_costs",
    "refuse_small_scratchpads",
    "tile_shortfall_bytes",
]

_LARGEST_SIDE = 65536
#: Beyond any circuit (a fast ring oscillator).
_FASTEST_CLOCK_HZ = 1e12


@dataclass(frozen=True, slots=True)
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
        for field in (
            "input_sram_bytes",
            "weight_sram_bytes",
            "output_sram_bytes",
            "bandwidth_bytes_per_s",
        ):
            value = getattr(self, field)
            if not 0 < value < np.inf:
                raise InvalidValueError(field, value, "above 0 and finite")
        if not 0 < self.clock_hz <= _FASTEST_CLOCK_HZ:
            raise InvalidValueError(
                "clock_hz", self.clock_hz, f"above 0, at most {_FASTEST_CLOCK_HZ:g}"
            )
        if not 0 < self.weight_density_fraction <= 1:
            raise InvalidValueError(
                "weight_density_fraction", self.weight_density_fraction, "above 0, at most 1"
            )
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
        return (
            self.input_sram_bytes + self.weight_sram_bytes + self.output_sram_bytes
        ) * self.count


@dataclass(frozen=True, slots=True, eq=False)
class DesignCosts:
    """A model on d designs; every column has shape (d,).

    Attributes:
        latency_s: One pass.
        compute_s: Stall-free array time.
        vector_s: Of operators without a product.
        dram_bytes: Moved to and from main memory.
        utilisation_fraction: Multiply-adds over elements x cycles.
        energy: By part, dynamic.
    """

    latency_s: FloatArray
    compute_s: FloatArray
    vector_s: FloatArray
    dram_bytes: FloatArray
    utilisation_fraction: FloatArray
    energy: EnergyParts


def tile_shortfall_bytes(products: Products, design: ArrayDesign, dtype: Dtype) -> FloatArray:
    """Bytes each product lacks in the scratchpads for one tile of each operand, shape (l,); 0 where
    it fits.

    Samajdar et al., ISPASS 2020 (SCALE-Sim) and its double-buffered scratchpads.
    """
    tiles = tile_words(
        products.shape.m,
        products.shape.n,
        products.shape.k,
        design.rows,
        design.columns,
        design.dataflow,
    )
    sizes = (design.input_sram_bytes, design.weight_sram_bytes, design.output_sram_bytes)
    lacking = [
        np.maximum(2 * tile * dtype.bytes - size, 0.0)
        for tile, size in zip(tiles, sizes, strict=True)
    ]
    total: FloatArray = np.sum(lacking, axis=0)
    return total


def refuse_small_scratchpads(products: Products, design: ArrayDesign, dtype: Dtype) -> None:
    """Raise for the product that lacks most.

    Raises:
        DoesNotFitError: Naming the layer and the bytes short.
    """
    short = tile_shortfall_bytes(products, design, dtype)
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
        designs: d designs; scratchpads too small for a tile are refused.
        dtype: Operand format; partial sums take 4 bytes.
        coefficients: Energy per action.
        process_nm: Node of the chip.
        memory: Main-memory technology, such as "HBM2".

    Raises:
        DoesNotFitError: If a design's scratchpads cannot hold a tile of some layer.
        InvalidValueError: If an energy coefficient is missing.
    """
    for design in designs:
        refuse_small_scratchpads(products, design, dtype)
    columns: dict[str, FloatArray] = {}
    kinds = [(design.dataflow, design.pipelined) for design in designs]
    for kind in dict.fromkeys(kinds):
        index = np.array([i for i, other in enumerate(kinds) if other == kind])
        found = _same_dataflow(
            products, [designs[i] for i in index], dtype, coefficients, process_nm, memory
        )
        for name, values in found.items():
            columns.setdefault(name, np.zeros(len(designs)))[index] = values
    energy = EnergyParts(*(columns.pop(f.name) for f in fields(EnergyParts)))
    return DesignCosts(**columns, energy=energy)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Design columns, shape (d, 1)."""

    rows: FloatArray
    columns: FloatArray
    count: FloatArray
    pads: Scratchpads
    words_per_cycle: FloatArray
    clock_hz: FloatArray
    density: FloatArray


def _columns(designs: Sequence[ArrayDesign], width: float) -> _Columns:
    def column(name: str) -> FloatArray:
        return np.array([getattr(d, name) for d in designs], dtype=np.float64)[:, None]

    pads = Scratchpads(
        *(column(f"{operand}_sram_bytes") / width for operand in ("input", "weight", "output"))
    )
    clock = column("clock_hz")
    rate = column("bandwidth_bytes_per_s") / width / clock
    density = column("weight_density_fraction")
    return _Columns(column("rows"), column("columns"), column("count"), pads, rate, clock, density)


@dataclass(frozen=True, slots=True, eq=False)
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


def _packed(shape: Contraction, columns: _Columns, dataflow: Dataflow) -> tuple[FloatArray, ...]:
    """Groups, filters and window after groups share a weight-stationary array's diagonal, and how
    many; shape (d, l).
    """
    k = np.ceil(shape.k * columns.density)
    if dataflow is not Dataflow.WEIGHT_STATIONARY or shape.groups.max(initial=1.0) <= 1:
        return np.broadcast_arrays(shape.groups, shape.n, k, 1.0)
    fit = np.minimum(
        columns.rows // np.maximum(k, 1.0), columns.columns // np.maximum(shape.n, 1.0)
    )
    together = np.clip(fit, 1.0, shape.groups)
    return np.ceil(shape.groups / together), shape.n * together, k * together, together


def _shares(shape: Contraction, columns: _Columns, dataflow: Dataflow) -> tuple[_Share, ...]:
    """The ways to spread products over the arrays of each design."""
    groups, n, k, packed = _packed(shape, columns, dataflow)
    m = np.broadcast_to(shape.m, n.shape)
    used = np.minimum(groups, columns.count)
    rounds, left = np.ceil(groups / used), np.floor(columns.count / used)
    if columns.count.max() <= 1:
        return (_Share(rounds, np.ones_like(rounds), m, n, k, packed),)
    return (
        _Share(rounds, used * np.minimum(left, m), np.ceil(m / left), n, k, packed),
        _Share(rounds, used * np.minimum(left, n), m, np.ceil(n / left), k, packed),
    )


def _same_dataflow(
    products: Products,
    designs: Sequence[ArrayDesign],
    dtype: Dtype,
    coefficients: EnergyCoefficients,
    process_nm: float,
    memory: str,
) -> dict[str, FloatArray]:
    """Columns of `DesignCosts` and `EnergyParts` for designs of one dataflow."""
    columns = _columns(designs, dtype.bytes)
    best = _best_share(products.shape, columns, designs[0], dtype)
    share, run = best
    times = products.repeat * share.rounds
    cycles, compute = (times * run.cycles).sum(axis=1), (times * run.compute_cycles).sum(axis=1)
    clock, count = columns.clock_hz[:, 0], columns.count[:, 0]
    vector_s = products.vector_flop / (columns.columns[:, 0] * count * clock)
    run = replace(run, weight_words=run.weight_words / share.packed)
    words = run.input_words + run.weight_words + run.output_words
    copies = times * share.arrays
    macs = _useful_macs(products, columns)
    dram = (copies * words).sum(axis=1) * dtype.bytes
    energy = _energy(
        products,
        share,
        run,
        copies,
        columns,
        designs[0].dataflow,
        dtype,
        coefficients,
        process_nm,
        memory,
    )
    found = {f.name: getattr(energy, f.name) for f in fields(EnergyParts)}
    elements = columns.rows[:, 0] * columns.columns[:, 0] * count
    busy = np.divide(macs, elements * cycles, out=np.zeros_like(macs), where=cycles > 0)
    return found | {
        "latency_s": cycles / clock + vector_s,
        "compute_s": compute / clock,
        "vector_s": vector_s,
        "dram_bytes": dram,
        "utilisation_fraction": np.minimum(busy, 1.0),
    }


def _useful_macs(products: Products, columns: _Columns) -> FloatArray:
    """Multiply-adds of one pass that are not skipped as zero weights, shape (d,)."""
    shape = products.shape
    each = products.repeat * shape.groups * shape.m * shape.n * np.ceil(shape.k * columns.density)
    total: FloatArray = each.sum(axis=1)
    return total


def _best_share(
    shape: Contraction, columns: _Columns, design: ArrayDesign, dtype: Dtype
) -> tuple[_Share, StalledRun]:
    """The quickest way to spread each product, and its run; arrays share the memory evenly."""
    width = PARTIAL_SUM_BYTES / dtype.bytes
    best: tuple[_Share, StalledRun] | None = None
    for share in _shares(shape, columns, design.dataflow):
        ports = MemoryPorts(shared_words_per_cycle=columns.words_per_cycle / share.arrays)
        run = stalled_run(
            share.m,
            share.n,
            share.k,
            columns.rows,
            columns.columns,
            design.dataflow,
            columns.pads,
            ports,
            partial_sum_words=max(width, 1.0),
            pipelined=design.pipelined,
        )
        if best is not None:
            wins = share.rounds * run.cycles < best[0].rounds * best[1].cycles
            share, run = _where(wins, share, best[0]), _where(wins, run, best[1])  # noqa: PLW2901
        best = share, run
    assert best is not None
    return best


_Fields = TypeVar("_Fields", _Share, StalledRun)


def _where(wins: NDArray[np.bool_], chosen: _Fields, otherwise: _Fields) -> _Fields:
    """Columns of `chosen` where it wins, elsewhere those of the other."""
    columns = (
        np.where(wins, getattr(chosen, field.name), getattr(otherwise, field.name))
        for field in fields(chosen)
    )
    return type(chosen)(*columns)


def _energy(
    products: Products,
    share: _Share,
    run: StalledRun,
    copies: FloatArray,
    columns: _Columns,
    dataflow: Dataflow,
    dtype: Dtype,
    coefficients: EnergyCoefficients,
    process_nm: float,
    memory: str,
) -> EnergyParts:
    """Energy of all products on each design, shape (d,) per part.

    A multiply-add reads two operand registers and reads and writes a partial sum. Operands and,
    unless they stay, partial sums move one element per cycle. Scratchpads are read as
    `array_counts` says and written once per word loaded.
    """
    bits = 8.0 * dtype.bytes
    counts = array_counts(share.m, share.n, share.k, columns.rows, columns.columns, dataflow)
    macs = _useful_macs(products, columns)
    per_mac, hop = (
        coefficients.per_mac_j(dtype, process_nm),
        coefficients.per_hop_bit_j(process_nm, bits),
    )
    register_bits = 2.0 * bits + 2.0 * 8.0 * PARTIAL_SUM_BYTES
    moving_bits = (
        2.0 * bits if dataflow is Dataflow.OUTPUT_STATIONARY else bits + 8.0 * PARTIAL_SUM_BYTES
    )
    pads = (columns.pads.input_words, columns.pads.weight_words, columns.pads.output_words)
    srams = [
        coefficients.per_sram_bit_j(np.asarray(pad)[:, 0] * dtype.bytes, process_nm) for pad in pads
    ]
    accesses = (
        (counts.input_reads + run.input_words) * bits,
        (counts.weight_reads / share.packed + run.weight_words) * bits,
        (2.0 * counts.output_writes - share.m * share.n) * 8.0 * PARTIAL_SUM_BYTES
        + run.output_words * bits,
    )
    sram_j = [
        (copies * words).sum(axis=1) * per_bit
        for words, per_bit in zip(accesses, srams, strict=True)
    ]
    moved_bits = (copies * (run.input_words + run.weight_words + run.output_words)).sum(
        axis=1
    ) * bits
    return EnergyParts(
        mac_j=macs * per_mac,
        register_j=macs * register_bits * coefficients.per_register_bit_j(process_nm),
        input_sram_j=sram_j[0],
        weight_sram_j=sram_j[1],
        output_sram_j=sram_j[2],
        wire_j=macs * moving_bits * hop,
        dram_j=moved_bits * coefficients.per_dram_bit_j(memory),
        vector_j=np.full(len(macs), products.vector_flop / 2.0 * per_mac),
    )
