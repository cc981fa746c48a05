"""Calls of products, attention and convolutions, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from accelsim.calibration.measurement.operands import (
    ATEN,
    Call,
    Source,
    builds,
)

__all__: list[str] = []

# -- products
# --------------------------------------------------------------------------------------------------------


@builds("addmm")
def _addmm(source: Source) -> Call:
    s = source.shape
    weight, bias, x = (
        source.weight(s["n"], s["k"]),
        source.weight(s["n"]),
        source.input(s["m"], s["k"]),
    )
    return lambda: functional.linear(x, weight, bias)


@builds("mm_nn")
def _mm_nn(source: Source) -> Call:
    """Gradient of a linear layer's input: output gradient times weight."""
    s = source.shape
    a, b = source.values(s["m"], s["k"]), source.stored(s["k"], s["n"])
    return lambda: torch.mm(a, b)


@builds("mm_tn")
def _mm_tn(source: Source) -> Call:
    """Gradient of a linear layer's weight: transposed output gradient times input."""
    s = source.shape
    a, b = source.values(s["k"], s["m"]), source.stored(s["k"], s["n"])
    return lambda: torch.mm(a.t(), b)


@builds("bmm")
def _bmm(source: Source) -> Call:
    s = source.shape
    a, b = source.values(s["batch"], s["m"], s["k"]), source.values(s["batch"], s["k"], s["n"])
    return lambda: torch.bmm(a, b)


@builds("scaled_dot_product_attention")
def _attention(source: Source) -> Call:
    q, k, v, causal = _heads(source)
    return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@builds("scaled_dot_product_attention_backward")
def _attention_backward(source: Source) -> Call:
    q, k, v, causal = _heads(source)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    output = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    gradient = source.values(*output.shape)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def _heads(source: Source) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    """Query, key and value as models have them: (batch, length, heads, width) seen as (batch,
    heads, length, width).
    """
    s = source.shape
    q, k, v = (
        source.values(s["batch"], length, s["heads"], s["head_dim"]).transpose(1, 2)
        for length in (s["q_len"], s["kv_len"], s["kv_len"])
    )
    return q, k, v, bool(s["causal"])


# -- convolutions
# ----------------------------------------------------------------------------------------------------


@builds("convolution")
def _convolution(source: Source) -> Call:
    s = source.shape
    weight = source.weight(
        s["channels_out"], s["channels_in"] // s["groups"], s["kernel"], s["kernel"]
    )
    x, stride, groups, gap = source.image(), s["stride"], s["groups"], s.get("dilation", 1)
    pad = s["kernel"] // 2 * gap
    return lambda: functional.conv2d(x, weight, None, stride, pad, gap, groups)


@builds("convolution_3d")
def _convolution_3d(source: Source) -> Call:
    """Of volumes, whose depth is neither strided nor padded away."""
    s = source.shape
    weight = source.weight(
        s["channels_out"], s["channels_in"] // s["groups"], s["taps"], *[s["kernel"]] * 2
    )
    x = source.input(s["batch"], s["channels_in"], s["depth"], *[s["side"]] * 2)
    stride, pad = (1, s["stride"], s["stride"]), (s["taps"] // 2, *[s["kernel"] // 2] * 2)
    return lambda: functional.conv3d(x, weight, None, stride, pad, 1, s["groups"])


@builds("convolution_1d")
def _convolution_1d(source: Source) -> Call:
    s = source.shape
    weight = source.stored(s["channels_out"], s["channels_in"], s["kernel"])
    x = source.values(s["batch"], s["channels_in"], s["side"] ** 2)
    gap = s.get("dilation", 1)
    return lambda: functional.conv1d(x, weight, None, s["stride"], s["kernel"] // 2 * gap, gap)


@builds("convolution_1d_depthwise")
def _convolution_1d_depthwise(source: Source) -> Call:
    s = source.shape
    channels, kernel = s["channels"], s["kernel"]
    weight, x = source.stored(channels, 1, kernel), source.values(s["batch"], channels, s["length"])
    return lambda: functional.conv1d(x, weight, None, 1, kernel // 2, 1, channels)


@builds("convolution_transpose")
def _convolution_transpose(source: Source) -> Call:
    """Twice the height and width."""
    s = source.shape
    taps = s.get("taps", 2)
    weight = source.stored(s["channels_in"], s["channels_out"], taps, taps)
    x, pad, more = source.image(), (taps - 1) // 2, taps % 2
    return lambda: functional.conv_transpose2d(x, weight, None, 2, pad, more)


@builds(
    "convolution_backward.grad_input",
    "convolution_1d_backward.grad_input",
    "convolution_3d_backward.grad_input",
)
def _convolution_grad_input(source: Source) -> Call:
    return _convolution_backward(source, [True, False, False])


@builds(
    "convolution_backward.grad_weight",
    "convolution_1d_backward.grad_weight",
    "convolution_3d_backward.grad_weight",
)
def _convolution_grad_weight(source: Source) -> Call:
    return _convolution_backward(source, [False, True, False])


def _convolution_backward(source: Source, mask: Sequence[bool]) -> Call:
    """Gradients of images, of sequences as long as an image has pixels, or of volumes."""
    s = source.shape
    size, window, stride = _axes(source)
    axes = len(size)
    gap = [s.get("dilation", 1)] * axes
    pad = [taps // 2 * gap[0] for taps in window]
    x = source.stored(s["batch"], s["channels_in"], *size)
    weight = source.stored(s["channels_out"], s["channels_in"] // s["groups"], *window)
    forward = (x, weight, None, stride, pad, gap, False, [0] * axes, s["groups"])
    gradient = source.values(*ATEN.convolution(*forward).shape)
    arguments = (gradient, *forward, list(mask))
    return lambda: ATEN.convolution_backward(*arguments)


def _axes(source: Source) -> tuple[list[int], list[int], list[int]]:
    """Size, window and stride along each axis of what is convolved."""
    s = source.shape
    if source.operator.startswith("convolution_1d"):
        return [s["side"] ** 2], [s["kernel"]], [s["stride"]]
    size, window, stride = ([s[name]] * 2 for name in ("side", "kernel", "stride"))
    if source.operator.startswith("convolution_3d"):
        return [s["depth"], *size], [s["taps"], *window], [1, *stride]
    return size, window, stride
