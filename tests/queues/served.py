"""Replicas of the serving simulator as queues, and the waits their formulas give.

A token of a prompt, or a step of any batch, takes a tick, so that lengths are service times: one
request at a time is M/M/1 or M/D/1, `servers` sequences at once are M/M/k, and batches of up to b
that start when the server is free are bulk service.

Near full load a mean needs tens of millions of customers. The simulator serves some of them; beside
them the same draws go through the waiting-time recursion (Kiefer and Wolfowitz, Transactions of the
AMS 78, 1955; Lindley's for one server), and the recursion alone through many more, all replications
at once. The estimate is the recursion's mean plus the mean of the simulator less the recursion
(Glasserman, Monte Carlo Methods in Financial Engineering, 2003, section 4.1: a control variate
whose mean is estimated apart): were the simulator off, the difference would show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from accelsim.frozen import frozen
from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.replicas.fleet import ArrivalQueue, ReplicaFleet
from accelsim.serving.replicas.routers import router
from accelsim.serving.schedulers.base import Scheduler
from accelsim.serving.schedulers.continuous import ContinuousBatching
from accelsim.serving.schedulers.limits import BatchLimits
from accelsim.serving.schedulers.window import WindowBatching
from accelsim.workloads.graph import FloatArray, IntArray
from tests.queues.intervals import ConfidenceInterval, replication_interval

#: Ticks of a mean service: fine enough that rounding a service changes no digit shown.
_MEAN_TICKS = 400_000
TICK_S = 1.0 / _MEAN_TICKS


@frozen
class Queue:
    """A queue with Poisson arrivals and a mean service of one second.

    Attributes:
        utilisation: Share of the time that servers are busy, below 1.
        servers: Servers.
        is_even: Whether all services take the same; exponential otherwise.
    """

    utilisation: float
    servers: int = 1
    is_even: bool = False

    @property
    def rate_per_s(self) -> float:
        """Arrivals per second."""
        return self.utilisation * self.servers

    @property
    def relaxation_customers(self) -> int:
        """Customers until the start is forgotten: seven relaxation times of M/M/1, each of
        1 / (1 - sqrt(utilisation))^2 services (Cohen, The Single Server Queue, 1982, section
        II.2.1).
        """
        return math.ceil(7 / (1 - math.sqrt(self.utilisation)) ** 2)

    def draw(
        self, generator: np.random.Generator, shape: int | tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray]:
        """Gaps between arrivals, and services, seconds."""
        gaps = generator.standard_exponential(shape) / self.rate_per_s
        service = np.ones(shape) if self.is_even else generator.standard_exponential(shape)
        return gaps, service


class _TokenTime:
    """A token of a prompt, or a step of any batch, takes a tick."""

    idle_w, log_sigma, common_fraction = None, 0.0, 1.0

    def step(
        self, prefill_tokens: int, _keys: float, decode_count: int, _context: float
    ) -> tuple[float, float]:
        """Prompts one after the other; a batch's tokens at once."""
        return (1 if decode_count else prefill_tokens) * TICK_S, 0.0

    def decode_run(self, _count: int, _context: float, n: int) -> tuple[float, float]:
        """Steps of a batch."""
        return n * TICK_S, 0.0


class _EvenTime(_TokenTime):
    """Any batch takes a second."""

    def step(self, *_: float) -> tuple[float, float]:
        """A batch."""
        return 1.0, 0.0


def _waits_s(columns: RequestColumns, make: Callable[[RequestLog], Scheduler]) -> FloatArray:
    log = RequestLog(columns)
    one = router("round-robin", log, np.random.default_rng(0))
    ReplicaFleet(log, [make(log)], one, ArrivalQueue(log)).run()
    waits: FloatArray = log.column("scheduled_s") - columns.arrival_s
    return waits


def _ticks(service_s: FloatArray) -> IntArray:
    ticks: IntArray = np.maximum(np.rint(service_s / TICK_S), 1).astype(np.int64)
    return ticks


def served_waits_s(queue: Queue, gaps_s: FloatArray, service_s: FloatArray) -> FloatArray:
    """Waits of customers at one replica of the serving simulator, shape (n,).

    Args:
        queue: The queue.
        gaps_s: Between arrivals, shape (n,).
        service_s: Services, shape (n,).
    """
    arrival_s, ticks = np.cumsum(gaps_s), _ticks(service_s)
    steps, ones = _TokenTime(), np.ones_like(ticks)
    if queue.servers == 1:
        columns = RequestColumns(arrival_s, ticks, 0 * ones)
        return _waits_s(columns, lambda log: WindowBatching(log, steps, 1))
    limits = BatchLimits(max_tokens=4 * queue.servers, max_seqs=queue.servers)
    columns = RequestColumns(arrival_s, ones, ticks)
    return _waits_s(columns, lambda log: ContinuousBatching(log, steps, limits))


def bulk_waits_s(most: int, arrival_s: FloatArray) -> FloatArray:
    """Waits at a replica that serves batches of up to `most`, each in a second, shape (n,).

    Args:
        most: Requests of a full batch.
        arrival_s: Arrivals, shape (n,).
    """
    ones = np.ones(len(arrival_s), dtype=np.int64)
    columns = RequestColumns(arrival_s, ones, 0 * ones)
    return _waits_s(columns, lambda log: WindowBatching(log, _EvenTime(), most))


def recursion_waits_s(queue: Queue, gaps_s: FloatArray, service_s: FloatArray) -> FloatArray:
    """Waits by the recursion over the servers' work, of replications side by side, shape (n, r).

    Args:
        queue: The queue.
        gaps_s: Between arrivals, shape (n, r); the first arrivals find servers free.
        service_s: Services, shape (n, r).
    """
    work = np.zeros((queue.servers, gaps_s.shape[1]))
    return np.array([_advance(work, *pair) for pair in zip(gaps_s, service_s, strict=True)])


def two_level_interval(
    queue: Queue, generator: np.random.Generator, *, served: int, replications: int, each: int
) -> tuple[ConfidenceInterval, float]:
    """The simulator's mean wait, and how far it is from the recursion at most.

    Args:
        queue: The queue.
        generator: Random numbers.
        served: Customers that the simulator serves.
        replications: Replications of the recursion.
        each: Customers of each after the start is forgotten.
    """
    gaps, service = queue.draw(generator, (served, 1))
    difference = served_waits_s(queue, gaps[:, 0], service[:, 0])
    difference -= recursion_waits_s(queue, gaps, service)[:, 0]
    work = np.zeros((queue.servers, replications))
    sums = np.zeros(replications)
    for place in range(queue.relaxation_customers + each):
        gap_s, service_s = queue.draw(generator, replications)
        waits = _advance(work, gap_s, service_s)
        if place >= queue.relaxation_customers:
            sums += waits
    many = replication_interval(sums / each)
    shifted = many.mean + float(difference.mean())
    return replace(many, mean=shifted), float(np.abs(difference).max())


def _advance(work: FloatArray, gap_s: FloatArray, service_s: FloatArray) -> FloatArray:
    """Waits of the next customer of each replication; the work that servers have left is sorted."""
    np.maximum(work - gap_s, 0.0, out=work)
    waits: FloatArray = work[0].copy()
    work[0] += service_s
    if len(work) > 1:
        work.sort(axis=0)
    return waits
