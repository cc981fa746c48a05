"""Quantiles against the library that would be too slow to load."""

from __future__ import annotations

import pytest
from scipy import stats

from accelsim.confidence.quantiles import Z90, Z95, small_sample_ratio


def test_quantiles_are_those_of_the_normal_distribution():
    assert pytest.approx(stats.norm.ppf(0.95), rel=1e-15) == Z90
    assert pytest.approx(stats.norm.ppf(0.975), rel=1e-15) == Z95


@pytest.mark.parametrize("count", [2, 3, 5, 12, 100])
def test_few_boards_widen_by_students_t(count):
    expected = stats.t.ppf(0.95, count) / Z90
    assert small_sample_ratio(count) == pytest.approx(expected, rel=0.015)
