"""Energy by part: sums, sources, size and node, and refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from accelsim.cost.class_parameters import class_file
from accelsim.cost.systolic.energy import ENERGY_FILE, EnergyCoefficients, energy_coefficients
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, MissingCoefficientError, ProfileError
from accelsim.files.datafile import data_root, read_yaml

PATH = data_root() / "calibration" / "class" / f"{ENERGY_FILE}.yaml"
COEFFICIENTS = energy_coefficients()


def test_every_coefficient_has_node_width_kind_and_source():
    for entry in COEFFICIENTS.coefficients:
        assert entry.bits > 0
        assert entry.node_nm > 0
        assert entry.energy_pj > 0
        assert len(entry.source) > 10


def test_published_figures_come_back_at_their_node():
    # Horowitz, ISSCC 2014, figure 1.1.9 (45 nm); Jouppi et al., ISCA 2021, table 2 (7 nm).
    assert COEFFICIENTS.per_mac_j(Dtype.INT8, 45) == pytest.approx(0.23e-12)
    assert COEFFICIENTS.per_mac_j(Dtype.BF16, 7) == pytest.approx(0.32e-12)
    assert COEFFICIENTS.per_sram_bit_j([8192, 32768, 2**20], 45) * 64 == pytest.approx(
        [10e-12, 20e-12, 100e-12]
    )
    assert COEFFICIENTS.per_sram_bit_j([8192, 32768, 2**20], 7) * 64 == pytest.approx(
        [7.5e-12, 8.5e-12, 14e-12]
    )
    assert COEFFICIENTS.per_dram_bit_j("HBM2") * 64 == pytest.approx(250e-12)
    assert COEFFICIENTS.per_dram_bit_j("HBM2e") == pytest.approx(
        6.0e-12
    )  # Micron, Ultra-Bandwidth Solutions brief
    assert COEFFICIENTS.per_dram_bit_j("HBM3e") == COEFFICIENTS.per_dram_bit_j("HBM3")


def test_energy_grows_with_capacity_node_and_width():
    sizes = np.logspace(2, 8.5, 60)
    for node in (5, 7, 16, 28, 45, 65):
        assert np.all(np.diff(COEFFICIENTS.per_sram_bit_j(sizes, node)) > 0)
    nodes = [5, 7, 16, 28, 45, 65]
    for energy in (
        lambda node: COEFFICIENTS.per_mac_j(Dtype.INT8, node),
        COEFFICIENTS.per_register_bit_j,
        lambda node: COEFFICIENTS.per_hop_bit_j(node, 8),
        lambda node: float(COEFFICIENTS.per_sram_bit_j(1e5, node)),
    ):
        assert np.all(np.diff([energy(node) for node in nodes]) > 0)
    order = [Dtype.INT8, Dtype.INT16, Dtype.BF16, Dtype.FP16, Dtype.FP32]
    assert np.all(np.diff([COEFFICIENTS.per_mac_j(dtype, 7) for dtype in order]) > 0)


@pytest.mark.parametrize(
    ("part", "ask"),
    [
        ("mac-int8", lambda c: c.per_mac_j(Dtype.INT8, 28)),
        ("register", lambda c: c.per_register_bit_j(28)),
        ("sram", lambda c: c.per_sram_bit_j(1e5, 28)),
        ("wire-mm", lambda c: c.per_hop_bit_j(28, 8)),
        ("dram-hbm2", lambda c: c.per_dram_bit_j("HBM2")),
    ],
)
def test_a_missing_coefficient_is_refused_by_name(part, ask):
    kept = tuple(entry for entry in COEFFICIENTS.coefficients if entry.part != part)
    lacking = COEFFICIENTS.model_copy(update={"coefficients": kept})
    with pytest.raises(
        MissingCoefficientError,
        match=part.removeprefix("dram-").upper() if "dram" in part else part,
    ):
        ask(lacking)


def test_unknown_formats_and_memories_are_refused():
    with pytest.raises(MissingCoefficientError, match="mac-fp4"):
        COEFFICIENTS.per_mac_j(Dtype.FP4, 7)
    for memory in ("drum memory", "HBM4", None):
        with pytest.raises(MissingCoefficientError, match="technology"):
            COEFFICIENTS.per_dram_bit_j(memory)
    with pytest.raises(InvalidValueError, match="process_nm"):
        COEFFICIENTS.per_mac_j(Dtype.INT8, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", None),
        ("node_nm", 0),
        ("bits", "8"),
        ("energy_pj", -1),
        ("kind", "guess"),
        ("unit", 1),
    ],
)
def test_incomplete_entries_are_refused_by_place(tmp_path, field, value):
    data = read_yaml(PATH)
    data["coefficients"][3][field] = value
    (tmp_path / PATH.name).write_text(json.dumps(data))
    with pytest.raises(ProfileError, match=rf"coefficients.3.{field}"):
        class_file(ENERGY_FILE, EnergyCoefficients, tmp_path)
