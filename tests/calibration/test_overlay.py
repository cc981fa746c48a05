"""Overlays: what is written is read back, what is wrong is named, and only the class's fields can
be replaced.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.calibration.overlay import overlay_text, read_fitted, user_folder, write_overlay
from accelsim.cost.cpu.parameters import cpu_parameters
from accelsim.cost.fitted import FittedParameters, apply_overlay, fitted_parameters
from accelsim.cost.residual import FamilyResidual
from accelsim.errors import ProfileError

FAMILY = FamilyResidual(120, 0.08, 0.07, 0.03, 0.05, 0.13, (1e6, 2e12), (1e3, 1e9))
OVERLAY = FittedParameters(
    "a-board",
    "gpu",
    "2026-01-02",
    'rows of "a table"',
    120,
    {"kernel_latency_s": 2e-06},
    {"gemm fp32": FAMILY},
)


def test_an_overlay_is_read_back(tmp_path: Path) -> None:
    assert read_fitted(write_overlay(OVERLAY, tmp_path)) == OVERLAY
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
    assert user_folder().is_relative_to(tmp_path)
    found = fitted_parameters("another-board@fraction=0.5")
    assert found is not None
    assert found.device == "another-board"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 2.0e-06", "value: fast", "kernel_latency_s"),
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


def test_an_overlay_replaces_fields_of_its_class_alone() -> None:
    base = cpu_parameters()
    changed = apply_overlay(base, replace(OVERLAY, parameters={"row_cycles": 3.5}))
    assert changed == replace(base, row_cycles=3.5)
    with pytest.raises(ProfileError, match="warp_drive"):
        apply_overlay(base, replace(OVERLAY, parameters={"warp_drive": 1.0}))
