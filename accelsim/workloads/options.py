"""How a model is represented and issued, as the caller says it."""

from __future__ import annotations

from dataclasses import replace

from accelsim.arguments import checked
from accelsim.dtype import Precision, weight_format
from accelsim.dtype import precision as find_precision
from accelsim.errors import InvalidValueError
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
        "Number format: fp32, tf32, fp16, bf16, int8; quantised weights fp8, "
        "mxfp4, nvfp4, w8a8, w8a16, w4a16, nf4; llama.cpp's q4_k_m ... Default: "
        "the published or usual one.",
        metavar="NAME",
    )
    expert_precision: str | None = option(
        "Precision of routed experts, if it differs from the rest: fp8, nvfp4, w4a16 ...",
        metavar="NAME",
    )
    weight_format: str | None = option(
        "Format that weights are stored in; arithmetic stays in --precision: int8, mxfp4 ...",
        metavar="NAME",
    )
    kv_format: str | None = option(
        "Format of cached keys and values: fp8, int8 ...", metavar="NAME", flags="--kv"
    )
    stack: str | None = option(
        "Software that runs the model: pytorch, tensorrt, vllm, llama-cpp, "
        "openvino ... (accelsim stacks list). NAME@VERSION takes another version."
        " Default: the usual one.",
        metavar="NAME",
    )
    execution: str | None = option(
        "How PyTorch runs: eager, graph (CUDA graphs) or compiled (torch.compile).", metavar="HOW"
    )
    layout: str | None = option(
        "Layout of convolutions under pytorch: channels_last or nchw.", metavar="NAME"
    )
    fused_attention: bool = option(
        "Attention without a fused kernel; it writes its scores to memory.",
        True,
        flags="--unfused-attention",
    )
    sparse_weights: bool = option(
        "Weights have the structured sparsity for which the chip has a rate.", False
    )

    def policy(self, default: Precision) -> Precision:
        """The precision policy with the formats named beside it.

        Args:
            default: Policy where none is named.

        Raises:
            UnknownNameError: If there is no such policy.
            InvalidValueError: If a format cannot be stored, or experts have one of files.
        """
        base = default if self.precision is None else find_precision(self.precision)
        weight, kv_cache = base.weight, base.kv_cache
        if self.weight_format is not None:
            weight = weight_format("weight_format", self.weight_format)
        if self.kv_format is not None:
            kv_cache = weight_format("kv_format", self.kv_format)
        return replace(base, weight=weight, kv_cache=kv_cache, experts=self._experts(base))

    def _experts(self, base: Precision) -> Precision | None:
        """The precision of routed experts where it is their own."""
        if self.expert_precision is None:
            return base.experts
        experts = find_precision(self.expert_precision)
        if experts.is_file:
            allowed = "a precision that is no file of llama.cpp's: those hold whole models"
            raise InvalidValueError("expert_precision", experts.name, allowed)
        is_same = (experts.compute, experts.weight) == (base.compute, base.weight)
        return None if is_same else replace(experts, kept=())
