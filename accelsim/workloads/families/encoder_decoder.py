"""Encoder-decoder transformers: the original Transformer, T5 and BART-like models.

The original is Vaswani et al. 2017 (arXiv:1706.03762), T5 with relative position biases Raffel et
al. 2020 (arXiv:1910.10683). A forward pass (training, scoring) runs `seq_len` source and
`target_len` target tokens. Prefill encodes the source and runs the start token of the target; a
decode step runs one more target token on `context_len` cached ones and on the cached keys and
values of `source_len` encoder states. The cache grows by `Lowered.cache` per target token; the
source takes as much per source token once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from accelsim.errors import InvalidValueError
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.attention_layers import MultiHeadAttention
from accelsim.workloads.families.decoder import Activation
from accelsim.workloads.families.feed_forward import FeedForward
from accelsim.workloads.families.module_names import LAYER_NAMES
from accelsim.workloads.families.transformer import (
    LayerStates,
    TransformerLayer,
    new_token_count,
    normalise,
    token_ids,
    transformer_layers,
    with_positions,
)
from accelsim.workloads.family_parameters import Count, Depth, FamilyParameters, Natural
from accelsim.workloads.model import PassShape, family
from accelsim.workloads.operator import Phase


class EncoderDecoderParameters(FamilyParameters):
    """Parameters of a text-to-text model.

    Attributes:
        layout: Module paths to use.
        vocab_size: Rows of the embedding table, shared by source and target.
        hidden_size: Model width.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder.
        heads: Attention heads.
        head_dim: Width of a head; None for hidden_size / heads.
        intermediate_size: Inner width of the feed-forward.
        activation: Its activation.
        gated: Whether the activation gates a second projection.
        norm: Norm of all layers.
        norm_first: Norm before each sublayer, and after the last layer.
        attention_bias: Biases of the attention's projections.
        feed_forward_bias: Biases of the feed-forward.
        positions: Relative buckets (T5), a computed sinusoid, or learned tables (one per stack).
        relative_buckets: Rows of each stack's relative table.
        max_positions: Rows of each learned table.
        position_offset: Rows of that table no position uses (BART has 2).
        embedding_norm: Norm after the embeddings (BART).
        tied_logits: Whether the logits matrix is the embedding table.
    """

    layout: Literal["t5", "fairseq"] = "t5"
    vocab_size: Count
    hidden_size: Count
    encoder_layers: Depth
    decoder_layers: Depth
    heads: Count
    head_dim: Count | None = None
    intermediate_size: Count
    activation: Activation = "relu"
    gated: bool = False
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_first: bool = True
    attention_bias: bool = False
    feed_forward_bias: bool = False
    positions: Literal["relative", "sinusoidal", "learned"] = "relative"
    relative_buckets: Count = 32
    max_positions: Natural = 0
    position_offset: Natural = 0
    embedding_norm: bool = False
    tied_logits: bool = True

    @property
    def layers_path(self) -> str:
        """Module path of the layers of a stack."""
        return "block" if self.layout == "t5" else "layers"

    @property
    def table_limit(self) -> int:
        """Positions there are, 0 for no limit."""
        return self.max_positions if self.positions == "learned" else 0


def encoder_states(
    b: GraphBuilder,
    batch: int,
    source_len: int,
    width: int,
    write: Callable[[GraphBuilder, int], Tensor],
) -> Tensor:
    """Run the encoder, or, while decoding, only count its parameters and take its states as given.

    Args:
        b: Builder of the whole model.
        batch: Sequences.
        source_len: Encoder positions.
        width: Width of the encoder states.
        write: Writes the encoder for a number of positions and returns its states.
    """
    if b.phase is not Phase.DECODE:
        return write(b, source_len)
    idle = GraphBuilder(b.precision)
    write(idle, 1)
    b.parameter_totals = b.parameter_totals.plus(idle.parameter_totals)
    return b.input(batch, source_len, width)


def target_lengths(b: GraphBuilder, shape: PassShape, limit: int = 0) -> tuple[int, int]:
    """New and cached target tokens of this pass: all of them, the start token, or one more.

    Raises:
        InvalidValueError: If a forward pass has no target, or there are more tokens than positions.
    """
    if b.phase is Phase.PREFILL:
        return 1, 0
    new, cached = (1, shape.context_len) if b.phase is Phase.DECODE else (shape.target_len, 0)
    if new < 1 or (limit and new + cached > limit):
        allowed = f"1 to {limit}" if limit else "at least 1 token"
        raise InvalidValueError(
            "target_len", new + cached, allowed, "Give the number of target tokens."
        )
    return new, cached


@family("encoder-decoder", EncoderDecoderParameters, autoregressive=True, sequence=True)
def write_encoder_decoder(b: GraphBuilder, p: EncoderDecoderParameters, shape: PassShape) -> None:
    """Write a text-to-text model.

    Vaswani et al. 2017, arXiv:1706.03762; Raffel et al. 2020, arXiv:1910.10683.
    """
    source_len = shape.source_len
    if b.phase is not Phase.DECODE:
        source_len = new_token_count(b, PassShape(seq_len=shape.seq_len), p.table_limit)
    if source_len < 1:
        raise InvalidValueError("source_len", source_len, "at least 1 encoder position")
    new, cached = target_lengths(b, shape, p.table_limit)
    b.parameters(p.vocab_size * p.hidden_size)  # the shared embedding table
    memory = encoder_states(
        b,
        shape.batch,
        source_len,
        p.hidden_size,
        lambda into, length: _stack(into, p, shape.batch, length),
    )
    x = _stack(b, p, shape.batch, new, cached, memory)
    with b.scope("lm_head"):
        if p.norm == "rms_norm" and p.tied_logits:
            x = b.elementwise(x, name="scale")  # T5 scales by width^-1/2 where the table is shared
        b.linear(x, p.vocab_size, bias=False, tied=p.tied_logits)


def _stack(
    b: GraphBuilder,
    p: EncoderDecoderParameters,
    batch: int,
    length: int,
    cached: int = 0,
    memory: Tensor | None = None,
) -> Tensor:
    """The encoder; with its states as memory the decoder, on new and cached tokens."""
    is_decoder = memory is not None
    layer_count = p.decoder_layers if is_decoder else p.encoder_layers
    with b.scope("decoder" if is_decoder else "encoder"):
        x = _embed(b, p, batch, length)
        states = LayerStates(cached, memory, _relative_bias(b, p, length, length + cached))
        layers = [_layer(p, decoder=is_decoder)] * layer_count
        x = transformer_layers(b, x, layers, p.layers_path, states)
        final_norm = "final_layer_norm" if p.layout == "t5" else "layer_norm"
        return normalise(b, x, p.norm, final_norm) if p.norm_first else x


def _embed(b: GraphBuilder, p: EncoderDecoderParameters, batch: int, length: int) -> Tensor:
    x = b.embedding(
        token_ids(b, batch, length), p.vocab_size, p.hidden_size, tied=True, at="embed_tokens"
    )
    if p.positions == "learned":
        x = with_positions(b, x, p.max_positions + p.position_offset, "embed_positions")
    if p.positions == "sinusoidal":
        x = b.add(x, b.input(length, p.hidden_size), name="positional_encoding")
    return normalise(b, x, p.norm, "layernorm_embedding") if p.embedding_norm else x


def _relative_bias(
    b: GraphBuilder, p: EncoderDecoderParameters, queries: int, keys: int
) -> Tensor | None:
    """Scores by distance bucket, looked up once in the first layer and added in all."""
    if p.positions != "relative":
        return None
    return b.embedding(
        token_ids(b, queries, keys),
        p.relative_buckets,
        p.heads,
        at=f"{p.layers_path}.0.layer.0.SelfAttention.relative_attention_bias",
    )


def _layer(p: EncoderDecoderParameters, *, decoder: bool) -> TransformerLayer:
    bias = p.attention_bias
    across = MultiHeadAttention(
        heads=p.heads,
        kv_heads=p.heads,
        head_dim=p.head_dim or p.hidden_size // p.heads,
        bias=bias,
        key_bias=bias,
        output_bias=bias,
        masked=True,
        dropout=True,
        # T5 folds the scale into its initialisation.
        scaled="query" if p.layout == "fairseq" else "",
    )
    side = "decoder" if decoder else "encoder"
    names = LAYER_NAMES["fairseq" if p.layout == "fairseq" else f"t5_{side}"]
    if p.layout == "t5" and p.gated:
        names = replace(names, up=f"{names.up}_1")
    return TransformerLayer(
        attention=replace(across, causal=decoder),
        feed_forward=FeedForward(p.intermediate_size, p.activation, p.gated, p.feed_forward_bias),
        names=names,
        norm=p.norm,
        norm_first=p.norm_first,
        cross=across if decoder else None,
        dropout=True,
    )
