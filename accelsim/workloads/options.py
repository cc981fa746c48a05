"""How a model is represented and issued, as the caller says it."""

from __future__ import annotations

from dataclasses import replace

from accelsim.arguments import checked
from accelsim.dtype import Precision, StoredFormat, weight_format
from accelsim.dtype import precision as find_precision
from accelsim.frozen import frozen


@checked
@frozen
class ModelOptions:
    """How a model is represented and issued.

    Attributes:
        precision: fp64, fp32, tf32, fp16, bf16, int16, int8; quantised weights fp8, mxfp4, nvfp4,
            w8a8, w8a16, w4a16, nf4, or a format of llama.cpp (q4_k_m ...); the one the model was
            published in, or else the device's usual one, where None.
        weight_format: Format of the stored weights alone, such as int4 or mxfp4 beside bf16
            arithmetic; the precision's where None.
        kv_format: Format of cached keys and values; the precision's where None.
        stack: Software that runs it (`accelsim.catalog.stacks`): pytorch, tensorrt, vllm ...; the
            device's usual one where None.
        execution: Mode of PyTorch: "eager", "graph", "compiled" (with graphs) or "compiled-calls"
            (without); eager where None. Other stacks have none.
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
        weight = self._stored("weight_format", named.weight)
        kv_cache = self._stored("kv_format", named.kv_cache)
        return replace(named, weight=weight, kv_cache=kv_cache)

    def _stored(self, field: str, default: StoredFormat) -> StoredFormat:
        """The format of a field."""
        name = getattr(self, field)
        return default if name is None else weight_format(field, name)
