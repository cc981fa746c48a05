"""Detectors of the Vitis AI model zoo over known backbones: RefineDet, SSD over MobileNet v2,
Inception-v2, VGG and ResNets.

Zhang et al., CVPR 2018 (RefineDet320 over VGG-16); Liu et al., ECCV 2016 (SSD); Sandler et al.,
CVPR 2018 (SSDLite); TensorFlow's object detection models (SSD MobileNet v2, SSD Inception-v2,
RetinaNet over ResNet-50); MLPerf Inference v0.5 (SSD over ResNet-34 at 1200 pixels). Up to class
scores and box offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.edge_classifiers import edge_block, mobilenet_v2_maps
from accelsim.workloads.families.image_network import (
    RectangleParameters,
    layer,
    rectangle_input,
    upsample_add,
)
from accelsim.workloads.families.inception_variants import (
    InceptionVariantParameters,
    inception_v2_maps,
)
from accelsim.workloads.families.residual_variants import ResidualVariantParameters, residual_maps
from accelsim.workloads.model import RunShape, family

__all__ = ["EdgeDetectorParameters"]


class EdgeDetectorParameters(RectangleParameters):
    """A single-shot detector; `classes` counts the background.

    Attributes:
        network: Which one.
    """

    network: Literal[
        "refinedet", "ssd-mobilenet-v1", "ssd-mobilenet-v2", "ssdlite-mobilenet-v2", "ssd-inception-v2", "ssd-vgg",
        "ssd-resnet-34", "ssd-resnet-50-fpn", "superpoint", "ultrafast-lane",
    ]  # fmt: skip


@family("edge-detector", EdgeDetectorParameters)
def write_edge_detector(b: GraphBuilder, p: EdgeDetectorParameters, shape: RunShape) -> None:
    """Backbone and heads."""
    writers = {
        "refinedet": _refinedet,
        "ssd-mobilenet-v1": _ssd_mobilenet_v1,
        "ssd-mobilenet-v2": _ssd_mobilenet_v2,
        "ssdlite-mobilenet-v2": _ssdlite,
        "ssd-inception-v2": _ssd_inception_v2,
        "ssd-vgg": _ssd_vgg,
        "ssd-resnet-34": _ssd_resnet_34,
        "ssd-resnet-50-fpn": _ssd_resnet_50_fpn,
        "superpoint": _superpoint,
        "ultrafast-lane": _ultrafast_lane,
    }
    writers[p.network](b, rectangle_input(b, p, shape), p)


def _heads(
    b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters, name: str, anchors: int, kernel: int
) -> None:
    for head, width in (("classes", p.classes), ("boxes", 4)):
        with b.scope(f"{name}.{head}"):
            b.conv(x, anchors * width, kernel, bias=True)


def _plain(
    b: GraphBuilder, x: Tensor, name: str, channels: int, kernel: int = 3, *, stride: int = 1
) -> Tensor:
    """Convolution with bias and ReLU, as VGG has it."""
    with b.scope(name):
        return b.activation(b.conv(x, channels, kernel, stride=stride, bias=True))


def _vgg(b: GraphBuilder, x: Tensor) -> list[Tensor]:
    """VGG-16 with its fully connected layers as convolutions; the fourth, the fifth and the last
    map.
    """
    maps = []
    for stage, (channels, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        if stage:
            with b.scope("pool"):
                x = b.pool(x, 2, ceil=True)
        for index in range(count):
            x = _plain(b, x, f"vgg.{stage}.{index}", channels)
        maps.append(x)
    return [*maps[3:], x]


def _refinedet(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    """Anchors are refined on four maps, then classified on the maps a top-down path makes of them."""
    fourth, fifth, x = _vgg(b, x)
    with b.scope("pool"):
        x = b.pool(x, 2)
    x = _plain(b, _plain(b, x, "fc6", 1024), "fc7", 1024, 1)
    maps = [fourth, fifth, x]
    maps.append(_plain(b, _plain(b, x, "conv6_1", 256, 1), "conv6_2", 512, stride=2))
    above: Tensor | None = None
    for level, fine in reversed(list(enumerate(maps))):
        _anchor_heads(b, fine, f"refine.{level}", 2)
        y = _plain(b, fine, f"connect.{level}.0", 256)
        with b.scope(f"connect.{level}.1"):
            y = b.conv(y, 256, 3, bias=True)
        if above is not None:
            with b.scope(f"connect.{level}.up"):
                raised = b.conv(above, 256, 2, stride=2, padding=0, bias=True, transposed=True)
            y = b.add(y, b.part(raised, *y.shape))
        above = _plain(b, b.activation(y), f"connect.{level}.2", 256)
        _heads(b, above, p, f"detect.{level}", 3, 3)


def _anchor_heads(b: GraphBuilder, x: Tensor, name: str, classes: int) -> None:
    for head, width in (("objectness", classes), ("boxes", 4)):
        with b.scope(f"{name}.{head}"):
            b.conv(x, 3 * width, 3, bias=True)


_ANCHORS = (3, 6, 6, 6, 6, 6)
#: Of the SSD paper and of MLPerf: 8,732 boxes at 300 pixels, 15,130 at 1200.
_PAPER_ANCHORS = (4, 6, 6, 6, 4, 4)


class _Extra(NamedTuple):
    """A further map: squeezed to one width, then convolved to another."""

    squeeze: int
    channels: int
    stride: int = 2
    padding: int = 1


_FOUR_EXTRAS = (_Extra(256, 512), _Extra(128, 256), _Extra(128, 256), _Extra(64, 128))


def _extras(
    b: GraphBuilder, maps: list[Tensor], extras: Sequence[_Extra] = _FOUR_EXTRAS
) -> list[Tensor]:
    x = maps[-1]
    for index, (squeeze, channels, stride, padding) in enumerate(extras):
        x = layer(b, x, f"extra.{index}.0", squeeze, 1)
        x = layer(b, x, f"extra.{index}.1", channels, 3, stride=stride, padding=padding)
        maps.append(x)
    return maps


def _box_heads(
    b: GraphBuilder,
    maps: Sequence[Tensor],
    p: EdgeDetectorParameters,
    kernel: int,
    anchors: Sequence[int] = _ANCHORS,
) -> None:
    for index, (x, count) in enumerate(zip(maps, anchors, strict=True)):
        _heads(b, x, p, f"head.{index}", count, kernel)


_V1 = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)


def _ssd_mobilenet_v1(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    x = layer(b, x, "stem", 32, 3, stride=2)
    maps = []
    for index, (channels, stride) in enumerate(_V1):
        x = layer(b, x, f"{index}.depthwise", x.shape[1], 3, stride=stride, groups=x.shape[1])
        x = layer(b, x, f"{index}.pointwise", channels, 1)
        if index in {10, 12}:
            maps.append(x)
    _box_heads(b, _extras(b, maps), p, 1)


def _v2_pair(b: GraphBuilder, x: Tensor) -> list[Tensor]:
    """The expansion before MobileNet v2's last stride, and its last convolution."""
    maps = mobilenet_v2_maps(b, x)
    expanded = layer(b, maps[5], "expansion", 6 * maps[5].shape[1], 1)
    return [expanded, layer(b, maps[-1], "last", 1280, 1)]


def _ssd_mobilenet_v2(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    maps = _extras(b, _v2_pair(b, x))
    _box_heads(b, maps, p, 3)


def _ssdlite(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    maps = _v2_pair(b, x)
    x = maps[-1]
    for index, (squeeze, channels, stride, _) in enumerate(_FOUR_EXTRAS):
        x = edge_block(b, x, f"extra.{index}", squeeze, channels, stride)
        maps.append(x)
    for index, y in enumerate(maps):
        separate = layer(b, y, f"head.{index}.depthwise", y.shape[1], 3, groups=y.shape[1])
        _heads(b, separate, p, f"head.{index}", _ANCHORS[index], 1)


def _ssd_inception_v2(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    maps = inception_v2_maps(b, x, InceptionVariantParameters(stem="separable"))
    _box_heads(b, _extras(b, maps), p, 3)


def _ssd_vgg(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    fourth, _, x = _vgg(b, x)
    with b.scope("pool"):
        x = b.pool(x, 3, stride=1, padding=1)
    x = _plain(b, _plain(b, x, "fc6", 1024), "fc7", 1024, 1)
    extras = (_Extra(256, 512), _Extra(128, 256), _Extra(128, 256, 1, 0), _Extra(128, 256, 1, 0))
    _box_heads(b, _extras(b, [fourth, x], extras), p, 3, _PAPER_ANCHORS)


def _ssd_resnet_34(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    """The third stage keeps the second's size; the fourth is left out."""
    layers = ResidualVariantParameters(block="basic", depths=(3, 4))
    x = residual_maps(b, x, layers)[-1]
    for index in range(6):
        with b.scope(f"layer3.{index}"):
            shortcut = x if index else layer(b, x, "shortcut", 256, 1, activation=None)
            y = layer(b, layer(b, x, "conv1", 256, 3), "conv2", 256, 3, activation=None)
            x = b.activation(b.add(y, shortcut))
    extras = (
        _Extra(256, 512),
        _Extra(256, 512),
        _Extra(128, 256),
        _Extra(128, 256, 2, 0),
        _Extra(128, 256, 1, 0),
    )
    for index, (y, anchors) in enumerate(zip(_extras(b, [x], extras), _PAPER_ANCHORS, strict=True)):
        with b.scope(f"head.{index}"):
            b.conv(y, anchors * (p.classes + 4), 3, stride=3, padding=1, bias=True)


def _ssd_resnet_50_fpn(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    """Five pyramid levels with heads of four 3x3 convolutions each."""
    maps = residual_maps(
        b, x, ResidualVariantParameters(block="bottleneck", depths=(3, 4, 6, 3), stride_in="middle")
    )
    levels: list[Tensor] = []
    for index in (3, 2, 1):
        with b.scope(f"lateral.{index}"):
            y = b.conv(maps[index], 256, 1, bias=True)
        levels.append(upsample_add(b, levels[-1], y) if levels else y)
    pyramid = [layer(b, y, f"smooth.{i}", 256, 3) if i else y for i, y in enumerate(levels)]
    for index in range(2):
        pyramid.insert(0, layer(b, pyramid[0], f"extra.{index}", 256, 3, stride=2))
    for index, level in enumerate(pyramid):
        for head, width in (("classes", p.classes), ("boxes", 4)):
            y = level
            for depth in range(4):
                y = layer(b, y, f"{head}.{index}.{depth}", 256, 3)
            with b.scope(f"{head}.{index}.out"):
                b.conv(y, 6 * width, 3, bias=True)


def _superpoint(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    """DeTone et al., CVPRW 2018: a VGG encoder, interest points and descriptors."""
    for stage, channels in enumerate((64, 64, 128, 128)):
        if stage:
            with b.scope("pool"):
                x = b.pool(x, 2)
        for index in range(2):
            x = _plain(b, x, f"encoder.{stage}.{index}", channels)
    for head, width in (("points", 65), ("descriptors", p.classes)):
        y = _plain(b, x, f"{head}.0", 256)
        with b.scope(f"{head}.1"):
            b.conv(y, width, 1, bias=True)


def _ultrafast_lane(b: GraphBuilder, x: Tensor, p: EdgeDetectorParameters) -> None:
    """Qin et al., ECCV 2020: ResNet-18, then two fully connected layers choose a column for each
    row anchor and lane.
    """
    x = residual_maps(b, x, ResidualVariantParameters(block="basic", depths=(2, 2, 2, 2)))[-1]
    with b.scope("pool"):
        x = b.conv(x, 8, 1, bias=True)
    x = b.view(x, x.shape[0], x.elements // x.shape[0])
    with b.scope("cls.0"):
        x = b.activation(b.linear(x, 2048))
    with b.scope("cls.2"):
        b.linear(x, p.classes)
