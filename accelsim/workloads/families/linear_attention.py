"""Layers whose memory is a state of fixed size instead of a cache of keys and values: gated delta
networks, Mamba-2 and lightning attention.

Mamba-2 is Dao and Gu, ICML 2024 (arXiv:2405.21060): its section 6 splits a sequence into chunks,
within which everything is matrix products, and hands a state of one matrix per head from chunk to
chunk. The gated delta rule is Yang et al., ICLR 2025 (arXiv:2412.06464), in chunks as Yang et al.,
NeurIPS 2024 (arXiv:2406.06484), which take two further products and the inverse of a triangle.
Lightning attention is Qin et al., ICML 2024 (arXiv:2405.17381), as MiniMax-01 (arXiv:2501.08313)
has it.
Decoding updates the state alone, in FP32 as the published implementations keep it.
"""

from __future__ import annotations

from pydantic import model_validator

from accelsim.dtype import Dtype
from accelsim.frozen import frozen
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.cache import STATE, CacheLayer
from accelsim.workloads.families.attention_layers import CACHING, enter_split, leave_split
from accelsim.workloads.family_parameters import Count, FamilyParameters
from accelsim.workloads.operator import Phase
from accelsim.workloads.sharding import split_evenly

#: Tokens of a chunk in the published kernels (flash-linear-attention; mamba_ssm; MiniMax-01).
_DELTA_CHUNK = 64
_STATE_SPACE_CHUNK = 256
_LIGHTNING_CHUNK = 256
#: Of one element of the state in decoding: decay, outer product and its sum, read-out.
_UPDATE_FLOP = 5


class GatedDelta(FamilyParameters):
    """A gated delta network (Qwen3-Next, Qwen3.5), in place of attention in all layers but every
    `attention_every`-th.

    Attributes:
        key_heads: Heads of queries and keys.
        value_heads: Heads of values, a multiple of them.
        key_dim: Width of a key.
        value_dim: Width of a value.
        kernel: Tokens the causal convolution sees.
        fused: Whether queries, keys, values and gates are one projection, betas and decays another.
        attention_every: Layers to one of full attention.
    """

    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count
    kernel: Count = 4
    fused: bool = True
    attention_every: Count = 4

    @model_validator(mode="after")
    def _heads_divide(self) -> GatedDelta:
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"value_heads = {self.value_heads} is no multiple of key_heads = {self.key_heads}"
            )
        return self


@frozen
class Lightning:
    """Lightning attention: a state that decays by a constant of its head.

    Attributes:
        heads: Heads.
        head_dim: Width of a query, a key and a value.
    """

    heads: int
    head_dim: int


class StateSpace(FamilyParameters):
    """A Mamba-2 mixer.

    Attributes:
        heads: Heads.
        head_dim: Channels of a head.
        state_size: Width of the state of a channel.
        groups: Groups of heads that share the input and output matrices.
        kernel: Tokens the causal convolution sees.
        bias: Whether the projections have biases.
        conv_bias: Whether the convolution has one.
    """

    heads: Count
    head_dim: Count
    state_size: Count
    groups: Count
    kernel: Count = 4
    bias: bool = False
    conv_bias: bool = True


def gated_delta(b: GraphBuilder, x: Tensor, a: GatedDelta) -> Tensor:
    """A gated delta layer over normalised hidden states x (batch, len, width).

    Yang et al., ICLR 2025, arXiv:2412.06464.
    """
    tp, width = b.shard.tp, x.shape[-1]
    key_width = split_evenly("tp", tp, a.key_heads, "key heads") * a.key_dim
    heads = split_evenly("tp", tp, a.value_heads, "value heads")
    value_width = heads * a.value_dim
    mixed = 2 * key_width + value_width
    x = enter_split(b, x)
    batch, length, _ = x.shape
    widths = {"in_proj_qkvz": mixed + value_width, "in_proj_ba": 2 * heads}
    if not a.fused:
        gates = dict.fromkeys(("in_proj_b", "in_proj_a"), heads)
        widths = {"in_proj_qkv": mixed, "in_proj_z": value_width, **gates}
    projected = [_linear(b, x, f"linear_attn.{name}", out) for name, out in widths.items()]
    convolved = _convolution(b, b.part(projected[0], batch, length, mixed), a.kernel, "linear_attn")
    b.parameters(2 * heads, 2)  # decay and step per head
    sizes = (heads, a.key_dim, a.value_dim)
    y = _scan(b, convolved, sizes, _DELTA_CHUNK, has_delta_rule=True)
    gate = b.part(projected[0], *y.shape)
    with b.scope("linear_attn.norm"):
        y = b.multiply(b.rms_norm(y), b.activation(gate, "silu"))
    flat = b.view(y, batch, length, value_width)
    return leave_split(b, _linear(b, flat, "linear_attn.out_proj", width))


def lightning(b: GraphBuilder, x: Tensor, a: Lightning) -> Tensor:
    """A lightning attention layer over normalised hidden states x (batch, len, width)."""
    heads, width = split_evenly("tp", b.shard.tp, a.heads, "heads"), x.shape[-1]
    x = enter_split(b, x)
    batch, length, _ = x.shape
    inner = heads * a.head_dim
    projected = b.activation(_linear(b, x, "self_attn.qkv_proj", 3 * inner), "silu")
    sizes = (heads, a.head_dim, a.head_dim)
    y = b.view(
        _scan(b, projected, sizes, _LIGHTNING_CHUNK, has_delta_rule=False), batch, length, inner
    )
    y = b.rms_norm(y, at="self_attn.norm")
    gate = b.activation(_linear(b, x, "self_attn.output_gate", inner), "sigmoid")
    return leave_split(b, _linear(b, b.multiply(y, gate), "self_attn.out_proj", width))


def state_space(b: GraphBuilder, x: Tensor, a: StateSpace) -> Tensor:
    """A Mamba-2 mixer over normalised hidden states x (batch, len, width).

    Dao and Gu, ICML 2024, arXiv:2405.21060.
    """
    batch, length, width = x.shape
    inner = a.heads * a.head_dim
    mixed = inner + 2 * a.groups * a.state_size
    projected = _linear(b, x, "mixer.in_proj", inner + mixed + a.heads, bias=a.bias)
    mixed_channels = b.part(projected, batch, length, mixed)
    convolved = _convolution(b, mixed_channels, a.kernel, "mixer", bias=a.conv_bias)
    b.parameters(3 * a.heads, 3)  # decay, step and what passes by, per head
    sizes = (a.heads, a.state_size, a.head_dim)
    y = _scan(b, convolved, sizes, _STATE_SPACE_CHUNK, has_delta_rule=False)
    flat = b.view(y, batch, length, inner)
    gated = b.multiply(flat, b.activation(b.part(projected, *flat.shape), "silu"))
    gated = b.rms_norm(gated, at="mixer.norm")
    return _linear(b, gated, "mixer.out_proj", width, bias=a.bias)


def _linear(b: GraphBuilder, x: Tensor, path: str, out: int, *, bias: bool = False) -> Tensor:
    return b.linear(x, out, bias=bias, at=path)


def _convolution(
    b: GraphBuilder, x: Tensor, kernel: int, path: str, *, bias: bool = False
) -> Tensor:
    """The causal convolution of each channel, one kernel that reads and writes once, and its
    activation.

    Dao and Gu, ICML 2024, arXiv:2405.21060, have it before the scan.
    """
    channels = x.shape[-1]
    _keep_state(b, channels * (kernel - 1) * b.precision.activation.bytes)
    with b.scope(f"{path}.conv1d"):
        b.parameters(channels * (kernel + bias), 1 + bias)
        return b.elementwise(x, name="causal_conv1d", flop_per_element=2 * kernel + 4)


def _keep_state(b: GraphBuilder, size_bytes: float) -> None:
    """What a sequence leaves to its next token."""
    if b.phase in CACHING:
        b.cached.append(CacheLayer(STATE, size_bytes))


def _scan(
    b: GraphBuilder, x: Tensor, sizes: tuple[int, int, int], chunk: int, *, has_delta_rule: bool
) -> Tensor:
    """Outputs (batch, len, heads, value) of the recurrence over x (batch, len, channels).

    Chunks are Dao and Gu, ICML 2024, section 6, and Yang et al., arXiv:2406.06484.

    Args:
        b: Where the rows go.
        x: Queries, keys and values of all heads.
        sizes: Heads, width of a key, width of a value.
        chunk: Tokens of a chunk.
        has_delta_rule: Whether the state forgets what a key held before.
    """
    heads, key, value = sizes
    batch, length, _ = x.shape
    _keep_state(b, heads * key * value * Dtype.FP32.bytes)
    if b.phase is Phase.DECODE:
        state = b.input(batch, heads, key, value, dtype=Dtype.FP32)
        updated = b.elementwise(
            state, x, name="state_update", flop_per_element=_UPDATE_FLOP, shape=state.shape
        )
        return b.part(updated, batch, length, heads, value)
    size = min(chunk, length)
    count = batch * heads * -(-length // size)
    queries = b.part(x, count, size, key)
    keys = b.part(x, count, key, size)
    values = b.part(x, count, size, value)
    scores = b.matmul(queries, keys, name="scores")
    if has_delta_rule:
        triangle = b.matmul(b.part(x, count, size, key), keys, name="triangle")
        values = b.matmul(b.part(triangle, count, size, size), values, name="new_values")
    within = b.matmul(scores, values, name="within_chunk")
    states = b.matmul(keys, values, name="states")
    across = b.matmul(queries, states, name="across_chunks")
    if b.phase is Phase.PREFILL:  # kept until the last token: nothing reads it here
        state_shape = (batch * heads * key * value,)
        b.elementwise(states, name="final_state", shape=state_shape)
    return b.part(b.add(within, across), batch, length, heads, value)
