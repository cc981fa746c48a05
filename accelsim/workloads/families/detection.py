"""Single-shot detectors up to class scores and box offsets: SSD300 over VGG-16, SSD over MobileNet
v1 and over ResNet-34.

Liu et al., ECCV 2016, as torchvision builds it; the MobileNet version as in the TensorFlow object
detection models that MLPerf Inference used; ResNet-34 at 1200 pixels, the large detector of MLPerf
Inference up to round 1.1, layer for layer as the reference (mlcommons/inference, ssd_r34.py): the
third stage keeps its resolution, the fourth is left out, five further stages follow, and the heads
step by three positions. Choosing boxes (non-maximum suppression) is not modelled: it is no matrix
arithmetic and its cost depends on the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import layer
from accelsim.workloads.families.mobile import MOBILENET_V1_LAYERS, separable_conv
from accelsim.workloads.families.vision import conv_norm, image_input
from accelsim.workloads.family_parameters import ImageParameters
from accelsim.workloads.model import RunShape, family
from accelsim.workloads.operator import OperatorKind

__all__ = ["SsdParameters"]


class SsdParameters(ImageParameters):
    """A single-shot detector; `classes` counts the background.

    Attributes:
        anchors: Default boxes per position of each feature map.
    """

    anchors: Annotated[
        tuple[Annotated[int, Field(ge=1, le=64)], ...],
        Field(strict=False, min_length=6, max_length=6),
    ]


def _heads(
    b: GraphBuilder,
    maps: Sequence[Tensor],
    p: SsdParameters,
    widths: Mapping[str, int],
    kernel: int,
    **options: Any,
) -> None:
    """Convolutions to `widths` outputs per box, by module name."""
    for name, width in widths.items():
        for index, (x, anchors) in enumerate(zip(maps, p.anchors, strict=True)):
            with b.scope(f"{name}.{index}"):
                b.conv(x, anchors * width, kernel, bias=True, **options)


def _torchvision_widths(p: SsdParameters) -> Mapping[str, int]:
    return {
        "head.classification_head.module_list": p.classes,
        "head.regression_head.module_list": 4,
    }


# -- VGG-16

#: Channels of the VGG-16 stages SSD uses, and of its further stages (squeeze, output, stride).
_VGG = ((64, 2), (128, 2), (256, 3), (512, 3))
_VGG_EXTRA = ((256, 512, 2), (128, 256, 2), (128, 256, 1), (128, 256, 1))


@family("ssd-vgg16", SsdParameters)
def write_ssd_vgg16(b: GraphBuilder, p: SsdParameters, shape: RunShape) -> None:
    """VGG-16 to conv4_3, the dilated conv6 and conv7, four further stages, heads."""
    x = image_input(b, p, shape)
    with b.scope("backbone"):
        x = _vgg_to_conv4(b, x)
        maps = [_scaled_norm(b, x)]
        with b.scope("extra.0"):
            x = _vgg_tail(b, x)
        maps.append(x)
        for stage, (squeeze, channels, stride) in enumerate(_VGG_EXTRA, start=1):
            with b.scope(f"extra.{stage}"):
                x = _conv_relu(b, x, squeeze, 1, 0)
                x = _conv_relu(b, x, channels, 3, 2, stride=stride, padding=stride - 1)
            maps.append(x)
    _heads(b, maps, p, _torchvision_widths(p), 3)


def _conv_relu(
    b: GraphBuilder, x: Tensor, channels: int, kernel: int, index: int, **options: Any
) -> Tensor:
    with b.scope(str(index)):
        x = b.conv(x, channels, kernel, bias=True, **options)
    with b.scope(str(index + 1)):
        return b.activation(x)


def _vgg_to_conv4(b: GraphBuilder, x: Tensor) -> Tensor:
    index = 0
    with b.scope("features"):
        for stage, (channels, convs) in enumerate(_VGG):
            for _ in range(convs):
                x = _conv_relu(b, x, channels, 3, index)
                index += 2
            if stage < 3:
                with b.scope(str(index)):  # the third pool rounds up: 75 becomes 38
                    x = b.pool(x, 2, ceil=stage == 2)
                index += 1
    return x


def _scaled_norm(b: GraphBuilder, x: Tensor) -> Tensor:
    """L2 normalisation over channels with a learned scale."""
    channels, rows = x.shape[1], x.elements // x.shape[1]
    flop = 4.0 * x.elements
    b.parameters(channels)
    return b.operator(
        OperatorKind.RMS_NORM,
        (rows, channels),
        [x],
        x.shape,
        name="l2_norm",
        flop=flop,
        weights=channels,
        saves=[x],
    )


def _vgg_tail(b: GraphBuilder, x: Tensor) -> Tensor:
    with b.scope("0"):
        x = b.pool(x, 2)
    for index in (1, 3, 5):
        x = _conv_relu(b, x, 512, 3, index)
    with b.scope("7"):
        with b.scope("0"):
            x = b.pool(x, 3, stride=1, padding=1)
        x = _conv_relu(b, x, 1024, 3, 1, dilation=6)
        return _conv_relu(b, x, 1024, 1, 3)


# -- MobileNet v1

#: Squeeze and output channels of the four stages after MobileNet v1.
_MOBILE_EXTRA = ((256, 512), (128, 256), (128, 256), (64, 128))


@family("ssd-mobilenet-v1", SsdParameters)
def write_ssd_mobilenet_v1(b: GraphBuilder, p: SsdParameters, shape: RunShape) -> None:
    """MobileNet v1 without its classifier, four further stages, 1x1 heads on six maps."""
    x = image_input(b, p, shape)
    maps = []
    with b.scope("backbone"):
        x = layer(b, x, "conv1", 32, stride=2, activation="relu6")
        for index, (channels, stride) in enumerate(MOBILENET_V1_LAYERS, start=1):
            x = separable_conv(b, x, channels, stride, index)
            if index in {11, 13}:
                maps.append(x)
        for stage, (squeeze, channels) in enumerate(_MOBILE_EXTRA):
            x = layer(b, x, f"extra.{stage}.0", squeeze, 1, activation="relu6")
            x = layer(b, x, f"extra.{stage}.1", channels, stride=2, activation="relu6")
            maps.append(x)
    _heads(b, maps, p, _torchvision_widths(p), 1)


# -- ResNet-34

#: Channels, blocks and stride of the residual stages.
_RESIDUAL_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 1))
#: Squeeze and output channels, stride and padding of the further stages.
_LARGE_EXTRA = (
    (256, 512, 2, 1),
    (256, 512, 2, 1),
    (128, 256, 2, 1),
    (128, 256, 2, 0),
    (128, 256, 1, 0),
)


@family("ssd-resnet34", SsdParameters)
def write_ssd_resnet34(b: GraphBuilder, p: SsdParameters, shape: RunShape) -> None:
    """Residual stages, further stages, heads on six maps."""
    x = _residual_stages(b, image_input(b, p, shape))
    maps = [x]
    for index, (squeeze, channels, stride, padding) in enumerate(_LARGE_EXTRA):
        with b.scope(f"additional_blocks.{index}"):
            x = layer(b, x, "0", squeeze, 1, norm=False)
            x = layer(b, x, "2", channels, norm=False, stride=stride, padding=padding)
        maps.append(x)
    _heads(b, maps, p, {"loc": 4, "conf": p.classes}, 3, stride=3, padding=1)


def _residual_stages(b: GraphBuilder, x: Tensor) -> Tensor:
    with b.scope("model"):
        x = conv_norm(b, x, 64, 7, stride=2, names=("conv1", "bn1", "relu"))
        x = b.pool(x, 3, stride=2, padding=1)
        for stage, (channels, depth, stride) in enumerate(_RESIDUAL_STAGES, start=1):
            for block in range(depth):
                with b.scope(f"layer{stage}.{block}"):
                    x = _basic_block(b, x, channels, stride if block == 0 else 1)
    return x


def _basic_block(b: GraphBuilder, x: Tensor, channels: int, stride: int) -> Tensor:
    y = conv_norm(b, x, channels, 3, stride=stride, names=("conv1", "bn1", "relu"))
    y = conv_norm(b, y, channels, 3, activation="", names=("conv2", "bn2", "relu"))
    if stride != 1 or x.shape[1] != channels:
        with b.scope("downsample"):
            x = conv_norm(b, x, channels, 1, stride=stride, activation="")
    return b.activation(b.add(y, x))
