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
from accelsim.workloads.dtype import DTYPE_BYTES, Precision
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph, concatenate
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
) -> OperatorGraph:
    """One training step: forward, backward, optimizer.

    Args:
        forward: Forward rows (phase FORWARD).
        parameter_count: Trainable parameters.
        tensor_count: Tensors they live in.
        precision: Dtypes.
        rule: Update rule.
    """
    if (forward.kind == int(_K.TREE_ENSEMBLE)).any():
        return _tree_training(forward)
    updated = parameter_count - untouched_parameter_count(forward)
    update = optimizer_graph(updated, tensor_count, precision, rule)
    return concatenate([forward, backward_graph(forward), update])


def untouched_parameter_count(forward: OperatorGraph) -> int:
    """Parameters of embedding bags that a step does not look up, at the least.

    Tables of recommenders have sparse gradients: only rows that were looked up are updated (Naumov
    et al., DLRM, arXiv:1906.00091; ``EmbeddingBag(sparse=True)`` of its reference implementation).
    """
    bags = forward.kind == int(_K.EMBEDDING_BAG)
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
    scatter = np.flatnonzero(graph.kind == int(_K.SCATTER))
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
    block = _Block(
        source=np.zeros(1, dtype=np.int64),
        step=0,
        kind=np.array([int(_K.OPTIMIZER)], dtype=np.int16),
        dims=_dims(
            *(
                np.array([x])
                for x in (parameter_count, rule.state_count, max(tensor_count, 1), idle_count)
            )
        ),
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
        make = _BACKWARD.get(kind)
        if make is not None:
            blocks.extend(make(forward, rows, has_input_gradient[rows]))
    return _graph(blocks, forward.name, forward.path, forward.dtype, Phase.BACKWARD)


def _graph(
    blocks: list[_Block],
    names: tuple[str, ...],
    paths: tuple[str, ...],
    dtypes: NDArray[np.int8],
    phase: Phase,
) -> OperatorGraph:
    source = np.concatenate([b.source for b in blocks])
    step = np.concatenate([np.full(len(b.source), b.step) for b in blocks])
    suffix = [s for b in blocks for s in [b.suffix] * len(b.source)]
    order = np.lexsort((step, -source))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(b, name) for b in blocks])[order]
        for name in ("kind", "dims", "flop", "read_bytes", "write_bytes", "weight_bytes")
    }
    count, picked = len(order), source[order].tolist()
    return OperatorGraph(
        **columns,
        dtype=dtypes[source[order]],
        phase=np.full(count, int(phase), dtype=np.int8),
        saved_bytes=np.zeros(count),
        name=tuple(
            [
                f"{names[i]}.{suffix[j]}".lstrip(".")
                for i, j in zip(picked, order.tolist(), strict=True)
            ]
        ),
        path=tuple([paths[i] for i in picked]),
        dependency_offset=np.maximum(np.arange(count + 1, dtype=np.int64) - 1, 0),
        dependency=np.arange(max(count - 1, 0), dtype=np.int64),
    )


def _dims(*columns: NDArray[np.int64]) -> IntArray:
    dims = np.zeros((len(columns[0]), MAX_DIMENSIONS), dtype=np.int64)
    for place, column in enumerate(columns):
        dims[:, place] = column
    return dims


def _block(
    graph: OperatorGraph,
    rows: IntArray,
    step: int,
    suffix: str,
    *,
    kind: OperatorKind | None = None,
    dims: IntArray | None = None,
    flop: FloatArray | None = None,
    read: FloatArray | None = None,
    write: FloatArray | None = None,
    weight: FloatArray | None = None,
) -> _Block:
    """A block whose columns default to the forward rows' own."""
    kinds = graph.kind[rows] if kind is None else np.full(len(rows), int(kind), dtype=np.int16)
    return _Block(
        rows,
        step,
        kinds,
        graph.dims[rows] if dims is None else dims,
        graph.flop[rows] if flop is None else flop,
        graph.read_bytes[rows] + graph.write_bytes[rows] if read is None else read,
        graph.read_bytes[rows] if write is None else write,
        np.zeros(len(rows)) if weight is None else weight,
        suffix,
    )


_Gradients = Callable[[OperatorGraph, IntArray, NDArray[np.bool_]], list[_Block]]


def _matrix(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    """Weight GEMMs: dX = dY W^T (m x k over n), dW = X^T dY (n x k over m)."""
    b, m, n, k = (graph.dims[rows, i] for i in range(4))
    grouped = graph.kind[rows] == int(_K.GROUPED_GEMM)
    width = graph.weight_bytes[rows]
    gradient_width = width * _gradient_ratio(graph, rows)
    data = rows[needed]
    swap = _dims(b, m, k, n)[needed]
    to_weight = _dims(
        b, np.where(grouped, b * n, n), k, np.where(grouped, -(-m // np.maximum(b, 1)), m)
    )
    biased = ~grouped & (width / DTYPE_BYTES[graph.dtype[rows]] - n * k >= n)
    return [
        _block(
            graph,
            data,
            0,
            "grad_input",
            dims=swap,
            read=graph.write_bytes[data],
            weight=width[needed],
        ),
        _block(graph, rows, 1, "grad_weight", dims=to_weight, write=gradient_width),
        _bias(graph, rows[biased], n[biased], m[biased]),
    ]


def _bias(graph: OperatorGraph, rows: IntArray, outputs: IntArray, samples: IntArray) -> _Block:
    """Gradient of a bias: the output's gradient summed over all samples, shape (outputs,) from
    (samples, outputs).
    """
    flop = (outputs * samples).astype(np.float64)
    size = graph.write_bytes[rows]
    write = size / np.maximum(samples, 1)
    dims = _dims(outputs, samples)
    return _block(
        graph, rows, 2, "grad_bias", kind=_K.REDUCTION, dims=dims, flop=flop, read=size, write=write
    )


def _gradient_ratio(graph: OperatorGraph, rows: IntArray) -> FloatArray:
    """Bytes of a weight's gradient per byte of the weight: narrow weights have gradients of at
    least 2 bytes.
    """
    width = DTYPE_BYTES[graph.dtype[rows]]
    return np.maximum(width, 2.0) / width


def _batched(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    """Activation products: one product per operand."""
    b, m, n, k = (graph.dims[rows, i] for i in range(4))
    element = graph.write_bytes[rows] / np.maximum(b * m * n, 1)
    size_a, size_b = b * m * k * element, b * k * n * element
    output = graph.write_bytes[rows]
    del needed
    return [
        _block(
            graph, rows, 0, "grad_a", dims=_dims(b, m, k, n), read=output + size_b, write=size_a
        ),
        _block(
            graph, rows, 1, "grad_b", dims=_dims(b, k, n, m), read=output + size_a, write=size_b
        ),
    ]


def _convolution(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    """Data and weight gradients; those of a transposed convolution are a convolution and that one's
    weight gradient.
    """
    data = rows[needed]
    transposed = graph.kind[rows] == int(_K.CONV_TRANSPOSE)
    dims = graph.dims[rows].copy()
    dims[transposed] = dims[transposed][
        :, [0, 2, 1, 3, 7, 8, 9, 4, 5, 6, 10, 11, 12, 13, 14, *range(15, MAX_DIMENSIONS)]
    ]
    to_input = _block(
        graph,
        data,
        0,
        "grad_input",
        dims=dims[needed],
        read=graph.write_bytes[data],
        weight=graph.weight_bytes[data],
    )
    kinds = np.where(transposed[needed], int(_K.CONV), int(_K.CONV_BACKWARD_DATA)).astype(np.int16)
    gradient = graph.weight_bytes[rows] * _gradient_ratio(graph, rows)
    channels, pixels = (
        graph.dims[rows, 2],
        graph.dims[rows, 0] * graph.dims[rows, 7:10].prod(axis=1),
    )
    volume = (
        graph.dims[rows, 10:13].prod(axis=1)
        * graph.dims[rows, 1]
        // np.maximum(graph.dims[rows, 3], 1)
    )
    biased = (
        graph.weight_bytes[rows] / DTYPE_BYTES[graph.dtype[rows]] - channels * volume >= channels
    )
    return [
        _bias(graph, rows[biased], channels[biased], pixels[biased]),
        replace(to_input, kind=kinds),
        _block(
            graph, rows, 1, "grad_weight", kind=_K.CONV_BACKWARD_WEIGHT, dims=dims, write=gradient
        ),
    ]


def _attention(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    del needed
    read = graph.read_bytes[rows] + 2 * graph.write_bytes[rows]
    return [
        _block(
            graph,
            rows,
            0,
            "grad",
            kind=_K.ATTENTION_BACKWARD,
            flop=2.5 * graph.flop[rows],
            read=read,
        )
    ]


def _same_kind(flop_ratio: float) -> _Gradients:
    """One row of the forward's kind that reads its operands and the output's gradient and writes
    the input's.
    """

    def make(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
        del needed
        weight = graph.weight_bytes[rows]
        write = graph.read_bytes[rows] + weight
        return [
            _block(
                graph,
                rows,
                0,
                "grad",
                flop=flop_ratio * graph.flop[rows],
                write=write,
                weight=weight,
            )
        ]

    return make


def _elementwise(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    """Sums pass gradients on; everything else is one pass over operands and gradient."""
    passes_on = np.array(
        ["add" in graph.name[i] and graph.dims[i, 1] > 1 for i in rows.tolist()], dtype=bool
    )
    rows = rows[needed & ~passes_on]
    dims = graph.dims[rows].copy()
    dims[:, 1] += 1
    return [_block(graph, rows, 0, "grad", dims=dims)]


def _pooling(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    rows = rows[needed]
    return [_block(graph, rows, 0, "grad", read=2 * graph.write_bytes[rows])]


def _broadcast(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    rows = rows[needed]
    elements = graph.dims[rows, 0] * graph.dims[rows, 1]
    one = np.ones_like(elements)
    return [
        _block(
            graph,
            rows,
            0,
            "grad",
            kind=_K.ELEMENTWISE,
            dims=_dims(elements, one, one),
            read=graph.write_bytes[rows],
        )
    ]


def _copy(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    rows = rows[needed]
    return [_block(graph, rows, 0, "grad", read=graph.write_bytes[rows])]


def _lookup(graph: OperatorGraph, rows: IntArray, needed: NDArray[np.bool_]) -> list[_Block]:
    """Dense table gradient of an embedding: zero the table, add the rows. Bags keep a sparse
    gradient.
    """
    del needed
    bag = graph.kind[rows] == int(_K.EMBEDDING_BAG)
    lookups, width, table = (graph.dims[rows, i] for i in range(3))
    element = graph.write_bytes[rows] / np.maximum(
        np.where(bag, graph.dims[rows, 3], lookups) * width, 1
    )
    moved = lookups * width * element
    zeroed = np.where(bag, 0.0, table * width * element)
    dims = _dims(lookups, width, table)
    flop = (lookups * width).astype(np.float64)
    read = graph.write_bytes[rows] + moved
    return [
        _block(
            graph,
            rows,
            0,
            "grad",
            kind=_K.SCATTER,
            dims=dims,
            flop=flop,
            read=read,
            write=moved + zeroed,
        )
    ]


def _accumulations(graph: OperatorGraph) -> _Block:
    """Sums of the gradients of tensors that several rows read."""
    consumers = np.bincount(graph.dependency, minlength=len(graph))
    rows = np.repeat(np.arange(len(graph), dtype=np.int64), np.maximum(consumers - 1, 0))
    size = graph.write_bytes[rows]
    elements = np.maximum(size / DTYPE_BYTES[graph.dtype[rows]], 1).astype(np.int64)
    dims = _dims(elements, np.full_like(elements, 2), np.ones_like(elements))
    flop = elements.astype(np.float64)
    return _block(
        graph,
        rows,
        -1,
        "grad_add",
        kind=_K.ELEMENTWISE,
        dims=dims,
        flop=flop,
        read=2 * size,
        write=size.copy(),
    )


_BACKWARD: dict[OperatorKind, _Gradients] = {
    _K.GEMM: _matrix,
    _K.GROUPED_GEMM: _matrix,
    _K.BATCHED_GEMM: _batched,
    _K.CONV: _convolution,
    _K.CONV_TRANSPOSE: _convolution,
    _K.ATTENTION: _attention,
    _K.LAYER_NORM: _same_kind(2.0),
    _K.RMS_NORM: _same_kind(2.0),
    _K.BATCH_NORM: _same_kind(2.0),
    _K.GROUP_NORM: _same_kind(2.0),
    _K.SOFTMAX: _same_kind(0.7),
    _K.RNN: _same_kind(2.0),
    _K.LSTM: _same_kind(2.0),
    _K.GRU: _same_kind(2.0),
    _K.MOE_ROUTING: _same_kind(1.0),
    _K.ELEMENTWISE: _elementwise,
    _K.REDUCTION: _broadcast,
    _K.POOLING: _pooling,
    _K.COPY: _copy,
    _K.EMBEDDING: _lookup,
    _K.EMBEDDING_BAG: _lookup,
}


def _tree_training(forward: OperatorGraph) -> OperatorGraph:
    """Histogram boosting (LightGBM, Ke 2017): each level of each tree bins every row's features
    once, with 256 bins.
    """
    rows = np.flatnonzero(forward.kind == int(_K.TREE_ENSEMBLE)).astype(np.int64)
    samples, features, trees, depth = (forward.dims[rows, i] for i in range(4))
    passes = (samples * trees * depth).astype(np.float64)
    block = _block(
        forward,
        rows,
        0,
        "histogram",
        kind=_K.TREE_HISTOGRAM,
        dims=_dims(samples, features, trees, depth, np.full_like(samples, 256)),
        flop=2.0 * passes * features,
        read=passes * (features + 8.0),  # one-byte bins, gradient and hessian
        write=16.0 * 256 * features * trees * depth,
    )
    return _graph([block], forward.name, forward.path, forward.dtype, Phase.BACKWARD)
