"""Mean waiting and sojourn times of queues on the engine against theory, to 1 %.

Run: python -m tools.queues [SEED]. Each line says whether theory lies inside the 95 % interval
(which one run in twenty misses by construction) and how wide the interval is. Waiting times are
narrowed by control variates.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from tools.queues.intervals import (
    ConfidenceInterval,
    batch_means_interval,
    control_variate_interval,
)
from tools.queues.theory import mg1_waiting_s, mmc_waiting_s, simulate_queue

CUSTOMER_COUNT = 1_500_000


def check(name: str, expected: float, interval: ConfidenceInterval) -> None:
    """Print whether theory lies inside an interval."""
    relative_width = interval.half_width / interval.mean
    if not interval.contains(expected):
        verdict = "OUTSIDE"
    else:
        verdict = "ok" if relative_width <= 0.01 else "wide"
    simulated = f"{interval.mean:.5f} s +- {100 * relative_width:.2f} %"
    print(f"{name:24s} theory {expected:.5f} s, simulated {simulated}  {verdict}")


def main() -> None:
    """Run M/M/1, M/M/2 and M/D/1."""
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


if __name__ == "__main__":
    main()
