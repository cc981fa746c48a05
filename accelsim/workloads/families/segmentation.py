"""U-Net: a contracting and an expanding path with skip connections, in two or three dimensions.

Ronneberger et al., MICCAI 2015 (unpadded convolutions with bias, skip connections cropped); Cicek
et al., MICCAI 2016 (three dimensions). Padded convolutions with batch normalisation are the common
later form. The volumetric U-Net of nnU-Net strides down and has instance normalisation and leaky
ReLU: Isensee et al., arXiv:1809.10486 and 1908.02182, layer for layer as the KiTS 2019 model that
MLPerf trains and infers (mlcommons/training, image_segmentation/pytorch/model).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.image_network import raised
from accelsim.workloads.family_parameters import (
    Count,
    Depth,
    FamilyParameters,
    ImageParameters,
    LevelChannels,
)
from accelsim.workloads.model import PassShape, family


class UnetParameters(ImageParameters):
    """A U-Net.

    Attributes:
        base_channels: Channels of the first level; each further level doubles them.
        levels: Levels, the lowest included.
        padded: Whether convolutions keep the size.
        norm: "batch" normalises after each convolution, which then has no bias.
        dimensions: 2 or 3.
        widen_before_pool: Whether a level's first convolution going down has half its channels, and
            upsampling keeps the channels it is given (Cicek et al.).
    """

    base_channels: Depth = 64
    levels: Annotated[int, Field(ge=2, le=8)] = 5
    padded: bool = True
    norm: Literal["batch"] | None = None
    dimensions: Annotated[int, Field(ge=2, le=3)] = 2
    widen_before_pool: bool = False


@family("unet", UnetParameters)
def write_unet(b: GraphBuilder, p: UnetParameters, shape: PassShape) -> None:
    """Contract, expand, classify each pixel.

    Ronneberger et al., MICCAI 2015; Cicek et al., MICCAI 2016.
    """
    size = shape.image_size or p.image_size
    x = b.input(shape.batch, p.image_channels, *((size,) * p.dimensions))
    skips: list[Tensor] = []
    for level in range(p.levels):
        if level:
            x = b.pool(x, 2, at=f"down{level}.pool")
        channels = p.base_channels << level
        first_width = channels // 2 if p.widen_before_pool else channels
        x = _double_conv(b, x, p, (first_width, channels), f"down{level}")
        skips.append(x)
    for level in reversed(range(p.levels - 1)):
        channels = p.base_channels << level
        x = raised(b, x, x.shape[1] if p.widen_before_pool else channels, f"up{level}.upsample")
        # Cropped where convolutions are unpadded.
        skip = b.part(skips[level], x.shape[0], channels, *x.shape[2:])
        x = _double_conv(b, b.concat([skip, x]), p, (channels, channels), f"up{level}")
    b.conv(x, p.classes, 1, bias=True, at="classify")


def _double_conv(
    b: GraphBuilder, x: Tensor, p: UnetParameters, widths: tuple[int, int], name: str
) -> Tensor:
    with b.scope(name):
        for index, channels in enumerate(widths):
            with b.scope(f"conv{index}"):
                x = b.conv(x, channels, 3, padding=None if p.padded else 0, bias=p.norm is None)
                x = b.batch_norm(x) if p.norm else x
                x = b.activation(x)
    return x


_Edge = Annotated[int, Field(ge=8, le=4096)]


class VolumetricUnetParameters(FamilyParameters):
    """A volumetric U-Net.

    Attributes:
        volume: Edges of one input in voxels, each a multiple of 2^(levels - 1).
        image_channels: Input channels.
        classes: Output channels.
        channels: Channels of each level, the finest first.
    """

    volume: Annotated[tuple[_Edge, _Edge, _Edge], Field(strict=False)]
    image_channels: Count
    classes: Count
    channels: LevelChannels


@family("volumetric-unet", VolumetricUnetParameters, image=True)
def write_volumetric_unet(b: GraphBuilder, p: VolumetricUnetParameters, shape: PassShape) -> None:
    """Contract by strides, expand, classify each voxel; `image_size` asks for a cube of that
    edge.
    """
    edges = (shape.image_size,) * 3 if shape.image_size else p.volume
    x = b.input(shape.batch, p.image_channels, *edges)
    skips: list[Tensor] = []
    for level, width in enumerate(p.channels):
        with b.scope(f"down{level}"):
            x = _conv(b, x, width, "conv1", stride=2 if level else 1)
            x = _conv(b, x, width, "conv2")
        skips.append(x)
    for level in reversed(range(len(p.channels) - 1)):
        width = p.channels[level]
        with b.scope(f"up{level}"):
            x = b.concat([raised(b, x, width, "upsample_conv"), skips[level]])
            x = _conv(b, _conv(b, x, width, "conv1"), width, "conv2")
    b.conv(x, p.classes, 1, bias=True, at="output")


def _conv(b: GraphBuilder, x: Tensor, channels: int, name: str, *, stride: int = 1) -> Tensor:
    with b.scope(name):
        x = b.conv(x, channels, 3, stride=stride, padding=1)
        return b.activation(b.group_norm(x, channels), "leaky_relu")
