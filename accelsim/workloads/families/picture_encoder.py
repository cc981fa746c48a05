"""Encoders that turn the pictures of a prompt into tokens of a language model.

A vision transformer (Dosovitskiy et al. 2021, arXiv:2010.11929) over patches, whose neighbours are
merged and projected to the width of the language model: Qwen2.5-VL (arXiv:2502.13923; attention
within windows in most layers), Qwen3-VL (arXiv:2511.21631; merges of inner layers, too), Llama 4,
and the SigLIP of Gemma 3 (arXiv:2503.19786; means of neighbours). Module names as in Hugging
Face's ``Qwen2_5_VisionTransformerPretrainedModel``. A sample is a picture.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from math import isqrt
from typing import Literal

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.encoder import StackParameters
from accelsim.workloads.families.feed_forward import FeedForward
from accelsim.workloads.families.module_names import LayerNames
from accelsim.workloads.families.transformer import (
    TransformerLayer,
    normalise,
    transformer_layers,
    with_class_token,
    with_position_table,
)
from accelsim.workloads.family_parameters import Count, Counts, ImageParameters, Natural
from accelsim.workloads.model import PassShape, family

_NAMES = LayerNames(
    attention="attn",
    query="attn.q_proj",
    key="attn.k_proj",
    value="attn.v_proj",
    output="attn.proj",
    fused_qkv="attn.qkv",
    attention_norm="norm1",
    feed_forward_norm="norm2",
)


class PictureEncoderParameters(StackParameters, ImageParameters):
    """An encoder of pictures; `image_size` is the one that its tokens are counted at by default.

    Attributes:
        patch_size: Side of a patch in pixels.
        frames: Frames of a patch; a picture is repeated.
        patch_bias: Whether the product that embeds patches has a bias.
        norm: Norm of all layers.
        gated: Whether the activation gates a second projection.
        fused_qkv: Whether query, key and value are one product.
        rotary: Whether queries and keys are rotated.
        class_token: Whether a learned token stands before the patches, and a norm before the layers
            (Llama 4).
        positions: Rows of a learned table of positions; 0 for none.
        window: Side, in patches, of the windows that layers attend within; 0 for none.
        full_attention_every: Every n-th layer, the last of each n, sees all.
        merge: Patches merged to a token, each way.
        averaged: Whether they are averaged and normalised (Gemma 3) instead of joined.
        merged_widths: Outputs of the projections of merged patches; the last is the width of the
            language model.
        merged_bias: Whether these have biases.
        inner_merges: Inner layers whose patches are merged, too (Qwen3-VL).
        any_size: Whether pictures keep their size; else they are scaled to `image_size`.
        most_tiles: Tiles of `image_size` that a larger picture is cut into at most; the whole
            picture is one more.
    """

    patch_size: Count
    frames: Count = 1
    patch_bias: bool = True
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    gated: bool = False
    fused_qkv: bool = False
    rotary: bool = False
    class_token: bool = False
    positions: Natural = 0
    window: Natural = 0
    full_attention_every: Count = 8
    merge: Count = 2
    averaged: bool = False
    merged_widths: Counts
    merged_bias: bool = True
    inner_merges: Natural = 0
    any_size: bool = False
    most_tiles: Count = 1

    def patches(self, image_size: int) -> int:
        """Patches each way of a picture or tile, which is scaled to whole tokens.

        Bai et al. 2025, arXiv:2502.13923, section 2.1.
        """
        side = (image_size if self.any_size else 0) or self.image_size
        return self.merge * max(round(side / (self.patch_size * self.merge)), 1)

    def tiles(self, image_size: int) -> int:
        """Tiles of a square picture.

        Estimate: the fewest that cover it, and one of the whole picture where it is cut.
        """
        each_way = min(-(-image_size // self.image_size), isqrt(self.most_tiles))
        return each_way**2 + 1 if each_way > 1 else 1

    def tokens(self, image_size: int) -> int:
        """Tokens of the language model that a square picture takes."""
        return self.tiles(image_size) * (self.patches(image_size) // self.merge) ** 2


@family("picture-encoder", PictureEncoderParameters)
def write_picture_encoder(b: GraphBuilder, p: PictureEncoderParameters, shape: PassShape) -> None:
    """Patches, layers, merges.

    Bai et al., Qwen2.5-VL, 2025, arXiv:2502.13923, section 2.1.
    """
    side, width = p.patches(shape.image_size), p.hidden_size
    pictures = shape.batch * p.tiles(shape.image_size)
    pixels = b.input(pictures, side**2, p.image_channels * p.frames * p.patch_size**2)
    x = patches = b.linear(pixels, width, bias=p.patch_bias, at="patch_embed.proj")
    x = with_class_token(b, x) if p.class_token else x
    if p.positions:
        x = with_position_table(b, x, p.positions, "pos_embed")
    x = normalise(b, x, p.norm, "norm_pre") if p.class_token else x
    rotary_dim = p.attention.head_dim if p.rotary else 0
    attention = replace(p.attention, fused_qkv=p.fused_qkv, rotary_dim=rotary_dim)
    feed = FeedForward(p.intermediate_size, p.activation, gated=p.gated, bias=True)
    layer = TransformerLayer(attention, feed, _NAMES, norm=p.norm)
    every = p.full_attention_every

    def is_windowed(index: int) -> bool:
        return bool(p.window and (index + 1) % every)

    for windowed, indices in groupby(range(p.layers), key=is_windowed):
        alike = list(indices)
        # Windows are runs of patches that attend among themselves, as documents are.
        b.document_len = p.window**2 if windowed else 0
        x = transformer_layers(b, x, [layer] * len(alike), "blocks", first=alike[0])
    x = normalise(b, b.part(x, *patches.shape), p.norm, "merger.norm")
    for index in range(p.inner_merges):
        with b.scope(f"deepstack_merger_list.{index}"):
            _project(b, normalise(b, _merged(b, x, p.merge), p.norm, "norm"), p)
    with b.scope("merger"):
        _project(b, _averaged(b, x, p, side) if p.averaged else _merged(b, x, p.merge), p)


def _merged(b: GraphBuilder, x: Tensor, merge: int) -> Tensor:
    """Patches (batch, count, width), neighbours joined.

    Bai et al. 2025, arXiv:2502.13923, section 2.1.
    """
    batch, count, width = x.shape
    return b.copy(x, shape=(batch, count // merge**2, merge**2 * width), name="merge")


def _averaged(b: GraphBuilder, x: Tensor, p: PictureEncoderParameters, side: int) -> Tensor:
    batch, _, width = x.shape
    x = b.copy(x, shape=(batch, width, side, side), name="channels_first")
    x = b.pool(x, p.merge, mode="avg")
    x = b.copy(x, shape=(batch, (side // p.merge) ** 2, width), name="channels_last")
    return b.rms_norm(x, at="soft_emb_norm")


def _project(b: GraphBuilder, x: Tensor, p: PictureEncoderParameters) -> None:
    """Products with an activation between them."""
    for index, width in enumerate(p.merged_widths):
        x = b.activation(x, "gelu", at="act_fn") if index else x
        x = b.linear(x, width, bias=p.merged_bias, at=f"linear_fc{index + 1}")
