"""Workloads from the ``config.json`` of Hugging Face checkpoints, without the transformers package.

Each supported ``model_type`` maps its fields to the parameters of a family; defaults are those of
the type's configuration class in transformers 4.57. A variant whose layers differ from what the
family writes is refused by name of the field, never approximated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.workloads.checkpoints import decoders, encoders
from accelsim.workloads.checkpoints.config import CheckpointConfig, Parameters
from accelsim.workloads.families import load_family
from accelsim.workloads.model import RunShape, Workload

__all__ = ["MODEL_TYPES", "workload_from_config"]

_PROMPT, _OUTPUT, _TEXT = 512, 128, 512


@dataclass(frozen=True, slots=True)
class _ModelType:
    """How one ``model_type`` is read."""

    family: str
    task: str
    read: Callable[[CheckpointConfig], Parameters]
    default: RunShape
    output_len: int = 0


def workload_from_config(config: Mapping[str, Any], name: str | None = None) -> Workload:
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
    reader = CheckpointConfig(config)
    model_type = reader.text("model_type", "")
    kind = MODEL_TYPES.get(model_type)
    if kind is None:
        supported = f"Supported: {', '.join(sorted(MODEL_TYPES))}. Capture the module instead."
        raise UnknownNameError("model_type", model_type, MODEL_TYPES, supported)
    family = load_family(kind.family)
    title = name or reader.text("_name_or_path", "").rstrip("/").rpartition("/")[2] or model_type
    return Workload(
        name=_kebab(title) or model_type.replace("_", "-"),
        title=title,
        task=kind.task,
        family=family,
        parameters=_validated(family.parameters.model_validate, kind.read(reader)),
        default=kind.default,
        output_len=kind.output_len,
    )


def _kebab(title: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")[:80]


def _validated(validate: Callable[[Parameters], Any], parameters: Parameters) -> Any:
    try:
        return validate(parameters)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "config"
        raise InvalidValueError(field, first["input"], first["msg"]) from None


def _generator(read: Callable[[CheckpointConfig], Parameters]) -> _ModelType:
    return _ModelType("decoder", "text-generation", read, RunShape(seq_len=_PROMPT), _OUTPUT)


def _text_encoder(read: Callable[[CheckpointConfig], Parameters]) -> _ModelType:
    return _ModelType("encoder", "text-encoding", read, RunShape(seq_len=_TEXT))


def _rewriter(read: Callable[[CheckpointConfig], Parameters]) -> _ModelType:
    return _ModelType(
        "encoder-decoder",
        "text-to-text",
        read,
        RunShape(seq_len=_TEXT, target_len=_OUTPUT),
        _OUTPUT,
    )


#: Supported ``model_type`` values.
MODEL_TYPES: Mapping[str, _ModelType] = {
    "bart": _rewriter(encoders.read_bart),
    "bert": _text_encoder(encoders.read_bert),
    "deepseek_v2": _generator(decoders.read_deepseek),
    "deepseek_v3": _generator(decoders.read_deepseek),
    "distilbert": _text_encoder(encoders.read_distilbert),
    "falcon": _generator(decoders.read_falcon),
    "gemma": _generator(decoders.read_gemma),
    "gemma2": _generator(decoders.read_gemma2),
    "gemma3_text": _generator(decoders.read_gemma3),
    "gpt2": _generator(decoders.read_gpt2),
    "gpt_oss": _generator(decoders.read_gpt_oss),
    "llama": _generator(decoders.read_llama),
    "mistral": _generator(decoders.read_mistral),
    "mixtral": _generator(decoders.read_mixtral),
    "opt": _generator(decoders.read_opt),
    "phi": _generator(decoders.read_phi),
    "phi3": _generator(decoders.read_phi3),
    "qwen2": _generator(decoders.read_qwen2),
    "qwen2_moe": _generator(decoders.read_qwen2_moe),
    "qwen3": _generator(decoders.read_qwen3),
    "qwen3_moe": _generator(decoders.read_qwen3_moe),
    "roberta": _text_encoder(encoders.read_roberta),
    "t5": _rewriter(encoders.read_t5),
    "vit": _ModelType("vision-transformer", "image-classification", encoders.read_vit, RunShape()),
    "wav2vec2": _ModelType(
        "wav2vec2", "speech-recognition", encoders.read_wav2vec2, RunShape(seq_len=160_000)
    ),
    "whisper": _ModelType(
        "whisper",
        "speech-recognition",
        encoders.read_whisper,
        RunShape(seq_len=1500, target_len=_OUTPUT),
        _OUTPUT,
    ),
}
