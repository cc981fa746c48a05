"""Estimates of a CPU by its threads, and by whether its memory allocator keeps what is freed."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

import accelsim
from accelsim.cli.entry import main
from accelsim.cost import registry
from accelsim.errors import InputError, InvalidValueError, UnsupportedOperatorError

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
        accelsim.estimate("mobilenet-v2", "local/cpu", heap=heap, **settings)
        for heap in ("default", "kept")
    )
    assert (given.heap, kept.heap) == ("default", "kept")
    assert kept.latency_s < 0.9 * given.latency_s
    assert kept.latency_high_s / kept.latency_low_s < given.latency_high_s / given.latency_low_s


@pytest.mark.usefixtures("_calibrated")
@pytest.mark.parametrize(("mode", "context"), [("inference", 0.05), ("training", 0.14)])
def test_intervals_hold_what_no_operator_shows(mode, context, monkeypatch):
    """What all rows share widens every interval, page faults by half of their share or more; the
    operators' spread too.
    """
    tables = []
    cost = registry.operator_costs
    monkeypatch.setattr(
        "accelsim.estimation.sharded_costs.operator_costs",
        lambda *a, **k: tables.append(cost(*a, **k)) or tables[-1],
    )
    for heap in ("default", "kept"):
        run = accelsim.estimate(
            "vgg-16", "local/cpu", batch=2, precision="fp32", mode=mode, heap=heap
        )
        spread = math.log(run.latency_high_s / run.latency_low_s) / 2 / 1.6448536269514722
        assert spread > tables[-1].context_log_sigma
    default, kept = tables
    assert kept.context_log_sigma == pytest.approx(context)
    # fresh pages come with their lines, kept ones from main memory: the difference is somewhat less
    # than the faults' time
    faults = 1.0 - kept.total_time_s / default.total_time_s
    assert 0.99 < default.context_log_sigma / math.hypot(context, 0.5 * faults) < 1.25


@pytest.mark.usefixtures("_calibrated")
@pytest.mark.parametrize(
    ("device", "tier"), [("h200-sxm-141gb", "best"), ("epyc-7763", "best"), ("local/cpu", "spec")]
)
def test_a_kept_heap_needs_a_calibrated_cpu(device, tier, capsys):
    with pytest.raises(
        UnsupportedOperatorError, match="heap kept: page faults are known of calibrated CPUs alone"
    ):
        accelsim.estimate("resnet-18", device, heap="kept", tier=tier)
    (row,) = accelsim.compare("resnet-18", device, heap="kept", tier=tier).rows
    assert "accelsim calibrate" in row.reason
    with pytest.raises(SystemExit, match="2"):
        main(["estimate", "resnet-18", "--device", device, "--heap", "kept", "--tier", tier])
    assert "heap kept" in capsys.readouterr().err


def test_fewer_threads_take_longer_and_are_said(capsys):
    runs = [
        accelsim.estimate("resnet-18", "epyc-7763", threads=count, tier="spec")
        for count in (1, 8, None)
    ]
    assert runs[0].latency_s > 2 * runs[1].latency_s > 2 * runs[2].latency_s
    assert [run.inputs["threads"] for run in runs] == [1, 8, 64]
    with pytest.raises(SystemExit):
        main(["estimate", "resnet-18", "--device", "local/cpu", "--threads", "1", "--format=json"])
    assert json.loads(capsys.readouterr().out)["inputs"]["threads"] == 1


@pytest.mark.parametrize(
    ("device", "threads", "said"),
    [("epyc-7763", 65, "1 to 64, the cores"), ("epyc-7763", 0, "1 to 64"), ("t4", 2, "of CPUs")],
)
def test_threads_are_cores_of_a_cpu(device, threads, said):
    with pytest.raises(InputError, match=said):
        accelsim.estimate("resnet-18", device, threads=threads)


def test_a_heap_is_default_or_kept():
    with pytest.raises(InvalidValueError, match="default, kept"):
        accelsim.estimate("resnet-18", "epyc-7763", heap="lost")
