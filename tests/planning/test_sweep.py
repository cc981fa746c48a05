"""Sweeps: every point once, as `estimate` has it, resumed after a kill, errors at their point."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import accelsim
from accelsim.errors import InputError, OutputError, ProfileError
from accelsim.planning.sweep.run import sweep
from accelsim.planning.sweep.spec import load_sweep

pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[2]
GRID = {
    "name": "grid",
    "fixed": {"precision": "fp16"},
    "vary": {"model": ["resnet-18", "bert-base"], "device": ["t4", "l4"], "batch": [1, 2, 3]},
}


def test_points_are_estimates_and_are_done_once(tmp_path):
    first = sweep(GRID, tmp_path, workers=1)
    assert (first.point_count, first.new_count, first.error_count) == (12, 12, 0)
    again = sweep(GRID, tmp_path, workers=1)
    assert (again.point_count, again.new_count) == (12, 0)
    table = again.to_frame()
    assert len(table) == table["point"].nunique() == 12
    row = table.query("workload == 'bert-base' and device == 'l4' and batch == 3").iloc[0]
    one = accelsim.estimate("bert-base", "l4", batch=3, precision="fp16")
    assert row["latency_s"] == pytest.approx(one.latency_s, rel=1e-9)
    more = {**GRID, "vary": {**GRID["vary"], "batch": [1, 2, 3, 4]}}
    assert sweep(more, tmp_path, workers=1).new_count == 4


def test_processes_find_what_one_finds(tmp_path):
    one = sweep(GRID, tmp_path / "one", workers=1).to_frame().set_index("point").sort_index()
    two = sweep(GRID, tmp_path / "two", workers=2).to_frame().set_index("point").sort_index()
    assert one.equals(two)


def test_errors_stay_at_their_points(tmp_path):
    spec = {
        "name": "some wrong",
        "method": "list",
        "points": [
            {"model": "resnet-50", "device": "t4", "batch": 1},
            {"model": "resnet-50", "device": "t4", "batch": -1},
            {"model": "resnet-50", "device": "t4", "batch": 1, "precision": "fp3"},
            {"model": "resnet-5000", "device": "t4", "batch": 1},
            {"device": "t4"},
        ],
    }
    result = sweep(spec, tmp_path, workers=1)
    assert (result.point_count, result.error_count) == (5, 4)
    reasons = sorted(result.to_frame()["reason"])
    assert reasons[0] == ""
    assert all(reasons[1:])
    assert any("fp3" in reason for reason in reasons)
    assert any("batch" in reason for reason in reasons)


def test_a_damaged_part_is_computed_again(tmp_path):
    whole = sweep(GRID, tmp_path, workers=1).to_frame()
    part = min((tmp_path / "parts").iterdir())
    part.write_bytes(part.read_bytes()[::-1])
    (tmp_path / "parts" / "stray.parquet").write_bytes(b"left by a kill")
    mended = sweep(GRID, tmp_path, workers=1)
    assert mended.new_count == 3
    assert len(mended.to_frame()) == len(whole)


def test_another_version_is_refused_and_so_is_a_second_sweep(tmp_path):
    sweep(GRID, tmp_path, workers=1)
    with sqlite3.connect(tmp_path / "index.sqlite") as index:
        index.execute("update about set value = '0.0.1'")
    with pytest.raises(OutputError, match=r"0\.0\.1"):
        sweep(GRID, tmp_path, workers=1)
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    with pytest.raises(OutputError, match="file"):
        sweep(GRID, tmp_path / "file", workers=1)


def test_a_folder_made_before_an_edit_is_refused_by_name(tmp_path, monkeypatch):
    """Of a profile of one's own that is missing, appears, and is edited."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profile = tmp_path / "accelsim" / "devices" / "mine.yaml"
    profile.parent.mkdir(parents=True)
    text = (ROOT / "device_profiles" / "gpu" / "t4.yaml").read_text(encoding="utf-8")
    text = text.replace("name: t4\n", "name: mine\n")
    spec = {"name": "own", "vary": {"model": ["resnet-18"], "device": ["l4", "mine"]}}
    assert sweep(spec, tmp_path / "missing", workers=1).error_count == 1
    profile.write_text(text, encoding="utf-8")
    with pytest.raises(OutputError, match="before device mine changed"):
        sweep(spec, tmp_path / "missing", workers=1)
    assert sweep(spec, tmp_path / "there", workers=1).error_count == 0
    assert sweep(spec, tmp_path / "there", workers=1).new_count == 0
    profile.write_text(text + "\n# a remark\n", encoding="utf-8")
    assert sweep(spec, tmp_path / "there", workers=1).new_count == 0
    profile.write_text(text.replace("title: ", "title: edited "), encoding="utf-8")
    with pytest.raises(OutputError, match="before device mine changed"):
        sweep(spec, tmp_path / "there", workers=1)


def test_resumes_exactly_once_after_kills(tmp_path):
    """Killed at random moments, with all its workers, then finished."""
    spec = tmp_path / "spec.yaml"
    devices = ["t4", "l4", "a10g", "v100-sxm2-16gb", "a100-sxm-40gb", "h100-sxm-80gb"]
    spec.write_text(
        "name: killed\nvary:\n  model: [resnet-18, mobilenet-v2, bert-base]\n"
        f"  device: [{', '.join(devices)}]\n  batch: [1, 2, 4, 8, 16]\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    code = f"import accelsim; accelsim.sweep({str(spec)!r}, {str(out)!r}, workers=1)"
    generator = np.random.default_rng(7)
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)
        while child.poll() is None and not (out / "index.sqlite").exists():
            time.sleep(0.05)
        time.sleep(float(generator.uniform(0, 0.8)))
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    result = sweep(spec, out, workers=1)
    table = result.to_frame()
    assert len(table) == table["point"].nunique() == result.point_count == 90
    with sqlite3.connect(out / "index.sqlite") as index:
        assert index.execute("select count(*) from point").fetchone() == (90,)


def test_random_points_come_from_their_ranges_and_seed():
    content = {
        "name": "random",
        "method": "random",
        "points": 50,
        "vary": {"batch": {"low": 1, "high": 1000, "scale": "log"}, "model": ["a", "b"]},
    }
    first, again = list(load_sweep(content).each()), list(load_sweep(content).each())
    assert first == again
    assert first != list(load_sweep({**content, "seed": 1}).each())
    assert all(isinstance(point["batch"], int) and 1 <= point["batch"] <= 1000 for point in first)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vary": {"bacth": [1]}}, "bacth"),
        ({"vary": {}}, "vary"),
        ({"method": "magic"}, "method"),
        ({"method": "random"}, "points"),
        ({"vary": {"batch": {"low": 1, "high": 2}}}, "range"),
        ({"vary": {"batch": list(range(10_001)), "seq_len": list(range(10_001))}}, "points"),
    ],
)
def test_what_is_wrong_is_named(change, named):
    with pytest.raises(ProfileError, match=named):
        load_sweep({**GRID, **change})
    with pytest.raises(InputError):
        sweep(GRID, "unused", workers=0)
