"""Image classifiers built of depthwise convolutions: MobileNet v1 to v3 and EfficientNet.

Howard et al., arXiv:1704.04861 (v1); Sandler et al., CVPR 2018 (v2); Howard et al., ICCV 2019 (v3);
Tan and Le, ICML 2019 (EfficientNet). Versions 2, 3 and EfficientNet follow torchvision's modules,
v1 the Keras application.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Literal, NamedTuple

from accelsim.plain import Document
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import layer
from accelsim.workloads.families.vision import conv_norm, image_input
from accelsim.workloads.family_parameters import ImageParameters, Multiplier
from accelsim.workloads.model import PassShape, family


def round_channels(channels: float) -> int:
    """Nearest multiple of 8, but never more than 10 % below `channels` (Sandler et al. 2018)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


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


def _inverted_residual(
    b: GraphBuilder, x: Tensor, block: InvertedResidual, *, scope: str = "block"
) -> Tensor:
    """Write one block, its layers numbered in a sequence named `scope`.

    MobileNet v2 keeps the two layers of the closing 1x1 beside the others instead of in a module of
    their own.
    """
    inner = x
    index = 0
    act = block.activation
    with b.scope(scope):
        if block.expanded != x.shape[1]:
            inner = layer(b, inner, str(index), block.expanded, 1, activation=act)
            index += 1
        groups = block.expanded
        stride = block.stride
        inner = layer(
            b,
            inner,
            str(index),
            block.expanded,
            block.kernel,
            stride=stride,
            groups=groups,
            activation=act,
        )
        index += 1
        if block.squeezed:
            with b.scope(str(index)):
                inner = _squeeze_excite(b, inner, block.squeezed, block.gate)
            index += 1
        names = (f"{index}.0", f"{index}.1") if scope == "block" else (f"{index}", f"{index + 1}")
        inner = conv_norm(b, inner, block.out, 1, activation="", names=(*names, ""))
    return b.add(inner, x) if block.stride == 1 and x.shape[1] == block.out else inner


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

    width_multiplier: Multiplier = 1.0


#: Output channels and stride of the separable convolutions of MobileNet v1, table 1.
_V1_LAYERS = [
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


#: Module names of stem, depthwise and pointwise convolutions, the first number and activation.
_V1_LAYOUTS = {
    "keras": ("conv1", "conv_dw_{}", "conv_pw_{}", 1, "relu6"),
    "zoo": ("stem", "{}.depthwise", "{}.pointwise", 0, "relu"),
}


@family("mobilenet-v1", MobileNetParameters)
def write_mobilenet_v1(b: GraphBuilder, p: MobileNetParameters, shape: PassShape) -> None:
    """Stem, thirteen depthwise separable convolutions, classifier."""
    x = image_input(b, p, shape)
    x = mobilenet_v1_maps(b, x, p.width_multiplier, layout="keras")[-1]
    _pooled_classifier(b, x, [p.classes], "relu", 0)


def mobilenet_v1_maps(
    b: GraphBuilder, x: Tensor, width: float = 1.0, *, layout: str = "zoo"
) -> list[Tensor]:
    """MobileNet v1 without its classifier; one map per separable convolution.

    Args:
        b: Builder.
        x: Image.
        width: Scale of all channel counts.
        layout: Names and activation of the Keras application ("keras") or of accelerators' model
            zoos, which rectify without a limit ("zoo").
    """
    stem, depthwise, pointwise, first, activation = _V1_LAYOUTS[layout]
    style: Document = {"activation": activation}
    x = layer(b, x, stem, int(32 * width), stride=2, **style)
    maps = []
    for index, (channels, stride) in enumerate(_V1_LAYERS, start=first):
        sizes: Document = {"stride": stride, "groups": x.shape[1]}
        x = layer(b, x, depthwise.format(index), x.shape[1], **sizes, **style)
        x = layer(b, x, pointwise.format(index), int(channels * width), 1, **style)
        maps.append(x)
    return maps


#: Expansion, channels, repeats and stride of MobileNet v2, table 2.
_V2_STAGES = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


@family("mobilenet-v2", MobileNetParameters)
def write_mobilenet_v2(b: GraphBuilder, p: MobileNetParameters, shape: PassShape) -> None:
    """Stem, inverted residuals, last convolution, classifier."""
    x = image_input(b, p, shape)
    width = p.width_multiplier
    x = layer(b, x, "features.0", round_channels(32 * width), 3, stride=2, activation="relu6")
    index = 0
    for expansion, channels, repeats, stride in _V2_STAGES:
        for repeat in range(repeats):
            index += 1
            expanded = x.shape[1] * expansion
            step = 1 if repeat else stride
            block = InvertedResidual(
                3, expanded, round_channels(channels * width), 0, "relu6", step
            )
            with b.scope(f"features.{index}"):
                x = _inverted_residual(b, x, block, scope="conv")
    x = layer(
        b, x, f"features.{index + 1}", round_channels(1280 * max(1.0, width)), 1, activation="relu6"
    )
    _pooled_classifier(b, x, [p.classes], "relu6", 1)


class MobileNetV3Parameters(ImageParameters):
    """MobileNet v3.

    Attributes:
        size: "large" or "small".
    """

    size: Literal["large", "small"]


#: Kernel, expanded and output channels, squeeze and excite, activation and stride of each block:
#: tables 1 and 2 of Howard et al. 2019.
_V3_BLOCKS = {
    "large": """
        3 16 16 - relu 1
        3 64 24 - relu 2
        3 72 24 - relu 1
        5 72 40 SE relu 2
        5 120 40 SE relu 1
        5 120 40 SE relu 1
        3 240 80 - hardswish 2
        3 200 80 - hardswish 1
        3 184 80 - hardswish 1
        3 184 80 - hardswish 1
        3 480 112 SE hardswish 1
        3 672 112 SE hardswish 1
        5 672 160 SE hardswish 2
        5 960 160 SE hardswish 1
        5 960 160 SE hardswish 1
    """,
    "small": """
        3 16 16 SE relu 2
        3 72 24 - relu 2
        3 88 24 - relu 1
        5 96 40 SE hardswish 2
        5 240 40 SE hardswish 1
        5 240 40 SE hardswish 1
        5 120 48 SE hardswish 1
        5 144 48 SE hardswish 1
        5 288 96 SE hardswish 2
        5 576 96 SE hardswish 1
        5 576 96 SE hardswish 1
    """,
}


def _v3_blocks(size: str) -> Iterator[InvertedResidual]:
    for line in _V3_BLOCKS[size].strip().splitlines():
        kernel, expanded, out, squeeze, activation, stride = line.split()
        squeezed = round_channels(int(expanded) // 4) if squeeze == "SE" else 0
        sizes = (int(kernel), int(expanded), int(out), squeezed)
        yield InvertedResidual(*sizes, activation, int(stride))


@family("mobilenet-v3", MobileNetV3Parameters)
def write_mobilenet_v3(b: GraphBuilder, p: MobileNetV3Parameters, shape: PassShape) -> None:
    """Stem, inverted residuals, last convolution, two-layer classifier."""
    x = image_input(b, p, shape)
    x = layer(b, x, "features.0", 16, 3, stride=2, activation="hardswish")
    blocks = list(_v3_blocks(p.size))
    for index, block in enumerate(blocks, start=1):
        with b.scope(f"features.{index}"):
            x = _inverted_residual(b, x, block)
    x = layer(b, x, f"features.{len(blocks) + 1}", 6 * x.shape[1], 1, activation="hardswish")
    _pooled_classifier(b, x, [1280 if p.size == "large" else 1024, p.classes], "hardswish", 0)


class EfficientNetParameters(ImageParameters):
    """EfficientNet, by compound scaling.

    Attributes:
        width_multiplier: Scale of channel counts.
        depth_multiplier: Scale of block repeats.
    """

    width_multiplier: Multiplier
    depth_multiplier: Multiplier


#: Expansion, kernel, stride, channels and repeats of EfficientNet-B0, table 1.
_EFFICIENTNET_STAGES = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
]


@family("efficientnet", EfficientNetParameters)
def write_efficientnet(b: GraphBuilder, p: EfficientNetParameters, shape: PassShape) -> None:
    """Stem, inverted residuals with squeeze and excite, last convolution, classifier."""
    x = image_input(b, p, shape)
    x = layer(
        b, x, "features.0", round_channels(32 * p.width_multiplier), 3, stride=2, activation="silu"
    )
    stages = enumerate(_EFFICIENTNET_STAGES, start=1)
    for stage, (expansion, kernel, stride, channels, repeats) in stages:
        out = round_channels(channels * p.width_multiplier)
        for repeat in range(ceil(repeats * p.depth_multiplier)):
            width = x.shape[1]
            step = 1 if repeat else stride
            expanded = width * expansion
            squeezed = max(1, width // 4)
            block = InvertedResidual(
                kernel, expanded, out, squeezed, "silu", step, ("silu", "sigmoid")
            )
            with b.scope(f"features.{stage}.{repeat}"):
                x = _inverted_residual(b, x, block)
    x = layer(
        b, x, f"features.{len(_EFFICIENTNET_STAGES) + 1}", 4 * x.shape[1], 1, activation="silu"
    )
    _pooled_classifier(b, x, [p.classes], "silu", 1)
