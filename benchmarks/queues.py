"""Mean waiting and sojourn times of queues against theory: on the engine to 1 %, at replicas of the
serving simulator to 2 % up to 95 % utilisation.

Run: python benchmarks/queues.py [SEED]. Each line says whether theory lies inside the 95 % interval
(which one run in twenty misses by construction) and how wide the interval is. Waiting times are
narrowed by control variates.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.queues.intervals import (
    ConfidenceInterval,
    batch_means_interval,
    control_variate_interval,
)
from tests.queues.served import Queue, bulk_waits_s, two_level_interval
from tests.queues.theory import bulk_waiting_s, mg1_waiting_s, mmc_waiting_s, simulate_queue

CUSTOMER_COUNT = 1_500_000
#: Customers at the serving simulator, and at the recursion beside it, in so many replications.
SERVED, REPLICATIONS, EACH = 20_000, 2000, 15_000
BULK_COUNT, BULK_MOST = 4_000_000, 8


def check(name: str, expected: float, interval: ConfidenceInterval, within: float = 0.01) -> None:
    """Print whether theory lies inside an interval."""
    relative_width = interval.half_width / interval.mean
    if not interval.contains(expected):
        verdict = "OUTSIDE"
    else:
        verdict = "ok" if relative_width <= within else "wide"
    simulated = f"{interval.mean:.5f} s +- {100 * relative_width:.2f} %"
    print(f"{name:24s} theory {expected:.5f} s, simulated {simulated}  {verdict}")


def check_replicas(generator: np.random.Generator) -> None:
    """Run queues at replicas of the serving simulator."""
    kinds = (("M/M/1", 1, False), ("M/D/1", 1, True), ("M/M/4", 4, False))
    for name, servers, is_even in kinds:
        for utilisation in (0.5, 0.8, 0.95):
            queue = Queue(utilisation, servers, is_even)
            waiting = mmc_waiting_s(queue.rate_per_s, 1.0, servers)
            if is_even:
                waiting = mg1_waiting_s(queue.rate_per_s, 1.0, 0.0)
            interval, apart_s = two_level_interval(
                queue, generator, served=SERVED, replications=REPLICATIONS, each=EACH
            )
            check(f"replica {name} {utilisation:.0%}", waiting, interval, 0.02)
            print(f"{'':24s} simulator and recursion at most {apart_s:.1e} s apart")
    for utilisation in (0.5, 0.8, 0.95):
        rate = utilisation * BULK_MOST
        gaps = generator.exponential(1 / rate, BULK_COUNT)
        waits = bulk_waits_s(BULK_MOST, np.cumsum(gaps))
        interval = control_variate_interval(waits, [gaps], [1 / rate])
        name = f"replica bulk {BULK_MOST} {utilisation:.0%}"
        check(name, bulk_waiting_s(rate, 1.0, BULK_MOST), interval, 0.02)


def main() -> None:
    """Run M/M/1, M/M/2 and M/D/1 on the engine, then those and bulk service at replicas."""
    generator = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for name, rate, servers in (("M/M/1", 0.5, 1), ("M/M/2", 1.2, 2), ("M/D/1", 0.5, 1)):
        gaps = generator.exponential(1 / rate, CUSTOMER_COUNT)
        is_fixed = "D" in name
        service = (
            np.ones(CUSTOMER_COUNT) if is_fixed else generator.exponential(1.0, CUSTOMER_COUNT)
        )
        start = time.thread_time()
        result = simulate_queue(gaps, service, servers)
        cpu_s = time.thread_time() - start
        waiting = mg1_waiting_s(rate, 1.0, 0.0) if is_fixed else mmc_waiting_s(rate, 1.0, servers)
        controls, means = ([gaps], [1 / rate]) if is_fixed else ([gaps, service], [1 / rate, 1.0])
        narrowed = control_variate_interval(result.waiting_s, controls, means)
        check(f"{name} waiting", waiting, narrowed)
        check(f"{name} sojourn", waiting + 1.0, batch_means_interval(result.sojourn_s))
        print(f"{'':24s} {CUSTOMER_COUNT / cpu_s:,.0f} customers/s")
    check_replicas(generator)


if __name__ == "__main__":
    main()
