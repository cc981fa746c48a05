"""Suites `training-fsdp`, `training-maxtext`, `training-megatron-bridge`: rates that frameworks
publish of themselves.

llm-foundry: MPT under FSDP on A100 and H100, eager, fused attention, DecoupledLionW; the servers'
networks are taken as the catalogue's InfiniBand patterns, one card a GPU, and p4d for the 40 GB
boards. MaxText: TPU slices; sharding is FSDP throughout unless a configuration names its tensor
parallelism; rates count attention as a full rectangle, as MaxText did before 2025-07. Megatron
Bridge: Megatron-LM on H100 to GB300; expert and data groups overlap, activations are kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from accelsim.catalog.clusters import cluster
from accelsim.errors import AccelsimError
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, Table, published, schema
from accelsim.scoreboard.names import workload_of
from accelsim.scoreboard.suite import Batch, register_suite
from accelsim.training.plan import ParallelismPlan
from accelsim.workloads.model import Workload
from tools.scoreboard.training_plans import (
    PlannedRow,
    PlannedRun,
    decoder,
    model_flop,
    planned_batches,
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
def load_fsdp(folder: DataFolder) -> list[Batch]:
    """Rows of llm-foundry's benchmark table."""
    table = folder.table(FSDP_SCHEMA)
    sizes = folder.table(DIMENSIONS_SCHEMA)
    if table is None or sizes is None:
        return []
    models = {str(name): row for row, name in enumerate(sizes["model"].tolist())}

    def model(name: str, seq_len: int) -> Workload | None:
        row = models.get(f"mpt-{name}")
        if row is None:
            return None
        columns = ("d_model", "n_heads", "n_layers", "vocab")
        return _mpt(*(int(sizes[column][row]) for column in columns), seq_len)

    return planned_batches(_fsdp_row(table, row, model) for row in range(len(table)))


@lru_cache(maxsize=64)
def _mpt(width: int, heads: int, layers: int, vocabulary: int, seq_len: int) -> Workload:
    """An MPT: ALiBi, layer norms, no biases, tied embeddings (llm-foundry, mpt-*.yaml)."""
    parameters = {
        "layout": "gpt2",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "layers": layers,
        "heads": heads,
        "intermediate_size": 4 * width,
        "activation": "gelu",
        "gated": False,
        "norm": "layer_norm",
        "positions": "none",
        "max_positions": seq_len,
        "tied_embeddings": True,
        "fused_qkv": True,
    }
    return decoder(f"mpt-{width}-{layers}", parameters, seq_len)


def _fsdp_row(table: Table, row: int, model: Any) -> PlannedRow:
    def count(name: str) -> int:
        return int(table[name][row])

    board, devices, seq_len = str(table["GPU"][row]), count("# GPUs"), count("SeqLen (T)")
    batch = count("GlobalBatchSize")
    microbatch = count("MicroBatchSize")
    measured_s = float(table["GlobalBatchSize (T)"][row] / table["Throughput (T/s)"][row])
    name = str(table["Model"][row])
    sharding = str(table["Sharding Strategy"][row])
    label = f"mpt-{name}, {seq_len} tokens, {devices} GPUs, batch {batch}"
    found = PlannedRow(board, f"mpt-{name}", label, measured_s)
    facts = _FACTS["fsdp"]
    if board not in facts["clusters"]:
        return replace(found, refusal=_no_cluster(board))
    if sharding not in facts["zero"]:
        return replace(found, refusal=f"no ZeRO stage of {sharding}")
    plan = ParallelismPlan(
        dp=devices,
        zero=facts["zero"][sharding],
        microbatch=microbatch,
        recompute="full" if table["Activation Checkpointing"][row] == "True" else "none",
    )
    options = (("precision", "bf16"), ("seq_len", seq_len))
    workload = model(name, seq_len)
    if workload is None:
        return replace(found, refusal=f"no sizes of mpt-{name} in the table of sizes")
    where = cluster(facts["clusters"][board])
    run = PlannedRun(workload, where, devices, batch, (plan,), options)
    return replace(found, label=f"{label}: {plan}", run=run)


def _no_cluster(board: str) -> str:
    return f"no cluster of {board} in the catalogue"


@register_suite(
    "training-maxtext",
    "MaxText on TPU v4 to v6e and H100",
    (MAXTEXT_SCHEMA,),
    "model",
    has_best_alone=True,
)
def load_maxtext(folder: DataFolder) -> list[Batch]:
    """Rows of MaxText's performance tables; rows that restate an earlier one are named."""
    table = folder.table(MAXTEXT_SCHEMA)
    if table is None:
        return []
    return planned_batches(_maxtext_row(table, row) for row in range(len(table)))


def _maxtext_row(table: Table, row: int) -> PlannedRow:
    chip = str(table["accelerator"][row])
    slices = int(table["n_slices"][row])
    devices = int(table["chips"][row])
    name = str(table["model"][row]).removesuffix(" model")
    label = f"{name} on {devices} {chip} in {slices} slices"
    nothing = PlannedRow(chip, name, label, float("nan"))
    if "README main table" in str(table["seq_or_note"][row]):
        return replace(nothing, refusal="restates an earlier row of the table")
    facts = _FACTS["maxtext"]
    config = facts["configs"].get(chip, {}).get(name)
    if chip not in facts["clusters"]:
        return replace(nothing, refusal=_no_cluster(chip))
    if config is None:
        return replace(nothing, refusal="no published configuration of the run")
    if slices > 1 and chip.startswith("v"):
        return replace(nothing, refusal="several slices over the data-centre network, not stated")
    seq_len = int(config["seq_len"])
    per_device = float(config["batch"])
    model = _maxtext_model(config, seq_len)
    rate = float(table["tokens_s_device"][row])
    flop = model_flop(model, seq_len) * per_device
    seconds = per_device * seq_len / rate
    if not np.isfinite(rate):
        seconds = flop / (float(table["tflops_per_chip"][row]) * 1e12)
    tp = int(config.get("tp", 1))
    plan = ParallelismPlan(
        dp=devices // tp,
        tp=tp,
        sp=tp > 1,
        zero=3,
        microbatch=max(round(per_device * tp), 1),
        recompute=config["recompute"],
    )
    batch = plan.dp * plan.microbatch
    options = (("precision", "bf16"), ("seq_len", seq_len))
    where = cluster(facts["clusters"][chip])
    run = PlannedRun(model, where, devices, batch, (plan,), options)
    return replace(nothing, label=f"{label}: {plan}", measured_s=seconds, run=run)


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
def load_bridge(folder: DataFolder) -> list[Batch]:
    """Rows of Megatron Bridge's performance summary."""
    table = folder.table(BRIDGE_SCHEMA)
    if table is None:
        return []
    return planned_batches(_bridge_row(table, row) for row in range(len(table)))


def _bridge_row(table: Table, row: int) -> PlannedRow:
    facts = _FACTS["bridge"]
    system = str(table["system"][row])
    model = str(table["model"][row])
    precision = str(table["precision"][row])
    devices = int(table["gpus"][row])
    seq_len = int(table["seq"][row])
    words = [f"{name}={table[name][row]}" for name in ("TP", "PP", "CP", "VP", "EP", "FSDP")]
    batch = int(table["gbs"][row])
    label = f"{model} {precision or 'BF16'}, {devices} GPUs, batch {batch}: {' '.join(words)}"
    measured_s = batch * seq_len / (float(table["tokens_s_gpu"][row]) * devices)
    found = PlannedRow(system, model, label, measured_s)
    if system not in facts["clusters"]:
        return replace(found, refusal=_no_cluster(system))
    if model not in facts["models"]:
        return replace(found, refusal=facts["refused"].get(model, f"no workload {model}"))
    if any("(" in word for word in (*words, precision)):
        return replace(found, refusal="two plans in one row")
    if precision not in facts["precisions"]:
        return replace(found, refusal=f"training in {precision} has no precision policy")
    try:
        plan = _bridge_plan(table, row, devices)
        workload = workload_of(facts["models"][model])
    except AccelsimError as error:
        return replace(found, refusal=str(error).split(". ")[0])
    options = (("precision", facts["precisions"][precision]), ("seq_len", seq_len))
    where = cluster(facts["clusters"][system])
    return replace(found, run=PlannedRun(workload, where, devices, batch, (plan,), options))


def _bridge_plan(table: Table, row: int, devices: int) -> ParallelismPlan:
    """Megatron Core's plan: distributed optimizer, sequence parallelism beside tensor
    parallelism.
    """

    def degree(name: str) -> int:
        found = re.fullmatch(r"\d+", str(table[name][row]))
        return int(found.group()) if found else 1

    tp, pp, cp, ep, chunks = (degree(name) for name in ("TP", "PP", "CP", "EP", "VP"))
    chunks = chunks if pp > 1 else 1
    return ParallelismPlan(
        dp=max(devices // (tp * pp * cp), 1),
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        sp=tp > 1,
        zero=3 if degree("FSDP") > 1 else 1,
        microbatch=int(table["mbs"][row]),
        schedule="interleaved" if chunks > 1 else "1f1b",
        chunks=chunks,
    )
