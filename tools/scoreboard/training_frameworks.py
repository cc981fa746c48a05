"""Suites `training-fsdp`, `training-maxtext`, `training-megatron-bridge`: rates that frameworks
publish of themselves.

llm-foundry: MPT under FSDP on A100 and H100, eager, fused attention, DecoupledLionW; the servers'
networks are taken as the catalogue's InfiniBand patterns, one card a GPU, and p4d for the 40 GB
boards. MaxText: TPU slices; sharding is FSDP throughout unless a configuration names its tensor
parallelism; rates count attention as a full rectangle, as MaxText did before 2025-07. Megatron
Bridge: Megatron-LM on H100 to GB300; expert and data groups overlap, activations are kept.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from accelsim.catalog.clusters import cluster
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import workload_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.training.plan import ParallelismPlan
from accelsim.workloads.model import Workload
from tools.scoreboard.training_plans import (
    PlannedRun,
    decoder,
    gpt_parameters,
    model_flop,
    planned,
)

FSDP_SCHEMA = schema("training/llm_foundry_mpt.csv")
DIMENSIONS_SCHEMA = schema("training/model_dims.csv")
MAXTEXT_SCHEMA = schema("training/maxtext_mfu.csv")
BRIDGE_SCHEMA = schema("training/megatron_bridge.csv")
_FACTS: Values = published("training_frameworks")


@register_suite(
    "training-fsdp",
    "MPT 125M to 70B under FSDP, llm-foundry",
    (FSDP_SCHEMA, DIMENSIONS_SCHEMA),
    "model",
    has_best_alone=True,
)
def load_fsdp(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of llm-foundry's benchmark table."""
    sizes = {record["model"]: record for record in folder.records(DIMENSIONS_SCHEMA)}
    return run_batches(_fsdp_row(record, sizes) for record in folder.records(FSDP_SCHEMA))


@lru_cache(maxsize=64)
def _mpt(width: int, heads: int, layers: int, vocabulary: int, seq_len: int) -> Workload:
    """An MPT: ALiBi, layer norms, no biases, tied embeddings (llm-foundry, mpt-*.yaml)."""
    sizes = (vocabulary, width, layers, heads, seq_len)
    return decoder(f"mpt-{width}-{layers}", gpt_parameters(*sizes, has_biases=False), seq_len)


def _fsdp_row(record: Values, sizes: Values) -> MeasuredRun:
    board, sharding = record["GPU"], record["Sharding Strategy"]
    devices, seq_len = int(record["# GPUs"]), int(record["SeqLen (T)"])
    batch, name = int(record["GlobalBatchSize"]), f"mpt-{record['Model']}"
    measured_s = record["GlobalBatchSize (T)"] / record["Throughput (T/s)"]
    label = f"{name}, {seq_len} tokens, {devices} GPUs, batch {batch}"
    facts = _FACTS["fsdp"]
    row = MeasuredRun(board, name, label, measured_s)
    if board not in facts["clusters"]:
        return row.refused(_no_cluster(board))
    if sharding not in facts["zero"]:
        return row.refused(f"no ZeRO stage of {sharding}")
    if name not in sizes:
        return row.refused(f"no sizes of {name} in the table of sizes")
    plan = ParallelismPlan(
        dp=devices,
        zero=facts["zero"][sharding],
        microbatch=int(record["MicroBatchSize"]),
        recompute="full" if record["Activation Checkpointing"] == "True" else "none",
    )
    columns = ("d_model", "n_heads", "n_layers", "vocab")
    workload = _mpt(*(int(sizes[name][column]) for column in columns), seq_len)
    where = cluster(facts["clusters"][board])
    run = PlannedRun(workload, where, devices, batch, (plan,), _options(seq_len))
    return planned(replace(row, label=f"{label}: {plan}"), run)


def _options(seq_len: int, precision: str = "bf16") -> tuple[tuple[str, int | str], ...]:
    return ("precision", precision), ("seq_len", seq_len)


def _no_cluster(board: str) -> str:
    return f"no cluster of {board} in the catalogue"


@register_suite(
    "training-maxtext",
    "MaxText on TPU v4 to v6e and H100",
    (MAXTEXT_SCHEMA,),
    "model",
    has_best_alone=True,
)
def load_maxtext(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of MaxText's performance tables; rows that restate an earlier one are named."""
    return run_batches(map(_maxtext_row, folder.records(MAXTEXT_SCHEMA)))


def _maxtext_row(record: Values) -> MeasuredRun:
    chip, name = record["accelerator"], record["model"].removesuffix(" model")
    slices, devices = int(record["n_slices"]), int(record["chips"])
    facts = _FACTS["maxtext"]
    config = facts["configs"].get(chip, {}).get(name)
    row = MeasuredRun(chip, name, f"{name} on {devices} {chip} in {slices} slices", math.nan)
    reasons = (
        ("README main table" in record["seq_or_note"], "restates an earlier row of the table"),
        (chip not in facts["clusters"], _no_cluster(chip)),
        (config is None, "no published configuration of the run"),
        (
            slices > 1 and chip.startswith("v"),
            "several slices over the data-centre network, not stated",
        ),
    )
    for holds, reason in reasons:
        if holds:
            return row.refused(reason)
    seq_len, per_device, tp = config["seq_len"], config["batch"], config.get("tp", 1)
    model = _maxtext_model(config, seq_len)
    rate = record["tokens_s_device"]
    if not rate > 0:
        rate = record["tflops_per_chip"] * 1e12 * seq_len / model_flop(model, seq_len)
    if not rate > 0:
        return row.refused("no rate in the row")
    plan = ParallelismPlan(
        dp=devices // tp,
        tp=tp,
        sp=tp > 1,
        zero=3,
        microbatch=max(round(per_device * tp), 1),
        recompute=config["recompute"],
    )
    where, batch = cluster(facts["clusters"][chip]), plan.dp * plan.microbatch
    run = PlannedRun(model, where, devices, batch, (plan,), _options(seq_len))
    return planned(
        replace(row, label=f"{row.label}: {plan}", measured_s=per_device * seq_len / rate), run
    )


def _maxtext_model(config: Values, seq_len: int) -> Workload:
    """A catalogued model, or MaxText's default one scaled (src/maxtext/pyconfig.py): powers of two
    go to heads and inner width first, then width, then depth.
    """
    if "workload" in config:
        return workload_of(config["workload"])
    sizes = config.get("sizes") or _scaled(int(config["scale"]))
    return _maxtext_decoder(*sizes, seq_len)


def _scaled(scale: int) -> tuple[int, int, int, int]:
    cycles, rest = divmod(scale.bit_length() - 1, 3)
    heads = cycles + (rest > 0)
    width = cycles + (rest > 1)
    return 2048 << width, 16 << heads, 7168 << heads, 16 << cycles


@lru_cache(maxsize=64)
def _maxtext_decoder(width: int, heads: int, inner: int, layers: int, seq_len: int) -> Workload:
    parameters = {
        "layout": "llama",
        "vocab_size": 32_000,
        "hidden_size": width,
        "layers": layers,
        "heads": heads,
        "head_dim": _FACTS["maxtext"]["head_dims"].get(width, 128),
        "intermediate_size": inner,
        "max_positions": seq_len,
        "gated": True,
    }
    return decoder(f"maxtext-{width}-{layers}", parameters, seq_len)


@register_suite(
    "training-megatron-bridge",
    "Megatron Bridge on H100 to GB300, dense and mixtures of experts",
    (BRIDGE_SCHEMA,),
    "model",
    has_best_alone=True,
)
def load_bridge(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of Megatron Bridge's performance summary."""
    return run_batches(map(_bridge_row, folder.records(BRIDGE_SCHEMA)))


def _bridge_row(record: Values) -> MeasuredRun:
    facts = _FACTS["bridge"]
    system, model, precision = (record[name] for name in ("system", "model", "precision"))
    devices, seq_len, batch = (int(record[name]) for name in ("gpus", "seq", "gbs"))
    words = [f"{name}={record[name]}" for name in ("TP", "PP", "CP", "VP", "EP", "FSDP")]
    label = f"{model} {precision or 'BF16'}, {devices} GPUs, batch {batch}: {' '.join(words)}"
    row = MeasuredRun(system, model, label, batch * seq_len / (record["tokens_s_gpu"] * devices))
    reasons = (
        (system not in facts["clusters"], _no_cluster(system)),
        (model not in facts["models"], facts["refused"].get(model, f"no workload {model}")),
        (any("(" in word for word in (*words, precision)), "two plans in one row"),
        (precision not in facts["precisions"], f"training in {precision} has no precision policy"),
    )
    for holds, reason in reasons:
        if holds:
            return row.refused(reason)

    def figure(row: MeasuredRun) -> MeasuredRun:
        plan, workload = _bridge_plan(record, devices), workload_of(facts["models"][model])
        where = cluster(facts["clusters"][system])
        options = _options(seq_len, facts["precisions"][precision])
        return planned(row, PlannedRun(workload, where, devices, batch, (plan,), options))

    return row.answered(figure)


def _bridge_plan(record: Values, devices: int) -> ParallelismPlan:
    """Megatron Core's plan: distributed optimizer, sequence parallelism beside tensor
    parallelism.
    """

    def degree(name: str) -> int:
        return int(record[name]) if re.fullmatch(r"\d+", record[name]) else 1

    tp, pp, cp, ep = (degree(name) for name in ("TP", "PP", "CP", "EP"))
    chunks = degree("VP") if pp > 1 else 1
    return ParallelismPlan(
        dp=max(devices // (tp * pp * cp), 1),
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        sp=tp > 1,
        zero=3 if degree("FSDP") > 1 else 1,
        microbatch=int(record["mbs"]),
        schedule="interleaved" if chunks > 1 else "1f1b",
        chunks=chunks,
    )
