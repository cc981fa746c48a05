"""Suites `training-fsdp`, `training-maxtext`, `training-megatron-bridge`: rates that frameworks
publish of themselves.

llm-foundry: MPT under FSDP on A100 and H100, eager, fused attention, DecoupledLionW; the servers'
networks are taken as the catalogue's InfiniBand patterns, one card a GPU, and p4d for the 40 GB
boards. MaxText: TPU slices, several of them over the data-centre network; sharding is FSDP inside a
slice unless a configuration names its tensor parallelism; rates count attention as a full
rectangle, as MaxText did before 2025-07. Megatron Bridge: Megatron-LM on H100 to GB300; expert and
data groups overlap, activations are kept.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from accelsim.catalog.clusters import cluster
from accelsim.errors import InputError
from accelsim.hardware.cluster import Cluster
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, published, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.names import cluster_of, workload_of
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.training.plan import ParallelismPlan
from accelsim.workloads.model import Workload
from tools.scoreboard.training_plans import (
    PlannedRun,
    decoder,
    fits,
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
        return row.refused(f"no cluster of {board} in the catalogue")
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
    options = (*_options(seq_len), ("stack", "composer"))
    run = PlannedRun(workload, where, devices, batch, (plan,), options)
    return planned(replace(row, label=f"{label}: {plan}"), run)


def _options(seq_len: int, precision: str = "bf16") -> tuple[tuple[str, int | str], ...]:
    return ("precision", precision), ("seq_len", seq_len)


@register_suite(
    "training-maxtext",
    "MaxText on TPU v4 to v6e and H100",
    (MAXTEXT_SCHEMA,),
    "model",
    has_best_alone=True,
)
def load_maxtext(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows of MaxText's performance tables."""
    return run_batches(map(_maxtext_row, folder.records(MAXTEXT_SCHEMA)))


def _maxtext_row(record: Values) -> MeasuredRun:
    chip, name = record["accelerator"], record["model"].removesuffix(" model")
    label = f"{name} on {int(record['chips'])} {chip} in {int(record['n_slices'])} slices"
    row = MeasuredRun(chip, name, label, math.nan)
    return row.answered(lambda row: _maxtext_figure(row, record))


def _maxtext_figure(row: MeasuredRun, record: Values) -> MeasuredRun:
    slices, devices = int(record["n_slices"]), int(record["chips"])
    facts, chip = _FACTS["maxtext"], row.device
    config = facts["configs"].get(chip, {}).get(row.group)
    stated = re.search(r"SL=(\d+)", record["seq_or_note"])
    known = config or {"seq_len": int(stated[1]) if stated else facts["seq_len"]}
    seq_len = known["seq_len"]
    model = _maxtext_model(row.group, known)
    rate = record["tokens_s_device"]
    if not rate > 0:
        rate = record["tflops_per_chip"] * 1e12 * seq_len / model_flop(model, seq_len)
    if not rate > 0:
        raise InputError("no rate in the row")
    named = cluster(facts["clusters"].get(chip) or cluster_of(chip))
    shared = named.with_contention(facts["jobs"].get(chip, 1))
    where = shared.with_devices(devices // slices)
    runs = (
        _maxtext_run(model, where, devices, slices, config=one, seq_len=seq_len)
        for one in ([config] if config else facts["usual"])
    )
    run = next((one for one in runs if config or fits(one)), None)
    if run is None:
        raise InputError("no published configuration of the run, and no usual one fits")
    plan = run.plans[0]
    per_device = plan.microbatch / plan.tp
    label = f"{row.label}: {plan}"
    return planned(replace(row, label=label, measured_s=per_device * seq_len / rate), run)


def _maxtext_run(
    model: Workload, where: Cluster, devices: int, slices: int, *, config: Values, seq_len: int
) -> PlannedRun:
    """Weights are sharded inside a slice, which `where` is, and copied from slice to slice."""
    tp = config.get("tp", 1)
    plan = ParallelismPlan(
        dp=devices // tp,
        tp=tp,
        sp=tp > 1,
        zero=3,
        shard_group=devices // slices // tp if slices > 1 else None,
        microbatch=max(round(config["batch"] * tp), 1),
        recompute=config["recompute"],
    )
    options = (*_options(seq_len), ("stack", "maxtext"))
    return PlannedRun(model, where, devices, plan.dp * plan.microbatch, (plan,), options)


def _maxtext_model(name: str, config: Values) -> Workload:
    """A catalogued model, or MaxText's default one scaled (src/maxtext/pyconfig.py): powers of two
    go to heads and inner width first, then width, then depth.
    """
    billions = re.fullmatch(r"(\d+)B", name)
    if "sizes" in config:  # of 2023, when the inner product was not gated
        return _maxtext_decoder(*config["sizes"], config["seq_len"], is_gated=False)
    if billions:
        sizes = _scaled(int(config.get("scale", billions[1])))
        return _maxtext_decoder(*sizes, config["seq_len"])
    return workload_of(config.get("workload", name))


def _scaled(scale: int) -> tuple[int, int, int, int]:
    cycles, rest = divmod(scale.bit_length() - 1, 3)
    heads = cycles + (rest > 0)
    width = cycles + (rest > 1)
    return 2048 << width, 16 << heads, 7168 << heads, 16 << cycles


@lru_cache(maxsize=64)
def _maxtext_decoder(
    width: int, heads: int, inner: int, layers: int, seq_len: int, *, is_gated: bool = True
) -> Workload:
    parameters = {
        "layout": "llama",
        "vocab_size": 32_000,
        "hidden_size": width,
        "layers": layers,
        "heads": heads,
        "head_dim": _FACTS["maxtext"]["head_dims"].get(width, 128),
        "intermediate_size": inner,
        "max_positions": seq_len,
        "gated": is_gated,
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
        (model in facts["refused"], facts["refused"].get(model, "")),
        (any("(" in word for word in (*words, precision)), "two plans in one row"),
        (precision not in facts["precisions"], f"training in {precision} has no precision policy"),
    )
    for holds, reason in reasons:
        if holds:
            return row.refused(reason)

    def figure(row: MeasuredRun) -> MeasuredRun:
        plan, workload = _bridge_plan(record, devices), workload_of(model)
        where = cluster(facts["clusters"].get(system) or cluster_of(system))
        release = re.match(r"[\d.]+", record["release"])
        is_new = release is not None and release[0] >= "26.06"
        trainer = ("stack", "nemo" if is_new else "nemo@24.12")
        options = (*_options(seq_len, facts["precisions"][precision]), trainer)
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
