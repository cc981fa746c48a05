"""Energy of a matrix array by part: multiply-adders, registers, scratchpads, wires and main memory.

Every coefficient stands in ``calibration/class/asic-energy.yaml`` with its node, width and source;
nothing is assumed for a part that is not there. Between the nodes a part is known at a power law
holds, beyond them its slope goes on; scratchpad energy is interpolated log-log in the capacity. The
parts follow the action counts of Accelergy (Wu, Emer and Sze, ICCAD 2019); their sum is the total.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from accelsim.datafile import data_root, read_yaml
from accelsim.errors import InvalidValueError, MissingCoefficientError, ProfileError
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray

__all__ = [
    "Coefficient",
    "EnergyCoefficients",
    "EnergyParts",
    "energy_coefficients",
    "parse_energy_coefficients",
]

_PJ: Final = 1e-12
_FIELDS: Final = {"part", "bits", "node_nm", "capacity_bytes", "energy_pj", "kind", "source"}
_KINDS: Final = {"datasheet", "measured", "derived", "estimate"}
#: Scratchpads are built of banks: a larger one costs a bank's access and the way to it.
_LARGEST_BANK_BYTES: Final = 1048576.0


@dataclass(frozen=True, slots=True)
class Coefficient:
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
    bits: float
    node_nm: float
    energy_pj: float
    kind: str
    source: str
    capacity_bytes: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class EnergyParts:
    """Energy of some work by part, J; every column has the same shape."""

    mac_j: FloatArray
    register_j: FloatArray
    input_sram_j: FloatArray
    weight_sram_j: FloatArray
    output_sram_j: FloatArray
    wire_j: FloatArray
    dram_j: FloatArray
    vector_j: FloatArray

    @property
    def total_j(self) -> FloatArray:
        """Sum of all parts."""
        total: FloatArray = np.sum([getattr(self, f.name) for f in fields(self)], axis=0)
        return total

    def summed(self, axis: int) -> EnergyParts:
        """The parts added over one axis."""
        return EnergyParts(*(getattr(self, f.name).sum(axis=axis) for f in fields(self)))

    def to_dict(self) -> dict[str, Any]:
        """Part by part, as lists or numbers."""
        return {f.name: getattr(self, f.name).tolist() for f in fields(self)}


@dataclass(frozen=True, slots=True)
class EnergyCoefficients:
    """All coefficients; lookups refuse what is not there.

    Attributes:
        entries: Coefficients in file order.
        pitch_um: Side of one multiply-adder of `pitch_bits` at `pitch_node_nm`.
        pitch_node_nm: Its node.
        pitch_bits: Its operand width.
    """

    entries: tuple[Coefficient, ...]
    pitch_um: float
    pitch_node_nm: float
    pitch_bits: float

    def per_mac_j(self, dtype: Dtype, node_nm: float) -> float:
        """Energy of one multiply-add.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).

        Raises:
            MissingCoefficientError: If no coefficient is known for the format.
        """
        return self._energy_pj(f"mac-{dtype.label}", node_nm) * _PJ

    def per_register_bit_j(self, node_nm: float) -> float:
        """Energy of one bit read from, or written to, a pipeline register.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).
        """
        return self._energy_pj("register", node_nm, per_bit=True) * _PJ

    def per_hop_bit_j(self, node_nm: float, operand_bits: float) -> float:
        """Energy of one bit moved to the next element of the array.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).
        """
        pitch_mm = (
            self.pitch_um
            * 1e-3
            * node_nm
            / self.pitch_node_nm
            * float(np.sqrt(operand_bits / self.pitch_bits))
        )
        return self._energy_pj("wire-mm", node_nm, per_bit=True) * pitch_mm * _PJ

    def per_dram_bit_j(self, technology: str | None) -> float:
        """Energy of one bit to or from main memory; the longest known technology the name contains
        counts (HBM3e is HBM3).

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).

        Raises:
            MissingCoefficientError: If the technology is unknown.
        """
        name = (technology or "").lower().replace("-", "").replace(" ", "")
        known = sorted(
            {e.part for e in self.entries if e.part.startswith("dram-")}, key=len, reverse=True
        )
        part = next(
            (p for p in known if re.search(p.removeprefix("dram-") + r"(?!\d)", name)), None
        )
        if part is None:
            names = ", ".join(sorted(p.removeprefix("dram-") for p in known))
            remedy = "Add its coefficient to asic-energy.yaml."
            raise MissingCoefficientError("memory technology", technology, names, remedy)
        entry = next(e for e in self.entries if e.part == part)
        return entry.energy_pj / entry.bits * _PJ

    def per_sram_bit_j(self, capacity_bytes: ArrayLike, node_nm: float) -> FloatArray:
        """Energy of one bit read from, or written to, a scratchpad, in the shape of
        `capacity_bytes`.

        Coefficients and the source of each: ``calibration/class/asic-energy.yaml``; the method is
        Accelergy's (Wu et al., ICCAD 2019).

        Scratchpads above 1 MiB are banks of 1 MiB; the wire to a bank grows with the square root of
        their number.
        """
        entries = self._of("sram")
        sizes = np.unique([e.capacity_bytes for e in entries])
        at = [
            self._at_node([e for e in entries if e.capacity_bytes == size], node_nm, per_bit=True)
            for size in sizes
        ]
        capacity = np.asarray(capacity_bytes, dtype=np.float64)
        if not np.all(capacity > 0):
            raise InvalidValueError("capacity_bytes", capacity_bytes, "a capacity above 0")
        bank = np.clip(capacity, 64.0, _LARGEST_BANK_BYTES)
        slope = np.log(at[1] / at[0]) / np.log(sizes[1] / sizes[0])
        inside = np.exp(np.interp(np.log(bank), np.log(sizes), np.log(at)))
        below = at[0] * (bank / sizes[0]) ** slope
        banks = np.sqrt(np.maximum(capacity / _LARGEST_BANK_BYTES, 1.0))
        per_bit: FloatArray = np.where(bank < sizes[0], below, inside) * _PJ
        return per_bit + (banks - 1.0) * self._bank_wire_j(node_nm)

    def _bank_wire_j(self, node_nm: float) -> float:
        """Energy of one bit across the side of a 1 MiB bank: TPU v1's 24 MiB buffer takes 29 % of
        331 mm2 at 28 nm.
        """
        side_mm = float(np.sqrt(0.29 * 331.0 / 24.0)) * node_nm / 28.0
        return self._energy_pj("wire-mm", node_nm, per_bit=True) * side_mm * _PJ

    def _of(self, part: str) -> list[Coefficient]:
        found = [e for e in self.entries if e.part == part]
        if not found:
            known = ", ".join(sorted({e.part for e in self.entries}))
            raise MissingCoefficientError(
                "energy coefficient", part, known, "Add it with node, bits and source."
            )
        return found

    def _energy_pj(self, part: str, node_nm: float, *, per_bit: bool = False) -> float:
        return self._at_node(self._of(part), node_nm, per_bit=per_bit)

    def _at_node(self, entries: Sequence[Coefficient], node_nm: float, *, per_bit: bool) -> float:
        """Power law in the node through the lowest and highest known."""
        if not 1 <= node_nm <= 500:
            raise InvalidValueError("process_nm", node_nm, "1 to 500 nm")
        ordered = sorted(entries, key=lambda e: e.node_nm)
        low, high = ordered[0], ordered[-1]
        values = [e.energy_pj / (e.bits if per_bit else 1.0) for e in (low, high)]
        if low.node_nm == high.node_nm:
            if node_nm != low.node_nm:
                known = f"{low.node_nm:g} nm"
                remedy = "Add a coefficient at another node."
                raise MissingCoefficientError(f"node of {low.part}", node_nm, known, remedy)
            return values[0]
        slope = np.log(values[1] / values[0]) / np.log(high.node_nm / low.node_nm)
        return float(values[0] * (node_nm / low.node_nm) ** slope)


@lru_cache(maxsize=1)
def energy_coefficients() -> EnergyCoefficients:
    """The coefficients of ``calibration/class/asic-energy.yaml``.

    Raises:
        ProfileError: If the file is malformed, or an entry has no node, width or source.
    """
    path = data_root() / "calibration" / "class" / "asic-energy.yaml"
    return parse_energy_coefficients(read_yaml(path), str(path))


def parse_energy_coefficients(data: Mapping[str, Any], label: str) -> EnergyCoefficients:
    """Coefficients from a parsed file.

    Args:
        data: Contents.
        label: Its name, for messages.

    Raises:
        ProfileError: Naming each entry that is incomplete.
    """
    entries, pitch = data.get("coefficients"), data.get("pitch")
    if not isinstance(entries, list) or not isinstance(pitch, Mapping):
        raise ProfileError(label, ["coefficients: expected a list, and pitch: a mapping"])
    problems = [
        p for index, entry in enumerate(entries) for p in _problems(f"coefficients[{index}]", entry)
    ]
    problems += [
        f"pitch.{name}: missing"
        for name in ("value_um", "node_nm", "bits", "source")
        if not pitch.get(name)
    ]
    if problems:
        raise ProfileError(label, problems)
    return EnergyCoefficients(
        tuple(Coefficient(**entry) for entry in entries),
        pitch["value_um"],
        pitch["node_nm"],
        pitch["bits"],
    )


def _problems(place: str, entry: Any) -> list[str]:
    if not isinstance(entry, Mapping) or not set(entry) <= _FIELDS:
        return [f"{place}: expected {', '.join(sorted(_FIELDS))}"]
    wrong = [
        f"{place}.{name}: missing"
        for name in ("part", "kind", "source")
        if not isinstance(entry.get(name), str)
    ]
    if entry.get("kind") not in _KINDS:
        wrong.append(f"{place}.kind: expected one of {', '.join(sorted(_KINDS))}")
    for name in ("bits", "node_nm", "energy_pj"):
        value = entry.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            wrong.append(f"{place}.{name}: expected a number above 0")
    return wrong
