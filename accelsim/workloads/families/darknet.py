"""Darknet detectors beside YOLOv3 at its own size: YOLOv2, tiny YOLOv3, YOLOv3 on rectangles and
YOLOv4.

Redmon and Farhadi, CVPR 2017 (v2) and arXiv:1804.02767 (v3); Bochkovskiy et al., arXiv:2004.10934
(v4, with leaky ReLU in place of mish, which fixed-point overlays lack). Up to the raw predictions;
choosing boxes depends on the picture.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import RectangleParameters, layer, rectangle_input
from accelsim.workloads.model import RunShape, family

__all__ = ["DarknetParameters"]


class DarknetParameters(RectangleParameters):
    """A Darknet detector; `classes` of the data set.

    Attributes:
        version: "2", "3", "3-tiny" or "4".
        anchors: Boxes per position and scale.
    """

    version: Literal["2", "3", "3-tiny", "4"]
    anchors: Annotated[int, Field(ge=1, le=64)] = 3


@family("darknet", DarknetParameters)
def write_darknet(b: GraphBuilder, p: DarknetParameters, shape: RunShape) -> None:
    """The whole detector."""
    writers = {"2": _v2, "3": _v3, "3-tiny": _v3_tiny, "4": _v4}
    writers[p.version](b, rectangle_input(b, p, shape), p)


def _leaky(
    b: GraphBuilder, x: Tensor, name: str, channels: int, kernel: int = 3, *, stride: int = 1
) -> Tensor:
    return layer(b, x, name, channels, kernel, stride=stride, activation="leaky_relu")


def _alternate(b: GraphBuilder, x: Tensor, name: str, narrow: int, count: int) -> Tensor:
    """1x1 to `narrow` channels and 3x3 to twice as many, in turn."""
    for index in range(count):
        kernel, channels = (3, 2 * narrow) if index % 2 else (1, narrow)
        x = _leaky(b, x, f"{name}.{index}", channels, kernel)
    return x


def _predict(b: GraphBuilder, x: Tensor, p: DarknetParameters, name: str) -> Tensor:
    with b.scope(name):
        return b.conv(x, p.anchors * (5 + p.classes), 1, bias=True)


def _pool(b: GraphBuilder, x: Tensor) -> Tensor:
    with b.scope("pool"):
        return b.pool(x, 2)


def _v2(b: GraphBuilder, x: Tensor, p: DarknetParameters) -> None:
    """Darknet-19 with a passthrough from its 16-fold reduced map."""
    x = _pool(b, _leaky(b, x, "backbone.0", 32))
    x = _pool(b, _leaky(b, x, "backbone.1", 64))
    for stage, (channels, pairs) in enumerate(((128, 1), (256, 1), (512, 2), (1024, 2)), start=2):
        if stage > 3:
            x = _pool(b, x) if stage > 2 else x
        elif stage == 3:
            x = _pool(b, x)
        x = _leaky(b, x, f"backbone.{stage}.in", channels)
        for pair in range(pairs):
            x = _leaky(b, x, f"backbone.{stage}.{pair}.0", channels // 2, 1)
            x = _leaky(b, x, f"backbone.{stage}.{pair}.1", channels)
        if stage == 4:
            fine = x
    for index in range(2):
        x = _leaky(b, x, f"head.{index}", 1024)
    y = _leaky(b, fine, "head.pass", 64, 1)
    batch, _, height, width = y.shape
    y = b.copy(y, shape=(batch, 256, height // 2, width // 2), name="reorganise")
    _predict(b, _leaky(b, b.concat([y, x]), "head.2", 1024), p, "predict")


#: Channels and residual blocks of Darknet-53's stages.
_DARKNET_53 = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))


def _v3(b: GraphBuilder, x: Tensor, p: DarknetParameters) -> None:
    x = _leaky(b, x, "backbone.stem", 32)
    maps = []
    for stage, (channels, blocks) in enumerate(_DARKNET_53):
        x = _leaky(b, x, f"backbone.{stage}.down", channels, stride=2)
        for block in range(blocks):
            y = _leaky(b, x, f"backbone.{stage}.{block}.0", channels // 2, 1)
            x = b.add(_leaky(b, y, f"backbone.{stage}.{block}.1", channels), x)
        maps.append(x)
    for scale, width in enumerate((512, 256, 128)):
        if scale:
            route = b.upsample(_leaky(b, x, f"head.{scale}.lateral", width, 1))
            x = b.concat([route, maps[-1 - scale]])
        x = _alternate(b, x, f"head.{scale}", width, 5)
        _predict(b, _leaky(b, x, f"head.{scale}.out", 2 * width), p, f"head.{scale}.predict")


def _v3_tiny(b: GraphBuilder, x: Tensor, p: DarknetParameters) -> None:
    fine = x
    for index, channels in enumerate((16, 32, 64, 128, 256)):
        fine = _leaky(b, x, f"backbone.{index}", channels)
        x = _pool(b, fine)
    x = _leaky(b, x, "backbone.5", 512)
    with b.scope("pool"):
        x = b.pool(x, 3, stride=1, padding=1)
    x = _leaky(b, _leaky(b, x, "backbone.6", 1024), "neck", 256, 1)
    _predict(b, _leaky(b, x, "head.0", 512), p, "predict.0")
    y = b.concat([b.upsample(_leaky(b, x, "lateral", 128, 1)), fine])
    _predict(b, _leaky(b, y, "head.1", 256), p, "predict.1")


def _cross_stage(b: GraphBuilder, x: Tensor, channels: int, blocks: int, name: str) -> Tensor:
    """Half the channels pass through the residual blocks (CSPNet); the first stage keeps its width."""
    x = _leaky(b, x, f"{name}.down", channels, stride=2)
    half = channels if blocks == 1 else channels // 2
    skip = _leaky(b, x, f"{name}.skip", half, 1)
    y = _leaky(b, x, f"{name}.in", half, 1)
    for block in range(blocks):
        inner = _leaky(b, y, f"{name}.{block}.0", channels // 2, 1)
        y = b.add(_leaky(b, inner, f"{name}.{block}.1", half), y)
    y = _leaky(b, y, f"{name}.out", half, 1)
    return _leaky(b, b.concat([y, skip]), f"{name}.merge", channels, 1)


def _v4(b: GraphBuilder, x: Tensor, p: DarknetParameters) -> None:
    x = _leaky(b, x, "backbone.stem", 32)
    maps = []
    for stage, (channels, blocks) in enumerate(_DARKNET_53):
        x = _cross_stage(b, x, channels, blocks, f"backbone.{stage}")
        maps.append(x)
    x = _alternate(b, x, "neck.in", 512, 3)
    pools = []
    for window in (5, 9, 13):
        with b.scope("neck.pool"):
            pools.append(b.pool(x, window, stride=1, padding=window // 2))
    levels = [_alternate(b, b.concat([*pools, x]), "neck.out", 512, 3)]
    for scale, width in enumerate((256, 128)):
        above = b.upsample(_leaky(b, levels[-1], f"up.{scale}.lateral", width, 1))
        side = _leaky(b, maps[-2 - scale], f"up.{scale}.side", width, 1)
        levels.append(_alternate(b, b.concat([side, above]), f"up.{scale}", width, 5))
    x = levels[-1]
    _predict(b, _leaky(b, x, "head.0", 256), p, "predict.0")
    for scale, width in enumerate((256, 512), start=1):
        down = _leaky(b, x, f"down.{scale}", width, stride=2)
        x = _alternate(b, b.concat([down, levels[-1 - scale]]), f"down.{scale}.mix", width, 5)
        _predict(b, _leaky(b, x, f"head.{scale}", 2 * width), p, f"predict.{scale}")
