"""Backward rows of any forward graph.

Each forward row is given the rows that autograd launches for it: matrix operators one product for
the input's gradient, one for the weight's (the same FLOP each) and a sum for the bias's, fused
attention five products for the forward's two (Dao 2023), norms, activations and softmax
one pass each. A residual sum passes its gradient on without a kernel; where a tensor had several
consumers their gradients are added. The gradient of the model's own input is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from accelsim.dtype import DTYPE_BYTES
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.graph import (
    BoolArray,
    FloatArray,
    IntArray,
    OperatorGraph,
    chained,
    codes,
    concatenate,
    parts,
)
from accelsim.workloads.memory_layers import DROPOUT
from accelsim.workloads.operator import MAX_DIMENSIONS, OperatorKind, Phase

_K = OperatorKind


@frozen(eq=False)
class RowBlock:
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


class GradientColumns(TypedDict, total=False):
    """Columns of gradient rows that are not their forward rows' own."""

    kind: OperatorKind | NDArray[np.int16]
    dims: IntArray
    flop: FloatArray
    read: FloatArray
    write: FloatArray
    weight: FloatArray


def new_rows(
    kind: OperatorKind,
    dims: IntArray,
    flop: FloatArray,
    moved: tuple[FloatArray, FloatArray],
    suffix: str,
    *,
    step: int = 0,
    weight: FloatArray | None = None,
) -> RowBlock:
    """Rows of one kind, each of a source of its own.

    Args:
        kind: Kind of all rows.
        dims: Their dimensions, shape (n, MAX_DIMENSIONS).
        flop: Their FLOP, shape (n,).
        moved: Bytes read and written, shape (n,) each.
        suffix: Name.
        step: Order among the rows of one source.
        weight: Bytes of weights read; none unless given.
    """
    count = len(dims)
    kinds = np.full(count, int(kind), dtype=np.int16)
    weights = np.zeros(count) if weight is None else weight
    return RowBlock(np.arange(count), step, kinds, dims, flop, *moved, weights, suffix)


def rows_within(graph: OperatorGraph, modules: tuple[str, ...]) -> BoolArray:
    """Which rows are of some modules, by their paths, shape (n,)."""
    if not modules:
        return np.zeros(len(graph), dtype=bool)
    inside = tuple(f"{module}." for module in modules)
    return np.array([f"{path}.".startswith(inside) for path in graph.path], dtype=bool)


def backward_graph(forward: OperatorGraph, untrained: tuple[str, ...] = ()) -> OperatorGraph:
    """Backward rows of one graph; see `backward_graphs`."""
    return backward_graphs([forward], untrained)[0]


def backward_graphs(
    forwards: Sequence[OperatorGraph], untrained: tuple[str, ...] = ()
) -> list[OperatorGraph]:
    """Backward rows of forward graphs, each last layer first, as one chain.

    Args:
        forwards: Forward rows with their dependencies.
        untrained: Modules whose rows have none, and whose outputs have no gradient.
    """
    run = np.repeat(np.arange(len(forwards)), [len(graph) for graph in forwards])
    forward = concatenate(forwards, waits=False)
    still = rows_within(forward, untrained)
    trained = np.concatenate([[0], np.cumsum(~still[forward.dependency])])
    has_input_gradient = np.diff(trained[forward.dependency_offset]) > 0
    blocks = [_accumulations(forward, still)]
    for kind, every in forward.rows_by_kind():
        gradients, rows = _BACKWARD.get(kind), every[~still[every]]
        if gradients is not None:
            of_kind = ForwardRows(forward, rows)
            blocks += gradients(of_kind, of_kind.where(has_input_gradient[rows]))
    backward = rows_graph(blocks, forward.name, forward.path, forward.dtype, Phase.BACKWARD, run)
    source = np.concatenate([block.source for block in blocks])
    return parts(backward, np.bincount(run[source], minlength=len(forwards)))


def rows_graph(
    blocks: list[RowBlock],
    names: tuple[str, ...],
    paths: tuple[str, ...],
    dtypes: NDArray[np.int8],
    phase: Phase,
    run: IntArray | None = None,
) -> OperatorGraph:
    """Blocks as one chain, last forward row first, those of each run after those of the run before.

    Args:
        blocks: Rows by the forward row they belong to.
        names: Names of the forward rows.
        paths: Their paths.
        dtypes: Their dtypes.
        phase: Phase of all rows.
        run: Run of each forward row; one where None.
    """
    source = np.concatenate([block.source for block in blocks])
    sizes = [len(block.source) for block in blocks]
    step = np.repeat([block.step for block in blocks], sizes)
    suffixes = np.repeat([block.suffix for block in blocks], sizes).tolist()
    order = np.lexsort((step, -source) if run is None else (step, -source, run[source]))
    columns: Document = {
        name: np.concatenate([getattr(block, name) for block in blocks])[order]
        for name in ("kind", "dims", "flop", "read_bytes", "write_bytes", "weight_bytes")
    }
    count = len(order)
    offset, dependency = chained(count)
    picked = source[order].tolist()
    labels = [
        f"{names[row]}.{suffixes[index]}".lstrip(".")
        for row, index in zip(picked, order.tolist(), strict=True)
    ]
    return OperatorGraph(
        **columns,
        dtype=dtypes[source[order]],
        phase=codes(count, phase),
        saved_bytes=np.zeros(count),
        name=tuple(labels),
        path=tuple([paths[row] for row in picked]),
        dependency_offset=offset,
        dependency=dependency,
    )


def row_dims(*columns: IntArray) -> IntArray:
    """Dimensions of rows from their columns; those not given are 0."""
    dims = np.zeros((len(columns[0]), MAX_DIMENSIONS), dtype=np.int64)
    for index, column in enumerate(columns):
        dims[:, index] = column
    return dims


@frozen(eq=False)
class ForwardRows:
    """Some forward rows and their columns."""

    graph: OperatorGraph
    rows: IntArray

    @property
    def read(self) -> FloatArray:
        """Bytes read."""
        return self.graph.read_bytes[self.rows]

    @property
    def write(self) -> FloatArray:
        """Bytes written."""
        return self.graph.write_bytes[self.rows]

    @property
    def weight(self) -> FloatArray:
        """Bytes of weights among those read."""
        return self.graph.weight_bytes[self.rows]

    @property
    def flop(self) -> FloatArray:
        """Arithmetic."""
        return self.graph.flop[self.rows]

    @property
    def dims(self) -> IntArray:
        """Dimensions."""
        return self.graph.dims[self.rows]

    @property
    def element_bytes(self) -> FloatArray:
        """Bytes of one element."""
        return DTYPE_BYTES[self.graph.dtype[self.rows]]

    def are(self, kind: OperatorKind) -> BoolArray:
        """Which rows are of a kind."""
        matching: BoolArray = self.graph.kind[self.rows] == kind
        return matching

    def sizes(self, count: int) -> IntArray:
        """The first dimensions, shape (count, n)."""
        sizes: IntArray = self.dims[:, :count].T
        return sizes

    def where(self, chosen: BoolArray) -> ForwardRows:
        """Some of the rows."""
        return replace(self, rows=self.rows[chosen])

    def gradient(
        self, suffix: str = "grad", step: int = 0, **columns: Unpack[GradientColumns]
    ) -> RowBlock:
        """Gradient rows whose columns default to the forward rows' own."""
        count = len(self.rows)
        kind = columns.get("kind", self.graph.kind[self.rows])
        return RowBlock(
            source=self.rows,
            step=step,
            kind=np.broadcast_to(kind, count).astype(np.int16),
            dims=columns.get("dims", self.dims),
            flop=columns.get("flop", self.flop),
            read_bytes=columns.get("read", self.read + self.write),
            write_bytes=columns.get("write", self.read),
            weight_bytes=columns.get("weight", np.zeros(count)),
            suffix=suffix,
        )


#: From all rows of a kind, and those of them whose input has a gradient.
_Gradients = Callable[[ForwardRows, ForwardRows], list[RowBlock]]


def _matrix(forward: ForwardRows, data: ForwardRows) -> list[RowBlock]:
    """Weight GEMMs: dX = dY W^T (m x k over n), dW = X^T dY (n x k over m).

    Goodfellow et al., Deep Learning, MIT Press 2016, chapter 6.
    """
    groups, m, n, k = forward.sizes(4)
    grouped = forward.are(_K.GROUPED_GEMM)
    rows_each = np.where(grouped, -(-m // np.maximum(groups, 1)), m)
    to_weight = row_dims(groups, np.where(grouped, groups * n, n), k, rows_each)
    biased = ~grouped & (forward.weight / forward.element_bytes - n * k >= n)
    to_input = data.dims.copy()
    to_input[:, [2, 3]] = to_input[:, [3, 2]]
    return [
        data.gradient("grad_input", dims=to_input, read=data.write, weight=data.weight),
        forward.gradient("grad_weight", 1, dims=to_weight, write=_weight_gradient_bytes(forward)),
        _bias(forward.where(biased), n[biased], m[biased]),
    ]


def _bias(forward: ForwardRows, outputs: IntArray, samples: IntArray) -> RowBlock:
    """Gradient of a bias: the output's gradient summed over all samples, shape (outputs,) from
    (samples, outputs).
    """
    flop = (outputs * samples).astype(np.float64)
    size = forward.write
    write = size / np.maximum(samples, 1)
    dims = row_dims(outputs, samples)
    return forward.gradient(
        "grad_bias", 2, kind=_K.REDUCTION, dims=dims, flop=flop, read=size, write=write
    )


def _weight_gradient_bytes(forward: ForwardRows) -> FloatArray:
    """Narrow weights have gradients of at least 2 bytes."""
    width = forward.element_bytes
    return forward.weight * (np.maximum(width, 2.0) / width)


def _batched(forward: ForwardRows, _: ForwardRows) -> list[RowBlock]:
    """Activation products: one product per operand.

    Goodfellow et al., Deep Learning, MIT Press 2016, chapter 6.
    """
    batch, m, n, k = forward.sizes(4)
    output = forward.write
    element = output / np.maximum(batch * m * n, 1)
    left = batch * m * k * element
    right = batch * k * n * element
    to_left = row_dims(batch, m, k, n)
    to_right = row_dims(batch, k, n, m)
    return [
        forward.gradient("grad_a", dims=to_left, read=output + right, write=left),
        forward.gradient("grad_b", 1, dims=to_right, read=output + left, write=right),
    ]


def _convolution(forward: ForwardRows, data: ForwardRows) -> list[RowBlock]:
    """Data and weight gradients; those of a transposed convolution are a convolution and that one's
    weight gradient.

    Dumoulin and Visin, arXiv:1603.07285: the data gradient is a transposed convolution.
    """
    batch, c_in, channels, groups = forward.sizes(4)
    pixels = batch * forward.dims[:, 7:10].prod(axis=1)
    volume = forward.dims[:, 10:13].prod(axis=1) * c_in // np.maximum(groups, 1)
    biased = forward.weight / forward.element_bytes - channels * volume >= channels
    kinds = np.where(data.are(_K.CONV_TRANSPOSE), _K.CONV, _K.CONV_BACKWARD_DATA)
    to_input, to_weight = _as_convolution(data), _as_convolution(forward)
    return [
        _bias(forward.where(biased), channels[biased], pixels[biased]),
        data.gradient("grad_input", kind=kinds, dims=to_input, read=data.write, weight=data.weight),
        forward.gradient(
            "grad_weight",
            1,
            kind=_K.CONV_BACKWARD_WEIGHT,
            dims=to_weight,
            write=_weight_gradient_bytes(forward),
        ),
    ]


def _as_convolution(forward: ForwardRows) -> IntArray:
    """Dimensions; those of a transposed convolution with input and output in each other's place."""
    transposed, dims = forward.are(_K.CONV_TRANSPOSE), forward.dims.copy()
    dims[transposed, 1:3] = dims[transposed, 2:0:-1]
    dims[transposed, 4:10] = np.roll(dims[transposed, 4:10], 3, axis=1)
    return dims


def _attention(forward: ForwardRows, _: ForwardRows) -> list[RowBlock]:
    """Five products for the forward's two (Dao 2023, arXiv:2307.08691, section 4.1)."""
    read_bytes = forward.read + 2 * forward.write
    flop = 2.5 * forward.flop
    return [forward.gradient(kind=_K.ATTENTION_BACKWARD, flop=flop, read=read_bytes)]


def _same_kind(flop_ratio: float) -> _Gradients:
    """One row of the forward's kind that reads its operands and the output's gradient and writes
    the input's.
    """

    def gradients(forward: ForwardRows, _: ForwardRows) -> list[RowBlock]:
        weight = forward.weight
        flop = flop_ratio * forward.flop
        return [forward.gradient(flop=flop, write=forward.read + weight, weight=weight)]

    return gradients


def _elementwise(_: ForwardRows, data: ForwardRows) -> list[RowBlock]:
    """Sums pass gradients on; everything else is one pass over operands and gradient."""
    names = [data.graph.name[row] for row in data.rows.tolist()]
    is_dropped = np.array([name == DROPOUT for name in names], bool)
    is_sum = np.array(["add" in name for name in names], bool) & (data.dims[:, 1] > 1)
    computed = data.where(~is_sum & ~is_dropped)
    dims = computed.dims.copy()
    dims[:, 1] += 1
    dropped = data.where(is_dropped)  # reads the gradient and the mask
    return [computed.gradient(dims=dims), dropped.gradient(read=dropped.read, write=dropped.write)]


def _broadcast(_: ForwardRows, data: ForwardRows) -> list[RowBlock]:
    rows, columns = data.sizes(2)
    single = np.ones_like(rows)
    dims = row_dims(rows * columns, single, single)
    return [data.gradient(kind=_K.ELEMENTWISE, dims=dims, read=data.write)]


def _lookup(forward: ForwardRows, _: ForwardRows) -> list[RowBlock]:
    """Dense table gradient of an embedding: zero the table, add the rows. Bags keep a sparse
    gradient.

    Estimate: each looked-up row is read and written once (PyTorch, ATen/native/cuda/Embedding.cu,
    zeroes the table and adds to it).
    """
    lookups, width, table, bags = forward.sizes(4)
    is_bag = forward.are(_K.EMBEDDING_BAG)
    written = np.where(is_bag, bags, lookups) * width
    element = forward.write / np.maximum(written, 1)
    moved = lookups * width * element
    zeroed = np.where(is_bag, 0.0, table * width * element)
    dims = row_dims(lookups, width, table)
    flop = (lookups * width).astype(np.float64)
    read_bytes = forward.write + moved
    write_bytes = moved + zeroed
    return [
        forward.gradient(kind=_K.SCATTER, dims=dims, flop=flop, read=read_bytes, write=write_bytes)
    ]


def _joined(kind: OperatorKind) -> _Gradients:
    """The collective of the gradients: of as many bytes among the same ranks (Korthikanti et al.
    2022, arXiv:2205.05198, figure 5).

    A sum over a split layer's ranks passes its gradient on; the sum that the layer's input needs
    stands in its place.
    """
    return lambda _, data: [data.gradient(kind=kind, read=data.write)]


def _accumulations(graph: OperatorGraph, still: BoolArray) -> RowBlock:
    """Sums of the gradients of tensors that several rows read, but for those of some rows.

    Back-propagation adds them (Goodfellow et al., Deep Learning, MIT Press 2016, chapter 6).
    """
    further = np.where(still, 0, np.maximum(graph.reader_count - 1, 0))
    forward = ForwardRows(graph, np.repeat(np.arange(len(graph), dtype=np.int64), further))
    size = forward.write
    elements = np.maximum(size / forward.element_bytes, 1).astype(np.int64)
    dims = row_dims(elements, np.full_like(elements, 2), np.ones_like(elements))
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
    _K.POOLING: lambda _, data: [data.gradient(read=2 * data.write)],
    _K.COPY: lambda _, data: [data.gradient(read=data.write)],
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
