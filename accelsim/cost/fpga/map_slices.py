"""Feature maps that share a buffer: what bursts of the memory carry besides the channels a layer
writes or reads.

Maps lie in memory pixel by pixel. Maps that are joined along their channels are written into one
buffer, each pixel's channels next to the other map's, so that a map of few channels is a row of
short pieces, and memory moves whole bursts: 8 transfers of 64 bits (JEDEC DDR4, JESD79-4) or 16 of
32 bits (LPDDR4, JESD209-4).
"""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
#: Bytes of one burst.
_BURST_BYTES = 64.0


def burst_ratios(graph: OperatorGraph, is_layer: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Bytes the memory moves over the bytes asked for, of what each row reads and of what it
    writes, shape (n,) each.

    Estimate: whole bursts of the board's memory port.

    Args:
        graph: Operators; one byte per element.
        is_layer: Rows that are layers of their own; the others run inside the layer before them.
    """
    piece = np.full(len(graph), _BURST_BYTES)
    for row in np.flatnonzero(is_concatenation(graph)).tolist():
        parts = _writers(graph, is_layer, row)
        shapes = [_map_shape(graph, is_layer, part) for part in parts]
        if shapes[0][0] > 1 and len({pixels for pixels, _ in shapes}) == 1:
            piece[parts] = [channels for _, channels in shapes]
    written: FloatArray = np.ceil(piece / _BURST_BYTES) * _BURST_BYTES / piece
    read = np.ones(len(graph))
    for row in np.flatnonzero(is_layer).tolist():
        sources = _writers(graph, is_layer, row)
        if sources:
            read[row] = written[sources].mean()
    return read, written


def is_concatenation(graph: OperatorGraph) -> BoolArray:
    """Rows that join maps, shape (n,): the maps are written in place."""
    return np.array([name == "concat" for name in graph.name], dtype=bool)


def _writers(graph: OperatorGraph, is_layer: BoolArray, row: int) -> list[int]:
    """The rows that write what `row` takes in."""
    return [_writer(graph, is_layer, source) for source in graph.dependencies_of(row).tolist()]


def _writer(graph: OperatorGraph, is_layer: BoolArray, row: int) -> int:
    """The row that writes what `row` passes on: normalisation and most activations run inside a
    layer.
    """
    while not is_layer[row] and len(graph.dependencies_of(row)) == 1:
        row = int(graph.dependencies_of(row)[0])
    return row


def _map_shape(graph: OperatorGraph, is_layer: BoolArray, row: int) -> tuple[float, float]:
    """Pixels and channels of what a row writes; no pixels where its kind does not tell."""
    kind = graph.kind[row]
    sizes = graph.dimensions_of(row)
    if kind in {_K.CONV, _K.CONV_TRANSPOSE}:
        return sizes["out_d"] * sizes["out_h"] * sizes["out_w"], sizes["channels_out"]
    if kind == _K.POOLING:
        return sizes["out_pixels"], sizes["channels"]
    if kind == _K.ELEMENTWISE and len(graph.dependencies_of(row)):
        source = int(graph.dependencies_of(row)[0])
        return _map_shape(graph, is_layer, _writer(graph, is_layer, source))
    return 0.0, 0.0
