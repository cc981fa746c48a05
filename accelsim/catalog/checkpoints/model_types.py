"""Reads checkpoint configurations by the table of `workloads/checkpoints/model_types.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from accelsim.catalog.checkpoints.config import CheckpointConfig, Parameters
from accelsim.errors import InvalidValueError
from accelsim.files.datafile import data_root, read_yaml
from accelsim.plain import Document, Values

ModelType = Values

#: A layer of full attention in lists of layers' kinds.
_FULL = ("full_attention", 1)

#: End of an architecture's class name, and the head it puts on the encoder.
_HEADS = {
    "ForMaskedLM": "masked_lm",
    "ForPreTraining": "pretraining",
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "token_classification",
}


@cache
def model_types() -> Mapping[str, ModelType]:
    """Supported ``model_type`` values and how each is read."""
    path = data_root() / "workloads" / "checkpoints" / "model_types.yaml"
    types: dict[str, ModelType] = {}
    for name, entry in read_yaml(path)["types"].items():
        types[name] = _merged(types[entry["like"]], entry) if "like" in entry else entry
    return {name: entry for name, entry in types.items() if not name.startswith("_")}


def _merged(base: ModelType, changes: ModelType) -> ModelType:
    both = {**base, **changes}
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            both[key] = _merged(base[key], value)
    return both


def read_parameters(c: CheckpointConfig, kind: ModelType) -> Parameters:
    """Family parameters of a configuration.

    Raises:
        InvalidValueError: If a field is missing, of the wrong type or out of range, or names a
            variant not modelled.
    """
    for field, expected in kind.get("require", {}).items():
        c.require(field, expected, expected)
    counts = c.counts(f"{kind['counts']} {kind.get('more', '')}")
    for field, parameter in kind.get("equal", {}).items():
        c.require(field, counts[parameter], counts[parameter])
    counts |= _single_fields(c, kind)
    for flag, (default, parameters) in kind.get("flagged", {}).items():
        counts |= parameters if c.flag(flag, default) else {}
    if "activation" in kind:
        field, default = kind["activation"]
        counts["activation"] = c.activation(c.present(field), default)
    for parameter, inner in kind.get("parts", {}).items():
        fields = c.subset(inner["subset"]) if "subset" in inner else c
        counts[parameter] = read_parameters(fields, inner)
    fixed: Document = kind.get("fixed", {})
    return counts | _special(c, kind, counts) | _head(c, kind) | fixed


def _single_fields(c: CheckpointConfig, kind: ModelType) -> Parameters:
    """Parameters that are one field each, by the reader of its type."""
    readers: dict[str, Callable[..., object]] = {
        "flags": c.flag,
        "fractions": c.fraction,
        "texts": c.text,
        "lists": c.integers,
    }
    return {
        parameter: read(*(field if isinstance(field, list) else [field]))
        for key, read in readers.items()
        for parameter, field in kind.get(key, {}).items()
        if field is not None
    }


def _special(c: CheckpointConfig, kind: ModelType, parameters: Parameters) -> Parameters:
    """What takes more than a field's name."""
    special: Parameters = {}
    if "windows" in kind:  # windowed layers with a full one every so many
        special["window"] = c.integer("sliding_window", 4096)
        special["full_attention_every"] = _full_every(c, kind["windows"])
    if "layer_every" in kind:
        parameter, usual = kind["layer_every"]
        special[parameter] = _full_every(c, usual, "full_attention_interval")
    if "gated_activation" in kind:
        special |= _gated_activation(c, *kind["gated_activation"])
    if "rotary" in kind:
        rotary_dim, head_dim = (c.integer(field) for field in kind["rotary"])
        special["rotary_fraction"] = rotary_dim / head_dim
    if "reserved" in kind:
        left = parameters["max_positions"] - kind["reserved"]
        special |= {"max_positions": left, "position_offset": kind["reserved"]}
    return special


def _head(c: CheckpointConfig, kind: ModelType) -> Parameters:
    """What follows the layers, by the name of the architecture's class."""
    architecture, head = c.architecture(), Parameters()
    if "head" in kind:
        kinds = (name for suffix, name in _HEADS.items() if architecture.endswith(suffix))
        head["head"] = next(kinds, kind["head"])
    if "labels" in kind:
        head[kind["labels"]] = c.labels()
    if "ctc" in kind and architecture.endswith("ForCTC"):
        head |= c.counts(kind["ctc"])
    return head


def _full_every(c: CheckpointConfig, usual: int | None, field: str = "") -> int:
    """Layers to one of full attention, by the list of layers' kinds where there is one, else by a
    field of its own.
    """
    listed = c.present("layer_types|attn_type_list")
    kinds = c.fields.get(listed)
    every = c.integer(field, usual) if field else usual or 0
    if kinds is not None:
        if not isinstance(kinds, (list, tuple)) or len(kinds) != c.integer("num_hidden_layers"):
            raise InvalidValueError(listed, kinds, "one entry per layer")
        full = [index + 1 for index, kind in enumerate(kinds) if kind in _FULL]
        every = full[0] if full else 0
        if full != (list(range(every, len(kinds) + 1, every)) if every else []):
            raise InvalidValueError(listed, kinds, "full_attention at every n-th layer")
    return every


def _gated_activation(c: CheckpointConfig, field: str, default: str) -> Parameters:
    """T5 1.0 names its activation, 1.1 says that it is gated."""
    projection = c.text(field, default)
    activation = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    config = CheckpointConfig({field: activation})
    return {"activation": config.activation(field, default), "gated": activation != projection}
