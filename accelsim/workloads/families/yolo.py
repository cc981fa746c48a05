"""YOLOv8 as in the Ultralytics release, up to the raw predictions.

The layer table of yolov8.yaml. Choosing boxes is not modelled: its cost depends on the picture.
"""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import write_network
from accelsim.workloads.families.vision import image_input
from accelsim.workloads.family_parameters import ImageParameters, Multiplier
from accelsim.workloads.model import PassShape, family


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
def write_yolo_v8(b: GraphBuilder, p: YoloV8Parameters, shape: PassShape) -> None:
    """Backbone, two-way feature pyramid, decoupled heads."""
    first = p.channels(256)
    values: dict[str, Any] = {f"c{base}": p.channels(base) for base in (64, 128, 256, 512, 1024)}
    for base in (3, 6):
        count = values[f"n{base}"] = p.repeats(base)
        values[f"parts{base}"] = ["half", "half", *(f"y{index}" for index in range(count))]
    values |= {
        "pooled": p.channels(1024) // 2,
        "classes": p.classes,
        "box_width": max(16, first // 4, 4 * _BINS),
        "class_width": max(first, min(p.classes, 100)),
    }
    maps: dict[str, Tensor] = {}
    write_network(b, image_input(b, p, shape), "yolo-v8", maps=maps, **values)
    levels = [maps[f"level{index}"] for index in range(3)]
    boxes = sum(prod(x.shape[2:]) for x in levels)
    with b.scope(
        "model.22.dfl"
    ):  # expectation over the bins: softmax, then a fixed 1x1 convolution
        x = b.softmax(b.part(levels[0], shape.batch, 4 * boxes, _BINS))
        b.conv(b.view(x, shape.batch, _BINS, 4, boxes), 1, 1)
