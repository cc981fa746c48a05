"""Estimates of a calibrated CPU whose memory allocator keeps what is freed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import accelsim
from accelsim.cli.entry import main
from accelsim.errors import InvalidValueError, UnsupportedOperatorError

SHIPPED = Path(__file__).parents[2] / "calibration" / "fitted" / "amd-epyc-2cpu-aece85.kernels.json"


@pytest.fixture
def _calibrated(tmp_path, monkeypatch):
    """This machine has the kernels of the committed run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "accelsim" / "calibration" / "fitted" / "local"
    folder.mkdir(parents=True)
    shutil.copyfile(SHIPPED, folder / "cpu.kernels.json")


@pytest.mark.usefixtures("_calibrated")
def test_a_kept_heap_is_faster_and_better_known():
    settings = {"batch": 8, "precision": "fp32"}
    given, kept = (
        accelsim.estimate("mobilenet-v2", "local/cpu", heap=heap, **settings) for heap in ("default", "kept")
    )
    assert (given.heap, kept.heap) == ("default", "kept")
    assert kept.latency_s < 0.9 * given.latency_s
    assert kept.latency_high_s / kept.latency_low_s < given.latency_high_s / given.latency_low_s


@pytest.mark.usefixtures("_calibrated")
@pytest.mark.parametrize(("device", "tier"), [("h200-sxm-141gb", "best"), ("epyc-7763", "best"), ("local/cpu", "spec")])
def test_a_kept_heap_needs_a_calibrated_cpu(device, tier, capsys):
    with pytest.raises(UnsupportedOperatorError, match="heap kept: page faults are known of calibrated CPUs alone"):
        accelsim.estimate("resnet-18", device, heap="kept", tier=tier)
    (row,) = accelsim.compare("resnet-18", device, heap="kept", tier=tier).rows
    assert "accelsim calibrate" in row.reason
    with pytest.raises(SystemExit, match="2"):
        main(["estimate", "resnet-18", "--device", device, "--heap", "kept", "--tier", tier])
    assert "heap kept" in capsys.readouterr().err


def test_a_heap_is_default_or_kept():
    with pytest.raises(InvalidValueError, match="default, kept"):
        accelsim.estimate("resnet-18", "epyc-7763", heap="lost")
