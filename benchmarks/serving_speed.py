"""Speed of request-level simulation, and its engine beside a peer's on the same kernel times.

``python benchmarks/serving_speed.py [FOLDER]``: requests per CPU-second on 8,192 requests of the
folder's Vidur run (Agrawal et al., MLSys 2024), plain, and with a prefix cache and preemption; a
million requests on 16 replicas; peak memory; and how far times of requests lie from that run's.
Its tables are read linearly, caches rounded down to 64 tokens, 32 layers, no overhead per batch.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from accelsim.simulation.serving.fleet import ArrivalQueue, Fleet
from accelsim.simulation.serving.prefix_cache import PrefixCache
from accelsim.simulation.serving.requests import RequestColumns, RequestLog
from accelsim.simulation.serving.routers import router
from accelsim.simulation.serving.schedulers.continuous import BatchLimits, ContinuousBatching
from accelsim.simulation.serving.step_times import Curve, Surface, TabulatedSteps

FOLDER = Path("../shared/reference/serving")
LAYERS = 32
RUN = "vidur_run_llama3_8b_a100_conv_qps6.45_{}_requests.csv"
LIMITS = BatchLimits(
    max_tokens=512, max_seqs=512, blocks=20_000, reserve="prompt", watermark_fraction=0.01
)


def kernel_steps(folder: Path) -> TabulatedSteps:
    """Steps from the run's own kernel tables."""
    rows = pd.read_csv(folder / "vidur_mlp_a100.csv")
    mine = (rows.model == "meta-llama/Meta-Llama-3-8B") & (rows.num_tensor_parallel_workers == 1)
    rows = rows[mine].sort_values("num_tokens")
    parts = [name for name in rows if name.endswith("_ms") and name != "emb_ms"]
    at = rows.num_tokens.to_numpy()
    layers = Curve(at, rows[parts].sum(axis=1).to_numpy() * 1e-3 * LAYERS, np.zeros(len(at)))
    attention = pd.read_csv(folder / "vidur_run_llama3_8b_a100_attention_input.csv")
    prompts = attention[attention.is_prefill & (attention.prefill_chunk_size <= 512)]
    tokens = attention[~attention.is_prefill & (attention.kv_cache_size >= 64)]
    nothing = Curve(np.array([1, 2]), np.zeros(2), np.zeros(2))
    return TabulatedSteps(
        layers=layers,
        decode_layers=layers,
        logits=nothing,
        prefill=surface(prompts, "prefill_chunk_size", "attn_prefill_ms"),
        decode=surface(tokens, "batch_size", "attn_decode_ms"),
    )


def surface(rows: pd.DataFrame, count: str, column: str) -> Surface:
    grid = rows.pivot_table(index=count, columns="kv_cache_size", values=column)
    seconds = grid.to_numpy() * 1e-3 * LAYERS
    at, cached = grid.index.to_numpy(), grid.columns.to_numpy(dtype=np.float64)
    return Surface(at, cached, seconds, np.zeros_like(seconds))


def requests(table: pd.DataFrame) -> RequestColumns:
    gaps = table.request_inter_arrival_delay.fillna(0.0).to_numpy()
    lengths = table.request_num_prefill_tokens, table.request_num_decode_tokens
    return RequestColumns(np.cumsum(gaps), *(column.to_numpy() for column in lengths))


def simulate(columns, steps, limits, *, replicas=1, cached=False, policy="round-robin"):
    """CPU seconds, log and fleet."""
    started = time.process_time()
    log = RequestLog(columns)
    made = [
        ContinuousBatching(log, steps, limits, PrefixCache() if cached else None)
        for _ in range(replicas)
    ]
    choice = router(policy, log, np.random.default_rng(0))
    fleet = Fleet(log, made, choice, ArrivalQueue(log))
    fleet.run()
    return time.process_time() - started, log, fleet


def rate(columns, *arguments, **more) -> str:
    seconds, _, fleet = min(
        (simulate(columns, *arguments, **more) for _ in range(3)), key=lambda run: run[0]
    )
    tallies = [replica.tally for replica in fleet.replicas]
    events = sum(tally.event_count for tally in tallies)
    preempted = sum(tally.preemption_count for tally in tallies)
    return (
        f"{len(columns) / seconds:,.0f} requests per CPU-second "
        f"({events:,} events, {preempted:,} preemptions)"
    )


def shared(columns: RequestColumns) -> RequestColumns:
    """Prompts of which the first two thirds are one of 64."""
    group = np.random.default_rng(0).integers(0, 64, len(columns))
    return replace(columns, prefix_group=group, prefix_tokens=columns.prompt_tokens * 2 // 3)


def compare(folder: Path, name: str, steps: TabulatedSteps) -> None:
    table = pd.read_csv(folder / name)
    columns = requests(table)
    _, log, _ = simulate(columns, steps, LIMITS)
    times = {name: log.column(name) for name in ("arrival_s", "first_token_s", "finish_s")}
    ttft = times["first_token_s"] - times["arrival_s"]
    e2e = times["finish_s"] - times["arrival_s"]
    mine = {"ttft": ttft, "tpot": (e2e - ttft) / columns.output_tokens, "e2e": e2e}
    print(f"{len(columns):,} requests: mean, p50, p90 and p99 against the peer's")
    for figure, values in mine.items():
        peer = table[figure].to_numpy()
        errors = [values.mean() / peer.mean() - 1]
        marks = 50, 90, 99
        errors += (np.percentile(values, marks) / np.percentile(peer, marks) - 1).tolist()
        print(f"  {figure:5}", "  ".join(f"{100 * error:+6.2f} %" for error in errors))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    steps = kernel_steps(folder)
    columns = requests(pd.read_csv(folder / (RUN.format(8192) + ".gz")))
    print("8,192 requests:", rate(columns, steps, LIMITS))
    tight = replace(LIMITS, blocks=3_000, reserve="part")
    print("with prefix cache and preemption:", rate(shared(columns), steps, tight, cached=True))
    many = np.random.default_rng(1).integers(0, len(columns), 1_000_000)
    gaps = np.random.default_rng(2).exponential(1 / (16 * 5.0), len(many))
    million = RequestColumns(
        np.cumsum(gaps), columns.prompt_tokens[many], columns.output_tokens[many]
    )
    more = {"replicas": 16, "policy": "least-outstanding"}
    seconds, *_ = simulate(million, steps, LIMITS, **more)
    print(f"a million requests on 16 replicas: {seconds:.1f} CPU-seconds")
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"peak memory {peak_bytes / 1e6:,.0f} MB")
    compare(folder, RUN.format(8192) + ".gz", steps)
    compare(folder, RUN.format(512), steps)


if __name__ == "__main__":
    main()
