"""Small image classifiers made for accelerators without squeeze-and-excite, and SqueezeNet.

Gupta and Akin, arXiv:2003.02838 (MobileNetEdgeTPU and EfficientNet-EdgeTPU: early blocks fuse
expansion and depthwise convolution into one full convolution); TensorFlow's EfficientNet-Lite;
Iandola et al., arXiv:1602.07360 (SqueezeNet 1.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import (
    RectangleParameters,
    layer,
    rectangle_input,
    write_network,
)
from accelsim.workloads.families.mobile import (
    EFFICIENTNET_STAGES,
    MOBILENET_V2_STAGES,
    mobilenet_v1_maps,
    round_channels,
)
from accelsim.workloads.families.vision import classify
from accelsim.workloads.family_parameters import Multiplier
from accelsim.workloads.model import RunShape, family

__all__ = [
    "EdgeBlock",
    "EdgeClassifierParameters",
    "edge_block",
    "mobilenet_v2_maps",
]


class _Stage(NamedTuple):
    """Blocks of one width.

    Attributes:
        form: As of `EdgeBlock`.
        kernel: Window.
        first: Expansion of the first block.
        rest: Expansion of the others.
        channels: Output channels.
        repeats: Blocks.
        stride: Of the first block.
    """

    form: str
    kernel: int
    first: int
    rest: int
    channels: int
    repeats: int
    stride: int


#: MobileNet v2 and EfficientNet-Lite have the stages of their big relatives.
_STAGES = {
    "mobilenet-edge": (
        _Stage("plain", 1, 1, 1, 16, 1, 1),
        _Stage("fused", 3, 8, 4, 32, 4, 2),
        _Stage("fused", 3, 8, 4, 48, 4, 2),
        _Stage("split", 3, 8, 4, 96, 4, 2),
        _Stage("split", 3, 8, 4, 96, 4, 1),
        _Stage("split", 5, 8, 4, 160, 4, 2),
        _Stage("split", 3, 8, 4, 192, 1, 1),
    ),
    "efficientnet-edge": (
        _Stage("fused-late", 3, 3, 3, 24, 1, 1),  # four times its output
        _Stage("fused-late", 3, 8, 8, 32, 2, 2),
        _Stage("fused-late", 3, 8, 8, 48, 4, 2),
        _Stage("split", 5, 8, 8, 96, 5, 2),
        _Stage("split", 5, 8, 8, 144, 4, 1),
        _Stage("split", 5, 8, 8, 192, 2, 2),
    ),
    "efficientnet-lite": tuple(
        _Stage("split", kernel, expansion, expansion, channels, repeats, stride)
        for expansion, kernel, stride, channels, repeats in EFFICIENTNET_STAGES
    ),
    "mobilenet-v2": tuple(
        _Stage("split", 3, expansion, expansion, channels, repeats, stride)
        for expansion, channels, repeats, stride in MOBILENET_V2_STAGES
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
    width_multiplier: Multiplier = 1.0
    depth_multiplier: Multiplier = 1.0


@family("edge-classifier", EdgeClassifierParameters)
def write_edge_classifier(b: GraphBuilder, p: EdgeClassifierParameters, shape: RunShape) -> None:
    """Stem, blocks, classifier."""
    x = rectangle_input(b, p, shape)
    if p.network == "squeezenet":
        write_network(b, x, "squeezenet", classes=p.classes)
    elif p.network == "mobilenet-v1":
        classify(b, mobilenet_v1_maps(b, x, p.width_multiplier)[-1], p.classes)
    else:
        _write_stages(b, x, p)


def _write_stages(b: GraphBuilder, x: Tensor, p: EdgeClassifierParameters) -> None:
    stages = _STAGES[p.network]
    is_lite = p.network == "efficientnet-lite"
    x = layer(b, x, "stem", 32 if is_lite else round_channels(32 * p.width_multiplier), stride=2)
    for index, stage in enumerate(stages):
        is_outer = index in {0, len(stages) - 1}
        depth = 1.0 if is_lite and is_outer else p.depth_multiplier
        for name, block in _blocks(stage, f"stage{index}", p.width_multiplier, depth):
            x = edge_block(b, x, name, block)
    x = layer(b, x, "head", max(1280, round_channels(1280 * p.width_multiplier)), 1)
    classify(b, x, p.classes)


class EdgeBlock(NamedTuple):
    """One block.

    Attributes:
        channels: Output channels.
        expansion: Inner channels over those of the input.
        stride: Step.
        kernel: Window.
        form: "fused" (full expansion; "fused-late" strides in the projection), "split" (1x1
            expansion, depthwise) or "plain" (1x1).
        dilation: Spacing of the depthwise window's taps.
        inner: Inner channels; 0 follows from the expansion.
    """

    channels: int
    expansion: int
    stride: int
    kernel: int = 3
    form: str = "split"
    dilation: int = 1
    inner: int = 0


def _blocks(
    stage: _Stage, name: str, width: float, depth: float = 1.0
) -> Iterator[tuple[str, EdgeBlock]]:
    channels = round_channels(stage.channels * width)
    for repeat in range(max(1, -int(-stage.repeats * depth // 1))):
        expansion, stride = (stage.rest, 1) if repeat else (stage.first, stage.stride)
        yield f"{name}.{repeat}", EdgeBlock(channels, expansion, stride, stage.kernel, stage.form)


def edge_block(b: GraphBuilder, x: Tensor, name: str, block: EdgeBlock) -> Tensor:
    """Expand, convolve each channel, project; a fused block expands and convolves at once."""
    inner = block.inner or x.shape[1] * block.expansion
    is_late = block.form == "fused-late"
    early, late = (1, block.stride) if is_late else (block.stride, 1)
    with b.scope(name):
        if block.form == "plain":
            return layer(b, x, "conv", block.channels, 1)
        if block.form == "split":
            y = x if inner == x.shape[1] else layer(b, x, "expand", inner, 1)
            y = layer(
                b,
                y,
                "depthwise",
                inner,
                block.kernel,
                stride=early,
                groups=inner,
                dilation=block.dilation,
            )
        else:
            y = layer(b, x, "expand", inner, block.kernel, stride=early)
        y = layer(b, y, "project", block.channels, 1, stride=late, activation="")
        is_residual = block.stride == 1 and x.shape[1] == block.channels
        return b.add(y, x) if is_residual else y


def mobilenet_v2_maps(b: GraphBuilder, x: Tensor, *, dilated: bool = False) -> list[Tensor]:
    """MobileNet v2 without its last convolution; one map per stage, the stem first.

    Args:
        b: Builder.
        x: Image.
        dilated: Whether the last stages dilate instead of striding (output stride 8), for dense
            prediction.
    """
    maps = [layer(b, x, "stem", 32, stride=2)]
    for index, stage in enumerate(_STAGES["mobilenet-v2"]):
        x = maps[-1]
        is_held = dilated and index >= 3
        for name, block in _blocks(stage, str(index), 1.0):
            held = block._replace(stride=1, dilation=2) if is_held else block
            x = edge_block(b, x, name, held)
        maps.append(x)
    return maps
