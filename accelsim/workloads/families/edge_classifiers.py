"""Small image classifiers made for accelerators without squeeze-and-excite, and SqueezeNet.

Gupta and Akin, arXiv:2003.02838 (MobileNetEdgeTPU and EfficientNet-EdgeTPU: early blocks fuse
expansion and depthwise convolution into one full convolution); TensorFlow's EfficientNet-Lite;
Iandola et al., arXiv:1602.07360 (SqueezeNet 1.1).
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import RectangleParameters, layer, rectangle_input
from accelsim.workloads.families.mobile import round_channels
from accelsim.workloads.families.vision import classify
from accelsim.workloads.model import RunShape, family

__all__ = ["EdgeClassifierParameters", "EdgeStage", "edge_block", "mobilenet_v2_maps"]


class EdgeStage(NamedTuple):
    """Blocks of one width.

    Attributes:
        kind: "fused" (full 3x3 expansion; "fused-late" strides in the projection), "split" (1x1
            expansion, depthwise) or "plain" (1x1).
        kernel: Window.
        first: Expansion of the first block.
        rest: Expansion of the others.
        channels: Output channels.
        repeats: Blocks.
        stride: Of the first block.
    """

    kind: Literal["fused", "fused-late", "split", "plain"]
    kernel: int
    first: int
    rest: int
    channels: int
    repeats: int
    stride: int


_STAGES: dict[str, tuple[EdgeStage, ...]] = {
    "mobilenet-edge": (
        EdgeStage("plain", 1, 1, 1, 16, 1, 1),
        EdgeStage("fused", 3, 8, 4, 32, 4, 2),
        EdgeStage("fused", 3, 8, 4, 48, 4, 2),
        EdgeStage("split", 3, 8, 4, 96, 4, 2),
        EdgeStage("split", 3, 8, 4, 96, 4, 1),
        EdgeStage("split", 5, 8, 4, 160, 4, 2),
        EdgeStage("split", 3, 8, 4, 192, 1, 1),
    ),
    "efficientnet-edge": (
        EdgeStage("fused-late", 3, 3, 3, 24, 1, 1),  # four times its output
        EdgeStage("fused-late", 3, 8, 8, 32, 2, 2),
        EdgeStage("fused-late", 3, 8, 8, 48, 4, 2),
        EdgeStage("split", 5, 8, 8, 96, 5, 2),
        EdgeStage("split", 5, 8, 8, 144, 4, 1),
        EdgeStage("split", 5, 8, 8, 192, 2, 2),
    ),
    "efficientnet-lite": (
        EdgeStage("split", 3, 1, 1, 16, 1, 1),
        EdgeStage("split", 3, 6, 6, 24, 2, 2),
        EdgeStage("split", 5, 6, 6, 40, 2, 2),
        EdgeStage("split", 3, 6, 6, 80, 3, 2),
        EdgeStage("split", 5, 6, 6, 112, 3, 1),
        EdgeStage("split", 5, 6, 6, 192, 4, 2),
        EdgeStage("split", 3, 6, 6, 320, 1, 1),
    ),
    "mobilenet-v2": (
        EdgeStage("split", 3, 1, 1, 16, 1, 1),
        EdgeStage("split", 3, 6, 6, 24, 2, 2),
        EdgeStage("split", 3, 6, 6, 32, 3, 2),
        EdgeStage("split", 3, 6, 6, 64, 4, 2),
        EdgeStage("split", 3, 6, 6, 96, 3, 1),
        EdgeStage("split", 3, 6, 6, 160, 3, 2),
        EdgeStage("split", 3, 6, 6, 320, 1, 1),
    ),
}


class EdgeClassifierParameters(RectangleParameters):
    """A classifier for accelerators.

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
    width_multiplier: Annotated[float, Field(gt=0, le=16)] = 1.0
    depth_multiplier: Annotated[float, Field(gt=0, le=16)] = 1.0


@family("edge-classifier", EdgeClassifierParameters)
def write_edge_classifier(b: GraphBuilder, p: EdgeClassifierParameters, shape: RunShape) -> None:
    """Stem, blocks, classifier."""
    x = rectangle_input(b, p, shape)
    if p.network == "squeezenet":
        _squeezenet(b, x, p)
    elif p.network == "mobilenet-v1":
        _mobilenet_v1(b, x, p)
    else:
        _staged(b, x, p)


def _staged(b: GraphBuilder, x: Tensor, p: EdgeClassifierParameters) -> None:
    stages = _STAGES[p.network]
    stem = 32 if p.network == "efficientnet-lite" else round_channels(32 * p.width_multiplier)
    x = layer(b, x, "stem", stem, 3, stride=2)
    for index, stage in enumerate(stages):
        x = _stage(b, x, stage, p, f"stage{index}", last=index == len(stages) - 1)
    classify(
        b, layer(b, x, "head", max(1280, round_channels(1280 * p.width_multiplier)), 1), p.classes
    )


def _stage(
    b: GraphBuilder,
    x: Tensor,
    stage: EdgeStage,
    p: EdgeClassifierParameters,
    name: str,
    *,
    last: bool,
) -> Tensor:
    scaled = (
        stage.repeats if (name == "stage0" or last) and p.network == "efficientnet-lite" else None
    )
    repeats = scaled or max(1, -int(-stage.repeats * p.depth_multiplier // 1))
    for repeat in range(repeats):
        expansion = stage.rest if repeat else stage.first
        out = round_channels(stage.channels * p.width_multiplier)
        step = 1 if repeat else stage.stride
        x = edge_block(
            b,
            x,
            f"{name}.{repeat}",
            x.shape[1] * expansion,
            out,
            step,
            kernel=stage.kernel,
            kind=stage.kind,
        )
    return x


def edge_block(
    b: GraphBuilder,
    x: Tensor,
    name: str,
    expanded: int,
    out: int,
    stride: int,
    *,
    kernel: int = 3,
    kind: str = "split",
    dilation: int = 1,
) -> Tensor:
    """Expand, convolve each channel, project; a fused block expands and convolves at once."""
    y = x
    with b.scope(name):
        if kind == "plain":
            return layer(b, y, "conv", out, 1)
        projection_stride = 1
        if kind.startswith("fused"):
            late = kind == "fused-late"
            projection_stride = stride if late else 1
            y = layer(b, y, "expand", expanded, kernel, stride=1 if late else stride)
        else:
            if expanded != x.shape[1]:
                y = layer(b, y, "expand", expanded, 1)
            y = layer(
                b,
                y,
                "depthwise",
                expanded,
                kernel,
                stride=stride,
                groups=expanded,
                dilation=dilation,
            )
        y = layer(b, y, "project", out, 1, stride=projection_stride, activation=None)
        return b.add(y, x) if stride == 1 and x.shape[1] == out else y


def mobilenet_v2_maps(
    b: GraphBuilder, x: Tensor, *, width: float = 1.0, dilated: bool = False
) -> list[Tensor]:
    """MobileNet v2 without its last convolution; one map per stage, the stem first.

    Args:
        b: Builder.
        x: Image.
        width: Scale of channel counts.
        dilated: Whether the last stages dilate instead of striding (output stride 8), for dense
            prediction.
    """
    maps = [layer(b, x, "stem", round_channels(32 * width), 3, stride=2)]
    for index, stage in enumerate(_STAGES["mobilenet-v2"]):
        for repeat in range(stage.repeats):
            held = dilated and index >= 3
            stride = 1 if repeat or held else stage.stride
            out = round_channels(stage.channels * width)
            y = maps.pop() if repeat else maps[-1]
            dilation = 2 if held else 1
            maps.append(
                edge_block(
                    b,
                    y,
                    f"{index}.{repeat}",
                    y.shape[1] * stage.first,
                    out,
                    stride,
                    dilation=dilation,
                )
            )
    return maps


#: Output channels and stride of MobileNet v1's separable convolutions.
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


def _mobilenet_v1(b: GraphBuilder, x: Tensor, p: EdgeClassifierParameters) -> None:
    x = layer(b, x, "stem", int(32 * p.width_multiplier), 3, stride=2)
    for index, (channels, stride) in enumerate(_V1):
        x = layer(b, x, f"{index}.depthwise", x.shape[1], 3, stride=stride, groups=x.shape[1])
        x = layer(b, x, f"{index}.pointwise", int(channels * p.width_multiplier), 1)
    classify(b, x, p.classes)


#: Squeeze channels of the fire modules; 0 stands for a pool.
_FIRES = (0, 16, 16, 0, 32, 32, 0, 48, 48, 64, 64)


def _squeezenet(b: GraphBuilder, x: Tensor, p: EdgeClassifierParameters) -> None:
    x = layer(b, x, "conv1", 64, 3, stride=2, padding=0)
    for index, squeeze in enumerate(_FIRES):
        with b.scope(f"{index}"):
            if not squeeze:
                x = b.pool(x, 3, stride=2, ceil=True)
                continue
            y = layer(b, x, "squeeze", squeeze, 1)
            x = b.concat(
                [layer(b, y, "expand1x1", 4 * squeeze, 1), layer(b, y, "expand3x3", 4 * squeeze, 3)]
            )
    with b.scope("pool"):
        b.global_pool(layer(b, x, "classifier", p.classes, 1))
