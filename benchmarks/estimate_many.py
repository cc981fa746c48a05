"""New estimates a second on one core: models on devices at sizes that were not asked before.

Each figure is the best and the median of several rounds of 500 runs in thread CPU time; every round
has sizes of its own, so that nothing is looked up. `estimate` one by one stands beside it. Run with
``OPENBLAS_NUM_THREADS=1``.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

import accelsim

RUNS, ROUNDS, ALONE = 500, 7, 15
MUST_PER_S = 5000
PAIRS = (
    ("resnet-50", "t4"),
    ("resnet-50", "a100-sxm-80gb"),
    ("resnet-50", "h100-sxm-80gb"),
    ("resnet-50", "epyc-7763"),
    ("llama-3.1-8b", "a100-sxm-80gb"),
    ("llama-3.1-8b", "h100-sxm-80gb"),
    ("llama-3.1-8b", "mi300x"),
    ("llama-3.1-8b", "xeon-platinum-8480+"),
)


def sizes(random: np.random.Generator, workload: str, count: int) -> dict[str, np.ndarray]:
    """Random batches and lengths."""
    if workload == "resnet-50":
        return {"batch": random.integers(1, 513, count)}
    return {
        "batch": random.integers(1, 65, count),
        "seq_len": random.integers(16, 2049, count),
        "output_len": random.integers(1, 257, count),
    }


def many_s(random: np.random.Generator, workload: str, device: str) -> float:
    """Thread CPU seconds of one round."""
    shapes = sizes(random, workload, RUNS)
    start = time.thread_time()
    accelsim.estimate_many(workload, device, shapes=shapes)
    return time.thread_time() - start


def alone_s(random: np.random.Generator, workload: str, device: str) -> float:
    """Thread CPU seconds of one estimate."""
    shapes = sizes(random, workload, ALONE)
    start = time.thread_time()
    for place in range(ALONE):
        accelsim.estimate(workload, device, **{n: int(c[place]) for n, c in shapes.items()})
    return (time.thread_time() - start) / ALONE


def main() -> None:
    random = np.random.default_rng(time.time_ns())
    print(f"{'model':14}{'device':22}{'best/s':>9}{'median/s':>10}{'one by one/s':>14}")
    for workload, device in PAIRS:
        accelsim.estimate_many(workload, device, shapes=sizes(random, workload, 8))
        rounds = [many_s(random, workload, device) for _ in range(ROUNDS)]
        best, median = RUNS / min(rounds), RUNS / statistics.median(rounds)
        alone = 1.0 / alone_s(random, workload, device)
        print(f"{workload:14}{device:22}{best:9,.0f}{median:10,.0f}{alone:14,.0f}")
    print(f"must: {MUST_PER_S:,} new runs/s")


if __name__ == "__main__":
    main()
