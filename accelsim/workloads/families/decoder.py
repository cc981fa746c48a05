"""Decoder-only language models: GPT-2/3, OPT, Llama, Mistral, Mixtral, Qwen, gpt-oss, DeepSeek-V3
and their relatives.

One family covers them all: what differs is the norm, positions, biases, gating, grouping of heads,
windows, experts and latent attention, each a parameter. A forward pass computes logits of every
token, prefill those of the last token alone. The logits matrix counts as matrix arithmetic, the
embedding lookup does not (Kaplan et al. 2020, arXiv:2001.08361).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from pydantic import Field, model_validator

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.attention_layers import (
    LatentAttention,
    MultiHeadAttention,
    enter_split,
    leave_split,
)
from accelsim.workloads.families.feed_forward import FeedForward, Mixture
from accelsim.workloads.families.linear_attention import GatedDelta, Lightning
from accelsim.workloads.families.module_names import LAYOUTS
from accelsim.workloads.families.transformer import (
    LayerStates,
    TransformerLayer,
    held_tokens,
    held_vocabulary,
    new_token_count,
    normalise,
    token_ids,
    transformer_layers,
    with_positions,
)
from accelsim.workloads.family_parameters import Count, Depth, FamilyParameters, Natural
from accelsim.workloads.model import PassShape, family
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.sharding import ParallelGroup, stage_layers

Activation = Literal["gelu", "gelu_new", "relu", "silu"]


class MixtureParameters(FamilyParameters):
    """Mixture of experts in every layer after `dense_layers`, or every `every`-th; see
    `feed_forward.Mixture`.
    """

    experts: Count
    top_k: Count
    intermediate_size: Count
    bias: bool = False
    correction_bias: bool = False
    shared_intermediate_size: Natural = 0
    shared_gate: bool = False
    dense_layers: int = Field(default=0, ge=0, le=1024)
    every: Count = 1

    @model_validator(mode="after")
    def _top_k_within_experts(self) -> MixtureParameters:
        if self.top_k > self.experts:
            raise ValueError(f"top_k = {self.top_k} is more than the {self.experts} experts")
        return self


class LatentParameters(FamilyParameters):
    """Multi-head latent attention; see `attention_layers.LatentAttention`."""

    query_rank: Natural = 0
    latent_rank: Count
    nope_dim: Count
    rope_dim: Count
    value_dim: Count


class DecoderParameters(FamilyParameters):
    """Parameters of a decoder-only model.

    Attributes:
        layout: Module paths to use (`module_names.LAYOUTS`).
        vocab_size: Rows of the embedding table.
        hidden_size: Model width.
        layers: Transformer layers.
        heads: Query heads.
        kv_heads: Key-value heads; None for as many as `heads`.
        head_dim: Width of a head; None for hidden_size / heads.
        intermediate_size: Inner width of the dense feed-forward.
        activation: Its activation.
        gated: Whether the activation gates a second projection.
        norm: Norm of all layers.
        positions: Rotary, learned table, or none (ALiBi is free of parameters and rows).
        max_positions: Positions the model was trained on, 0 where not known; the rows of a learned
            table.
        position_offset: Rows of that table that no position uses (OPT has 2).
        rotary_fraction: Share of each head that is rotated.
        tied_embeddings: Whether the logits matrix is the embedding table.
        attention_bias: Biases of query, key and value projections.
        output_bias: Bias of the attention's output projection.
        feed_forward_bias: Biases of the feed-forward.
        head_bias: Bias of the logits.
        fused_qkv: One projection for query, key and value.
        fused_gate_up: One projection for gate and up.
        query_key_norm: RMS norm of each query and key head.
        whole_norm: RMS norm over all query heads, and over all key heads.
        window: Keys a query sees at most in windowed layers; 0 for no window.
        full_attention_every: Every n-th layer ignores the window; 0 for none.
        sinks: Learned attention sinks, one per head.
        unrotated_every: Every n-th layer has no positions; 0 for none (Llama 4).
        parallel: Attention and feed-forward side by side.
        parallel_norms: Each of the two with a norm of its own.
        post_norms: Norms on the sublayers' outputs too.
        mixture: Mixture of experts.
        latent: Latent attention.
        delta: Gated delta networks in place of most attention layers.
        lightning_every: Lightning attention in all layers but every n-th; 0 for none (MiniMax-01).
        output_gate: Attention scales its output by a gate.
        dropout: Whether training drops attention's probabilities and a part of each sublayer's
            output.
        mtp_layers: Layers of multi-token prediction published with it, of full attention: they
            guess further tokens, and no pass runs them.
    """

    layout: str = "llama"
    vocab_size: Count
    hidden_size: Count
    layers: Depth
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    intermediate_size: Count
    activation: Activation = "silu"
    gated: bool = True
    norm: Literal["layer_norm", "rms_norm"] = "rms_norm"
    positions: Literal["rotary", "learned", "none"] = "rotary"
    max_positions: Natural = 0
    position_offset: Natural = 0
    rotary_fraction: float = Field(default=1.0, gt=0, le=1, strict=False)
    tied_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    head_bias: bool = False
    fused_qkv: bool = False
    fused_gate_up: bool = False
    query_key_norm: bool = False
    whole_norm: bool = False
    window: Natural = 0
    full_attention_every: Natural = 0
    sinks: bool = False
    unrotated_every: Natural = 0
    parallel: bool = False
    parallel_norms: bool = False
    post_norms: bool = False
    mixture: MixtureParameters | None = None
    latent: LatentParameters | None = None
    delta: GatedDelta | None = None
    lightning_every: Natural = 0
    output_gate: bool = False
    dropout: bool = False
    mtp_layers: Natural = 0

    @model_validator(mode="after")
    def _consistent(self) -> DecoderParameters:
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout = {self.layout!r} is none of {', '.join(LAYOUTS)}")
        if self.head_dim is None and self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size = {self.hidden_size} does not divide into {self.heads} heads; give "
                f"head_dim"
            )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"heads = {self.heads} is no multiple of kv_heads = {self.kv_heads}")
        if self.positions == "learned" and self.max_positions < 1:
            raise ValueError("learned positions need max_positions of at least 1")
        return self

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.head_dim or self.hidden_size // self.heads

    @property
    def one_guess(self) -> DecoderParameters:
        """What a guess runs: one layer as the last are, embeddings and logits shared with all."""
        mixture = self.mixture and self.mixture.model_copy(update={"dense_layers": 0, "every": 1})
        changes = {"layers": 1, "delta": None, "window": 0, "lightning_every": 0, "mtp_layers": 0}
        return self.model_copy(update={**changes, "mixture": mixture})

    def is_windowed(self, index: int) -> bool:
        """Whether layer `index`, from 0, uses the window."""
        return self.window > 0 and not _is_nth(index, self.full_attention_every)

    def rotary_dim(self, index: int) -> int:
        """Width of each head that layer `index`, from 0, rotates."""
        if self.positions != "rotary" or _is_nth(index, self.unrotated_every):
            return 0
        return max(1, round(self.head_width * self.rotary_fraction))


def _is_nth(index: int, every: int) -> bool:
    """Whether a layer, counted from 0, is the last of each `every`; of 0 none is."""
    return every > 0 and (index + 1) % every == 0


@family("decoder", DecoderParameters, autoregressive=True, sequence=True, shards=True)
def write_decoder(b: GraphBuilder, p: DecoderParameters, shape: PassShape) -> None:
    """Write a decoder-only model.

    FORWARD runs `seq_len` tokens without a cache; PREFILL adds them to a cache of `context_len`
    tokens; DECODE adds `seq_len` (usually 1) tokens to it.
    """
    layout = LAYOUTS[p.layout]
    stage = b.shard.stage
    length = new_token_count(b, shape, p.max_positions if p.positions == "learned" else 0)
    held_length = held_tokens(b, length)
    received = b.input(shape.batch, held_length, p.hidden_size)
    x = _embed(b, p, shape.batch, held_length) if stage.is_first else received
    indices = stage_layers(p.layers, stage)
    layers = _layers(p)[indices.start : indices.stop]
    states = LayerStates(shape.context_len)
    x = transformer_layers(b, x, layers, layout.layers, states, first=indices.start)
    if not stage.is_last:
        b.collective(OperatorKind.SEND_RECV, x, ParallelGroup.PIPELINE, x.shape)
        return
    x = normalise(b, x, p.norm, layout.final_norm)
    if b.phase is Phase.PREFILL:
        x = b.part(x, shape.batch, 1, p.hidden_size)
    elif b.shard.tp > 1:
        x = enter_split(b, x)
    _logits(b, x, p)


def _logits(b: GraphBuilder, x: Tensor, p: DecoderParameters) -> None:
    """Scores of the vocabulary, gathered from the ranks that share it."""
    tied = p.tied_embeddings and b.shard.stage.is_first
    with b.scope(LAYOUTS[p.layout].head):
        if p.tied_embeddings and p.head_bias:
            b.parameters(p.vocab_size)
        logits = b.linear(x, held_vocabulary(b, p.vocab_size), bias=p.head_bias, tied=tied)
    if b.shard.vocabulary and b.phase is not Phase.FORWARD:  # training sums its loss in parts
        whole_vocabulary = (*logits.shape[:-1], p.vocab_size)
        b.collective(OperatorKind.ALL_GATHER, logits, ParallelGroup.TENSOR, whole_vocabulary)


def _embed(b: GraphBuilder, p: DecoderParameters, batch: int, length: int) -> Tensor:
    layout = LAYOUTS[p.layout]
    tokens = length * b.shard.tp if b.shard.sp else length
    with b.scope(layout.embedding):
        ids = token_ids(b, batch, tokens)
        x = b.embedding(ids, held_vocabulary(b, p.vocab_size), p.hidden_size)
        x = leave_split(b, x) if b.shard.vocabulary else b.part(x, batch, length, p.hidden_size)
    if p.positions != "learned":
        return x
    return with_positions(b, x, p.max_positions + p.position_offset, layout.positions)


@lru_cache(maxsize=256)
def _layers(p: DecoderParameters) -> tuple[TransformerLayer, ...]:
    alike: dict[TransformerLayer, TransformerLayer] = {}  # one object compares faster with itself
    layers = (
        TransformerLayer(
            attention=_attention(p, index),
            feed_forward=_feed_forward(p, index),
            names=LAYOUTS[p.layout].layer,
            norm=p.norm,
            parallel=p.parallel,
            parallel_norms=p.parallel_norms,
            post_norms=p.post_norms,
            dropout=p.dropout,
        )
        for index in range(p.layers)
    )
    return tuple(alike.setdefault(layer, layer) for layer in layers)


def _attention(
    p: DecoderParameters, index: int
) -> MultiHeadAttention | LatentAttention | GatedDelta | Lightning:
    if p.delta is not None and not _is_nth(index, p.delta.attention_every):
        return p.delta
    if p.lightning_every and not _is_nth(index, p.lightning_every):
        return Lightning(p.heads, p.head_width)
    if p.latent is not None:
        return LatentAttention(heads=p.heads, **p.latent.model_dump())
    return MultiHeadAttention(
        heads=p.heads,
        kv_heads=p.kv_heads or p.heads,
        head_dim=p.head_width,
        bias=p.attention_bias,
        key_bias=p.attention_bias,
        output_bias=p.output_bias,
        fused_qkv=p.fused_qkv,
        rotary_dim=p.rotary_dim(index),
        query_key_norm=p.query_key_norm,
        whole_norm=p.whole_norm,
        causal=True,
        window=p.window if p.is_windowed(index) else 0,
        sinks=p.sinks,
        gated=p.output_gate,
        scaled="query" if p.layout == "opt" else "scores",
        dropout=p.dropout,
    )


def _feed_forward(p: DecoderParameters, index: int) -> FeedForward | Mixture:
    m = p.mixture
    if m is None or index < m.dense_layers or not _is_nth(index, m.every):
        return FeedForward(
            p.intermediate_size, p.activation, p.gated, p.feed_forward_bias, p.fused_gate_up
        )
    return Mixture(**m.model_dump(exclude={"dense_layers", "every"}), activation=p.activation)
