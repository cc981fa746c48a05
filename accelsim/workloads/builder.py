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

from collections.abc import Sequence
from math import prod

from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.workloads.operator import RECURRENT_GATES, OperatorKind
from accelsim.workloads.pointwise import POINTWISE_FLOP
from accelsim.workloads.row_writer import RowWriter, Tensor
from accelsim.workloads.window import (
    per_axis,
    pooled_size,
    three_axes,
    transposed_size,
    window_outputs,
)

__all__ = ["DROPOUT", "GraphBuilder", "Tensor"]

_K = OperatorKind
#: Name of dropout's rows.
DROPOUT = "dropout"
#: Activations whose gradient needs only the output.
_SAVES_OUTPUT = {"relu", "sigmoid", "tanh", "exp"}


class GraphBuilder(RowWriter):
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
        k = x.shape[-1]
        weights = (k + bias) * out_features
        with self.scope(at):
            x = self.cast(x, self.precision.activation)
            if not tied:
                self.parameters(weights, 1 + bias, of_product=True)
            return self.operator(
                _K.GEMM,
                (1, prod(x.shape[:-1]), out_features, k),
                [x],
                (*x.shape[:-1], out_features),
                name=name,
                weights=weights,
                saves=[x],
                dtype=self.precision.compute,
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
        """
        x = self.cast(x, self.precision.activation)
        m, k = x.shape
        each = (k + bias) * out_features
        self.parameters(groups * each, 1 + bias, of_product=True)
        return self.operator(
            _K.GROUPED_GEMM,
            (active, m, out_features, k),
            [x],
            (m, out_features),
            name=name,
            weights=active * each,
            saves=[x],
            dtype=self.precision.compute,
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
            saves=[a, b],
            dtype=self.attention_dtype,
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
                saves=[x],
                dtype=self.precision.compute,
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
        masked: bool = False,
        scaled: str = "scores",
        dropout: bool = False,
    ) -> Tensor:
        """softmax(q k^T) v with q (batch, heads, q_len, head_dim), k and v (batch, kv_heads,
        new_len, dim).

        Args:
            q: Queries.
            k: New keys; `context_len` more are read from the cache.
            v: New values.
            causal: Each query sees the keys up to its own position.
            window: Keys a query sees at most; 0 sees all.
            context_len: Keys and values already cached.
            latent: Width of a compressed cache row that serves as key and value (MLA); 0 for none.
            cached: Whether keys and values stay in a cache (adds to `kv_bytes_per_token`).
            bias: Additive scores (relative positions) the kernel reads.
            masked: Whether a mask is added even where attention is not causal (padded text);
                decomposed form only.
            scaled: What the decomposed form divides by sqrt(head_dim): "scores", "query" or "" for
                neither.
            dropout: Whether the decomposed form drops probabilities in training; fused kernels
                draw their own numbers and keep none.
        """
        batch, heads, q_len, head_dim = q.shape
        kv_heads, value_dim, kv_len = k.shape[1], v.shape[3], k.shape[2] + context_len
        row_width = latent or kv_heads * (head_dim + value_dim)
        kv_width = self.precision.kv_cache.bytes if cached else q.element_bytes
        if cached:
            self.kv_bytes_per_token += row_width * kv_width
        if not self.fused_attention:
            adds = masked or causal or bias is not None
            return self._decomposed_attention(
                q, k, v, kv_len, masked=adds, scaled=scaled, dropout=dropout
            )
        seen = min(kv_len, window + q_len - 1) if window else kv_len
        heads_and_lengths = (batch, heads, kv_heads, q_len, kv_len)
        return self.operator(
            _K.ATTENTION,
            (*heads_and_lengths, head_dim, value_dim, int(causal), window, latent),
            [q, k, v, bias] if bias else [q, k, v],
            (batch, heads, q_len, value_dim),
            name="attention",
            read_bytes=q.bytes + batch * seen * row_width * kv_width + (bias.bytes if bias else 0),
            saves=[q, k, v],
            save_output=True,
            extra_saved_bytes=4.0 * batch * heads * q_len,
            dtype=self.attention_dtype,
        )

    def _decomposed_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_len: int,
        *,
        masked: bool,
        scaled: str,
        dropout: bool,
    ) -> Tensor:
        """Scores, softmax and context as rows of their own, their result copied back to token
        order.
        """
        batch, heads, q_len, head_dim = q.shape
        if scaled == "query":
            q = self.elementwise(q, name="attention.scale")
        if k.shape[1] == 1:  # one key-value head: the query heads are rows of one product
            q = self.view(q, batch, 1, heads * q_len, head_dim)
        keys, values = (self._full_heads(x, q.shape[1], kv_len) for x in (k, v))
        keys = self.part(keys, batch, q.shape[1], head_dim, kv_len)
        scores = self.matmul(q, keys, name="attention.scores")
        if scaled == "scores":
            scores = self.elementwise(scores, name="attention.scale")
        if masked:
            scores = self.elementwise(scores, name="attention.mask")
        weights = self.softmax(scores, name="attention.softmax")
        weights = self.dropout(weights) if dropout else weights
        context = self.matmul(weights, values, name="attention.context")
        shape = (batch, heads, q_len, v.shape[3])
        return self.copy(context, shape=shape, name="attention.merge_heads")

    def _full_heads(self, x: Tensor, heads: int, length: int) -> Tensor:
        """Keys or values of every query head over new and cached tokens; grouped heads are repeated
        in memory.
        """
        batch, kv_heads, _, width = x.shape
        whole = self.part(x, batch, kv_heads, length, width)
        if kv_heads == heads:
            return whole
        return self.copy(whole, shape=(batch, heads, length, width), name="attention.repeat_heads")

    # -- memory-bound operators

    def elementwise(
        self,
        *inputs: Tensor,
        name: str,
        flop_per_element: int = 1,
        saves: Sequence[Tensor] = (),
        save_output: bool = False,
        shape: Sequence[int] | None = None,
    ) -> Tensor:
        """One output element per element of the first input (or of `shape`)."""
        out = tuple(inputs[0].shape if shape is None else shape)
        return self.operator(
            _K.ELEMENTWISE,
            (prod(out), len(inputs), flop_per_element),
            inputs,
            out,
            name=name,
            saves=saves,
            save_output=save_output,
        )

    def activation(self, x: Tensor, function: str = "relu", *, at: str = "") -> Tensor:
        """A named activation."""
        by_output = function in _SAVES_OUTPUT
        flop = POINTWISE_FLOP.get(function, 1)
        saves = () if by_output else [x]
        with self.scope(at):
            return self.elementwise(
                x, name=function, flop_per_element=flop, saves=saves, save_output=by_output
            )

    def dropout(self, x: Tensor) -> Tensor:
        """Dropout, which runs in training alone: beside the output it writes a mask of a byte per
        element, which the backward pass reads (PyTorch, native_dropout).
        """
        if not self.is_training:
            return x
        mask_bytes = 1.0 * x.elements
        return self.operator(
            _K.ELEMENTWISE,
            (x.elements, 1, POINTWISE_FLOP["native_dropout"]),
            [x],
            x.shape,
            name=DROPOUT,
            read_bytes=x.bytes + mask_bytes,
            extra_saved_bytes=mask_bytes,
        )

    def add(self, a: Tensor, b: Tensor, *, name: str = "add") -> Tensor:
        """Sum of two tensors of one shape."""
        return self.elementwise(a, b, name=name)

    def multiply(self, a: Tensor, b: Tensor, *, name: str = "mul") -> Tensor:
        """Product of two tensors (b may be smaller and broadcast)."""
        return self.elementwise(a, b, name=name, saves=[a, b])

    def _norm(
        self, kind: OperatorKind, x: Tensor, rows: int, parameters: int, tensors: int, at: str
    ) -> Tensor:
        full = Dtype.FP32 if kind != _K.RMS_NORM and self.is_mixed else None
        with self.scope(at):
            self.parameters(parameters, tensors)
            x = self.cast(x, full) if full else x
            return self.operator(
                kind,
                (rows, x.elements // rows),
                [x],
                x.shape,
                name=kind.label,
                weights=parameters,
                saves=[x],
                extra_saved_bytes=8.0 * rows,
                dtype=full,
                output_dtype=full,
            )

    def layer_norm(self, x: Tensor, *, bias: bool = True, at: str = "") -> Tensor:
        """Normalise the last axis."""
        width = x.shape[-1]
        rows = x.elements // width
        return self._norm(_K.LAYER_NORM, x, rows, width * (1 + bias), 1 + bias, at)

    def rms_norm(self, x: Tensor, *, at: str = "") -> Tensor:
        """Scale the last axis to unit root mean square."""
        width = x.shape[-1]
        return self._norm(_K.RMS_NORM, x, x.elements // width, width, 1, at)

    def batch_norm(self, x: Tensor, *, at: str = "") -> Tensor:
        """Normalise each channel of x (n, c, ...) with running (inference) or batch (training)
        statistics.
        """
        channels = x.shape[1]
        with self.scope(at):
            self.parameters(2 * channels, 2)
            return self.operator(
                _K.BATCH_NORM,
                (x.elements // channels, channels),
                [x],
                x.shape,
                name="batch_norm",
                weights=4 * channels,
                saves=[x],
                extra_saved_bytes=8.0 * channels,
            )

    def group_norm(self, x: Tensor, groups: int, *, at: str = "") -> Tensor:
        """Normalise groups of channels of x (n, c, ...); groups = channels is instance norm."""
        rows, channels = x.shape[0] * groups, x.shape[1]
        tensors = max(1, 2 * channels // max(x.elements // rows, 1))
        return self._norm(_K.GROUP_NORM, x, rows, 2 * channels, tensors, at)

    def softmax(self, x: Tensor, *, name: str = "softmax") -> Tensor:
        """Softmax over the last axis; in mixed precision one kernel reads 16 bits and writes FP32
        (PyTorch, autocast's policy fp32_set_opt_dtype).
        """
        full = Dtype.FP32 if self.is_mixed else None
        rows = x.elements // x.shape[-1]
        return self.operator(
            _K.SOFTMAX,
            (rows, x.shape[-1]),
            [x],
            x.shape,
            name=name,
            save_output=True,
            dtype=full,
            output_dtype=full,
        )

    def reduce(self, x: Tensor, *shape: int, name: str = "mean") -> Tensor:
        """Reduce x to `shape`."""
        rows = max(prod(shape), 1)
        dims = (rows, x.elements // rows)
        return self.operator(_K.REDUCTION, dims, [x], shape, name=name)

    def pool(
        self,
        x: Tensor,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        mode: str = "max",
        ceil: bool = False,
        at: str = "",
    ) -> Tensor:
        """Max or average pooling of x (n, c, spatial...)."""
        rank = len(x.shape) - 2
        window = per_axis(kernel, rank)
        step, pad = per_axis(window if stride is None else stride, rank), per_axis(padding, rank)
        out = tuple(
            pooled_size(i, w, s, p, ceil=ceil)
            for i, w, s, p in zip(x.shape[2:], window, step, pad, strict=True)
        )
        if min(out) < 1:
            raise InvalidValueError(
                "input size", x.shape[2:], f"at least the pooling window {window}"
            )
        with self.scope(at):
            return self._pool(x, out, prod(window), mode)

    def global_pool(self, x: Tensor, size: int = 1, *, at: str = "") -> Tensor:
        """Adaptive average pooling to size x size (x ...)."""
        out = (size,) * (len(x.shape) - 2)
        with self.scope(at):
            return self._pool(x, out, max(1, prod(x.shape[2:]) // prod(out)), "avg")

    def _pool(self, x: Tensor, out: tuple[int, ...], volume: int, mode: str) -> Tensor:
        batch, channels = x.shape[:2]
        outputs = batch * channels * prod(out)
        return self.operator(
            _K.POOLING,
            (batch, channels, prod(x.shape[2:]), prod(out), volume),
            [x],
            (batch, channels, *out),
            name=f"{mode}_pool",
            saves=[x] if mode == "max" else [],
            extra_saved_bytes=8.0 * outputs if mode == "max" else 0.0,  # int64 indices
        )

    def embedding(
        self,
        ids: Tensor,
        table_rows: int,
        width: int,
        *,
        name: str = "embedding",
        tied: bool = False,
        at: str = "",
    ) -> Tensor:
        """Gather one row of a (table_rows, width) table per id."""
        lookups = ids.elements
        with self.scope(at):
            if not tied:
                self.parameters(table_rows * width)
            return self.operator(
                _K.EMBEDDING,
                (lookups, width, table_rows),
                [ids],
                (*ids.shape, width),
                name=name,
                read_bytes=ids.bytes + lookups * width * self.precision.activation.bytes,
                extra_saved_bytes=ids.bytes,
            )

    def embedding_bag(
        self, bags: int, pooling: int, table_rows: int, width: int, *, name: str = "embedding_bag"
    ) -> Tensor:
        """Sum `pooling` gathered rows into each of `bags` outputs."""
        self.parameters(table_rows * width)
        lookups = bags * pooling
        ids_bytes = 8.0 * lookups
        return self.operator(
            _K.EMBEDDING_BAG,
            (lookups, width, table_rows, bags),
            [],
            (bags, width),
            name=name,
            read_bytes=ids_bytes + lookups * width * self.precision.activation.bytes,
            extra_saved_bytes=ids_bytes,
        )

    def copy(
        self, *inputs: Tensor, shape: Sequence[int] | None = None, name: str = "copy"
    ) -> Tensor:
        """Move the inputs to new storage: concatenation, transposition made contiguous, padding,
        repetition.
        """
        out = tuple(inputs[0].shape if shape is None else shape)
        return self.operator(_K.COPY, (prod(out),), inputs, out, name=name)

    def concat(self, inputs: Sequence[Tensor], axis: int = 1) -> Tensor:
        """Concatenate along one axis."""
        first = inputs[0].shape
        axis %= len(first)
        for x in inputs[1:]:
            if x.shape[:axis] != first[:axis] or x.shape[axis + 1 :] != first[axis + 1 :]:
                raise InvalidValueError(
                    "input size", x.shape, f"{first} but for axis {axis}, to be concatenated"
                )
        total = sum(x.shape[axis] for x in inputs)
        return self.copy(*inputs, shape=(*first[:axis], total, *first[axis + 1 :]), name="concat")

    def upsample(self, x: Tensor, factor: int = 2) -> Tensor:
        """Nearest-neighbour upsampling of x (n, c, spatial...)."""
        sides = (factor * side for side in x.shape[2:])
        return self.copy(x, shape=(*x.shape[:2], *sides), name="upsample")

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
        """
        kind = OperatorKind[cell.upper()]
        gates, directions = RECURRENT_GATES[kind], 1 + bidirectional
        batch, steps, width = x.shape
        weights = directions * gates * hidden * (width + hidden + bias_sets)
        outputs = batch * steps * directions * hidden
        with self.scope(at):
            self.parameters(weights, directions * (2 + bias_sets), of_product=True)
            return self.operator(
                kind,
                (batch, steps, width, hidden, directions),
                [x],
                (batch, steps, directions * hidden),
                name=cell,
                weights=weights,
                saves=[x],
                save_output=True,
                # Gates and cell state of every step.
                extra_saved_bytes=outputs * (gates + 1) * self.precision.activation.bytes,
                dtype=self.precision.compute,
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
            save_output=True,
        )

    def trees(self, x: Tensor, trees: int, depth: int) -> Tensor:
        """Predict with an ensemble of binary trees over x (rows, features); a node is 8 bytes."""
        rows, features = x.shape
        return self.operator(
            _K.TREE_ENSEMBLE,
            (rows, features, trees, depth),
            [x],
            (rows, 1),
            name="tree_ensemble",
            read_bytes=x.bytes + 8.0 * trees * 2 ** (depth + 1),
        )
