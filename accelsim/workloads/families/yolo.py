"""YOLOv8 as in the Ultralytics release, up to the raw predictions.

The layer table of yolov8.yaml. Choosing boxes is not modelled: its cost depends on the picture.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import layer
from accelsim.workloads.families.vision import image_input
from accelsim.workloads.family_parameters import ImageParameters, Multiplier
from accelsim.workloads.model import RunShape, family

__all__ = ["YoloV8Parameters"]


class YoloV8Parameters(ImageParameters):
    """YOLOv8.

    Attributes:
        depth_multiplier: Scale of block repeats.
        width_multiplier: Scale of channel counts.
        max_channels: Limit of channels before scaling.
    """

    depth_multiplier: Multiplier
    width_multiplier: Multiplier
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
    names = ("conv", "bn", "act")
    return layer(b, x, name, channels, kernel, stride=stride, activation="silu", names=names)


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
                y = _silu(b, x, width, 3, f"{branch}.{index}.0")
                y = _silu(b, y, width, 3, f"{branch}.{index}.1")
                with b.scope(f"{branch}.{index}.2"):
                    b.conv(y, outputs[branch], 1, bias=True)
        with b.scope("dfl"):  # expectation over the bins: softmax, then a fixed 1x1 convolution
            x = b.softmax(b.part(maps[0], maps[0].shape[0], 4 * boxes, _BINS))
            b.conv(b.view(x, x.shape[0], _BINS, 4, boxes), 1, 1)
