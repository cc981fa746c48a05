"""YOLOv8 as in the Ultralytics release, up to the raw predictions.

The layer table of yolov8.yaml. Choosing boxes is not modelled: its cost depends on the picture.
"""

from __future__ import annotations

from math import prod
from typing import Annotated

from pydantic import Field

from accelsim.plain import Document
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


#: Bins of the distribution each box side is predicted as.
_BINS = 16


def yolo_sizes(width: float, depth: float, max_channels: int = 1024) -> Document:
    """Scaled channels c64, c128, ..., multiples of 8, and repeats n3, n6, n9 of a YOLO's blocks.

    Args:
        width: Scale of channel counts.
        depth: Scale of block repeats.
        max_channels: Limit of channels before scaling.
    """
    sizes: Document = {
        f"c{base}": -int(-min(base, max_channels) * width // 8) * 8
        for base in (64, 128, 256, 384, 512, 768, 1024)
    }
    return sizes | {f"n{base}": max(1, round(base * depth)) for base in (3, 6, 9)}


@family("yolo-v8", YoloV8Parameters)
def write_yolo_v8(b: GraphBuilder, p: YoloV8Parameters, shape: PassShape) -> None:
    """Backbone, two-way feature pyramid, decoupled heads."""
    values = yolo_sizes(p.width_multiplier, p.depth_multiplier, p.max_channels)
    first = values["c256"]
    for base in (3, 6):
        blocks = (f"y{index}" for index in range(values[f"n{base}"]))
        values[f"parts{base}"] = ["half", "half", *blocks]
    values |= {
        "pooled": values["c1024"] // 2,
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
