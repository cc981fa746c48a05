"""Speed of the systolic-array models: layers per second inside and through the API, a sweep, one
model.

Run: python benchmarks/architecture.py. Bars: 1,000,000 layers/s inside, 100,000/s through the API,
ResNet-50 on 3 dataflows x 100 arrays in 0.5 s, ResNet-18 latency and energy in 10 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from accelsim.cost.systolic.stalls import ArrayProduct, stalled_run
from accelsim.exploration.architecture import DATAFLOWS, design_grid, sweep_architectures

KIB = 1024
SIDES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
REPEATS = 5


def best_s(call: Callable[[], object]) -> float:
    """Least time of some calls, after one to warm up."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def layers_per_s() -> float:
    """Stalled cycles of random products, the slowest dataflow."""
    random = np.random.default_rng(1)
    count = 100_000
    sides = [np.ceil(10 ** random.uniform(0, 3.5, count)) for _ in range(3)]
    pads = (1e5, 1e5, 1e5)
    slowest = max(
        best_s(lambda f=flow: stalled_run(ArrayProduct(*sides, 128, 128, f), pads, 10.0))
        for flow in DATAFLOWS.values()
    )
    return count / slowest


def main() -> None:
    """Print each figure beside its bar."""
    designs = design_grid(
        [(r, c) for r in SIDES for c in SIDES],
        DATAFLOWS.values(),
        [(KIB * KIB, KIB * KIB, 512 * KIB)],
        [50e9],
    )
    sweep_s = best_s(lambda: sweep_architectures("resnet-50", designs))
    layers = sweep_architectures("resnet-50", designs).product_count * len(designs)
    one = designs[:1]
    print(f"inside               {layers_per_s():12,.0f} layers/s  bar 1,000,000")
    print(f"public API           {layers / sweep_s:12,.0f} layers/s  bar 100,000")
    print(f"ResNet-50 x 300      {sweep_s:12.3f} s         bar 0.5")
    one_ms = best_s(lambda: sweep_architectures("resnet-18", one)) * 1e3
    print(f"ResNet-18            {one_ms:12.2f} ms        bar 10")


if __name__ == "__main__":
    main()
