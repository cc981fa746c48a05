"""Latent diffusion: the denoising U-Net, once per step, and the decoder from latents to pixels.

Rombach et al., CVPR 2022 (Stable Diffusion 1.x); Podell et al., arXiv:2307.01952 (SDXL); module
names as in diffusers' ``UNet2DConditionModel`` and ``AutoencoderKL``. One pass is one denoising
step of one prompt: classifier-free guidance runs two prompts, which is a batch of 2 per image. The
image size is that of the picture; latents are an eighth of it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from accelsim.workloads.builder import GraphBuilder, Saved, Tensor
from accelsim.workloads.families.attention_layers import join_heads, split_heads
from accelsim.workloads.family_parameters import Count, FamilyParameters, LevelChannels, Natural
from accelsim.workloads.model import PassShape, family

#: Pixels per latent, each way.
LATENT_FACTOR = 8
_GROUPS = 32


class LatentDiffusionParameters(FamilyParameters):
    """A text-conditioned denoising U-Net.

    Attributes:
        image_size: Side of the picture in pixels.
        channels: Channels of each level.
        transformer_layers: Transformer layers per attention of each level; 0 has no attention
            there.
        heads: Attention heads of each level.
        context_width: Width of the text embeddings.
        context_len: Text tokens.
        added_width: Width of the pooled text and size embeddings added to the time embedding
            (SDXL); 0 has none.
        linear_projection: Whether attention projects with a linear layer instead of a 1x1
            convolution.
        latent_channels: Channels of the latents.
        resnets_per_level: Residual blocks per level going down; one more going up.
    """

    image_size: Annotated[int, Field(ge=64, le=2**14)]
    channels: LevelChannels
    transformer_layers: Annotated[
        tuple[Annotated[int, Field(ge=0, le=64)], ...], Field(strict=False)
    ]
    heads: Annotated[tuple[Count, ...], Field(strict=False)]
    context_width: Count
    context_len: Count = 77
    added_width: Natural = 0
    linear_projection: bool = False
    latent_channels: Count = 4
    resnets_per_level: Count = 2

    @model_validator(mode="after")
    def _one_entry_per_level(self) -> LatentDiffusionParameters:
        if not len(self.channels) == len(self.transformer_layers) == len(self.heads):
            raise ValueError("channels, transformer_layers and heads need one entry per level")
        return self


@family("latent-diffusion", LatentDiffusionParameters, steps=True)
def write_latent_diffusion(b: GraphBuilder, p: LatentDiffusionParameters, shape: PassShape) -> None:
    """One denoising step.

    Rombach et al., CVPR 2022; Podell et al., arXiv:2307.01952.
    """
    size = (shape.image_size or p.image_size) // LATENT_FACTOR
    x = b.input(shape.batch, p.latent_channels, size, size)
    context = b.input(shape.batch, p.context_len, p.context_width)
    time = _time_embedding(b, p, shape.batch)
    levels = list(zip(p.channels, p.transformer_layers, p.heads, strict=True))

    def block(x: Tensor, level: tuple[int, int, int], index: int) -> Tensor:
        channels, layers, heads = level
        x = _resnet(b, x, channels, f"resnets.{index}", time)
        name = f"attentions.{index}"
        return _transformer(b, x, context, (layers, heads), p, name) if layers else x

    x = _conv(b, x, "conv_in", p.channels[0])
    skips = [x]
    for depth, level in enumerate(levels):
        with b.scope(f"down_blocks.{depth}"):
            for index in range(p.resnets_per_level):
                x = block(x, level, index)
                skips.append(x)
            if depth + 1 < len(levels):
                x = b.conv(x, level[0], 3, stride=2, padding=1, bias=True, at="downsamplers.0.conv")
                skips.append(x)
    with b.scope("mid_block"):
        channels, layers, heads = levels[-1]
        # The middle attends even where the lowest level does not, then with one layer.
        x = block(x, (channels, layers or 1, heads), 0)
        x = _resnet(b, x, channels, "resnets.1", time)
    for depth, level in enumerate(reversed(levels)):
        with b.scope(f"up_blocks.{depth}"):
            for index in range(p.resnets_per_level + 1):
                x = block(b.concat([x, skips.pop()]), level, index)
            x = _upsampled(b, x) if depth + 1 < len(levels) else x
    _finish(b, x, p.latent_channels)


def _time_embedding(b: GraphBuilder, p: LatentDiffusionParameters, batch: int) -> Tensor:
    """The time, and what is added to it, as residual blocks take them: (batch, width)."""
    width = 4 * p.channels[0]
    time = two_layers(b, b.input(batch, p.channels[0]), width, "time_embedding")
    if p.added_width:
        time = b.add(time, two_layers(b, b.input(batch, p.added_width), width, "add_embedding"))
    return b.activation(time, "silu")


def two_layers(b: GraphBuilder, x: Tensor, width: int, name: str) -> Tensor:
    """Two linear layers of one width with SiLU between them."""
    with b.scope(f"{name}.linear_1"):
        x = b.activation(b.linear(x, width), "silu")
    return b.linear(x, width, at=f"{name}.linear_2")


def _upsampled(b: GraphBuilder, x: Tensor) -> Tensor:
    with b.scope("upsamplers.0.conv"):
        return b.conv(b.upsample(x), x.shape[1], 3, bias=True)


def _conv(b: GraphBuilder, x: Tensor, name: str, channels: int, kernel: int = 3) -> Tensor:
    return b.conv(x, channels, kernel, bias=True, at=name)


def _norm_act(b: GraphBuilder, x: Tensor, norm: str, activation: str = "nonlinearity") -> Tensor:
    return b.activation(b.group_norm(x, _GROUPS, at=norm), "silu", at=activation)


def _finish(b: GraphBuilder, x: Tensor, channels: int) -> None:
    _conv(b, _norm_act(b, x, "conv_norm_out", "conv_act"), "conv_out", channels)


def _resnet(
    b: GraphBuilder, x: Tensor, channels: int, name: str, time: Tensor | None = None
) -> Tensor:
    """Two normalised 3x3 convolutions, the time embedding added between them."""
    with b.scope(name):
        y = _conv(b, _norm_act(b, x, "norm1"), "conv1", channels)
        if time is not None:
            y = b.elementwise(y, b.linear(time, channels, at="time_emb_proj"), name="add")
        y = _conv(b, _norm_act(b, y, "norm2"), "conv2", channels)
        if x.shape[1] != channels:
            x = _conv(b, x, "conv_shortcut", channels, 1)
        return b.add(y, x)


def _transformer(
    b: GraphBuilder,
    image: Tensor,
    context: Tensor,
    layers_and_heads: tuple[int, int],
    p: LatentDiffusionParameters,
    name: str,
) -> Tensor:
    """Attention over the positions of a feature map, and from them to the text."""
    layers, heads = layers_and_heads
    batch, channels, height, width = image.shape
    positions = (batch, height * width, channels)

    def projected(x: Tensor, at: str) -> Tensor:
        if not p.linear_projection:
            return b.conv(x, channels, 1, bias=True, at=at)
        return b.view(b.linear(b.view(x, *positions), channels, at=at), *image.shape)

    with b.scope(name):
        x = projected(b.group_norm(image, _GROUPS, at="norm"), "proj_in")
        x = b.copy(x, shape=positions, name="channels_last")
        for layer in range(layers):
            with b.scope(f"transformer_blocks.{layer}"):
                x = _transformer_block(b, x, context, heads)
        x = b.copy(x, shape=image.shape, name="channels_first")
        return b.add(projected(x, "proj_out"), image)


def _transformer_block(b: GraphBuilder, x: Tensor, context: Tensor, heads: int) -> Tensor:
    for index in (1, 2):
        y = b.layer_norm(x, at=f"norm{index}")
        with b.scope(f"attn{index}"):
            x = b.add(_attention(b, y, y if index == 1 else context, heads), x)
    y = b.layer_norm(x, at="norm3")
    with b.scope("ff.net"):  # GEGLU: half of the projection gates the other half
        width = x.shape[-1]
        both = b.linear(y, 8 * width, at="0.proj")
        half = b.part(both, *x.shape[:-1], 4 * width)
        y = b.elementwise(half, half, name="geglu", flop_per_element=9, saves=Saved([both]))
        y = b.linear(y, width, at="2")
    return b.add(y, x)


def _attention(
    b: GraphBuilder, x: Tensor, context: Tensor, heads: int, *, bias: bool = False
) -> Tensor:
    channels = x.shape[-1]
    q, k, v = (
        split_heads(b, b.linear(source, channels, bias=bias, at=name), heads)
        for name, source in (("to_q", x), ("to_k", context), ("to_v", context))
    )
    return b.linear(join_heads(b, b.attention(q, k, v)), channels, at="to_out.0")


class LatentDecoderParameters(FamilyParameters):
    """The decoder of a variational autoencoder.

    Attributes:
        image_size: Side of the picture in pixels.
        channels: Channels of each level, from the picture to the latents.
        latent_channels: Channels of the latents.
        resnets_per_level: Residual blocks per level.
    """

    image_size: Annotated[int, Field(ge=64, le=2**14)] = 512
    channels: LevelChannels
    latent_channels: Count = 4
    resnets_per_level: Count = 3


@family("latent-decoder", LatentDecoderParameters)
def write_latent_decoder(b: GraphBuilder, p: LatentDecoderParameters, shape: PassShape) -> None:
    """From latents to pixels.

    Rombach et al., CVPR 2022.
    """
    size = (shape.image_size or p.image_size) // 2 ** (len(p.channels) - 1)
    x = b.input(shape.batch, p.latent_channels, size, size)
    x = _conv(b, x, "post_quant_conv", p.latent_channels, 1)
    with b.scope("decoder"):
        x = _conv(b, x, "conv_in", p.channels[-1])
        with b.scope("mid_block"):
            x = _decoder_middle(b, x)
        for step, width in enumerate(reversed(p.channels)):
            with b.scope(f"up_blocks.{step}"):
                for index in range(p.resnets_per_level):
                    x = _resnet(b, x, width, f"resnets.{index}")
                x = _upsampled(b, x) if step + 1 < len(p.channels) else x
        _finish(b, x, 3)


def _decoder_middle(b: GraphBuilder, x: Tensor) -> Tensor:
    """Residual block, single-head attention over all positions, residual block."""
    x = _resnet(b, x, x.shape[1], "resnets.0")
    batch, channels, height, width = x.shape
    with b.scope("attentions.0"):
        y = b.group_norm(x, _GROUPS, at="group_norm")
        rows = b.copy(y, shape=(batch, height * width, channels), name="channels_last")
        y = _attention(b, rows, rows, 1, bias=True)
        x = b.add(b.copy(y, shape=x.shape, name="channels_first"), x)
    return _resnet(b, x, channels, "resnets.1")
