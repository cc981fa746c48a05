"""Diffusion transformers: the denoiser of text-to-image models, once per step.

MMDiT is Esser et al., ICML 2024 (arXiv:2403.03206, figure 2): picture and text have weights of
their own and attend jointly; every norm is scaled and shifted, every sublayer gated, by the time
and the pooled text. Stable Diffusion 3.5 medium lets the picture also attend to itself in its first
layers (MMDiT-X). FLUX.1 (Black Forest Labs, 2024) goes on with layers of one stream whose attention
and feed-forward run side by side. Module names as in diffusers' ``FluxTransformer2DModel`` and
``SD3Transformer2DModel``. One pass is one step of one prompt, as in `diffusion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from accelsim.workloads.builder import GraphBuilder, Projection, Tensor
from accelsim.workloads.families.attention_layers import join_heads, rotate, split_heads
from accelsim.workloads.families.diffusion import LATENT_FACTOR, two_layers
from accelsim.workloads.families.transformer import patch_embeddings, with_position_table
from accelsim.workloads.family_parameters import Count, Depth, FamilyParameters, Natural
from accelsim.workloads.model import PassShape, family

#: Latents per token, each way.
_PATCH = 2
#: Width of the sinusoids that time and guidance are given as.
_SINUSOIDS = 256


class DiffusionTransformerParameters(FamilyParameters):
    """A text-conditioned diffusion transformer.

    Attributes:
        image_size: Side of the picture in pixels.
        joint_layers: Layers with a stream for the picture and one for the text.
        single_layers: Layers of one stream after them.
        dual_layers: First layers in which the picture also attends to itself.
        heads: Attention heads.
        head_dim: Width of a head.
        context_width: Width of the text embeddings.
        context_len: Text tokens.
        pooled_width: Width of the pooled text embedding.
        latent_channels: Channels of the latents.
        position_side: Side of a fixed table of positions, in tokens; 0 rotates queries and keys.
        guidance: Whether the guidance scale is embedded beside the time.
        drops_text: Whether the last joint layer gives no text.
    """

    image_size: Annotated[int, Field(ge=64, le=2**14)] = 1024
    joint_layers: Depth
    single_layers: Natural = 0
    dual_layers: Natural = 0
    heads: Count
    head_dim: Count
    context_width: Count = 4096
    context_len: Count
    pooled_width: Count
    latent_channels: Count = 16
    position_side: Natural = 0
    guidance: bool = False
    drops_text: bool = False


@family("diffusion-transformer", DiffusionTransformerParameters, steps=True)
def write_diffusion_transformer(
    b: GraphBuilder, p: DiffusionTransformerParameters, shape: PassShape
) -> None:
    """One denoising step.

    Esser et al., ICML 2024, arXiv:2403.03206.
    """
    width = p.heads * p.head_dim
    size = (shape.image_size or p.image_size) // LATENT_FACTOR
    latents = b.input(shape.batch, p.latent_channels, size, size)
    image = patch_embeddings(b, latents, width, _PATCH, "x_embedder")
    if p.position_side:
        image = with_position_table(b, image, p.position_side**2, "pos_embed")
    context = b.input(shape.batch, p.context_len, p.context_width)
    text = b.linear(context, width, at="context_embedder")
    with b.scope("time_text_embed"):
        time = _condition(b, p, shape.batch, width)
    for index in range(p.joint_layers):
        is_last = p.drops_text and index == p.joint_layers - 1
        with b.scope(f"transformer_blocks.{index}"):
            image, text = _joint_layer(b, (image, text), time, p, index < p.dual_layers, is_last)
    if p.single_layers:
        paths = [f"single_transformer_blocks.{index}" for index in range(p.single_layers)]
        both = b.concat([text, image])
        both = b.repeated(both, paths, partial(_single_layer, b, time=time, p=p))
        image = b.part(both, *image.shape)
    image = _modulated(b, image, _modulation(b, time, 2, "norm_out"), "norm_out.norm")
    b.linear(image, _PATCH**2 * p.latent_channels, at="proj_out")


def _condition(
    b: GraphBuilder, p: DiffusionTransformerParameters, batch: int, width: int
) -> Tensor:
    """Time, guidance and pooled text, embedded and added: (batch, width)."""
    time = two_layers(b, b.input(batch, _SINUSOIDS), width, "timestep_embedder")
    if p.guidance:
        guidance = b.input(batch, _SINUSOIDS)
        time = b.add(time, two_layers(b, guidance, width, "guidance_embedder"))
    return b.add(time, two_layers(b, b.input(batch, p.pooled_width), width, "text_embedder"))


def _modulation(b: GraphBuilder, time: Tensor, count: int, name: str) -> tuple[Tensor, ...]:
    """`count` vectors of the condition, (batch, width) each."""
    width = time.shape[-1]
    with b.scope(name):
        time = b.activation(time, "silu", at="silu")
        return b.split(b.linear(time, count * width, at="linear"), [width] * count)


def _modulated(b: GraphBuilder, x: Tensor, by: Sequence[Tensor], name: str) -> Tensor:
    """x (batch, len, width) normalised, then scaled and shifted."""
    x = b.layer_norm(x, bias=False, scale=False, at=name)
    return b.add(b.multiply(x, by[0]), by[1])


def _gated(b: GraphBuilder, x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    return b.add(x, b.multiply(y, gate))


def _heads(
    b: GraphBuilder, x: Tensor, p: DiffusionTransformerParameters, names: Sequence[str]
) -> list[Tensor]:
    """Queries, keys and values (batch, heads, len, head_dim) of x, queries and keys normalised."""
    projections = [Projection(x.shape[-1], True, name) for name in names[:3]]
    heads = [split_heads(b, y, p.heads) for y in b.projections(x, projections, "to_qkv")]
    return [*(b.rms_norm(y, at=at) for y, at in zip(heads, names[3:], strict=False)), heads[2]]


def _attended(
    b: GraphBuilder, heads: Sequence[Tensor], p: DiffusionTransformerParameters
) -> Tensor:
    q, k, v = heads
    if not p.position_side:
        q, k = rotate(b, q, p.head_dim), rotate(b, k, p.head_dim)
    return join_heads(b, b.attention(q, k, v))


_OWN = ("to_q", "to_k", "to_v", "norm_q", "norm_k")
_ADDED = ("add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q", "norm_added_k")


def _joint_layer(
    b: GraphBuilder,
    streams: tuple[Tensor, Tensor],
    time: Tensor,
    p: DiffusionTransformerParameters,
    is_dual: bool,
    is_last: bool,
) -> tuple[Tensor, Tensor]:
    """A layer over the streams of picture and text; the last may leave the text as it is."""
    image, text = streams
    width = image.shape[-1]
    image_by = _modulation(b, time, 9 if is_dual else 6, "norm1")
    text_by = _modulation(b, time, 2 if is_last else 6, "norm1_context")
    normed = _modulated(b, image, image_by, "norm1.norm")
    context = _modulated(b, text, text_by, "norm1_context.norm")
    with b.scope("attn"):
        pairs = zip(_heads(b, context, p, _ADDED), _heads(b, normed, p, _OWN), strict=True)
        both = _attended(b, [b.concat(pair, axis=2) for pair in pairs], p)
        attended = b.linear(b.part(both, *image.shape), width, at="to_out.0")
        added = None if is_last else b.linear(b.part(both, *text.shape), width, at="to_add_out")
    image = _gated(b, image, attended, image_by[2])
    if is_dual:
        again = b.add(b.multiply(normed, image_by[6]), image_by[7])
        with b.scope("attn2"):
            attended = b.linear(_attended(b, _heads(b, again, p, _OWN), p), width, at="to_out.0")
        image = _gated(b, image, attended, image_by[8])
    image = _fed_forward(b, image, image_by[3:6], "norm2", "ff")
    if added is not None:
        text = _gated(b, text, added, text_by[2])
        text = _fed_forward(b, text, text_by[3:], "norm2_context", "ff_context")
    return image, text


def _fed_forward(b: GraphBuilder, x: Tensor, by: Sequence[Tensor], norm: str, name: str) -> Tensor:
    y = _modulated(b, x, by, norm)
    with b.scope(f"{name}.net"):
        y = b.activation(b.linear(y, 4 * x.shape[-1], at="0.proj"), "gelu", at="0")
        y = b.linear(y, x.shape[-1], at="2")
    return _gated(b, x, y, by[2])


def _single_layer(
    b: GraphBuilder, x: Tensor, time: Tensor, p: DiffusionTransformerParameters
) -> Tensor:
    """Attention and feed-forward side by side, joined by one projection."""
    width = x.shape[-1]
    by = _modulation(b, time, 3, "norm")
    y = _modulated(b, x, by, "norm.norm")
    inner = b.activation(b.linear(y, 4 * width, at="proj_mlp"), "gelu", at="act_mlp")
    with b.scope("attn"):
        attended = _attended(b, _heads(b, y, p, _OWN), p)
    return _gated(b, x, b.linear(b.concat([attended, inner], axis=2), width, at="proj_out"), by[2])
