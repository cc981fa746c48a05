"""Encoder-only transformers: BERT and its relatives, ModernBERT, and the vision transformer.

BERT is Devlin et al. 2019 (arXiv:1810.04805), the vision transformer Dosovitskiy et al. 2021
(arXiv:2010.11929). ModernBERT is Warner et al. 2024 (arXiv:2412.13663): rotary positions, gated
feed-forwards and windows in two of three layers; module names as in Hugging Face's
``ModernBertForMaskedLM``; dropout is off, as it was trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import model_validator

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.attention_layers import MultiHeadAttention
from accelsim.workloads.families.decoder import Activation
from accelsim.workloads.families.feed_forward import FeedForward
from accelsim.workloads.families.module_names import LAYER_NAMES
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
from accelsim.workloads.families.vision import image_input
from accelsim.workloads.family_parameters import (
    Count,
    Depth,
    FamilyParameters,
    ImageParameters,
    Natural,
)
from accelsim.workloads.model import PassShape, family


class StackParameters(FamilyParameters):
    """What every encoder stack has."""

    hidden_size: Count
    layers: Depth
    heads: Count
    intermediate_size: Count
    activation: Activation = "gelu"

    @model_validator(mode="after")
    def _heads_divide(self) -> StackParameters:
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size = {self.hidden_size} does not divide into {self.heads} heads"
            )
        return self

    @property
    def attention(self) -> MultiHeadAttention:
        """Attention of all heads with biases everywhere."""
        head_dim = self.hidden_size // self.heads
        return MultiHeadAttention(
            self.heads, self.heads, head_dim, bias=True, key_bias=True, output_bias=True
        )


def encoder_layer(
    p: StackParameters, attention: MultiHeadAttention, layout: str, *, norm_first: bool
) -> TransformerLayer:
    """A layer with biases everywhere and layer norm, as in BERT, ViT and wav2vec 2.0."""
    return TransformerLayer(
        attention=attention,
        feed_forward=FeedForward(p.intermediate_size, p.activation, bias=True),
        names=LAYER_NAMES[layout],
        norm_first=norm_first,
        dropout=attention.dropout,
    )


class EncoderParameters(StackParameters):
    """Parameters of a BERT-like encoder.

    Attributes:
        layout: Module paths to use.
        vocab_size: Rows of the embedding table.
        max_positions: Rows of the position table.
        position_offset: Rows of that table no position uses (RoBERTa has 2).
        type_vocab_size: Rows of the segment table; 0 for none.
        embedding_size: Width of the three tables, which a product widens; the layers' where None
            (ALBERT: Lan et al. 2020, arXiv:1909.11942, section 3.1).
        shares_layers: Whether all layers have the weights of one (ALBERT).
        head: What follows the encoder: nothing, the pooler, the masked-token logits (tied), pooler
            with both pretraining heads, pooler with a classifier of `labels`, or a classifier of
            every token.
        labels: Classes of the classifier.
    """

    layout: Literal["bert", "distilbert"] = "bert"
    vocab_size: Count
    max_positions: Count = 512
    position_offset: Natural = 0
    type_vocab_size: Natural = 2
    embedding_size: Count | None = None
    shares_layers: bool = False
    head: Literal[
        "none", "pooler", "masked_lm", "pretraining", "classification", "token_classification"
    ] = "pooler"
    labels: Count = 2


@family("encoder", EncoderParameters, sequence=True)
def write_encoder(b: GraphBuilder, p: EncoderParameters, shape: PassShape) -> None:
    """Write a BERT-like encoder over (batch, seq_len) tokens."""
    length = new_token_count(b, shape, p.max_positions)
    prefix, stack = (
        ("bert", "encoder.layer") if p.layout == "bert" else ("distilbert", "transformer.layer")
    )
    with b.scope(prefix):
        with b.scope("embeddings"):
            x = _embed_tokens(b, p, shape.batch, length)
        attention = replace(p.attention, masked=True, dropout=True)
        layer = encoder_layer(p, attention, p.layout, norm_first=False)
        totals_before = b.parameter_totals
        x = transformer_layers(b, x, [layer] * p.layers, stack)
        if p.shares_layers:
            b.count_once(totals_before, p.layers)
    _write_head(b, p, x, prefix)


def _embed_tokens(b: GraphBuilder, p: EncoderParameters, batch: int, length: int) -> Tensor:
    width = p.embedding_size or p.hidden_size
    x = b.embedding(token_ids(b, batch, length), p.vocab_size, width, at="word_embeddings")
    if p.type_vocab_size:
        with b.scope("token_type_embeddings"):
            x = b.add(x, b.embedding(token_ids(b, batch, length), p.type_vocab_size, width))
    x = with_positions(b, x, p.max_positions + p.position_offset, "position_embeddings")
    x = b.dropout(b.layer_norm(x, at="LayerNorm"))
    if width == p.hidden_size:
        return x
    return b.linear(x, p.hidden_size, at="projection")


def _write_head(b: GraphBuilder, p: EncoderParameters, x: Tensor, prefix: str) -> None:
    batch, _, width = x.shape
    if p.head in {"pooler", "pretraining", "classification"}:
        pooled = b.linear(b.part(x, batch, width), width, at=f"{prefix}.pooler.dense")
        pooled = b.activation(pooled, "tanh", at=f"{prefix}.pooler.activation")
        if p.head == "classification":
            b.linear(pooled, p.labels, at="classifier")
        if p.head == "pretraining":
            b.linear(pooled, 2, at="cls.seq_relationship")
    if p.head in {"masked_lm", "pretraining"}:
        with b.scope("cls.predictions.transform.dense"):
            x = b.activation(b.linear(x, p.hidden_size), "gelu")
        x = b.layer_norm(x, at="cls.predictions.transform.LayerNorm")
        _tied_logits(b, x, p.vocab_size, "cls.predictions.decoder")
    if p.head == "token_classification":
        b.linear(x, p.labels, at="classifier")


def _tied_logits(b: GraphBuilder, x: Tensor, vocab_size: int, path: str) -> None:
    """Scores of a vocabulary by its embedding table, and a bias of their own."""
    with b.scope(path):
        b.parameters(vocab_size)
        b.linear(x, vocab_size, tied=True)


class VisionTransformerParameters(StackParameters, ImageParameters):
    """Parameters of a vision transformer; `image_size` is the one its position table is made for.

    Attributes:
        patch_size: Side of a patch.
    """

    patch_size: Count = 16


@family("vision-transformer", VisionTransformerParameters)
def write_vision_transformer(
    b: GraphBuilder, p: VisionTransformerParameters, shape: PassShape
) -> None:
    """Write a vision transformer; another `image_size` interpolates the position table, which keeps
    its size.

    Dosovitskiy et al. 2021, arXiv:2010.11929.
    """
    position_rows = (p.image_size // p.patch_size) ** 2 + 1
    with b.scope("vit"):
        with b.scope("embeddings"):
            pixels, path = image_input(b, p, shape), "patch_embeddings.projection"
            x = patch_embeddings(b, pixels, p.hidden_size, p.patch_size, path)
            x = with_class_token(b, x)
            x = with_position_table(b, x, position_rows, "position_embeddings")
        layer = encoder_layer(p, p.attention, "vit", norm_first=True)
        x = transformer_layers(b, x, [layer] * p.layers, "encoder.layer")
        x = b.layer_norm(x, at="layernorm")
    b.linear(b.part(x, shape.batch, p.hidden_size), p.classes, at="classifier")


class ModernEncoderParameters(StackParameters):
    """Parameters of a ModernBERT encoder.

    Attributes:
        vocab_size: Rows of the embedding table.
        max_positions: Tokens it was trained on.
        window: Tokens around each that a windowed layer sees.
        full_attention_every: Every n-th layer, from the first on, sees all.
        head: The logits of masked tokens (tied), a classifier of `labels`, or nothing.
        labels: Classes of the classifier.
    """

    vocab_size: Count
    max_positions: Natural = 8192
    window: Count = 128
    full_attention_every: Count = 3
    head: Literal["none", "masked_lm", "classification", "token_classification"] = "none"
    labels: Count = 2


@family("modern-encoder", ModernEncoderParameters, sequence=True)
def write_modern_encoder(b: GraphBuilder, p: ModernEncoderParameters, shape: PassShape) -> None:
    """Write a ModernBERT encoder over (batch, seq_len) tokens."""
    batch = shape.batch
    length = new_token_count(b, shape)
    with b.scope("model.embeddings"):
        x = b.embedding(
            token_ids(b, batch, length), p.vocab_size, p.hidden_size, at="tok_embeddings"
        )
        x = b.layer_norm(x, bias=False, at="norm")
    layers = [_modern_layer(p, index) for index in range(p.layers)]
    x = transformer_layers(b, x, layers, "model.layers")
    x = b.layer_norm(x, bias=False, at="model.final_norm")
    if p.head == "none":
        return
    if p.head == "classification":
        x = b.part(x, batch, p.hidden_size)
    with b.scope("head"):
        with b.scope("dense"):
            x = b.activation(b.linear(x, p.hidden_size, bias=False), p.activation)
        x = b.layer_norm(x, bias=False, at="norm")
    if p.head == "masked_lm":
        _tied_logits(b, x, p.vocab_size, "decoder")
    else:
        b.linear(x, p.labels, at="classifier")


def _modern_layer(p: ModernEncoderParameters, index: int) -> TransformerLayer:
    width = p.hidden_size // p.heads
    attention = MultiHeadAttention(
        heads=p.heads,
        kv_heads=p.heads,
        head_dim=width,
        fused_qkv=True,
        rotary_dim=width,
        window=p.window if index % p.full_attention_every else 0,
        masked=True,
    )
    feed = FeedForward(p.intermediate_size, p.activation, gated=True, fused_gate_up=True)
    names = LAYER_NAMES["modernbert"]
    return TransformerLayer(attention, feed, names, norm_bias=False)
