"""Precision that a checkpoint's ``quantization_config`` publishes its weights in.

The fields are those of transformers 4.57 (GPTQ, AWQ, FP8, MXFP4, bitsandbytes), of the
compressed-tensors package and of NVIDIA's ModelOpt. A method or a mixture of formats that is not
read is refused by name, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from accelsim.catalog.checkpoints.config import CheckpointConfig
from accelsim.dtype import (
    PRECISIONS,
    USUALLY_KEPT,
    Dtype,
    Precision,
    StoredFormat,
    block_format,
    precision,
)
from accelsim.errors import InvalidValueError
from accelsim.plain import Values

_FIELD = "quantization_config"
_REMEDY = f"Take {_FIELD} out to run the model in 16 bits."
#: Longest list of modules, and longest name of one.
_MOST_NAMES, _LONGEST_NAME = 100_000, 200
#: What a pattern of module names may hold: no nested repetition, which may take for ever.
_PLAIN_PATTERN = re.compile(r"(?:[\w.$^|\\-]|\.\*|\((?:\?:)?[\w|\\.]*\)|\[[\w-]*\])*")
#: Prefixes of the language model's modules in models that see, too.
_PREFIXES = ("language_model.", "model.language_model.")
_FP8 = PRECISIONS["fp8"]


def published_precision(config: Values) -> Precision | None:
    """The precision a configuration says its weights are in; None where it names no quantisation.

    Args:
        config: The parsed ``config.json``, or what a workload file has in its place.

    Raises:
        InvalidValueError: If a field is wrong, or the method is none that is read.
    """
    fields = config.get(_FIELD) or config.get("compression_config")  # its name until 2024
    if not fields:
        return None
    if not isinstance(fields, Mapping):
        raise InvalidValueError(_FIELD, fields, "a mapping", _REMEDY)
    c = CheckpointConfig(fields)
    policy = _policy(c)
    half = {"float16": Dtype.FP16, "bfloat16": Dtype.BF16}
    wide = half.get(str(config.get("dtype") or config.get("torch_dtype")), Dtype.BF16)
    modules = _kept(c) if c.flag("lm_head") else (*USUALLY_KEPT, *_kept(c))
    return replace(
        policy,
        compute=wide if policy.compute == policy.activation else policy.compute,
        activation=wide,
        unquantised=wide,
        kv_cache=_cache(c) or wide,
        kept=tuple(dict.fromkeys(modules)),
    )


def _policy(c: CheckpointConfig) -> Precision:
    """Formats by the method that a configuration names."""
    method = c.text("quant_method", "modelopt" if c.has("quant_algo") else "")
    if method not in _METHODS:
        raise _refusal("quant_method", method, f"one of {', '.join(_METHODS)}")
    for field, is_plain in _UNREAD.items():
        if c.fields.get(field) and not is_plain(c.fields[field]):
            allowed = "no value: modules of several formats are not read"
            raise _refusal(field, c.fields[field], allowed)
    return _METHODS[method](c)


def _refusal(field: str, value: object, allowed: str) -> InvalidValueError:
    """That a field of the configuration is none that is read."""
    return InvalidValueError(f"{_FIELD}.{field}", value, allowed, _REMEDY)


def _stored(base: str, weight: StoredFormat) -> Precision:
    return replace(precision(base), weight=weight)


def _fp8(c: CheckpointConfig) -> Precision:
    """A float32 per block of weights where there are blocks (DeepSeek-V3, arXiv:2412.19437)."""
    block = c.integers("weight_block_size", ())
    if len(block) not in {0, 2}:
        raise _refusal("weight_block_size", block, "two sizes")
    return _in_blocks(block)


def _in_blocks(block: Sequence[int]) -> Precision:
    return _stored("fp8", block_format("fp8", 8, 32, prod(block))) if block else _FP8


def _integers(bits: int, group: int, *, zero_point: bool) -> Precision:
    """Weights of whole numbers: a 16-bit scale per group, and a zero point of the weights' width
    (GPTQ, arXiv:2210.17323; AWQ, arXiv:2306.00978).
    """
    if bits not in {2, 3, 4, 8}:
        raise _refusal("bits", bits, "2, 3, 4 or 8")
    shared = 16 + bits * zero_point if group > 0 else 0
    weight = block_format(f"int{bits}", bits, shared, max(group, 1))
    return replace(_stored("w8a16" if bits == 8 else "w4a16", weight), name=f"w{bits}a16")


def _grouped(c: CheckpointConfig) -> Precision:
    bits = c.integer(c.present("bits|w_bit"))
    field = c.present("group_size|q_group_size")
    group = c.fields.get(field, 128)
    return _integers(bits, 0 if group == -1 else c.integer(field, 128), zero_point=True)


def _bitsandbytes(c: CheckpointConfig) -> Precision:
    """LLM.int8 (arXiv:2208.07339), or 4 bits in blocks of 64 whose FP32 scales may be of 8 bits in
    blocks of 256 themselves (QLoRA, arXiv:2305.14314).
    """
    if c.flag("load_in_8bit"):
        if c.flag("load_in_4bit"):
            raise _refusal("load_in_4bit", True, "false beside load_in_8bit")
        return precision("w8a8")
    if not c.flag("load_in_4bit", default=True):
        raise _refusal("load_in_4bit", False, "true, or load_in_8bit")
    shared = 8 + 32 / 256 if c.flag("bnb_4bit_use_double_quant") else 32
    return _stored("nf4", block_format("nf4", 4, shared, 64))


def _groups(c: CheckpointConfig) -> Precision:
    """The one format of a compressed-tensors file."""
    groups = c.fields.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _refusal("config_groups", groups, "groups")
    precisions = {_group(group) for group in groups.values()}
    if len(precisions) > 1:
        raise _refusal("config_groups", sorted(groups), "groups of one format")
    return precisions.pop()


def _group(group: object) -> Precision:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(weights, Mapping):
        raise _refusal("config_groups", group, "weights")
    if group.get("targets", ["Linear"]) not in (["Linear"], [], None):
        raise _refusal("config_groups.targets", group["targets"], "Linear")
    w = CheckpointConfig(weights)
    bits, is_wide = w.integer("num_bits"), group.get("input_activations") is None
    if w.text("type", "int") == "int" and (is_wide or bits != 8):
        size = w.integer("group_size", 0, least=-1)
        policy = _integers(bits, size, zero_point=not w.flag("symmetric", default=True))
        return policy if is_wide else replace(policy, compute=Dtype.INT8, name=f"w{bits}a8")
    policy = _of_hardware(w, bits)
    return replace(policy, compute=policy.activation) if is_wide else policy


def _of_hardware(w: CheckpointConfig, bits: int) -> Precision:
    """A format that devices compute in."""
    kind, size = w.text("type", "int"), w.integer("group_size", 0, least=-1)
    name = {("int", 8): "w8a8", ("float", 8): "fp8", ("float", 4): "nvfp4"}.get((kind, bits))
    if name is None:
        raise _refusal("config_groups", f"{kind} {bits}", "int 8 or 4, float 8 or 4")
    block = w.integers("block_structure", ())
    if name == "fp8" and len(block) == 2:
        return _in_blocks(block)
    return precision("mxfp4" if bits == 4 and size == 32 else name)


def _modelopt(c: CheckpointConfig) -> Precision:
    algorithm = c.text("quant_algo", "")
    name = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "w4a16", "INT8_SQ": "w8a8"}.get(algorithm)
    if name is None:
        raise _refusal("quant_algo", algorithm, "FP8, NVFP4, W4A16_AWQ or INT8_SQ")
    return precision(name)


_METHODS: Mapping[str, Callable[[CheckpointConfig], Precision]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "gptq": _grouped,
    "awq": _grouped,
    "compressed-tensors": _groups,
    "mxfp4": lambda _: precision("mxfp4"),
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
}


def _covers_layers(names: object) -> bool:
    """Whether a list of modules has those of attention and of what follows it."""
    return re.search(r"att(entio)?n.*(mlp|expert|fc|ffn|dense)", str(names)) is not None


def _is_dense(sparsity: object) -> bool:
    return isinstance(sparsity, Mapping) and sparsity.get("format") == "dense"


#: Fields that give modules formats of their own -> whether a value does not.
_UNREAD: Mapping[str, Callable[[object], bool]] = {
    "dynamic": lambda _: False,
    "modules_in_block_to_quantize": _covers_layers,
    "sparsity_config": _is_dense,
}
#: Fields that name modules which stay as they are.
_KEPT_FIELDS = (
    "modules_to_not_convert",
    "llm_int8_skip_modules",
    "ignore",
    "ignored_layers",
    "exclude_modules",
)


def _kept(c: CheckpointConfig) -> tuple[str, ...]:
    """Modules that stay as they are, in names of the language model's own."""
    modules: list[str] = []
    for field in _KEPT_FIELDS:
        names = c.fields.get(field) or ()
        if not isinstance(names, Sequence) or isinstance(names, str) or len(names) > _MOST_NAMES:
            raise _refusal(field, names, "a list of names")
        modules += [_module(name, field) for name in names]
    return tuple(modules)


def _module(name: object, field: str) -> str:
    """A name or pattern of modules."""
    is_name = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME
    if not isinstance(name, str) or not is_name or not _is_plain_pattern(name):
        raise _refusal(field, name, "the name of a module")
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            inner = name.removeprefix(prefix)
            return inner if inner.startswith(("lm_head", "model.")) else f"model.{inner}"
    return name


def _is_plain_pattern(name: str) -> bool:
    """Whether a name is no pattern, or a valid one that is quick to match."""
    pattern = name.removeprefix("re:")
    if pattern == name:
        return True
    try:
        re.compile(pattern)
    except re.error:
        return False
    return _PLAIN_PATTERN.fullmatch(pattern) is not None


def _cache(c: CheckpointConfig) -> Dtype | None:
    """Format of cached keys and values where the configuration names one.

    Raises:
        InvalidValueError: If it is none that is read.
    """
    field = c.present("kv_cache_scheme|kv_cache_quant_algo")
    scheme = c.fields.get(field)
    if isinstance(scheme, Mapping):
        scheme = f"{scheme.get('type')}{scheme.get('num_bits')}"
    if not scheme or scheme == "None":
        return None
    if str(scheme) not in _CACHES:
        raise _refusal(field, scheme, "8 bits, or no value")
    return _CACHES[str(scheme)]


#: Names of cache formats; "static" is AutoFP8's.
_CACHES = {
    **dict.fromkeys(("FP8", "float8", "static"), Dtype.FP8),
    **dict.fromkeys(("INT8", "int8"), Dtype.INT8),
}
