"""The fits behind calibration against closed forms: penalised least squares, and leave-one-out of a
Gaussian process.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.calibration.least_squares import fit_nonnegative


def rows(seed, count=40, noise=0.1):
    generator = np.random.default_rng(seed)
    terms = np.exp(generator.uniform(-2, 2, (count, 3)))
    return terms, terms @ np.array([2.0, 0.5, 1.0]) * np.exp(generator.normal(0.0, noise, count))


# -- sums of terms


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
    given_prior = 0.0 if prior is None else start
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
