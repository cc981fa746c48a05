"""Activation checkpointing: what a forward pass need not keep, as the backward pass makes it again.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174: of each layer only
the input is kept, and the layer runs again before its backward pass. Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", arXiv:2205.05198: selectively, only what
attention keeps between its products.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import BoolArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase

#: Rows whose kept activations selective recomputation makes again.
ATTENTION_INSIDE = (int(OperatorKind.SOFTMAX), int(OperatorKind.BATCHED_GEMM))


def recomputed(forward: OperatorGraph, how: str) -> tuple[OperatorGraph, OperatorGraph]:
    """The forward rows with what they keep, and the rows that run again.

    Args:
        forward: Forward rows of a training step.
        how: "full" or "selective".

    Raises:
        InvalidValueError: If there is nothing to run again.
    """
    if how == "selective":
        again = np.isin(forward.kind, ATTENTION_INSIDE)
        saved = np.where(again, 0.0, forward.saved_bytes)
    else:
        layers = [layer_of(path) for path in forward.path]
        again = np.array([is_layer for _, is_layer in layers], dtype=bool)
        saved = _inputs_alone(forward, [name for name, _ in layers], again)
    if not again.any():
        allowed = "none, or full: fused attention keeps no scores"
        allowed = allowed if how == "selective" else "none: the model has no layers"
        raise InvalidValueError("recompute", how, allowed)
    rows = forward.take(again).with_phase(Phase.BACKWARD)
    kept = replace(forward, saved_bytes=saved)
    return kept, replace(rows, saved_bytes=np.zeros(len(rows)))


def _inputs_alone(
    forward: OperatorGraph, layers: list[str], is_layer: BoolArray
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Bytes kept by each row where layers keep their input, but for the one that keeps the most:
    it is whole while its backward pass runs.
    """
    names, layer = np.unique(layers, return_inverse=True)
    each = np.bincount(layer, weights=forward.saved_bytes * is_layer, minlength=len(names))
    is_whole = ~is_layer | (layer == each.argmax())
    first = np.zeros(len(forward), dtype=bool)
    first[np.unique(layer, return_index=True)[1]] = True
    inputs = np.where(first & is_layer, forward.read_bytes, 0.0)
    return np.where(is_whole, np.maximum(forward.saved_bytes, inputs), inputs)


@lru_cache(maxsize=65_536)
def layer_of(path: str) -> tuple[str, bool]:
    """A path up to its first number, and whether it has one."""
    parts = path.split(".")
    for place, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: place + 1]), True
    return parts[0], False
