"""Speed of sessions of agents beside single requests.

``python benchmarks/serving_sessions.py``: requests per CPU-second of sessions with a system prompt,
tools and sub-agents, and of as many single requests at the same rate that compute and generate as
many tokens and share nothing; the best of five runs each, in turns.
"""

from __future__ import annotations

import time

import numpy as np

from accelsim import Arrivals, PriceChoice, RunOptions, ServingOptions
from accelsim.serving.deployment import deployment, simulate
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.loads.sessions import SessionOptions
from accelsim.simulation.randomness import RandomStreams

RUNS = 5
AGENT = SessionOptions(8, gap_s=2.0, agents=2, agent_steps=4, tool="lognormal:400:1.0")
LOAD = Arrivals(rate_per_s=0.3, requests=16_000, session=AGENT, prefix_tokens=4000)


def single(columns: RequestColumns) -> RequestColumns:
    """Requests that bring what the steps add to their contexts, at the same rate."""
    after = columns.after
    is_same = (after >= 0) & (columns.prefix_group == columns.prefix_group[after])
    held = np.where(is_same, columns.prefix_tokens[after], LOAD.prefix_tokens)
    count = len(columns)
    rng = np.random.default_rng(0)
    arrival_s = np.cumsum(rng.exponential(1 / LOAD.requests_per_s, count))
    order = rng.permutation(count)
    prompt = columns.prompt_tokens - held
    return RequestColumns(arrival_s, prompt[order], columns.output_tokens[order])


def main() -> None:
    streams = RandomStreams(0)
    columns = LOAD.columns(streams)
    plan = deployment(
        *("llama-3.1-8b", "h100-sxm-80gb", RunOptions(), ServingOptions(), PriceChoice()),
        max_context=columns.longest,
    )
    loads = {"sessions": columns, "single requests": single(columns)}
    seconds = {name: [] for name in loads}
    for _ in range(RUNS):
        for name, load in loads.items():
            started = time.thread_time()
            simulate(plan, load, streams=streams)
            seconds[name].append(time.thread_time() - started)
    rates = {name: len(columns) / min(times) for name, times in seconds.items()}
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f} requests per CPU-second")
    print(f"ratio {rates['sessions'] / rates['single requests']:.2f}")


if __name__ == "__main__":
    main()
