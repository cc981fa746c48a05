"""Dense prediction networks of the Vitis AI model zoo: ERFNet, feature pyramids over ResNet-18,
DeepLab, SESR and U-Net.

Romera et al., IEEE T-ITS 2018 (ERFNet); Kirillov et al., CVPR 2019 (semantic pyramid); Chen et al.,
ECCV 2018 (DeepLab v3+); Bhardwaj et al., MLSys 2022 (SESR, collapsed); Ronneberger et al., MICCAI
2015 (U-Net).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.edge_classifiers import mobilenet_v2_maps
from accelsim.workloads.families.image_network import (
    RectangleParameters,
    chain,
    layer,
    pyramid_levels,
    rectangle_input,
    upsample_add,
)
from accelsim.workloads.families.residual_variants import ResidualVariantParameters, residual_maps
from accelsim.workloads.family_parameters import Depth
from accelsim.workloads.model import RunShape, family

__all__ = ["EdgeSegmenterParameters"]


class EdgeSegmenterParameters(RectangleParameters):
    """A network that predicts for each pixel.

    Attributes:
        network: Which one.
        base_channels: Channels of the first level of a U-Net or of SESR.
        raised_fraction: Channels that a U-Net's transposed convolutions give, over those of the
            level they raise to.
    """

    network: Literal["erfnet", "semantic-fpn", "deeplab-mobilenet-v2", "sesr", "unet"]
    base_channels: Depth = 16
    raised_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0


@family("edge-segmenter", EdgeSegmenterParameters)
def write_edge_segmenter(b: GraphBuilder, p: EdgeSegmenterParameters, shape: RunShape) -> None:
    """The whole network."""
    writers = {
        "erfnet": _write_erfnet,
        "semantic-fpn": _write_semantic_fpn,
        "deeplab-mobilenet-v2": _write_deeplab,
        "sesr": _write_sesr,
        "unet": _write_unet,
    }
    writers[p.network](b, rectangle_input(b, p, shape), p)


def _classify(b: GraphBuilder, x: Tensor, classes: int) -> Tensor:
    with b.scope("classify"):
        return b.conv(x, classes, 1, bias=True)


def _factored(b: GraphBuilder, x: Tensor, name: str, dilation: int = 1) -> Tensor:
    """Residual block of 3x1 and 1x3 convolutions."""
    y = x
    for index, spacing in enumerate((1, dilation)):
        for kernel in ((3, 1), (1, 3)):
            y = layer(b, y, f"{name}.{index}", x.shape[1], kernel, dilation=spacing)
    return b.activation(b.add(y, x))


def _downsample(b: GraphBuilder, x: Tensor, name: str, channels: int) -> Tensor:
    y = layer(b, x, name, channels - x.shape[1], stride=2)
    with b.scope(f"{name}.pool"):
        return b.concat([y, b.pool(x, 2)])


def _raise(b: GraphBuilder, x: Tensor, name: str, channels: int) -> Tensor:
    """Transposed convolution to twice the size."""
    with b.scope(name):
        y = b.conv(x, channels, 2, stride=2, padding=0, bias=True, transposed=True)
        return b.activation(b.batch_norm(y))


def _write_erfnet(b: GraphBuilder, x: Tensor, p: EdgeSegmenterParameters) -> None:
    x = _downsample(b, _downsample(b, x, "down0", 16), "down1", 64)
    for index in range(5):
        x = _factored(b, x, f"encoder.{index}")
    x = _downsample(b, x, "down2", 128)
    for index, dilation in enumerate((2, 4, 8, 16) * 2, start=5):
        x = _factored(b, x, f"encoder.{index}", dilation)
    for stage, channels in enumerate((64, 16)):
        x = _raise(b, x, f"up{stage}", channels)
        for index in range(2):
            x = _factored(b, x, f"decoder.{stage}.{index}")
    _raise(b, x, "classify", p.classes)


def _write_semantic_fpn(b: GraphBuilder, x: Tensor, p: EdgeSegmenterParameters) -> None:
    backbone = ResidualVariantParameters(block="basic", depths=(2, 2, 2, 2))
    *coarse, finest = pyramid_levels(b, residual_maps(b, x, backbone), 128)
    total = layer(b, finest, "smooth.3", 64)
    for index, level in enumerate(coarse):
        total = upsample_add(b, layer(b, level, f"smooth.{index}", 64), total)
    _classify(b, total, p.classes)


def _write_deeplab(b: GraphBuilder, x: Tensor, p: EdgeSegmenterParameters) -> None:
    x = mobilenet_v2_maps(b, x, dilated=True)[-1]
    batch, _, height, width = x.shape
    pooled = layer(b, b.global_pool(x), "pool", 256, 1)
    y = layer(b, x, "aspp", 256, 1)
    y = b.concat([y, b.copy(pooled, shape=y.shape, name="broadcast")])
    y = _classify(b, layer(b, y, "project", 256, 1), p.classes)
    b.copy(y, shape=(batch, p.classes, 8 * height, 8 * width), name="upsample")


def _write_sesr(b: GraphBuilder, x: Tensor, p: EdgeSegmenterParameters) -> None:
    """Seven 3x3 convolutions between two 5x5, at the low resolution."""
    first = layer(b, x, "first", p.base_channels, 5)
    x = chain(b, first, "middle", " ".join([f"{p.base_channels}/3"] * 7))
    with b.scope("last"):
        x = b.conv(b.add(x, first), 12, 5, bias=True)
    b.copy(x, name="depth_to_space")


def _write_unet(b: GraphBuilder, x: Tensor, p: EdgeSegmenterParameters) -> None:
    widths = [p.base_channels << level for level in range(5)]
    skips: list[Tensor] = []
    for level, width in enumerate(widths):
        pooled = "pool/2s2 " if level else ""
        x = chain(b, x, f"down{level}", f"{pooled}{width}/3 {width}/3")
        skips.append(x)
    for level in (3, 2, 1, 0):
        width = widths[level]
        raised = _raise(b, x, f"up{level}.raise", max(int(width * p.raised_fraction), 1))
        x = chain(b, b.concat([raised, skips[level]]), f"up{level}", f"{width}/3 {width}/3")
    _classify(b, x, p.classes)
