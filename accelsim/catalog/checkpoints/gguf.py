"""Workloads from the headers of GGUF files, by the table ``workloads/checkpoints/gguf.yaml``.

A header becomes the configuration that the model's checkpoint has, so that one reader knows the
families. Its tensors' numbers are counted: a variant with other layers is refused, never
approximated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelsim.catalog.checkpoints.huggingface import workload_from_config
from accelsim.dtype import file_precision
from accelsim.errors import InvalidValueError, ProfileError, UnknownNameError
from accelsim.files.tensorfile import TensorHeader, gguf_table, read_gguf
from accelsim.plain import Document, Values
from accelsim.workloads.model import PassShape, Workload

#: Most files of one model, and the names of the first.
_MOST_FILES = 1000
_PARTED = re.compile(r"-00001-of-(\d{5})\.gguf\Z", re.IGNORECASE)
#: What tensors may have more or less than the layers of their model: tables of positions' angles.
_TOLERANCE = 0.01


def workload_from_gguf(path: Path) -> Workload:
    """The workload of a GGUF file, in the format that it is stored in.

    Args:
        path: The file, or the first of a model's files (``…-00001-of-00003.gguf``).

    Raises:
        ProfileError: If a file cannot be read, or its tensors are not those of its sizes.
        UnknownNameError: If its architecture is not supported.
        InvalidValueError: If a size is missing, or names a variant not modelled.
    """
    header = _joined_header(path)
    config = gguf_config(header)
    title = str(header.values.get("general.name") or path.stem)
    workload = workload_from_config(config, title)
    stored = _without_guesses(header, int(config["num_hidden_layers"]))
    count = stored.parameter_count
    file = file_precision(_format(stored), 8.0 * stored.size_bytes / count)
    expected = workload.lower(PassShape(seq_len=1), file).parameter_count
    if abs(expected - count) > _TOLERANCE * count:
        sizes = f"its tensors hold {count:,} numbers, and {config['model_type']} of its sizes"
        raise ProfileError(str(path), [f"{sizes} has {expected:,}: this variant is not modelled"])
    return replace(workload, quantised=file)


def _joined_header(path: Path) -> TensorHeader:
    """The header of a file, with the tensors of the others of its model."""
    header = read_gguf(path)
    count = header.values.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return header
    match = _PARTED.search(path.name)
    if count > _MOST_FILES or match is None or int(match[1]) != count:
        wanted = f"...-00001-of-{count:05}.gguf, the first of the model's files"
        raise ProfileError(str(path), [f"is a part of a model: name {wanted}"])
    tensors = dict(header.tensors)
    for number in range(2, count + 1):
        name = f"{path.name[: match.start()]}-{number:05}-of-{count:05}{path.suffix}"
        tensors |= read_gguf(path.with_name(name)).tensors
    return TensorHeader(header.values, tensors)


def gguf_config(header: TensorHeader) -> Document:
    """The configuration that a checkpoint of a GGUF file's model has.

    Raises:
        UnknownNameError: If its architecture is not supported.
        InvalidValueError: If a size is missing, or differs between layers.
    """
    table = gguf_table()
    architectures, name = table["architectures"], str(header.values.get("general.architecture"))
    if name not in architectures:
        supported = f"Supported: {', '.join(architectures)}."
        raise UnknownNameError("general.architecture", name, architectures, supported)
    entry, tensors = architectures[name], header.tensors
    fields = table["fields"] | entry.get("fields", {})
    config: Document = {field: _size(header.values, name, keys) for field, keys in fields.items()}
    config = {field: value for field, value in config.items() if value is not None}
    variants = entry.get("variants", {}).items()
    types = [variant for mark, variant in variants if any(mark in tensor for tensor in tensors)]
    config |= {
        "model_type": next(iter(types), entry["model_type"]),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors,
        **entry.get("fixed", {}),
    }
    if "token_embd.weight" in tensors:
        config["vocab_size"] = tensors["token_embd.weight"].shape[-1]
    return config | _derived(header.values, name, config)


def _derived(values: Values, name: str, config: Values) -> Document:
    """Sizes that are made of several."""
    layers, head = config.get("num_hidden_layers"), config.get("head_dim")
    turned, further = config.get("rotary_dim"), values.get(f"{name}.nextn_predict_layers", 0)
    if not isinstance(layers, int) or not isinstance(further, int):
        raise InvalidValueError(f"{name}.block_count", layers, "a whole number")
    derived: Document = {"num_hidden_layers": layers - further}
    if isinstance(head, int) and isinstance(turned, int) and 0 < turned < head:
        derived |= {"partial_rotary_factor": turned / head, "qk_nope_head_dim": head - turned}
    elif isinstance(head, int) and turned == head:
        derived["partial_rotary_factor"] = 1.0
    return derived


def _size(values: Values, architecture: str, keys: str) -> Any:
    """The value of the first key that is there; one number of a list of equal ones."""
    for key in keys.split("|"):
        value = values.get(f"{architecture}.{key}")
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            if len(set(value)) > 1:
                allowed = "the same number for each layer"
                raise InvalidValueError(f"{architecture}.{key}", value, allowed)
            value = value[0]
        if value is not None:
            return value
    return None


def _without_guesses(header: TensorHeader, layers: int) -> TensorHeader:
    """A header without the layers after the last, which guess further tokens."""
    if not any(key.endswith(".nextn_predict_layers") for key in header.values):
        return header
    numbered = ((name, re.match(r"blk\.(\d+)\.", name)) for name in header.tensors)
    names = [name for name, layer in numbered if layer is None or int(layer[1]) < layers]
    return TensorHeader(header.values, {name: header.tensors[name] for name in names})


def _format(header: TensorHeader) -> str:
    """Name of a file's format: its own, or that of most of its bytes."""
    file_format = gguf_table()["file_formats"].get(str(header.values.get("general.file_type")))
    if file_format is not None:
        return str(file_format)
    sizes = Counter[str]()
    for tensor in header.tensors.values():
        sizes[tensor.dtype] += tensor.size_bytes
    return max(sizes, key=lambda name: sizes[name], default="f32")
