"""Image networks whose input need not be square: parameters, input and the layers their families
share.

Networks compiled for edge accelerators are published at sizes such as 288 x 512 pixels. A run that
names an image size makes the input square, as everywhere.
"""

from __future__ import annotations

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.vision import conv_norm
from accelsim.workloads.model import RunShape
from accelsim.workloads.parameters import FamilyParameters

__all__ = ["RectangleParameters", "layer", "rectangle_input", "upsample_add"]


class RectangleParameters(FamilyParameters):
    """Parameters of a network with a rectangular input.

    Attributes:
        image_height: Rows of the input, in pixels.
        image_width: Columns.
        image_channels: Channels.
        classes: Outputs of the classifier, per position for dense predictions.
    """

    image_height: int = Field(default=224, ge=1, le=2**14)
    image_width: int = Field(default=224, ge=1, le=2**14)
    image_channels: int = Field(default=3, ge=1, le=1024)
    classes: int = Field(default=1000, ge=1, le=2**20)


def rectangle_input(b: GraphBuilder, p: RectangleParameters, shape: RunShape) -> Tensor:
    """A batch of images; square where the run names a size."""
    height, width = (shape.image_size or side for side in (p.image_height, p.image_width))
    return b.input(shape.batch, p.image_channels, height, width)


def layer(
    b: GraphBuilder,
    x: Tensor,
    name: str,
    channels: int,
    kernel: int | tuple[int, int] = 3,
    *,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    padding: int | tuple[int, int] | None = None,
    activation: str | None = "relu",
) -> Tensor:
    """Convolution, batch normalisation and activation under one module name."""
    with b.scope(name):
        return conv_norm(
            b,
            x,
            channels,
            kernel,
            stride=stride,
            padding=padding,
            groups=groups,
            dilation=dilation,
            activation=activation,
        )


def upsample_add(b: GraphBuilder, coarse: Tensor, fine: Tensor) -> Tensor:
    """The coarser map stretched to the finer one's size and added to it."""
    return b.add(fine, b.copy(coarse, shape=fine.shape, name="upsample"))
