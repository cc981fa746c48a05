"""Single-shot detectors: SSD300 over VGG-16, SSD over MobileNet v1, up to the class scores and box
offsets.

Liu et al., ECCV 2016, as torchvision builds it; the MobileNet version as in the TensorFlow object
detection models that MLPerf Inference used. Choosing boxes (non-maximum suppression) is not
modelled: it is no matrix arithmetic and its cost depends on the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.mobile import MOBILENET_V1_LAYERS, separable_conv
from accelsim.workloads.families.vision import conv_norm, image_input
from accelsim.workloads.model import RunShape, family
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.parameters import ImageParameters

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


#: Channels of the VGG-16 stages SSD uses, and of its further stages (squeeze, output, stride).
_VGG = ((64, 2), (128, 2), (256, 3), (512, 3))
_SSD_EXTRA = ((256, 512, 2), (128, 256, 2), (128, 256, 1), (128, 256, 1))


@family("ssd-vgg16", SsdParameters)
def write_ssd_vgg16(b: GraphBuilder, p: SsdParameters, shape: RunShape) -> None:
    """VGG-16 to conv4_3, the dilated conv6 and conv7, four further stages, heads."""
    x = image_input(b, p, shape)
    with b.scope("backbone"):
        x = _vgg_to_conv4(b, x)
        maps = [_scaled_norm(b, x)]
        with b.scope("extra.0"):
            maps.append(_vgg_tail(b, x))
        for stage, (squeeze, channels, stride) in enumerate(_SSD_EXTRA, start=1):
            with b.scope(f"extra.{stage}"):
                maps.append(_extra_stage(b, maps[-1], squeeze, channels, stride))
    _heads(b, maps, p, kernel=3)


def _conv_relu(
    b: GraphBuilder,
    x: Tensor,
    channels: int,
    kernel: int,
    index: int,
    *,
    stride: int = 1,
    padding: int | None = None,
    dilation: int = 1,
) -> Tensor:
    with b.scope(str(index)):
        x = b.conv(
            x, channels, kernel, stride=stride, padding=padding, dilation=dilation, bias=True
        )
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
    b.parameters(channels)
    return b.operator(
        OperatorKind.RMS_NORM,
        (rows, channels),
        [x],
        x.shape,
        name="l2_norm",
        flop=4.0 * x.elements,
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


def _extra_stage(b: GraphBuilder, x: Tensor, squeeze: int, channels: int, stride: int) -> Tensor:
    x = _conv_relu(b, x, squeeze, 1, 0)
    return _conv_relu(b, x, channels, 3, 2, stride=stride, padding=1 if stride == 2 else 0)


def _heads(b: GraphBuilder, maps: Sequence[Tensor], p: SsdParameters, *, kernel: int) -> None:
    for name, width in (("classification_head", p.classes), ("regression_head", 4)):
        for index, (x, anchors) in enumerate(zip(maps, p.anchors, strict=True)):
            with b.scope(f"head.{name}.module_list.{index}"):
                b.conv(x, anchors * width, kernel, bias=True)


#: Squeeze and output channels of the four stages after MobileNet v1.
_MOBILE_EXTRA = ((256, 512), (128, 256), (128, 256), (64, 128))


@family("ssd-mobilenet-v1", SsdParameters)
def write_ssd_mobilenet_v1(b: GraphBuilder, p: SsdParameters, shape: RunShape) -> None:
    """MobileNet v1 without its classifier, four further stages, 1x1 heads on six maps."""
    x = image_input(b, p, shape)
    maps = []
    with b.scope("backbone"):
        with b.scope("conv1"):
            x = conv_norm(b, x, 32, 3, stride=2, activation="relu6")
        for index, (channels, stride) in enumerate(MOBILENET_V1_LAYERS, start=1):
            x = separable_conv(b, x, channels, stride, index)
            if index in {11, 13}:
                maps.append(x)
        for stage, (squeeze, channels) in enumerate(_MOBILE_EXTRA):
            with b.scope(f"extra.{stage}.0"):
                x = conv_norm(b, x, squeeze, 1, activation="relu6")
            with b.scope(f"extra.{stage}.1"):
                x = conv_norm(b, x, channels, 3, stride=2, activation="relu6")
            maps.append(x)
    _heads(b, maps, p, kernel=1)
