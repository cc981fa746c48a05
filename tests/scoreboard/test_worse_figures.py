"""Comparison with an earlier report: what is worse by more than its noise is found, and named;
noise and gains are not.
"""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.scoreboard import scoreboard_dict, uncompared_suites, validate, worse_figures
from accelsim.scoreboard.metrics import figures, quantile_noise


@pytest.fixture(scope="module")
def report():
    return json.loads(json.dumps(scoreboard_dict(validate(["gpu-models"], None, "spec"))))


def changed(report, field, value):
    other = deepcopy(report)
    other["suites"]["gpu-models"][field] = value
    return other


def test_a_report_is_not_worse_than_itself(report):
    assert worse_figures(report, report) == []
    assert uncompared_suites(report, report) == []


@pytest.mark.parametrize(
    ("field", "noise", "label"),
    [
        ("mape_fraction", "mape_noise_fraction", "MAPE"),
        ("median_ape_fraction", "median_noise_fraction", "median"),
        ("p90_ape_fraction", "p90_noise_fraction", "p90"),
    ],
)
def test_errors_beyond_their_noise_are_worse(report, field, noise, label):
    suite = report["suites"]["gpu-models"]
    allowed = max(suite[noise], 0.002)
    assert worse_figures(changed(report, field, suite[field] + 0.9 * allowed), report) == []
    (line,) = worse_figures(changed(report, field, suite[field] + 1.1 * allowed), report)
    assert line.startswith(f"gpu-models: {label} ")
    assert f"was {suite[field]:.1%} (noise {suite[noise]:.1%})" in line
    assert worse_figures(changed(report, field, 0.0), report) == []


@pytest.mark.parametrize("worse", [0.4, 0.6])
def test_coverage_is_worse_farther_from_its_level(report, worse):
    good = changed(report, "interval_coverage_fraction", 0.9)
    (line,) = worse_figures(changed(report, "interval_coverage_fraction", worse), good)
    assert "coverage" in line
    assert worse_figures(good, changed(report, "interval_coverage_fraction", worse)) == []


def test_coverage_of_one_device_is_not_compared(report):
    group = deepcopy(report)
    group["suites"]["gpu-models"]["groups"][0]["interval_coverage_fraction"] = 0.0
    assert worse_figures(group, report) == []


def test_bias_counts_on_both_sides_and_ranking_downwards(report):
    zero = changed(report, "bias_fraction", 0.0)
    for bias in (-0.3, 0.3):
        assert "bias" in worse_figures(changed(report, "bias_fraction", bias), zero)[0]
    assert "Kendall tau 0.10" in worse_figures(changed(report, "kendall_tau", 0.1), report)[0]
    assert worse_figures(changed(report, "kendall_tau", 1.0), report) == []


def test_fewer_answers_are_worse_and_groups_are_named(report):
    fewer = changed(report, "rows_answered", 40)
    assert worse_figures(fewer, report) == ["gpu-models: 40 rows answered, were 41"]
    group = deepcopy(report)
    index = next(
        i for i, g in enumerate(group["suites"]["gpu-models"]["groups"]) if g["device"] == "T4"
    )
    entry = group["suites"]["gpu-models"]["groups"][index]
    entry["mape_fraction"] += 0.5
    (line,) = worse_figures(group, report)
    assert line.startswith(f"gpu-models, T4 {entry['model']}: MAPE")


def test_what_cannot_be_compared_is_said(report):
    other = changed(report, "tier", "fitted")
    assert worse_figures(other, report) == []
    assert uncompared_suites(other, report) == ["gpu-models: at tier fitted, in the report at spec"]
    assert uncompared_suites(report, {"suites": {}}) == ["gpu-models: not in the report"]


def test_figures_that_an_older_report_lacks_are_not_compared(report):
    old = deepcopy(report)
    for entry in (old["suites"]["gpu-models"], *old["suites"]["gpu-models"]["groups"]):
        for name in ("median_noise_fraction", "p90_noise_fraction"):
            del entry[name]
    assert worse_figures(changed(report, "median_ape_fraction", 5.0), old) == []


@settings(max_examples=25, deadline=None)
@given(st.integers(60, 400), st.sampled_from([0.5, 0.9]), st.integers(0, 1000))
def test_the_noise_of_a_quantile_is_that_of_repeated_samples(count, share, seed):
    random = np.random.default_rng(seed)
    noise = np.median([quantile_noise(random.exponential(size=count), share) for _ in range(300)])
    spread = 1.96 * np.std(np.quantile(random.exponential(size=(4000, count)), share, axis=1))
    assert noise == pytest.approx(spread, rel=0.25)


def test_one_row_has_no_noise():
    assert quantile_noise(np.array([1.0]), 0.5) is None
    one = np.array([1.0])
    found = figures(one, one, one, one, one)
    assert found.mape_noise_fraction is None
    assert found.median_noise_fraction is None
