"""Greedy batches: by hand, against the closed form of M/D/1, and laws of the largest rate."""

import numpy as np
import pytest

from accelsim.planning.capacity.batch_queue import BatchTimes, largest_rate_per_s, latencies_s

ONE = BatchTimes((1,), (0.010,))


def test_by_hand():
    """The first runs alone from 0 to 2; three wait for it, two of them fit the next batch."""
    arrivals = np.array([0.0, 0.5, 1.0, 1.5, 9.0])
    found = latencies_s(arrivals, [0.0, 2.0, 3.0])
    assert found.tolist() == [2.0, 4.5, 4.0, 5.5, 2.0]


def test_mean_of_one_by_one_is_that_of_m_d_1():
    """Pollaczek-Khinchine: waiting ρ s / 2(1 - ρ)."""
    generator, load, service = np.random.default_rng(3), 0.6, 0.010
    arrivals = np.cumsum(generator.exponential(size=200_000)) * service / load
    mean = latencies_s(arrivals, [0.0, service]).mean()
    assert mean == pytest.approx(service + load * service / (2 * (1 - load)), rel=0.02)


def test_largest_rate_grows_with_the_limit_and_stays_below_saturation():
    rates = [
        largest_rate_per_s(ONE, limit, 1, np.random.default_rng(1)) for limit in (0.011, 0.05, 1)
    ]
    assert rates == sorted(rates)
    assert 0 < rates[0] < rates[-1] <= ONE.saturated_rate_per_s(1)


def test_twice_the_time_of_a_batch_bounds_it():
    times = BatchTimes((1, 4), (0.010, 0.040))
    assert [times.within(limit) for limit in (0.019, 0.020, 0.060, 1.0)] == [0, 1, 3, 4]
