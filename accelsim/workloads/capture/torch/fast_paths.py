"""What runs in place of attention modules in inference: the framework's fast paths, operator by
operator.

Without gradients ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` call one operator
each, whose parts are not those of the module: one projection without its bias, a kernel that adds
the bias and parts the heads, products, a softmax in place, sums in place (ATen
transformers/attention.cpp, transformer.cpp, cuda/attention.cu). The modules decide by the device
and by what intercepts calls whether they may; `admitted` lets them decide as they would on the
device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

from accelsim.workloads.capture.torch.aten import Kernel
from accelsim.workloads.capture.torch.aten_memory import rows_of
from accelsim.workloads.capture.torch.recorder import REPLACED, OperatorRecorder
from accelsim.workloads.operator import OperatorKind

_ATEN = torch.ops.aten
#: Elements of a head of which fused kernels of a GPU take multiples (cuda/attention.cu).
_FUSED_WIDTH = 8
#: Mask, whether weights are needed, whether they are averaged over heads.
_DEFAULTS = (None, True, True)


@contextmanager
def admitted() -> Iterator[None]:
    """Let modules on the meta device take their fast paths while calls are intercepted, in this
    thread alone.
    """
    thread, original, name = (
        get_ident(),
        torch.overrides.has_torch_function,
        backend_registration._privateuse1_backend_name,  # noqa: SLF001
    )

    def has_torch_function(arguments: Any) -> bool:
        return get_ident() != thread and bool(original(arguments))

    torch.overrides.has_torch_function = has_torch_function
    backend_registration._privateuse1_backend_name = (  # noqa: SLF001
        "meta"  # the one name of a device that modules look up
    )
    try:
        yield
    finally:
        torch.overrides.has_torch_function = original
        backend_registration._privateuse1_backend_name = name  # noqa: SLF001


def _multi_head_attention(
    recorder: OperatorRecorder, query: Tensor, key: Tensor, value: Tensor, *others: Any
) -> tuple[Tensor, Tensor]:
    """Attention of (batch, tokens, width) over itself; the weights (batch, tokens, tokens) are
    empty unless needed.

    A GPU takes its fused kernel where there is no mask and no weights are wanted. The other
    arguments are those of ``torch._native_multi_head_attention``, by position.
    """
    embed_dim, num_head, qkv_weight, qkv_bias, *projection = others[:6]
    mask, need_weights, average_weights = (*others[6:9], *_DEFAULTS[len(others) - 6 :])[:3]
    batch, tokens, _ = query.shape
    width = embed_dim // num_head
    fused = (
        recorder.whole_attention and mask is None and not need_weights and width % _FUSED_WIDTH == 0
    )
    if fused and query is key is value:
        parts = (
            _linear(query, qkv_weight, qkv_bias).view(batch, tokens, 3, num_head, width).unbind(2)
        )
        context = _ATEN.scaled_dot_product_attention(*(x.transpose(1, 2) for x in parts))
        merged = context.transpose(1, 2).reshape(batch, tokens, embed_dim)
        return _linear(merged, *projection), query.new_empty(0)
    heads = _projected(query, key, value, qkv_weight)
    heads = _parted(heads, qkv_bias, num_head)
    q, k, v = heads.view(3, batch * num_head, tokens, width).unbind(0)
    scores = _ATEN.bmm(q, k.transpose(1, 2)).view(batch, num_head, tokens, tokens)
    if mask is None:
        _ATEN._softmax.out(scores, -1, False, out=scores)  # noqa: SLF001
    else:
        scores = _masked_softmax(
            recorder, scores, mask if mask.dtype is torch.bool else mask.to(torch.bool)
        )
    _ATEN.bmm.out(scores.view(batch * num_head, tokens, tokens), v, out=q)
    if not need_weights:
        scores = query.new_empty(0)
    merged = q.view(batch, num_head, tokens, width).transpose(1, 2).contiguous()
    result = _linear(merged.view(batch, tokens, embed_dim), *projection)
    if need_weights and average_weights:
        scores = scores.sum(1)
        scores.div_(num_head)
    return result, scores


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    rows: Tensor = _ATEN.addmm(bias, x.reshape(-1, x.shape[-1]), weight.t())
    return rows.view(*x.shape[:-1], weight.shape[0])


def _projected(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """Queries, keys and values beside each other, (batch, tokens, 3 x width), without their
    bias.
    """
    sizes = [3] if query is key is value else [1, 2] if key is value else [1, 1, 1]
    width = weight.shape[1]
    weights = weight.split([size * width for size in sizes])
    products = [
        _ATEN.mm(x.reshape(-1, width), w.t()).view(*x.shape[:-1], w.shape[0])
        for x, w in zip((query, key, value), weights, strict=False)
    ]
    return products[0] if len(products) == 1 else torch.cat(products, 2)


def _parted(qkv: Tensor, bias: Tensor, heads: int) -> Tensor:
    """Bias added and heads parted, (3, batch, heads, tokens, width)."""
    batch, tokens, total = qkv.shape
    width = total // (3 * heads)
    apart = qkv.view(batch, tokens, 3, heads, width).permute(2, 0, 3, 1, 4)
    result = qkv.new_empty(apart.shape)
    _ATEN.add.out(apart, bias.view(3, 1, heads, 1, width), out=result)
    return result


def _masked_softmax(recorder: OperatorRecorder, scores: Tensor, mask: Tensor) -> Tensor:
    """A softmax that leaves out what the mask names, which torch has no shape function of."""
    result = torch.empty_like(scores)
    read, written = (recorder.operand(scores), recorder.operand(mask)), recorder.operand(result)
    dims = rows_of(written, scores.shape[-1])
    recorder.add([Kernel(OperatorKind.SOFTMAX, dims, read, (written,))], "_masked_softmax")
    return result


def _encoder_layer(
    recorder: OperatorRecorder, src: Tensor, embed_dim: int, num_heads: int, *others: Any
) -> Tensor:
    """An encoder layer over (batch, tokens, width); the other arguments are those of
    ``torch._transformer_encoder_layer_fwd``, by position.
    """
    attention, (use_gelu, norm_first, eps), weights = others[:4], others[4:7], others[7:15]
    mask = others[15] if len(others) > 15 else None

    def norm(x: Tensor, first: int) -> Tensor:
        return _ATEN.native_layer_norm(x, [embed_dim], *weights[first : first + 2], eps)[0]

    x = norm(src, 0) if norm_first else src
    sizes = (embed_dim, num_heads)
    x = _multi_head_attention(recorder, x, x, x, *sizes, *attention, mask, False)[0]
    x.add_(src)
    before = x if norm_first else norm(x, 0)
    x = norm(x, 2) if norm_first else before
    x = _linear(x, *weights[4:6])
    (_ATEN.gelu_ if use_gelu else _ATEN.relu_)(x)
    x = _linear(x, *weights[6:8])
    x.add_(before)
    return x if norm_first else norm(x, 2)


REPLACED["_native_multi_head_attention"] = _multi_head_attention
REPLACED["_transformer_encoder_layer_fwd"] = _encoder_layer
