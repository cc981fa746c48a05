"""Suite `llm-serving`: time per output token of language models served on one GPU, at a fixed
number of requests in flight.

Published measurements of vLLM, SGLang and TensorRT-LLM (the end-to-end file of aiconfigurator-core,
used to score and never to fit). Under continuous batching every request that ends is replaced:
while one request gets its `osl` tokens, each of the others in flight has its prompt of `isl` tokens
run once, between its tokens. So

    time per output token = decode step + (requests - 1) / osl x prefill of one prompt,

the step at the mean context isl + osl / 2, from replayed graphs of fused operators. Requests beyond
what the memory holds wait. The time to first token under load is the waiting time of a scheduler's
queue and is not scored. Intervals hold what kernels are off by and what servers add, the latter as
the rows of other engines have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import hypot
from typing import Any

import numpy as np

from accelsim.cost.gpu import cost_gpu
from accelsim.cost.memory import available_bytes
from accelsim.cost.table import Execution
from accelsim.dtype import Precision
from accelsim.dtype import precision as find_precision
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.estimation.likeness import Setting
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile
from accelsim.plain import Values
from accelsim.scoreboard.columns import correlated_log_sigma, roofline_s
from accelsim.scoreboard.data_folder import DataFolder, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, RunModel, run_batches
from accelsim.scoreboard.names import gpu_of, note_unknown_devices, workload_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import PassShape, Workload
from accelsim.workloads.operator import Phase
from tools.scoreboard.served_systems import as_published

_DIVISIONS = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
SERVING_SCHEMA = schema("serving/measured_ttft_tpot_h200.csv")
#: Share of the memory a serving engine takes by default (vLLM's gpu_memory_utilization).
_MEMORY_SHARE = 0.9
#: Spread of ln(time per output token) that a server adds to its kernels' (scheduling, sampling,
#: prompts between steps), by engine: root mean square over the rows of the *other* engines at tier
#: `spec` (50 to 77 rows on an H200), less the kernels' own; of any other engine, that of all.
_SERVER_LOG_SIGMA = {"vllm": 0.21, "trtllm": 0.25, "sglang": 0.23}
_ANY_SERVER_LOG_SIGMA = 0.23


@frozen
class _Load:
    """Requests in flight with the lengths of their prompts and answers."""

    requests: int
    prompt: int
    answer: int


@frozen
class _Served:
    """A model, the formats of its checkpoint, its load, and the software that serves it."""

    workload: Workload
    precision: Precision
    load: _Load
    backend: str

    @property
    def setting(self) -> Setting:
        """Mode, format and kind of model."""
        return Setting.of("inference", self.precision, "generation")


@register_suite(
    "llm-serving",
    "Language models served on one GPU: time per output token",
    (SERVING_SCHEMA,),
    "model",
    quantity="time per output token, s",
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows by device, and by reason where they are refused."""
    table = folder.table(SERVING_SCHEMA)
    if table is None:
        return []
    note_unknown_devices(folder, table, "system")
    return run_batches(map(_row, table.records()), RunModel(gpu_of, _roofline_s, _time_s))


def _row(record: Values) -> MeasuredRun:
    system, model, form, backend = (
        record[name] for name in ("system", "model_path", "precision", "backend")
    )
    prompt, answer = int(record["isl"]), int(record["osl"])
    label = f"{model} {prompt}+{answer}"
    measured_s = record["silicon_tpot_ms"] * 1e-3
    row = MeasuredRun(system, f"{model} {form} ({backend})", label, measured_s)
    if reason := _refusal(record):
        return row.refused(reason)
    try:
        gpu_of(system)
        workload = workload_of(model)
    except (UnknownNameError, InvalidValueError) as error:
        is_system = isinstance(error, UnknownNameError) and error.what != "workload"
        lacking = f"GPU profile of {system}" if is_system else f"workload {model}"
        return row.refused(f"no {lacking}")
    load = _Load(max(int(record["batch_size"]), 1), max(prompt, 1), max(answer, 1))
    formats = as_published(workload.quantised, find_precision(form))
    return replace(row, run=_Served(workload, formats, load, backend))


def _refusal(record: Values) -> str:
    """Why a row is not asked; empty where it is."""
    if record["mode"] != "agg":
        return "prefill and decoding on different devices are not modelled"
    if any(record[name] > 1 for name in _DIVISIONS):
        return "serving over several devices is not modelled"
    if not np.isfinite(record["silicon_tpot_ms"]) or not record["batch_size"] >= 1:
        return "no time per output token or requests in flight in the row"
    try:
        find_precision(record["precision"])
    except UnknownNameError:
        return f"no precision {record['precision']}"
    return ""


def _roofline_s(run: _Served, device: GpuProfile) -> float:
    return _total_s(run, device, lambda graph: float(roofline_s(graph, device).sum()))


def _time_s(run: _Served, device: GpuProfile, parameters: Any | None) -> tuple[float, float]:
    """Time per output token and its log standard deviation."""

    def busy_s(graph: OperatorGraph) -> float:
        costs = cost_gpu(graph, device, Execution.COMPILED, parameters)
        return float((costs.time_s + costs.dispatch_s).sum())

    step = _step(
        run.workload, run.precision.on(device.peak_flop_per_s), _running(run, device), run.load
    )
    costs = cost_gpu(step, device, Execution.COMPILED, parameters)
    server = _SERVER_LOG_SIGMA.get(run.backend, _ANY_SERVER_LOG_SIGMA)
    return _total_s(run, device, busy_s), hypot(correlated_log_sigma(costs, step), server)


def _total_s(run: _Served, device: GpuProfile, time_s: Callable[[OperatorGraph], float]) -> float:
    """Time per output token of a load."""
    precision = run.precision.on(device.peak_flop_per_s)
    running = _running(run, device)
    prompts = (running - 1) / run.load.answer
    step_s = time_s(_step(run.workload, precision, running, run.load))
    return step_s + prompts * time_s(_prompt(run.workload, precision, run.load.prompt))


def _running(run: _Served, device: GpuProfile) -> int:
    """Requests whose caches fit beside the weights, at least one and at most those in flight."""
    load = run.load
    shape = PassShape(batch=1, seq_len=1, context_len=load.prompt)
    lowered = run.workload.lower(shape, run.precision.on(device.peak_flop_per_s), Phase.DECODE)
    weights = float(lowered.graph.weight_bytes.sum())
    room = available_bytes(device, _MEMORY_SHARE) - weights
    each = float(lowered.cache.bytes_of(load.prompt + load.answer / 2))
    return int(np.clip(room // max(each, 1.0), 1, load.requests))


def _step(workload: Workload, precision: Precision, running: int, load: _Load) -> OperatorGraph:
    context = load.prompt + load.answer // 2
    shape = PassShape(batch=running, seq_len=1, context_len=context)
    return _lowered(workload, shape, precision, Phase.DECODE)


def _prompt(workload: Workload, precision: Precision, tokens: int) -> OperatorGraph:
    return _lowered(workload, PassShape(batch=1, seq_len=tokens), precision, Phase.PREFILL)


@lru_cache(maxsize=512)
def _lowered(
    workload: Workload, shape: PassShape, precision: Precision, phase: Phase
) -> OperatorGraph:
    return fuse_elementwise(workload.lower(shape, precision, phase).graph)
