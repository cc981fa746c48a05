"""How sure a choice is."""

import numpy as np
import pytest

from accelsim.confidence.best import (
    OWN_SHARE,
    difference_log_sigma,
    is_tie,
    near_best_probability,
)


def test_errors_that_alternatives_share_cancel():
    alike = difference_log_sigma(0.2, 0.2)
    assert alike == pytest.approx(0.2 * np.sqrt(2 * OWN_SHARE))
    assert difference_log_sigma(0.2, 0.2, is_alike=False) == pytest.approx(0.2 * np.sqrt(2))


def test_a_tie_is_a_difference_whose_interval_holds_zero():
    assert is_tie((1.0, 0.2), (1.1, 0.2))
    assert not is_tie((1.0, 0.2), (1.3, 0.2))
    assert is_tie((1.0, 0.2), (1.3, 0.2), is_alike=False)
    assert not is_tie((1.0, 0.0), (1.001, 0.0))


def test_the_probability_follows_the_difference():
    predicted = np.array([1.0, 1.02, 1.5, 40.0])
    found = near_best_probability(predicted, np.full(4, 0.1))
    assert found[0] > 0.9
    assert found[0] > found[1] > found[2]
    assert found[3] == 0.0
    assert (near_best_probability(predicted, np.zeros(4)) == [1, 1, 0, 0]).all()


def test_two_alternatives_agree_with_the_normal_distribution():
    """P(ln ratio <= ln 1.05) of a difference of known spread."""
    from statistics import NormalDist

    found = near_best_probability(np.array([1.0, 1.1]), np.array([0.2, 0.2]))
    spread = difference_log_sigma(0.2, 0.2)
    known = [NormalDist(gap, spread).cdf(np.log(1.05)) for gap in (-np.log(1.1), np.log(1.1))]
    assert found == pytest.approx(known, abs=0.02)


def test_alternatives_of_several_classes_share_nothing():
    pair = (np.array([1.0, 1.3]), np.array([0.2, 0.2]))
    alike, apart = (near_best_probability(*pair, names)[0] for names in ("aa", "ab"))
    assert alike > apart


def test_what_costs_nothing_is_the_best():
    assert is_tie((0.0, 0.0), (0.0, 0.0))
    assert not is_tie((0.0, 0.1), (1.0, 0.1))
    assert near_best_probability(np.array([0.0, 1.0]), np.full(2, 0.1)).tolist() == [1.0, 0.0]
