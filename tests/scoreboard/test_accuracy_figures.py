"""Accuracy figures: closed forms, Kendall's tau by counting pairs, laws."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from accelsim.confidence.quantiles import Z90, Z95
from accelsim.scoreboard.metrics import (
    absolute_errors,
    figures,
    interval_s,
    kendall_tau,
    knee_batch,
    ranking_tau,
)

TIMES = arrays(np.float64, st.integers(3, 30), elements=st.floats(1e-6, 1e3))


def score(predicted, measured, sigma=0.1, roofline=None):
    predicted, measured = np.asarray(predicted, float), np.asarray(measured, float)
    low, high = interval_s(predicted, np.full(len(predicted), sigma))
    line = np.full(len(predicted), np.nan) if roofline is None else np.asarray(roofline, float)
    return figures(predicted, measured, low, high, line)


def test_figures_of_four_rows_by_hand():
    found = score([1.1, 0.8, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0], roofline=[0.5, 0.5, 0.5, 0.5])
    assert found.rows_answered == 4
    assert found.mape_fraction == pytest.approx((0.1 + 0.2 + 1.0 + 0.0) / 4)
    assert found.median_ape_fraction == pytest.approx(0.15)
    assert found.max_ape_fraction == pytest.approx(1.0)
    assert found.bias_fraction == pytest.approx((0.1 - 0.2 + 1.0) / 4)
    assert found.roofline_mape_fraction == pytest.approx(0.5)
    assert found.interval_coverage_fraction == pytest.approx(0.5)  # exp(0.164) = 1.18: rows 1 and 4
    assert found.kendall_tau is None  # all measured times are equal


def test_no_rows_give_no_figures():
    found = score([], [])
    assert found.rows_answered == 0
    assert {value for name, value in asdict(found).items() if name != "rows_answered"} == {None}


def test_a_perfect_prediction_has_no_error_and_full_coverage():
    found = score([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert found.mape_fraction == found.max_ape_fraction == found.bias_fraction == 0
    assert found.kendall_tau == pytest.approx(1.0)
    assert found.interval_coverage_fraction == 1


def test_normal_log_errors_are_covered_at_the_level():
    generator = np.random.default_rng(7)
    measured = np.exp(0.25 * generator.standard_normal(20_000))
    found = score(np.ones_like(measured), measured, sigma=0.25)
    assert found.interval_coverage_fraction == pytest.approx(0.9, abs=0.01)
    assert found.interval_width_fraction == pytest.approx(2 * math.sinh(Z90 * 0.25))


def test_the_score_of_an_interval_is_its_width_and_twenty_times_what_lies_outside():
    low, high, none = np.array([0.5, 0.5]), np.array([2.0, 2.0]), np.full(2, np.nan)
    found = figures(np.ones(2), np.array([1.0, 2.25]), low, high, none)
    assert found.interval_score_fraction == pytest.approx((1.5 + 1.5 + 20 * 0.25) / 2)


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0])
def test_the_score_is_best_with_the_true_spread(factor):
    generator = np.random.default_rng(11)
    measured = np.exp(0.1 * generator.standard_normal(20_000))
    true, other = (score(np.ones_like(measured), measured, s) for s in (0.1, 0.1 * factor))
    assert true.interval_score_fraction < other.interval_score_fraction


@settings(max_examples=40, deadline=None)
@given(TIMES, st.floats(0.1, 10.0))
def test_errors_do_not_depend_on_the_unit_of_time(measured, factor):
    predicted = measured[::-1].copy()
    scaled = absolute_errors(predicted * factor, measured * factor)
    assert scaled == pytest.approx(absolute_errors(predicted, measured), rel=1e-9, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(TIMES)
def test_quantiles_are_ordered(measured):
    found = score(np.ones_like(measured), measured)
    assert found.median_ape_fraction <= found.p90_ape_fraction <= found.max_ape_fraction + 1e-12
    assert found.mape_fraction <= found.max_ape_fraction + 1e-12
    assert abs(found.bias_fraction) <= found.mape_fraction + 1e-12


@settings(max_examples=30, deadline=None)
@given(st.permutations(list(range(8))))
def test_tau_counts_pairs(order):
    predicted, measured = np.array(order, dtype=float), np.arange(8.0)
    pairs = list(itertools.combinations(range(8), 2))
    right = sum(order[j] > order[i] for i, j in pairs)
    assert kendall_tau(predicted, measured) == pytest.approx((2 * right - len(pairs)) / len(pairs))


def test_ranking_averages_the_questions_with_three_candidates():
    choice = ["a", "a", "a", "b", "b", "b", "c", "c"]
    measured = np.array([1, 2, 3, 1, 2, 3, 1, 2.0])
    predicted = np.array([1, 2, 3, 3, 2, 1, 2, 1.0])
    assert ranking_tau(predicted, measured, choice) == pytest.approx(
        0.0
    )  # a: 1, b: -1, c has two only
    assert ranking_tau(predicted[6:], measured[6:], choice[6:]) is None


def test_knee_is_where_throughput_saturates():
    batch = np.array([1, 2, 4, 8, 16, 32.0])
    assert knee_batch(batch, np.full(6, 1.0)) == 32  # launch bound throughout
    assert knee_batch(batch, batch.copy()) == 1  # throughput bound from the start
    assert knee_batch(batch, np.maximum(4.0, batch)) == 4


# -- laws over random rows


ROWS = st.integers(1, 60).flatmap(
    lambda n: st.tuples(*(arrays(np.float64, n, elements=st.floats(1e-6, 1e3)) for _ in range(2)))
)


@settings(max_examples=80, deadline=None)
@given(ROWS)
def test_figures_are_those_of_the_standard_library(rows):
    predicted, measured = rows
    errors = [abs(p - m) / m for p, m in zip(predicted.tolist(), measured.tolist(), strict=True)]
    found = score(predicted, measured)
    assert found.mape_fraction == pytest.approx(statistics.fmean(errors), rel=1e-6, abs=1e-9)
    assert found.median_ape_fraction == pytest.approx(statistics.median(errors), rel=1e-6, abs=1e-9)
    assert found.max_ape_fraction == pytest.approx(max(errors), rel=1e-6, abs=1e-9)
    if len(errors) > 1:
        assert found.p90_ape_fraction == pytest.approx(
            statistics.quantiles(errors, n=10, method="inclusive")[8], rel=1e-6, abs=1e-9
        )
        noise = Z95 * statistics.stdev(errors) / math.sqrt(len(errors))
        assert found.mape_noise_fraction == pytest.approx(
            noise, rel=1e-6, abs=1e-9 * (1 + max(errors))
        )


@settings(max_examples=80, deadline=None)
@given(ROWS)
def test_tau_is_that_of_counted_pairs_with_ties(rows):
    predicted, measured = (np.round(np.log10(column)) for column in rows)  # many ties
    pairs = list(itertools.combinations(range(len(measured)), 2))
    signs = [
        (np.sign(predicted[i] - predicted[j]), np.sign(measured[i] - measured[j])) for i, j in pairs
    ]
    untied = math.sqrt(sum(a != 0 for a, _ in signs)) * math.sqrt(sum(b != 0 for _, b in signs))
    found = kendall_tau(predicted, measured)
    if len(measured) < 3 or untied == 0:
        assert found is None
    else:
        assert found == pytest.approx(sum(a * b for a, b in signs) / untied, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.floats(0.01, 2.0))
def test_coverage_counts_the_rows_between_the_ends(rows, sigma):
    predicted, measured = rows
    low, high = interval_s(predicted, np.full(len(predicted), sigma))
    inside = sum(
        l <= m <= h for l, m, h in zip(low.tolist(), measured.tolist(), high.tolist(), strict=True)
    )
    found = score(predicted, measured, sigma)
    assert found.interval_coverage_fraction == pytest.approx(inside / len(measured))
    wider = score(predicted, measured, 2 * sigma)
    assert wider.interval_coverage_fraction >= found.interval_coverage_fraction
    assert wider.interval_width_fraction > found.interval_width_fraction


@settings(max_examples=40, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows, random):
    predicted, measured = rows
    order = list(range(len(measured)))
    random.shuffle(order)
    one, other = score(predicted, measured), score(predicted[order], measured[order])
    for name, value in asdict(one).items():
        assert asdict(other)[name] == (
            value if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)
        )


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.int64, st.integers(2, 40), elements=st.integers(1, 10**6)).map(lambda us: 1e-3 * us),
    st.floats(0.5, 2.0),
)
def test_a_constant_factor_is_all_bias_and_no_loss_of_rank(measured, factor):
    found = score(measured * factor, measured)
    assert found.bias_fraction == pytest.approx(factor - 1, abs=1e-9)
    assert found.mape_fraction == pytest.approx(abs(factor - 1), abs=1e-9)
    assert found.kendall_tau is None or found.kendall_tau > 0.999


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(0, 1000))
def test_the_knee_reaches_nine_tenths_of_the_best_rate_and_none_before_it_does(count, seed):
    random = np.random.default_rng(seed)
    batch = np.cumsum(random.integers(1, 5, count)).astype(float)
    time = random.uniform(0.1, 2.0, count)
    knee = knee_batch(batch, time)
    rate = batch / time
    assert rate[batch == knee][0] >= 0.9 * rate.max()
    assert np.all(rate[batch < knee] < 0.9 * rate.max())


def test_rows_predicted_as_nothing_have_no_relative_width():
    zero = np.zeros(2)
    found = figures(zero, np.ones(2), zero, zero, np.full(2, np.nan))
    assert found.interval_width_fraction is None
    assert found.mape_fraction == 1.0
