"""What is fuzzed: of each kind of input a valid one, and what reads it.

A kind's reader takes a folder and the text of its file, and does what a user would with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

import accelsim
from accelsim import catalog
from accelsim.calibration.measurement.case import CASE_VERSION
from accelsim.calibration.run_file import measured_graph, read_run
from accelsim.capacity.scenario import load_scenario
from accelsim.capacity.scenario_template import TEMPLATE
from accelsim.economics import PriceBook
from accelsim.errors import MissingDependencyError
from accelsim.estimation.passes import run_passes
from accelsim.estimation.resolution import resolve
from accelsim.exploration.sweeps.spec import load_sweep
from accelsim.files.datafile import data_root
from accelsim.scoreboard.data_folder import DataFolder, schema_of
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.simulation.randomness import RandomStreams
from accelsim.workloads.graph import OperatorGraph

from .gguf_files import VALUES, gguf_bytes, llama_tensors


class Kind(NamedTuple):
    """A kind of input.

    Attributes:
        valid: A document that is read without complaint.
        write: The text of a document.
        read: Reads the text, in a folder of its own.
        drawn: A document that a user might give, at random; the valid one where None.
    """

    valid: Any
    write: Callable[[Any], str]
    read: Callable[[Path, str], object]
    drawn: Callable[[random.Random], Any] | None = None


def file_of(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def _device(folder: Path, text: str) -> object:
    profile = catalog.load_device_file(file_of(folder, "d.yaml", text))
    return accelsim.estimate("lenet-5", profile)


def _board(folder: Path, text: str) -> object:
    return catalog.load_device_file(file_of(folder, "d.yaml", text)).peak_flop_per_s


def _workload(folder: Path, text: str) -> object:
    return accelsim.estimate(str(file_of(folder, "w.yaml", text)), "t4", batch=1)


def _config(folder: Path, text: str) -> object:
    workload = accelsim.workload(str(file_of(folder, "config.json", text)))
    depth = getattr(workload.parameters, "layers", 1)
    if depth > 64:  # written one after the other where they differ: slow, and no other code
        return workload
    return run_passes(resolve(workload, "a100-sxm-80gb", batch=1, output_len=None))


def _captured(folder: Path, text: str) -> object:
    workload = accelsim.workload(str(file_of(folder, "c.json", text)))
    return accelsim.estimate(workload, "t4", batch=4)


def _table(folder: Path, text: str) -> object:
    file_of(folder, "vec.csv", text)
    columns = {"text": ["op"], "number": ["b"], "time": ["latency_ms"], "key": ["op", "b"]}
    return DataFolder(folder).table(schema_of("vec.csv", columns))


def _run(folder: Path, text: str) -> object:
    run = read_run(file_of(folder, "run.jsonl", text))
    return measured_graph([row for row in run.rows if row.row is not None])


def _prices(folder: Path, text: str) -> object:
    return PriceBook.load(file_of(folder, "p.yaml", text)).cheapest("t4")


def _arrivals(folder: Path, text: str) -> object:
    load = Arrivals(**known(text, Arrivals.__dataclass_fields__))
    return load.columns(RandomStreams(0)) if load.count * load.turns <= 100 else load


def _scenario(folder: Path, text: str) -> object:
    return load_scenario(file_of(folder, "s.yaml", text))


def _sweep(folder: Path, text: str) -> object:
    return load_sweep(file_of(folder, "s.yaml", text))


def _call(folder: Path, text: str) -> object:
    fields = known(text, _CALL)
    return accelsim.estimate(fields.pop("model", None), fields.pop("device", None), **fields)


def _onnx(folder: Path, text: str) -> object:
    path = folder / "n.onnx"
    path.write_bytes(text.encode("latin-1", "replace"))
    try:
        return accelsim.estimate(str(path), "t4")
    except MissingDependencyError:  # without the extra no file of this kind is read
        return None


def _gguf(folder: Path, text: str) -> object:
    path = folder / "m.gguf"
    raw = text.encode("latin-1", "replace")
    path.write_bytes(raw)
    if len(raw) % 32 < 24:  # else its data are missing
        os.truncate(path, len(raw) + 2_000_000)
    workload = accelsim.workload(str(path))
    return run_passes(resolve(workload, "rtx-4090", batch=1, output_len=None))


def _gguf_text(document: Any) -> str:
    """A file of what can be written of a document, without its data."""
    whole = document if isinstance(document, Mapping) else {}
    kept: dict[str, dict[str, Any]] = {"values": {}, "tensors": {}}
    for part, entries in kept.items():
        given = whole.get(part)
        entries.update(given if isinstance(given, Mapping) else {})
        for name in [name for name in entries if not _is_writable(part, name, entries[name])]:
            del entries[name]
    return gguf_bytes(**kept, data=b"").decode("latin-1")


def _is_writable(part: str, name: Any, value: Any) -> bool:
    if name in _LLAMA_FILE[part] and repr(value) == repr(_LLAMA_FILE[part][name]):
        return True
    with contextlib.suppress(struct.error, TypeError, ValueError, ArithmeticError, AttributeError):
        gguf_bytes(**{"values": {}, "tensors": {}, part: {name: value}}, data=b"")
        return True
    return False


def _weights(folder: Path, text: str) -> object:
    file_of(folder, "config.json", json.dumps(_LLAMA))
    path = folder / "model.safetensors"
    path.write_bytes(text.encode("latin-1", "replace"))
    return accelsim.workload(str(path))


def _weights_text(header: Any) -> str:
    raw = json.dumps(header)
    return len(raw).to_bytes(8, "little").decode("latin-1") + raw + "\0" * 32


def known(text: str, names: Any) -> dict[str, Any]:
    """Keywords of a document, without those that Python itself refuses."""
    try:
        fields = json.loads(text)
    except ValueError:
        return {}
    is_mapping = isinstance(fields, Mapping)
    return {name: fields[name] for name in fields if name in names} if is_mapping else {}


def _yaml(document: Any) -> str:
    return yaml.safe_dump(document, allow_unicode=True)


def _profile(name: str) -> Any:
    path = data_root() / "device_profiles" / f"{name}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def csv_text(rows: Any) -> str:
    listed = rows if isinstance(rows, list) else [rows]
    cells = [row if isinstance(row, list) else [row] for row in listed]
    return "".join(",".join(map(str, row)) + "\n" for row in cells)


def _lines(documents: Any) -> str:
    """A run file whose lines have the hashes that they should."""
    digest, text = "", ""
    for document in documents if isinstance(documents, list) else [documents]:
        fields = document if isinstance(document, Mapping) and document else {"x": str(document)}
        body = json.dumps({**fields}, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256((digest + body).encode()).hexdigest()[:16]
        text += body[:-1] + f',"hash":"{digest}"}}\n'
    return text


def _wire(message: Any) -> bytes:
    """A protocol buffer: numbers of fields -> values, of the type that suits each value."""
    fields = message if isinstance(message, Mapping) else {}
    return b"".join(
        _wire_field(int(number), one)
        for number, value in fields.items()
        if str(number).isdecimal()
        for one in (value if isinstance(value, list) else [value])
    )


def _wire_field(number: int, value: Any) -> bytes:
    """One field (https://protobuf.dev/programming-guides/encoding)."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value % 2**64)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + np.float32(value).tobytes()
    raw = value.encode("utf-8") if isinstance(value, str) else _wire(value)
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    *low, last = (number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7))
    return bytes([*(part | 128 for part in low), last])


def _small_graph() -> dict[str, Any]:
    """Forward rows of a network as a captured file has them."""
    workload = accelsim.workload("perceptron")
    graph = run_passes(resolve(workload, "t4", precision="fp32")).passes[0].graph
    return graph.to_dict()


def _capture() -> dict[str, Any]:
    graph = _small_graph()
    count = len(OperatorGraph.from_dict(graph))
    step = {name: [1.0] * count for name in ("flop", "read_bytes", "write_bytes")}
    step |= {"weight_bytes": [0.0] * count, "saved_bytes": [0.0] * count}
    zeros = [[0.0] * 4 for _ in range(count)]
    widths = len(OperatorGraph.from_dict(graph).dims[0])
    part = {
        "batch": 1,
        "operators": graph,
        "fixed_bytes": zeros,
        "batch_step": {
            **step,
            "unit": 1,
            "dims": [[0] * widths for _ in range(count)],
            "fixed_bytes": zeros,
        },
    }
    return {
        "format": "accelsim-workload",
        "version": 1,
        "name": "net",
        "task": "captured",
        "training": False,
        "precision": "fp32",
        "parameter_count": 10,
        "parameter_tensor_count": 2,
        "trainable_count": 10,
        "fused_attention": True,
        "graphs": {"forward": part},
    }


_CASE = {
    "family": "gemm",
    "operator": "addmm",
    "shape": {"m": 2, "n": 3, "k": 4},
    "dtype": "fp32",
    "threads": 1,
    "cold": False,
    "execution": "eager",
    "amid": False,
}
_ROW = {
    "name": "addmm",
    "kind": "gemm",
    "phase": "forward",
    "dims": [1, 2, 3, 4],
    "flop": 48.0,
    "read_bytes": 32.0,
    "write_bytes": 24.0,
    "weight_bytes": 48.0,
}
_MEASURED = {
    "case": _CASE,
    "time_s": 1e-5,
    "noise_fraction": 0.1,
    "round": 0,
    "details": {},
    "skipped": None,
    "row": _ROW,
}
_HEADER = {
    "schema": "accelsim-calibration-run",
    "version": 2,
    "case_version": CASE_VERSION,
    "environment": {},
    "settings": {},
}
_LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "layer_types": None,
    "quantization_config": None,
    "text_config": None,
    "vision_config": None,
}
_CALL = {
    "model": "lenet-5",
    "device": "t4",
    "batch": 2,
    "precision": "fp16",
    "mode": "inference",
    "execution": "graph",
    "stack": None,
    "host": None,
    "offload": None,
    "image_size": None,
    "accumulation": None,
    "optimizer": None,
    "recompute": None,
    "lora_rank": None,
    "steps": None,
    "layout": None,
    "kv_format": None,
    "weight_format": None,
    "tier": "best",
    "heap": "default",
    "offer": None,
    "provider": "aws",
    "region": "us-*",
    "kind": "spot",
    "discounts": "aws=10%",
    "max_usd_per_hour": 10.0,
    "usd_per_hour": None,
}

#: A convolution, its activation and a matrix product as ``onnx.proto`` numbers their fields.
_NETWORK = {
    "1": 8,
    "8": {"1": "", "2": 22},
    "7": {
        "2": "net",
        "1": [
            {
                "1": ["x", "w"],
                "2": ["a"],
                "3": "first",
                "4": "Conv",
                "5": [
                    {"1": "strides", "8": [2, 2], "20": 7},
                    {"1": "pads", "8": [1, 1, 1, 1], "20": 7},
                    {"1": "group", "3": 1, "20": 2},
                ],
            },
            {"1": ["a"], "2": ["r"], "4": "Relu"},
            {"1": ["r", "s"], "2": ["f"], "4": "Reshape"},
            {"1": ["f", "m", "b"], "2": ["y"], "4": "Gemm", "5": {"1": "alpha", "2": 0.5, "20": 1}},
        ],
        "5": [
            {"8": "w", "1": [4, 3, 3, 3], "2": 1, "9": "\0" * 432},
            {"8": "s", "1": 2, "2": 7, "7": [0, -1]},
            {"8": "m", "1": [64, 8], "2": 1, "9": "\0" * 2048},
            {"8": "b", "1": 8, "2": 1, "4": [0.0] * 8},
        ],
        "11": {
            "1": "x",
            "2": {"1": {"1": 1, "2": {"1": [{"2": "n"}, {"1": 3}, {"1": 8}, {"1": 8}]}}},
        },
        "12": {"1": "y", "2": {"1": {"1": 1}}},
    },
}
_LLAMA_FILE = json.loads(json.dumps({"values": VALUES, "tensors": llama_tensors(VALUES)}))
#: Kinds by name.
KINDS: Mapping[str, Kind] = {
    "gpu": Kind(_profile("gpu/t4"), _yaml, _device),
    "cpu": Kind(_profile("cpu/graviton3"), _yaml, _device),
    "fpga": Kind(_profile("fpga/zcu102"), _yaml, _board),
    "asic": Kind(_profile("asic/tpu-v4"), _yaml, _device),
    "workload": Kind(
        {
            "name": "w",
            "title": "W",
            "task": "text-generation",
            "family": "decoder",
            "parameters": {
                "vocab_size": 100,
                "hidden_size": 64,
                "layers": 2,
                "heads": 4,
                "kv_heads": 2,
                "intermediate_size": 128,
            },
            "default": {"batch": 1, "seq_len": 16},
            "output_len": 4,
        },
        _yaml,
        _workload,
    ),
    "config": Kind(_LLAMA, json.dumps, _config),
    "captured": Kind(_capture(), json.dumps, _captured),
    "table": Kind(
        [["op", "b", "latency_ms"], ["add", 1, 0.5], ["mul", 2, 0.7], ["add", 4, 1e3]],
        csv_text,
        _table,
    ),
    "run": Kind([_HEADER, _MEASURED, {"note": "noise"}, _MEASURED], _lines, _run),
    "prices": Kind(
        {"offers": [{"device": "t4", "on_demand_usd_per_hour": 0.5, "as_of": "2026"}]},
        _yaml,
        _prices,
    ),
    "arrivals": Kind(
        {
            "rate_per_s": 2.0,
            "users": None,
            "requests": 10,
            "process": "gamma",
            "cv": 2.0,
            "period_s": 60.0,
            "swing_fraction": 0.5,
            "think_s": 0.0,
            "prompt": "lognormal:600:1.0",
            "output": "uniform:1-9",
            "turns": 1,
            "prefixes": 2,
            "prefix_tokens": 4,
        },
        json.dumps,
        _arrivals,
    ),
    "scenario": Kind(yaml.safe_load(TEMPLATE), _yaml, _scenario),
    "sweep": Kind(
        {
            "name": "s",
            "method": "grid",
            "fixed": {"model": "lenet-5"},
            "vary": {"device": ["t4", "tpu"], "batch": [1, 2]},
            "seed": 0,
        },
        _yaml,
        _sweep,
    ),
    "call": Kind(_CALL, json.dumps, _call),
    "weights": Kind(
        {
            "a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]},
            "b": {"dtype": "F32", "shape": [4], "data_offsets": [16, 32]},
            "__metadata__": {"format": "pt"},
        },
        _weights_text,
        _weights,
    ),
    "gguf": Kind(_LLAMA_FILE, _gguf_text, _gguf),
    "onnx": Kind(_NETWORK, lambda network: _wire(network).decode("latin-1"), _onnx),
}
