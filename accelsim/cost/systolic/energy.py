"""Energy of a matrix array by part: multiply-adders, registers, scratchpads, wires and main memory.

Every coefficient stands in ``calibration/class/asic-energy.yaml`` with its node, width and source;
nothing is assumed for a part that is not there. Between the nodes a part is known at a power law
holds, beyond them its slope goes on; scratchpad energy is interpolated log-log in the capacity. The
parts follow the action counts of Accelergy (Wu, Emer and Sze, ICCAD 2019); their sum is the total.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from accelsim.cost.class_parameters import class_file
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, MissingCoefficientError
from accelsim.hardware.sourced import FrozenModel, SourceKind
from accelsim.workloads.graph import FloatArray

ENERGY_FILE = "asic-energy"
_PJ = 1e-12
#: Scratchpads are built of banks: a larger one costs a bank's access and the way to it.
_LARGEST_BANK_BYTES = 1048576.0
_SMALLEST_BANK_BYTES = 64.0
#: Side of a 1 MiB bank at 28 nm: TPU v1's 24 MiB buffer takes 29 % of 331 mm2.
_BANK_SIDE_MM = float(np.sqrt(0.29 * 331.0 / 24.0))

_Above0 = Annotated[float, Field(gt=0)]
_Source = Annotated[str, Field(min_length=8)]
_Kind = Annotated[SourceKind, Field(strict=False)]


class Coefficient(FrozenModel):
    """Energy of one action.

    Attributes:
        part: What acts: "mac-int8", "register", "sram", "wire-mm", "dram-hbm2" ...
        bits: Width of the action.
        node_nm: Process node.
        energy_pj: Energy of the whole width.
        kind: datasheet, measured, derived or estimate.
        source: Where it comes from.
        capacity_bytes: Of a scratchpad; 0 for other parts.
    """

    part: str
    bits: _Above0
    node_nm: _Above0
    energy_pj: _Above0
    kind: _Kind
    source: _Source
    capacity_bytes: Annotated[float, Field(ge=0)] = 0.0


class _Pitch(FrozenModel):
    """Side of one multiply-adder of a width at a node."""

    value_um: _Above0
    node_nm: _Above0
    bits: _Above0
    kind: _Kind
    source: _Source


class EnergyCoefficients(FrozenModel):
    """All coefficients; lookups refuse what is not there.

    Attributes:
        kind: What the file holds.
        device_class: Of ASICs.
        coefficients: In file order.
        pitch: Side of one multiply-adder.
    """

    kind: Literal["energy_coefficients"]
    device_class: Literal["asic"]
    coefficients: tuple[Coefficient, ...] = Field(strict=False)
    pitch: _Pitch

    def per_mac_j(self, dtype: Dtype, node_nm: float) -> float:
        """Energy of one multiply-add.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).

        Raises:
            MissingCoefficientError: If no coefficient is known for the format.
        """
        return self._part_j(f"mac-{dtype.label}", node_nm, per_bit=False)

    def per_register_bit_j(self, node_nm: float) -> float:
        """Energy of one bit read from, or written to, a pipeline register.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).
        """
        return self._part_j("register", node_nm)

    def per_hop_bit_j(self, node_nm: float, operand_bits: float) -> float:
        """Energy of one bit moved to the next element of the array.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).
        """
        pitch = self.pitch
        pitch_mm = 1e-3 * pitch.value_um * node_nm / pitch.node_nm
        wider = float(np.sqrt(operand_bits / pitch.bits))
        return self._part_j("wire-mm", node_nm) * pitch_mm * wider

    def per_dram_bit_j(self, technology: str | None) -> float:
        """Energy of one bit to or from main memory; the longest known technology the name contains
        counts (HBM3e is HBM3).

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).

        Raises:
            MissingCoefficientError: If the technology is unknown.
        """
        name = (technology or "").lower().replace("-", "").replace(" ", "")
        entries = [e for e in self.coefficients if e.part.startswith("dram-")]
        for entry in sorted(entries, key=lambda e: len(e.part), reverse=True):
            if re.search(entry.part.removeprefix("dram-") + r"(?!\d)", name):
                return entry.energy_pj / entry.bits * _PJ
        names = ", ".join(sorted(e.part.removeprefix("dram-") for e in entries))
        remedy = "Add its coefficient to asic-energy.yaml."
        raise MissingCoefficientError("memory technology", technology, names, remedy)

    def per_sram_bit_j(self, capacity_bytes: ArrayLike, node_nm: float) -> FloatArray:
        """Energy of one bit read from, or written to, a scratchpad, in the shape of
        `capacity_bytes`.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).

        Scratchpads above 1 MiB are banks of 1 MiB; the wire to a bank grows with the square root of
        their number.
        """
        sizes = np.unique([e.capacity_bytes for e in self._of("sram")])
        at = [self._part_j("sram", node_nm, size) for size in sizes]
        capacity = np.asarray(capacity_bytes, dtype=np.float64)
        if not np.all(capacity > 0):
            raise InvalidValueError("capacity_bytes", capacity_bytes, "a capacity above 0")
        bank = np.clip(capacity, _SMALLEST_BANK_BYTES, _LARGEST_BANK_BYTES)
        slope = np.log(at[1] / at[0]) / np.log(sizes[1] / sizes[0])
        inside = np.exp(np.interp(np.log(bank), np.log(sizes), np.log(at)))
        per_bit = np.where(bank < sizes[0], at[0] * (bank / sizes[0]) ** slope, inside)
        banks = np.sqrt(np.maximum(capacity / _LARGEST_BANK_BYTES, 1.0))
        wire_j = self._part_j("wire-mm", node_nm) * _BANK_SIDE_MM * node_nm / 28.0
        found: FloatArray = per_bit + (banks - 1.0) * wire_j
        return found

    def _of(self, part: str) -> list[Coefficient]:
        found = [e for e in self.coefficients if e.part == part]
        if not found:
            known = ", ".join(sorted({e.part for e in self.coefficients}))
            raise MissingCoefficientError(
                "energy coefficient", part, known, "Add it with node, bits and source."
            )
        return found

    def _part_j(
        self, part: str, node_nm: float, capacity_bytes: float = 0.0, *, per_bit: bool = True
    ) -> float:
        """Power law in the node through the lowest and highest known.

        Estimate: rests on the coefficients at the two nodes alone.
        """
        if not 1 <= node_nm <= 500:
            raise InvalidValueError("process_nm", node_nm, "1 to 500 nm")
        entries = [e for e in self._of(part) if e.capacity_bytes == capacity_bytes]
        known = {e.node_nm: e.energy_pj / (e.bits if per_bit else 1.0) for e in entries}
        low, high = min(known), max(known)
        if low == high != node_nm:
            remedy = "Add a coefficient at another node."
            raise MissingCoefficientError(f"node of {part}", node_nm, f"{low:g} nm", remedy)
        slope = 0.0 if low == high else np.log(known[high] / known[low]) / np.log(high / low)
        return float(known[low] * (node_nm / low) ** slope) * _PJ


@cache
def energy_coefficients() -> EnergyCoefficients:
    """The coefficients of ``calibration/class/asic-energy.yaml``.

    Raises:
        ProfileError: If the file is malformed, or an entry has no node, width or source.
    """
    return class_file(ENERGY_FILE, EnergyCoefficients)
