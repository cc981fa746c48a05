"""Training steps: backward, gradient and optimizer rows of any forward graph.

Each forward row is given the rows that autograd launches for it: matrix operators one product for
the input's gradient, one for the weight's (the same FLOP each) and a sum for the bias's, fused
attention five products for the forward's two (Dao 2022, section 3), norms, activations and softmax
one pass each. A residual sum passes its gradient on without a kernel; where a tensor had several
consumers their gradients are added. The gradient of the model's own input is not computed.

Optimizer traffic per parameter follows the update rules, in the widths of the precision policy:
plain SGD reads and writes the weight and reads the gradient; each state is read and written once;
LAMB passes twice for its trust ratio (You 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import UnknownNameError
from accelsim.workloads.builder import DROPOUT
from accelsim.workloads.dtype import DTYPE_BYTES, Dtype, Precision
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, concatenate
from accelsim.workloads.operator import MAX_DIMENSIONS, OperatorKind, Phase

__all__ = [
    "OPTIMIZERS",
    "Optimizer",
    "backward_graph",
    "idle_parameter_count",
    "optimizer",
    "optimizer_graph",
    "training_graph",
    "untouched_parameter_count",
    "word_loss_graph",
]

_K = OperatorKind


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An update rule.

    Attributes:
        name: Name.
        state_count: Tensors of optimizer state per parameter, each stored as wide as the weight
            that is updated.
        flop_per_parameter: Arithmetic of one update.
        passes: Times the weight and states are read (LAMB: 2).
    """

    name: str
    state_count: int
    flop_per_parameter: int
    passes: int = 1


#: Update rules by name (Kingma 2015; Loshchilov 2019; You 2020).
OPTIMIZERS = {
    rule.name: rule
    for rule in (
        Optimizer("sgd", 0, 2),
        Optimizer("momentum", 1, 4),
        Optimizer("adam", 2, 14),
        Optimizer("adamw", 2, 16),
        Optimizer("lamb", 2, 24, passes=2),
    )
}


def optimizer(name: str) -> Optimizer:
    """Look an update rule up.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    rule = OPTIMIZERS.get(name.lower())
    if rule is None:
        raise UnknownNameError(
            "optimizer", name, OPTIMIZERS, f"Known optimizers: {', '.join(OPTIMIZERS)}."
        )
    return rule


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Gradient rows of some forward rows `source`; `step` orders the rows of one forward row."""

    source: IntArray
    step: int
    kind: NDArray[np.int16]
    dims: IntArray
    flop: FloatArray
    read_bytes: FloatArray
    write_bytes: FloatArray
    weight_bytes: FloatArray
    suffix: str


def training_graph(
    forward: OperatorGraph,
    parameter_count: int,
    tensor_count: int,
    precision: Precision,
    rule: Optimizer,
    *,
    predicts_words: bool = False,
) -> OperatorGraph:
    """One training step: forward, loss over a vocabulary, backward, optimizer.

    Args:
        forward: Forward rows (phase FORWARD).
        parameter_count: Trainable parameters.
        tensor_count: Tensors they live in.
        precision: Dtypes.
        rule: Update rule.
        predicts_words: Whether the last product gives a score for every word of a vocabulary, of
            which a loss is made.
    """
    if (forward.kind == _K.TREE_ENSEMBLE).any():
        return _tree_training(forward)
    updated = parameter_count - untouched_parameter_count(forward)
    update = optimizer_graph(updated, tensor_count, precision, rule)
    loss = [word_loss_graph(forward, precision)] if predicts_words else []
    return concatenate([forward, *loss, backward_graph(forward), update])


def word_loss_graph(forward: OperatorGraph, precision: Precision) -> OperatorGraph:
    """Cross entropy over a vocabulary and its gradient, in FP32 as PyTorch and Megatron-LM compute
    it: scores widened, their logarithmic softmax, the gradient of the words that were meant, that
    of the softmax, and the result narrowed again.

    PyTorch, aten/src/ATen/native/cuda/SoftMax.cu and NLLLoss2d.cu; Megatron-LM,
    core/tensor_parallel/cross_entropy.py. Rows of classes (a few thousand) are not worth it.

    Args:
        forward: Rows whose last matrix product gives the scores.
        precision: Dtypes.
    """
    last = np.flatnonzero(forward.kind == _K.GEMM)[-1:]
    batch, rows, words = (forward.dims[last, place] for place in range(3))
    narrow, wide = precision.activation.bytes, 4.0
    rows, scores = batch * rows, (batch * rows * words).astype(np.float64)
    moved = {
        "widen": (narrow, wide, _K.ELEMENTWISE),
        "log_softmax": (wide, wide, _K.SOFTMAX),
        "picked.grad": (0.0, wide, _K.ELEMENTWISE),
        "log_softmax.grad": (2.0 * wide, wide, _K.SOFTMAX),
        "narrow": (wide, narrow, _K.ELEMENTWISE),
    }
    if narrow >= wide:
        moved = {name: row for name, row in moved.items() if "softmax" in name or "grad" in name}
    whole, one = scores.astype(np.int64), np.ones_like(rows)
    blocks = [
        _Block(
            source=np.zeros(len(last), dtype=np.int64),
            step=step,
            kind=np.full(len(last), int(kind), dtype=np.int16),
            dims=_dims(rows, words) if kind is _K.SOFTMAX else _dims(whole, one, one),
            flop=scores,
            read_bytes=read * scores,
            write_bytes=write * scores,
            weight_bytes=np.zeros(len(last)),
            suffix=name,
        )
        for step, (name, (read, write, kind)) in enumerate(moved.items())
    ]
    path = tuple(forward.path[row] for row in last)
    dtype = np.full(len(last), int(Dtype.FP32), dtype=np.int8)
    return _graph(blocks, ("loss",) * len(last), path, dtype, Phase.BACKWARD)


def untouched_parameter_count(forward: OperatorGraph) -> int:
    """Parameters of embedding bags that a step does not look up, at the least.

    Tables of recommenders have sparse gradients: only rows that were looked up are updated (Naumov
    et al., DLRM, arXiv:1906.00091; ``EmbeddingBag(sparse=True)`` of its reference implementation).
    """
    bags = forward.kind == _K.EMBEDDING_BAG
    lookups, width, rows = (forward.dims[bags, place] for place in range(3))
    return int((np.maximum(rows - lookups, 0) * width).sum())


def idle_parameter_count(graph: OperatorGraph) -> int:
    """Parameters whose gradients stay zero while the same batch trains: rows of tables that none of
    its indices name.

    Of r rows n uniform indices leave r exp(-n / r). A table that is used elsewhere too, as the last
    layer's weights, has its gradients added up by another row and is none of these.

    Args:
        graph: Forward and backward rows.
    """
    scatter = np.flatnonzero(graph.kind == _K.SCATTER)
    scatter = scatter[~np.isin(scatter, graph.dependency)]
    lookups, width, rows = (graph.dims[scatter, place].astype(np.float64) for place in range(3))
    return int((rows * np.exp(-lookups / np.maximum(rows, 1.0)) * width).sum())


def optimizer_graph(
    parameter_count: int,
    tensor_count: int,
    precision: Precision,
    rule: Optimizer,
    idle_count: int = 0,
) -> OperatorGraph:
    """The update of all parameters as one multi-tensor row; `idle_count` of them have had gradients
    of zero throughout.

    With a master copy the FP32 weight is read and written and the working weight written; without
    one the working weight is read and written. States are as wide as the weight that is updated.
    """
    weight = precision.weight.bytes
    master = 0.0 if precision.master_weight is None else precision.master_weight.bytes
    gradient = precision.activation.bytes if precision.activation.bytes <= 4 else weight
    stored = master or weight
    read = rule.passes * (stored * (1 + rule.state_count) + gradient)
    write = stored * (1 + rule.state_count) + (weight if master else 0.0)
    sizes = (parameter_count, rule.state_count, max(tensor_count, 1), idle_count)
    block = _Block(
        source=np.zeros(1, dtype=np.int64),
        step=0,
        kind=np.array([_K.OPTIMIZER], dtype=np.int16),
        dims=_dims(*(np.array([size]) for size in sizes)),
        flop=np.array([float(rule.flop_per_parameter * parameter_count)]),
        read_bytes=np.array([read * parameter_count]),
        write_bytes=np.array([write * parameter_count]),
        weight_bytes=np.zeros(1),
        suffix=rule.name,
    )
    dtype = np.array([int(precision.master_weight or precision.activation)], dtype=np.int8)
    return _graph([block], ("",), ("optimizer",), dtype, Phase.OPTIMIZER)


def backward_graph(forward: OperatorGraph) -> OperatorGraph:
    """Backward rows of a forward graph, last layer first, as one chain.

    Args:
        forward: Forward rows with their dependencies.
    """
    has_input_gradient = np.diff(forward.dependency_offset) > 0
    blocks = [_accumulations(forward)]
    for kind, rows in forward.rows_by_kind():
        gradients = _BACKWARD.get(kind)
        if gradients is not None:
            blocks += gradients(_Rows(forward, rows), has_input_gradient[rows])
    return _graph(blocks, forward.name, forward.path, forward.dtype, Phase.BACKWARD)


def _graph(
    blocks: list[_Block],
    names: tuple[str, ...],
    paths: tuple[str, ...],
    dtypes: NDArray[np.int8],
    phase: Phase,
) -> OperatorGraph:
    source = np.concatenate([block.source for block in blocks])
    step = np.repeat([block.step for block in blocks], [len(block.source) for block in blocks])
    suffixes = [suffix for block in blocks for suffix in [block.suffix] * len(block.source)]
    order = np.lexsort((step, -source))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(block, name) for block in blocks])[order]
        for name in ("kind", "dims", "flop", "read_bytes", "write_bytes", "weight_bytes")
    }
    count, picked = len(order), source[order].tolist()
    labels = [
        f"{names[row]}.{suffixes[place]}".lstrip(".")
        for row, place in zip(picked, order.tolist(), strict=True)
    ]
    return OperatorGraph(
        **columns,
        dtype=dtypes[source[order]],
        phase=np.full(count, int(phase), dtype=np.int8),
        saved_bytes=np.zeros(count),
        name=tuple(labels),
        path=tuple([paths[row] for row in picked]),
        dependency_offset=np.maximum(np.arange(count + 1, dtype=np.int64) - 1, 0),
        dependency=np.arange(max(count - 1, 0), dtype=np.int64),
    )


def _dims(*columns: IntArray) -> IntArray:
    dims = np.zeros((len(columns[0]), MAX_DIMENSIONS), dtype=np.int64)
    for place, column in enumerate(columns):
        dims[:, place] = column
    return dims


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Some forward rows and their columns."""

    graph: OperatorGraph
    rows: IntArray

    @property
    def read(self) -> FloatArray:
        return self.graph.read_bytes[self.rows]

    @property
    def write(self) -> FloatArray:
        return self.graph.write_bytes[self.rows]

    @property
    def weight(self) -> FloatArray:
        return self.graph.weight_bytes[self.rows]

    @property
    def flop(self) -> FloatArray:
        return self.graph.flop[self.rows]

    @property
    def dims(self) -> IntArray:
        return self.graph.dims[self.rows]

    @property
    def element_bytes(self) -> FloatArray:
        return DTYPE_BYTES[self.graph.dtype[self.rows]]

    def are(self, kind: OperatorKind) -> BoolArray:
        """Which rows are of a kind."""
        matching: BoolArray = self.graph.kind[self.rows] == int(kind)
        return matching

    def sizes(self, count: int) -> list[IntArray]:
        """The first dimensions."""
        return [self.dims[:, place] for place in range(count)]

    def where(self, chosen: BoolArray) -> _Rows:
        """Some of the rows."""
        return replace(self, rows=self.rows[chosen])

    def gradient(
        self,
        suffix: str = "grad",
        step: int = 0,
        *,
        kind: OperatorKind | NDArray[np.int16] | None = None,
        dims: IntArray | None = None,
        flop: FloatArray | None = None,
        read: FloatArray | None = None,
        write: FloatArray | None = None,
        weight: FloatArray | None = None,
    ) -> _Block:
        """Gradient rows whose columns default to the forward rows' own."""
        count = len(self.rows)
        own = self.graph.kind[self.rows] if kind is None else kind
        return _Block(
            source=self.rows,
            step=step,
            kind=np.broadcast_to(own, count).astype(np.int16),
            dims=self.dims if dims is None else dims,
            flop=self.flop if flop is None else flop,
            read_bytes=self.read + self.write if read is None else read,
            write_bytes=self.read if write is None else write,
            weight_bytes=np.zeros(count) if weight is None else weight,
            suffix=suffix,
        )


_Gradients = Callable[[_Rows, BoolArray], list[_Block]]


def _matrix(forward: _Rows, needed: BoolArray) -> list[_Block]:
    """Weight GEMMs: dX = dY W^T (m x k over n), dW = X^T dY (n x k over m)."""
    groups, m, n, k = forward.sizes(4)
    grouped = forward.are(_K.GROUPED_GEMM)
    rows_each = np.where(grouped, -(-m // np.maximum(groups, 1)), m)
    to_weight = _dims(groups, np.where(grouped, groups * n, n), k, rows_each)
    biased = ~grouped & (forward.weight / forward.element_bytes - n * k >= n)
    data = forward.where(needed)
    to_input = _dims(groups, m, k, n)[needed]
    return [
        data.gradient("grad_input", dims=to_input, read=data.write, weight=data.weight),
        forward.gradient("grad_weight", 1, dims=to_weight, write=_weight_gradient_bytes(forward)),
        _bias(forward.where(biased), n[biased], m[biased]),
    ]


def _bias(forward: _Rows, outputs: IntArray, samples: IntArray) -> _Block:
    """Gradient of a bias: the output's gradient summed over all samples, shape (outputs,) from
    (samples, outputs).
    """
    flop = (outputs * samples).astype(np.float64)
    size = forward.write
    write = size / np.maximum(samples, 1)
    dims = _dims(outputs, samples)
    return forward.gradient(
        "grad_bias", 2, kind=_K.REDUCTION, dims=dims, flop=flop, read=size, write=write
    )


def _weight_gradient_bytes(forward: _Rows) -> FloatArray:
    """Narrow weights have gradients of at least 2 bytes."""
    width = forward.element_bytes
    return forward.weight * (np.maximum(width, 2.0) / width)


def _batched(forward: _Rows, needed: BoolArray) -> list[_Block]:
    """Activation products: one product per operand."""
    del needed
    batch, m, n, k = forward.sizes(4)
    output = forward.write
    element = output / np.maximum(batch * m * n, 1)
    left, right = batch * m * k * element, batch * k * n * element
    to_left, to_right = _dims(batch, m, k, n), _dims(batch, k, n, m)
    return [
        forward.gradient("grad_a", dims=to_left, read=output + right, write=left),
        forward.gradient("grad_b", 1, dims=to_right, read=output + left, write=right),
    ]


def _convolution(forward: _Rows, needed: BoolArray) -> list[_Block]:
    """Data and weight gradients; those of a transposed convolution are a convolution and that one's
    weight gradient.
    """
    transposed = forward.are(_K.CONV_TRANSPOSE)
    batch, c_in, channels, groups = forward.sizes(4)
    dims = forward.dims.copy()
    # Input and output trade places.
    dims[transposed, 1:3] = dims[transposed, 2:0:-1]
    dims[transposed, 4:10] = np.roll(dims[transposed, 4:10], 3, axis=1)
    pixels = batch * forward.dims[:, 7:10].prod(axis=1)
    volume = forward.dims[:, 10:13].prod(axis=1) * c_in // np.maximum(groups, 1)
    biased = forward.weight / forward.element_bytes - channels * volume >= channels
    data = forward.where(needed)
    kinds = np.where(transposed[needed], _K.CONV, _K.CONV_BACKWARD_DATA)
    return [
        _bias(forward.where(biased), channels[biased], pixels[biased]),
        data.gradient(
            "grad_input", kind=kinds, dims=dims[needed], read=data.write, weight=data.weight
        ),
        forward.gradient(
            "grad_weight",
            1,
            kind=_K.CONV_BACKWARD_WEIGHT,
            dims=dims,
            write=_weight_gradient_bytes(forward),
        ),
    ]


def _attention(forward: _Rows, needed: BoolArray) -> list[_Block]:
    """Five products for the forward's two (Dao 2022, section 3)."""
    del needed
    read = forward.read + 2 * forward.write
    flop = 2.5 * forward.flop
    return [forward.gradient(kind=_K.ATTENTION_BACKWARD, flop=flop, read=read)]


def _same_kind(flop_ratio: float) -> _Gradients:
    """One row of the forward's kind that reads its operands and the output's gradient and writes
    the input's.
    """

    def gradients(forward: _Rows, needed: BoolArray) -> list[_Block]:
        del needed
        weight = forward.weight
        flop = flop_ratio * forward.flop
        return [forward.gradient(flop=flop, write=forward.read + weight, weight=weight)]

    return gradients


def _elementwise(forward: _Rows, needed: BoolArray) -> list[_Block]:
    """Sums pass gradients on; everything else is one pass over operands and gradient."""
    is_sum = np.array(["add" in forward.graph.name[row] for row in forward.rows.tolist()], bool)
    passes_on = is_sum & (forward.dims[:, 1] > 1)
    is_dropped = np.array(
        [forward.graph.name[row] == DROPOUT for row in forward.rows.tolist()], bool
    )
    taken = forward.where(needed & ~passes_on & ~is_dropped)
    dims = taken.dims.copy()
    dims[:, 1] += 1
    dropped = forward.where(needed & is_dropped)  # reads the gradient and the mask
    write = dropped.write
    return [taken.gradient(dims=dims), dropped.gradient(read=dropped.read, write=write)]


def _pooling(forward: _Rows, needed: BoolArray) -> list[_Block]:
    taken = forward.where(needed)
    return [taken.gradient(read=2 * taken.write)]


def _broadcast(forward: _Rows, needed: BoolArray) -> list[_Block]:
    taken = forward.where(needed)
    rows, columns = taken.sizes(2)
    single = np.ones_like(rows)
    dims = _dims(rows * columns, single, single)
    return [taken.gradient(kind=_K.ELEMENTWISE, dims=dims, read=taken.write)]


def _copy(forward: _Rows, needed: BoolArray) -> list[_Block]:
    taken = forward.where(needed)
    return [taken.gradient(read=taken.write)]


def _lookup(forward: _Rows, needed: BoolArray) -> list[_Block]:
    """Dense table gradient of an embedding: zero the table, add the rows. Bags keep a sparse
    gradient.
    """
    del needed
    lookups, width, table, bags = forward.sizes(4)
    is_bag = forward.are(_K.EMBEDDING_BAG)
    written = np.where(is_bag, bags, lookups) * width
    element = forward.write / np.maximum(written, 1)
    moved = lookups * width * element
    zeroed = np.where(is_bag, 0.0, table * width * element)
    dims = _dims(lookups, width, table)
    flop = (lookups * width).astype(np.float64)
    read, write = forward.write + moved, moved + zeroed
    return [forward.gradient(kind=_K.SCATTER, dims=dims, flop=flop, read=read, write=write)]


def _joined(kind: OperatorKind) -> _Gradients:
    """The collective of the gradients: of as many bytes among the same ranks (Korthikanti et al.
    2022, arXiv:2205.05198, figure 5).

    A sum over a split layer's ranks passes its gradient on; the sum that the layer's input needs
    stands in its place.
    """

    def gradients(forward: _Rows, needed: NDArray[np.bool_]) -> list[_Block]:
        taken = forward.where(needed)
        return [taken.gradient(kind=kind, read=taken.write)]

    return gradients


def _accumulations(graph: OperatorGraph) -> _Block:
    """Sums of the gradients of tensors that several rows read."""
    consumers = np.bincount(graph.dependency, minlength=len(graph))
    further = np.maximum(consumers - 1, 0)
    forward = _Rows(graph, np.repeat(np.arange(len(graph), dtype=np.int64), further))
    size = forward.write
    elements = np.maximum(size / forward.element_bytes, 1).astype(np.int64)
    dims = _dims(elements, np.full_like(elements, 2), np.ones_like(elements))
    flop = elements.astype(np.float64)
    return forward.gradient(
        "grad_add", -1, kind=_K.ELEMENTWISE, dims=dims, flop=flop, read=2 * size, write=size
    )


_BACKWARD: dict[OperatorKind, _Gradients] = {
    _K.GEMM: _matrix,
    _K.GROUPED_GEMM: _matrix,
    _K.BATCHED_GEMM: _batched,
    _K.CONV: _convolution,
    _K.CONV_TRANSPOSE: _convolution,
    _K.ATTENTION: _attention,
    _K.SOFTMAX: _same_kind(0.7),
    _K.MOE_ROUTING: _same_kind(1.0),
    _K.ELEMENTWISE: _elementwise,
    _K.REDUCTION: _broadcast,
    _K.POOLING: _pooling,
    _K.COPY: _copy,
    _K.EMBEDDING: _lookup,
    _K.EMBEDDING_BAG: _lookup,
    _K.ALL_REDUCE: _joined(_K.ALL_REDUCE),
    _K.ALL_GATHER: _joined(_K.REDUCE_SCATTER),
    _K.REDUCE_SCATTER: _joined(_K.ALL_GATHER),
    _K.ALL_TO_ALL: _joined(_K.ALL_TO_ALL),
    _K.SEND_RECV: _joined(_K.SEND_RECV),
} | dict.fromkeys(
    (_K.LAYER_NORM, _K.RMS_NORM, _K.BATCH_NORM, _K.GROUP_NORM, _K.RNN, _K.LSTM, _K.GRU),
    _same_kind(2.0),
)


def _tree_training(forward: OperatorGraph) -> OperatorGraph:
    """Histogram boosting (LightGBM, Ke 2017): each level of each tree bins every row's features
    once, with 256 bins.
    """
    rows = np.flatnonzero(forward.kind == _K.TREE_ENSEMBLE).astype(np.int64)
    trees_rows = _Rows(forward, rows)
    samples, features, trees, depth = trees_rows.sizes(4)
    passes = (samples * trees * depth).astype(np.float64)
    bins = (features * trees * depth).astype(np.float64) * 256
    block = trees_rows.gradient(
        "histogram",
        kind=_K.TREE_HISTOGRAM,
        dims=_dims(samples, features, trees, depth, np.full_like(samples, 256)),
        flop=2.0 * passes * features,
        read=passes * (features + 8.0),  # one-byte bins, gradient and hessian
        write=16.0 * bins,
    )
    return _graph([block], forward.name, forward.path, forward.dtype, Phase.BACKWARD)
