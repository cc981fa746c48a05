"""The fits behind calibration against closed forms: penalised least squares, and leave-one-out of a
Gaussian process.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.calibration.least_squares import fit_nonnegative
from accelsim.calibration.measured_table import _fences, _leave_one_out, fit_correction
from accelsim.cost.cpu.fitted_kernels import matern


def rows(seed, count=40, noise=0.1):
    generator = np.random.default_rng(seed)
    terms = np.exp(generator.uniform(-2, 2, (count, 3)))
    return terms, terms @ np.array([2.0, 0.5, 1.0]) * np.exp(generator.normal(0.0, noise, count))


# -- sums of terms
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("prior", [None, [1.0, 1.0, 1.0]])
def test_one_pass_is_ridge_regression_of_relative_errors(ridge, prior):
    """(X'X + n ridge S^2) c = X'1 + n ridge S^2 prior: X relative to times, S the root mean squares
    of its columns.
    """
    terms, times = rows(1)
    start = np.zeros(3) if prior is None else np.array(prior)
    relative = terms / times[:, None]
    penalty = len(times) * ridge * np.diag((relative**2).mean(axis=0))
    expected = np.linalg.solve(
        relative.T @ relative + penalty, relative.sum(axis=0) + penalty @ start
    )
    assert (expected > 0).all()
    given_prior = None if prior is None else start
    assert fit_nonnegative(terms, times, given_prior, ridge=ridge, passes=1) == pytest.approx(
        expected
    )


def test_defaults_are_a_small_ridge_and_four_passes():
    terms, times = rows(2)
    times[:4] *= 5
    assert fit_nonnegative(terms, times) == pytest.approx(
        fit_nonnegative(terms, times, ridge=1e-3, passes=4), rel=1e-12
    )
    assert fit_nonnegative(terms, times) != pytest.approx(
        fit_nonnegative(terms, times, passes=5), rel=1e-7
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), unit=st.floats(1e-3, 1e3), scale=st.floats(1e-3, 1e3))
def test_coefficients_follow_the_units_of_terms_and_times(seed, unit, scale):
    terms, times = rows(seed)
    base = fit_nonnegative(terms, times)
    changed = fit_nonnegative(terms * np.array([scale, 1.0, 1.0]), times * unit)
    assert changed == pytest.approx(
        unit * base / np.array([scale, 1.0, 1.0]), rel=1e-6, abs=1e-9 * unit
    )


def test_rows_far_off_weigh_less_with_every_pass():
    terms, times = rows(3, noise=0.01)
    times[:5] *= 3  # disturbed measurements
    truth = np.array([2.0, 0.5, 1.0])
    once, robust = (fit_nonnegative(terms, times, passes=passes) for passes in (1, 8))
    assert np.abs(robust / truth - 1).max() < 0.02 < np.abs(once / truth - 1).max()


def test_huber_weights_are_those_of_twice_the_median_deviation():
    """A constant fitted to nine ones and one two, no ridge: first the relative least squares, then
    one reweighting.
    """
    times = np.array([1.0] * 9 + [2.0])
    relative = 1 / times
    first = relative.sum() / (relative**2).sum()
    off = np.abs(first * relative - 1)
    weight = np.minimum(1.0, max(2 * np.median(off), 0.02) / off)
    second = (weight * relative).sum() / (weight * relative**2).sum()
    assert fit_nonnegative(np.ones((10, 1)), times, ridge=1e-12, passes=1) == pytest.approx([first])
    assert fit_nonnegative(np.ones((10, 1)), times, ridge=1e-12, passes=2) == pytest.approx(
        [second]
    )


def test_no_coefficient_is_negative():
    terms = np.column_stack([np.arange(1.0, 21.0), np.ones(20)])
    found = fit_nonnegative(terms, np.arange(1.0, 21.0) - 0.5)  # the best line has a negative start
    assert found[1] == 0
    assert 0.9 < found[0] < 1


# -- corrections
# -----------------------------------------------------------------------------------------------------


def test_matern_covariance_by_hand():
    # Rasmussen and Williams, equation 4.17: (1 + sqrt(3) r / l) exp(-sqrt(3) r / l); r / l = 1 in
    # one of two coordinates.
    found = matern(
        np.array([[0.0, 0.0]]), np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 3.0]]), np.array([2.0, 3.0])
    )
    one, two = np.sqrt(3.0), np.sqrt(6.0)
    assert found[0] == pytest.approx([1.0, (1 + one) * np.exp(-one), (1 + two) * np.exp(-two)])


def test_left_out_errors_are_those_of_leaving_rows_out():
    """Each row predicted from all others by the process itself, and the likelihood of what was
    measured there.
    """
    generator = np.random.default_rng(4)
    places, residuals = generator.uniform(0, 3, (12, 2)), generator.normal(0, 0.3, 12)
    scales, noise, variance = np.array([1.0, 2.0]), 0.2, 0.5
    score, errors, weights = _leave_one_out(places, residuals, scales, noise, variance)
    losses = []
    for left in range(12):
        kept = np.arange(12) != left
        inner = variance * (matern(places[kept], places[kept], scales) + noise * np.eye(11))
        cross = variance * matern(places[left : left + 1], places[kept], scales)[0]
        mean = cross @ np.linalg.solve(inner, residuals[kept])
        spread = variance * (1.0 + noise) - cross @ np.linalg.solve(inner, cross)
        assert errors[left] == pytest.approx(residuals[left] - mean)
        losses.append(0.5 * np.log(spread) + 0.5 * (residuals[left] - mean) ** 2 / spread)
    assert score == pytest.approx(np.mean(losses))
    whole = variance * (matern(places, places, scales) + noise * np.eye(12))
    assert weights == pytest.approx(np.linalg.solve(whole, residuals))


def test_fences_are_five_median_deviations_and_at_least_a_tenth():
    values = np.array([0.0, 1.0, 2.0, 3.0, 10.0])  # median 2; deviations 0, 1, 1, 2, 8
    assert _fences(values) == pytest.approx((2 - 5 * 1.4826, 2 + 5 * 1.4826))
    assert _fences(np.array([0.5, 0.5, 0.5, 0.501])) == pytest.approx((0.4, 0.6))


def smooth(count=40, seed=0):
    places = np.random.default_rng(seed).uniform(0, 6, (count, 1))
    return places, 0.4 * np.sin(places[:, 0])


def test_seven_rows_make_no_table_and_eight_do():
    places = np.linspace(0.0, 3.0, 8)[:, None]
    values = np.linspace(-0.5, 0.5, 8)
    assert fit_correction(places, values) is not None
    assert fit_correction(places[:7], values[:7]) is None


@pytest.mark.parametrize("wild", [3.0, 30.0, -300.0])
def test_one_wild_row_bends_the_table_no_more_than_a_fence_allows(wild):
    places, error = smooth()
    clean = fit_correction(places, error)
    spoilt = error.copy()
    spoilt[7] += wild
    bent = fit_correction(places, spoilt)
    assert clean is not None
    assert bent is not None
    at = np.linspace(0.5, 5.5, 20)[:, None]
    assert clean.at(at) == pytest.approx(0.4 * np.sin(at[:, 0]), abs=0.05)
    assert bent.at(at) == pytest.approx(clean.at(at), abs=0.35)


def test_coordinates_that_do_not_vary_do_not_matter():
    places, error = smooth()
    alone = fit_correction(places, error)
    beside = fit_correction(np.column_stack([places, np.full(len(places), 7.0)]), error)
    assert alone is not None
    assert beside is not None
    at = np.linspace(0.5, 5.5, 9)
    both = np.column_stack([at, np.full(9, 7.0)])
    assert beside.at(both) == pytest.approx(alone.at(at[:, None]), abs=1e-6)


def test_rows_in_another_order_make_the_same_table():
    places, error = smooth()
    order = np.random.default_rng(1).permutation(len(error))
    one, other = fit_correction(places, error), fit_correction(places[order], error[order])
    assert one is not None
    assert other is not None
    at = np.linspace(0, 6, 11)[:, None]
    assert one.at(at) == pytest.approx(other.at(at), abs=1e-8)
