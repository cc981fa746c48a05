"""Residual networks as frameworks other than torchvision build them, and those that embed faces and
persons.

He et al., CVPR 2016: the original strides in a block's first 1x1 convolution (Caffe, Keras);
TensorFlow-Slim strides in the 3x3 convolution of a stage's *last* block, which shrinks maps
earlier; version 2 (ECCV 2016) normalises before each convolution. Luo et al., CVPRW 2019: person
re-identification keeps the last stage at stride 1. Liu et al., CVPR 2017 (SphereFace): plain
residual pairs behind a striding convolution per stage.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import (
    RectangleParameters,
    chain,
    layer,
    rectangle_input,
)
from accelsim.workloads.families.vision import Depths, classify
from accelsim.workloads.model import PassShape, family


class ResidualVariantParameters(RectangleParameters):
    """A residual network.

    Attributes:
        block: "basic" (two 3x3) or "bottleneck" (1x1, 3x3, 1x1).
        depths: Blocks per stage.
        stride_in: Convolution of a stage's striding block that strides: its "first" or its "middle"
            one.
        stride_last_block: Whether a stage strides in its last block (TensorFlow-Slim) rather than
            its first.
        last_stride: Stride into the last stage.
        preactivation: Version 2 of the network.
    """

    block: Literal["basic", "bottleneck"]
    depths: Depths
    stride_in: Literal["first", "middle"] = "first"
    stride_last_block: bool = False
    last_stride: Annotated[int, Field(ge=1, le=2)] = 2
    preactivation: bool = False


@family("resnet-variant", ResidualVariantParameters)
def write_resnet_variant(b: GraphBuilder, p: ResidualVariantParameters, shape: PassShape) -> None:
    """Stem, stages, classifier."""
    classify(b, residual_maps(b, rectangle_input(b, p, shape), p)[-1], p.classes)


def residual_maps(b: GraphBuilder, x: Tensor, p: ResidualVariantParameters) -> list[Tensor]:
    """Stem and stages; returns each stage's output."""
    x = chain(b, x, "stem", "64/7s2 pool/3s2")
    maps = []
    for stage, depth in enumerate(p.depths):
        for index in range(depth):
            with b.scope(f"layer{stage + 1}.{index}"):
                x = _block(b, x, p, 64 << stage, _stride(p, stage, index, depth))
        maps.append(x)
    return maps


def named_residual_maps(b: GraphBuilder, x: Tensor, **parameters: Any) -> list[Tensor]:
    """`residual_maps` of the parameters as a file gives them."""
    return residual_maps(b, x, ResidualVariantParameters(**parameters))


def _stride(p: ResidualVariantParameters, stage: int, index: int, depth: int) -> int:
    if p.stride_last_block:
        return 2 if stage < len(p.depths) - 1 and index == depth - 1 else 1
    if not stage or index:
        return 1
    return p.last_stride if stage == len(p.depths) - 1 else 2


def _block(
    b: GraphBuilder, x: Tensor, p: ResidualVariantParameters, planes: int, stride: int
) -> Tensor:
    out = planes * (4 if p.block == "bottleneck" else 1)
    shortcut = x
    if x.shape[1] != out:
        shortcut = layer(b, x, "shortcut", out, 1, stride=stride, activation="")
    elif stride > 1:
        shortcut = b.pool(x, 1, stride=stride)
    if p.block == "basic":
        y = layer(b, x, "conv1", planes, 3, stride=stride)
        y = layer(b, y, "conv2", planes, 3, activation="")
    else:
        first, middle = (stride, 1) if p.stride_in == "first" else (1, stride)
        y = layer(b, x, "conv1", planes, 1, stride=first)
        y = layer(b, y, "conv2", planes, 3, stride=middle)
        y = layer(b, y, "conv3", out, 1, activation="")
    y = b.add(y, shortcut)
    return b.activation(b.batch_norm(y) if p.preactivation else y)


class SphereFaceParameters(RectangleParameters):
    """A face embedding network; `classes` is the width of the embedding.

    Attributes:
        depths: Residual pairs per stage.
    """

    depths: Depths


@family("sphereface", SphereFaceParameters)
def write_sphereface(b: GraphBuilder, p: SphereFaceParameters, shape: PassShape) -> None:
    """Four stages of a striding 3x3 convolution and residual pairs, then a linear embedding."""
    x = rectangle_input(b, p, shape)
    for stage, depth in enumerate(p.depths):
        x = layer(b, x, f"{stage}.down", 64 << stage, 3, stride=2)
        width = x.shape[1]
        for index in range(depth):
            x = b.add(chain(b, x, f"{stage}.{index}", f"{width}/3 {width}/3"), x)
    x = b.view(x, x.shape[0], x.elements // x.shape[0])
    b.linear(x, p.classes)
