"""Replicas agree with queueing theory where it has closed forms; `benchmarks/queues.py` has the
table up to 95 % utilisation.
"""

import numpy as np
import pytest

from accelsim.errors import InvalidValueError
from tests.queues.intervals import control_variate_interval
from tests.queues.served import (
    Queue,
    bulk_waits_s,
    recursion_waits_s,
    served_waits_s,
    two_level_interval,
)
from tests.queues.theory import bulk_waiting_s, mg1_waiting_s, mmc_waiting_s

KINDS = [(1, False), (1, True), (4, False)]


@pytest.mark.parametrize("utilisation", [0.5, 0.95])
@pytest.mark.parametrize(("servers", "is_even"), KINDS)
def test_customers_wait_as_the_recursion_says(servers, is_even, utilisation):
    queue = Queue(utilisation, servers, is_even)
    gaps, service = queue.draw(np.random.default_rng(1), (5000, 1))
    served = served_waits_s(queue, gaps[:, 0], service[:, 0])
    expected = recursion_waits_s(queue, gaps, service)[:, 0]
    assert expected.max() > 2.0
    np.testing.assert_allclose(served, expected, atol=1e-3)  # a busy period rounds its services


@pytest.mark.parametrize(("utilisation", "each"), [(0.5, 2000), (0.8, 4000)])
@pytest.mark.parametrize(("servers", "is_even"), KINDS)
def test_mean_waits_are_those_of_theory(servers, is_even, utilisation, each):
    queue = Queue(utilisation, servers, is_even)
    expected = mmc_waiting_s(queue.rate_per_s, 1.0, servers)
    if is_even:
        expected = mg1_waiting_s(queue.rate_per_s, 1.0, 0.0)
    interval, _ = two_level_interval(
        queue, np.random.default_rng(2), served=2000, replications=1000, each=each
    )
    assert abs(interval.mean - expected) < 2 * interval.half_width  # four standard errors
    assert interval.half_width < 0.02 * expected


@pytest.mark.parametrize("utilisation", [0.3, 0.7])
def test_batches_wait_as_bulk_service_says(utilisation):
    most = 8
    gaps = np.random.default_rng(3).exponential(1 / (utilisation * most), 60_000)
    interval = control_variate_interval(
        bulk_waits_s(most, np.cumsum(gaps)), [gaps], [1 / (utilisation * most)]
    )
    expected = bulk_waiting_s(utilisation * most, 1.0, most)
    assert abs(interval.mean - expected) < 2 * interval.half_width
    assert interval.half_width < 0.02 * expected


def test_bulk_service_has_its_limits():
    for rate in (0.2, 0.5, 0.9):
        alone = mg1_waiting_s(rate, 1.0, 0.0)
        assert bulk_waiting_s(rate, 1.0, 1) == pytest.approx(alone, rel=1e-6)
    # without a limit a wait is the rest of a service, but for those who find the server idle
    idle_s = np.exp(-12.0) / 12.0
    endless = 0.5 / (1 + idle_s)
    assert bulk_waiting_s(12.0, 1.0, 500) == pytest.approx(endless, rel=1e-6)
    with pytest.raises(InvalidValueError, match="below 8"):
        bulk_waiting_s(8.0, 1.0, 8)
