"""Workloads from the ``config.json`` of Hugging Face checkpoints, without the transformers package.

Each supported ``model_type`` maps its fields to the parameters of a family; defaults are those of
the type's configuration class in transformers 4.57. A variant whose layers differ from what the
family writes is refused by name of the field, never approximated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from accelsim.catalog.checkpoints.config import CheckpointConfig, Parameters
from accelsim.catalog.checkpoints.model_types import model_types, read_parameters
from accelsim.catalog.checkpoints.quantization import published_precision
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.plain import Values
from accelsim.workloads.families import load_family
from accelsim.workloads.model import PassShape, Workload

#: Supported ``model_type`` values.
MODEL_TYPES = model_types()


def workload_from_config(config: Values, name: str | None = None) -> Workload:
    """The workload a checkpoint's configuration describes.

    Args:
        config: The parsed ``config.json``.
        name: Name of the workload; the configuration's ``_name_or_path`` or ``model_type`` if left
            out.

    Raises:
        UnknownNameError: If its ``model_type`` is not supported.
        InvalidValueError: If a field is missing, of the wrong type or out of range, or names a
            variant not modelled.
    """
    reader = CheckpointConfig(_language_model(config))
    model_type = reader.text("model_type", "")
    kind = MODEL_TYPES.get(model_type)
    if kind is None:
        supported = f"Supported: {', '.join(sorted(MODEL_TYPES))}. Capture the module instead."
        raise UnknownNameError("model_type", model_type, MODEL_TYPES, supported)
    family = load_family(kind["family"])
    title = name or reader.text("_name_or_path", "").rstrip("/").rpartition("/")[2] or model_type
    return Workload(
        name=_kebab(title) or model_type.replace("_", "-"),
        title=title,
        task=kind["task"],
        family=family,
        parameters=_validated(family.parameters.model_validate, read_parameters(reader, kind)),
        default=PassShape(**kind.get("default", {})),
        output_len=kind.get("output_len", 0),
        quantised=published_precision(reader.fields),
    )


def _language_model(config: Values) -> Values:
    """The configuration of the language model within one that sees, too: its ``text_config``, with
    what the whole names for all parts. The other parts are left out.
    """
    inner = config.get("text_config")
    if not isinstance(inner, Mapping) or str(config.get("model_type")) in MODEL_TYPES:
        return config
    model_type = inner.get("model_type") or f"{config.get('model_type')}_text"
    shared = ("_name_or_path", "quantization_config", "tie_word_embeddings", "dtype", "torch_dtype")
    return {name: config[name] for name in shared if config.get(name)} | dict(
        inner, model_type=model_type
    )


def _kebab(title: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")[:80]


def _validated(validate: Callable[[Parameters], Any], parameters: Parameters) -> Any:
    try:
        return validate(parameters)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "config"
        raise InvalidValueError(field, problem["input"], problem["msg"]) from None
