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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import hypot
from typing import Any

import numpy as np

from accelsim.cost.gpu import cost_gpu
from accelsim.cost.table import Execution
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.hardware.profile import GpuProfile
from accelsim.validation.columns import correlated_log_sigma, roofline_s
from accelsim.validation.data_folder import DataFolder, Schema, Table, number, text, time_column
from accelsim.validation.names import gpu_of, note_unknown_devices, workload_of
from accelsim.validation.suite import Batch, Prediction, refused_batch, register_suite
from accelsim.workloads.dtype import PRECISIONS, Dtype, Precision
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import RunShape, Workload
from accelsim.workloads.operator import Phase

__all__ = ["SERVING_SCHEMA"]

SERVING_SCHEMA = Schema(
    "serving/measured_ttft_tpot_h200.csv",
    (
        *text("id", "backend", "model_path", "system", "precision", "mode"),
        *number("isl", "osl"),
        *number(
            "batch_size",
            "tp_size",
            "pp_size",
            "attention_dp_size",
            "moe_tp_size",
            "moe_ep_size",
            optional=True,
        ),
        *time_column("silicon_tpot_ms", optional=True),
    ),
)
_DIVISIONS = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
#: Share of the memory a serving engine takes by default (vLLM's gpu_memory_utilization).
_MEMORY_SHARE = 0.9
#: Spread of ln(time per output token) that a server adds to its kernels' (scheduling, sampling,
#: prompts between steps), by engine: root mean square over the rows of the *other* engines at tier
#: `spec` (50 to 77 rows on an H200), less the kernels' own; of any other engine, that of all.
_SERVER_LOG_SIGMA, _ANY_SERVER_LOG_SIGMA = {"vllm": 0.21, "trtllm": 0.25, "sglang": 0.23}, 0.23


@dataclass(frozen=True, slots=True)
class _Load:
    """Requests in flight with the lengths of their prompts and answers."""

    requests: int
    prompt: int
    answer: int


@register_suite(
    "llm-serving",
    "Language models served on one GPU: time per output token",
    (SERVING_SCHEMA,),
    "model",
    quantity="time per output token, s",
)
def load(folder: DataFolder) -> list[Batch]:
    """Rows by device, model, precision, backend and reason where they are refused."""
    table = folder.table(SERVING_SCHEMA)
    if table is None:
        return []
    note_unknown_devices(folder, table, "system")
    refusal = np.array([_refusal(table, row) for row in range(len(table))], dtype=object)
    keys = list(
        zip(
            *(table[name].tolist() for name in ("system", "model_path", "precision", "backend")),
            refusal,
            strict=True,
        )
    )
    parts: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(keys):
        parts.setdefault(key, []).append(row)
    return [_batch(table.take(np.array(rows)), key) for key, rows in parts.items()]


def _refusal(table: Table, row: int) -> str:
    """Why a row is not asked; empty where it is."""
    if table["mode"][row] != "agg":
        return "prefill and decoding on different devices are not modelled"
    if any(table[name][row] > 1 for name in _DIVISIONS):
        return "serving over several devices is not modelled"
    if not np.isfinite(table["silicon_tpot_ms"][row]) or not table["batch_size"][row] >= 1:
        return "no time per output token or requests in flight in the row"
    if table["precision"][row] not in PRECISIONS:
        return f"no precision {table['precision'][row]}"
    return ""


def _batch(rows: Table, key: tuple[str, ...]) -> Batch:
    system, model, precision, backend, refusal = key
    group = np.full(len(rows), f"{model} {precision} ({backend})")
    sizes = zip(*(rows[name].astype(int).tolist() for name in ("isl", "osl")), strict=True)
    label = np.array([f"{model} {isl}+{osl}" for isl, osl in sizes], dtype=str)
    measured = rows["silicon_tpot_ms"] * 1e-3
    try:
        profile, workload = gpu_of(system), workload_of(model)
    except (UnknownNameError, InvalidValueError) as error:
        is_system = isinstance(error, UnknownNameError) and error.what != "workload"
        refusal = refusal or (
            f"no GPU profile of {system}" if is_system else f"no workload {model}"
        )
    if refusal:
        return refused_batch(system, group, label, measured, refusal)
    loads = [
        _Load(max(int(requests), 1), max(int(isl), 1), max(int(osl), 1))
        for requests, isl, osl in zip(rows["batch_size"], rows["isl"], rows["osl"], strict=True)
    ]
    known = _served(PRECISIONS[precision], profile)
    line = np.array(
        [
            _total(load, workload, known, profile, lambda g: float(roofline_s(g, profile).sum()))
            for load in loads
        ]
    )
    server = _SERVER_LOG_SIGMA.get(backend, _ANY_SERVER_LOG_SIGMA)
    return Batch(
        system,
        profile,
        group,
        label,
        measured,
        line,
        _prediction(loads, workload, known, profile, server),
    )


def _served(precision: Precision, device: GpuProfile) -> Precision:
    """How a device serves a checkpoint: kernels take FP4 weights to BF16 where there is no FP4
    arithmetic.
    """
    if precision.compute != Dtype.FP4 or Dtype.FP4 in device.matrix_flop_per_s:
        return precision
    return replace(precision, compute=Dtype.BF16)


def _prediction(
    loads: Iterable[_Load],
    workload: Workload,
    precision: Precision,
    device: GpuProfile,
    server_log_sigma: float,
) -> Callable[[Any | None], Prediction]:
    def predict(parameters: Any | None) -> Prediction:
        def busy_s(graph: OperatorGraph) -> float:
            costs = cost_gpu(graph, device, Execution.COMPILED, parameters)
            return float((costs.time_s + costs.dispatch_s).sum())

        def sigma(load: _Load) -> float:
            step = _step(workload, precision, _running(load, workload, precision, device), load)
            kernels = correlated_log_sigma(
                cost_gpu(step, device, Execution.COMPILED, parameters), step
            )
            return hypot(kernels, server_log_sigma)

        time_s = [_total(load, workload, precision, device, busy_s) for load in loads]
        return Prediction(np.array(time_s), np.array([sigma(load) for load in loads]))

    return predict


def _total(
    load: _Load,
    workload: Workload,
    precision: Precision,
    device: GpuProfile,
    time_s: Callable[[OperatorGraph], float],
) -> float:
    """Time per output token of a load."""
    running = _running(load, workload, precision, device)
    prompts = (running - 1) / load.answer
    return time_s(_step(workload, precision, running, load)) + prompts * time_s(
        _prompt(workload, precision, load.prompt)
    )


def _running(load: _Load, workload: Workload, precision: Precision, device: GpuProfile) -> int:
    """Requests whose caches fit beside the weights, at least one and at most those in flight."""
    shape = RunShape(batch=1, seq_len=1, context_len=load.prompt)
    lowered = workload.lower(shape, precision, Phase.DECODE)
    room = _MEMORY_SHARE * float(device.memory.capacity_bytes.value) - float(
        lowered.graph.weight_bytes.sum()
    )
    each = lowered.kv_bytes_per_token * (load.prompt + load.answer / 2)
    return int(np.clip(room // max(each, 1.0), 1, load.requests))


@lru_cache(maxsize=256)
def _step(workload: Workload, precision: Precision, running: int, load: _Load) -> OperatorGraph:
    context = load.prompt + load.answer // 2
    return fuse_elementwise(
        workload.lower(
            RunShape(batch=running, seq_len=1, context_len=context), precision, Phase.DECODE
        ).graph
    )


@lru_cache(maxsize=256)
def _prompt(workload: Workload, precision: Precision, tokens: int) -> OperatorGraph:
    return fuse_elementwise(
        workload.lower(RunShape(batch=1, seq_len=tokens), precision, Phase.PREFILL).graph
    )
