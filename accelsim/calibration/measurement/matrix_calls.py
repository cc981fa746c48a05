"""Calls of attention, convolutions and recurrent layers, forward and backward."""

from __future__ import annotations

import torch
from torch.nn import functional

from accelsim.calibration.measurement.operands import Operands, builds
from accelsim.calibration.measurement.timing import Call

_ATEN = torch.ops.aten

# -- attention


def _heads(source: Operands) -> list[torch.Tensor]:
    """Query, key and value as models have them: (batch, length, heads, width) seen as (batch,
    heads, length, width).
    """
    axes = "batch {0} heads head_dim -> batch heads {0} head_dim"
    return [source.operand(axes.format(name)) for name in ("q_len", "kv_len", "kv_len")]


@builds("scaled_dot_product_attention")
def _attention(source: Operands) -> Call:
    q, k, v = _heads(source)
    causal = bool(source.shape["causal"])
    return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@builds("scaled_dot_product_attention_backward")
def _attention_backward(source: Operands) -> Call:
    q, k, v = (x.requires_grad_() for x in _heads(source))
    causal = bool(source.shape["causal"])
    output = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    gradient = source.values(*output.shape)
    return lambda: torch.autograd.grad(output, (q, k, v), gradient, retain_graph=True)


# -- convolutions


class _Convolution:
    """Sizes of a convolution along each axis: of images, of sequences as long as an image has
    pixels, or of volumes, whose depth is neither strided nor padded away.
    """

    def __init__(self, source: Operands) -> None:
        s = source.shape
        self.groups = s["groups"]
        side, kernel, stride = s["side"], s["kernel"], s["stride"]
        if source.operator.startswith("convolution_1d"):
            self.size, self.window, self.stride = [side**2], [kernel], [stride]
        elif source.operator.startswith("convolution_3d"):
            self.size = [s["depth"], side, side]
            self.window, self.stride = [s["taps"], kernel, kernel], [1, stride, stride]
        else:
            self.size, self.window, self.stride = [side] * 2, [kernel] * 2, [stride] * 2
        self.gap = [s["dilation"]] * len(self.size)
        self.pad = [taps // 2 * self.gap[0] for taps in self.window]
        self.image = [s["batch"], s["channels_in"], *self.size]
        self.weights = [s["channels_out"], s["channels_in"] // self.groups, *self.window]


@builds("convolution", "convolution_1d", "convolution_3d")
def _convolution(source: Operands) -> Call:
    sizes = _Convolution(source)
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[len(sizes.size) - 1]
    x, weight = source.input(*sizes.image), source.weight(*sizes.weights)
    stride, pad, gap, groups = sizes.stride, sizes.pad, sizes.gap, sizes.groups
    return lambda: function(x, weight, None, stride, pad, gap, groups)


@builds("convolution_transpose")
def _convolution_transpose(source: Operands) -> Call:
    """Twice the height and width."""
    taps = source.shape["taps"]
    weight = source.weight(*source.sizes("channels_in channels_out"), taps, taps)
    x, padding, output_padding = (
        source.operand("input: batch channels_in side side"),
        (taps - 1) // 2,
        taps % 2,
    )
    return lambda: functional.conv_transpose2d(x, weight, None, 2, padding, output_padding)


@builds(
    *(f"convolution{axes}_backward.grad_input" for axes in ("", "_1d", "_3d")),
    *(f"convolution{axes}_backward.grad_weight" for axes in ("", "_1d", "_3d")),
)
def _convolution_backward(source: Operands) -> Call:
    sizes = _Convolution(source)
    x, weight = source.stored(*sizes.image), source.table(*sizes.weights)
    unmoved = [0] * len(sizes.size)
    forward = (x, weight, None, sizes.stride, sizes.pad, sizes.gap, False, unmoved, sizes.groups)
    gradient = source.values(*_ATEN.convolution(*forward).shape)
    of_input = source.operator.endswith("input")
    arguments = (gradient, *forward, [of_input, not of_input, False])
    return lambda: _ATEN.convolution_backward(*arguments)


# -- recurrent layers


def _layer(source: Operands) -> tuple[torch.nn.RNNBase, torch.Tensor]:
    """Its weights keep requires_grad, as a model's do: without it the framework takes another path
    (bf16 GRU, 8 times slower).
    """
    kind = torch.nn.LSTM if source.operator.startswith("lstm") else torch.nn.GRU

    def batch_first(*sizes: int, **options: object) -> torch.nn.Module:
        return kind(*sizes, batch_first=True, **options)

    layer = source.layer(batch_first, *source.sizes("input hidden"))
    return layer, source.operand("batch steps input")


@builds("lstm", "gru", "lstm_train", "gru_train")
def _recurrent(source: Operands) -> Call:
    layer, x = _layer(source)
    return lambda: layer(x)


@builds("lstm_backward", "gru_backward")
def _recurrent_backward(source: Operands) -> Call:
    layer, x = _layer(source)
    inputs = [x.requires_grad_(), *layer.parameters()]
    output, _ = layer(x)
    gradient = source.values(*output.shape)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)
