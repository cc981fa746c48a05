"""ONNX operators of products: matrices, convolutions, attention, recurrent layers."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from accelsim.workloads.capture.onnx.registry import Step, operator

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


# -- matrices


@operator("MatMul MatMulInteger", 3)
def product(step: Step, a: Tensor, b: Tensor, *bias: Tensor | None) -> Tensor:
    """With a matrix of weights, a linear layer; its bias is what `module` has joined to it."""
    added = bias[0] if bias and step.node.operator == "MatMul" else None
    if isinstance(b, torch.nn.Parameter) and b.dim() == 2:
        return functional.linear(a, b.t(), added)
    return torch.matmul(a, b)


@operator("QLinearMatMul", 1, 2, 4, 5, 6, 7)
def quantised_product(step: Step, *tensors: Tensor) -> Tensor:
    """Scales and zero points are part of the kernel."""
    return product(step, tensors[0], tensors[3])


@operator("FusedMatMul")
def scaled_product(step: Step, a: Tensor, b: Tensor) -> Tensor:
    """Either side transposed."""
    a = a.transpose(-1, -2) if step.get("transA") else a
    return product(step, a, b.transpose(-1, -2) if step.get("transB") else b)


@operator("MatMulNBits", 2, 3, 4)
def packed_product(step: Step, a: Tensor, packed: Tensor, *_: Tensor | None) -> Tensor:
    """Weights of N rows of K, packed in blocks: the parameters are those of the matrix."""
    n, k = int(step.get("N", 0)), int(step.get("K", 0))
    if packed.numel() * 8 != n * k * int(step.get("bits", 4)):
        raise step.refuse(f"packs {packed.numel():,} bytes for a matrix of {n} x {k}")
    return functional.linear(a, packed.new_empty((n, k), dtype=a.dtype))


@operator("Gemm")
def gemm(step: Step, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a b + c, either transposed."""
    a = a.t() if step.get("transA") else a
    return functional.linear(a, b if step.get("transB") else b.t(), bias)


@operator("Einsum")
def einsum(step: Step, *tensors: Tensor) -> Tensor:
    """By its equation."""
    return torch.einsum(step.get("equation", ""), *tensors)


# -- convolutions


def window_padding(
    step: Step, sizes: list[int], window: list[int], *, spread: int = 1
) -> tuple[list[int], list[int]]:
    """Padding before and after each axis, as attributes or ``auto_pad`` say."""
    rank = len(window)
    stride, dilation = (step.get(name) or [1] * rank for name in ("strides", "dilations"))
    mode = step.get("auto_pad", "NOTSET")
    if mode.startswith("SAME"):
        reach = [d * (w - 1) + 1 for w, d in zip(window, dilation, strict=True)]
        whole = [
            max(0, (-(-size // s) - 1) * s + r - size) if spread else r - s
            for size, s, r in zip(sizes, stride, reach, strict=True)
        ]
        less, more = [total // 2 for total in whole], [-(-total // 2) for total in whole]
        return (more, less) if mode == "SAME_LOWER" else (less, more)
    pads = step.get("pads") if mode == "NOTSET" else None
    pads = pads or [0] * (2 * rank)
    if len(pads) != 2 * rank:
        raise step.refuse(f"has {len(pads)} pads for {rank} axes")
    return pads[:rank], pads[rank:]


def padded(
    x: Tensor, before: list[int], after: list[int], value: float = 0.0, *, apart: bool = False
) -> tuple[Tensor, list[int]]:
    """The tensor, padded by an operator of its own where sides differ or that is asked for, and
    what is left to pad.
    """
    if before == after and not apart:
        return x, before
    sides = list(chain.from_iterable(zip(reversed(before), reversed(after), strict=True)))
    return functional.pad(x, sides, value=value), [0] * len(before)


@operator("Conv ConvInteger", 3)
def convolution(step: Step, x: Tensor, weight: Tensor, *bias: Tensor | None) -> Tensor:
    """Of one, two or three axes."""
    window = list(weight.shape[2:])
    rank = len(window)
    if rank not in _CONVOLUTIONS:
        raise step.refuse(f"has a window of {rank} axes: expected 1 to 3")
    x, padding = padded(x, *window_padding(step, list(x.shape[2:]), window))
    added = bias[0] if bias and step.node.operator == "Conv" else None
    stride, dilation = (step.get(name) or [1] * rank for name in ("strides", "dilations"))
    groups = int(step.get("group", 1))
    return _CONVOLUTIONS[rank](x, weight, added, stride, padding, dilation, groups)


@operator("QLinearConv", 1, 2, 4, 5, 6, 7)
def quantised_convolution(step: Step, *tensors: Tensor) -> Tensor:
    """Scales and zero points are part of the kernel."""
    return convolution(step, tensors[0], tensors[3])


@operator("ConvTranspose")
def transposed_convolution(
    step: Step, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Of one, two or three axes; padding takes away from the result."""
    window = list(weight.shape[2:])
    rank = len(window)
    if rank not in _TRANSPOSED:
        raise step.refuse(f"has a window of {rank} axes: expected 1 to 3")
    stride, dilation = (step.get(name) or [1] * rank for name in ("strides", "dilations"))
    before, after = window_padding(step, list(x.shape[2:]), window, spread=0)
    more = step.get("output_padding") or [0] * rank
    more = [m + b - a for m, b, a in zip(more, before, after, strict=True)]
    groups = int(step.get("group", 1))
    return _TRANSPOSED[rank](x, weight, bias, stride, before, more, groups, dilation)


# -- attention


@operator("Attention MultiHeadAttention GroupQueryAttention", 4, 5, 6, 7, 8)
def attention(step: Step, *tensors: Tensor | None) -> Any:
    """ONNX's own operator (opset 23) and those of ONNX Runtime with query, key and value apart."""
    given = [*tensors, *[None] * (9 - len(tensors))]
    q, k, v = given[:3]
    if (
        q is None
        or k is None
        or v is None
        or step.node.operator + step.node.domain == ("Attentioncom.microsoft")
    ):
        raise step.refuse("takes query, key and value packed: export them apart")
    is_own = not step.node.domain
    heads = int(step.get("q_num_heads" if is_own else "num_heads", 0))
    kv_heads = int(step.get("kv_num_heads", heads))
    flat = q.dim() == 3
    q, k, v = (
        _in_heads(step, x, n) for x, n in zip((q, k, v), (heads, kv_heads, kv_heads), strict=True)
    )
    past = {"Attention": (4, 5), "MultiHeadAttention": (6, 7), "GroupQueryAttention": (3, 4)}
    old = [given[place] for place in past[step.node.operator]]
    k, v = (x if y is None else torch.cat([y, x], dim=2) for x, y in zip((k, v), old, strict=True))
    mask = given[3] if is_own else None
    causal = bool(step.get("is_causal") or step.get("unidirectional")) or (
        step.node.operator == "GroupQueryAttention"
    )
    result = functional.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal and mask is None, enable_gqa=q.shape[1] != k.shape[1]
    )
    if flat:
        result = result.transpose(1, 2).flatten(2)
    return result, k, v


def _in_heads(step: Step, x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, width) as (batch, heads, tokens, width of one)."""
    if x.dim() == 4:
        return x
    if heads < 1 or x.shape[-1] % heads:
        raise step.refuse(f"has {heads} heads of {x.shape[-1]} columns together")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


# -- recurrent layers


@operator("LSTM GRU RNN", 4)
def recurrent(step: Step, x: Tensor, weight: Tensor, state: Tensor, *more: Tensor | None) -> Any:
    """One layer, one or both directions, over padded sequences (steps, batch, width)."""
    bias, _, *others = [*more, None, None, None, None, None][:5]
    kind = step.node.operator.lower()
    if step.get("layout"):
        raise step.refuse("has its batch first: expected layout 0")
    if len(others) > 2 and others[2] is not None:
        raise step.refuse("has peepholes, which no library runs")
    directions, hidden = weight.shape[0], state.shape[-1]
    first, cell = (
        x.new_zeros((directions, x.shape[1], hidden)) if one is None else one
        for one in [*others, None, None][:2]
    )
    flat: list[Tensor] = []
    for way in range(directions):
        flat += [weight[way], state[way]]
        flat += [] if bias is None else list(bias[way].chunk(2))
    activations = step.get("activations") or ["Tanh"]
    name = {"rnn": "rnn_relu" if activations[0] == "Relu" else "rnn_tanh"}.get(kind, kind)
    states = (first, cell) if kind == "lstm" else first
    options = (bias is not None, 1, 0.0, step.training, directions == 2, False)
    result, *finals = getattr(torch, name)(x, states, flat, *options)
    apart = result.unflatten(-1, (directions, hidden)).transpose(1, 2)
    return (apart, *finals)
