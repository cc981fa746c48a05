"""Dynamic energy of a graph's rows on a matrix chip, by part.

A multiply-add reads two operand registers and reads and writes a partial sum; operands and, unless
they stay, partial sums move one element per cycle; scratchpads are accessed as `array_counts` says
and once more per byte of main memory; each arithmetic operation of the vector unit is half a
multiply-add. Coefficients are those of `EnergyCoefficients` at the chip's node. The scratchpad is
one array's share of the smallest on-chip memory; partial sums have the accumulators where the
profile names some; main memory of SRAM is the scratchpad itself. Row-stationary chips
have none by part. What the chip draws while it stands still is not here: that is its idle power.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.contraction import Contraction
from accelsim.cost.systolic.counts import PARTIAL_SUM_BITS, access_bits, moving_bits
from accelsim.cost.systolic.energy import EnergyCoefficients, energy_coefficients
from accelsim.cost.systolic.machine import AsicMachine
from accelsim.cost.systolic.products import Products, all_products, pack_groups
from accelsim.cost.table import RowCosts
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.errors import MissingCoefficientError
from accelsim.hardware.profile import AsicProfile, Dataflow
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import CONTRACTION_KINDS

#: Parts of the dynamic energy, in the order of the data's way back from main memory.
ENERGY_PARTS = ("mac", "register", "wire", "sram", "dram", "vector")
_Parts = dict[str, FloatArray]


def row_energy_parts_j(
    graph: OperatorGraph, costs: RowCosts, device: AsicProfile, machine: AsicMachine
) -> tuple[_Parts | None, str]:
    """Energy of every row by part.

    Action counts times energy per action: Wu et al., ICCAD 2019 (Accelergy).

    Args:
        graph: Operators.
        costs: Their costs, in graph order.
        device: Node, memories.
        machine: Its arrays.

    Returns:
        `ENERGY_PARTS`, shape (n,) each, and an empty note; or None and the coefficient that is
        missing.
    """
    if machine.dataflow is Dataflow.ROW_STATIONARY:
        return None, "a row-stationary array's accesses"
    try:
        return _parts(graph, costs, device, machine), ""
    except MissingCoefficientError as error:
        return None, error.field if error.value is None else f"{error.field} {error.value}"


def _parts(
    graph: OperatorGraph, costs: RowCosts, device: AsicProfile, machine: AsicMachine
) -> _Parts:
    """Energies by part, shape (n,) each.

    Action counts after Accelergy (Wu, Emer and Sze, ICCAD 2019).
    """
    chip = _Chip(device, energy_coefficients())
    parts = {part: np.zeros(len(graph)) for part in ENERGY_PARTS}
    moved_bits = np.where(costs.time_s > 0, 8.0 * costs.bytes, 0.0)
    parts["dram"] += moved_bits * chip.main_memory_bit_j
    parts["sram"] += moved_bits * chip.scratchpad_bit_j
    on_arrays = np.isin(graph.kind, list(CONTRACTION_KINDS))
    others = np.flatnonzero(~on_arrays & (costs.time_s > 0))
    parts["vector"][others] = (
        graph.flop[others] / 2.0 * chip.by_format(graph.dtype[others], chip.mac_j)
    )
    parts["sram"][others] += 8.0 * graph.bytes[others] * chip.scratchpad_bit_j
    if graph.epilogue_flop is not None:
        parts["vector"] += graph.epilogue_flop / 2.0 * chip.by_format(graph.dtype, chip.mac_j)
    _add_products(parts, all_products(graph), chip, machine)
    return parts


class _Chip:
    """Coefficients of one chip."""

    def __init__(self, device: AsicProfile, coefficients: EnergyCoefficients) -> None:
        node, count = device.process_nm, device.arrays.count.value
        pads = {
            level.name: level.capacity_bytes.value / count
            for level in device.on_chip
            if level.shared_by_core_count is None
        }
        accumulators = pads.pop("accumulators", None)
        for field, known in (("process_nm", node), ("on_chip", pads)):
            if not known:
                remedy = "Add it to the device profile."
                raise MissingCoefficientError(field, None, "a known value", remedy)
        assert node is not None
        self.node_nm, self.coefficients = node.value, coefficients
        scratchpad = min(pads.values())
        self.scratchpad_bit_j, self.accumulator_bit_j = coefficients.per_sram_bit_j(
            [scratchpad, accumulators or scratchpad], self.node_nm
        ).tolist()
        technology = device.memory.technology or ""
        self.main_memory_bit_j = (
            self.scratchpad_bit_j
            if technology.upper().startswith("SRAM")
            else coefficients.per_dram_bit_j(technology)
        )
        self.register_bit_j = coefficients.per_register_bit_j(self.node_nm)

    def mac_j(self, dtype: Dtype) -> float:
        return self.coefficients.per_mac_j(dtype, self.node_nm)

    def hop_bit_j(self, dtype: Dtype) -> float:
        return self.coefficients.per_hop_bit_j(self.node_nm, 8.0 * dtype.bytes)

    @staticmethod
    def by_format(
        codes: NDArray[np.integer[Any]], energy_j: Callable[[Dtype], float]
    ) -> FloatArray:
        """`energy_j` of each row's format, shape (r,)."""
        table = np.zeros(int(max(Dtype)) + 1)
        for code in np.unique(codes).tolist():
            table[code] = energy_j(Dtype(code))
        found: FloatArray = table[codes]
        return found


def _add_products(parts: _Parts, products: Products, chip: _Chip, machine: AsicMachine) -> None:
    """Products on systolic arrays. Action counts after Accelergy (Wu, Emer and Sze, ICCAD 2019)."""
    row = products.row
    codes = products.graph.dtype[row]
    bits: FloatArray = 8.0 * DTYPE_BYTES[codes]
    has_weights = products.graph.weight_bytes[row] > 0
    density: FloatArray = np.where(has_weights, machine.weight_density_fraction[codes], 1.0)
    macs = density * products.repeat * products.shape.flop / 2.0
    hop_bit_j = chip.by_format(codes, chip.hop_bit_j)
    found = {
        "mac": macs * chip.by_format(codes, chip.mac_j),
        "register": macs * 2.0 * (bits + PARTIAL_SUM_BITS) * chip.register_bit_j,
        "wire": macs * moving_bits(bits, machine.dataflow) * hop_bit_j,
        "sram": _scratchpad_j(products, density, bits, chip, machine),
    }
    for part, energy in found.items():
        parts[part] += np.bincount(row, energy, len(products.graph))


def _scratchpad_j(
    products: Products, density: FloatArray, bits: FloatArray, chip: _Chip, machine: AsicMachine
) -> FloatArray:
    """Action counts after Accelergy (Wu, Emer and Sze, ICCAD 2019)."""
    packed, together = products.shape, np.ones_like(density)
    if machine.dataflow is Dataflow.WEIGHT_STATIONARY:
        packed, together = pack_groups(packed, machine.rows, machine.columns)
    sides = (np.maximum(side, 1.0) for side in (packed.m, packed.n, packed.k))
    shape = Contraction(packed.groups, *sides)
    array = (machine.rows, machine.columns, machine.dataflow)
    inputs, weights, sums = access_bits(shape, *array, bits, density / together)
    operands_j = (inputs + weights) * chip.scratchpad_bit_j
    energy_j: FloatArray = operands_j + sums * chip.accumulator_bit_j
    return products.repeat * packed.groups * energy_j
