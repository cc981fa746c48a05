"""``accelsim serve``: a table, JSON, rows per request, and refusals in one line."""

import csv
import json

import pytest

from accelsim.serving.steps.server_run import read_step_times

BASE = ("serve", "llama-3.1-8b", "--device", "h100-sxm-80gb", "--requests", "50", "--rate", "8")


def test_a_table_and_json(run):
    text = run(*BASE).out
    assert "TTFT" in text
    assert "per million output tokens" in text
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


def test_a_trace_for_perfetto(run, tmp_path):
    path = tmp_path / "serve.json"
    run(*BASE, "--trace", str(path))
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 3 * 50
    assert {event["name"] for event in spans} == {f"request {place}" for place in range(50)}
    assert any(event["ph"] == "C" for event in events)


def test_each_replica_has_tracks_of_its_own(run, tmp_path):
    path = tmp_path / "serve.json"
    run(*BASE, "--replicas", "2", "--prefill-device", "h100-sxm-80gb", "--trace", str(path))
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {event["args"]["name"].partition(" #")[0] for event in events if event["ph"] == "M"}
    assert {f"replica {place}: further tokens" for place in (0, 1)} <= tracks
    assert "replica 2: prompt" in tracks


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
        ("--slo-tpot", "5ms", "--slo-attainment", "most"),
        ("--slo-tpot", "5ms", "--slo-attainment", "p200"),
        ("--slo-tpot", "5ms", "--slo-attainment", "p100"),
        ("--slo-tpot", "5ms", "--slo-attainment", "p0"),
        ("--slo-tpot", "5ms", "--slo-attainment", "pnan"),
        ("--slo-tpot", "5ms", "--slo-attainment", "0"),
        ("--slo-tpot", "5ms", "--slo-attainment", "1.01"),
        ("--duration", "10"),
        ("--batch", "4"),
        ("--engine", "nothing"),
        ("--prompt", "many"),
        ("--requests-out", "x.txt"),
        ("--autoscale", "queue"),
        ("--autoscale", "queue:4:9"),
        ("--kv-link", "nvlink4"),
        ("--prefill-replicas", "2"),
        ("--prefill-tp", "2"),
        ("--pool", "replicas=2"),
        ("--pool", "device=l4,replicas=x"),
        ("--class", "share=0.3"),
        ("--class", "name=a,ttft=3"),
        ("--class", "name=a,share=0.6", "--class", "name=b,share=0.6"),
        ("--class", "name=a", "--find", "max-rate"),
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


def test_a_search_writes_its_front_as_table_csv_and_page(run, tmp_path):
    space = ("--devices", "l4,h100-sxm-80gb", "--tp", "1", "--max-seqs", "8,32", "--requests", "50")
    command = ("serve", "search", "llama-3.2-3b", *space, "--simulate", "1")
    page = tmp_path / "front.html"
    text = run(*command, "--report", str(page)).out
    assert "the front of cost and time per token" in text
    assert "USD per million tokens" in page.read_text(encoding="utf-8")
    rows = run(*command, "--format", "csv").rows
    assert {row["device"] for row in rows} == {"l4", "h100-sxm-80gb"}
    assert run(*command, "--format", "json").json["kind"] == "serving-search"
    refused = run("serve", "search", "llama-3.2-3b", "--tp", "two")
    assert (refused.code, refused.err[:6]) == (2, "error:")


def test_steps_of_a_file_are_served(run, tmp_path):
    path = tmp_path / "steps.csv"
    names = "prefill_tokens,prefill_context_sum,decode_count,decode_context_sum,s,J"
    lines = [f"0,0,{count},{600 * count},0.05," for count in range(1, 9)]
    path.write_text("\n".join([names, *lines, "512,131328,0,0,0.05,"]), encoding="utf-8")
    found = run(*BASE, "--step-times", str(path), "--format", "json").json
    assert found["tpot_s"]["p50"] == pytest.approx(0.05, rel=0.2)
    assert found["energy_j"] is None
    refused = run(*BASE, "--step-times", str(tmp_path / "none.csv"))
    assert (refused.code, refused.err[:6]) == (2, "error:")


def test_a_benchmark_is_calibrated(run, tmp_path):
    bench, steps = tmp_path / "bench.json", tmp_path / "steps.csv"
    content = {"input_lens": [9], "output_lens": [9], "ttfts": [0.1], "itls": [[0.01] * 8]}
    bench.write_text(json.dumps(content | {"start_times": [1.0]}), encoding="utf-8")
    command = ("learn", "steps", str(bench), "--out", str(steps))
    assert "8 steps of 1 requests" in run(*command).err
    assert read_step_times(steps).time_s.tolist() == pytest.approx([0.01] * 8)
    refused = run(*command)
    assert refused.code == 2
    assert "exists" in refused.err
