"""U-Net: a contracting and an expanding path with skip connections, in two or three dimensions.

Ronneberger et al., MICCAI 2015 (unpadded convolutions with bias, skip connections cropped); Cicek
et al., MICCAI 2016 (three dimensions). Padded convolutions with batch normalisation are the common
later form.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.family_parameters import Depth, ImageParameters
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
    """Contract, expand, classify each pixel."""
    size = shape.image_size or p.image_size
    x = b.input(shape.batch, p.image_channels, *((size,) * p.dimensions))
    skips: list[Tensor] = []
    for level in range(p.levels):
        if level:
            x = b.pool(x, 2, at=f"down{level}.pool")
        channels = p.base_channels << level
        first = channels // 2 if p.widen_before_pool else channels
        x = _double_conv(b, x, p, (first, channels), f"down{level}")
        skips.append(x)
    for level in reversed(range(p.levels - 1)):
        channels = p.base_channels << level
        with b.scope(f"up{level}.upsample"):
            width = x.shape[1] if p.widen_before_pool else channels
            x = b.conv(x, width, 2, stride=2, padding=0, bias=True, transposed=True)
        skip = b.part(
            skips[level], x.shape[0], channels, *x.shape[2:]
        )  # cropped where convolutions are unpadded
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
