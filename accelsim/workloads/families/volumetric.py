"""Volumetric U-Net of nnU-Net: strided convolutions down, transposed ones up, instance
normalisation, leaky ReLU.

Isensee et al., arXiv:1809.10486 and 1908.02182; layer for layer as the KiTS 2019 model that MLPerf
trains and infers (mlcommons/training, image_segmentation/pytorch/model).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.family_parameters import Count, FamilyParameters
from accelsim.workloads.model import PassShape, family

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
    channels: Annotated[tuple[Count, ...], Field(strict=False, min_length=2, max_length=8)]


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
            x = b.conv(
                x, width, 2, stride=2, padding=0, bias=True, transposed=True, at="upsample_conv"
            )
            x = b.concat([x, skips[level]])
            x = _conv(b, _conv(b, x, width, "conv1"), width, "conv2")
    b.conv(x, p.classes, 1, bias=True, at="output")


def _conv(b: GraphBuilder, x: Tensor, channels: int, name: str, *, stride: int = 1) -> Tensor:
    with b.scope(name):
        x = b.conv(x, channels, 3, stride=stride, padding=1)
        return b.activation(b.group_norm(x, channels), "leaky_relu")
