"""Training steps: forward, loss, backward and optimizer rows.

Optimizer traffic per parameter follows the update rules, in the widths of the precision policy:
plain SGD reads and writes the weight and reads the gradient; each state is read and written once;
LAMB passes twice for its trust ratio (You 2020). Backward rows are `backward`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from accelsim.dtype import Dtype, Precision
from accelsim.errors import UnknownNameError
from accelsim.frozen import frozen
from accelsim.workloads.backward import (
    ForwardRows,
    backward_graphs,
    new_rows,
    row_dims,
    rows_graph,
)
from accelsim.workloads.graph import IntArray, OperatorGraph, codes, concatenate, parts
from accelsim.workloads.operator import OperatorKind, Phase

_K = OperatorKind
#: How a loss over a vocabulary runs: operator by operator, or as a compiler joins them.
WordLoss: TypeAlias = Literal["plain", "fused"]


@frozen
class Optimizer:
    """An update rule.

    Attributes:
        name: Name.
        state_count: Tensors of optimizer state per parameter.
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


def training_graph(
    forward: OperatorGraph,
    parameter_count: int,
    tensor_count: int,
    precision: Precision,
    rule: Optimizer,
    *,
    loss: WordLoss | None = None,
    untrained: tuple[str, ...] = (),
) -> OperatorGraph:
    """One training step; see `training_graphs`."""
    counts = [(parameter_count, tensor_count)]
    return training_graphs([forward], counts, precision, rule, loss=loss, untrained=untrained)[0]


def training_graphs(
    forwards: Sequence[OperatorGraph],
    counts: Sequence[tuple[int, int]],
    precision: Precision,
    rule: Optimizer,
    *,
    loss: WordLoss | None = None,
    untrained: tuple[str, ...] = (),
) -> list[OperatorGraph]:
    """Training steps of one model: forward, loss over a vocabulary, backward, optimizer.

    Args:
        forwards: Forward rows of each (phase FORWARD).
        counts: Trainable parameters of each, and the tensors they live in.
        precision: Dtypes.
        rule: Update rule.
        loss: How a loss is made of the last product's scores, one for every word of a vocabulary;
            None for no such loss.
        untrained: Modules that stay as they are; nothing runs backward through them.
    """
    if (forwards[0].kind == _K.TREE_ENSEMBLE).any():
        return [_tree_training(forward) for forward in forwards]
    parameters, tensors = np.array(counts).T
    updated = parameters - [untouched_parameter_count(forward) for forward in forwards]
    updates = optimizer_graph(updated, tensors, precision, rule)
    losses = [word_loss_graphs(forwards, precision, loss)] if loss else []
    one_row_each = np.ones(len(forwards), dtype=np.int64)
    steps = (forwards, *losses, backward_graphs(forwards, untrained), parts(updates, one_row_each))
    return [concatenate(rows) for rows in zip(*steps, strict=True)]


def word_loss_graphs(
    forwards: Sequence[OperatorGraph], precision: Precision, loss: WordLoss = "plain"
) -> list[OperatorGraph]:
    """Cross entropy over a vocabulary and its gradient, in FP32 as PyTorch and Megatron-LM compute
    it: scores widened, their logarithmic softmax, the gradient of the words that were meant, that
    of the softmax, and the result narrowed again. Fused, one kernel reads the scores for the loss
    and one reads them again and writes their gradient, both as narrow as they are stored.

    PyTorch, aten/src/ATen/native/cuda/SoftMax.cu and NLLLoss2d.cu; Megatron-LM,
    core/tensor_parallel/cross_entropy.py. Rows of classes (a few thousand) are not worth it. Loss
    over a split vocabulary: Shoeybi et al. 2019, arXiv:1909.08053.

    Args:
        forwards: Rows of each graph, whose last matrix product gives the scores.
        precision: Dtypes.
        loss: "plain" or "fused".
    """
    last_products = [graph.take(np.flatnonzero(graph.kind == _K.GEMM)[-1:]) for graph in forwards]
    products = concatenate(last_products)
    batch, rows, vocabulary = products.dims[:, :3].T
    rows, count = batch * rows, batch * rows * vocabulary
    scores, ones = count.astype(np.float64), np.ones_like(rows)
    elements, by_row = row_dims(count, ones, ones), row_dims(rows, vocabulary)
    blocks = [
        new_rows(
            kind,
            by_row if kind is _K.SOFTMAX else elements,
            scores,
            (read_width * scores, write_width * scores),
            name,
            step=step,
        )
        for step, (name, (read_width, write_width, kind)) in enumerate(
            _loss_steps(precision.activation.bytes, loss).items()
        )
    ]
    run = np.arange(len(products))
    dtype = codes(len(run), Dtype.FP32)
    names = ("loss",) * len(run)
    losses = rows_graph(blocks, names, products.path, dtype, Phase.BACKWARD, run)
    return parts(losses, [len(blocks) * len(product) for product in last_products])


def _loss_steps(narrow: float, loss: WordLoss) -> dict[str, tuple[float, float, OperatorKind]]:
    """Kernels of a loss, the bytes each reads and writes of a score, and their kinds."""
    wide = Dtype.FP32.bytes
    if loss == "fused":
        return {
            "log_softmax": (narrow, 0.0, _K.SOFTMAX),
            "log_softmax.grad": (narrow, narrow, _K.SOFTMAX),
        }
    steps = {
        "log_softmax": (wide, wide, _K.SOFTMAX),
        "picked.grad": (0.0, wide, _K.ELEMENTWISE),
        "log_softmax.grad": (2.0 * wide, wide, _K.SOFTMAX),
    }
    if narrow >= wide:
        return steps
    widen, narrowed = (narrow, wide, _K.ELEMENTWISE), (wide, narrow, _K.ELEMENTWISE)
    return {"widen": widen, **steps, "narrow": narrowed}


def untouched_parameter_count(forward: OperatorGraph) -> int:
    """Parameters of embedding bags that a step does not look up, at the least.

    Tables of recommenders have sparse gradients: only rows that were looked up are updated (Naumov
    et al., DLRM, arXiv:1906.00091; ``EmbeddingBag(sparse=True)`` of its reference implementation).
    """
    bags = forward.kind == _K.EMBEDDING_BAG
    lookups, width, rows = forward.dims[bags, :3].T
    return int((np.maximum(rows - lookups, 0) * width).sum())


def idle_parameter_count(graph: OperatorGraph) -> int:
    """Parameters whose gradients stay zero while the same batch trains: rows of tables that none of
    its indices name.

    Of r rows n uniform indices leave r exp(-n / r). A table that is used elsewhere too, as the last
    layer's weights, has its gradients added up by another row and is none of these. The occupancy
    problem (Feller, An Introduction to Probability Theory, volume 1, 1968).

    Args:
        graph: Forward and backward rows.
    """
    scatter = np.flatnonzero(graph.kind == _K.SCATTER)
    scatter = scatter[~np.isin(scatter, graph.dependency)]
    lookups, width, rows = graph.dims[scatter, :3].T.astype(np.float64)
    return int((rows * np.exp(-lookups / np.maximum(rows, 1.0)) * width).sum())


def optimizer_graph(
    parameter_count: int | IntArray,
    tensor_count: int | IntArray,
    precision: Precision,
    rule: Optimizer,
    idle_count: int = 0,
) -> OperatorGraph:
    """The update of all parameters as one multi-tensor row; `idle_count` of them have had gradients
    of zero throughout. A row for each of several counts.

    With a master copy the FP32 weight is read and written and the working weight written; without
    one the working weight is read and written. Master copies are Micikevicius et al., ICLR 2018,
    arXiv:1710.03740.
    """
    weight = precision.weight.bytes
    master = 0.0 if precision.master_weight is None else precision.master_weight.bytes
    gradient = precision.activation.bytes if precision.activation.bytes <= 4 else weight
    stored = master or weight
    states = precision.state_bytes * rule.state_count
    read_bytes = rule.passes * (stored + states + gradient)
    write_bytes = stored + states + (weight if master else 0.0)
    sizes = (parameter_count, rule.state_count, np.maximum(tensor_count, 1), idle_count)
    dims = row_dims(*np.broadcast_arrays(*map(np.atleast_1d, sizes)))
    count, rows = dims[:, 0].astype(np.float64), len(dims)
    moved = (read_bytes * count, write_bytes * count)
    block = new_rows(_K.OPTIMIZER, dims, rule.flop_per_parameter * count, moved, rule.name)
    dtype = codes(rows, precision.master_weight or precision.activation)
    names, paths = ("",) * rows, ("optimizer",) * rows
    return rows_graph([block], names, paths, dtype, Phase.OPTIMIZER, np.arange(rows))


def _tree_training(forward: OperatorGraph) -> OperatorGraph:
    """Histogram boosting (LightGBM, Ke 2017): each level of each tree bins every row's features
    once, with 256 bins.
    """
    rows = np.flatnonzero(forward.kind == _K.TREE_ENSEMBLE).astype(np.int64)
    trees_rows = ForwardRows(forward, rows)
    samples, features, trees, depth = trees_rows.sizes(4)
    passes = (samples * trees * depth).astype(np.float64)
    bins = (features * trees * depth).astype(np.float64) * 256
    block = trees_rows.gradient(
        "histogram",
        kind=_K.TREE_HISTOGRAM,
        dims=row_dims(samples, features, trees, depth, np.full_like(samples, 256)),
        flop=2.0 * passes * features,
        read=passes * (features + 8.0),  # one-byte bins, gradient and hessian
        write=16.0 * bins,
    )
    return rows_graph([block], forward.name, forward.path, forward.dtype, Phase.BACKWARD)
