"""Number formats and precision policies.

A `Dtype` is a storage format with its arithmetic rate class, a `BlockFormat` one of weights alone
that share scales in blocks; a `Precision` says which of them a model's weights, activations,
key-value cache and arithmetic use when a user asks for "bf16", "w4a16" or "q4_k_m". TF32 stores 32
bits and multiplies with 10 mantissa bits (NVIDIA A100 whitepaper, 2020).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.frozen import frozen


class Dtype(IntEnum):
    """Number formats, by code (the code indexes `DTYPE_BYTES`)."""

    FP64 = 0
    FP32 = 1
    TF32 = 2
    FP16 = 3
    BF16 = 4
    FP8 = 5
    INT8 = 6
    INT4 = 7
    FP4 = 8
    INT32 = 9
    INT64 = 10
    BOOL = 11
    INT16 = 12
    FP6 = 13
    INT1 = 14

    @property
    def label(self) -> str:
        """Lower-case name, as in data files."""
        return self.name.lower()

    @property
    def bytes(self) -> float:
        """Storage bytes of one element (0.5 for 4-bit formats)."""
        return _BYTES[self]


_BYTES = (8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5, 4.0, 8.0, 1.0, 2.0, 0.75, 0.125)
#: Bytes of one stored element, indexed by `Dtype`.
DTYPE_BYTES: NDArray[np.float64] = np.array(_BYTES)


@frozen
class BlockFormat:
    """A format of weights with what each block of them shares, or a mixture of such formats.

    Attributes:
        label: Name, as in data files.
        bits: Bits per weight, scales and zero points included.
    """

    label: str
    bits: float

    @property
    def bytes(self) -> float:
        """Storage bytes of one weight."""
        return self.bits / 8.0


StoredFormat = Dtype | BlockFormat


def block_format(label: str, bits: float, shared_bits: float, block: float) -> BlockFormat:
    """The format of values that share a scale, and perhaps a zero point, in blocks.

    Definition: every value takes its bits and its share of the block's.

    Args:
        label: Name.
        bits: Bits of a value, > 0.
        shared_bits: Bits that a block shares, >= 0.
        block: Values of a block, >= 1.
    """
    return BlockFormat(label, bits + shared_bits / block)


@checked
@frozen
class Precision:
    """Which format each part of a model uses.

    Attributes:
        name: What the user asks for.
        compute: Inputs of matrix arithmetic; selects the device's rate.
        weight: Stored weights of matrix operators.
        activation: Stored activations, and arithmetic of non-matrix operators.
        kv_cache: Stored keys and values.
        unquantised: Stored weights of all else: norms, tables, modules that are kept.
        master_weight: Extra full-precision weight copy kept by the optimizer in training, or None.
        state: Optimizer states, where they are not as wide as the weight that is updated.
        trainable: Whether training in this precision is offered.
        kept: Modules whose weights are not quantised, which compute in the activations' format:
            module paths, their ends or dotted parts, or regular expressions after "re:".
        experts: The policy of routed experts, where theirs is another.
    """

    name: str
    compute: Dtype
    weight: Dtype | BlockFormat
    activation: Dtype
    kv_cache: Dtype | BlockFormat
    unquantised: Dtype | BlockFormat
    master_weight: Dtype | None = None
    state: Dtype | None = None
    trainable: bool = False
    kept: tuple[str, ...] = ()
    experts: Precision | None = None

    @property
    def of_experts(self) -> Precision:
        """The policy of routed experts."""
        return self.experts or self

    @property
    def attention(self) -> Dtype:
        """What products of activations compute in: their own format where widths are mixed."""
        is_mixed = self.activation.bytes != self.compute.bytes
        return self.activation if is_mixed else self.compute

    @property
    def is_file(self) -> bool:
        """Whether its weights are a file of llama.cpp's, tables and all."""
        return isinstance(self.weight, BlockFormat) and self.weight == self.unquantised

    @property
    def adapts(self) -> bool:
        """Whether its weights alone are narrow: what adapters may be trained beside."""
        return self.compute is self.activation and self.weight.bytes < self.activation.bytes

    @property
    def beside_adapters(self) -> Precision:
        """The policy as trainers of adapters store frozen weights."""
        return replace(self, weight=_NF4_TWICE) if self.weight == _NF4 else self

    @property
    def trained(self) -> Precision:
        """The policy of what is trained: its own, or that of 16-bit adapters with FP32 states and
        no master copy beside weights that are too narrow to be updated (Dettmers et al. 2023,
        QLoRA, arXiv:2305.14314, section 3; artidoro/qlora, qlora.py).
        """
        wide = PRECISIONS[self.activation.label]
        return self if self.trainable else replace(wide, master_weight=None, state=Dtype.FP32)

    @property
    def state_bytes(self) -> float:
        """Bytes of one optimizer state of a parameter."""
        return (self.state or self.master_weight or self.weight).bytes

    @property
    def held_bytes(self) -> float:
        """Bytes of a weight that is trained, beside its master copy: products in narrower formats
        cast it anew each time (torchao, float8; NVIDIA, Transformer Engine).
        """
        return max(self.weight.bytes, self.activation.bytes)

    def stored_bytes(self, path: str, *, is_product: bool) -> float:
        """Bytes of a frozen weight of the module at a path.

        Args:
            path: Module path.
            is_product: Whether it is a product's, which alone are quantised.
        """
        return (self.weight if is_product and not self.keeps(path) else self.unquantised).bytes

    def keeps(self, path: str) -> bool:
        """Whether the module at a path is one whose weights are not quantised."""
        return bool(self.kept) and _is_named(path, self.kept)

    def kept_within(self, path: str) -> frozenset[str]:
        """What names modules at or below a path by the path itself: ends of the names, or the path
        itself where a regular expression may tell it from others by its number.
        """
        if any(name.startswith("re:") and re.search(r"\d", name) for name in self.kept):
            return frozenset({path})
        return frozenset(
            name.removeprefix(path)
            for name in self.kept
            if f"{name}.".replace("*", ".").startswith(f"{path}.")
        )

    def on(self, formats: Collection[Dtype]) -> Precision:
        """The policy on a chip: weights that it cannot multiply as they are stored are widened to
        the activations' format, which is the first of 16 and 32 bits that it has.

        Args:
            formats: Formats the chip has arithmetic of.
        """
        if self.experts is not None:
            apart, together = self.experts.on(formats), replace(self, experts=None)
            return replace(together.on(formats), experts=apart)
        if self.weight.bytes >= self.activation.bytes:
            return self
        wide = next((d for d in (self.activation, *_WIDE) if d in formats), self.activation)
        computes = self.compute in formats and self.compute != self.activation
        return replace(self, compute=self.compute if computes else wide, activation=wide)


@lru_cache(maxsize=4096)
def _is_named(path: str, patterns: tuple[str, ...]) -> bool:
    return any(_names(pattern, path) for pattern in patterns)


def _names(pattern: str, path: str) -> bool:
    """Whether a pattern names a module or one that it is part of."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], path) is not None
    if "*" in pattern:
        return re.match(re.escape(pattern).replace(r"\*", ".*") + r"(\.|$)", path) is not None
    return f".{pattern}." in f".{path}."


def _uniform(name: str, compute: Dtype, storage: Dtype, master: Dtype | None = None) -> Precision:
    parts = (storage, storage, storage, storage, master)
    return Precision(name, compute, *parts, trainable=name in _TRAINABLE)


_D = Dtype
_WIDE = (_D.BF16, _D.FP16, _D.FP32)
#: Number formats that weights or cached keys and values may be stored in.
_STORED = (_D.FP32, _D.FP16, _D.BF16, _D.FP8, _D.INT8, _D.FP6, _D.INT4, _D.FP4)
_TRAINABLE = {"fp64", "fp32", "tf32", "fp16", "bf16"}
#: Modules that quantised checkpoints of language models keep: the logits and the experts' routers.
USUALLY_KEPT = ("lm_head", "embed_out", "mlp.gate", "block_sparse_moe.gate", "router")


def _quantised(
    name: str, compute: Dtype, weight: StoredFormat, master: Dtype | None = None
) -> Precision:
    """Weights of matrix operators quantised, 16 bits between them."""
    parts = (weight, _D.BF16, _D.BF16, _D.BF16, master)
    return Precision(name, compute, *parts, trainable=master is not None, kept=USUALLY_KEPT)


#: Mean bits per weight of the files that llama.cpp's formats make of Llama-3.1-8B: tools/quantize/
#: README.md of ggml-org/llama.cpp (commit 311c2c9, 2025). q4_0 and q4_1, q5_0 and q5_1 have blocks
#: of 32 with one or two FP16 values (ggml-common.h); q3_k_m by the size its README gave Llama 2.
_LLAMA_CPP_BITS = {
    "iq1_s": 2.0042,
    "iq1_m": 2.1460,
    "iq2_xxs": 2.3824,
    "iq2_xs": 2.5882,
    "iq2_s": 2.7403,
    "iq2_m": 2.9294,
    "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977,
    "iq3_s": 3.6606,
    "iq3_m": 3.7628,
    "iq4_xs": 4.4597,
    "iq4_nl": 4.6818,
    "q2_k_s": 2.9697,
    "q2_k": 3.1593,
    "q3_k_s": 3.6429,
    "q3_k_m": 3.91,
    "q3_k_l": 4.2979,
    "q4_0": 4.5,
    "q4_1": 5.0,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_0": 5.5,
    "q5_1": 6.0,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "q6_k": 6.5633,
    "q8_0": 8.5008,
}


def file_precision(name: str, bits: float) -> Precision:
    """The policy of a llama.cpp file, whose kernels widen weights to FP16.

    Args:
        name: Name of its format.
        bits: Mean bits of a weight, over all its tensors.
    """
    stored = BlockFormat(name, bits)
    return Precision(name, _D.FP16, stored, _D.FP16, _D.FP16, stored)


#: Stored values of blocks: microscaling formats of the OCP (an 8-bit scale per 32 values; MX v1.0,
#: 2023), NVFP4 (an FP8 scale per 16), integers of GPTQ and AWQ in groups of 128 (an FP16 scale and
#: a zero point of their width each), NF4 of bitsandbytes (an FP32 scale per 64; QLoRA,
#: arXiv:2305.14314).
_MXFP4 = block_format("mxfp4", 4, 8, 32)
_NVFP4 = block_format("nvfp4", 4, 8, 16)
_W4 = block_format("w4", 4, 16 + 4, 128)
_NF4 = block_format("nf4", 4, 32, 64)
#: NF4 as trainers of adapters store it: a scale of 64 values has 8 bits, and 256 of those share an
#: FP32 one (QLoRA, arXiv:2305.14314, section 3, double quantization; its script's default).
_NF4_TWICE = BlockFormat("nf4", 4.0 + 8.0 / 64 + 32.0 / (64 * 256))
#: Precision policies by name. int8 is static post-training quantisation (weights and activations);
#: w8a8, fp8, mxfp4 and nvfp4 quantise the matrix operands and keep bf16 between them; w8a16 and
#: w4a16 quantise weights alone. Training in fp8 (Micikevicius et al. 2022, arXiv:2209.05433) and
#: nvfp4 (NVIDIA 2025, arXiv:2509.25149) runs all three products of a layer so, with an FP32 master.
PRECISIONS: dict[str, Precision] = {
    "fp64": _uniform("fp64", _D.FP64, _D.FP64),
    "fp32": _uniform("fp32", _D.FP32, _D.FP32),
    "tf32": _uniform("tf32", _D.TF32, _D.FP32),
    "fp16": _uniform("fp16", _D.FP16, _D.FP16, _D.FP32),
    "bf16": _uniform("bf16", _D.BF16, _D.BF16, _D.FP32),
    "int16": _uniform("int16", _D.INT16, _D.INT16),
    "int8": _uniform("int8", _D.INT8, _D.INT8),
    "fp8": _quantised("fp8", _D.FP8, _D.FP8, _D.FP32),
    "w8a8": _quantised("w8a8", _D.INT8, _D.INT8),
    "w8a16": _quantised("w8a16", _D.BF16, _D.INT8),
    "w4a16": _quantised("w4a16", _D.BF16, _W4),
    "nf4": _quantised("nf4", _D.BF16, _NF4),
    "mxfp4": _quantised("mxfp4", _D.FP4, _MXFP4),
    "nvfp4": _quantised("nvfp4", _D.FP4, _NVFP4, _D.FP32),
    **{name: file_precision(name, bits) for name, bits in _LLAMA_CPP_BITS.items()},
}


#: Names of others: torch's, and short ones of formats that say nothing of their arithmetic.
_OTHER_NAMES = {
    "double": "fp64",
    "float64": "fp64",
    "float": "fp32",
    "float32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int4": "w4a16",
    "fp4": "nvfp4",
}


def precision(name: str | Precision) -> Precision:
    """Look a precision policy up by its name, or by torch's name of its format ("bfloat16",
    "torch.float16").

    Raises:
        UnknownNameError: If there is no such policy.
    """
    if isinstance(name, Precision):
        return name
    key = name.lower().removeprefix("torch.")
    policy = PRECISIONS.get(_OTHER_NAMES.get(key, key))
    if policy is None:
        names = ", ".join(PRECISIONS)
        raise UnknownNameError("precision", name, PRECISIONS, f"Known precisions: {names}.")
    return policy


def weight_format(field: str, name: str) -> StoredFormat:
    """A format that weights or cached keys and values may be stored in.

    Args:
        field: What is stored, for messages.
        name: A number format, or a format of weights as of a precision's name.

    Raises:
        InvalidValueError: If there is no such format.
    """
    formats: dict[str, StoredFormat] = {dtype.label: dtype for dtype in _STORED}
    formats |= {
        p.weight.label: p.weight for p in PRECISIONS.values() if isinstance(p.weight, BlockFormat)
    }
    if name not in formats:
        raise InvalidValueError(field, name, "one of " + ", ".join(formats))
    return formats[name]
