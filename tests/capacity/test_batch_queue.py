"""Greedy batches: by hand, against the closed form of M/D/1, and laws of the largest rate."""

import numpy as np
import pytest

from accelsim.capacity.batch_queue import BatchTimes, largest_rate_per_s, latencies_s
from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.replicas.fleet import ArrivalQueue, ReplicaFleet
from accelsim.serving.replicas.routers import router
from accelsim.serving.schedulers.window import WindowBatching
from accelsim.serving.steps.step_times import StepCurve, StepSurface, TabulatedSteps

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
        largest_rate_per_s(ONE, limit, 1, 0.99, np.random.default_rng(1))
        for limit in (0.011, 0.05, 1)
    ]
    assert rates == sorted(rates)
    assert 0 < rates[0] < rates[-1] <= ONE.saturated_rate_per_s(1)


def test_twice_the_time_of_a_batch_bounds_it():
    times = BatchTimes((1, 4), (0.010, 0.040))
    assert [times.within(limit) for limit in (0.019, 0.020, 0.060, 1.0)] == [0, 1, 3, 4]


def test_the_queue_is_the_simulators_whole_batches_without_a_window():
    by_size = [0.0, 0.010, 0.013, 0.017, 0.020]
    arrival_s = np.cumsum(np.random.default_rng(3).exponential(1 / 150, 2000))
    ones = np.ones(len(arrival_s), dtype=np.int64)
    log = RequestLog(RequestColumns(arrival_s, ones, 0 * ones))
    sizes, nothing = np.arange(1, 5), np.zeros((2, 2))
    times = StepCurve(sizes, np.array(by_size[1:]), np.zeros(4))
    free = StepCurve(sizes[:2], np.zeros(2), np.zeros(2))
    flat = StepSurface(sizes[:2], np.array([0.0, 1.0]), nothing, nothing)
    replica = WindowBatching(log, TabulatedSteps(times, times, free, flat, flat), 4)
    one = router("round-robin", log, np.random.default_rng(0))
    ReplicaFleet(log, [replica], one, ArrivalQueue(log)).run()
    simulated = log.column("finish_s") - arrival_s
    np.testing.assert_allclose(latencies_s(arrival_s, by_size), simulated, rtol=1e-9)
