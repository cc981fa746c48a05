"""A long trace read from a file and served: time and memory by its rows.

``python benchmarks/serving_trace.py [ROWS]``: writes a trace in the form of Azure's LLM inference
traces (TIMESTAMP, ContextTokens, GeneratedTokens), reads it as `accelsim serve --arrivals` does,
and serves it on 16 replicas at 60 to 80 % of their capacity. Lengths are lognormal: estimates.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import accelsim
from accelsim.serving.loads.traces import read_trace

PART_ROWS = 500_000
START = pd.Timestamp("2023-11-16 18:00")
#: Mean tokens in and out, and the spread of their logarithms.
PROMPT, OUTPUT = (1155, 1.0), (211, 0.8)
RATE_PER_S, REPLICAS = 220.0, 16


def lengths(mean: float, sigma: float, count: int, generator: np.random.Generator):
    drawn = generator.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    return np.clip(np.rint(drawn), 1, 14_000).astype(int)


def write(path: Path, rows: int) -> None:
    generator, now_s = np.random.default_rng(0), 0.0
    for first in range(0, rows, PART_ROWS):
        count = min(PART_ROWS, rows - first)
        arrival_s = now_s + np.cumsum(generator.exponential(1 / RATE_PER_S, count))
        now_s = arrival_s[-1]
        part = pd.DataFrame(
            {
                "TIMESTAMP": START + pd.to_timedelta(np.round(arrival_s, 6), unit="s"),
                "ContextTokens": lengths(*PROMPT, count, generator),
                "GeneratedTokens": lengths(*OUTPUT, count, generator),
            }
        )
        part.to_csv(path, mode="a", header=not first, index=False)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        write(path, rows)
        print(f"{rows:,} rows, {path.stat().st_size / 1e6:,.0f} MB of file; {peak_mb():,.0f} MB")
        started = time.thread_time()
        requests = read_trace(path).requests
        read_s = time.thread_time() - started
    print(f"read: {rows / read_s:,.0f} rows per CPU-second; peak memory {peak_mb():,.0f} MB")
    started = time.thread_time()
    result = accelsim.serve(
        "llama-3.1-8b",
        "h100-sxm-80gb",
        requests,
        replicas=REPLICAS,
        intervals=False,
    )
    serve_s = time.thread_time() - started
    print(
        f"served: {rows / serve_s:,.0f} requests per CPU-second at "
        f"{result.utilisation_fraction:.0%} utilisation on {REPLICAS} replicas; peak memory "
        f"{peak_mb():,.0f} MB"
    )


if __name__ == "__main__":
    main()
