"""Dual encoders of images and texts: CLIP (Radford et al., ICML 2021, arXiv:2103.00020) and SigLIP
(Zhai et al., ICCV 2023, arXiv:2303.15343).

A sample is an image and a text. Module names as in Hugging Face's ``CLIPModel`` and
``SiglipModel``. The comparison of all images with all texts of a batch is one product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.attention_layers import join_heads, split_heads
from accelsim.workloads.families.encoder import StackParameters, encoder_layer
from accelsim.workloads.families.transformer import (
    TransformerLayer,
    new_token_count,
    patch_embeddings,
    token_ids,
    transformer_layers,
    with_class_token,
    with_position_table,
    with_positions,
)
from accelsim.workloads.family_parameters import Count, FamilyParameters
from accelsim.workloads.model import PassShape, family


class ImageTower(StackParameters):
    """The encoder of images.

    Attributes:
        image_size: Side of the image it was made for, in pixels.
        patch_size: Side of a patch.
    """

    image_size: Count = 224
    patch_size: Count = 32


class TextTower(StackParameters):
    """The encoder of texts.

    Attributes:
        vocab_size: Rows of the embedding table.
        max_positions: Rows of the position table.
    """

    vocab_size: Count
    max_positions: Count = 77


class DualEncoderParameters(FamilyParameters):
    """Parameters of a dual encoder.

    Attributes:
        image: The encoder of images.
        text: The encoder of texts.
        projection_size: Width both are projected to; of CLIP.
        kind: What differs: CLIP has a class token, a causal text encoder and projections, SigLIP
            pools patches by attention.
    """

    image: ImageTower
    text: TextTower
    projection_size: Count = 512
    kind: Literal["clip", "siglip"] = "clip"


@family("dual-encoder", DualEncoderParameters, sequence=True, image=True)
def write_dual_encoder(b: GraphBuilder, p: DualEncoderParameters, shape: PassShape) -> None:
    """Write both encoders over a batch of images and as many texts of seq_len tokens."""
    image = _image(b, p, shape.batch, shape.image_size or p.image.image_size)
    text = _text(b, p, shape.batch, new_token_count(b, shape, p.text.max_positions))
    b.parameters(1 if p.kind == "clip" else 2)  # scale, and SigLIP's bias
    b.matmul(text, b.part(image, image.shape[1], image.shape[0]), name="logits")


def _image(b: GraphBuilder, p: DualEncoderParameters, batch: int, side: int) -> Tensor:
    """Embeddings of images. Radford et al., ICML 2021 (CLIP); Zhai et al., ICCV 2023 (SigLIP)."""
    tower = p.image
    is_clip = p.kind == "clip"
    width = tower.hidden_size
    position_rows = (tower.image_size // tower.patch_size) ** 2 + is_clip
    with b.scope("vision_model"):
        pixels, path = b.input(batch, 3, side, side), "embeddings.patch_embedding"
        x = patch_embeddings(b, pixels, width, tower.patch_size, path, bias=not is_clip)
        x = with_class_token(b, x) if is_clip else x
        x = with_position_table(b, x, position_rows, "embeddings.position_embedding")
        if is_clip:
            x = b.layer_norm(x, at="pre_layrnorm")
        x = transformer_layers(b, x, [_layer(tower)] * tower.layers, "encoder.layers")
        if is_clip:
            x = b.layer_norm(b.part(x, batch, width), at="post_layernorm")
        else:
            x = _pooled(b, b.layer_norm(x, at="post_layernorm"), tower)
    return b.linear(x, p.projection_size, bias=False, at="visual_projection") if is_clip else x


def _pooled(b: GraphBuilder, x: Tensor, tower: ImageTower) -> Tensor:
    """SigLIP's head: one learned query over all patches, and a feed-forward."""
    batch, count, width = x.shape
    heads = tower.heads
    with b.scope("head"):
        b.parameters(width)
        with b.scope("attention"):
            q = split_heads(b, b.linear(b.input(batch, 1, width), width), heads)
            both = b.linear(x, 2 * width)
            k, v = (b.part(both, batch, heads, count, width // heads) for _ in range(2))
            y = b.linear(join_heads(b, b.attention(q, k, v)), width)
        inner = b.layer_norm(y, at="layernorm")
        with b.scope("mlp"):
            inner = b.activation(b.linear(inner, tower.intermediate_size), tower.activation)
            y = b.add(y, b.linear(inner, width))
    return b.view(y, batch, width)


def _text(b: GraphBuilder, p: DualEncoderParameters, batch: int, length: int) -> Tensor:
    tower = p.text
    is_clip = p.kind == "clip"
    width = tower.hidden_size
    with b.scope("text_model"):
        x = b.embedding(
            token_ids(b, batch, length), tower.vocab_size, width, at="embeddings.token_embedding"
        )
        x = with_positions(b, x, tower.max_positions, "embeddings.position_embedding")
        layers = [_layer(tower, causal=is_clip)] * tower.layers
        x = transformer_layers(b, x, layers, "encoder.layers")
        x = b.layer_norm(x, at="final_layer_norm")
    x = b.part(x, batch, width)
    if is_clip:
        return b.linear(x, p.projection_size, bias=False, at="text_projection")
    return b.linear(x, p.image.hidden_size, at="text_model.head")


def _layer(p: StackParameters, *, causal: bool = False) -> TransformerLayer:
    attention = replace(p.attention, scaled="query", causal=causal)
    return encoder_layer(p, attention, "fairseq_mlp", norm_first=True)
