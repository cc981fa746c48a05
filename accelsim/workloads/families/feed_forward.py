"""Feed-forward layers of transformers: two-matrix, gated, and mixtures of experts.

Gated layers are Shazeer 2020 (arXiv:2002.05202); mixtures with top-k routing Shazeer et al. 2017
and Jiang et al. 2024 (Mixtral, arXiv:2401.04088); shared experts DeepSeek-MoE (arXiv:2401.06066). A
mixture is written as a fused implementation runs it: route, gather rows by expert, two grouped
matrix products, weighted sum back to token order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import ceil, exp

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.builder import GraphBuilder, Projection, Saved, Tensor
from accelsim.workloads.families.attention_layers import enter_split, leave_split
from accelsim.workloads.families.module_names import LayerNames
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.sharding import ParallelGroup, experts_of_rank, split_evenly

_K = OperatorKind
#: How unevenly experts are chosen by requests that are served together: estimate, what a power law
#: of exponent 1 between 1 and 0.8 T spans at 64 tokens, by which aiconfigurator 0.12.0 prices the
#: expert layers of DeepSeek and other models (sdk/models/deepseek.py: 1.01).
_SERVED = 50.0
#: Experts whose popularity is told apart, and steps to find their common scale.
_POPULARITIES, _HALVINGS = 64, 100
#: Random placements of experts over which the busiest rank is averaged.
_PLACEMENTS = 256


@frozen
class FeedForward:
    """A dense feed-forward layer.

    Attributes:
        intermediate_size: Inner width.
        activation: Activation name; "gelu_new" is the tanh form written out of single operations.
        gated: Whether the activation gates a second projection.
        bias: Whether the projections have biases.
        fused_gate_up: One projection for gate and up.
    """

    intermediate_size: int
    activation: str
    gated: bool = False
    bias: bool = False
    fused_gate_up: bool = False


@frozen
class Mixture:
    """A mixture of gated experts.

    Attributes:
        experts: Routed experts.
        top_k: Experts each token uses.
        intermediate_size: Inner width of a routed expert.
        activation: Activation of the gate.
        bias: Whether router and experts have biases.
        correction_bias: Whether a per-expert bias steers the choice alone (auxiliary-loss-free
            balancing).
        shared_intermediate_size: Inner width of the experts every token uses; 0 for none.
        shared_gate: Whether a learned sigmoid scales the shared experts.
    """

    experts: int
    top_k: int
    intermediate_size: int
    activation: str = "silu"
    bias: bool = False
    correction_bias: bool = False
    shared_intermediate_size: int = 0
    shared_gate: bool = False


def active_experts(experts: int, top_k: int, tokens: int, popularity: float = 1.0) -> int:
    """Expected number of distinct experts that `tokens` tokens reach, rounded up.

    The sum over experts of 1 - (1 - p)^T, where a token is routed to an expert with probability p,
    independent of other tokens; under even routing E (1 - (1 - k/E)^T). The occupancy problem
    (Feller, An Introduction to Probability Theory, volume 1, 1968).

    Args:
        experts: Experts E >= 1.
        top_k: Experts k per token, 1 <= k <= E.
        tokens: Tokens T >= 1.
        popularity: How often the most popular expert is chosen for each time that the least popular
            is; those between lie evenly in its logarithm.
    """
    parts = _routed_to(experts, top_k, popularity)
    expected = experts * sum(1.0 - (1.0 - p) ** tokens for p in parts) / len(parts)
    return min(experts, ceil(round(expected, 6)))


@lru_cache(maxsize=256)
def _routed_to(experts: int, top_k: int, popularity: float) -> tuple[float, ...]:
    """Probability that a token is routed to each of some experts.

    Estimate: their popularities are spaced evenly in the logarithm.
    """
    if popularity == 1.0 or top_k == experts:
        return (top_k / experts,)
    count = min(experts, _POPULARITIES)
    weights = [popularity ** ((index + 0.5) / count) for index in range(count)]
    return _drawn(weights, top_k * count / experts)


def _drawn(weights: Sequence[float], total: float) -> tuple[float, ...]:
    """Probability of each to be among some that are drawn one after the other without replacement:
    p = 1 - exp(-c w) with weights w and the c of which all p add up to the total (Efraimidis and
    Spirakis, Information Processing Letters 97, 2006).
    """
    low, high = 0.0, 1e3 / min(weights)
    for _ in range(_HALVINGS):
        scale = 0.5 * (low + high)
        reached = sum(1.0 - exp(-scale * weight) for weight in weights)
        low, high = (scale, high) if reached < total else (low, scale)
    return tuple(1.0 - exp(-high * weight) for weight in weights)


@lru_cache(maxsize=256)
def busiest_rank(experts: int, top_k: int, ranks: int, skew: float) -> float:
    """Rows of the rank with the most, over an even share, where ranks share experts by Zipf's law:
    the n-th most popular is drawn with a weight of n^-skew (Zipf, Human Behavior and the Principle
    of Least Effort, 1949).

    Estimate: which rank holds an expert has nothing to do with its popularity, so that this is a
    mean over random placements; copies of popular experts bring the ranks nearer together.

    Args:
        experts: Experts >= 1.
        top_k: Experts per token, 1 <= k <= experts.
        ranks: Ranks that share them, 1 <= ranks <= experts.
        skew: Exponent >= 0; 0 for an even share.
    """
    if not skew or ranks == 1 or top_k == experts:
        return 1.0
    drawn = np.zeros((_PLACEMENTS, experts_of_rank(ranks, experts) * ranks))
    drawn[:, :experts] = _drawn([(index + 1.0) ** -skew for index in range(experts)], top_k)
    np.random.default_rng(0).permuted(drawn, axis=1, out=drawn)
    loads = drawn.reshape(_PLACEMENTS, ranks, -1).sum(axis=2)
    return float(loads.max(axis=1).mean()) * ranks / top_k


def activate(b: GraphBuilder, x: Tensor, function: str) -> Tensor:
    """The activation as its implementation launches it.

    "gelu_new" is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) in eight separate operations
    (GPT-2's); the fused tanh form has the cost of "gelu".
    """
    if function != "gelu_new":
        return b.activation(x, function)
    half = b.elementwise(x, name="mul")
    cube = b.elementwise(x, name="pow", flop_per_element=2, saves=Saved([x]))
    inner = b.elementwise(x, b.elementwise(cube, name="mul"), name="add")
    tanh = b.activation(b.elementwise(inner, name="mul"), "tanh")
    return b.multiply(half, b.elementwise(tanh, name="add"))


def feed_forward(b: GraphBuilder, x: Tensor, f: FeedForward, names: LayerNames) -> Tensor:
    """Dense feed-forward of x (..., width)."""
    width = x.shape[-1]
    size = split_evenly("tp", b.shard.tp, f.intermediate_size, "columns of the feed-forward")
    hidden = _hidden(b, enter_split(b, x), replace(f, intermediate_size=size), names)
    with b.scope(names.down):
        return leave_split(b, b.linear(hidden, width, bias=f.bias))


def _hidden(b: GraphBuilder, x: Tensor, f: FeedForward, names: LayerNames) -> Tensor:
    """What the last projection reads."""
    size = f.intermediate_size
    if not f.gated:
        hidden = b.linear(x, size, bias=f.bias, at=names.up)
        with b.scope(names.feed_forward):
            return activate(b, hidden, f.activation)
    if f.fused_gate_up:
        gate, up = b.split(b.linear(x, 2 * size, bias=f.bias, at=names.fused_gate_up), (size, size))
    else:
        products = (Projection(size, f.bias, names.gate), Projection(size, f.bias, names.up))
        gate, up = b.projections(x, products, names.fused_gate_up)
    with b.scope(names.feed_forward):
        return b.multiply(activate(b, gate, f.activation), up)


def mixture(b: GraphBuilder, x: Tensor, m: Mixture, names: LayerNames) -> Tensor:
    """Mixture of experts over x (batch, len, width).

    Where ranks share the experts, each sends its own tokens to where their experts are and takes
    the results back. Otherwise the ranks of a tensor group each run their columns of all experts,
    or, where they have the same tokens and share the experts, all of their own ones.
    """
    sends_tokens = b.shard.sends_tokens
    rank_tokens = x if sends_tokens else enter_split(b, x)
    batch, length, width = rank_tokens.shape
    tokens = b.view(rank_tokens, batch * length, width)
    with b.scope(names.router):
        chosen = b.moe_routing(b.linear(tokens, m.experts, bias=m.bias), m.top_k)
        if m.correction_bias:
            b.parameters(m.experts)
    joined = _joined_experts(b, m, names)
    with b.scope(names.experts):
        out = _routed(b, tokens, chosen, m, joined)
    if m.shared_intermediate_size and not joined:
        out = b.add(out, _shared(b, tokens, m, names))
    out = b.view(out, batch, length, width)
    return out if sends_tokens else leave_split(b, out)


def _joined_experts(b: GraphBuilder, m: Mixture, names: LayerNames) -> int:
    """Shared experts that run as routed ones that every token is routed to; 0 where they run by
    themselves.

    Serving engines fuse them so or run them beside the routed ones (SGLang, deepseek_v2.py,
    num_fused_shared_experts; TensorRT-LLM, modeling_deepseekv3.py, maybe_execute_in_parallel; vLLM,
    fused_moe/layer.py, shared_experts_stream): where ranks do not share out the experts, and the
    weights are stored alike.
    """
    count, remainder = divmod(m.shared_intermediate_size, m.intermediate_size)
    shared, routed = f"{names.shared_expert}.gate_proj", f"{names.experts}.gate_up"
    is_alike = not remainder and not m.shared_gate and b.precision.experts is None
    is_alike = is_alike and b.keeps(shared) == b.keeps(routed)
    return count if b.merges and is_alike and b.shard.ep == 1 else 0


def _routed(b: GraphBuilder, tokens: Tensor, chosen: Tensor, m: Mixture, joined: int) -> Tensor:
    """Rows by expert, two grouped products and their weighted sum.

    Top-k routing is Shazeer et al. 2017; groups of experts are Gale et al., MLSys 2023,
    arXiv:2211.15841.
    """
    shard = b.shard
    experts = experts_of_rank(shard.ep, m.experts)
    size = split_evenly("etp", shard.expert_tp, m.intermediate_size, "columns of an expert")
    count, width = tokens.shape
    is_own = shard.experts_in_tensor_group
    experts_per_token = m.top_k + joined
    most = 1.0
    if shard.expert_skew:
        most = busiest_rank(m.experts, m.top_k, int(shard.ep), shard.expert_skew)
    rows = -(-count * experts_per_token // shard.ep) if is_own else count * experts_per_token
    reached_rows = rows if most == 1.0 else ceil(rows * most)
    reaching = count if is_own else count * shard.ep
    active = active_experts(m.experts, m.top_k, reaching, _SERVED if b.merges else 1.0)
    active_held = max(active * experts // m.experts, 1) + joined
    experts += joined
    b.parameters(0, 3 * joined)
    # Engines' expert kernels find their rows themselves.
    own_rows = reached_rows if is_own else rows
    gathered = (
        b.part(tokens, own_rows, width)
        if b.merges
        else b.copy(tokens, chosen, shape=(own_rows, width), name="gather_by_expert")
    )
    sent = _to_experts(b, gathered, reached_rows)
    product = partial(b.grouped_linear, groups=experts, active=active_held, bias=m.bias)
    gate, up = b.split(product(sent, 2 * size, name="gate_up"), (size, size))
    hidden = b.multiply(activate(b, gate, m.activation), up)
    out = product(hidden, width, name="down")
    returned = _from_experts(b, out, rows, reached_rows)
    return b.elementwise(
        returned,
        chosen,
        shape=(count, width),
        name="combine",
        flop_per_element=2 * experts_per_token,
        saves=Saved([returned, chosen]),
    )


def _to_experts(b: GraphBuilder, rows: Tensor, count: int) -> Tensor:
    """Rows where their experts are, as many as the busiest rank has: exchanged over the ranks of
    the experts, then had by all ranks that share their columns.
    """
    if not b.shard.sends_tokens:
        return rows
    width = rows.shape[-1]
    sent = b.collective(_K.ALL_TO_ALL, rows, ParallelGroup.EXPERT, (count, width))
    everywhere = (count * b.shard.expert_tp, width)
    return b.collective(_K.ALL_GATHER, sent, ParallelGroup.EXPERT_TENSOR, everywhere)


def _from_experts(b: GraphBuilder, rows: Tensor, count: int, reached: int) -> Tensor:
    """The experts' results back where their tokens are: summed over columns, then exchanged."""
    if not b.shard.sends_tokens:
        return rows
    width = rows.shape[-1]
    summed = b.collective(_K.REDUCE_SCATTER, rows, ParallelGroup.EXPERT_TENSOR, (reached, width))
    return b.collective(_K.ALL_TO_ALL, summed, ParallelGroup.EXPERT, (count, width))


def _shared(b: GraphBuilder, tokens: Tensor, m: Mixture, names: LayerNames) -> Tensor:
    """The experts that every token uses, on the rank's columns; their sum is the mixture's."""
    path = names.shared_expert
    inner = LayerNames(
        gate=f"{path}.gate_proj",
        up=f"{path}.up_proj",
        fused_gate_up=f"{path}.gate_up_proj",
        feed_forward=path,
    )
    ranks = b.shard.tp if b.shard.experts_in_tensor_group else b.shard.expert_tp
    size = split_evenly("etp", ranks, m.shared_intermediate_size, "columns of the shared experts")
    hidden = _hidden(b, tokens, FeedForward(size, m.activation, gated=True), inner)
    out = b.linear(hidden, tokens.shape[-1], bias=False, at=f"{path}.down_proj")
    if not m.shared_gate:
        return out
    with b.scope(f"{path}_gate"):
        scale = b.activation(b.linear(tokens, 1, bias=False), "sigmoid")
        return b.multiply(out, scale)
