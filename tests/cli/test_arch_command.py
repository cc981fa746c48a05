"""``accelsim arch``."""

from __future__ import annotations

import json

import pytest


def test_sweep_shows_the_front_or_all(run):
    found = run("arch", "sweep", "resnet-18", "--array", "16x16,64x64", "--dataflow", "os,ws", "--format", "json")
    data = json.loads(found.out)
    assert found.code == 0
    assert len(data["points"]) == 4
    assert {point["array"] for point in data["points"]} == {"16x16", "64x64"}
    front = run("arch", "sweep", "resnet-18", "--array", "16x16,64x64", "--dataflow", "os,ws")
    everything = run("arch", "sweep", "resnet-18", "--array", "16x16,64x64", "--dataflow", "os,ws", "--all")
    assert len(everything.out.splitlines()) == 5
    assert len(front.out.splitlines()) <= 5
    assert "*" in front.out


def test_sweep_reads_a_scale_sim_topology(run, tmp_path):
    (tmp_path / "net.csv").write_text("Layer,M,N,K,\nQK,128,64,256,\n")
    found = run("arch", "sweep", str(tmp_path / "net.csv"), "--array", "32x32", "--format", "csv")
    assert found.code == 0
    assert len(found.out.splitlines()) == 1 + 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--array", "16"), "--array"),
        (("--array", "0x16"), "rows"),
        (("--array", "16x1000000"), "columns"),
        (("--array", ","), "--array"),
        (("--dataflow", "rs"), "dataflow"),
        (("--sram", "1/2"), "--sram"),
        (("--sram", "0.001"), "Enlarge"),
        (("--bandwidth", "fast"), "--bandwidth"),
        (("--bandwidth", "-1"), "bandwidth"),
        (("--count", "1.5"), "--count"),
        (("--precision", "fp8"), "mac-fp8"),
        (("--memory", "tape"), "technology"),
        (("--batch", "0"), "batch"),
        (("--weight-density", "2"), "density"),
    ],
)
def test_bad_designs_end_with_a_clear_message(run, options, named):
    found = run("arch", "sweep", "resnet-18", *options)
    assert found.code == 2
    assert named in found.err
    assert "Traceback" not in found.err


def test_peaks_lists_quoted_and_derived(run):
    found = run("arch", "peaks", "tpu-v1", "nnp-t-1300", "--format", "json")
    rows = {row["device"]: row for row in json.loads(found.out)}
    assert rows["tpu-v1"]["differs"] is False
    assert rows["nnp-t-1300"]["differs"] is True
    assert "nnp-t-1300" in run("arch", "peaks").out
