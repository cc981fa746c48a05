"""Area of a matrix array by part: multiply-adders, registers, scratchpads and vector lanes.

A part's cells are published at one node (``calibration/class/asic-area.yaml``) and carried to
others by published scaling of logic and of SRAM cells. A placed part takes more: wires, clocks,
control, redundancy and gaps. That ratio is the mean over published floor plans, one for logic, and
for SRAM one that grows as banks shrink, since decoders and sense amplifiers line a bank's sides
(fitted by `tools.refit.asic_area`, which checks each floor plan against the ratio of the other
chips'). Interfaces, controllers and the network of a chip are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from accelsim.cost.class_parameters import class_file
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, MissingCoefficientError
from accelsim.hardware.sourced import FrozenModel, SourceKind
from accelsim.workloads.graph import FloatArray

_MM2_PER_UM2 = 1e-6
#: Scratchpads are built of banks of at most this size, as for energy.
_LARGEST_BANK_BYTES = 1048576.0
_REMEDY = "Add it to asic-area.yaml with node and source."

_Above0 = Annotated[float, Field(gt=0)]


class _Sourced(FrozenModel):
    kind: Annotated[SourceKind, Field(strict=False)]
    source: Annotated[str, Field(min_length=8)]


class _Cell(_Sourced):
    part: str = "sram-bit"
    node_nm: _Above0
    area_um2: _Above0


class _Scale(_Sourced):
    node_nm: _Above0
    ratio: _Above0


class _Placed(_Sourced):
    """Placed over cell area.

    Attributes:
        logic_ratio: Of arithmetic and registers.
        sram_ratio: Of a large bank.
        sram_bank_bits: A bank of so many bits takes twice the ratio.
    """

    logic_ratio: _Above0
    sram_ratio: _Above0
    sram_bank_bits: _Above0


class DesignParts(NamedTuple):
    """What designs are made of; columns that broadcast to shape (d,).

    Attributes:
        element_count: Multiply-adders of all arrays.
        register_bits: Of one element.
        array_count: Arrays.
        lane_count: Vector lanes, each a multiply-adder of 32 bits.
        scratchpad_bytes: Of each operand, per array.
    """

    element_count: ArrayLike
    register_bits: ArrayLike
    array_count: ArrayLike
    lane_count: ArrayLike
    scratchpad_bytes: tuple[ArrayLike, ...]


class AreaCoefficients(FrozenModel):
    """Areas per part; lookups refuse what is not there.

    Attributes:
        kind: What the file holds.
        device_class: Of ASICs.
        cells: Cells of logic.
        logic_scale: Area of logic by node.
        sram_cells: Six-transistor cells.
        placed: Placed over cell area.
        published: Floor plans the ratios are fitted to.
    """

    kind: Literal["area_coefficients"]
    device_class: Literal["asic"]
    cells: tuple[_Cell, ...] = Field(strict=False)
    logic_scale: tuple[_Scale, ...] = Field(strict=False)
    sram_cells: tuple[_Cell, ...] = Field(strict=False)
    placed: _Placed
    published: tuple[Mapping[str, Any], ...] = Field(strict=False)

    def part_um2(self, part: str, node_nm: float) -> float:
        """Cells of a part of logic, such as "multiply-int8" or "register-bit".

        Estimate: published cells scaled to a node.

        Raises:
            MissingCoefficientError: If nobody has published it, or the node is beyond the tables.
        """
        entry = next((cell for cell in self.cells if cell.part == part), None)
        if entry is None:
            known = ", ".join(cell.part for cell in self.cells)
            raise MissingCoefficientError("area of", part, known, _REMEDY)
        scale = {s.node_nm: s.ratio for s in self.logic_scale}
        return entry.area_um2 * _at_node(scale, node_nm) / _at_node(scale, entry.node_nm)

    def arithmetic_um2(self, dtype: Dtype, node_nm: float, *, accumulates: bool = True) -> float:
        """Cells of a multiplier and, where it accumulates, the 32-bit adder behind it.

        Estimate: published cells scaled to a node.
        """
        adder = f"add-{_wide(dtype).label}"
        multiply = self.part_um2(f"multiply-{dtype.label}", node_nm)
        return multiply + (self.part_um2(adder, node_nm) if accumulates else 0.0)

    def sram_cell_um2(self, node_nm: float) -> float:
        """A six-transistor cell.

        Estimate: published cells scaled to a node.
        """
        return _at_node({cell.node_nm: cell.area_um2 for cell in self.sram_cells}, node_nm)

    def multiply_adder_um2(self, dtype: Dtype, node_nm: float) -> float:
        """Placed area of a multiplier and the 32-bit adder behind it.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.

        Raises:
            MissingCoefficientError: If nobody has published the format's multiplier, or the node is
                beyond the tables.
        """
        return self.placed.logic_ratio * self.arithmetic_um2(dtype, node_nm)

    def register_bit_um2(self, node_nm: float) -> float:
        """Placed area of one bit of a pipeline register.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        return self.placed.logic_ratio * self.part_um2("register-bit", node_nm)

    def sram_bit_um2(self, capacity_bytes: ArrayLike, node_nm: float) -> FloatArray:
        """Placed area of one bit of a scratchpad of that size, in banks of 1 MiB at most, in the
        shape of the size.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        bank = np.asarray(capacity_bytes, dtype=np.float64)
        if not np.all(bank > 0):
            raise InvalidValueError("capacity_bytes", capacity_bytes, "a capacity above 0")
        bank_bits = 8.0 * np.minimum(bank, _LARGEST_BANK_BYTES)
        sides = 1.0 + np.sqrt(self.placed.sram_bank_bits / bank_bits)
        return np.asarray(self.placed.sram_ratio * self.sram_cell_um2(node_nm) * sides)

    def design_parts(
        self,
        parts: DesignParts,
        dtype: Dtype,
        node_nm: float,
    ) -> dict[str, FloatArray]:
        """Area of designs by part, mm2, in their common shape (d,).

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.

        Args:
            parts: What the designs are made of.
            dtype: Operand format.
            node_nm: Process node.

        Raises:
            MissingCoefficientError: As `multiply_adder_um2`.
        """
        *counts, scratchpads = parts
        elements, bits, copies, lanes, *pads = np.broadcast_arrays(
            *(np.asarray(column, dtype=np.float64) for column in (*counts, *scratchpads))
        )
        sram = np.sum([8.0 * size * self.sram_bit_um2(size, node_nm) for size in pads], axis=0)
        parts_um2 = {
            "mac_mm2": elements * self.multiply_adder_um2(dtype, node_nm),
            "register_mm2": elements * bits * self.register_bit_um2(node_nm),
            "sram_mm2": copies * sram,
            "vector_mm2": lanes * self.multiply_adder_um2(_wide(dtype), node_nm),
        }
        return {name: part * _MM2_PER_UM2 for name, part in parts_um2.items()}


def _wide(dtype: Dtype) -> Dtype:
    """Format of accumulators and vector lanes."""
    return Dtype.INT32 if dtype.label.startswith("int") else Dtype.FP32


def _at_node(table: dict[float, float], node_nm: float) -> float:
    """Log-log between the nodes of a table."""
    nodes = sorted(table)
    if not nodes or not nodes[0] <= node_nm <= nodes[-1]:
        known = f"{nodes[0]:g} to {nodes[-1]:g} nm" if nodes else "none"
        raise MissingCoefficientError(
            "area at node", node_nm, known, "Choose a node within the published scaling."
        )
    areas = np.log([table[node] for node in nodes])
    return float(np.exp(np.interp(np.log(node_nm), np.log(nodes), areas)))


@cache
def area_coefficients() -> AreaCoefficients:
    """The coefficients of ``calibration/class/asic-area.yaml``.

    Raises:
        ProfileError: If the file is malformed, or an entry has no node or source.
    """
    return class_file("asic-area", AreaCoefficients)
