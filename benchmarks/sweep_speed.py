"""A million new points through `sweep` on two processes, all of them written.

Four encoders on eight GPUs at every batch and length of a grid, all of which fit. The share of the
process that hands out, indexes and writes is the executor's overhead; workers' start is counted
with the workers. On a machine that others use, CPU time tells more than the wall clock: the load is
printed beside it. Another number of points: ``python benchmarks/sweep_speed.py 200000``.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import accelsim

WORKERS = 2
MODELS = ["bert-base", "bert-large", "distilbert", "roberta-base"]
DEVICES = [
    *("t4", "l4", "a10g", "v100-sxm2-16gb"),
    *("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb"),
]
LENGTHS = list(range(4, 501, 4))


def spec(count: int) -> dict[str, object]:
    batches = max(count // (len(MODELS) * len(DEVICES) * len(LENGTHS)), 1)
    vary = {"model": MODELS, "device": DEVICES, "seq_len": LENGTHS}
    return {
        "name": "speed",
        "fixed": {"precision": "fp16"},
        "vary": {**vary, "batch": list(range(1, batches + 1))},
    }


def cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def main() -> None:
    asked = spec(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        before = cpu_s(resource.RUSAGE_SELF)
        done = accelsim.sweep(asked, folder, workers=WORKERS)
        own = cpu_s(resource.RUSAGE_SELF) - before
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        start = time.perf_counter()
        again = accelsim.sweep(asked, folder, workers=1)
        again_s = time.perf_counter() - start
    workers = cpu_s(resource.RUSAGE_CHILDREN)
    total = own + workers
    memory = [resource.getrusage(who).ru_maxrss / 1e6 for who in (0, resource.RUSAGE_CHILDREN)]
    print(
        f"{done.point_count:,} points, {done.error_count:,} refused, {size / 1e6:,.0f} MB written"
    )
    print(f"wall          {done.wall_s:8.1f} s   {done.new_count / done.wall_s:10,.0f} points/s")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"CPU time      {total:8.1f} s   {WORKERS * done.new_count / total:10,.0f} points/s")
    print(f"of two cores that nothing else uses; load {load} on {os.cpu_count()} CPUs")
    print(f"overhead      {own / total:8.1%}     the process that hands out and writes")
    print(f"largest       {memory[0]:8.2f} GB  this process; {memory[1]:.2f} GB a worker")
    print(f"asked again   {again_s:8.1f} s   {again.new_count} new points")
    print("must: 8,000 points/s on two cores; 1,000,000 in 150 s and 2 GB; overhead 10 %")


if __name__ == "__main__":
    main()
