"""The transformer layer that all transformer families share (Vaswani et al. 2017,
arXiv:1706.03762).

A layer is self-attention, optional cross-attention and a feed-forward, each with its residual sum
and its norm before ("pre-norm", GPT-2 onwards) or after ("post-norm", the original and BERT) the
sublayer. Training drops a part of what each sublayer gives, before the residual sum, where a model
was trained so (BERT, T5, the original); current language models train without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.attention_layers import (
    LatentAttention,
    MultiHeadAttention,
    cross_attention,
    latent_attention,
    self_attention,
)
from accelsim.workloads.families.feed_forward import FeedForward, Mixture, feed_forward, mixture
from accelsim.workloads.families.linear_attention import (
    GatedDelta,
    Lightning,
    gated_delta,
    lightning,
)
from accelsim.workloads.families.module_names import LayerNames
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import Phase
from accelsim.workloads.sharding import split_evenly


@frozen
class TransformerLayer:
    """One layer.

    Attributes:
        attention: Self-attention.
        feed_forward: Dense feed-forward or mixture of experts.
        names: Module paths within the layer.
        norm: "layer_norm" or "rms_norm".
        norm_bias: Whether layer norms have a bias.
        norm_first: Norm before each sublayer instead of after the residual sum.
        post_norms: A further norm on each sublayer's output, before the residual sum (Gemma 2).
        parallel: Attention and feed-forward read the same normalised input (GPT-J, Falcon, Phi).
        parallel_norms: Each of the two has a norm of its own (GPT-NeoX).
        cross: Cross-attention of a decoder layer.
        dropout: Whether training drops a part of each sublayer's output.
    """

    attention: MultiHeadAttention | LatentAttention | GatedDelta | Lightning
    feed_forward: FeedForward | Mixture
    names: LayerNames
    norm: str = "layer_norm"
    norm_bias: bool = True
    norm_first: bool = True
    post_norms: bool = False
    parallel: bool = False
    parallel_norms: bool = False
    cross: MultiHeadAttention | None = None
    dropout: bool = False


def normalise(b: GraphBuilder, x: Tensor, norm: str, path: str, *, bias: bool = True) -> Tensor:
    """The norm named `norm` at a module path."""
    with b.scope(path):
        return b.rms_norm(x) if norm == "rms_norm" else b.layer_norm(x, bias=bias)


class LayerStates(NamedTuple):
    """What the layers of a stack attend to besides their own hidden states.

    Attributes:
        context_len: Tokens in the key-value cache.
        memory: Encoder states that decoder layers attend to.
        position_bias: Additive attention scores.
    """

    context_len: int = 0
    memory: Tensor | None = None
    position_bias: Tensor | None = None


_ALONE = LayerStates()


def transformer_layer(
    b: GraphBuilder, x: Tensor, layer: TransformerLayer, states: LayerStates = _ALONE
) -> Tensor:
    """One layer over x (batch, len, width).

    Args:
        b: Where the rows go.
        x: Hidden states.
        layer: The layer.
        states: What it attends to besides.
    """
    names = layer.names

    def norm(x: Tensor, path: str) -> Tensor:
        return normalise(b, x, layer.norm, path, bias=layer.norm_bias)

    def sublayer(x: Tensor, run: Callable[[Tensor], Tensor], path: str, post_path: str) -> Tensor:
        inner = run(norm(x, path) if layer.norm_first else x)
        inner = b.dropout(inner) if layer.dropout else inner
        total = b.add(x, norm(inner, post_path) if layer.post_norms else inner)
        return total if layer.norm_first else norm(total, path)

    attend = partial(_attend, b, layer, states)
    transform = partial(_transform, b, layer)
    if layer.parallel:
        shared = norm(x, names.attention_norm)
        attended = attend(shared)
        shared = norm(x, names.feed_forward_norm) if layer.parallel_norms else shared
        return b.add(b.add(attended, transform(shared)), x)
    x = sublayer(x, attend, names.attention_norm, names.attention_post_norm)
    if layer.cross is not None and states.memory is not None:
        cross = partial(cross_attention, b, states.memory, layer.cross, names)
        x = sublayer(x, cross, names.cross_norm, "")
    return sublayer(x, transform, names.feed_forward_norm, names.feed_forward_post_norm)


def transformer_layers(
    b: GraphBuilder,
    x: Tensor,
    layers: Sequence[TransformerLayer],
    path: str,
    states: LayerStates = _ALONE,
    *,
    first: int = 0,
) -> Tensor:
    """Layers one after the other, at module paths ``path.0``, ``path.1`` ...

    Args:
        b: Where the rows go.
        x: Hidden states.
        layers: The layers.
        path: Module path of the list.
        states: What they attend to besides.
        first: Number of the first layer: of a pipeline stage.
    """
    for layer, indices in groupby(range(len(layers)), key=layers.__getitem__):
        paths = [f"{path}.{first + index}" for index in indices]
        x = b.repeated(x, paths, partial(transformer_layer, b, layer=layer, states=states))
    return x


def _attend(b: GraphBuilder, layer: TransformerLayer, states: LayerStates, x: Tensor) -> Tensor:
    attention, names = layer.attention, layer.names
    if isinstance(attention, GatedDelta):
        return gated_delta(b, x, attention)
    if isinstance(attention, Lightning):
        return lightning(b, x, attention)
    if isinstance(attention, LatentAttention):
        return latent_attention(b, x, attention, names, context_len=states.context_len)
    return self_attention(b, x, attention, names, states.context_len, states.position_bias)


def _transform(b: GraphBuilder, layer: TransformerLayer, x: Tensor) -> Tensor:
    if isinstance(layer.feed_forward, Mixture):
        return mixture(b, x, layer.feed_forward, layer.names)
    return feed_forward(b, x, layer.feed_forward, layer.names)


def held_tokens(b: GraphBuilder, length: int) -> int:
    """Tokens of each sequence that the builder's rank holds between layers.

    Raises:
        InvalidValueError: If the ranks do not divide the tokens.
    """
    shard = b.shard
    tokens = split_evenly("cp", shard.cp, length, "tokens")
    return split_evenly("sp", shard.tp, tokens, "tokens") if shard.sp else tokens


def held_vocabulary(b: GraphBuilder, size: int) -> int:
    """Rows of the embedding that the builder's rank holds: the table is padded to a multiple."""
    return -(-size // b.shard.tp) if b.shard.vocabulary else size


def token_ids(b: GraphBuilder, batch: int, length: int) -> Tensor:
    """Token identifiers (batch, length), 64-bit as the tokenisers give them."""
    return b.input(batch, length, dtype=Dtype.INT64)


def with_positions(b: GraphBuilder, x: Tensor, rows: int, path: str) -> Tensor:
    """Hidden states x (batch, len, width) and the learned positions of a table added to them."""
    _, length, width = x.shape
    with b.scope(path):
        return b.add(x, b.embedding(token_ids(b, 1, length), rows, width))


def with_position_table(b: GraphBuilder, x: Tensor, rows: int, name: str) -> Tensor:
    """Hidden states x (batch, len, width) and a table of learned positions, added as it is."""
    b.parameters(rows * x.shape[-1])
    return b.add(x, b.input(*x.shape[1:]), name=name)


def patch_embeddings(
    b: GraphBuilder, pixels: Tensor, width: int, size: int, path: str, *, bias: bool = True
) -> Tensor:
    """Patches of images (batch, channels, height, width) as tokens (batch, patches, width).

    Raises:
        InvalidValueError: If an image is smaller than a patch.
    """
    if pixels.shape[-1] < size:
        allowed = f"at least one patch of {size}"
        raise InvalidValueError("image_size", pixels.shape[-1], allowed)
    x = b.conv(pixels, width, size, stride=size, padding=0, bias=bias, at=path)
    return b.view(x, x.shape[0], x.shape[2] * x.shape[3], width)


def with_class_token(b: GraphBuilder, x: Tensor) -> Tensor:
    """A learned token before the others."""
    batch, count, width = x.shape
    b.parameters(width)
    return b.copy(x, b.input(batch, 1, width), shape=(batch, count + 1, width), name="concat")


def new_token_count(b: GraphBuilder, shape: PassShape, limit: int = 0) -> int:
    """New tokens per sequence of this pass.

    Args:
        b: Builder; its phase says what a missing length means.
        shape: Sizes of the run.
        limit: Positions the model has tables for; 0 for no such limit.

    Raises:
        InvalidValueError: If there is no token, or more than the model has positions for.
    """
    length = max(shape.seq_len, 1) if b.phase is Phase.DECODE else shape.seq_len
    if length < 1:
        raise InvalidValueError("seq_len", length, "at least 1 token", "Give a sequence length.")
    total = length + shape.context_len
    if limit and total > limit:
        raise InvalidValueError(
            "seq_len",
            total,
            f"1 to {limit}, the learned positions of the model",
            "Shorten the sequence.",
        )
    return length
