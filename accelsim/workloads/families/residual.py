"""Residual networks as frameworks other than torchvision build them, and those that embed faces.

He et al., CVPR 2016: the original strides in a block's first 1x1 convolution (Caffe, Keras);
TensorFlow-Slim strides in the 3x3 convolution of a stage's *last* block, which shrinks maps
earlier; version 2 (ECCV 2016) normalises before each convolution. Liu et al., CVPR 2017
(SphereFace): plain residual pairs behind a striding convolution per stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from accelsim.plain import Document
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import write_network
from accelsim.workloads.families.vision import Depths, classify, image_input
from accelsim.workloads.family_parameters import RectangleParameters
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


def named_residual_maps(b: GraphBuilder, x: Tensor, **parameters: Any) -> list[Tensor]:
    """Each stage's output, of the parameters as a file gives them."""
    return _maps(b, x, ResidualVariantParameters(**parameters))


def _maps(b: GraphBuilder, x: Tensor, p: ResidualVariantParameters) -> list[Tensor]:
    """Stem and stages; returns each stage's output."""
    numbers = [(stage, index) for stage, depth in enumerate(p.depths) for index in range(depth)]
    stages = [stage for stage, _ in numbers]
    strides = [1 + after - before for before, after in pairwise([0, *stages])]
    if p.stride_last_block:
        strides = [*strides[1:], 1]
    expansion = 4 if p.block == "bottleneck" else 1
    outs = [64 * expansion << stage for stage in stages]
    maps: dict[str, Tensor] = {}
    values: Document = {
        "block": p.block if p.block == "basic" else f"bottleneck-{p.stride_in}",
        "places": [f"layer{stage + 1}.{index}" for stage, index in numbers],
        "stages": stages,
        "widths": [64 << stage for stage in stages],
        "outs": outs,
        "strides": strides,
        "shortcuts": _shortcuts(outs, strides),
        "after_sum": ["bn"] if p.preactivation else [],
    }
    write_network(b, x, "residual", maps=maps, **values)
    return [maps[f"map{stage}"] for stage in range(len(p.depths))]


def _shortcuts(outs: Sequence[int], strides: Sequence[int]) -> list[list[str]]:
    """The layer, if any, that brings each block's input to the size of its output."""
    found = []
    for (before, out), stride in zip(pairwise([64, *outs]), strides, strict=True):
        word = f"{out}s{stride}l" if out != before else "pool/1s2"
        found.append([word] if out != before or stride > 1 else [])
    return found


class SphereFaceParameters(RectangleParameters):
    """A face embedding network; `classes` is the width of the embedding.

    Attributes:
        depths: Residual pairs per stage.
    """

    depths: Depths


@family("sphereface", SphereFaceParameters)
def write_sphereface(b: GraphBuilder, p: SphereFaceParameters, shape: PassShape) -> None:
    """Stages, then a linear embedding."""
    stages = list(range(len(p.depths)))
    values: Document = {"stages": stages, "widths": [64 << stage for stage in stages]}
    values |= {"depths": list(p.depths), "classes": p.classes}
    write_network(b, image_input(b, p, shape), "sphereface", **values)
