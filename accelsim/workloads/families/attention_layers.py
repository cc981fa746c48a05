"""Attention layers of transformers: multi-head, grouped-query, windowed, latent (MLA) and
cross-attention.

A layer is its projections, rotary embedding, cache append and the attention operator itself.
Grouped-query attention is Ainslie et al. 2023 (arXiv:2305.13245), sliding windows Jiang et al. 2023
(Mistral, arXiv:2310.06825), attention sinks the gpt-oss model card (arXiv:2508.10925), and
multi-head latent attention DeepSeek-V2 (arXiv:2405.04434, section 2.1): its prefill expands the
latent to full heads, its decode absorbs the expansion into query and output and attends over the
latent itself, one shared key-value row per token.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accelsim.frozen import frozen
from accelsim.workloads.builder import GraphBuilder, Projection, Saved, Tensor, WrittenOut
from accelsim.workloads.cache import CacheLayer
from accelsim.workloads.families.module_names import LayerNames
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.sharding import ParallelGroup, split_evenly

_K = OperatorKind
#: Phases that keep what they compute of a sequence.
CACHING = frozenset({Phase.PREFILL, Phase.DECODE})
#: Multiply by cosine, multiply the rotated half by sine, add (Su et al. 2021, RoFormer, equation
#: 34).
_ROTARY_FLOP = 3


@frozen
class MultiHeadAttention:
    """A multi-head or grouped-query attention layer.

    Attributes:
        heads: Query heads.
        kv_heads: Key-value heads; equal to `heads` unless grouped.
        head_dim: Width of a head.
        bias: Whether query and value projections have a bias.
        key_bias: Whether the key projection has one.
        output_bias: Whether the output projection has one.
        fused_qkv: One projection for query, key and value.
        rotary_dim: Width of each head that is rotated; 0 for none.
        query_key_norm: RMS-normalise each query and key head.
        whole_norm: RMS-normalise all heads of the queries, and of the keys, together.
        causal: Each query sees earlier keys alone.
        window: Keys a query sees at most; 0 for all.
        sinks: One learned logit per head that takes part in the softmax.
        masked: Whether unfused implementations add a padding mask to the scores.
        scaled: What they divide by sqrt(head_dim): "scores", "query" or "" for neither.
        dropout: Whether training drops probabilities.
        gated: Whether the query projection gives a gate, too, that scales the output (Qwen3-Next).
    """

    heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False
    key_bias: bool = False
    output_bias: bool = False
    fused_qkv: bool = False
    rotary_dim: int = 0
    query_key_norm: bool = False
    whole_norm: bool = False
    causal: bool = False
    window: int = 0
    sinks: bool = False
    masked: bool = False
    scaled: str = "scores"
    dropout: bool = False
    gated: bool = False


@frozen
class LatentAttention:
    """A multi-head latent attention layer (DeepSeek-V2, equations 9 to 19).

    Attributes:
        heads: Query heads.
        query_rank: Width of the query latent; 0 projects queries directly.
        latent_rank: Width of the key-value latent.
        nope_dim: Width of a head without positions.
        rope_dim: Width of a head with rotary positions, shared by all keys.
        value_dim: Width of a value head.
    """

    heads: int
    query_rank: int
    latent_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int

    @property
    def cache_width(self) -> int:
        """Elements one token keeps in the cache."""
        return self.latent_rank + self.rope_dim


def rotate(b: GraphBuilder, x: Tensor, rotary_dim: int) -> Tensor:
    """Rotate the first `rotary_dim` of each head of x (batch, heads, len, head_dim); tables are
    read per position.
    """
    batch, heads, length, head_dim = x.shape
    tables = b.input(2, length, rotary_dim)
    rotary_part = x if rotary_dim == head_dim else b.part(x, batch, heads, length, rotary_dim)
    turned = b.elementwise(rotary_part, tables, name="rope", flop_per_element=_ROTARY_FLOP)
    return b.part(turned, *x.shape)


def _append(b: GraphBuilder, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Write new keys and values into the cache."""
    elements = k.elements + v.elements
    cached = b.operator(
        OperatorKind.COPY,
        (elements,),
        [k, v],
        (elements,),
        name="kv_cache.append",
        output_dtype=b.precision.kv_cache,
    )
    return b.part(cached, *k.shape), b.part(cached, *v.shape)


def split_heads(b: GraphBuilder, x: Tensor, heads: int) -> Tensor:
    """(batch, len, heads * dim) seen as (batch, heads, len, dim); fused kernels read strides, so
    nothing moves.
    """
    batch, length, width = x.shape
    return b.view(x, batch, heads, length, width // heads)


def _project(
    b: GraphBuilder, x: Tensor, a: MultiHeadAttention, names: LayerNames
) -> tuple[Tensor, ...]:
    """Queries, keys and values, as one product or three.

    Grouped keys and values: Ainslie et al. 2023, arXiv:2305.13245.
    """
    query_width = a.heads * a.head_dim
    key_width = a.kv_heads * a.head_dim
    if a.fused_qkv:
        fused = b.linear(x, query_width + 2 * key_width, bias=a.bias, at=names.fused_qkv)
        return b.split(fused, (query_width, key_width, key_width))
    products = (
        Projection(query_width * (1 + a.gated), a.bias, names.query),
        Projection(key_width, a.key_bias, names.key),
        Projection(key_width, a.bias, names.value),
    )
    return b.projections(x, products, names.fused_qkv)


def join_heads(b: GraphBuilder, attended: Tensor) -> Tensor:
    """(batch, heads, len, dim) seen as (batch, len, heads * dim)."""
    batch, heads, length, value_dim = attended.shape
    return b.view(attended, batch, length, heads * value_dim)


def _output(b: GraphBuilder, attended: Tensor, width: int, path: str, *, bias: bool) -> Tensor:
    """The output projection, summed over the ranks of a split layer."""
    return leave_split(b, b.linear(join_heads(b, attended), width, bias=bias, at=path))


def _held_heads(b: GraphBuilder, a: MultiHeadAttention) -> MultiHeadAttention:
    """The heads that the builder's rank holds; key-value heads fewer than ranks are held by
    several.
    """
    tp = b.shard.tp
    if tp == 1:
        return a
    heads = split_evenly("tp", tp, a.heads, "attention heads")
    if a.kv_heads < tp and tp % a.kv_heads == 0:
        return replace(a, heads=heads, kv_heads=1)
    return replace(a, heads=heads, kv_heads=split_evenly("tp", tp, a.kv_heads, "key-value heads"))


def enter_split(b: GraphBuilder, x: Tensor) -> Tensor:
    """Hidden states x (batch, len, width) as every rank of a split layer needs them: with sequence
    parallelism gathered from the ranks of the group.
    """
    if not b.shard.sp:
        return x
    x = b.cast(x, b.precision.activation)
    batch, length, width = x.shape
    gathered_shape = (batch, length * b.shard.tp, width)
    return b.collective(_K.ALL_GATHER, x, ParallelGroup.TENSOR, gathered_shape)


def leave_split(b: GraphBuilder, x: Tensor) -> Tensor:
    """The sum of what the ranks of a split layer made of x (batch, len, width): on all of them, or
    with sequence parallelism each its tokens.
    """
    batch, length, width = x.shape
    if not b.shard.sp:
        return b.collective(_K.ALL_REDUCE, x, ParallelGroup.TENSOR, x.shape)
    shard_shape = (batch, length // b.shard.tp, width)
    return b.collective(_K.REDUCE_SCATTER, x, ParallelGroup.TENSOR, shard_shape)


def _with_context(b: GraphBuilder, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
    """New keys and values after those of the other ranks of the sequence have come, and how many
    keys a query of this rank sees of theirs.

    Ranks hold one early and one late part of the sequence, so that causal work is even: a rank's
    queries see half of the others' keys in the mean (Llama 3, arXiv:2407.21783, section 3.3.2).
    """
    ranks = b.shard.cp
    if ranks == 1:
        return k, v, 0
    batch, heads, length, width = k.shape
    both = b.part(k, batch, heads, length, width + v.shape[3])
    gathered_shape = (batch, heads, length * ranks, width + v.shape[3])
    gathered = b.collective(_K.ALL_GATHER, both, ParallelGroup.CONTEXT, gathered_shape)
    keys = b.part(gathered, *k.shape)
    return keys, b.part(gathered, *v.shape), (ranks - 1) * length


def _norms(b: GraphBuilder, q: Tensor, k: Tensor, names: LayerNames) -> tuple[Tensor, Tensor]:
    """Queries and keys normalised over their last axis."""
    q = b.rms_norm(q, at=names.query_norm)
    k = b.rms_norm(k, at=names.key_norm)
    return q, k


def _join_squares(b: GraphBuilder, q: Tensor) -> None:
    """The sums of squares of all heads' queries and keys, two per token, which the ranks of a
    serving engine add up before they normalise their own heads (vLLM,
    layers/mamba/linear_attn.py, MiniMaxText01RMSNormTP.forward_qk; SGLang, models/minimax_m2.py).
    """
    if b.shard.tp > 1 and b.phase in CACHING:
        sums = b.part(q, *q.shape[:-1], 2)
        b.collective(_K.ALL_REDUCE, sums, ParallelGroup.TENSOR, sums.shape)


def self_attention(
    b: GraphBuilder,
    x: Tensor,
    a: MultiHeadAttention,
    names: LayerNames,
    context_len: int = 0,
    position_bias: Tensor | None = None,
) -> Tensor:
    """Attention of x (batch, len, width) to itself and to `context_len` cached tokens.

    Vaswani et al. 2017, arXiv:1706.03762.

    Args:
        b: Where the rows go.
        x: Normalised hidden states.
        a: The layer.
        names: Module paths within the layer.
        context_len: Tokens in the cache.
        position_bias: Additive scores (heads, len, keys), read by the attention kernel.
    """
    a = _held_heads(b, a)
    width = x.shape[-1]
    q, k, v = _project(b, enter_split(b, x), a, names)
    if a.whole_norm:
        _join_squares(b, q)
        q, k = _norms(b, q, k, names)
    gate = q  # stands behind the queries
    q = split_heads(b, b.part(q, *q.shape[:2], a.heads * a.head_dim), a.heads)
    k = split_heads(b, k, a.kv_heads)
    v = split_heads(b, v, a.kv_heads)
    if a.query_key_norm:
        q, k = _norms(b, q, k, names)
    with b.scope(names.attention):
        if a.rotary_dim:
            q = rotate(b, q, a.rotary_dim)
            k = rotate(b, k, a.rotary_dim)
        if a.sinks:
            b.parameters(a.heads)
        cached = a.causal and b.phase in CACHING  # encoders keep nothing
        k, v = _append(b, k, v) if cached else (k, v)
        k, v, others = _with_context(b, k, v)
        attended = b.attention(
            q,
            k,
            v,
            causal=a.causal and q.shape[2] > 1,
            window=a.window,
            context_len=context_len + (others // 2 if a.causal else others),
            cached=cached,
            bias=position_bias,
            written_out=WrittenOut(a.masked, a.scaled, a.dropout),
        )
        if a.gated:
            scale = b.elementwise(b.part(gate, *attended.shape), name="sigmoid")
            attended = b.multiply(attended, scale)
    return _output(b, attended, width, names.output, bias=a.output_bias)


def cross_attention(
    b: GraphBuilder, memory: Tensor, a: MultiHeadAttention, names: LayerNames, x: Tensor
) -> Tensor:
    """Attention of x (batch, len, width) to encoder states (batch, source, width).

    While decoding, keys and values of the source are in the cache already: nothing projects them
    again. Vaswani et al. 2017, arXiv:1706.03762.
    """
    a = _held_heads(b, a)
    width = x.shape[-1]
    inner = a.heads * a.head_dim
    with b.scope(names.cross_query):
        q = split_heads(b, b.linear(enter_split(b, x), inner, bias=a.bias), a.heads)
    if b.phase is Phase.DECODE:
        batch, source, memory_width = memory.shape
        biases = a.bias + a.key_bias
        b.parameters((2 * memory_width + biases) * inner, 2 + biases, of_product=True)
        cached = (batch, a.heads, source, a.head_dim)
        k, v = (b.input(*cached, dtype=b.precision.kv_cache) for _ in range(2))
    else:
        k = split_heads(b, b.linear(memory, inner, bias=a.key_bias, at=names.cross_key), a.heads)
        v = split_heads(b, b.linear(memory, inner, bias=a.bias, at=names.cross_value), a.heads)
    with b.scope(names.cross_attention):
        attended = b.attention(q, k, v, written_out=WrittenOut(a.masked, a.scaled, a.dropout))
    return _output(b, attended, width, names.cross_output, bias=a.output_bias)


def latent_attention(
    b: GraphBuilder, x: Tensor, a: LatentAttention, names: LayerNames, *, context_len: int = 0
) -> Tensor:
    """Multi-head latent attention of x (batch, len, width): expanded in a full pass, absorbed while
    decoding.
    """
    a = replace(a, heads=split_evenly("tp", b.shard.tp, a.heads, "attention heads"))
    width = x.shape[-1]
    x = enter_split(b, x)
    q, both = _query_and_latent(b, x, a, names)
    latent, key_rope = b.split(both, (a.latent_rank, a.rope_dim))
    latent = b.rms_norm(latent, at=names.latent_norm)
    with b.scope(names.attention):
        q_nope, q_rope = b.split(q, (a.nope_dim, a.rope_dim))
        q_rope = rotate(b, q_rope, a.rope_dim)
        key_rope = rotate(b, split_heads(b, key_rope, 1), a.rope_dim)
        if b.phase in CACHING:
            b.cached.append(CacheLayer(math.inf, a.cache_width * b.precision.kv_cache.bytes))
            latent, key_rope = _append(b, latent, key_rope)
    attend = _absorbed_attention if b.phase is Phase.DECODE else _expanded_attention
    attended = attend(b, (q_nope, q_rope), (latent, key_rope), a, names, context_len)
    return _output(b, attended, width, names.output, bias=False)


def _query_and_latent(
    b: GraphBuilder, x: Tensor, a: LatentAttention, names: LayerNames
) -> tuple[Tensor, Tensor]:
    """Queries of all heads, and what is cached of x: the latent and one unrotated key."""
    if a.query_rank:
        products = (
            Projection(a.query_rank, False, names.query_down),
            Projection(a.cache_width, False, names.latent_down),
        )
        down, both = b.projections(x, products, names.fused_down)
        source, path = b.rms_norm(down, at=names.query_down_norm), names.query_up
    else:
        both = b.linear(x, a.cache_width, bias=False, at=names.latent_down)
        source, path = x, names.query
    q = b.linear(source, a.heads * (a.nope_dim + a.rope_dim), bias=False, at=path)
    return split_heads(b, q, a.heads), both


def _expanded_attention(
    b: GraphBuilder,
    query: tuple[Tensor, Tensor],
    key: tuple[Tensor, Tensor],
    a: LatentAttention,
    names: LayerNames,
    context_len: int,
) -> Tensor:
    """Full heads; cached latents of earlier chunks are expanded again.

    DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """
    batch, heads, length, _ = query[0].shape
    keys = length + context_len
    with b.scope(names.latent_up):
        latent = b.part(key[0], batch, keys, a.latent_rank)
        up = b.linear(latent, heads * (a.nope_dim + a.value_dim), bias=False)
    nope, value = b.split(split_heads(b, up, heads), (a.nope_dim, a.value_dim))
    with b.scope(names.attention):
        width = a.nope_dim + a.rope_dim
        q = b.copy(*query, shape=(batch, heads, length, width), name="concat_query")
        k = b.copy(nope, key[1], shape=(batch, heads, keys, width), name="concat_key")
        return b.attention(q, k, value, causal=True)


def _absorbed_attention(
    b: GraphBuilder,
    query: tuple[Tensor, Tensor],
    key: tuple[Tensor, Tensor],
    a: LatentAttention,
    names: LayerNames,
    context_len: int,
) -> Tensor:
    """Query and output in latent space; the up-projection's two halves act per head.

    DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """
    batch, heads, length, _ = query[0].shape
    with b.scope(names.latent_up):
        b.parameters(a.latent_rank * heads * (a.nope_dim + a.value_dim), of_product=True)
        absorbed = _per_head(b, query[0], a.latent_rank, "absorb_query")
    with b.scope(names.attention):
        q = b.copy(
            absorbed, query[1], shape=(batch, heads, length, a.cache_width), name="concat_query"
        )
        cache = b.part(key[0], batch, 1, length, a.cache_width)
        value = b.part(key[0], batch, 1, length, a.latent_rank)
        attended = b.attention(
            q, cache, value, context_len=context_len, latent=a.cache_width, causal=length > 1
        )
    with b.scope(names.latent_up):
        return _per_head(b, attended, a.value_dim, "absorb_value")


def _per_head(b: GraphBuilder, x: Tensor, width: int, name: str) -> Tensor:
    """x (batch, heads, len, k) times one (k, width) weight per head; the caller counts the
    parameters.

    DeepSeek-V2, arXiv:2405.04434, section 2.1, absorbs these weights.
    """
    batch, heads, length, k = x.shape
    rows = batch * length
    return b.operator(
        OperatorKind.GEMM,
        (heads, rows, width, k),
        [x],
        (batch, heads, length, width),
        name=name,
        weights=heads * k * width,
        saves=Saved([x]),
    )
