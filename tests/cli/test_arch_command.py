"""``accelsim arch``."""

from __future__ import annotations

import json

import pytest


def test_sweep_shows_the_front_or_all(run):
    found = run(
        "arch",
        "sweep",
        "resnet-18",
        "--array",
        "16x16,64x64",
        "--dataflow",
        "os,ws",
        "--format",
        "json",
    )
    data = json.loads(found.out)
    assert found.code == 0
    assert len(data["points"]) == 4
    assert {point["array"] for point in data["points"]} == {"16x16", "64x64"}
    front = run("arch", "sweep", "resnet-18", "--array", "16x16,64x64", "--dataflow", "os,ws")
    everything = run(
        "arch", "sweep", "resnet-18", "--array", "16x16,64x64", "--dataflow", "os,ws", "--all"
    )
    assert len(everything.out.splitlines()) == 5
    assert len(front.out.splitlines()) <= 5
    assert "*" in front.out


def test_sweep_has_an_area_column_and_chooses_objectives(run):
    found = run("arch", "sweep", "resnet-18", "--array", "16x16,64x64", "--dataflow", "os")
    assert "mm2" in found.out.splitlines()[0]
    assert "latency, energy, area at once" in found.err
    small = run(
        "arch",
        "sweep",
        "resnet-18",
        "--array",
        "16x16,64x64",
        "--objectives",
        "elements",
        "--format",
        "json",
    )
    data = json.loads(small.out)
    assert data["objectives"] == ["elements"]
    assert {p["array"] for p in data["points"] if p["is_pareto"]} == {"16x16"}
    unknown = run("arch", "sweep", "resnet-18", "--array", "16x16", "--process-nm", "180")
    assert "unknown" in unknown.out
    assert "3 to 130 nm" in unknown.err
    wrong = run("arch", "sweep", "resnet-18", "--objectives", "price")
    assert wrong.code == 2
    assert "Use latency" in wrong.err


def test_sweep_reads_a_scale_sim_topology(run, tmp_path):
    (tmp_path / "net.csv").write_text("Layer,M,N,K,\nQK,128,64,256,\n")
    found = run("arch", "sweep", str(tmp_path / "net.csv"), "--array", "32x32", "--format", "csv")
    assert found.code == 0
    assert len(found.out.splitlines()) == 1 + 3


CONFIG = """[general]
run_name = example
[architecture_presets]
ArrayHeight: 32
ArrayWidth: 64
IfmapSramSzkB: 1024
FilterSramSzkB: 512
OfmapSramSzkB: 256
Dataflow: ws
Bandwidth: 10,20,30
[run_presets]
InterfaceBandwidth: USER
"""


def test_sweep_takes_its_designs_from_scale_sim_configurations(run, tmp_path):
    (tmp_path / "a.cfg").write_text(CONFIG)
    found = run(
        "arch", "sweep", "resnet-18", "--config", str(tmp_path / "a.cfg"), "--format", "json"
    )
    (point,) = json.loads(found.out)["points"]
    assert (point["array"], point["dataflow"], point["sram_bytes"]) == ("32x64", "ws", 1792 * 1024)
    assert (
        point["bandwidth_bytes_per_s"] == 10e9
    )  # the least of the three, one byte per word, at 1 GHz
    asked = (
        "--config",
        str(tmp_path / "a.cfg"),
        "--bandwidth",
        "5,50",
        "--precision",
        "bf16",
        "--format",
        "json",
    )
    points = json.loads(run("arch", "sweep", "resnet-18", *asked).out)["points"]
    assert [p["bandwidth_bytes_per_s"] for p in points] == [5e9, 50e9]
    assert points[0]["sram_bytes"] == 2 * 1792 * 1024


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (CONFIG.replace("USER", "CALC"), "CALC"),
        (CONFIG.replace("32", "0", 1), "arrayheight"),
        (CONFIG.replace(": ws", ": xs"), "Dataflow"),
        (CONFIG.replace("32", "65537", 1), "array rows"),
        (CONFIG.replace(": 32", ": 60000").replace(": 64", ": 60000"), "multiply-adders"),
        ("hello", "not a configuration"),
        ("", "architecture_presets"),
    ],
)
def test_bad_configurations_end_with_a_clear_message(refused, tmp_path, text, named):
    (tmp_path / "a.cfg").write_text(text)
    assert named in refused("arch", "sweep", "resnet-18", "--config", str(tmp_path / "a.cfg"))


def test_a_topology_has_its_sizes(refused, tmp_path):
    (tmp_path / "net.csv").write_text("Layer,M,N,K,\nQK,128,64,256,\n")
    assert "batch" in refused("arch", "sweep", str(tmp_path / "net.csv"), "--batch", "4")
    assert "seq_len" in refused("arch", "sweep", str(tmp_path / "net.csv"), "--seq-len", "4")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--array", "16"), "--array"),
        (("--array", "65536x65536"), "multiply-adders"),
        (("--array", "256x256", "--count", "65536"), "multiply-adders"),
        (("--batch", "99999999999"), "batch"),
        (("--seq-len", "5"), "seq_len"),
        (("--memory", "HBM4"), "technology"),
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


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("--clock-mhz", "1e99", "clock_hz"), ("--precision", "fp64", "mac-fp64")],
)
def test_impossible_clocks_and_formats_are_refused(refused, option, value, says):
    assert says in refused("arch", "sweep", "resnet-18", "--array", "16x16", option, value)
