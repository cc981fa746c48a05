"""Area by part: published floor plans left out, laws over node, width and size, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.cost.systolic.area import DesignParts, area_coefficients
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, MissingCoefficientError

AREA = area_coefficients()
NODES = (5, 7, 10, 14, 16, 22, 28, 45, 65, 90)


def test_every_figure_has_node_kind_and_source():
    for entry in (*AREA.cells, *AREA.sram_cells, *AREA.logic_scale):
        assert entry.node_nm > 0
        assert entry.kind
        assert len(entry.source) > 10


def test_published_cells_come_back_at_their_node():
    # Dally 2015 (45 nm); Stillmaker and Baas 2017 (45 to 7 nm: 0.16 to 0.0092).
    assert AREA.arithmetic_um2(Dtype.INT8, 45) == pytest.approx(282 + 137)
    assert AREA.arithmetic_um2(Dtype.FP32, 45) == pytest.approx(7700 + 4184)
    assert AREA.arithmetic_um2(Dtype.INT8, 7) == pytest.approx(419 * 0.0092 / 0.16)
    assert AREA.sram_cell_um2(28) == pytest.approx(0.127)


def test_area_grows_with_node_width_and_capacity():
    for area in (
        lambda n: AREA.multiply_adder_um2(Dtype.INT8, n),
        AREA.register_bit_um2,
        lambda n: float(AREA.sram_bit_um2(1e5, n)),
    ):
        assert np.all(np.diff([area(node) for node in NODES]) > 0)
    order = [Dtype.INT8, Dtype.INT16, Dtype.BF16, Dtype.FP16, Dtype.FP32]
    assert np.all(np.diff([AREA.multiply_adder_um2(dtype, 7) for dtype in order]) > 0)
    sizes = np.logspace(2, 8, 50)
    assert np.all(np.diff(AREA.sram_bit_um2(sizes, 7)) <= 0)  # per bit
    assert np.all(np.diff(sizes * AREA.sram_bit_um2(sizes, 7)) > 0)


def test_parts_of_a_design_grow_with_what_they_hold():
    made_of = DesignParts([1024.0, 4096.0], 56.0, 1.0, [32.0, 64.0], (1e6, 1e6, 5e5))
    parts = AREA.design_parts(made_of, Dtype.INT8, 7)
    assert parts["mac_mm2"][1] == pytest.approx(4 * parts["mac_mm2"][0])
    assert parts["vector_mm2"][1] == pytest.approx(2 * parts["vector_mm2"][0])
    assert parts["sram_mm2"][1] == parts["sram_mm2"][0]
    assert set(parts) == {"mac_mm2", "register_mm2", "sram_mm2", "vector_mm2"}


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda: AREA.multiply_adder_um2(Dtype.FP8, 7), "multiply-fp8"),
        (lambda: AREA.multiply_adder_um2(Dtype.INT8, 180), "3 to 130 nm"),
        (lambda: AREA.sram_bit_um2(1e5, 2), "node"),
    ],
)
def test_a_missing_figure_is_refused_by_name(ask, match):
    with pytest.raises(MissingCoefficientError, match=match):
        ask()


def test_a_part_that_is_not_in_the_file_is_refused():
    bare = AREA.model_copy(update={"cells": ()})
    with pytest.raises(MissingCoefficientError, match="register-bit"):
        bare.part_um2("register-bit", 28)
    with pytest.raises(InvalidValueError, match="above 0"):
        AREA.sram_bit_um2(0.0, 28)
