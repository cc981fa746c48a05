"""``--out DIR`` of plan, serve and train, and what the folder passes."""

from __future__ import annotations

import csv
import json

import pytest

SERVE = (
    *("serve", "llama-3.2-1b", "-d", "l4", "--rate", 2, "--requests", 30),
    *("--prompt", 200, "--output", 20),
)
TRAIN = (
    *("train", "llama-3.2-1b", "-d", "h100-sxm-80gb", "-n", 8, "--plan", "zero=3"),
    *("--global-batch", 64, "--seq-len", 2048, "--stack", "torchtitan"),
)
SCENARIO = """\
name: two
services:
  - name: chat
    model: llama-3.2-1b
    requests_per_s: 2
    prompt: "200"
    output: "20"
    ttft_p99_ms: 900
  - {name: vision, model: resnet-50, requests_per_s: 200, latency_p99_ms: 100}
candidates: {devices: [l4], providers: [gcp], regions: [us-central1]}
"""


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (SERVE, {"README.md", "serve.sh", "sky.yaml"}),
        (TRAIN, {"README.md", "train.sh", "train.toml", "sky.yaml"}),
    ],
)
def test_a_folder_of_what_carries_it_out(run, refused, tmp_path, monkeypatch, command, files):
    out = tmp_path / "out"
    ran = run(*command, "--out", out)
    assert ran.code == 0
    assert ran.out  # the answer, too
    assert {path.name for path in out.iterdir()} == files
    assert "accelsim" in (out / "README.md").read_text()
    assert "--force" in refused(*command, "--out", out)
    assert run(*command, "--out", out, "--force", "-q").err == ""
    monkeypatch.chdir(out)
    line = "serve.sh" if "serve.sh" in files else "train.sh"
    device = command[command.index("-d") + 1]
    assert run("check", line, "-d", device, "--model", "llama-3.2-1b").code == 0


def test_a_plan_writes_a_folder_for_each_service(run, tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO)
    out = tmp_path / "out"
    assert run("plan", path, "--out", out, "-q").code == 0
    assert {one.name for one in out.iterdir()} == {"README.md", "chat", "vision", "focus.csv"}
    rows = list(csv.DictReader((out / "focus.csv").read_text().splitlines()))
    assert [json.loads(row["Tags"])["name"] for row in rows] == ["chat", "vision"]
    assert all(float(row["BilledCost"]) > 0 for row in rows)
    assert run("check", out / "chat" / "serve.sh", "-d", "l4").code == 0


def test_a_name_with_an_ending_is_a_file_as_before(run, tmp_path):
    assert run(*SERVE, "--out", tmp_path / "a.json").code == 0
    assert (tmp_path / "a.json").is_file()
    assert run("estimate", "lenet-5", "-d", "t4", "--out", tmp_path / "b").code == 0
    assert (tmp_path / "b").is_file()
