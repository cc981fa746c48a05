"""Number formats and precision policies.

A `Dtype` is a storage format with its arithmetic rate class; a `Precision` says which dtype a
model's weights, activations, key-value cache and arithmetic use when a user asks for "bf16" or
"int8". TF32 stores 32 bits and multiplies with 10 mantissa bits (NVIDIA A100 whitepaper, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import UnknownNameError

__all__ = ["DTYPE_BYTES", "PRECISIONS", "Dtype", "Precision", "precision"]


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
        return float(DTYPE_BYTES[self])


#: Bytes of one stored element, indexed by `Dtype`.
DTYPE_BYTES: NDArray[np.float64] = np.array(
    [8, 4, 4, 2, 2, 1, 1, 0.5, 0.5, 4, 8, 1, 2, 0.75, 0.125], dtype=np.float64
)


@dataclass(frozen=True, slots=True)
class Precision:
    """Which dtype each part of a model uses.

    Attributes:
        name: What the user asks for.
        compute: Inputs of matrix arithmetic; selects the device's rate.
        weight: Stored weights.
        activation: Stored activations, and arithmetic of non-matrix operators.
        kv_cache: Stored keys and values.
        master_weight: Extra full-precision weight copy kept by the optimizer in training, or None.
        trainable: Whether training in this precision is offered.
    """

    name: str
    compute: Dtype
    weight: Dtype
    activation: Dtype
    kv_cache: Dtype
    master_weight: Dtype | None
    trainable: bool


def _uniform(name: str, compute: Dtype, storage: Dtype, master: Dtype | None = None) -> Precision:
    return Precision(name, compute, storage, storage, storage, master, trainable=True)


_D = Dtype
#: Precision policies by name. int8 is static post-training quantisation (weights and activations);
#: fp8 and fp4 quantise the matrix operands and keep bf16 between them; int4 is weight-only.
PRECISIONS: dict[str, Precision] = {
    "fp64": _uniform("fp64", _D.FP64, _D.FP64),
    "fp32": _uniform("fp32", _D.FP32, _D.FP32),
    "tf32": _uniform("tf32", _D.TF32, _D.FP32),
    "fp16": _uniform("fp16", _D.FP16, _D.FP16, _D.FP32),
    "bf16": _uniform("bf16", _D.BF16, _D.BF16, _D.FP32),
    "fp8": Precision("fp8", _D.FP8, _D.FP8, _D.BF16, _D.BF16, _D.FP32, trainable=True),
    "fp4": Precision("fp4", _D.FP4, _D.FP4, _D.BF16, _D.BF16, None, trainable=False),
    "int16": Precision("int16", _D.INT16, _D.INT16, _D.INT16, _D.INT16, None, trainable=False),
    "int8": Precision("int8", _D.INT8, _D.INT8, _D.INT8, _D.INT8, None, trainable=False),
    "int4": Precision("int4", _D.FP16, _D.INT4, _D.FP16, _D.FP16, None, trainable=False),
}


_TORCH_NAMES = {
    "double": "fp64",
    "float64": "fp64",
    "float": "fp32",
    "float32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
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
    found = PRECISIONS.get(_TORCH_NAMES.get(key, key))
    if found is None:
        known = ", ".join(PRECISIONS)
        raise UnknownNameError("precision", name, PRECISIONS, f"Known precisions: {known}.")
    return found
