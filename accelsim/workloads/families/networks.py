"""Image networks that files of `workloads/networks` hold in layer notation (see `image_network`).

Darknet detectors (YOLOv2 to v4), YOLOv8, Inception networks, single-shot detectors, and the
classifiers, detectors and dense prediction networks of accelerators' model zoos. Detectors end at
the raw predictions, class scores and box offsets: choosing boxes is no matrix arithmetic and its
cost depends on the picture. Auxiliary classifiers only exist while training from scratch and are
left out.

Residual networks as frameworks other than torchvision build them: He et al., CVPR 2016: the
original strides in a block's first 1x1 convolution (Caffe, Keras); TensorFlow-Slim strides in the
3x3 convolution of a stage's *last* block, which shrinks maps earlier; version 2 (ECCV 2016)
normalises before each convolution. Liu et al., CVPR 2017 (SphereFace): plain residual pairs behind
a striding convolution per stage. YOLOv8 is that of the Ultralytics release (yolov8.yaml).
"""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

from pydantic import Field

from accelsim.plain import Document
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import BACKBONES, write_network
from accelsim.workloads.families.mobile import mobilenet_v1_maps, round_channels, scaled_sizes
from accelsim.workloads.families.vision import (
    Depths,
    classify,
    image_input,
    network_family,
    residual_maps,
)
from accelsim.workloads.family_parameters import (
    Depth,
    ImageParameters,
    Multiplier,
    RectangleParameters,
)
from accelsim.workloads.model import PassShape, family


class ResidualVariantParameters(RectangleParameters):
    """A residual network.

    Attributes:
        block: "basic" (two 3x3) or "bottleneck" (1x1, 3x3, 1x1).
        depths: Blocks per stage.
        stride_in: Convolution of a bottleneck that strides: its "first" or its "middle" one.
        stride_last_block: Whether a stage strides in its last block (TensorFlow-Slim) rather than
            its first.
        preactivation: Version 2 of the network.
    """

    block: Literal["basic", "bottleneck"]
    depths: Depths
    stride_in: Literal["first", "middle"] = "first"
    stride_last_block: bool = False
    preactivation: bool = False


@family("resnet-variant", ResidualVariantParameters)
def write_resnet_variant(b: GraphBuilder, p: ResidualVariantParameters, shape: PassShape) -> None:
    """Stem, stages, classifier."""
    classify(b, _maps(b, image_input(b, p, shape), p)[-1], p.classes)


def _maps(b: GraphBuilder, x: Tensor, p: ResidualVariantParameters) -> list[Tensor]:
    """Stem and stages; returns each stage's output."""
    values: Document = {
        "block": p.block if p.block == "basic" else f"bottleneck-{p.stride_in}",
        "after_sum": ["bn"] if p.preactivation else [],
        "stride_last_block": p.stride_last_block,
    }
    return residual_maps(b, x, "residual", p.depths, **values)


# Of parameters as the step of a file gives them.
BACKBONES["residual"] = lambda b, x, **options: _maps(b, x, ResidualVariantParameters(**options))


class SphereFaceParameters(RectangleParameters):
    """A face embedding network; `classes` is the width of the embedding.

    Attributes:
        depths: Residual pairs per stage.
    """

    depths: Depths


def _sphereface_sizes(p: SphereFaceParameters) -> Document:
    stages = list(range(len(p.depths)))
    widths = [64 << stage for stage in stages]
    return {"stages": stages, "widths": widths, "depths": list(p.depths)}


network_family("sphereface", SphereFaceParameters, "sphereface", _sphereface_sizes)


class YoloParameters(ImageParameters):
    """A YOLO of Ultralytics.

    Attributes:
        depth_multiplier: Scale of block repeats.
        width_multiplier: Scale of channel counts.
        max_channels: Limit of channels before scaling.
    """

    depth_multiplier: Multiplier
    width_multiplier: Multiplier
    max_channels: Annotated[int, Field(ge=64, le=4096)] = 1024


#: Bins of the distribution each box side is predicted as.
_BINS = 16


def yolo_sizes(width: float, depth: float, max_channels: int = 1024) -> Document:
    """Scaled channels c64, c128, ..., multiples of 8, and repeats n2, n3, ... of a YOLO's blocks.

    Jocher et al., Ultralytics YOLOv8, 2023 (nn/tasks.py, parse_model).

    Args:
        width: Scale of channel counts.
        depth: Scale of block repeats.
        max_channels: Limit of channels before scaling.
    """
    sizes: Document = {
        f"c{base}": -int(-min(base, max_channels) * width // 8) * 8
        for base in (64, 128, 256, 384, 512, 768, 1024)
    }
    return sizes | {f"n{base}": max(1, round(base * depth)) for base in (2, 3, 6, 9)}


@family("yolo-v8", YoloParameters)
def write_yolo_v8(b: GraphBuilder, p: YoloParameters, shape: PassShape) -> None:
    """Backbone, two-way feature pyramid, decoupled heads.

    Jocher et al., Ultralytics YOLOv8, 2023.
    """
    values = yolo_sizes(p.width_multiplier, p.depth_multiplier, p.max_channels)
    _write_yolo(b, p, shape, "yolo-v8", {**values, "head": "model.22"})


class Yolo11Parameters(YoloParameters):
    """A YOLO11.

    Attributes:
        deep: Whether every cross-stage block has cross-stage blocks inside (m, l and x).
    """

    deep: bool = False


@family("yolo-11", Yolo11Parameters)
def write_yolo_11(b: GraphBuilder, p: Yolo11Parameters, shape: PassShape) -> None:
    """YOLOv8 with narrower blocks, attention and separable class heads.

    Jocher and Qiu, Ultralytics YOLO11, 2024.
    """
    values = yolo_sizes(p.width_multiplier, p.depth_multiplier, p.max_channels)
    for base in (256, 512, 1024):
        for name, by in (("fourth", 4), ("eighth", 8)):
            values[f"{name}{base}"] = values[f"c{base}"] // by
    values |= {"shallow": "deep" if p.deep else "shallow", "head": "model.23"}
    _write_yolo(b, p, shape, "yolo-11", values)


def _write_yolo(
    b: GraphBuilder, p: YoloParameters, shape: PassShape, network: str, values: Document
) -> None:
    """Blocks, heads, and the expectation over the bins of each box side.

    Jocher et al., Ultralytics YOLOv8, 2023 (nn/modules/head.py, Detect); bins are Li et al. 2020,
    arXiv:2006.04388.
    """
    finest_width, attended_width = values["c256"], values["c1024"] // 2
    parts = {
        f"parts{base}": ["half", "half", *(f"y{index}" for index in range(values[f"n{base}"]))]
        for base in (2, 3, 6)
    }
    values = {
        **values,
        **parts,
        "pooled": attended_width,
        "attended_width": attended_width,
        "classes": p.classes,
        "box_width": max(16, finest_width // 4, 4 * _BINS),
        "class_width": max(finest_width, min(p.classes, 100)),
    }
    maps: dict[str, Tensor] = {}
    write_network(b, image_input(b, p, shape), network, maps=maps, **values)
    levels = [maps[f"level{index}"] for index in range(3)]
    boxes = sum(prod(x.shape[2:]) for x in levels)
    # Expectation over the bins: softmax, then a fixed 1x1 convolution.
    with b.scope(f"{values['head']}.dfl"):
        x = b.softmax(b.part(levels[0], shape.batch, 4 * boxes, _BINS))
        b.conv(b.view(x, shape.batch, _BINS, 4, boxes), 1, 1)


#: Pools of GoogLeNet in torchvision, which round up, and those of the other early networks.
_ROUNDED_POOLS: Document = {"pool": "pool/3s2vc", "late_pool": "pool/2s2vc"}
_PADDED_POOLS: Document = {"pool": "pool/3s2", "late_pool": "pool/3s2"}


class SquareParameters(ImageParameters):
    """A network of square images: image size and classes."""


class InceptionVariantParameters(RectangleParameters):
    """An Inception network.

    Attributes:
        stem: "plain" starts with a 7x7 convolution, "separable" with TensorFlow-Slim's separable
            one (v2 only).
        double_window: Window of GoogLeNet's third branch: 5 in the paper, 3 in TensorFlow-Slim (v1
            only).
    """

    stem: Literal["plain", "separable"] = "plain"
    double_window: Literal[3, 5] = 5


# As torchvision has it, whose 5x5 windows are 3x3.
network_family(
    "googlenet",
    SquareParameters,
    "inception-v1",
    lambda _: {"window": 3, **_ROUNDED_POOLS},
    is_classifier=True,
)
network_family("inception-v3", SquareParameters, "inception-v3", is_classifier=True)
for _name in ("inception-v1", "inception-v2", "inception-v4", "inception-resnet-v2"):
    network_family(
        _name,
        InceptionVariantParameters,
        _name,
        lambda p: {"stem": p.stem, "window": p.double_window, **_PADDED_POOLS},
        is_classifier=True,
    )


class DarknetParameters(RectangleParameters):
    """A Darknet detector; `classes` of the data set.

    Attributes:
        version: "2", "3", "3-tiny" or "4".
        anchors: Boxes per position and scale.
    """

    version: Literal["2", "3", "3-tiny", "4"]
    anchors: Annotated[int, Field(ge=1, le=64)] = 3


network_family(
    "darknet",
    DarknetParameters,
    "darknet-{p.version}",
    lambda p: {"outputs": p.anchors * (5 + p.classes)},
)
# Three anchors per position.
network_family("yolo-v3", SquareParameters, "darknet-3", lambda p: {"outputs": 3 * (5 + p.classes)})


class SsdParameters(ImageParameters):
    """A single-shot detector; `classes` counts the background.

    Attributes:
        anchors: Default boxes per position of each feature map.
    """

    anchors: Annotated[
        tuple[Annotated[int, Field(ge=1, le=64)], ...],
        Field(strict=False, min_length=6, max_length=6),
    ]


for _name, _file in (
    ("ssd-vgg16", "ssd300-vgg-16"),
    ("ssd-mobilenet-v1", "ssd300-mobilenet-v1"),
    ("ssd-resnet34", "ssd1200-resnet-34"),
):
    network_family(
        _name,
        SsdParameters,
        _file,
        lambda p: {"anchors": list(p.anchors)},
    )


class EdgeClassifierParameters(RectangleParameters):
    """A small classifier made for accelerators without squeeze-and-excite.

    Attributes:
        network: Which one.
        width_multiplier: Scale of channel counts.
        depth_multiplier: Scale of block repeats.
    """

    network: Literal[
        "mobilenet-edge",
        "efficientnet-edge",
        "efficientnet-lite",
        "mobilenet-v1",
        "mobilenet-v2",
        "squeezenet",
    ]
    width_multiplier: Multiplier = 1.0
    depth_multiplier: Multiplier = 1.0


@family("edge-classifier", EdgeClassifierParameters)
def write_edge_classifier(b: GraphBuilder, p: EdgeClassifierParameters, shape: PassShape) -> None:
    """Stem, blocks, classifier."""
    values = scaled_sizes(p.width_multiplier, p.depth_multiplier)
    values |= {"dilation": 1, "head": max(1280, round_channels(1280 * p.width_multiplier))}
    x = image_input(b, p, shape)
    network = p.network
    if network == "mobilenet-v1":
        x = mobilenet_v1_maps(b, x, p.width_multiplier)[-1]
    else:
        x = write_network(b, x, network, classes=p.classes, **values)
    if network != "squeezenet":  # whose classifier is a convolution
        classify(b, x, p.classes)


class EdgeDetectorParameters(RectangleParameters):
    """A detector of the Vitis AI model zoo; `classes` counts the background.

    Attributes:
        network: Which one.
        width_multiplier: Scale of a YOLO's channel counts.
        depth_multiplier: Scale of its block repeats.
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
        "openpose",
        "densebox",
        "retinaface",
        "yolo-v4-csp",
        "yolo-v5",
        "yolo-v5-p6",
        "yolo-v6",
        "yolo-x",
    ]
    width_multiplier: Multiplier = 1.0
    depth_multiplier: Multiplier = 1.0


def _detector_sizes(p: EdgeDetectorParameters) -> Document:
    """Sizes of a detector; YOLOX has as many blocks in its second stage as in its third.

    A YOLO predicts three boxes per position, each of four offsets, a confidence and the scores of
    the classes (Redmon and Farhadi 2018, arXiv:1804.02767).
    """
    values = scaled_sizes() | {"dilation": 1, **_PADDED_POOLS}
    if not p.network.startswith("yolo"):
        return values | {"outputs": p.classes + 4}
    values |= yolo_sizes(p.width_multiplier, p.depth_multiplier)
    values |= {"n6": values["n9"]} if p.network == "yolo-x" else {}
    return values | {"outputs": 3 * (p.classes + 5)}


network_family("edge-detector", EdgeDetectorParameters, "{p.network}", _detector_sizes)


class EdgeSegmenterParameters(RectangleParameters):
    """A network of the Vitis AI model zoo that predicts for each pixel.

    Attributes:
        network: Which one.
        base_channels: Channels of the first level of a U-Net or of SESR.
        raised_fraction: Channels that a U-Net's transposed convolutions give, over those of the
            level they raise to.
    """

    network: Literal["erfnet", "semantic-fpn", "deeplab-mobilenet-v2", "sesr", "unet"]
    base_channels: Depth = 16
    raised_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0


def _segmenter_sizes(p: EdgeSegmenterParameters) -> Document:
    values = scaled_sizes() | {"dilation": 1, "first_channels": 16 - p.image_channels}
    for level in range(5):
        width = p.base_channels << level
        values |= {f"c{level}": width, f"r{level}": max(int(width * p.raised_fraction), 1)}
    return values


network_family("edge-segmenter", EdgeSegmenterParameters, "{p.network}", _segmenter_sizes)
