"""Ratios of published floor plans: those that ship, and chips left out."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.cost.systolic.area import area_coefficients
from tools.refit.asic_area import area_errors, placed_ratios

AREA = area_coefficients()


def test_the_ratios_that_ship_are_those_of_the_floor_plans():
    fitted, shipped = placed_ratios(AREA).placed, AREA.placed
    for name in ("logic_ratio", "sram_ratio", "sram_bank_bits"):
        assert getattr(shipped, name) == pytest.approx(getattr(fitted, name), rel=1e-12)


def test_chips_left_out_are_predicted_within_the_published_errors():
    checks = area_errors(AREA)
    chips = {"TPU v1", "TPU v4i", "Gemmini", "NVDLA", "ShiDianNao", "SCNN"}
    assert {plan.chip for plan, _ in checks} >= chips
    error = np.abs([predicted / plan.area_mm2 - 1.0 for plan, predicted in checks])
    assert np.median(error) < 0.38
    assert error.max() < 1.5  # EIE's single-ported memories
    tpu = [(plan.area_mm2, predicted) for plan, predicted in checks if plan.chip == "TPU v1"]
    published, predicted = np.sum(tpu, axis=0)
    assert predicted == pytest.approx(published, rel=0.45)


def test_a_chip_does_not_check_itself():
    def without(chip):
        return placed_ratios(AREA, chip).placed

    # TPU v1's array is the loosest but one.
    assert without("TPU v1").logic_ratio < AREA.placed.logic_ratio
    assert without("EIE").sram_ratio > AREA.placed.sram_ratio
    # NVDLA enters no ratio.
    assert without("NVDLA").logic_ratio == pytest.approx(AREA.placed.logic_ratio)
