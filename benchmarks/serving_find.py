"""How near searches by simulation come to trying all, and how long they take.

``python benchmarks/serving_find.py [SCENARIOS]``: random models, devices, loads and targets. The
most load is compared with the largest of rates 2 % apart that meets the targets, from three
quarters to five quarters of what was found; the fewest replicas with all from one on.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np

import accelsim
from accelsim import Arrivals, ServingOptions, SloTargets
from accelsim.errors import AccelsimError
from accelsim.serving.find import find

PAIRS = (
    ("llama-3.1-8b", "h100-sxm-80gb"),
    ("llama-3.2-1b", "l4"),
    ("qwen2.5-0.5b", "t4"),
    ("mixtral-8x7b", "b200-sxm"),
    ("gpt-oss-20b", "a100-sxm-80gb"),
    ("llama-3.1-8b", "mi300x"),
)
REQUESTS = 600


def scenario(generator: np.random.Generator):
    """A pair, a load and targets that a replica alone meets with room."""
    pair = PAIRS[generator.integers(len(PAIRS))]
    prompt, output = int(generator.integers(100, 2000)), int(generator.integers(20, 300))
    load = Arrivals(
        rate_per_s=1.0,
        requests=REQUESTS,
        prompt=f"uniform:{prompt // 2}-{prompt}",
        output=f"uniform:{output // 2}-{output}",
    )
    alone = accelsim.serve(*pair, replace(load, rate_per_s=0.01, requests=8), intervals=False)
    margin = float(generator.uniform(2.0, 6.0))
    slo = SloTargets(ttft_s=margin * alone.ttft_s["mean"], tpot_s=margin * alone.tpot_s["mean"])
    return pair, load, ServingOptions(slo=slo)


def met(pair, load, options, **changes) -> bool:
    """Whether a load is served as the targets ask."""
    result = accelsim.serve(*pair, load, replace(options, **changes), intervals=False)
    wanted = options.slo.attainment_fraction
    return result.slo_attainment_fraction >= wanted and not result.saturated


def most_load(pair, load, options) -> str:
    started = time.process_time()
    found = find("max-rate", *pair, load, options)
    took_s = time.process_time() - started
    rates = found.value * np.geomspace(0.75, 1.25, 26)
    good = [rate for rate in rates if met(pair, replace(load, rate_per_s=float(rate)), options)]
    best = max(good)
    return (
        f"max-rate {found.value:.3g}/s, of rates tried {best:.3g}/s "
        f"({found.value / best - 1:+.1%}), {found.simulations} simulations, "
        f"{took_s:.1f} CPU-seconds"
    )


def fewest(pair, load, options, rate) -> str:
    asked = replace(load, rate_per_s=rate)
    started = time.process_time()
    found = find("min-replicas", *pair, asked, options)
    took_s = time.process_time() - started
    best = next(n for n in range(1, 99) if met(pair, asked, options, replicas=n))
    return f"min-replicas {found.value:g}, of all {best}, {took_s:.1f} CPU-seconds"


def main() -> None:
    generator = np.random.default_rng(0)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
        pair, load, options = scenario(generator)
        print(*pair, load.prompt, load.output)
        try:
            print(" ", most_load(pair, load, options), flush=True)
            rate = 3.3 * find("max-rate", *pair, load, options).value
            print(" ", fewest(pair, load, options, rate), flush=True)
        except AccelsimError as error:
            print("  no answer:", error)


if __name__ == "__main__":
    main()
