"""How CPU time and memory grow with requests, replicas, GPUs, plans and points.

``python benchmarks/growth.py``: two minutes on one core. Each size runs in a process of its own,
after the least of its kind, so that modules and files are read before; its time is the least of
three, its memory what the process' peak rises by. Below stand the exponents of a power law through
them (least squares of logarithms): 1 where twice as much takes twice as long, 0 where it takes no
longer.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from sweep_speed import spec

import accelsim
from accelsim.estimation.options import run_options
from accelsim.training.candidates import CandidatePlans
from accelsim.training.estimate import training_setup
from accelsim.training.grid import candidate_groups
from accelsim.training.score import score
from accelsim.training.setup import TrainingPlace, TrainingSetup

RUNS = 3
MODEL = "gpt3-175b"
#: Samples of an iteration on 1,024 GPUs.
BATCH = 1536


def serve(request_count: int, replica_count: int) -> None:
    """Four requests per second and replica."""
    load = accelsim.Arrivals(requests=request_count, rate_per_s=4.0 * replica_count)
    how = {"replicas": replica_count, "intervals": False}
    accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, **how)


def requests(count: int) -> int:
    serve(count, 1)
    return count


def replicas(count: int) -> int:
    serve(16_000, count)
    return count


def gpus(count: int) -> int:
    """An iteration of one plan, whose batch grows with the GPUs."""
    plan = f"tp=8,pp=8,dp={count // 64}"
    place = {"cluster": "dgx-superpod-a100", "gpus": count, "global_batch": count // 2}
    accelsim.train(MODEL, plan=plan, seq_len=2048, check_memory=False, record=True, **place)
    return count


@cache
def all_plans() -> tuple[TrainingSetup, CandidatePlans]:
    """Those of one model on 1,024 GPUs, in a random order."""
    options = run_options(None, {"mode": "training", "seq_len": 2048})
    where = TrainingPlace(cluster="dgx-superpod-a100", gpus=1024, global_batch=BATCH)
    setup = training_setup(MODEL, options, where)
    every = CandidatePlans.joined([group for _, group in candidate_groups(setup, {})])
    microbatches = BATCH // (every["dp"] * every["microbatch"])
    fits = (microbatches >= 2 * every["pp"]) & (every["chunks"] == 1)
    return setup, every.take(np.random.default_rng(0).permutation(np.flatnonzero(fits)))


def plans(count: int) -> int:
    """So many, again and again where there are fewer."""
    setup, every = all_plans()
    rows = np.resize(np.arange(len(every)), count)
    stages = every["pp"][rows]
    for stage in np.unique(stages):
        some = every.take(rows[stages == stage])
        counts = BATCH // (some["dp"] * some["microbatch"])
        score(setup, some, counts, setup.units(some), setup.costs())
    return count


def points(count: int) -> int:
    """A sweep written to disk by one worker."""
    with tempfile.TemporaryDirectory() as folder:
        return accelsim.sweep(spec(count), folder, workers=1).new_count


class Growth(NamedTuple):
    """A kind of work and its sizes, ascending."""

    name: str
    work: Callable[[int], int]
    sizes: Sequence[int]


GROWTHS = (
    Growth("requests, on one replica", requests, (1000, 4000, 16_000, 64_000)),
    Growth("replicas, 16,000 requests", replicas, (4, 16, 64, 256)),
    Growth("GPUs, one plan", gpus, (64, 256, 1024, 4096)),
    Growth("plans of a model on 1,024 GPUs", plans, (1000, 4000, 16_000, 64_000)),
    Growth("points of a sweep", points, (3200, 12_800, 51_200, 204_800)),
)


class Cost(NamedTuple):
    """What a size costs."""

    size: int
    cpu_s: float
    memory_bytes: float


def peak_bytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def cost(growth: Growth, size: int) -> Cost:
    """Of the least size first, unmeasured; in this process."""
    growth.work(growth.sizes[0])
    before, start = peak_bytes(), time.process_time()
    reached = growth.work(size)
    return Cost(reached, time.process_time() - start, peak_bytes() - before)


def costs(growth: Growth, size: int) -> Cost:
    """The least of some runs, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    with context.Pool(1, maxtasksperchild=1) as pool:
        return min(pool.starmap(cost, [(growth, size)] * RUNS, 1), key=lambda one: one.cpu_s)


def exponent(found: Sequence[Cost]) -> float:
    """Slope of the time over the size, both as logarithms."""
    sizes, times_s = np.log([one[:2] for one in found]).T
    return float(np.polyfit(sizes, times_s, 1)[0])


def main() -> None:
    print(f"{'':20}{'CPU time':>12}{'memory':>12}")
    for growth in GROWTHS:
        found = [costs(growth, size) for size in growth.sizes]
        print(growth.name)
        for size, cpu_s, memory_bytes in found:
            print(f"{size:>20,}{cpu_s:10.3f} s{memory_bytes / 1e6:9.0f} MB")
        slopes = f"{exponent(found):.2f}, of the last two sizes {exponent(found[-2:]):.2f}"
        print(f"    exponent {slopes}", flush=True)


if __name__ == "__main__":
    main()
