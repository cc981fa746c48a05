"""How a model is represented and issued, as the caller says it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from accelsim.errors import InvalidValueError
from accelsim.workloads.dtype import Dtype, Precision
from accelsim.workloads.dtype import precision as find_precision

__all__ = ["ModelOptions"]

#: Formats that weights or cached keys and values may be stored in.
_STORED_FORMATS: Final = (
    Dtype.FP32,
    Dtype.FP16,
    Dtype.BF16,
    Dtype.FP8,
    Dtype.INT8,
    Dtype.FP6,
    Dtype.INT4,
    Dtype.FP4,
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is represented and issued.

    Attributes:
        precision: fp64, fp32, tf32, fp16, bf16, fp8, fp4, int16, int8 or int4; the device's usual
            one where None.
        weight_format: Format of the stored weights alone, such as int4 beside bf16 arithmetic; the
            precision's where None.
        kv_format: Format of cached keys and values; the precision's where None.
        stack: Software that runs it (`accelsim.stack_catalog`): pytorch, tensorrt, vllm ...; the
            device's usual one where None.
        execution: Mode of PyTorch: "eager", "graph" or "compiled"; eager where None. Other stacks
            have none.
        layout: Of convolutions, where the stack lets one choose: "channels_last" or "nchw"; the
            stack's usual one where None.
        fused_attention: False writes attention scores to memory, as eager code without a fused
            kernel does.
        sparse_weights: Weights are pruned to the structured sparsity the chip has a rate for;
            memory is that of dense ones.
    """

    precision: str | Precision | None = None
    weight_format: str | None = None
    kv_format: str | None = None
    stack: str | None = None
    execution: str | None = None
    layout: str | None = None
    fused_attention: bool = True
    sparse_weights: bool = False

    def policy(self, default: Precision) -> Precision:
        """The precision policy with the formats named beside it.

        Args:
            default: Policy where none is named.

        Raises:
            UnknownNameError: If there is no such policy.
            InvalidValueError: If a format cannot be stored.
        """
        named = default if self.precision is None else find_precision(self.precision)
        weight = _format("weight_format", self.weight_format, named.weight)
        kv_cache = _format("kv_format", self.kv_format, named.kv_cache)
        return replace(named, weight=weight, kv_cache=kv_cache)


def _format(field: str, name: str | None, default: Dtype) -> Dtype:
    """A storage format by name."""
    if name is None:
        return default
    formats = {dtype.label: dtype for dtype in _STORED_FORMATS}
    if name not in formats:
        raise InvalidValueError(field, name, "one of " + ", ".join(formats))
    return formats[name]
