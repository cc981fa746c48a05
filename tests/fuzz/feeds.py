"""What is fuzzed of what other programs write: traces, steps, price feeds and checkpoints."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import accelsim
from accelsim.catalog.checkpoints.model_types import model_types
from accelsim.economics import PriceBook
from accelsim.economics.feeds.sources import import_offers
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import resolve
from accelsim.serving.loads.traces import read_trace
from accelsim.serving.steps.fitted_steps import fit_steps
from accelsim.serving.steps.server_run import STEP_COLUMNS, read_step_times

from .calls import command, document_of
from .inputs import Kind, csv_text, file_of

_MOST_LAYERS = 64  # more is longer, and no other code

_AZURE = [["TIMESTAMP", "ContextTokens", "GeneratedTokens"], ["2024-01-01 00:00:00.0", 10, 20]]
_BENCHMARK = {"input_lens": [10, 20, 5], "output_lens": [7, 1, 9], "start_times": [0.5, 1.0, 2.5]}
_TALKS = [{"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]}]
_MOONCAKE = {"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [46, 47]}
_PLAIN = {"arrival_s": 1.0, "prompt_tokens": 4, "output_tokens": 7}
_STEPS = [
    STEP_COLUMNS,
    [512, 131328, 0, 0, 0.02, 3.5],
    [0, 0, 8, 4096, 0.01, 2],
    [0, 0, 1, 64, 0.008],
]
_STEPS += [[256, 32896, 4, 2048, 0.015, 2.5], [0, 0, 16, 9000, 0.012, ""]]
_FEED = [
    [
        *("provider", "region", "instance_type", "vcpus", "memory_gib", "accelerator_name"),
        *(
            "accelerator_count",
            "price_usd_per_h",
            "spot_price_usd_per_h",
            "as_of",
            "source",
            "note",
        ),
    ],
    ["aws", "us-east-1", "g4dn.xlarge", 4, 16, "T4", 1, 0.526, 0.16, "2025-01", "x", ""],
    ["aws", "us-east-1", "m5.large", 2, 8, "", "", 0.096, "", "2025-01", "x", ""],
    ["gcp", "us-central1", "a2-highgpu-1g", 12, 85, "A100", 1, 3.67, 1.1, "2025", "y", "1y=2 3y=1"],
    ["azure", "eastus", "Standard_ND96_v4", 96, 900, "A100", 8, 27.2, 9.0, "2025", "y", ""],
]
_CLOUD = [
    [
        *("InstanceType", "vCPUs", "MemoryGiB", "AcceleratorName", "AcceleratorCount", "Price"),
        *("SpotPrice", "Region", "AvailabilityZone"),
    ],
    ["g4dn.xlarge", 4.0, 16.0, "T4", 1.0, 0.526, 0.16, "us-east-1", "a"],
    ["g4dn.xlarge", 4.0, 16.0, "T4", 1.0, 0.526, 0.17, "us-east-1", "b"],
    ["p4d.24xlarge", 96, 1152, "A100", 8, 32.77, "", "us-east-1", "a"],
]


def _trace(folder: Path, text: str) -> object:
    return read_trace(file_of(folder, "t.csv", text))


def _trace_json(folder: Path, text: str) -> object:
    return read_trace(file_of(folder, "t.json", text)).requests


def _trace_lines(folder: Path, text: str) -> object:
    return read_trace(file_of(folder, "t.jsonl", text)).requests


def _steps(folder: Path, text: str) -> object:
    return fit_steps(read_step_times(file_of(folder, "steps.csv", text)), 10.0)


def _feed(folder: Path, text: str) -> None:
    """What is written of a feed is read."""
    if import_offers(str(file_of(folder, "f.csv", text)), "2025").offers:
        command("offers", "import", "f.csv", "--out", "p.csv", "--as-of", "2025")
        PriceBook.load(folder / "p.csv").cheapest("t4")


def _catalogue(folder: Path, text: str) -> None:
    (folder / "aws").mkdir()
    file_of(folder / "aws", "vms.csv", text)
    command("offers", "import", f"skypilot:{folder}", "--as-of", "2025", "--out", "p.csv")


_COUNTS = (
    *("moe_intermediate_size", "shared_expert_intermediate_size", "kv_lora_rank", "head_dim"),
    *("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts", "rotary_dim"),
    *("num_experts_per_tok", "num_local_experts", "intermediate_size_mlp", "ffn_dim", "d_model"),
    *("encoder_layers", "decoder_layers", "num_layers", "encoder_attention_heads", "num_heads"),
    *("encoder_ffn_dim", "d_kv", "d_ff"),
)
#: What configurations of all model types have between them.
_CONFIG = dict.fromkeys(_COUNTS, 4) | {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 1024,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "layer_types": None,
    "torch_dtype": "bfloat16",
}
_GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": False}}
_GROUP |= {"targets": ["Linear"], "input_activations": None}
_QUANTISED: Sequence[Any] = (
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "dynamic": None},
    {"quant_method": "awq", "w_bit": 4, "q_group_size": -1, "modules_to_not_convert": ["lm_head"]},
    {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    {"quant_method": "compressed-tensors", "config_groups": {"g": _GROUP}, "ignore": ["re:.*gate"]},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
)


def _checkpoint_document(draw: random.Random) -> dict[str, Any]:
    stored = draw.choice(_QUANTISED)
    config = {**_CONFIG, "model_type": draw.choice(sorted(model_types()))}
    if draw.random() < 0.5:
        return {"config.json": config, "hf_quant_config.json": {"quantization": stored}}
    return {"config.json": {**config, "quantization_config": stored}}


def _checkpoint(folder: Path, text: str) -> object:
    files = document_of(text)
    (folder / "hf").mkdir()
    for name in ("config.json", "hf_quant_config.json"):
        if isinstance(files, Mapping) and name in files:
            file_of(folder / "hf", name, json.dumps(files[name]))
    if isinstance(files, str):
        file_of(folder / "hf", "config.json", files)
    workload = accelsim.workload(str(folder / "hf"))
    if getattr(workload.parameters, "layers", 1) > _MOST_LAYERS:
        return workload
    return run_passes(resolve(workload, "h100-sxm-80gb", batch=1, output_len=None))


def _json_lines(documents: Any) -> str:
    listed = documents if isinstance(documents, list) else [documents]
    return "".join(json.dumps(one) + "\n" for one in listed)


#: Kinds by name.
FEEDS: Mapping[str, Kind] = {
    "trace": Kind(_AZURE, csv_text, _trace),
    "trace json": Kind(
        _BENCHMARK, json.dumps, _trace_json, lambda draw: draw.choice([_BENCHMARK, _TALKS])
    ),
    "trace lines": Kind(
        [_MOONCAKE, _MOONCAKE],
        _json_lines,
        _trace_lines,
        lambda draw: [draw.choice([_MOONCAKE, _PLAIN]) for _ in range(4)],
    ),
    "steps": Kind([*map(list, _STEPS)], csv_text, _steps),
    "feed": Kind(_FEED, csv_text, _feed),
    "catalogue": Kind(_CLOUD, csv_text, _catalogue),
    "checkpoint": Kind(
        {"config.json": {**_CONFIG, "model_type": "llama"}},
        json.dumps,
        _checkpoint,
        _checkpoint_document,
    ),
}
