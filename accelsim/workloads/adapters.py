"""Training steps of low-rank adapters: weights stay as they are, and beside each linear layer of a
model's layers two thin ones are trained.

W x + B A x with A of rank x k and B of n x rank (Hu et al. 2021, LoRA, arXiv:2106.09685, section
4.1). Gradients still pass through all layers; those of the weights, and their states, are the
adapters' alone. B's product adds to the layer's output in its epilogue: an estimate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.dtype import Precision
from accelsim.errors import InvalidValueError
from accelsim.workloads.backward import backward_graph, new_rows, row_dims, rows_graph
from accelsim.workloads.graph import BoolArray, OperatorGraph, codes, concatenate, is_kind
from accelsim.workloads.operator import PRODUCT_KINDS, OperatorKind, Phase
from accelsim.workloads.training import Optimizer, WordLoss, optimizer_graph, word_loss_graphs

_MARK = ".lora_"
_OF_WEIGHTS = (".grad_weight", ".grad_bias")


def is_adapter(graph: OperatorGraph) -> BoolArray:
    """Rows of adapters, shape (n,)."""
    return np.array([_MARK in name for name in graph.name], dtype=bool)


def adapter_step(
    forward: OperatorGraph,
    rank: int,
    precision: Precision,
    rule: Optimizer,
    *,
    loss: WordLoss | None = None,
) -> OperatorGraph:
    """One training step of adapters: forward, loss over a vocabulary, backward, optimizer.

    Hu et al. 2021, LoRA, arXiv:2106.09685.

    Args:
        forward: Forward rows of the model.
        rank: Rank of the adapters.
        precision: Dtypes.
        rule: Update rule.
        loss: How a loss over a vocabulary is made; None for no such loss.

    Raises:
        InvalidValueError: If no layer of the model is linear.
    """
    adapted = forward.take(_is_adapted(forward))
    if not len(adapted):
        allowed = "no value: the model has no linear layers to adapt"
        raise InvalidValueError("lora_rank", rank, allowed, "Leave it out.")
    adapters = _forward(adapted, rank, precision)
    widened = [_widened(forward, precision, phase) for phase in (Phase.FORWARD, Phase.BACKWARD)]
    losses = word_loss_graphs([forward], precision, loss) if loss else []
    count = int(rank * adapted.dims[:, 2:4].sum())
    update = optimizer_graph(count, 2 * len(adapted), precision.trained, rule)
    through = backward_graph(forward)
    is_of_weights = np.array([name.endswith(_OF_WEIGHTS) for name in through.name], dtype=bool)
    through = through.take(~is_of_weights & (through.kind != OperatorKind.SCATTER))
    ahead, back = ([rows] if len(rows) else [] for rows in widened)
    return concatenate(
        [forward, adapters, *ahead, *losses, backward_graph(adapters), through, *back, update]
    )


def _is_adapted(forward: OperatorGraph) -> BoolArray:
    """Which rows are linear ones of layers: of paths with a number."""
    in_layers = [any(segment.isdigit() for segment in path.split(".")) for path in forward.path]
    is_linear = (forward.kind == OperatorKind.GEMM) & (forward.weight_bytes > 0)
    is_adapted: BoolArray = is_linear & np.array(in_layers, dtype=bool)
    return is_adapted


def _forward(adapted: OperatorGraph, rank: int, precision: Precision) -> OperatorGraph:
    """Two thin products beside each adapted layer.

    A x and B (A x) of Hu et al. 2021, arXiv:2106.09685; B adds in its epilogue: estimate.
    """
    batch, rows, columns, inner = adapted.dims[:, :4].T
    thin = np.full_like(rows, rank)
    width, count = precision.activation.bytes, batch * rows
    blocks = [
        new_rows(
            OperatorKind.GEMM,
            row_dims(batch, rows, wide, deep),
            2.0 * count * wide * deep,
            (width * (count * deep + added), width * (count * wide)),
            f"lora_{name}",
            step=step,
            weight=width * (wide * deep),
        )
        for step, (name, wide, deep, added) in enumerate(
            (("up", columns, thin, count * columns), ("down", thin, inner, 0 * count))
        )
    ]
    dtypes = codes(len(adapted), precision.activation)
    graph = rows_graph(blocks, adapted.name, adapted.path, dtypes, Phase.FORWARD)
    between = width * (graph.dims[:, 0] * graph.dims[:, 1] * rank).astype(np.float64)
    is_up = np.array([name.endswith("up") for name in graph.name], dtype=bool)
    return replace(graph, saved_bytes=np.where(is_up, between, 0.0))


def _widened(forward: OperatorGraph, precision: Precision, phase: Phase) -> OperatorGraph:
    """Weights that are narrower than they are multiplied, widened before each product of a pass by
    a kernel of its own: none where they are not.

    bitsandbytes, autograd/_functions.py (MatMul4Bit): each pass dequantises a layer's weights and
    multiplies in 16 bits. The row reads what the product does not, which is charged with the stored
    bytes: stored and wide ones together are read once and written once. Dettmers et al. 2023,
    QLoRA, arXiv:2305.14314, has weights stored narrow and widened so.
    """
    products = is_kind(forward.kind, PRODUCT_KINDS) & (forward.weight_bytes > 0)
    narrow = [
        bool(products[row]) and precision.adapts and not precision.keeps(path)
        for row, path in enumerate(forward.path)
    ]
    rows = forward.take(np.flatnonzero(narrow))
    elements = rows.weight_bytes / precision.weight.bytes
    count, ones = elements.astype(np.int64), np.ones(len(rows), dtype=np.int64)
    moved_bytes = precision.activation.bytes * elements
    block = new_rows(
        OperatorKind.ELEMENTWISE,
        row_dims(count, ones, ones),
        elements,
        (moved_bytes, moved_bytes),
        "lora_widened",
    )
    dtypes = codes(len(rows), precision.activation)
    return rows_graph([block], rows.name, rows.path, dtypes, phase)
