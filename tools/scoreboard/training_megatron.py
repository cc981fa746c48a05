"""Suites `training-vtrain-single`, `training-vtrain-multi`, `training-published`: GPT under
Megatron-LM's plans on A100.

vTrain's rows (Megatron-DeepSpeed, full recomputation, 1F1B) are iteration times of 1 to 8 GPUs of
one NVSwitch node, and of 64 and 512 GPUs whose nodes share 800 Gbit/s. Published rows are of Selene
(NVIDIA DGX SuperPOD): Korthikanti et al. 2022 table 5, Narayanan et al. 2021 tables 1 and 2, and
Megatron-Turing NLG 530B. Where table 1 does not state microbatch and interleaving, which its
authors tuned, the quickest predicted counts. Megatron reduces gradients after the last backward
pass, in one piece; its attention writes scores and softmax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accelsim.catalog.clusters import cluster
from accelsim.hardware.cluster import Cluster
from accelsim.scoreboard.data_folder import DataFolder, Schema, Table, schema
from accelsim.scoreboard.metrics import kendall_tau
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.suite import Batch, register_suite
from accelsim.training.plan import ParallelismPlan
from tools.scoreboard.training_closed_forms import gpt_recompute_flop
from tools.scoreboard.training_plans import (
    PlannedRow,
    PlannedRun,
    gpt,
    planned_batches,
)

SINGLE_SCHEMA = schema("training/vtrain_single_node.csv")
MULTI_SCHEMA = schema("training/vtrain_multi_node.csv")
KORTHIKANTI_SCHEMA = schema("training/korthikanti_2022.csv")
WEAK_SCALING_SCHEMA = schema("training/narayanan_sc21_table1.csv")
SCHEMES_SCHEMA = schema("training/narayanan_sc21_table2.csv")
MT_NLG_SCHEMA = schema("training/mt_nlg_530b.csv")
#: Mixed precision; attention as separate operators.
_OPTIONS = (("precision", "fp16"), ("fused_attention", False))
_DEVICE = "a100-80gb"
_SELENE = "dgx-superpod-a100"
_MICROBATCHES = (1, 2, 4, 8)
_INTERLEAVES = (1, 2, 3, 5)
#: Billions of parameters -> hidden size, heads, layers (Narayanan et al. 2021, table 1, section 5).
_SIZES = {174.6: (12_288, 96, 96), 529.6: (20_480, 128, 105)}
_STAGES = {96: (8, 12), 280: (8, 35)}


def _megatron(**changes: Any) -> ParallelismPlan:
    """A plan of Megatron-LM."""
    if changes.get("chunks", 1) > 1:
        changes["schedule"] = "interleaved"
    return ParallelismPlan(**{"overlap": False, **changes})


@register_suite(
    "training-vtrain-single",
    "GPT on 1 to 8 A100, Megatron-DeepSpeed: iteration times",
    (SINGLE_SCHEMA,),
    "model",
    has_best_alone=True,
)
def load_single(folder: DataFolder) -> list[Batch]:
    """Rows of one node."""
    return _vtrain(folder, SINGLE_SCHEMA, cluster("dgx-a100"))


def plan_ranking(rows: Sequence[ScoredRows]) -> dict[str, Any]:
    """Kendall's tau of predicted and measured times over the plans of each model."""
    found = {}
    for part in rows:
        for model in np.unique(part.group).tolist() if not part.refusal else ():
            own = part.group == model
            found[model] = kendall_tau(part.predicted_s[own], part.measured_s[own])
    return {"tau of plans": found}


@register_suite(
    "training-vtrain-multi",
    "GPT on 64 and 512 A100, Megatron-DeepSpeed: iteration times and ranking of plans",
    (MULTI_SCHEMA,),
    "model",
    findings=plan_ranking,
    has_best_alone=True,
)
def load_multi(folder: DataFolder) -> list[Batch]:
    """Rows of several nodes."""
    half_network = cluster("hgx-a100-infiniband").with_contention(2)
    return _vtrain(folder, MULTI_SCHEMA, half_network)


def _vtrain(folder: DataFolder, file: Schema, where: Cluster) -> list[Batch]:
    table = folder.table(file)
    if table is None:
        return []
    return planned_batches(_vtrain_row(table, row, where) for row in range(len(table)))


def _vtrain_row(table: Table, row: int, where: Cluster) -> PlannedRow:
    def count(name: str) -> int:
        return int(table[name][row])

    devices, batch, seq_len = count("# GPUs"), count("global batch"), count("sequence length")
    plan = _megatron(
        tp=count("tensor parallelism"),
        dp=count("data parallelism"),
        pp=count("pipeline parallelism"),
        microbatch=count("micro batch"),
        recompute="full",
    )
    hidden, layers = count("hidden size"), count("# layers")
    model = gpt(hidden, count("attention heads"), layers, seq_len)
    group = f"GPT {hidden} x {layers}, {devices} GPUs"
    label = f"{group}, batch {batch}: {plan}"
    measured_s = float(table["iteration time (ms)"][row]) * 1e-3
    options = (*_OPTIONS, ("seq_len", seq_len))
    run = PlannedRun(model, where, devices, batch, (plan,), options)
    return PlannedRow(_DEVICE, group, label, measured_s, run)


@register_suite(
    "training-published",
    "Published iteration times of GPT-3 to 1T on Selene",
    (),
    "model",
    optional_files=(KORTHIKANTI_SCHEMA, WEAK_SCALING_SCHEMA, SCHEMES_SCHEMA, MT_NLG_SCHEMA),
    has_best_alone=True,
)
def load_published(folder: DataFolder) -> list[Batch]:
    """Rows of the four tables that give times or rates of an iteration."""
    readers = {
        KORTHIKANTI_SCHEMA: _korthikanti,
        WEAK_SCALING_SCHEMA: _weak_scaling,
        SCHEMES_SCHEMA: _schemes,
        MT_NLG_SCHEMA: _mt_nlg,
    }
    rows: list[PlannedRow] = []
    for file, read in readers.items():
        table = folder.table(file)
        if table is not None:
            rows += read(table)
    return planned_batches(rows)


def _row(
    group: str,
    size: tuple[int, int, int, int],
    devices: int,
    batch: int,
    measured_s: float,
    plans: Sequence[ParallelismPlan],
) -> PlannedRow:
    """A row on Selene; size is hidden size, heads, layers, sequence length."""
    options = (*_OPTIONS, ("seq_len", size[-1]))
    run = PlannedRun(gpt(*size), cluster(_SELENE), devices, batch, tuple(plans), options)
    label = f"{group}, {devices} GPUs: {plans[0]}"
    return PlannedRow(_DEVICE, group, label, measured_s, run)


def _counts(table: Table, row: int, *names: str) -> tuple[int, ...]:
    return tuple(int(table[name][row]) for name in names)


def _korthikanti(table: Table) -> Iterator[PlannedRow]:
    """Table 5, with full recomputation, and with sequence parallelism and selective."""
    for row in np.flatnonzero(table["quantity"] == "iteration_time").tolist():
        tp, pp, chunks, devices, batch, microbatch = _counts(
            table, row, "TP", "PP", "interleave", "gpus", "global_batch", "microbatch"
        )
        is_full = table["variant"][row] == "full_recompute"
        plan = _megatron(
            tp=tp,
            pp=pp,
            dp=devices // (tp * pp),
            chunks=chunks,
            microbatch=microbatch,
            sp=not is_full,
            recompute="full" if is_full else "selective",
        )
        size = _counts(table, row, "hidden", "heads", "layers", "seq")
        group = f"Korthikanti {table['model'][row]}"
        yield _row(group, size, devices, batch, float(table["measured"][row]), [plan])  # type: ignore[arg-type]


def _weak_scaling(table: Table) -> Iterator[PlannedRow]:
    for row in range(len(table)):
        tp, pp, dp, devices, batch = _counts(table, row, "TP", "PP", "DP", "gpus", "global_batch")
        size = _counts(table, row, "hidden", "heads", "layers", "seq")
        plans = list(_tuned(tp, pp, dp, batch, size[2]))
        flop = _counted_flop(batch, *size)
        rate = float(table["tflops_per_gpu_measured"][row]) * 1e12
        group = f"Narayanan {table['params_B'][row]:g}B"
        yield _row(group, size, devices, batch, flop / rate / devices, plans)  # type: ignore[arg-type]


def _tuned(tp: int, pp: int, dp: int, batch: int, layers: int) -> Iterator[ParallelismPlan]:
    for microbatch in _MICROBATCHES:
        if batch % (dp * microbatch):
            continue
        count = batch // (dp * microbatch)
        for chunks in _INTERLEAVES:
            divides = layers % (pp * chunks) == 0 and count % pp == 0 and pp > 1
            if chunks == 1 or divides:
                yield _megatron(
                    tp=tp, pp=pp, dp=dp, chunks=chunks, microbatch=microbatch, recompute="full"
                )


def _counted_flop(batch: int, hidden: int, heads: int, layers: int, seq_len: int) -> float:
    """Arithmetic of an iteration with full recomputation."""
    del heads
    return gpt_recompute_flop(
        batch=batch, hidden=hidden, layers=layers, vocabulary=51_200, sequence=seq_len
    )


def _schemes(table: Table) -> Iterator[PlannedRow]:
    for row in range(len(table)):
        parallel, batch, devices, microbatch = _counts(
            table, row, "model_parallel", "global_batch", "gpus", "microbatch"
        )
        size = (*_SIZES[float(table["params_B"][row])], 2048)
        if parallel == 1:
            plan = _megatron(dp=devices, zero=3, microbatch=microbatch, recompute="full")
            plan = replace(plan, overlap=True)
        else:
            tp, pp = _STAGES[parallel]
            dp = devices // parallel
            plan = _megatron(tp=tp, pp=pp, dp=dp, microbatch=microbatch, recompute="full")
        rate = float(table["tflops_per_gpu"][row]) * 1e12
        seconds = _counted_flop(batch, *size) / rate / devices
        group = f"Narayanan {table['scheme'][row]} {table['params_B'][row]:g}B"
        yield _row(group, size, devices, batch, seconds, [plan])


def _mt_nlg(table: Table) -> Iterator[PlannedRow]:
    for row in range(len(table)):
        tp, pp, dp, devices, batch, microbatch = _counts(
            table, row, "TP", "PP", "DP", "gpus", "global_batch", "microbatch"
        )
        size = _counts(table, row, "hidden", "heads", "layers", "seq")
        plan = _megatron(tp=tp, pp=pp, dp=dp, microbatch=microbatch, recompute="full")
        measured_s = float(table["iter_s_measured"][row])
        yield _row("MT-NLG 530B", size, devices, batch, measured_s, [plan])  # type: ignore[arg-type]
