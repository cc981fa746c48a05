"""Compiled execution: residual blocks whose weights fit in the memory of one core run as one
kernel.

A block of 1x1, 3x3 and 1x1 convolutions whose three weight tensors fit in the shared memory beside
a tile of pixels keeps both tensors between them on the chip, and reads its input once for the first
convolution and for the sum at its end. That is how the INT8 engines of ResNet-50 run the first
stage (64 channels: 70 kB of weights); the back-to-back convolutions of CUTLASS, example 13, are the
general form. A 1x1 convolution with a stride reads no pixel it steps over: with channels last, a
pixel is one contiguous piece of memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.dtype import DTYPE_BYTES
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, OperatorKind

_CONV = OperatorKind.CONV
_PLACE = {name: index for index, name in enumerate(DIMENSIONS[OperatorKind.CONV])}


def skip_unread_pixels(graph: OperatorGraph) -> OperatorGraph:
    """Take the pixels that strided pointwise convolutions step over out of what they read.

    Args:
        graph: Rows in launch order, any operators.
    """
    convolution = graph.kind == _CONV
    stride = np.maximum(_dimensions(graph, "stride"), 1.0)
    window = _dimensions(graph, "kernel_d", "kernel_h", "kernel_w")
    pixels = _dimensions(graph, "in_d", "in_h", "in_w")
    used = _dimensions(graph, "out_d", "out_h", "out_w")
    steps_over = convolution & (window == 1) & (stride > 1)
    skipped = np.where(steps_over, np.maximum(pixels - used, 0.0), 0.0)
    each = _dimensions(graph, "batch", "channels_in") * DTYPE_BYTES[graph.dtype]
    return replace(graph, read_bytes=np.maximum(graph.read_bytes - skipped * each, 0.0))


def fuse_bottlenecks(graph: OperatorGraph, shared_memory_bytes: float) -> OperatorGraph:
    """Take the traffic inside residual blocks out where their weights fit in one core's memory.

    Args:
        graph: Fused rows of an inference pass.
        shared_memory_bytes: Memory of one core that a kernel manages.

    Returns:
        The same rows, never more bytes.
    """
    read, write = graph.read_bytes.copy(), graph.write_bytes.copy()
    consumers = np.bincount(graph.dependency, minlength=len(graph))
    for last in np.flatnonzero(_is_square(graph, 1)).tolist():
        middle = _sole_producer(graph, last, 3, consumers)
        first = -1 if middle < 0 else _sole_producer(graph, middle, 1, consumers)
        if first < 0 or graph.weight_bytes[[first, middle, last]].sum() > shared_memory_bytes:
            continue
        read[middle] = max(read[middle] - write[first], 0.0)
        read[last] = max(read[last] - write[middle], 0.0)
        write[first] = write[middle] = 0.0
        shared = np.intersect1d(graph.dependencies_of(first), graph.dependencies_of(last))
        read[last] = max(read[last] - float(graph.write_bytes[shared].sum()), 0.0)
    return replace(graph, read_bytes=read, write_bytes=write)


def _dimensions(graph: OperatorGraph, *names: str) -> FloatArray:
    """Product of dimensions of convolution rows; what stands in their places in other rows is of no
    use.
    """
    places = [_PLACE[name] for name in names]
    product: FloatArray = graph.dims[:, places].astype(np.float64).prod(axis=1)
    return product


def _is_square(graph: OperatorGraph, edge: int) -> BoolArray:
    """Plain convolutions with a window of edge x edge."""
    square: BoolArray = (
        (graph.kind == _CONV)
        & (_dimensions(graph, "kernel_d") <= 1)
        & (_dimensions(graph, "kernel_h") == edge)
        & (_dimensions(graph, "kernel_w") == edge)
        & (_dimensions(graph, "groups") <= 1)
    )
    return square


def _sole_producer(graph: OperatorGraph, row: int, edge: int, consumers: IntArray) -> int:
    """The convolution of that window that only `row` reads; -1 if there is none."""
    square = _is_square(graph, edge)
    producers = [
        int(source)
        for source in graph.dependencies_of(row)
        if square[source] and consumers[source] == 1
    ]
    return producers[0] if producers else -1
