"""Darknet detectors: YOLOv2, YOLOv3 and its tiny form, YOLOv4.

Redmon and Farhadi, CVPR 2017 (v2) and arXiv:1804.02767 (v3); Bochkovskiy et al., arXiv:2004.10934
(v4, with leaky ReLU in place of mish, which fixed-point overlays lack). Up to the raw predictions;
choosing boxes depends on the picture.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import RectangleParameters, chain, rectangle_input
from accelsim.workloads.families.vision import image_input
from accelsim.workloads.family_parameters import ImageParameters
from accelsim.workloads.model import RunShape, family

__all__ = ["DarknetParameters", "YoloV3Parameters"]


class DarknetParameters(RectangleParameters):
    """A Darknet detector; `classes` of the data set.

    Attributes:
        version: "2", "3", "3-tiny" or "4".
        anchors: Boxes per position and scale.
    """

    version: Literal["2", "3", "3-tiny", "4"]
    anchors: Annotated[int, Field(ge=1, le=64)] = 3


class YoloV3Parameters(ImageParameters):
    """YOLOv3 with three anchors per position."""


@family("darknet", DarknetParameters)
def write_darknet(b: GraphBuilder, p: DarknetParameters, shape: RunShape) -> None:
    """The whole detector."""
    writers = {"2": _write_v2, "3": _write_v3, "3-tiny": _write_v3_tiny, "4": _write_v4}
    writers[p.version](b, rectangle_input(b, p, shape), p.anchors * (5 + p.classes))


@family("yolo-v3", YoloV3Parameters)
def write_yolo_v3(b: GraphBuilder, p: YoloV3Parameters, shape: RunShape) -> None:
    """Darknet-53 and three detection scales."""
    _write_v3(b, image_input(b, p, shape), 3 * (5 + p.classes))


def _leaky(b: GraphBuilder, x: Tensor, name: str, notation: str) -> Tensor:
    return chain(b, x, name, notation, activation="leaky_relu")


def _alternating(narrow: int, count: int) -> str:
    """1x1 to `narrow` channels and 3x3 to twice as many, in turn."""
    pair = (f"{narrow}", f"{2 * narrow}/3")
    return " ".join(pair[index % 2] for index in range(count))


def _predict(b: GraphBuilder, x: Tensor, outputs: int, name: str) -> None:
    with b.scope(name):
        b.conv(x, outputs, 1, bias=True)


def _write_v2(b: GraphBuilder, x: Tensor, outputs: int) -> None:
    """Darknet-19 with a passthrough from its 16-fold reduced map."""
    x = _leaky(b, x, "backbone.0", "32/3 pool/2s2 64/3 pool/2s2 128/3 64 128/3 pool/2s2")
    x = _leaky(b, x, "backbone.1", f"256/3 128 256/3 pool/2s2 512/3 {_alternating(256, 4)}")
    coarse = _leaky(b, x, "backbone.2", f"pool/2s2 1024/3 {_alternating(512, 4)}")
    coarse = _leaky(b, coarse, "head", "1024/3 1024/3")
    fine = _leaky(b, x, "head.pass", "64")
    batch, channels, height, width = fine.shape
    shape = (batch, 4 * channels, height // 2, width // 2)
    fine = b.copy(fine, shape=shape, name="reorganise")
    _predict(b, _leaky(b, b.concat([fine, coarse]), "head.2", "1024/3"), outputs, "predict")


#: Channels and residual blocks of Darknet-53's stages.
_DARKNET_53 = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))


def _write_v3(b: GraphBuilder, x: Tensor, outputs: int) -> None:
    x = _leaky(b, x, "backbone.stem", "32/3")
    maps = []
    for stage, (channels, blocks) in enumerate(_DARKNET_53):
        x = _leaky(b, x, f"backbone.{stage}.down", f"{channels}/3s2")
        for block in range(blocks):
            inner = _leaky(b, x, f"backbone.{stage}.{block}", f"{channels // 2} {channels}/3")
            x = b.add(inner, x)
        maps.append(x)
    for scale, width in enumerate((512, 256, 128)):
        if scale:
            route = b.upsample(_leaky(b, x, f"head.{scale}.lateral", f"{width}"))
            x = b.concat([route, maps[-1 - scale]])
        x = _leaky(b, x, f"head.{scale}", _alternating(width, 5))
        wide = _leaky(b, x, f"head.{scale}.predict.0", f"{2 * width}/3")
        _predict(b, wide, outputs, f"head.{scale}.predict")


def _write_v3_tiny(b: GraphBuilder, x: Tensor, outputs: int) -> None:
    halving = "16/3 pool/2s2 32/3 pool/2s2 64/3 pool/2s2 128/3 pool/2s2 256/3"
    fine = _leaky(b, x, "backbone", halving)
    x = _leaky(b, fine, "neck", "pool/2s2 512/3 pool/3 1024/3 256")
    _predict(b, _leaky(b, x, "head.0", "512/3"), outputs, "predict.0")
    y = b.concat([b.upsample(_leaky(b, x, "lateral", "128")), fine])
    _predict(b, _leaky(b, y, "head.1", "256/3"), outputs, "predict.1")


def _cross_stage(b: GraphBuilder, x: Tensor, channels: int, blocks: int, name: str) -> Tensor:
    """Half the channels pass through the residual blocks (CSPNet); the first stage keeps its
    width.
    """
    half = channels if blocks == 1 else channels // 2
    x = _leaky(b, x, f"{name}.down", f"{channels}/3s2")
    skip = _leaky(b, x, f"{name}.skip", f"{half}")
    y = _leaky(b, x, f"{name}.in", f"{half}")
    for block in range(blocks):
        y = b.add(_leaky(b, y, f"{name}.{block}", f"{channels // 2} {half}/3"), y)
    y = _leaky(b, y, f"{name}.out", f"{half}")
    return _leaky(b, b.concat([y, skip]), f"{name}.merge", f"{channels}")


def _write_v4(b: GraphBuilder, x: Tensor, outputs: int) -> None:
    x = _leaky(b, x, "backbone.stem", "32/3")
    maps = []
    for stage, (channels, blocks) in enumerate(_DARKNET_53):
        x = _cross_stage(b, x, channels, blocks, f"backbone.{stage}")
        maps.append(x)
    x = _leaky(b, x, "neck.in", _alternating(512, 3))
    with b.scope("neck.pool"):
        pools = [b.pool(x, side, stride=1, padding=side // 2) for side in (5, 9, 13)]
    levels = [_leaky(b, b.concat([*pools, x]), "neck.out", _alternating(512, 3))]
    for scale, width in enumerate((256, 128)):
        above = b.upsample(_leaky(b, levels[-1], f"up.{scale}.lateral", f"{width}"))
        side = _leaky(b, maps[-2 - scale], f"up.{scale}.side", f"{width}")
        levels.append(_leaky(b, b.concat([side, above]), f"up.{scale}", _alternating(width, 5)))
    x = levels[-1]
    _predict(b, _leaky(b, x, "head.0", "256/3"), outputs, "predict.0")
    for scale, width in enumerate((256, 512), start=1):
        joined = b.concat([_leaky(b, x, f"down.{scale}", f"{width}/3s2"), levels[-1 - scale]])
        x = _leaky(b, joined, f"down.{scale}.mix", _alternating(width, 5))
        _predict(b, _leaky(b, x, f"head.{scale}", f"{2 * width}/3"), outputs, f"predict.{scale}")
