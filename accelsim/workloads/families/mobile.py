"""Image classifiers built of depthwise convolutions: MobileNet v1 to v3 and EfficientNet.

Howard et al., arXiv:1704.04861 (v1); Sandler et al., CVPR 2018 (v2); Howard et al., ICCV 2019 (v3);
Tan and Le, ICML 2019 (EfficientNet). Versions 2, 3 and EfficientNet follow torchvision's modules,
v1 the Keras application.
"""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.vision import conv_norm, image_input
from accelsim.workloads.model import RunShape, family
from accelsim.workloads.parameters import ImageParameters

__all__ = [
    "MOBILENET_V1_LAYERS",
    "EfficientNetParameters",
    "InvertedResidual",
    "MobileNetParameters",
    "MobileNetV3Parameters",
    "inverted_residual",
    "mobilenet_v3_blocks",
    "round_channels",
    "separable_conv",
]

_Multiplier = Annotated[float, Field(gt=0, le=16)]


def round_channels(channels: float, divisor: int = 8) -> int:
    """Nearest multiple of `divisor`, but never more than 10 % below `channels` (Sandler et al.
    2018).
    """
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


class InvertedResidual(NamedTuple):
    """One block: expand 1x1, depthwise, squeeze and excite, project 1x1.

    Attributes:
        kernel: Depthwise window.
        expanded: Channels between expansion and projection.
        out: Output channels.
        squeezed: Channels of the squeeze layer; 0 has none.
        activation: Activation of the block.
        stride: Step of the depthwise convolution.
        gate: Squeeze activation and gate.
    """

    kernel: int
    expanded: int
    out: int
    squeezed: int
    activation: str
    stride: int
    gate: tuple[str, str] = ("relu", "hardsigmoid")


def inverted_residual(
    b: GraphBuilder, x: Tensor, block: InvertedResidual, *, dilation: int = 1, scope: str = "block"
) -> Tensor:
    """Write one block.

    Args:
        b: Builder.
        x: Input (n, c, h, w).
        block: Its sizes.
        dilation: Dilation of the depthwise convolution; a dilated block does not stride.
        scope: Name of the block's sequence of layers.
    """
    inner, index = x, 0
    with b.scope(scope):
        if block.expanded != x.shape[1]:
            inner = _indexed(b, inner, block.expanded, 1, index, activation=block.activation)
            index += 1
        stride = 1 if dilation > 1 else block.stride
        with b.scope(str(index)):
            inner = conv_norm(
                b,
                inner,
                block.expanded,
                block.kernel,
                stride=stride,
                groups=block.expanded,
                dilation=dilation,
                activation=block.activation,
            )
        if block.squeezed:
            with b.scope(str(index + 1)):
                inner = _squeeze_excite(b, inner, block.squeezed, block.gate)
            index += 1
        inner = _project(b, inner, block.out, index + 1, nested=scope == "block")
    return b.add(inner, x) if block.stride == 1 and x.shape[1] == block.out else inner


def _indexed(
    b: GraphBuilder, x: Tensor, channels: int, kernel: int, index: int, *, activation: str | None
) -> Tensor:
    with b.scope(str(index)):
        return conv_norm(b, x, channels, kernel, activation=activation)


def _project(b: GraphBuilder, x: Tensor, channels: int, index: int, *, nested: bool) -> Tensor:
    """The closing 1x1; MobileNet v2 keeps its two layers beside the others instead of in a module
    of their own.
    """
    prefix = f"{index}." if nested else ""
    names = (f"{prefix}{0 if nested else index}", f"{prefix}{1 if nested else index + 1}", "")
    return conv_norm(b, x, channels, 1, activation=None, names=names)


def _squeeze_excite(b: GraphBuilder, x: Tensor, squeezed: int, gate: tuple[str, str]) -> Tensor:
    with b.scope("avgpool"):
        scale = b.global_pool(x)
    for name, channels, activation in (("fc1", squeezed, gate[0]), ("fc2", x.shape[1], gate[1])):
        with b.scope(name):
            scale = b.activation(b.conv(scale, channels, 1, bias=True), activation)
    return b.multiply(x, scale, name="scale")


def _pooled_classifier(
    b: GraphBuilder, x: Tensor, layers: list[int], activation: str, first: int
) -> None:
    """Global pooling, then linear layers with an activation between; `first` is the first layer's
    number.
    """
    with b.scope("avgpool"):
        x = b.global_pool(x)
    x = b.view(x, x.shape[0], x.shape[1])
    for step, features in enumerate(layers):
        # Between two linear layers stand an activation and a dropout.
        with b.scope(f"classifier.{first + 3 * step}"):
            x = b.linear(x, features)
        if step + 1 < len(layers):
            with b.scope(f"classifier.{first + 3 * step + 1}"):
                x = b.activation(x, activation)


class MobileNetParameters(ImageParameters):
    """MobileNet v1 or v2.

    Attributes:
        width_multiplier: Scale of all channel counts.
    """

    width_multiplier: _Multiplier = 1.0


#: Output channels and stride of the separable convolutions of MobileNet v1, table 1.
MOBILENET_V1_LAYERS = [
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
]


@family("mobilenet-v1", MobileNetParameters)
def write_mobilenet_v1(b: GraphBuilder, p: MobileNetParameters, shape: RunShape) -> None:
    """Stem, thirteen depthwise separable convolutions, classifier."""
    x = image_input(b, p, shape)
    with b.scope("conv1"):
        x = conv_norm(b, x, int(32 * p.width_multiplier), 3, stride=2, activation="relu6")
    for index, (channels, stride) in enumerate(MOBILENET_V1_LAYERS, start=1):
        x = separable_conv(b, x, int(channels * p.width_multiplier), stride, index)
    _pooled_classifier(b, x, [p.classes], "relu", 0)


def separable_conv(b: GraphBuilder, x: Tensor, channels: int, stride: int, index: int) -> Tensor:
    """Depthwise 3x3, then 1x1, each normalised and rectified."""
    with b.scope(f"conv_dw_{index}"):
        x = conv_norm(b, x, x.shape[1], 3, stride=stride, groups=x.shape[1], activation="relu6")
    with b.scope(f"conv_pw_{index}"):
        return conv_norm(b, x, channels, 1, activation="relu6")


#: Expansion, channels, repeats and stride of MobileNet v2, table 2.
_V2 = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


@family("mobilenet-v2", MobileNetParameters)
def write_mobilenet_v2(b: GraphBuilder, p: MobileNetParameters, shape: RunShape) -> None:
    """Stem, inverted residuals, last convolution, classifier."""
    x = image_input(b, p, shape)
    width = p.width_multiplier
    with b.scope("features.0"):
        x = conv_norm(b, x, round_channels(32 * width), 3, stride=2, activation="relu6")
    index = 0
    for expansion, channels, repeats, stride in _V2:
        for repeat in range(repeats):
            index += 1
            expanded = x.shape[1] * expansion
            step = 1 if repeat else stride
            block = InvertedResidual(
                3, expanded, round_channels(channels * width), 0, "relu6", step
            )
            with b.scope(f"features.{index}"):
                x = inverted_residual(b, x, block, scope="conv")
    with b.scope(f"features.{index + 1}"):
        x = conv_norm(b, x, round_channels(1280 * max(1.0, width)), 1, activation="relu6")
    _pooled_classifier(b, x, [p.classes], "relu6", 1)


class MobileNetV3Parameters(ImageParameters):
    """MobileNet v3.

    Attributes:
        size: "large" or "small".
    """

    size: Literal["large", "small"]


# Kernel, expanded, out, squeeze and excite, activation, stride: tables 1 and 2 of Howard et al.
# 2019.
_V3_LARGE = [
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hardswish", 2),
    (3, 200, 80, False, "hardswish", 1),
    (3, 184, 80, False, "hardswish", 1),
    (3, 184, 80, False, "hardswish", 1),
    (3, 480, 112, True, "hardswish", 1),
    (3, 672, 112, True, "hardswish", 1),
    (5, 672, 160, True, "hardswish", 2),
    (5, 960, 160, True, "hardswish", 1),
    (5, 960, 160, True, "hardswish", 1),
]
_V3_SMALL = [
    (3, 16, 16, True, "relu", 2),
    (3, 72, 24, False, "relu", 2),
    (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "hardswish", 2),
    (5, 240, 40, True, "hardswish", 1),
    (5, 240, 40, True, "hardswish", 1),
    (5, 120, 48, True, "hardswish", 1),
    (5, 144, 48, True, "hardswish", 1),
    (5, 288, 96, True, "hardswish", 2),
    (5, 576, 96, True, "hardswish", 1),
    (5, 576, 96, True, "hardswish", 1),
]


def mobilenet_v3_blocks(size: str) -> list[InvertedResidual]:
    """The blocks of MobileNet v3 "large" or "small"."""
    table = _V3_LARGE if size == "large" else _V3_SMALL
    return [
        InvertedResidual(
            kernel,
            expanded,
            out,
            round_channels(expanded // 4) if squeeze else 0,
            activation,
            stride,
        )
        for kernel, expanded, out, squeeze, activation, stride in table
    ]


@family("mobilenet-v3", MobileNetV3Parameters)
def write_mobilenet_v3(b: GraphBuilder, p: MobileNetV3Parameters, shape: RunShape) -> None:
    """Stem, inverted residuals, last convolution, two-layer classifier."""
    x = image_input(b, p, shape)
    with b.scope("features.0"):
        x = conv_norm(b, x, 16, 3, stride=2, activation="hardswish")
    blocks = mobilenet_v3_blocks(p.size)
    for index, block in enumerate(blocks, start=1):
        with b.scope(f"features.{index}"):
            x = inverted_residual(b, x, block)
    with b.scope(f"features.{len(blocks) + 1}"):
        x = conv_norm(b, x, 6 * x.shape[1], 1, activation="hardswish")
    _pooled_classifier(b, x, [1280 if p.size == "large" else 1024, p.classes], "hardswish", 0)


class EfficientNetParameters(ImageParameters):
    """EfficientNet, by compound scaling.

    Attributes:
        width_multiplier: Scale of channel counts.
        depth_multiplier: Scale of block repeats.
    """

    width_multiplier: _Multiplier
    depth_multiplier: _Multiplier


#: Expansion, kernel, stride, channels and repeats of EfficientNet-B0, table 1.
_EFFICIENTNET = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
]


@family("efficientnet", EfficientNetParameters)
def write_efficientnet(b: GraphBuilder, p: EfficientNetParameters, shape: RunShape) -> None:
    """Stem, inverted residuals with squeeze and excite, last convolution, classifier."""
    x = image_input(b, p, shape)
    with b.scope("features.0"):
        x = conv_norm(b, x, round_channels(32 * p.width_multiplier), 3, stride=2, activation="silu")
    for stage, (expansion, kernel, stride, channels, repeats) in enumerate(_EFFICIENTNET, start=1):
        out = round_channels(channels * p.width_multiplier)
        for repeat in range(ceil(repeats * p.depth_multiplier)):
            width, step = x.shape[1], 1 if repeat else stride
            expanded, squeezed = width * expansion, max(1, width // 4)
            block = InvertedResidual(
                kernel, expanded, out, squeezed, "silu", step, ("silu", "sigmoid")
            )
            with b.scope(f"features.{stage}.{repeat}"):
                x = inverted_residual(b, x, block)
    with b.scope(f"features.{len(_EFFICIENTNET) + 1}"):
        x = conv_norm(b, x, 4 * x.shape[1], 1, activation="silu")
    _pooled_classifier(b, x, [p.classes], "silu", 1)
