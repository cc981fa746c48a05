"""A device that answers requests in batches: it takes what waits, up to a limit, as soon as it is
free.

Greedy batching of GPU servers (Inoue, Queueing analysis of GPU-based inference servers with dynamic
batching, Performance Evaluation 147, 2021): the time of a batch is a function of its size, arrivals
are Poisson.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray

#: Steps of the search for the largest rate: to 1/1,000 of the saturated one.
_BISECTIONS = 10
#: Requests that stand for the rest: 40 lie beyond the 99th percentile.
_REQUESTS = 4000


@frozen
class BatchTimes:
    """Time of a batch by its size, between measured sizes along a line.

    Attributes:
        sizes: Batch sizes, ascending, from 1.
        time_s: Time of a batch of that size, not falling.
    """

    sizes: tuple[int, ...]
    time_s: tuple[float, ...]

    def up_to(self, limit: int) -> list[float]:
        """Time of batches of 0 to `limit` samples, seconds."""
        times: list[float] = np.interp(np.arange(limit + 1), self.sizes, self.time_s).tolist()
        return times

    def within(self, limit_s: float) -> int:
        """Largest size whose batch can be waited for once and then answered within a limit: twice
        its time (Shen et al., Nexus, SOSP 2019, section 4.1); 0 where there is none.
        """
        in_time = np.flatnonzero(2 * np.array(self.up_to(self.sizes[-1])) <= limit_s)
        return int(in_time[-1]) if 2 * self.time_s[0] <= limit_s else 0

    def saturated_rate_per_s(self, limit: int) -> float:
        """Samples per second back to back, the batch at its best size up to `limit`."""
        time_s = np.array(self.up_to(limit))[1:]
        return float((np.arange(1, limit + 1) / time_s).max(initial=0.0))


def latencies_s(arrival_s: FloatArray, batch_time_s: list[float]) -> FloatArray:
    """Time from each arrival to its answer on one device.

    Greedy batching: Inoue, Performance Evaluation 147, 2021.

    Args:
        arrival_s: Arrivals, ascending, seconds.
        batch_time_s: Time of a batch by its size, from 0 to the largest.

    Returns:
        Seconds, shape of `arrival_s`.
    """
    arrivals = arrival_s.tolist()
    count, limit = len(arrivals), len(batch_time_s) - 1
    answered_s = np.empty(count)
    first, free = 0, 0.0
    while first < count:
        start = max(free, arrivals[first])
        end = bisect_right(arrivals, start, first, min(first + limit, count))
        free = start + batch_time_s[end - first]
        answered_s[first:end] = free
        first = end
    latency: FloatArray = answered_s - arrival_s
    return latency


def late_share(
    times: BatchTimes,
    rate_per_s: float,
    limit_s: float,
    batch: int,
    generator: np.random.Generator,
) -> float:
    """Share of the answers of one device that come later than a limit.

    Args:
        times: Time of its batches.
        rate_per_s: Poisson rate.
        limit_s: The limit.
        batch: Largest batch.
        generator: Draws the arrivals.
    """
    if batch < 1:
        return 1.0
    gaps = np.cumsum(generator.exponential(size=_REQUESTS))
    return float(np.mean(latencies_s(gaps / rate_per_s, times.up_to(batch)) > limit_s))


def largest_rate_per_s(
    times: BatchTimes,
    limit_s: float,
    batch: int,
    share: float,
    generator: np.random.Generator,
) -> float:
    """Largest Poisson rate of one device at which a share of the answers comes within a limit.

    Args:
        times: Time of its batches.
        limit_s: Latency that they keep.
        batch: Largest batch.
        share: How many of them.
        generator: Draws the arrivals; the same for every rate, so that the answer is monotone.

    Returns:
        Requests per second; 0 where a batch of one is too slow.
    """
    gaps = np.cumsum(generator.exponential(size=_REQUESTS))
    by_size = times.up_to(batch)
    low, high = 0.0, times.saturated_rate_per_s(batch)
    for _ in range(_BISECTIONS):
        rate = (low + high) / 2
        in_time = np.mean(latencies_s(gaps / rate, by_size) <= limit_s)
        low, high = (rate, high) if in_time >= share else (low, rate)
    return low
