"""Detectors of the Vitis AI model zoo over known backbones: RefineDet, SSD over MobileNets,
Inception-v2, VGG and ResNets.

Zhang et al., CVPR 2018 (RefineDet320 over VGG-16); Liu et al., ECCV 2016 (SSD); Sandler et al.,
CVPR 2018 (SSDLite); TensorFlow's object detection models (SSD MobileNet v2, SSD Inception-v2,
RetinaNet over ResNet-50); MLPerf Inference v0.5 (SSD over ResNet-34 at 1200 pixels). Up to class
scores and box offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.edge_classifiers import (
    EdgeBlock,
    edge_block,
    mobilenet_v1_maps,
    mobilenet_v2_maps,
)
from accelsim.workloads.families.image_network import (
    RectangleParameters,
    chain,
    layer,
    pyramid_levels,
    rectangle_input,
)
from accelsim.workloads.families.inception import InceptionVariantParameters, inception_v2_maps
from accelsim.workloads.families.residual_variants import ResidualVariantParameters, residual_maps
from accelsim.workloads.model import RunShape, family

__all__ = ["EdgeDetectorParameters"]


class EdgeDetectorParameters(RectangleParameters):
    """A single-shot detector; `classes` counts the background.

    Attributes:
        network: Which one.
    """

    network: Literal[
        "refinedet",
        "ssd-mobilenet-v1",
        "ssd-mobilenet-v2",
        "ssdlite-mobilenet-v2",
        "ssd-inception-v2",
        "ssd-vgg",
        "ssd-resnet-34",
        "ssd-resnet-50-fpn",
        "superpoint",
        "ultrafast-lane",
    ]


@family("edge-detector", EdgeDetectorParameters)
def write_edge_detector(b: GraphBuilder, p: EdgeDetectorParameters, shape: RunShape) -> None:
    """Backbone and heads."""
    writers = {
        "refinedet": _write_refinedet,
        "ssd-mobilenet-v1": _write_ssd_mobilenet_v1,
        "ssd-mobilenet-v2": _write_ssd_mobilenet_v2,
        "ssdlite-mobilenet-v2": _write_ssdlite,
        "ssd-inception-v2": _write_ssd_inception_v2,
        "ssd-vgg": _write_ssd_vgg,
        "ssd-resnet-34": _write_ssd_resnet_34,
        "ssd-resnet-50-fpn": _write_ssd_resnet_50_fpn,
        "superpoint": _write_superpoint,
        "ultrafast-lane": _write_ultrafast_lane,
    }
    writers[p.network](b, rectangle_input(b, p, shape), p.classes)


def _output(
    b: GraphBuilder, x: Tensor, name: str, channels: int, kernel: int, **options: Any
) -> Tensor:
    with b.scope(name):
        return b.conv(x, channels, kernel, bias=True, **options)


def _heads(b: GraphBuilder, x: Tensor, name: str, anchors: int, kernel: int, classes: int) -> None:
    """Scores of `classes` and four offsets for each box."""
    _output(b, x, f"{name}.classes", anchors * classes, kernel)
    _output(b, x, f"{name}.boxes", anchors * 4, kernel)


# -- VGG


def _vgg_maps(b: GraphBuilder, x: Tensor) -> list[Tensor]:
    """VGG-16's stages; each map."""
    last = "512/3 512/3 512/3"
    stages = ("64/3 64/3", "128/3 128/3", "256/3 256/3 256/3", last, last)
    maps: list[Tensor] = []
    for index, stage in enumerate(stages):
        if index:
            with b.scope("pool"):
                x = b.pool(x, 2, ceil=True)
        x = chain(b, x, f"vgg.{index}", stage, norm=False)
        maps.append(x)
    return maps


def _fully_convolutional(b: GraphBuilder, x: Tensor) -> Tensor:
    """VGG-16's fully connected layers as convolutions."""
    return chain(b, x, "fc", "1024/3 1024", norm=False)


def _write_refinedet(b: GraphBuilder, x: Tensor, classes: int) -> None:
    """Anchors are refined on four maps, then classified on the maps a top-down path makes of
    them.
    """
    fourth, fifth = _vgg_maps(b, x)[3:]
    with b.scope("pool"):
        x = b.pool(fifth, 2)
    x = _fully_convolutional(b, x)
    maps = [fourth, fifth, x, chain(b, x, "conv6", "256 512/3s2", norm=False)]
    above: Tensor | None = None
    for level, fine in reversed(list(enumerate(maps))):
        _heads(b, fine, f"refine.{level}", 3, 3, 2)
        name = f"connect.{level}"
        y = _output(b, layer(b, fine, f"{name}.0", 256, norm=False), f"{name}.1", 256, 3)
        if above is not None:
            doubling = {"stride": 2, "padding": 0, "transposed": True}
            raised = _output(b, above, f"{name}.up", 256, 2, **doubling)
            y = b.add(y, b.part(raised, *y.shape))
        above = layer(b, b.activation(y), f"{name}.2", 256, norm=False)
        _heads(b, above, f"detect.{level}", 3, 3, classes)


# -- SSD

_ANCHORS = (3, 6, 6, 6, 6, 6)
#: Of the SSD paper and of MLPerf: 8,732 boxes at 300 pixels, 15,130 at 1200.
_PAPER_ANCHORS = (4, 6, 6, 6, 4, 4)
#: Further maps: each is squeezed to one width, then convolved to another.
_FURTHER_MAPS = ("256 512/3s2", "128 256/3s2", "128 256/3s2", "64 128/3s2")


def _with_further_maps(
    b: GraphBuilder, maps: Sequence[Tensor], further: Sequence[str] = _FURTHER_MAPS
) -> list[Tensor]:
    found = list(maps)
    for index, steps in enumerate(further):
        found.append(chain(b, found[-1], f"extra.{index}", steps))
    return found


def _write_box_heads(
    b: GraphBuilder,
    maps: Sequence[Tensor],
    classes: int,
    kernel: int,
    anchors: Sequence[int] = _ANCHORS,
) -> None:
    for index, (x, count) in enumerate(zip(maps, anchors, strict=True)):
        _heads(b, x, f"head.{index}", count, kernel, classes)


def _write_ssd_mobilenet_v1(b: GraphBuilder, x: Tensor, classes: int) -> None:
    maps = mobilenet_v1_maps(b, x)
    _write_box_heads(b, _with_further_maps(b, [maps[10], maps[12]]), classes, 1)


def _mobilenet_v2_pair(b: GraphBuilder, x: Tensor) -> list[Tensor]:
    """The expansion before MobileNet v2's last stride, and its last convolution."""
    maps = mobilenet_v2_maps(b, x)
    expanded = layer(b, maps[5], "expansion", 6 * maps[5].shape[1], 1)
    return [expanded, layer(b, maps[-1], "last", 1280, 1)]


def _write_ssd_mobilenet_v2(b: GraphBuilder, x: Tensor, classes: int) -> None:
    _write_box_heads(b, _with_further_maps(b, _mobilenet_v2_pair(b, x)), classes, 3)


def _write_ssdlite(b: GraphBuilder, x: Tensor, classes: int) -> None:
    maps = _mobilenet_v2_pair(b, x)
    for index, (inner, channels) in enumerate(((256, 512), (128, 256), (128, 256), (64, 128))):
        block = EdgeBlock(channels, 0, stride=2, inner=inner)
        maps.append(edge_block(b, maps[-1], f"extra.{index}", block))
    for index, (y, anchors) in enumerate(zip(maps, _ANCHORS, strict=True)):
        separate = layer(b, y, f"head.{index}.depthwise", y.shape[1], groups=y.shape[1])
        _heads(b, separate, f"head.{index}", anchors, 1, classes)


def _write_ssd_inception_v2(b: GraphBuilder, x: Tensor, classes: int) -> None:
    maps = inception_v2_maps(b, x, InceptionVariantParameters(stem="separable"))
    _write_box_heads(b, _with_further_maps(b, maps), classes, 3)


def _write_ssd_vgg(b: GraphBuilder, x: Tensor, classes: int) -> None:
    maps = _vgg_maps(b, x)
    with b.scope("pool"):
        x = b.pool(maps[4], 3, stride=1, padding=1)
    further = ("256 512/3s2", "128 256/3s2", "128 256/3v", "128 256/3v")
    maps = _with_further_maps(b, [maps[3], _fully_convolutional(b, x)], further)
    _write_box_heads(b, maps, classes, 3, _PAPER_ANCHORS)


def _write_ssd_resnet_34(b: GraphBuilder, x: Tensor, classes: int) -> None:
    """The third stage keeps the second's size; the fourth is left out."""
    x = residual_maps(b, x, ResidualVariantParameters(block="basic", depths=(3, 4)))[-1]
    for index in range(6):
        with b.scope(f"layer3.{index}"):
            shortcut = x if index else layer(b, x, "shortcut", 256, 1, activation="")
            y = layer(b, layer(b, x, "conv1", 256), "conv2", 256, activation="")
            x = b.activation(b.add(y, shortcut))
    further = ("256 512/3s2", "256 512/3s2", "128 256/3s2", "128 256/3s2v", "128 256/3v")
    maps = _with_further_maps(b, [x], further)
    for index, (y, anchors) in enumerate(zip(maps, _PAPER_ANCHORS, strict=True)):
        _output(b, y, f"head.{index}", anchors * (classes + 4), 3, stride=3, padding=1)


def _write_ssd_resnet_50_fpn(b: GraphBuilder, x: Tensor, classes: int) -> None:
    """Five pyramid levels with heads of four 3x3 convolutions each."""
    backbone = ResidualVariantParameters(
        block="bottleneck", depths=(3, 4, 6, 3), stride_in="middle"
    )
    levels = pyramid_levels(b, residual_maps(b, x, backbone)[1:], 256)
    pyramid = levels[:1]
    for index, y in enumerate(levels[1:], start=1):
        pyramid.append(layer(b, y, f"smooth.{index}", 256))
    for index in range(2):
        pyramid.insert(0, layer(b, pyramid[0], f"extra.{index}", 256, stride=2))
    for index, level in enumerate(pyramid):
        for head, width in (("classes", classes), ("boxes", 4)):
            y = chain(b, level, f"{head}.{index}", "256/3 256/3 256/3 256/3")
            _output(b, y, f"{head}.{index}.out", 6 * width, 3)


def _write_superpoint(b: GraphBuilder, x: Tensor, classes: int) -> None:
    """DeTone et al., CVPRW 2018: a VGG encoder, interest points and descriptors."""
    stages = "64/3 64/3 pool/2s2 64/3 64/3 pool/2s2 128/3 128/3 pool/2s2 128/3 128/3"
    x = chain(b, x, "encoder", stages, norm=False)
    for head, width in (("points", 65), ("descriptors", classes)):
        _output(b, layer(b, x, f"{head}.0", 256, norm=False), f"{head}.1", width, 1)


def _write_ultrafast_lane(b: GraphBuilder, x: Tensor, classes: int) -> None:
    """Qin et al., ECCV 2020: ResNet-18, then two fully connected layers choose a column for each
    row anchor and lane.
    """
    backbone = ResidualVariantParameters(block="basic", depths=(2, 2, 2, 2))
    x = _output(b, residual_maps(b, x, backbone)[-1], "pool", 8, 1)
    x = b.view(x, x.shape[0], x.elements // x.shape[0])
    with b.scope("cls.0"):
        x = b.activation(b.linear(x, 2048))
    with b.scope("cls.2"):
        b.linear(x, classes)
