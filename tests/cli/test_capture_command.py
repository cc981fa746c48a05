"""``accelsim capture``: a module becomes a file that the other commands read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODULE = """\
import torch

def mlp():
    layers = (torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    return torch.nn.Sequential(*layers), torch.empty(4, 64)

def broken():
    raise RuntimeError("no such weights")

class Attend(torch.nn.Module):
    def forward(self, x):
        return (x @ x.transpose(-1, -2)).softmax(-1) @ x

def attention():
    return Attend(), torch.empty(2, 16, 64)
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path, monkeypatch):
    (tmp_path / "captured_networks.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_the_summary_has_every_format(run, output_format):
    ran = run("capture", "captured_networks:mlp", "--format", output_format)
    assert ran.code == 0
    if output_format == "json":
        document = ran.json
        assert document["parameter_count"] == 64 * 128 + 128 + 128 * 10 + 10
        assert document["flop"] == 2 * 4 * (64 * 128 + 128 * 10)
        assert document["name"] == "mlp"


def test_the_file_can_be_estimated_shown_and_compared(run):
    saved = run(
        "capture",
        "captured_networks:mlp",
        "--training",
        "--optimizer",
        "adam",
        "--out",
        "mlp.json",
        "--name",
        "me",
    )
    assert saved.code == 0
    assert "wrote mlp.json" in saved.err
    estimate = run(
        "estimate", "mlp.json", "-d", "t4", "--mode", "training", "--format", "json"
    ).json
    assert estimate["workload"] == "me"
    assert estimate["fits"]
    assert run("workloads", "show", "mlp.json").code == 0
    rows = run(
        "compare", "mlp.json", "resnet-50", "--devices", "t4,epyc-9654", "--format", "json"
    ).json
    assert {row["workload"] for row in rows} == {"me", "resnet-50"}


@pytest.mark.parametrize(("option", "count"), [("", 1), ("--no-merge-attention", 3)])
def test_attention_that_a_module_writes_out_is_merged_unless_told(run, option, count):
    document = run(
        "capture", "captured_networks:attention", *option.split(), "--format", "json"
    ).json
    assert document["operator_count"] == count


def test_an_existing_file_is_kept_without_force(run, refused):
    assert run("capture", "captured_networks:mlp", "--out", "mlp.json").code == 0
    before = Path("mlp.json").read_text(encoding="utf-8")
    assert "--force" in refused(
        "capture", "captured_networks:mlp", "--training", "--out", "mlp.json"
    )
    assert Path("mlp.json").read_text(encoding="utf-8") == before
    assert (
        run("capture", "captured_networks:mlp", "--training", "--out", "mlp.json", "--force").code
        == 0
    )
    assert Path("mlp.json").read_text(encoding="utf-8") != before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("captured_networks",), "package.module:factory"),
        (("captured_networks:absent",), "absent"),
        (("no_such_module:factory",), "no_such_module"),
        (("captured_networks:broken",), "no such weights"),
        (("captured_networks:mlp", "--training", "--optimizer", "adamx"), "adam"),
        (("captured_networks:mlp", "--precision", "fp17"), "fp16"),
        (("captured_networks:mlp", "--training", "--precision", "int8"), "trained"),
        (("captured_networks:mlp", "--out", "absent/mlp.json"), "no folder"),
    ],
)
def test_what_cannot_be_captured_is_refused(refused, arguments, words):
    assert words in refused(
        "capture", *arguments, *([] if "--out" in arguments else ["--out", "out.json"])
    )
    assert not Path("out.json").exists()


@pytest.mark.parametrize(
    ("text", "words"), [("raise SystemExit(7)", "cannot be imported"), ("", "failed: SystemExit")]
)
def test_a_module_that_exits_is_refused(refused, monkeypatch, text, words):
    name = f"exits_{len(text)}"
    Path(f"{name}.py").write_text(
        f"import sys\n{text}\ndef make(): sys.exit(7)\n", encoding="utf-8"
    )
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert words in refused("capture", f"{name}:make", "--out", "out.json")
    assert not Path("out.json").exists()


def test_the_command_line_captures_with_sizes_that_the_file_leaves_open(run, refused, tmp_path):
    pytest.importorskip("onnx")
    from tests.workloads.onnx_capture.networks import block

    path = str(block(tmp_path / "b.onnx"))
    assert "--input tokens=" in refused("estimate", path, "-d", "t4")
    out = str(tmp_path / "b.json")
    assert run("capture", path, "--input", "tokens=1x32", "--out", out).code == 0
    assert json.loads(Path(out).read_text())["name"] == "b"
    assert run("estimate", out, "-d", "t4", "--batch", "4").code == 0
    for wrong in ("tokens", "tokens=axb", "x=1x32", "tokens=1", "tokens=0x32"):
        assert "input" in refused("capture", path, "--input", wrong)
    assert "input" in refused("capture", "torch.nn:ReLU", "--input", "x=1x2")


def test_help_says_that_code_of_the_working_folder_runs(run):
    assert "its code runs" in " ".join(run("capture", "--help").out.split())
