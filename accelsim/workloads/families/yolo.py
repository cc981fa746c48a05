"""YOLO detectors: version 3 as in Darknet, version 8 as in the Ultralytics release, up to the raw
predictions.

Redmon and Farhadi, arXiv:1804.02767; the layer table of yolov8.yaml. Choosing boxes is not
modelled: its cost depends on the picture.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.vision import conv_norm, image_input
from accelsim.workloads.model import RunShape, family
from accelsim.workloads.parameters import ImageParameters

__all__ = ["YoloV3Parameters", "YoloV8Parameters"]


class YoloV3Parameters(ImageParameters):
    """YOLOv3 with three anchors per position."""


#: Channels and residual blocks of Darknet-53's stages.
_DARKNET = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))


@family("yolo-v3", YoloV3Parameters)
def write_yolo_v3(b: GraphBuilder, p: YoloV3Parameters, shape: RunShape) -> None:
    """Darknet-53 and three detection scales."""
    x = _leaky(b, image_input(b, p, shape), 32, 3, "backbone.stem")
    maps = []
    for stage, (channels, blocks) in enumerate(_DARKNET):
        x = _leaky(b, x, channels, 3, f"backbone.{stage}.down", stride=2)
        for block in range(blocks):
            inner = _leaky(b, x, channels // 2, 1, f"backbone.{stage}.{block}.0")
            x = b.add(_leaky(b, inner, channels, 3, f"backbone.{stage}.{block}.1"), x)
        maps.append(x)
    route: Tensor | None = None
    for scale, (width, lateral) in enumerate(zip((512, 256, 128), reversed(maps[2:]), strict=True)):
        if route is not None:
            route = b.upsample(_leaky(b, route, width, 1, f"head.{scale}.lateral"))
        route = _scale(
            b, lateral if route is None else b.concat([route, lateral]), width, scale, p.classes
        )


def _leaky(
    b: GraphBuilder, x: Tensor, channels: int, kernel: int, name: str, *, stride: int = 1
) -> Tensor:
    with b.scope(name):
        return conv_norm(b, x, channels, kernel, stride=stride, activation="leaky_relu")


def _scale(b: GraphBuilder, x: Tensor, width: int, scale: int, classes: int) -> Tensor:
    """Five alternating convolutions, then the prediction; returns what the next scale starts from."""
    for index in range(5):
        kernel, channels = (3, 2 * width) if index % 2 else (1, width)
        x = _leaky(b, x, channels, kernel, f"head.{scale}.{index}")
    with b.scope(f"head.{scale}.predict"):
        b.conv(_leaky(b, x, 2 * width, 3, "0"), 3 * (5 + classes), 1, bias=True)
    return x


class YoloV8Parameters(ImageParameters):
    """YOLOv8.

    Attributes:
        depth_multiplier: Scale of block repeats.
        width_multiplier: Scale of channel counts.
        max_channels: Limit of channels before scaling.
    """

    depth_multiplier: Annotated[float, Field(gt=0, le=4)]
    width_multiplier: Annotated[float, Field(gt=0, le=4)]
    max_channels: Annotated[int, Field(ge=64, le=4096)] = 1024

    def channels(self, base: int) -> int:
        """Scaled channels, a multiple of 8."""
        scaled = min(base, self.max_channels) * self.width_multiplier
        return -int(-scaled // 8) * 8

    def repeats(self, base: int) -> int:
        """Scaled repeats of a block."""
        return max(1, round(base * self.depth_multiplier))


#: Bins of the distribution each box side is predicted as.
_BINS = 16


@family("yolo-v8", YoloV8Parameters)
def write_yolo_v8(b: GraphBuilder, p: YoloV8Parameters, shape: RunShape) -> None:
    """Backbone, two-way feature pyramid, decoupled heads."""
    x = _silu(b, image_input(b, p, shape), p.channels(64), 3, "model.0", stride=2)
    maps = []
    for stage, (base, repeats) in enumerate(((128, 3), (256, 6), (512, 6), (1024, 3))):
        x = _silu(b, x, p.channels(base), 3, f"model.{2 * stage + 1}", stride=2)
        x = _split_block(
            b, x, x.shape[1], p.repeats(repeats), f"model.{2 * stage + 2}", residual=True
        )
        maps.append(x)
    _, small, middle, _ = maps
    large = _pyramid_pool(b, x, "model.9")
    wide, half, quarter, repeats = p.channels(1024), p.channels(512), p.channels(256), p.repeats(3)
    upper = _split_block(b, b.concat([b.upsample(large), middle]), half, repeats, "model.12")
    low = _split_block(b, b.concat([b.upsample(upper), small]), quarter, repeats, "model.15")
    down = _silu(b, low, quarter, 3, "model.16", stride=2)
    mid = _split_block(b, b.concat([down, upper]), half, repeats, "model.18")
    down = _silu(b, mid, half, 3, "model.19", stride=2)
    high = _split_block(b, b.concat([down, large]), wide, repeats, "model.21")
    _detect(b, [low, mid, high], p.classes, "model.22")


def _silu(
    b: GraphBuilder, x: Tensor, channels: int, kernel: int, name: str, *, stride: int = 1
) -> Tensor:
    with b.scope(name):
        return conv_norm(
            b, x, channels, kernel, stride=stride, activation="silu", names=("conv", "bn", "act")
        )


def _split_block(
    b: GraphBuilder, x: Tensor, channels: int, repeats: int, name: str, *, residual: bool = False
) -> Tensor:
    """Cross-stage block: half the channels pass through `repeats` bottlenecks, all results are
    concatenated.
    """
    hidden = channels // 2
    batch, _, height, width = x.shape
    with b.scope(name):
        x = _silu(b, x, 2 * hidden, 1, "cv1")
        parts = [b.part(x, batch, hidden, height, width) for _ in range(2)]
        for index in range(repeats):
            inner = _silu(b, parts[-1], hidden, 3, f"m.{index}.cv1")
            inner = _silu(b, inner, hidden, 3, f"m.{index}.cv2")
            parts.append(b.add(inner, parts[-1]) if residual else inner)
        return _silu(b, b.concat(parts), channels, 1, "cv2")


def _pyramid_pool(b: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """Three 5x5 max pools one after the other, concatenated."""
    with b.scope(name):
        channels = x.shape[1]
        parts = [_silu(b, x, channels // 2, 1, "cv1")]
        for _ in range(3):
            with b.scope("m"):
                parts.append(b.pool(parts[-1], 5, stride=1, padding=2))
        return _silu(b, b.concat(parts), channels, 1, "cv2")


def _detect(b: GraphBuilder, maps: list[Tensor], classes: int, name: str) -> None:
    first = maps[0].shape[1]
    widths = {"cv2": max(16, first // 4, 4 * _BINS), "cv3": max(first, min(classes, 100))}
    outputs = {"cv2": 4 * _BINS, "cv3": classes}
    with b.scope(name):
        boxes = 0
        for index, x in enumerate(maps):
            boxes += x.shape[2] * x.shape[3]
            for branch, width in widths.items():
                y = _silu(
                    b, _silu(b, x, width, 3, f"{branch}.{index}.0"), width, 3, f"{branch}.{index}.1"
                )
                with b.scope(f"{branch}.{index}.2"):
                    b.conv(y, outputs[branch], 1, bias=True)
        with b.scope("dfl"):  # expectation over the bins: softmax, then a fixed 1x1 convolution
            x = b.softmax(b.part(maps[0], maps[0].shape[0], 4 * boxes, _BINS))
            b.conv(b.view(x, x.shape[0], _BINS, 4, boxes), 1, 1)
