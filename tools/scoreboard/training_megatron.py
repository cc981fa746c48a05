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
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, Schema, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.metrics import kendall_tau
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.training.plan import ParallelismPlan
from tools.scoreboard.training_plans import PlannedRun, gpt, planned

SINGLE_SCHEMA = schema("training/vtrain_single_node.csv")
MULTI_SCHEMA = schema("training/vtrain_multi_node.csv")
KORTHIKANTI_SCHEMA = schema("training/korthikanti_2022.csv")
WEAK_SCALING_SCHEMA = schema("training/narayanan_sc21_table1.csv")
SCHEMES_SCHEMA = schema("training/narayanan_sc21_table2.csv")
MT_NLG_SCHEMA = schema("training/mt_nlg_530b.csv")
#: Mixed precision; attention as separate operators.
_OPTIONS = (("precision", "fp16"), ("fused_attention", False))
_VTRAIN = (*_OPTIONS, ("stack", "megatron-deepspeed"))
_ZERO_3 = (*_OPTIONS, ("stack", "deepspeed@0.3"))
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
def load_single(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of one node."""
    return _vtrain(folder, SINGLE_SCHEMA, cluster("dgx-a100"))


def plan_ranking(rows: Sequence[ScoredRows]) -> dict[str, Any]:
    """Kendall's tau of predicted and measured times over the plans of each model."""
    orders = {}
    for part in rows:
        for model in np.unique(part.group).tolist() if not part.refusal else ():
            own = part.group == model
            orders[model] = kendall_tau(part.predicted_s[own], part.measured_s[own])
    return {"tau of plans": orders}


@register_suite(
    "training-vtrain-multi",
    "GPT on 64 and 512 A100, Megatron-DeepSpeed: iteration times and ranking of plans",
    (MULTI_SCHEMA,),
    "model",
    findings=plan_ranking,
    has_best_alone=True,
)
def load_multi(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of several nodes."""
    half_network = cluster("hgx-a100-infiniband").with_contention(2)
    return _vtrain(folder, MULTI_SCHEMA, half_network)


def _vtrain(folder: DataFolder, file: Schema, where: Cluster) -> list[MeasuredBatch]:
    return run_batches(_vtrain_row(record, where) for record in folder.records(file))


def _vtrain_row(record: Values, where: Cluster) -> MeasuredRun:
    devices, batch, hidden, layers = _counts(
        record, "# GPUs", "global batch", "hidden size", "# layers"
    )
    heads, seq_len, tp, dp, pp, microbatch = _counts(
        record,
        *("attention heads", "sequence length", "tensor parallelism", "data parallelism"),
        *("pipeline parallelism", "micro batch"),
    )
    plan = _megatron(tp=tp, dp=dp, pp=pp, microbatch=microbatch, recompute="full")
    group = f"GPT {hidden} x {layers}, {devices} GPUs"
    row = MeasuredRun(
        _DEVICE, group, f"{group}, batch {batch}: {plan}", record["iteration time (ms)"] * 1e-3
    )
    options = (*_VTRAIN, ("seq_len", seq_len))
    model = gpt(hidden, heads, layers, seq_len)
    return planned(row, PlannedRun(model, where, devices, batch, (plan,), options))


def _planned(
    row: MeasuredRun,
    size: tuple[int, ...],
    where: Cluster,
    devices: int,
    batch: int,
    plans: Sequence[ParallelismPlan],
) -> MeasuredRun:
    """A predicted row; size is hidden size, heads, layers, sequence length."""
    of_trainer = {"Narayanan ZeRO-3": _ZERO_3, "MT-NLG": _VTRAIN}
    usual = next((own for name, own in of_trainer.items() if row.group.startswith(name)), _OPTIONS)
    options = (*usual, ("seq_len", size[-1]))
    return planned(row, PlannedRun(gpt(*size), where, devices, batch, tuple(plans), options))


@register_suite(
    "training-published",
    "Published iteration times of GPT-3 to 1T on Selene",
    (),
    "model",
    optional_files=(KORTHIKANTI_SCHEMA, WEAK_SCALING_SCHEMA, SCHEMES_SCHEMA, MT_NLG_SCHEMA),
    has_best_alone=True,
)
def load_published(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of the four tables that give times or rates of an iteration."""
    readers = {
        KORTHIKANTI_SCHEMA: _korthikanti,
        WEAK_SCALING_SCHEMA: _weak_scaling,
        SCHEMES_SCHEMA: _schemes,
        MT_NLG_SCHEMA: _mt_nlg,
    }
    return run_batches(
        row
        for file, read in readers.items()
        for record in folder.records(file)
        for row in read(record)
    )


def _selene(
    group: str,
    record: Values,
    measured_s: float,
    plans: Sequence[ParallelismPlan],
    size: tuple[int, ...] = (),
) -> MeasuredRun:
    """A row on Selene."""
    devices, batch = _counts(record, "gpus", "global_batch")
    row = MeasuredRun(_DEVICE, group, f"{group}, {devices} GPUs: {plans[0]}", measured_s)
    return _planned(row, size or _size(record), cluster(_SELENE), devices, batch, plans)


def _counts(record: Values, *names: str) -> tuple[int, ...]:
    return tuple(int(record[name]) for name in names)


def _size(record: Values) -> tuple[int, ...]:
    return _counts(record, "hidden", "heads", "layers", "seq")


def _korthikanti(record: Values) -> Iterator[MeasuredRun]:
    """Table 5, with full recomputation, and with sequence parallelism and selective."""
    if record["quantity"] != "iteration_time":
        return
    tp, pp, chunks, devices, microbatch = _counts(
        record, "TP", "PP", "interleave", "gpus", "microbatch"
    )
    is_full = record["variant"] == "full_recompute"
    plan = _megatron(
        tp=tp,
        pp=pp,
        dp=devices // (tp * pp),
        chunks=chunks,
        microbatch=microbatch,
        sp=not is_full,
        recompute="full" if is_full else "selective",
    )
    yield _selene(f"Korthikanti {record['model']}", record, record["measured"], [plan])


def _weak_scaling(record: Values) -> Iterator[MeasuredRun]:
    measured_s = _rated_s(record, "tflops_per_gpu_measured", _size(record))
    yield _selene(f"Narayanan {record['params_B']:g}B", record, measured_s, [*_tuned(record)])


def _tuned(record: Values) -> Iterator[ParallelismPlan]:
    tp, pp, dp, batch, layers = _counts(record, "TP", "PP", "DP", "global_batch", "layers")
    for microbatch in _MICROBATCHES:
        count, rest = divmod(batch, dp * microbatch)
        for chunks in () if rest else _INTERLEAVES:
            divides = layers % (pp * chunks) == 0 and count % pp == 0 and pp > 1
            if chunks == 1 or divides:
                yield _megatron(
                    tp=tp, pp=pp, dp=dp, chunks=chunks, microbatch=microbatch, recompute="full"
                )


def _rated_s(record: Values, column: str, size: tuple[int, ...]) -> float:
    """Time of an iteration with full recomputation at a stated rate of its arithmetic."""
    devices, batch = _counts(record, "gpus", "global_batch")
    hidden, _, layers, seq_len = size
    flop = _recompute_flop(
        batch=batch, hidden=hidden, layers=layers, vocabulary=51_200, sequence=seq_len
    )
    return float(flop / (record[column] * 1e12) / devices)


def _schemes(record: Values) -> Iterator[MeasuredRun]:
    parallel, devices, microbatch = _counts(record, "model_parallel", "gpus", "microbatch")
    tp, pp = _STAGES.get(parallel, (1, 1))
    plan = _megatron(tp=tp, pp=pp, dp=devices // parallel, microbatch=microbatch, recompute="full")
    if parallel == 1:
        # DeepSpeed of 2021 synchronizes before each gather (partition_parameters.py)
        plan = replace(plan, zero=3)
    size = (*_SIZES[record["params_B"]], 2048)
    group = f"Narayanan {record['scheme']} {record['params_B']:g}B"
    yield _selene(group, record, _rated_s(record, "tflops_per_gpu", size), [plan], size)


def _mt_nlg(record: Values) -> Iterator[MeasuredRun]:
    tp, pp, dp, microbatch = _counts(record, "TP", "PP", "DP", "microbatch")
    plan = _megatron(tp=tp, pp=pp, dp=dp, microbatch=microbatch, recompute="full")
    yield _selene("MT-NLG 530B", record, record["iter_s_measured"], [plan])


def _recompute_flop(
    *, batch: float, hidden: float, layers: float, vocabulary: float, sequence: float
) -> float:
    """FLOP of an iteration that computes all activations again, as the tables count them: 96 B s l
    h^2 (1 + s/(6 h) + V/(16 l h)).

    Narayanan et al. 2021, arXiv:2104.04473, equation 3.
    """
    inner = 1.0 + sequence / (6.0 * hidden) + vocabulary / (16.0 * layers * hidden)
    return 96.0 * batch * sequence * layers * hidden**2 * inner
