"""``accelsim serve``: a table, JSON, rows per request, and refusals in one line."""

import csv
import json

import pytest

BASE = ("serve", "llama-3.1-8b", "--device", "h100-sxm-80gb", "--requests", "50", "--rate", "8")


def test_a_table_and_json(run):
    text = run(*BASE).out
    assert "TTFT" in text
    assert "per million tokens" in text
    document = json.loads(run(*BASE, "--format", "json").out)
    assert document["completed"] == 50
    assert document["seed"] == 0


def test_a_fleet_tells_of_its_pools(run):
    text = run(
        *BASE, "--prefill-device", "a100-sxm-80gb", "--kv-link", "ethernet-100g", "--pool",
        "device=l4,model=llama-3.2-1b,share=0.2", "--spot", "6h:30s", "--provisioning", "1min",
    ).out  # fmt: skip
    assert "prompts" in text
    assert "caches move in" in text
    assert "llama-3.2-1b on 1" in text
    assert "cold start" in text


def test_rows_per_request(run, tmp_path):
    path = tmp_path / "requests.csv"
    run(*BASE, "--requests-out", str(path))
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 50
    assert float(rows[0]["finish_s"]) > float(rows[0]["arrival_s"])


@pytest.mark.parametrize(
    "more",
    [
        ("--users", "4"),
        ("--slo-ttft", "500"),
        ("--slo-tpot", "-5ms"),
        ("--duration", "10"),
        ("--batch", "4"),
        ("--engine", "nothing"),
        ("--prompt", "many"),
        ("--requests-out", "x.txt"),
        ("--autoscale", "queue"),
        ("--autoscale", "queue:4:9"),
        ("--kv-link", "nvlink4"),
        ("--pool", "replicas=2"),
        ("--pool", "device=l4,replicas=x"),
        ("--spot", "6"),
        ("--spot", "6h", "--failures", "7h"),
        ("--speculate", "4"),
        ("--adapters", "a:b"),
        ("--host-cache", "much"),
        ("--storage", "tape", "--failures", "1h"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, more):
    done = run(*BASE, *more)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
