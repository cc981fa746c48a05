"""Intervals are no narrower than what systems left out show, by class of devices: in the report
that ships, and in suites scored anew, where narrower ones fail.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from accelsim.errors import UnknownNameError
from accelsim.plain import Document
from accelsim.scoreboard import score, scoreboard_dict, validate
from accelsim.scoreboard.metrics import interval_s
from accelsim.scoreboard.names import device_of

REPORT = Path(__file__).parents[2] / "calibration" / "ACCURACY.json"
LEAST_SYSTEMS = 5
LEAST_COVERAGE = 0.85
#: A simulator beside another on that one's own kernel times: nothing is predicted of a device.
WITHOUT_INTERVAL = {"serving-vidur"}
INTERVAL = ("interval_coverage_fraction", "interval_width_fraction", "interval_score_fraction")


def device_class(profile: str) -> str | None:
    """None of arrays that are no devices."""
    try:
        return str(device_of(profile).device_class)
    except UnknownNameError:
        return None


def pooled_coverage(report: Document) -> dict[str, float]:
    """Share of rows inside their interval by class of devices, suites of five systems or more
    weighted alike.
    """
    shares = defaultdict(list)
    for suite in report["suites"].values():
        if suite["systems"] < LEAST_SYSTEMS:
            continue
        rows, inside = defaultdict(int), defaultdict(float)
        for group in suite["groups"]:
            values = dict(zip(suite["fields"], group, strict=True)) if "fields" in suite else group
            covered = values["interval_coverage_fraction"]
            name = device_class(values["profile"] or "")
            if values["is_view"] or covered is None or name is None:
                continue
            rows[name] += values["rows_answered"]
            inside[name] += covered * values["rows_answered"]
        for name, count in rows.items():
            shares[name].append(inside[name] / count)
    return {name: sum(parts) / len(parts) for name, parts in shares.items()}


@pytest.fixture(scope="module")
def shipped():
    return json.loads(REPORT.read_text(encoding="utf-8"))


def test_systems_left_out_are_covered_by_class(shipped):
    covered = pooled_coverage(shipped)
    assert set(covered) == {"cpu", "gpu", "asic", "fpga"}
    assert {name: share for name, share in covered.items() if share < LEAST_COVERAGE} == {}


def test_every_suite_says_how_its_intervals_do(shipped):
    silent = {
        name
        for name, suite in shipped["suites"].items()
        if any(suite[figure] is None for figure in INTERVAL)
    }
    assert silent <= WITHOUT_INTERVAL


def anew():
    return pooled_coverage(scoreboard_dict(validate(["mlperf-inference", "llama-cpp"])))


def test_intervals_of_today_cover_and_narrower_ones_do_not(monkeypatch):
    assert min(anew().values()) >= LEAST_COVERAGE
    narrowed = lambda time_s, sigma: interval_s(time_s, 0.5 * sigma)  # noqa: E731
    monkeypatch.setattr(score, "interval_s", narrowed)
    assert anew()["gpu"] < LEAST_COVERAGE
