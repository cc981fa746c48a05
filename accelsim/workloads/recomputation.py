"""Activation checkpointing: what a forward pass need not keep, as the backward pass makes it again.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174: of each layer only
the input is kept, and the layer runs again before its backward pass. Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", arXiv:2205.05198: selectively, only what
attention keeps between its products.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from accelsim.dtype import DTYPE_BYTES
from accelsim.errors import InvalidValueError
from accelsim.workloads.adapters import is_adapter
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph, is_kind
from accelsim.workloads.operator import COLLECTIVE_KINDS, OperatorKind, Phase

Selective: TypeAlias = Literal["attention", "products", "projections"]
_PRODUCTS = frozenset({OperatorKind.GEMM, OperatorKind.GROUPED_GEMM})
_GATHERS = frozenset({OperatorKind.ALL_GATHER})
_ALWAYS_KEPT = (frozenset({OperatorKind.ATTENTION}) | COLLECTIVE_KINDS) - _GATHERS


def selectively(
    graph: OperatorGraph, policy: Selective, run: IntArray | None = None
) -> tuple[FloatArray, BoolArray]:
    """Bytes that forward rows keep under selective recomputation, and the rows that run again.

    Args:
        graph: Rows of a training step, shape (n,); others than forward ones keep nothing.
        policy: "attention" makes again what unfused attention has between its products
            (Korthikanti et al. 2022, arXiv:2205.05198, section 5), and runs fused attention again,
            which keeps no less then (Megatron-LM, core/transformer/attention.py). "products" keeps
            a layer's input and the outputs of attention, of collectives that do not gather and of
            every other matrix product, and makes the rest again (torchtitan,
            distributed/activation_checkpoint.py, mode "op"), thin products of adapters too.
            "projections" keeps the input and the outputs of all products and of collectives that do
            not gather, and makes attention and what is elementwise again (MaxText's remat policy
            "minimal").
        run: Run of each row, shape (n,), where the rows are of several, one after the other.

    Returns:
        Bytes, shape (n,), and which rows, shape (n,).
    """
    is_forward = graph.phase == Phase.FORWARD
    if policy == "attention":
        return _without_scores(graph, is_forward)
    layers = [layer_of(path) for path in graph.path]
    in_layer = np.array([is_layer for _, is_layer in layers], dtype=bool) & is_forward
    numbers: dict[str, int] = {}
    layer = np.array([numbers.setdefault(name, len(numbers)) for name, _ in layers])
    layer = layer if run is None else layer + len(numbers) * run
    is_product = is_kind(graph.kind, _PRODUCTS) & in_layer & ~is_adapter(graph)
    is_alternate = policy == "products"
    is_kept = is_kind(graph.kind, _ALWAYS_KEPT if is_alternate else COLLECTIVE_KINDS - _GATHERS)
    is_first, is_unread = np.zeros(len(graph), dtype=bool), np.zeros(len(graph), dtype=bool)
    rows = np.flatnonzero(is_product)
    rows = rows[np.argsort(layer[rows], kind="stable")]
    before = np.searchsorted(layer[rows], layer[rows])  # products of the layers before
    position = np.arange(len(rows)) - before
    if is_alternate:
        is_kept[rows[position % 2 == 0]] = True
    else:
        is_kept[rows] = True
        count = np.bincount(before, minlength=len(rows))[before]
        # By the backward pass: a compiler of the whole step drops it.
        is_unread[rows[position == count - 1]] = True
    rows = np.flatnonzero(in_layer)
    is_first[rows[np.unique(layer[rows], return_index=True)[1]]] = True
    in_part = (is_kept & ~is_unread) * graph.write_bytes + is_first * graph.read_bytes
    return np.where(in_layer, in_part, graph.saved_bytes), in_layer & ~is_kept


def _without_scores(graph: OperatorGraph, is_forward: BoolArray) -> tuple[FloatArray, BoolArray]:
    """What is kept where unfused attention between its products is made again: queries, keys and
    values, which its two products read (Korthikanti et al. 2022, arXiv:2205.05198, section 5).
    """
    is_softmax = (graph.kind == OperatorKind.SOFTMAX) & is_forward
    is_product = (graph.kind == OperatorKind.BATCHED_GEMM) & is_forward
    is_elementwise = graph.kind == OperatorKind.ELEMENTWISE
    of_scores = is_softmax | (_reading(graph, is_softmax) & is_elementwise)
    after = is_product & _reading(graph, of_scores)
    groups, _, columns, inner = graph.dims[:, :4].T.astype(np.float64)
    values = groups * columns * inner * DTYPE_BYTES[graph.dtype]
    kept_bytes = np.where(after, np.minimum(graph.saved_bytes, values), graph.saved_bytes)
    is_fused = (graph.kind == OperatorKind.ATTENTION) & is_forward
    again = is_product | of_scores | is_fused
    return np.where(of_scores, 0.0, kept_bytes), again


def _reading(graph: OperatorGraph, sources: BoolArray) -> BoolArray:
    """Rows that read what any of some rows wrote, shape (n,)."""
    is_reader = np.zeros(len(graph), dtype=bool)
    is_reader[graph.reader[sources[graph.dependency]]] = True
    return is_reader


def recomputed(
    forward: OperatorGraph, how: str, policy: Selective
) -> tuple[OperatorGraph, OperatorGraph]:
    """The forward rows with what they keep, and the rows that run again.

    Args:
        forward: Forward rows of a training step.
        how: "full" or "selective".
        policy: Which rows run again where it is selective.

    Raises:
        InvalidValueError: If there is nothing to run again.
    """
    if how == "selective":
        saved, again = selectively(forward, policy)
    else:
        layers = [layer_of(path) for path in forward.path]
        again = np.array([is_layer for _, is_layer in layers], dtype=bool)
        saved = _inputs_alone(forward, [name for name, _ in layers], again)
    if not again.any():
        allowed = "none, or full: fused attention keeps no scores"
        allowed = allowed if how == "selective" else "none: the model has no layers"
        raise InvalidValueError("recompute", how, allowed)
    rows = forward.take(again).with_phase(Phase.BACKWARD)
    forward_kept = replace(forward, saved_bytes=saved)
    return forward_kept, replace(rows, saved_bytes=np.zeros(len(rows)))


def _inputs_alone(
    forward: OperatorGraph, layers: list[str], is_layer: BoolArray
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Bytes kept by each row where layers keep their input, but for the one that keeps the most:
    it is whole while its backward pass runs.
    """
    names, layer = np.unique(layers, return_inverse=True)
    layer_bytes = np.bincount(layer, weights=forward.saved_bytes * is_layer, minlength=len(names))
    is_whole = ~is_layer | (layer == layer_bytes.argmax())
    is_first = np.zeros(len(forward), dtype=bool)
    is_first[np.unique(layer, return_index=True)[1]] = True
    inputs = np.where(is_first & is_layer, forward.read_bytes, 0.0)
    return np.where(is_whole, np.maximum(forward.saved_bytes, inputs), inputs)


@lru_cache(maxsize=65_536)
def layer_of(path: str) -> tuple[str, bool]:
    """A path up to its first number, and whether it has one."""
    parts = path.split(".")
    for index, segment in enumerate(parts):
        if segment.isdigit():
            return ".".join(parts[: index + 1]), True
    return parts[0], False
