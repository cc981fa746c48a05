"""Image networks whose input need not be square: parameters, input, and layers read from a short
notation.

Networks compiled for edge accelerators are published at sizes such as 288 x 512 pixels. A run that
names an image size makes the input square, as everywhere.

The notation writes one convolution as its channels, then the window, the stride and a mark for no
padding, each where it is not 1 x 1, 1, or "same": "64/7s2" is 64 channels of 7 x 7 that step by 2,
"192/1x7" a row of seven, "96/3v" unpadded ("valid"). "pool/3s2" is a maximum pool.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.vision import conv_norm
from accelsim.workloads.family_parameters import Count, FamilyParameters
from accelsim.workloads.model import RunShape

__all__ = [
    "LayerStep",
    "RectangleParameters",
    "chain",
    "layer",
    "layer_steps",
    "pyramid_levels",
    "rectangle_input",
    "upsample_add",
]

_STEP = re.compile(r"(\d+|pool)(?:/(\d+)(?:x(\d+))?)?(?:s(\d))?(v?)")


class RectangleParameters(FamilyParameters):
    """Parameters of a network with a rectangular input.

    Attributes:
        image_height: Rows of the input, in pixels.
        image_width: Columns.
        image_channels: Channels.
        classes: Outputs of the classifier, per position for dense predictions.
    """

    image_height: Count = 224
    image_width: Count = 224
    image_channels: Count = 3
    classes: Count = 1000


class LayerStep(NamedTuple):
    """One layer of a chain.

    Attributes:
        channels: Output channels; 0 for a maximum pool.
        window: Height and width of the window.
        stride: Step.
        padding: Zeros before and behind each axis.
    """

    channels: int
    window: tuple[int, int]
    stride: int
    padding: tuple[int, int]


def layer_steps(notation: str) -> list[LayerStep]:
    """The layers that a text in the notation of this module names.

    Raises:
        ValueError: If a word of it is no layer.
    """
    steps = []
    for word in notation.split():
        match = _STEP.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no layer such as 64/3s2")
        channels, height, width, stride, unpadded = match.groups()
        window = (int(height or 1), int(width or height or 1))
        padding = (0, 0) if unpadded else ((window[0] - 1) // 2, (window[1] - 1) // 2)
        count = 0 if channels == "pool" else int(channels)
        steps.append(LayerStep(count, window, int(stride or 1), padding))
    return steps


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
    norm: bool = True,
    activation: str = "relu",
    **options: Any,
) -> Tensor:
    """Convolution, batch normalisation and activation under one module name.

    Args:
        b: Builder.
        x: Input (n, c, h, w).
        name: Module name.
        channels: Output channels.
        kernel: Window.
        norm: False has a bias instead of the normalisation, as VGG.
        activation: Activation; "" for none.
        **options: Further arguments of `GraphBuilder.conv`.
    """
    with b.scope(name):
        if norm:
            return conv_norm(b, x, channels, kernel, activation=activation, **options)
        return b.activation(b.conv(x, channels, kernel, bias=True, **options), activation)


def chain(
    b: GraphBuilder, x: Tensor, name: str, notation: str, *, first: int = 0, **options: Any
) -> Tensor:
    """Layers one after the other.

    Args:
        b: Builder.
        x: Input (n, c, h, w).
        name: Module name, followed by the number of each layer; a single one goes by it alone.
        notation: The layers in the notation of this module.
        first: Number of the first layer; 0 numbers ".0", ".1", 1 numbers "_1", "_2".
        **options: Further arguments of `layer`.
    """
    steps = layer_steps(notation)
    joint = "_" if first else "."
    for index, step in enumerate(steps, start=first):
        place = f"{name}{joint}{index}" if len(steps) > 1 else name
        stride, padding = step.stride, step.padding
        if step.channels:
            sizes = (step.channels, step.window)
            x = layer(b, x, place, *sizes, stride=stride, padding=padding, **options)
        else:
            with b.scope(place):
                x = b.pool(x, step.window, stride=stride, padding=padding)
    return x


def pyramid_levels(b: GraphBuilder, maps: Sequence[Tensor], channels: int) -> list[Tensor]:
    """A feature pyramid's maps, the coarsest first: each projected and added to the one above.

    Lin et al., CVPR 2017.

    Args:
        b: Builder.
        maps: Maps of a backbone, the finest first.
        channels: Channels of every level.
    """
    levels: list[Tensor] = []
    for index, x in reversed(list(enumerate(maps))):
        with b.scope(f"lateral.{index}"):
            level = b.conv(x, channels, 1, bias=True)
        levels.append(upsample_add(b, levels[-1], level) if levels else level)
    return levels


def upsample_add(b: GraphBuilder, coarse: Tensor, fine: Tensor) -> Tensor:
    """The coarser map stretched to the finer one's size and added to it."""
    return b.add(fine, b.copy(coarse, shape=fine.shape, name="upsample"))
