"""``accelsim plan`` and ``accelsim init``."""

from __future__ import annotations

from pathlib import Path

import pytest

SCENARIO = """\
name: small
services:
  - {name: vision, model: resnet-50, requests_per_s: 500, latency_p99_ms: 100}
candidates: {devices: [t4, l4], providers: [aws], regions: [us-*]}
"""


def test_a_scenario_is_written_and_answered(run, refused, tmp_path):
    path = tmp_path / "mine.yaml"
    assert run("init", path).code == 0
    assert "exists" in refused("init", path)
    shipped = Path(__file__).resolve().parents[2] / "examples" / "vision_api.yaml"
    assert path.read_text(encoding="utf-8") == shipped.read_text(encoding="utf-8")


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_every_format(run, tmp_path, output_format):
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    ran = run("plan", path, "--format", output_format)
    assert ran.code == 0
    assert "t4" in ran.out
    assert "Highs" not in ran.out
    if output_format == "json":
        assert ran.json["recommended"]["offers"][0]["count"] >= 1


def test_what_is_wrong_is_one_line(refused, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(SCENARIO.replace("[aws]", "[nobody]"), encoding="utf-8")
    assert "Unknown provider" in refused("plan", path)
    assert "missing.yaml" in refused("plan", tmp_path / "missing.yaml")


def test_no_plan_exits_with_3_and_says_what_would_have_to_give(run, tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO + "constraints: {budget_usd_per_month: 1}\n", encoding="utf-8")
    ran = run("plan", path, "--format", "json")
    assert ran.code == 3
    (miss,) = ran.json["near_misses"]
    assert miss["constraint"] == ran.json["conflicts"][0] == "constraints.budget_usd_per_month"
    path.write_text(SCENARIO, encoding="utf-8")
    least = run("plan", path, "--format", "json").json["recommended"]["cost_usd_per_month"]
    assert miss["needed"] == pytest.approx(least)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("services:", "jobs: []\nservices:", "training_jobs"),
        ("latency_p99_ms: 100", "latency_p99_ms: 100, ttft_ms: 5", "leave ttft_s out"),
        ("latency_p99_ms: 100", "latency_ms: 100, attainment_fraction: 1.5", "attainment_fraction"),
        ("requests_per_s: 500", "hourly_requests_per_s: [1, 2]", "expected 24 rates"),
        ("requests_per_s: 500, ", "", "requests_per_s or hourly_requests_per_s"),
        ("latency_p99_ms: 100", "latency_ms: 9, trace: x.csv, prompt: '9'", "leave prompt"),
    ],
)
def test_contradictions_are_named(refused, tmp_path, old, new, named):
    path = tmp_path / "bad.yaml"
    path.write_text(SCENARIO.replace(old, new), encoding="utf-8")
    assert named in refused("plan", path)
