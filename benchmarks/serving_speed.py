"""Speed of request-level simulation on a peer's requests and kernel times.

``python benchmarks/serving_speed.py [FOLDER]``: requests per CPU-second on 8,192 requests of the
folder's Vidur run (Agrawal et al., MLSys 2024), plain, and with a prefix cache and preemption; a
million requests on 16 replicas; peak memory. How far times of requests lie from that run's says
``accelsim validate serving-vidur``, which reads the same tables: linearly, at the exact number of
cached tokens, 32 layers, no overhead per batch.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from accelsim.scoreboard.data_folder import data_folder
from accelsim.serving.loads.requests import RequestColumns, RequestLog
from accelsim.serving.replicas.fleet import ArrivalQueue, ReplicaFleet
from accelsim.serving.replicas.prefix_cache import PrefixCache
from accelsim.serving.replicas.routers import router
from accelsim.serving.schedulers.continuous import ContinuousBatching
from tools.scoreboard.serving_vidur import (
    ATTENTION,
    LAYERS,
    LIMITS,
    RUNS,
    kernel_steps,
    requests,
)

FOLDER = Path("../shared/reference")


def simulate(columns, steps, limits, *, replicas=1, cached=False, policy="round-robin"):
    """CPU seconds, log and fleet."""
    started = time.thread_time()
    log = RequestLog(columns)
    made = [
        ContinuousBatching(log, steps, limits, PrefixCache() if cached else None)
        for _ in range(replicas)
    ]
    choice = router(policy, log, np.random.default_rng(0))
    fleet = ReplicaFleet(log, made, choice, ArrivalQueue(log))
    fleet.run()
    return time.thread_time() - started, log, fleet


def turns_per_s(count: int = 300_000) -> float:
    """Turns of a plain loop per CPU-second: what the machine gives Python just now."""
    started, total, kept = time.thread_time(), 0, {}
    for turn in range(count):
        kept[turn & 255] = total
        total += turn & 7
    return count / (time.thread_time() - started)


def rate(columns, *arguments, **more) -> str:
    """The best of nine runs, and of as many loops between them."""
    runs, turns = [], []
    for _ in range(9):
        runs.append(simulate(columns, *arguments, **more))
        turns.append(turns_per_s())
    seconds, _, fleet = min(runs, key=lambda run: run[0])
    tallies = [replica.tally for replica in fleet.replicas]
    events = sum(tally.event_count for tally in tallies)
    preempted = sum(tally.preemption_count for tally in tallies)
    return (
        f"{len(columns) / seconds:,.0f} requests per CPU-second "
        f"({events:,} events, {preempted:,} preemptions; the machine: "
        f"{max(turns) / 1e6:.1f} million turns of a plain loop per CPU-second)"
    )


def shared(columns: RequestColumns) -> RequestColumns:
    """Prompts of which the first two thirds are one of 64."""
    group = np.random.default_rng(0).integers(0, 64, len(columns))
    return replace(columns, prefix_group=group, prefix_tokens=columns.prompt_tokens * 2 // 3)


def million(columns: RequestColumns) -> RequestColumns:
    """A million requests of these lengths, Poisson, 5 per second and replica of 16."""
    many = np.random.default_rng(1).integers(0, len(columns), 1_000_000)
    gaps = np.random.default_rng(2).exponential(1 / (16 * 5.0), len(many))
    return RequestColumns(np.cumsum(gaps), columns.prompt_tokens[many], columns.output_tokens[many])


def main() -> None:
    folder = data_folder(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    steps = kernel_steps(folder.table(LAYERS), folder.table(ATTENTION))
    columns = requests(folder.table(RUNS[8192]))
    print("8,192 requests:", rate(columns, steps, LIMITS))
    tight = replace(LIMITS, blocks=3_000, reserve="part")
    print("with prefix cache and preemption:", rate(shared(columns), steps, tight, cached=True))
    seconds, _, fleet = simulate(
        million(columns), steps, LIMITS, replicas=16, policy="least-outstanding"
    )
    busy = sum(replica.tally.busy_s for replica in fleet.replicas) / (16 * fleet.now_s)
    print(f"a million requests on 16 replicas: {seconds:.1f} CPU-seconds, {busy:.0%} of time busy")
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"peak memory {peak_bytes / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
