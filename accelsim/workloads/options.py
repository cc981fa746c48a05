"""How a model is represented and issued, as the caller says it."""

from __future__ import annotations

from dataclasses import replace

from accelsim.arguments import checked
from accelsim.dtype import Precision, StoredFormat, weight_format
from accelsim.dtype import precision as find_precision
from accelsim.frozen import frozen
from accelsim.option import option


@checked
@frozen
class ModelOptions:
    """How a model is represented and issued.

    Attributes:
        fused_attention: False writes attention scores to memory, as eager code without a fused
            kernel does.
    """

    precision: str | Precision | None = option(
        "fp32, tf32, fp16, bf16, int8; quantised weights fp8, mxfp4, nvfp4, w8a8, w8a16, w4a16, "
        "nf4, q4_k_m ... of llama.cpp; the published or usual one if none.",
        metavar="NAME",
    )
    weight_format: str | None = option(
        "Format of stored weights alone: int8, mxfp4 ...", metavar="NAME"
    )
    kv_format: str | None = option(
        "Format of cached keys and values: fp8, int8 ...", metavar="NAME", flags="--kv"
    )
    stack: str | None = option(
        "Software that runs it: pytorch, tensorrt, vllm, llama-cpp, openvino ... (accelsim "
        "stacks list), name@version for another version; the usual if none.",
        metavar="NAME",
    )
    execution: str | None = option("Mode of pytorch: eager, graph or compiled.", metavar="HOW")
    layout: str | None = option(
        "Of convolutions under pytorch: channels_last or nchw.", metavar="NAME"
    )
    fused_attention: bool = option(
        "Attention writes its scores to memory, without a fused kernel.",
        True,
        flags="--unfused-attention",
    )
    sparse_weights: bool = option(
        "Weights have the structured sparsity the chip has a rate for.", False
    )

    def policy(self, default: Precision) -> Precision:
        """The precision policy with the formats named beside it.

        Args:
            default: Policy where none is named.

        Raises:
            UnknownNameError: If there is no such policy.
            InvalidValueError: If a format cannot be stored.
        """
        named = default if self.precision is None else find_precision(self.precision)
        weight = self._stored("weight_format", named.weight)
        kv_cache = self._stored("kv_format", named.kv_cache)
        return replace(named, weight=weight, kv_cache=kv_cache)

    def _stored(self, field: str, default: StoredFormat) -> StoredFormat:
        """The format of a field."""
        name = getattr(self, field)
        return default if name is None else weight_format(field, name)
