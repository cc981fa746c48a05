"""Suite `serving-vidur`: the simulated engine beside a peer's on the peer's own kernel times.

Two runs of Vidur (Agrawal et al., MLSys 2024; microsoft/vidur 7d475133): Llama-3-8B on an A100,
512 and 8,192 requests, chunks of 512 tokens. Steps are read from the run's kernel tables: 32
layers, linear between points and at the exact number of cached tokens, no overhead per batch. The
peer rounds cached tokens up to a multiple of 64, which takes the median TTFT of the 8,192 requests
from -1.9 % to -0.03 % here (``benchmarks/serving_equivalence.py``). Nothing is fitted, nothing is
asked of the catalogue's device, and no interval is claimed: the tables do not say how step times
spread.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from accelsim import catalog
from accelsim.errors import InvalidValueError
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.suite import MeasuredBatch, refused_batch, register_suite
from accelsim.serving.loads.requests import RequestColumns
from accelsim.serving.schedulers.limits import BatchLimits
from accelsim.serving.steps.step_times import StepCurve, StepSurface, StepTimes, TabulatedSteps
from accelsim.workloads.graph import FloatArray
from tools.scoreboard.quantity_batches import QUANTITY, quantity_batch
from tools.scoreboard.served_systems import replayed, time_figures

LAYERS = schema("serving/vidur_mlp_a100.csv")
ATTENTION = schema("serving/vidur_run_llama3_8b_a100_attention_input.csv")
_RUN = "serving/vidur_run_llama3_8b_a100_conv_qps6.45_{}_requests.csv"
#: The peer's requests by their number.
RUNS = {512: schema(_RUN.format(512)), 8192: schema(_RUN.format(8192) + ".gz")}
#: The peer's scheduler; its blocks never run out.
LIMITS = BatchLimits(
    max_tokens=512, max_seqs=512, blocks=20_000, reserve="prompt", watermark_fraction=0.01
)
_MODEL = "meta-llama/Meta-Llama-3-8B"
_LAYER_COUNT = 32
_LEAST_CACHED = 64
#: Figures of times, as `time_figures` gives them.
figures = partial(time_figures, percentiles=(50, 90, 99))


def kernel_steps(layers: Table, attention: Table) -> TabulatedSteps:
    """Steps from the run's kernel tables.

    Args:
        layers: Kernels of a layer over tokens.
        attention: Its attention over tokens, or sequences, and what is cached.

    Raises:
        InvalidValueError: If the tables do not span a grid.
    """
    is_own = (layers["model"] == _MODEL) & (layers["num_tensor_parallel_workers"] == 1)
    own = layers.take(np.flatnonzero(is_own))
    own = own.take(np.argsort(own["num_tokens"]))
    parts = [column.name for column in LAYERS.columns if column.name.endswith("_ms")]
    seconds = np.sum([own[name] for name in parts], axis=0) * 1e-3 * _LAYER_COUNT
    whole = StepCurve(own["num_tokens"].astype(np.int64), seconds, np.zeros(len(own)))
    nothing = StepCurve(np.array([1, 2]), np.zeros(2), np.zeros(2))
    is_prompt = attention["is_prefill"] == "True"
    prompts = is_prompt & (attention["prefill_chunk_size"] <= LIMITS.max_tokens)
    tokens = ~is_prompt & (attention["kv_cache_size"] >= _LEAST_CACHED)
    return TabulatedSteps(
        layers=whole,
        decode_layers=whole,
        logits=nothing,
        prefill=_surface(attention, prompts, "prefill_chunk_size", "attn_prefill_ms"),
        decode=_surface(attention, tokens, "batch_size", "attn_decode_ms"),
    )


def _surface(table: Table, is_asked: FloatArray, count: str, column: str) -> StepSurface:
    rows = table.take(np.flatnonzero(is_asked))
    at, row = np.unique(rows[count].astype(np.int64), return_inverse=True)
    cached, place = np.unique(rows["kv_cache_size"], return_inverse=True)
    seconds = np.full((len(at), len(cached)), np.nan)
    seconds[row, place] = rows[column] * 1e-3 * _LAYER_COUNT
    if np.isnan(seconds).any():
        raise InvalidValueError(column, "empty", f"a time for each {count} and kv_cache_size")
    return StepSurface(at, cached, seconds, np.zeros_like(seconds))


def requests(table: Table) -> RequestColumns:
    """The requests of a run."""
    gaps = np.nan_to_num(table["request_inter_arrival_delay"])
    lengths = table["request_num_prefill_tokens"], table["request_num_decode_tokens"]
    return RequestColumns(np.cumsum(gaps), *(column.astype(np.int64) for column in lengths))


def simulated(columns: RequestColumns, steps: StepTimes) -> dict[str, FloatArray]:
    """Times of requests on one replica; per token as the peer has it, over all output tokens.

    Args:
        columns: The requests.
        steps: What steps take.
    """
    log = replayed(columns, steps, LIMITS)
    first_s, finish_s = log.column("first_token_s"), log.column("finish_s")
    tpot = (finish_s - first_s) / columns.output_tokens
    return {"ttft": first_s - columns.arrival_s, "tpot": tpot, "e2e": finish_s - columns.arrival_s}


@register_suite(
    "serving-vidur",
    "serving: times of requests beside Vidur's on its kernel times",
    (LAYERS, ATTENTION),
    "operator",
    optional_files=tuple(RUNS.values()),
    quantity=QUANTITY,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Mean and percentiles of the runs there are."""
    layers, attention = folder.filled(LAYERS), folder.filled(ATTENTION)
    if layers is None or attention is None:
        return []
    runs = {count: folder.filled(described) for count, described in RUNS.items()}
    return [
        _batch(f"{count:,} requests", run, layers, attention)
        for count, run in runs.items()
        if run is not None
    ]


def _batch(label: str, run: Table, layers: Table, attention: Table) -> MeasuredBatch:
    measured = figures({name: run[name] for name in ("ttft", "tpot", "e2e")})
    profile, labels = catalog.device("a100-sxm-80gb"), np.array([label])
    try:
        predicted = figures(simulated(requests(run), kernel_steps(layers, attention)))
    except InvalidValueError as error:
        values, group = np.array(list(measured.values())), np.array(list(measured))
        return refused_batch("A100", group, labels.repeat(len(values)), values, str(error), profile)
    truth, guess = (
        {name: np.array([value]) for name, value in found.items()}
        for found in (measured, predicted)
    )
    return quantity_batch(profile, "A100", labels, truth, guess, None)
