"""Overlays: what is written is read back, what is wrong is named, and only the class's fields can
be replaced.
"""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.calibration.overlay import overlay_text, user_folder, write_overlay
from accelsim.confidence.residual import FamilyResidual
from accelsim.cost.fitted import FittedParameters, HeldOutError, fitted_parameters, read_fitted
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.shape_surface import Surface
from accelsim.cost.surface_file import surface_file_name
from accelsim.cost.table import ParameterTier
from accelsim.errors import ProfileError

FAMILY = FamilyResidual(120, 0.08, 0.07, 0.03, 0.05, 0.13, (1e6, 2e12), (1e3, 1e9))
OVERLAY = FittedParameters(
    "a-board",
    "gpu",
    "2026-01-02",
    'rows of "a table"',
    120,
    {"memory.kernel_latency_s": 2e-06},
    {"gemm fp32": FAMILY},
)


def test_an_overlay_is_read_back(tmp_path: Path) -> None:
    assert asdict(read_fitted(write_overlay(OVERLAY, tmp_path))) == asdict(OVERLAY)
    assert [path.name for path in tmp_path.iterdir()] == ["a-board.yaml"]


@given(st.floats(1e-12, 1e15))
@settings(max_examples=50, deadline=None)
def test_numbers_survive_to_four_digits(
    tmp_path_factory: pytest.TempPathFactory, value: float
) -> None:
    folder = tmp_path_factory.mktemp("overlay")
    read = read_fitted(write_overlay(replace(OVERLAY, parameters={"x": value}), folder))
    assert read.parameters["x"] == pytest.approx(value, rel=5.1e-4)


def test_the_users_overlay_comes_first_and_serves_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert fitted_parameters("a-board") is None
    write_overlay(replace(OVERLAY, device="another-board"))
    with pytest.raises(ProfileError, match="held_out: missing; fit its run again"):
        fitted_parameters("another-board")
    off = HeldOutError(40, 0.12, 0.31)
    write_overlay(replace(OVERLAY, device="another-board", held_out=off))
    assert user_folder().is_relative_to(tmp_path)
    found = fitted_parameters("another-board@fraction=0.5")
    assert found is not None
    assert found.device == "another-board"
    assert found.held_out == off


@pytest.mark.parametrize(
    "line",
    [
        "held_out: 0.1",
        "held_out: {rows: 40, median_fraction: 0.1}",
        "held_out: {rows: 40, median_fraction: -0.1, p90_fraction: 0.3}",
        "held_out: {rows: 40, median_fraction: .nan, p90_fraction: 0.3}",
        "held_out: {rows: 40, median_fraction: [], p90_fraction: 0.3}",
    ],
)
def test_a_damaged_error_of_an_overlay_is_refused_by_name(tmp_path: Path, line: str) -> None:
    path = tmp_path / "board.yaml"
    path.write_text(overlay_text(OVERLAY) + line + "\n")
    with pytest.raises(ProfileError, match="held_out"):
        read_fitted(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 2.0e-06", "value: fast", "memory.kernel_latency_s"),
        ("device_class: gpu\n", "", "device_class"),
        ("rows: 120, log_sigma", "rows: -1, log_sigma", "gemm fp32"),
        ("data:", "origin:", "data"),
    ],
)
def test_a_damaged_overlay_is_refused_by_name(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = overlay_text(OVERLAY)
    assert old in text
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ProfileError, match=message):
        read_fitted(path)


GRID = Surface.of_values((np.array([0.0, 4.0]),), np.array([0.1, -0.2]), 0.05, 30)
MEASURED = replace(
    OVERLAY,
    parameters={},
    pinned={"gemm.prologue_k": 8.0},
    surfaces={"gemm": GRID},
    tier=ParameterTier.MEASURED,
)


def test_surfaces_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    read = read_fitted(write_overlay(MEASURED, tmp_path))
    packed = tmp_path / surface_file_name("a-board")
    assert packed.is_file()
    assert read.tier is ParameterTier.MEASURED
    assert read.surfaces["gemm"].flat == pytest.approx(GRID.flat)
    write_overlay(OVERLAY, tmp_path)
    assert not packed.exists()


def test_a_missing_file_of_surfaces_is_named(tmp_path: Path) -> None:
    path = write_overlay(MEASURED, tmp_path)
    (tmp_path / surface_file_name("a-board")).unlink()
    with pytest.raises(ProfileError, match=r"a-board\.surfaces\.npz"):
        read_fitted(path)


@pytest.mark.parametrize("word", ["spec", "guess", "[measured]"])
def test_a_tier_that_no_overlay_has_is_refused(tmp_path: Path, word: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(overlay_text(OVERLAY).replace("tier: fitted\n", f"tier: {word}\n"))
    with pytest.raises(ProfileError, match="tier"):
        read_fitted(path)


def test_an_overlay_replaces_numbers_of_its_class_alone() -> None:
    base = GpuParameters.class_wide()
    changed = base.with_overlay(replace(OVERLAY, parameters={"gemm.prologue_k": 3.5}))
    assert changed.numbers() == base.numbers() | {"gemm.prologue_k": 3.5}
    assert changed.families["gemm fp32"] == replace(FAMILY, is_own=True)
    assert changed.tier is ParameterTier.FITTED
    with pytest.raises(ProfileError, match="warp_drive"):
        base.with_overlay(replace(OVERLAY, parameters={"gemm.warp_drive": 1.0}))


def test_parameters_of_an_earlier_fit_that_are_gone_are_ignored(tmp_path: Path) -> None:
    gone = {"gemm.m_contiguous_ratio": 1.4, "memory.gather_overhead_bytes": 64.0}
    old = replace(OVERLAY, parameters=OVERLAY.parameters | gone, pinned=gone)
    assert asdict(read_fitted(write_overlay(old, tmp_path))) == asdict(OVERLAY)


def test_what_surfaces_build_on_is_pinned_whatever_the_class_says() -> None:
    base = GpuParameters.class_wide().with_values({"gemm.prologue_k": 20.0})
    assert base.with_overlay(MEASURED).gemm.prologue_k == 8.0
