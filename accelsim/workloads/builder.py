"""Writes an operator graph layer by layer from shapes alone.

`GraphBuilder` is a shape tracer: each method takes and returns a `Tensor` (a shape and the row that
made it), appends the rows of that layer, and counts its parameters. FLOP and bytes follow
`operator`'s conventions: activations move at the precision's activation width, weights at its
weight width, each operand once per operator.

What a forward row keeps for the backward pass (`saved_bytes`) is counted once per tensor, as
PyTorch's autograd does: the input of matrix operators and norms, the output of ReLU and softmax,
the query, key, value and output of attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from accelsim.workloads.cache import CacheLayer
from accelsim.workloads.memory_layers import MemoryBoundLayers
from accelsim.workloads.operator import RECURRENT_GATES, OperatorKind, Phase
from accelsim.workloads.row_writer import Saved, Tensor
from accelsim.workloads.window import (
    per_axis,
    three_axes,
    transposed_size,
    window_outputs,
)

__all__ = ["MERGED", "GraphBuilder", "Projection", "Saved", "Tensor"]

_K = OperatorKind


class WrittenOut(NamedTuple):
    """Attention without a fused kernel, as products, softmax and what stands between them.

    Attributes:
        masked: Whether a mask is added even where attention is not causal (padded text).
        scaled: What is divided by sqrt(head_dim): "scores", "query" or "" for neither.
        dropout: Whether probabilities are dropped in training; fused kernels draw their own numbers
            and keep none.
    """

    masked: bool = False
    scaled: str = "scores"
    dropout: bool = False


_PLAIN = WrittenOut()
#: Joins the names of products that are merged.
MERGED = "+"


class Projection(NamedTuple):
    """A product with weights, one of several that read the same input.

    Attributes:
        width: Output features.
        bias: Whether it has a bias.
        at: Module path within the scope.
    """

    width: int
    bias: bool
    at: str


class GraphBuilder(MemoryBoundLayers):
    """The layers of a model, each a method that takes and returns tensors."""

    # -- matrix operators

    def linear(
        self,
        x: Tensor,
        out_features: int,
        *,
        bias: bool = True,
        name: str = "linear",
        tied: bool = False,
        at: str = "",
    ) -> Tensor:
        """x (..., k) times a weight (k, n). `tied` weights are read but not counted again."""
        with self.scope(at):
            biases = out_features if bias else 0
            return self._gemm(x, out_features, biases, 1 + bias, name=name, tied=tied)

    def projections(self, x: Tensor, products: Sequence[Projection], at: str) -> tuple[Tensor, ...]:
        """Products of x with several weights: one by one, or one product with all of them where the
        stack merges them and they are stored in one format. Its name joins theirs.

        Args:
            x: What all of them read, (..., k).
            products: The products.
            at: Path of the merged product.
        """
        paths = [product.at for product in products]
        if not self.merges or len({self.keeps(path) for path in (*paths, at)}) > 1:
            return tuple(self.linear(x, n, bias=bias, at=path) for n, bias, path in products)
        widths = [product.width for product in products]
        biases = [product.width for product in products if product.bias]
        x = self.cast(x, self.precision.activation)
        name = MERGED.join(path.rpartition(".")[2] for path in paths)
        with self.scope(at):
            tensors = len(products) + len(biases)
            merged = self._gemm(x, sum(widths), sum(biases), tensors, name=name)
        return self.split(merged, widths)

    def _gemm(
        self, x: Tensor, width: int, biases: int, tensors: int, *, name: str, tied: bool = False
    ) -> Tensor:
        """x (..., k) times weights (k, width) and some biases, in so many tensors."""
        x = self.cast(x, self.precision.activation)
        *leading, k = x.shape
        weights = k * width + biases
        if not tied:
            self.parameters(weights, tensors, of_product=True)
        return self.operator(
            _K.GEMM,
            (1, prod(leading), width, k),
            [x],
            (*leading, width),
            name=name,
            weights=weights,
            saves=Saved([x]),
        )

    def grouped_linear(
        self,
        x: Tensor,
        out_features: int,
        *,
        groups: int,
        active: int,
        bias: bool = False,
        name: str = "experts",
    ) -> Tensor:
        """x (m, k), rows sorted by expert, times one (k, n) weight per expert; only `active`
        experts are read.

        A mixture's products without padding: Gale et al., MegaBlocks, MLSys 2023, arXiv:2211.15841.
        """
        x = self.cast(x, self.precision.activation)
        m, k = x.shape
        expert_weights = (k + bias) * out_features
        self.parameters(groups * expert_weights, 1 + bias, of_product=True, of_experts=True)
        return self.operator(
            _K.GROUPED_GEMM,
            (active, m, out_features, k),
            [x],
            (m, out_features),
            name=name,
            weights=active * expert_weights,
            saves=Saved([x]),
        )

    def matmul(self, a: Tensor, b: Tensor, *, name: str = "matmul") -> Tensor:
        """Batched activation product: a (..., m, k) times b (..., k, n); leading shapes equal."""
        a, b = (self.cast(x, self.precision.activation) for x in (a, b))
        batch, m, k, n = prod(a.shape[:-2]), a.shape[-2], a.shape[-1], b.shape[-1]
        return self.operator(
            _K.BATCHED_GEMM,
            (batch, m, n, k),
            [a, b],
            (*a.shape[:-1], n),
            name=name,
            # A product with itself reads once.
            read_bytes=a.bytes if a.storage == b.storage else None,
            saves=Saved([a, b]),
        )

    def conv(
        self,
        x: Tensor,
        channels: int,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | None = None,
        groups: int = 1,
        dilation: int = 1,
        bias: bool = False,
        transposed: bool = False,
        name: str = "conv",
        at: str = "",
    ) -> Tensor:
        """1-, 2- or 3-D convolution of x (n, c, spatial...); padding None means "same" at stride
        1.

        Sizes follow Dumoulin and Visin, arXiv:1603.07285.
        """
        rank = len(x.shape) - 2
        window, step = per_axis(kernel, rank), per_axis(stride, rank)
        same = tuple(dilation * (w - 1) // 2 for w in window)
        pad = same if padding is None else per_axis(padding, rank)
        out = tuple(
            transposed_size(i, w, s, p) if transposed else window_outputs(i, w, s, p, dilation)
            for i, w, s, p in zip(x.shape[2:], window, step, pad, strict=True)
        )
        batch, c_in, *image = x.shape
        weights = channels * c_in // groups * prod(window) + (channels if bias else 0)
        sizes = (*three_axes(image), *three_axes(out), *three_axes(window))
        with self.scope(at):
            self.parameters(weights, 1 + bias, of_product=True)
            return self.operator(
                _K.CONV_TRANSPOSE if transposed else _K.CONV,
                (batch, c_in, channels, groups, *sizes, max(step), dilation),
                [x],
                (batch, channels, *out),
                name=name,
                weights=weights,
                saves=Saved([x]),
            )

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        causal: bool = False,
        window: int = 0,
        context_len: int = 0,
        latent: int = 0,
        cached: bool = False,
        bias: Tensor | None = None,
        written_out: WrittenOut = _PLAIN,
    ) -> Tensor:
        """softmax(q k^T) v with q (batch, heads, q_len, head_dim), k and v (batch, kv_heads,
        new_len, dim).

        Vaswani et al. 2017, arXiv:1706.03762; MLA is DeepSeek-V2, arXiv:2405.04434.

        Args:
            q: Queries.
            k: New keys; `context_len` more are read from the cache.
            v: New values.
            causal: Each query sees the keys up to its own position.
            window: Keys a query sees at most; 0 sees all.
            context_len: Keys and values already cached.
            latent: Width of a compressed cache row that serves as key and value (MLA); 0 for none.
            cached: Whether keys and values stay in a cache (one more layer of `cached`).
            bias: Additive scores (relative positions) the kernel reads.
            written_out: The form without a fused kernel.
        """
        batch, heads, q_len, head_dim = q.shape
        kv_heads, value_dim, kv_len = k.shape[1], v.shape[3], k.shape[2] + context_len
        element_bytes = self.precision.kv_cache.bytes if cached else q.element_bytes
        row_bytes = (latent or kv_heads * (head_dim + value_dim)) * element_bytes
        if cached:
            self.cached.append(CacheLayer(window or math.inf, row_bytes))
        documents, document_keys, read_keys = self._seen_keys(q_len, kv_len, window)
        if not self.fused_attention:
            masked = any((written_out.masked, causal, bias is not None))
            # A prompt masks the keys beyond the window.
            keys = read_keys if self.phase is Phase.DECODE else kv_len
            return self._decomposed_attention(q, k, v, keys, written_out._replace(masked=masked))
        operands = [q, k, v] if bias is None else [q, k, v, bias]
        lengths = (q_len // documents, document_keys)
        mask = (int(causal), window if window < document_keys else 0, latent)
        return self.operator(
            _K.ATTENTION,
            (batch * documents, heads, kv_heads, *lengths, head_dim, value_dim, *mask),
            operands,
            (batch, heads, q_len, value_dim),
            name="attention",
            read_bytes=q.bytes + batch * read_keys * row_bytes + sum(x.bytes for x in operands[3:]),
            saves=Saved([q, k, v], output=True, extra_bytes=4.0 * batch * heads * q_len),
        )

    def _seen_keys(self, q_len: int, kv_len: int, window: int) -> tuple[int, int, int]:
        """Documents of a sequence, the keys of each, and all keys that its queries read.

        Documents are of equal length, so many that they have the stated tokens or as few more as
        divide the sequence; each reads its own keys alone (variable-length kernels: Dao 2023,
        arXiv:2307.08691, section 3.1).
        """
        if self.document_len and q_len > self.document_len:
            most = q_len // self.document_len
            documents = next(count for count in range(most, 0, -1) if q_len % count == 0)
            if documents > 1:
                return documents, q_len // documents, q_len
        return 1, kv_len, min(kv_len, window + q_len - 1) if window else kv_len

    def _decomposed_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_len: int,
        form: WrittenOut,
    ) -> Tensor:
        """Scores, softmax and context as rows of their own, their result copied back to token
        order.
        """
        batch, heads, q_len, head_dim = q.shape
        if form.scaled == "query":
            q = self.elementwise(q, name="attention.scale")
        if k.shape[1] == 1:  # one key-value head: the query heads are rows of one product
            q = self.view(q, batch, 1, heads * q_len, head_dim)
        keys, values = (self._full_heads(x, q.shape[1], kv_len) for x in (k, v))
        keys = self.part(keys, batch, q.shape[1], head_dim, kv_len)
        scores = self.matmul(q, keys, name="attention.scores")
        if form.scaled == "scores":
            scores = self.elementwise(scores, name="attention.scale")
        if form.masked:
            scores = self.elementwise(scores, name="attention.mask")
        weights = self.softmax(scores, name="attention.softmax")
        weights = self.dropout(weights) if form.dropout else weights
        context = self.matmul(weights, values, name="attention.context")
        shape = (batch, heads, q_len, v.shape[3])
        return self.copy(context, shape=shape, name="attention.merge_heads")

    def _full_heads(self, x: Tensor, heads: int, length: int) -> Tensor:
        """Keys or values of every query head over new and cached tokens; grouped heads are repeated
        in memory.
        """
        batch, kv_heads, _, width = x.shape
        all_tokens = self.part(x, batch, kv_heads, length, width)
        if kv_heads == heads:
            return all_tokens
        return self.copy(
            all_tokens, shape=(batch, heads, length, width), name="attention.repeat_heads"
        )

    # -- sequences, experts, trees

    def recurrent(
        self,
        x: Tensor,
        hidden: int,
        *,
        cell: str = "lstm",
        bidirectional: bool = False,
        bias_sets: int = 2,
        at: str = "",
    ) -> Tensor:
        """One recurrent layer over x (batch, steps, input): "rnn", "lstm" or "gru"; `bias_sets` as
        in cuDNN (2).

        LSTM is Hochreiter and Schmidhuber 1997, GRU Cho et al. 2014 (arXiv:1406.1078).
        """
        kind = OperatorKind[cell.upper()]
        gates, directions = RECURRENT_GATES[kind], 1 + bidirectional
        batch, steps, width = x.shape
        weights = directions * gates * hidden * (width + hidden + bias_sets)
        outputs = batch * steps * directions * hidden
        with self.scope(at):
            # gates and cell state of every step
            states_bytes = outputs * (gates + 1) * self.precision.activation.bytes
            self.parameters(weights, directions * (2 + bias_sets), of_product=True)
            return self.operator(
                kind,
                (batch, steps, width, hidden, directions),
                [x],
                (batch, steps, directions * hidden),
                name=cell,
                weights=weights,
                saves=Saved([x], output=True, extra_bytes=states_bytes),
            )

    def moe_routing(self, logits: Tensor, top_k: int) -> Tensor:
        """Softmax over experts, top-k choice and the permutation of tokens; logits (tokens,
        experts).
        """
        tokens, experts = logits.shape
        return self.operator(
            _K.MOE_ROUTING,
            (tokens, experts, top_k),
            [logits],
            (tokens, top_k),
            name="moe_routing",
            saves=Saved(output=True),
        )

    def trees(self, x: Tensor, trees: int, depth: int) -> Tensor:
        """Predict with an ensemble of binary trees over x (rows, features).

        Estimate: all nodes are read once, 8 bytes each.
        """
        rows, features = x.shape
        return self.operator(
            _K.TREE_ENSEMBLE,
            (rows, features, trees, depth),
            [x],
            (rows, 1),
            name="tree_ensemble",
            read_bytes=x.bytes + 8.0 * trees * 2 ** (depth + 1),
        )
