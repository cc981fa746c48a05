"""ConvNeXt: a convolutional network built as a transformer is (Liu et al., CVPR 2022,
arXiv:2201.03545).

Module names as in Hugging Face's ``ConvNextForImageClassification``.
"""

from __future__ import annotations

from accelsim.errors import InvalidValueError
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.decoder import Activation
from accelsim.workloads.family_parameters import Count, Counts, ImageParameters
from accelsim.workloads.model import PassShape, family

_KERNEL = 7
_EXPANSION = 4


class ConvNextParameters(ImageParameters):
    """Parameters of a ConvNeXt.

    Attributes:
        depths: Blocks of each stage.
        widths: Channels of each stage.
        patch_size: Side of a patch of the stem.
        activation: Between the two linear layers of a block.
    """

    depths: Counts = (3, 3, 9, 3)
    widths: Counts = (96, 192, 384, 768)
    patch_size: Count = 4
    activation: Activation = "gelu"


@family("convnext", ConvNextParameters)
def write_convnext(b: GraphBuilder, p: ConvNextParameters, shape: PassShape) -> None:
    """Write a ConvNeXt classifier.

    Liu et al., CVPR 2022, arXiv:2201.03545.

    Raises:
        InvalidValueError: If stages differ in number, or the image is too small for them.
    """
    side = shape.image_size or p.image_size
    stages = len(p.depths)
    if stages != len(p.widths):
        raise InvalidValueError("widths", p.widths, f"{stages} widths, one per stage")
    least = p.patch_size * 2 ** (stages - 1)
    if side < least:
        raise InvalidValueError("image_size", side, f"at least {least} pixels")
    x = b.input(shape.batch, p.image_channels, side, side)
    with b.scope("convnext.embeddings"):
        with b.scope("patch_embeddings"):
            x = _patches(b, x, p.widths[0], p.patch_size)
        x = _norm(b, x, "layernorm")
    for stage, (depth, width) in enumerate(zip(p.depths, p.widths, strict=True)):
        with b.scope(f"convnext.encoder.stages.{stage}"):
            if stage:
                with b.scope("downsampling_layer.1"):
                    x = _patches(b, _norm(b, x, "0"), width, 2)
            for block in range(depth):
                with b.scope(f"layers.{block}"):
                    x = _block(b, x, p.activation)
    pooled = b.view(b.global_pool(x), shape.batch, p.widths[-1])
    pooled = b.layer_norm(pooled, at="convnext.layernorm")
    b.linear(pooled, p.classes, at="classifier")


def _patches(b: GraphBuilder, x: Tensor, width: int, size: int) -> Tensor:
    return b.conv(x, width, size, stride=size, padding=0, bias=True)


def _norm(b: GraphBuilder, x: Tensor, path: str) -> Tensor:
    """Layer norm over the channels of x (batch, channels, height, width)."""
    batch, channels, *pixels = x.shape
    tokens = b.view(x, batch, pixels[0] * pixels[1], channels)
    return b.view(b.layer_norm(tokens, at=path), *x.shape)


def _block(b: GraphBuilder, x: Tensor, activation: str) -> Tensor:
    """Depthwise window, norm, two products, scaled residual.

    Liu et al., CVPR 2022, arXiv:2201.03545.
    """
    batch, channels, *pixels = x.shape
    y = b.conv(x, channels, _KERNEL, padding=_KERNEL // 2, groups=channels, bias=True, at="dwconv")
    y = b.view(_norm(b, y, "layernorm"), batch, pixels[0] * pixels[1], channels)
    with b.scope("pwconv1"):
        y = b.activation(b.linear(y, _EXPANSION * channels), activation)
    y = b.linear(y, channels, at="pwconv2")
    b.parameters(channels)
    scaled = b.elementwise(y, name="layer_scale")
    return b.add(x, b.view(scaled, *x.shape))
