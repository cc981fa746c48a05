"""The layers of a network as columns, for one image on a DPU: sizes, windows, traffic.

Activations and batch normalisation run inside convolutions; concatenations are written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import IN_PLACE, OperatorKind

_K = OperatorKind
#: Codes of `LayerColumns.kind`.
CONV, DEPTHWISE, POOL, SUM, MOVE, GATE = range(6)
#: FLOP per element from which an activation is no output-stage function but a pass of its own: hard
#: swish, SiLU.
_PASS_FLOP = 4
#: Activations x f(x) that the quantizer takes apart into a hard sigmoid and a product, each a layer
#: (Vitis AI, vai_q_tensorflow2, `ConvertActivationSwish`); the hard swish is one operation
#: (DPUCZDX8G 4.0, reference design's log).
_SELF_GATED = frozenset({"silu", "swish"})


@frozen(eq=False)
class LayerColumns:
    """Layers of one network for one image; columns of shape (n,), n >= 1.

    Attributes:
        kind: Convolution, depthwise, pool, sum, move or gate.
        rows: Output rows (elements for sums, moves and gates).
        columns: Output columns.
        channels_in: Input channels.
        channels_out: Output channels.
        groups: Channel groups.
        window: Window taps.
        window_columns: Its columns.
        map_bytes: Bytes read and written but for weights, whole bursts.
        write_bytes: Bytes written among them.
        output_bytes: Bytes of outputs nothing reads.
        starts: Times the overlay starts: twice for activations x f(x), once otherwise.
        input_pixels: Pixels of the image.
    """

    kind: NDArray[np.int8]
    rows: FloatArray
    columns: FloatArray
    channels_in: FloatArray
    channels_out: FloatArray
    groups: FloatArray
    window: FloatArray
    window_columns: FloatArray
    map_bytes: FloatArray
    write_bytes: FloatArray
    output_bytes: FloatArray
    starts: FloatArray
    input_pixels: float


def join_layers(networks: Sequence[LayerColumns]) -> LayerColumns:
    """Layers of networks end to end; input pixels are those of all."""
    columns: Document = {
        f.name: np.hstack([getattr(layers, f.name) for layers in networks])
        for f in fields(LayerColumns)
    }
    return LayerColumns(**columns)


def layer_rows(graph: OperatorGraph) -> IntArray:
    """Rows of a graph that are layers of their own; the others run inside a convolution or are
    written in place.
    """
    return np.flatnonzero(_kinds(graph) >= 0)


def layer_columns(graph: OperatorGraph, images: float = 1.0) -> LayerColumns:
    """The layers of a graph, for one of its images; rows that run inside a convolution are left
    out.

    Args:
        graph: Inference of a batch of images, at least one of whose rows is a layer.
        images: Images of the batch.
    """
    kinds = _kinds(graph)
    keep = np.flatnonzero(kinds >= 0)
    kind = kinds[keep]
    sizes = [
        _sizes(graph, row, code) for row, code in zip(keep.tolist(), kind.tolist(), strict=True)
    ]
    names = np.array([graph.name[row].removesuffix(IN_PLACE) for row in keep.tolist()])
    starts = np.where(np.isin(names, list(_SELF_GATED)), 2.0, 1.0)
    # x f(x): x is read, f written; x and f are read, the product written.
    read_bytes = graph.read_bytes[keep] * (2.0 * starts - 1.0)
    write_bytes = graph.write_bytes[keep] * starts
    is_read = np.isin(np.arange(len(graph)), graph.dependency)
    high, wide, *others = np.array(sizes, dtype=np.float64).T
    channels_in, channels_out, groups, window, window_columns = others
    return LayerColumns(
        kind,
        np.where(kind > POOL, high * starts / images, high),
        np.where(graph.kind[keep] == _K.GEMM, wide / images, wide),
        channels_in,
        channels_out,
        groups,
        window,
        window_columns,
        map_bytes=(read_bytes + write_bytes) / images,
        write_bytes=write_bytes / images,
        output_bytes=np.where(is_read, 0.0, graph.write_bytes)[keep] / images,
        starts=starts,
        input_pixels=float(graph.dims[keep[0], 4:7].prod()),
    )


def _kinds(graph: OperatorGraph) -> NDArray[np.int8]:
    kind = graph.kind
    dims = graph.dims
    codes = np.full(len(graph), -1, dtype=np.int8)
    conv = np.isin(kind, [_K.CONV, _K.CONV_TRANSPOSE])
    codes[conv | (kind == _K.GEMM)] = CONV
    codes[conv & (dims[:, 3] > 1)] = DEPTHWISE
    codes[kind == _K.POOLING] = POOL
    element = kind == _K.ELEMENTWISE
    is_joint = element & (dims[:, 1] > 1)
    names = np.array([name.removesuffix(IN_PLACE) for name in graph.name])
    is_gate = is_joint & np.isin(names, ["mul", "scale"])
    codes[is_joint] = SUM
    codes[is_gate | (element & (dims[:, 2] >= _PASS_FLOP))] = GATE
    # maps that are joined are written in place
    joined = np.array([name == "concat" for name in graph.name], dtype=bool)
    codes[(kind == _K.COPY) & ~joined] = MOVE
    return codes


def _sizes(graph: OperatorGraph, row: int, code: int) -> tuple[float, ...]:
    """Rows, columns, channels in and out, groups, window and its columns.

    Estimate: pooled maps are square.
    """
    d = graph.dims[row].tolist()
    dimensions = graph.dimensions_of(row)
    if graph.kind[row] == _K.GEMM:
        return (1, d[1], d[3], d[2], 1, 1, 1)
    if code in {CONV, DEPTHWISE}:
        side = "in" if graph.kind[row] == _K.CONV_TRANSPOSE else "out"
        high = dimensions[f"{side}_d"] * dimensions[f"{side}_h"]
        wide = dimensions[f"{side}_w"]
        window = dimensions["kernel_d"] * dimensions["kernel_h"] * dimensions["kernel_w"]
        return (high, wide, d[1], d[2], d[3], window, dimensions["kernel_w"])
    if code == POOL:
        return (d[3] ** 0.5, d[3] ** 0.5, d[1], d[1], 1, d[4], 1)
    return (d[0], 1, 1, 1, 1, 1, 1)


def network_flop(layers: LayerColumns) -> float:
    """FLOP of the convolutions and fully connected layers.

    Operations of a convolution: Sze et al., Proceedings of the IEEE 105(12), 2017.
    """
    pixels = layers.rows * layers.columns
    layer = pixels * layers.channels_in * layers.channels_out * layers.window / layers.groups
    return float(2.0 * layer[layers.kind <= DEPTHWISE].sum())
