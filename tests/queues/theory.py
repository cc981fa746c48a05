"""Queues: a simulated multi-server queue on the engine, and the closed forms it is checked against.

Formulas from Kleinrock, Queueing Systems I (1975): M/M/1 (section 3.2), M/M/c with Erlang's C
(section 3.5), M/G/1 with the Pollaczek-Khinchine mean (section 5.6). Rates are per second; waiting
excludes service, sojourn includes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.simulation.engine import Engine, TaskColumns
from accelsim.workloads.graph import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class QueueResult:
    """What each customer of a queue saw, in order of arrival, shape (n,).

    Attributes:
        arrival_s: Arrival times, in seconds.
        waiting_s: Time before service, in seconds.
        sojourn_s: Time from arrival to departure, in seconds.
    """

    arrival_s: FloatArray
    waiting_s: FloatArray
    sojourn_s: FloatArray


def erlang_c(server_count: int, offered_load: float) -> float:
    """Probability that a customer of M/M/c waits, by the stable recursion of Erlang's B.

    Args:
        server_count: Servers c >= 1.
        offered_load: Arrival rate over service rate of one server, 0 <= a < c.

    Raises:
        InvalidValueError: If the queue is not stable.
    """
    if not 0 <= offered_load < server_count:
        raise InvalidValueError(
            "offered_load", offered_load, f"0 to below server_count = {server_count}"
        )
    blocking = 1.0
    for servers in range(1, server_count + 1):
        blocking = offered_load * blocking / (servers + offered_load * blocking)
    return blocking / (1 - offered_load / server_count * (1 - blocking))


def mmc_waiting_s(
    arrival_rate_per_s: float, service_rate_per_s: float, server_count: int = 1
) -> float:
    """Mean waiting time of M/M/c (M/M/1 where c = 1), in seconds.

    Args:
        arrival_rate_per_s: Poisson arrivals, per second.
        service_rate_per_s: Of one server, exponential, per second, > 0.
        server_count: Servers c >= 1.

    Raises:
        InvalidValueError: If the queue is not stable.
    """
    probability = erlang_c(server_count, arrival_rate_per_s / service_rate_per_s)
    return probability / (server_count * service_rate_per_s - arrival_rate_per_s)


def mg1_waiting_s(
    arrival_rate_per_s: float, mean_service_s: float, service_variance_s2: float
) -> float:
    """Mean waiting time of M/G/1, in seconds (Pollaczek-Khinchine); variance 0 is M/D/1.

    Args:
        arrival_rate_per_s: Poisson arrivals, per second.
        mean_service_s: Mean service time, in seconds.
        service_variance_s2: Variance of the service time, in s^2.

    Raises:
        InvalidValueError: If the queue is not stable.
    """
    load = arrival_rate_per_s * mean_service_s
    if not 0 <= load < 1:
        raise InvalidValueError("arrival_rate_per_s x mean_service_s", load, "0 to below 1")
    return arrival_rate_per_s * (mean_service_s**2 + service_variance_s2) / (2 * (1 - load))


def bulk_waiting_s(arrival_rate_per_s: float, service_s: float, most: int) -> float:
    """Mean waiting time of M/D/1 with batches of 1 to `most`, in seconds.

    The customers left as a service ends are a Markov chain: `most` of them go into the next batch,
    Poisson ones come; where there are none the server waits for one. Its stationary distribution is
    solved for numbers that hold all but a negligible share, and Little's law gives the wait
    (Chaudhry and Templeton, A First Course in Bulk Queues, 1983, chapter 4).

    Args:
        arrival_rate_per_s: Poisson arrivals, per second.
        service_s: Of a batch of any size, in seconds.
        most: Customers of a full batch, >= 1.

    Raises:
        InvalidValueError: If the queue is not stable.
    """
    from scipy.stats import poisson

    came = arrival_rate_per_s * service_s
    if not 0 < came < most:
        raise InvalidValueError("arrival_rate_per_s x service_s", came, f"above 0, below {most}")
    states = np.arange(most + math.ceil(20 * most / (most - came) + 10 * math.sqrt(came) + 20))
    stays = np.maximum(states - most, 0)
    chain = poisson.pmf(states[None, :] - stays[:, None], came)
    chain[:, -1] += 1 - chain.sum(axis=1)
    balance = np.vstack([(chain.T - np.eye(len(states)))[:-1], np.ones(len(states))])
    share = np.linalg.solve(balance, np.append(np.zeros(len(states) - 1), 1.0))
    queued_s = share @ stays * service_s + came * service_s / 2
    cycle_s = service_s + share[0] / arrival_rate_per_s
    return float(queued_s / cycle_s / arrival_rate_per_s)


def simulate_queue(
    interarrival_s: FloatArray, service_s: FloatArray, server_count: int = 1
) -> QueueResult:
    """Run customers through one first-come-first-served queue on the engine, an event per arrival
    and per departure.

    Args:
        interarrival_s: Time between arrivals, drawn by the caller, shape (n,), in seconds.
        service_s: Service time of each customer, shape (n,), in seconds.
        server_count: Servers >= 1.

    Raises:
        InvalidValueError: If the columns differ in length or hold negative times.
    """
    if interarrival_s.shape != service_s.shape:
        raise InvalidValueError(
            "service_s", service_s.shape, f"shape {interarrival_s.shape}, as interarrival_s"
        )
    if interarrival_s.min(initial=0.0) < 0:
        raise InvalidValueError("interarrival_s", interarrival_s, "numbers >= 0")
    engine = Engine(record=False)
    engine.add_server("server", server_count)
    customers = TaskColumns(
        resource=np.zeros(len(service_s), dtype=np.int32),
        duration_s=service_s,
        resources=("server",),
        ready_s=np.cumsum(interarrival_s),
    )
    jobs = engine.submit_many(customers)
    engine.run()
    return QueueResult(jobs.ready_s, jobs.start_s - jobs.ready_s, jobs.end_s - jobs.ready_s)
