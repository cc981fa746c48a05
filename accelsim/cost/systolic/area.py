"""Area of a matrix array by part: multiply-adders, registers, scratchpads and vector lanes.

A part's cells are published at one node (``calibration/class/asic-area.yaml``) and carried to
others by published scaling of logic and of SRAM cells. A placed part takes more: wires, clocks,
control, redundancy and gaps. That ratio is the mean over published floor plans, one for logic, and
for SRAM one that grows as banks shrink, since decoders and sense amplifiers line a bank's sides.
Each floor plan is checked against the ratio of the other chips' (`area_checks`). Interfaces,
controllers and the network of a chip are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from accelsim.datafile import data_root, read_yaml, validated
from accelsim.errors import InvalidValueError, MissingCoefficientError
from accelsim.hardware.profile import DtypeName
from accelsim.hardware.sourced import FrozenModel, SourceKind
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray

__all__ = [
    "AreaCells",
    "AreaCheck",
    "AreaCoefficients",
    "AreaParts",
    "area_checks",
    "area_coefficients",
]

_MM2_PER_UM2: Final = 1e-6
#: Scratchpads are built of banks of at most this size, as for energy.
_LARGEST_BANK_BYTES: Final = 1048576.0
_BANK_STEPS: Final = np.geomspace(1.0, 1e7, 300)

_Above0 = Annotated[float, Field(gt=0)]
_Source = Annotated[str, Field(min_length=8)]
_Kind = Annotated[SourceKind, Field(strict=False)]


class _Cell(FrozenModel):
    part: str = "sram-bit"
    node_nm: _Above0
    area_um2: _Above0
    kind: _Kind
    source: _Source


class _Scale(FrozenModel):
    node_nm: _Above0
    ratio: _Above0
    kind: _Kind
    source: _Source


class _Published(FrozenModel):
    """Area of a part of a chip: elements of an array, memory, or both together."""

    chip: str
    part: str
    node_nm: _Above0
    area_mm2: _Above0
    source: _Source
    dtype: DtypeName | None = None
    element_count: Annotated[int, Field(ge=0)] = 0
    register_bits: Annotated[int, Field(ge=0)] = 0
    accumulates: bool = True
    capacity_bytes: Annotated[float, Field(ge=0)] = 0.0
    bank_bytes: _Above0 = 1.0


class _AreaFile(FrozenModel):
    kind: Literal["area_coefficients"]
    device_class: Literal["asic"]
    cells: tuple[_Cell, ...] = Field(strict=False)
    logic_scale: tuple[_Scale, ...] = Field(strict=False)
    sram_cells: tuple[_Cell, ...] = Field(strict=False)
    published: tuple[_Published, ...] = Field(strict=False)


@dataclass(frozen=True, slots=True, eq=False)
class AreaParts:
    """Area of some designs by part, mm2; every column has the same shape."""

    mac_mm2: FloatArray
    register_mm2: FloatArray
    sram_mm2: FloatArray
    vector_mm2: FloatArray

    @property
    def total_mm2(self) -> FloatArray:
        """Sum of all parts."""
        total: FloatArray = np.sum([getattr(self, f.name) for f in fields(self)], axis=0)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Part by part, as lists or numbers."""
        return {f.name: getattr(self, f.name).tolist() for f in fields(self)}


@dataclass(frozen=True, slots=True)
class AreaCheck:
    """A published part beside what the other chips' floor plans say.

    Attributes:
        chip: Its name.
        part: Which part.
        node_nm: Its node.
        published_mm2: As published.
        predicted_mm2: With the ratios of all other chips.
        source: Of the published figure.
    """

    chip: str
    part: str
    node_nm: float
    published_mm2: float
    predicted_mm2: float
    source: str

    @property
    def error_fraction(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted_mm2 / self.published_mm2 - 1.0


@dataclass(frozen=True, slots=True)
class AreaCells:
    """Published areas of cells at any node; lookups refuse what is not there.

    Attributes:
        file: Cells, scaling and floor plans.
    """

    file: _AreaFile

    def part_um2(self, part: str, node_nm: float) -> float:
        """A part of logic, such as "multiply-int8" or "register-bit".

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.

        Raises:
            MissingCoefficientError: If nobody has published it, or the node is beyond the tables.
        """
        entry = next((cell for cell in self.file.cells if cell.part == part), None)
        if entry is None:
            known = ", ".join(cell.part for cell in self.file.cells)
            raise MissingCoefficientError(
                "area of", part, known, "Add it to asic-area.yaml with node and source."
            )
        scale = {s.node_nm: s.ratio for s in self.file.logic_scale}
        return entry.area_um2 * _at_node(scale, node_nm) / _at_node(scale, entry.node_nm)

    def arithmetic_um2(self, dtype: Dtype, node_nm: float, *, accumulates: bool = True) -> float:
        """A multiplier and, where it accumulates, the 32-bit adder behind it.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        adder = "add-int32" if _is_integer(dtype) else "add-fp32"
        multiply = self.part_um2(f"multiply-{dtype.label}", node_nm)
        return multiply + (self.part_um2(adder, node_nm) if accumulates else 0.0)

    def sram_bit_um2(self, node_nm: float) -> float:
        """A six-transistor cell.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        return _at_node({cell.node_nm: cell.area_um2 for cell in self.file.sram_cells}, node_nm)

    def published_logic_um2(self, part: _Published) -> float:
        """Cells of the arithmetic and registers of a published part.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        if part.dtype is None:
            return 0.0
        arithmetic = self.arithmetic_um2(part.dtype, part.node_nm, accumulates=part.accumulates)
        return part.element_count * (
            arithmetic + part.register_bits * self.part_um2("register-bit", part.node_nm)
        )


@dataclass(frozen=True, slots=True)
class AreaCoefficients:
    """Areas per part; lookups refuse what is not there.

    Attributes:
        cells: Areas of cells.
        logic_ratio: Placed over cell area of arithmetic and registers.
        sram_ratio: Placed over cell area of a large bank.
        sram_bank_bits: A bank of so many bits takes twice the ratio.
    """

    cells: AreaCells
    logic_ratio: float
    sram_ratio: float
    sram_bank_bits: float

    def multiply_adder_um2(self, dtype: Dtype, node_nm: float) -> float:
        """Placed area of a multiplier and the 32-bit adder behind it.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.

        Raises:
            MissingCoefficientError: If nobody has published the format's multiplier, or the node is
                beyond the tables.
        """
        return self.logic_ratio * self.cells.arithmetic_um2(dtype, node_nm)

    def register_bit_um2(self, node_nm: float) -> float:
        """Placed area of one bit of a pipeline register.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        return self.logic_ratio * self.cells.part_um2("register-bit", node_nm)

    def sram_bit_um2(self, capacity_bytes: ArrayLike, node_nm: float) -> FloatArray:
        """Placed area of one bit of a scratchpad of that size, in banks of 1 MiB at most, in the
        shape of the size.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        bank = np.asarray(capacity_bytes, dtype=np.float64)
        if not np.all(bank > 0):
            raise InvalidValueError("capacity_bytes", capacity_bytes, "a capacity above 0")
        sides = 1.0 + np.sqrt(self.sram_bank_bits / (8.0 * np.minimum(bank, _LARGEST_BANK_BYTES)))
        return np.asarray(self.sram_ratio * self.cells.sram_bit_um2(node_nm) * sides)

    def design_parts(
        self,
        element_count: ArrayLike,
        register_bits: ArrayLike,
        scratchpad_bytes: tuple[ArrayLike, ...],
        array_count: ArrayLike,
        lane_count: ArrayLike,
        dtype: Dtype,
        node_nm: float,
    ) -> AreaParts:
        """Area of designs, by part, in their common shape (d,).

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.

        Args:
            element_count: Multiply-adders of all arrays.
            register_bits: Of one element.
            scratchpad_bytes: Of each operand, per array.
            array_count: Arrays.
            lane_count: Vector lanes, each a multiply-adder of 32 bits.
            dtype: Operand format.
            node_nm: Process node.

        Raises:
            MissingCoefficientError: As `multiply_adder_um2`.
        """
        elements, lanes = (
            np.asarray(element_count, dtype=np.float64),
            np.asarray(lane_count, dtype=np.float64),
        )
        bits, copies = (
            np.asarray(register_bits, dtype=np.float64),
            np.asarray(array_count, dtype=np.float64),
        )
        wide = Dtype.INT32 if _is_integer(dtype) else Dtype.FP32
        pads = np.broadcast_arrays(
            *(np.asarray(size, dtype=np.float64) for size in scratchpad_bytes)
        )
        sram = np.sum([8.0 * size * self.sram_bit_um2(size, node_nm) for size in pads], axis=0)
        parts_um2 = (
            elements * self.multiply_adder_um2(dtype, node_nm),
            elements * bits * self.register_bit_um2(node_nm),
            copies * sram,
            lanes * self.multiply_adder_um2(wide, node_nm),
        )
        return AreaParts(*(part * _MM2_PER_UM2 for part in np.broadcast_arrays(*parts_um2)))

    def published_mm2(self, part: _Published) -> float:
        """What the coefficients say of a published part.

        Estimate: published cells scaled to a node, times the placed-over-cell ratio of published
        floor plans.
        """
        logic = self.logic_ratio * self.cells.published_logic_um2(part)
        if part.capacity_bytes:
            logic += (
                8.0 * part.capacity_bytes * float(self.sram_bit_um2(part.bank_bytes, part.node_nm))
            )
        return logic * _MM2_PER_UM2


def _is_integer(dtype: Dtype) -> bool:
    return dtype.label.startswith("int")


def _at_node(table: dict[float, float], node_nm: float) -> float:
    """Log-log between the nodes of a table."""
    nodes = sorted(table)
    if not nodes or not nodes[0] <= node_nm <= nodes[-1]:
        known = f"{nodes[0]:g} to {nodes[-1]:g} nm" if nodes else "none"
        raise MissingCoefficientError(
            "area at node", node_nm, known, "Choose a node within the published scaling."
        )
    return float(
        np.exp(np.interp(np.log(node_nm), np.log(nodes), np.log([table[node] for node in nodes])))
    )


@lru_cache(maxsize=32)
def area_coefficients(without: str | None = None) -> AreaCoefficients:
    """The coefficients of ``calibration/class/asic-area.yaml``, with the ratios of its floor plans.

    Args:
        without: Chip whose floor plan takes no part.

    Raises:
        ProfileError: If the file is malformed, or an entry has no node or source.
    """
    path = data_root() / "calibration" / "class" / "asic-area.yaml"
    file = validated(path, lambda: _AreaFile.model_validate(read_yaml(path)))
    return _with_ratios(AreaCells(file), [part for part in file.published if part.chip != without])


def area_checks() -> tuple[AreaCheck, ...]:
    """Every published part against the ratios of the other chips; parts of logic and memory
    together enter no ratio.

    Estimate: published cells scaled to a node, times the placed-over-cell ratio of published floor
    plans.
    """
    file = area_coefficients().cells.file
    return tuple(
        AreaCheck(
            p.chip,
            p.part,
            p.node_nm,
            p.area_mm2,
            area_coefficients(p.chip).published_mm2(p),
            p.source,
        )
        for p in file.published
    )


def _with_ratios(cells: AreaCells, parts: list[_Published]) -> AreaCoefficients:
    """Ratios of the mean chip: each chip counts once, errors are relative."""
    logic = [part for part in parts if part.element_count and not part.capacity_bytes]
    placed = np.log([p.area_mm2 / (cells.published_logic_um2(p) * _MM2_PER_UM2) for p in logic])
    ratio = float(np.exp(np.average(placed, weights=_once_per_chip(logic))))
    memory = [part for part in parts if part.capacity_bytes and not part.element_count]
    bare = [8.0 * p.capacity_bytes * cells.sram_bit_um2(p.node_nm) * _MM2_PER_UM2 for p in memory]
    excess = np.log([p.area_mm2 for p in memory]) - np.log(bare)
    bits = np.array([8.0 * p.bank_bytes for p in memory])
    rest = excess - np.log1p(np.sqrt(_BANK_STEPS[:, None] / bits))
    weights = _once_per_chip(memory)
    level = np.average(rest, axis=1, weights=weights)
    best = int(np.argmin(np.average((rest - level[:, None]) ** 2, axis=1, weights=weights)))
    return AreaCoefficients(cells, ratio, float(np.exp(level[best])), float(_BANK_STEPS[best]))


def _once_per_chip(parts: list[_Published]) -> FloatArray:
    chips = [part.chip for part in parts]
    return np.array([1.0 / chips.count(chip) for chip in chips])
