"""ModernBERT: an encoder with rotary positions, gated feed-forwards and windows in two of three
layers (Warner et al., 2024, arXiv:2412.13663).

Module names as in Hugging Face's ``ModernBertForMaskedLM``. Dropout is off, as it was trained.
"""

from __future__ import annotations

from typing import Literal

from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families.attention_layers import MultiHeadAttention
from accelsim.workloads.families.encoder import StackParameters
from accelsim.workloads.families.feed_forward import FeedForward
from accelsim.workloads.families.module_names import LAYER_NAMES
from accelsim.workloads.families.transformer import (
    TransformerLayer,
    new_token_count,
    normalise,
    token_ids,
    transformer_layers,
)
from accelsim.workloads.family_parameters import Count, Natural
from accelsim.workloads.model import PassShape, family


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
        x = normalise(b, x, "layer_norm", "norm", bias=False)
    layers = [_layer(p, index) for index in range(p.layers)]
    x = transformer_layers(b, x, layers, "model.layers")
    x = normalise(b, x, "layer_norm", "model.final_norm", bias=False)
    if p.head == "none":
        return
    if p.head == "classification":
        x = b.part(x, batch, p.hidden_size)
    with b.scope("head"):
        with b.scope("dense"):
            x = b.activation(b.linear(x, p.hidden_size, bias=False), p.activation)
        x = normalise(b, x, "layer_norm", "norm", bias=False)
    is_masked = p.head == "masked_lm"
    if is_masked:
        b.parameters(p.vocab_size)  # its bias; the matrix is the embedding table
    b.linear(
        x,
        p.vocab_size if is_masked else p.labels,
        tied=is_masked,
        at="decoder" if is_masked else "classifier",
    )


def _layer(p: ModernEncoderParameters, index: int) -> TransformerLayer:
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
