"""Placed over cell area of matrix ASICs, fitted to the floor plans of ``class/asic-area.yaml``.

``python -m tools.refit.asic_area`` prints the ratios for its ``placed`` section and every floor
plan beside what the other chips' say.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from accelsim.cost.systolic.area import AreaCoefficients, area_coefficients
from accelsim.dtype import Dtype
from accelsim.workloads.graph import FloatArray

_MM2_PER_UM2 = 1e-6
_BANK_STEPS = np.geomspace(1.0, 1e7, 300)


@dataclass(frozen=True, slots=True)
class FloorPlan:
    """Area of a part of a chip: elements of an array, memory, or both together."""

    chip: str
    part: str
    node_nm: float
    area_mm2: float
    source: str
    dtype: str = ""
    element_count: int = 0
    register_bits: int = 0
    accumulates: bool = True
    capacity_bytes: float = 0.0
    bank_bytes: float = 1.0

    def logic_mm2(self, cells: AreaCoefficients) -> float:
        """Cells of its arithmetic and registers."""
        if not self.dtype:
            return 0.0
        dtype = next(d for d in Dtype if d.label == self.dtype)
        arithmetic = cells.arithmetic_um2(dtype, self.node_nm, accumulates=self.accumulates)
        registers = self.register_bits * cells.part_um2("register-bit", self.node_nm)
        return self.element_count * (arithmetic + registers) * _MM2_PER_UM2

    def placed_mm2(self, area: AreaCoefficients) -> float:
        """What the coefficients say of it."""
        memory = 8.0 * self.capacity_bytes * float(area.sram_bit_um2(self.bank_bytes, self.node_nm))
        return area.placed.logic_ratio * self.logic_mm2(area) + memory * _MM2_PER_UM2


def floor_plans(area: AreaCoefficients) -> tuple[FloorPlan, ...]:
    """The published ones."""
    return tuple(FloorPlan(**entry) for entry in area.published)


def placed_ratios(area: AreaCoefficients, without: str | None = None) -> AreaCoefficients:
    """The coefficients with ratios of the mean chip: each chip counts once, errors are relative.

    Parts of logic and memory together enter no ratio.

    Args:
        area: Cells and floor plans.
        without: Chip whose floor plan takes no part.
    """
    plans = [plan for plan in floor_plans(area) if plan.chip != without]
    logic = [plan for plan in plans if plan.element_count and not plan.capacity_bytes]
    placed = np.log([plan.area_mm2 / plan.logic_mm2(area) for plan in logic])
    memory = [plan for plan in plans if plan.capacity_bytes and not plan.element_count]
    bare = [8.0 * p.capacity_bytes * area.sram_cell_um2(p.node_nm) * _MM2_PER_UM2 for p in memory]
    excess = np.log([plan.area_mm2 for plan in memory]) - np.log(bare)
    bits = np.array([8.0 * plan.bank_bytes for plan in memory])
    rest = excess - np.log1p(np.sqrt(_BANK_STEPS[:, None] / bits))
    weights = _once_per_chip(memory)
    level = np.average(rest, axis=1, weights=weights)
    best = int(np.argmin(np.average((rest - level[:, None]) ** 2, axis=1, weights=weights)))
    ratios = {
        "logic_ratio": float(np.exp(np.average(placed, weights=_once_per_chip(logic)))),
        "sram_ratio": float(np.exp(level[best])),
        "sram_bank_bits": float(_BANK_STEPS[best]),
    }
    return area.model_copy(update={"placed": area.placed.model_copy(update=ratios)})


def _once_per_chip(plans: list[FloorPlan]) -> FloatArray:
    chips = [plan.chip for plan in plans]
    return np.array([1.0 / chips.count(chip) for chip in chips])


def area_errors(area: AreaCoefficients) -> list[tuple[FloorPlan, float]]:
    """Every floor plan and its area, mm2, with the ratios of all other chips."""
    return [(p, p.placed_mm2(placed_ratios(area, p.chip))) for p in floor_plans(area)]


if __name__ == "__main__":
    SHIPPED = area_coefficients()
    FITTED = placed_ratios(SHIPPED).placed
    sys.stdout.write(f"{FITTED.logic_ratio} {FITTED.sram_ratio} {FITTED.sram_bank_bits}\n")
    for found, predicted_mm2 in area_errors(SHIPPED):
        error = predicted_mm2 / found.area_mm2 - 1.0
        sys.stdout.write(f"{found.chip:12} {found.part:36} {error:+.2f}\n")
