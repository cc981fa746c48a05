"""The front is that of all pairs, however many objectives there are."""

import time

import numpy as np
import pytest

from accelsim.estimation.pareto import known_front, pareto_mask


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_front_is_what_no_other_row_dominates(objectives):
    generator = np.random.default_rng(objectives)
    for most in (2, 5, 1000):
        values = generator.integers(0, most, (60, objectives)).astype(float)
        values[generator.random(values.shape) < 0.05] = np.inf
        no_worse = (values[:, None] <= values).all(axis=2)
        is_better = (values[:, None] < values).any(axis=2)
        is_beaten = (no_worse & is_better).any(axis=0)
        np.testing.assert_array_equal(pareto_mask(values), ~is_beaten)
    assert pareto_mask(np.empty((0, objectives))).shape == (0,)


def test_a_row_is_beaten_by_those_that_know_what_it_knows():
    generator = np.random.default_rng(0)
    values = generator.integers(0, 4, (80, 3)).astype(float)
    values[generator.random(values.shape) < 0.3] = np.nan
    is_known = ~np.isnan(values)
    kept = known_front(values)
    for place, (own, knows) in enumerate(zip(values, is_known, strict=True)):
        rivals = values[is_known[:, knows].all(axis=1)][:, knows]
        is_beaten = ((rivals <= own[knows]).all(axis=1) & (rivals < own[knows]).any(axis=1)).any()
        assert kept[place] != is_beaten
    assert known_front(np.empty((0, 3))).shape == (0,)


def test_a_large_front_takes_no_pairs_of_rows():
    falling = np.arange(30_000.0)
    start = time.process_time()
    assert pareto_mask(np.stack([falling, -falling, falling], axis=1)).all()
    assert time.process_time() - start < 3
