"""Compiled execution: pixels that no kernel reads.

A 1x1 convolution with a stride reads no pixel it steps over: with channels last, a pixel is one
contiguous piece of memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.dtype import DTYPE_BYTES
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, OperatorKind

_CONV = OperatorKind.CONV
_PLACE = {name: index for index, name in enumerate(DIMENSIONS[OperatorKind.CONV])}


def skip_unread_pixels(graph: OperatorGraph) -> OperatorGraph:
    """Take the pixels that strided pointwise convolutions step over out of what they read.

    Estimate: none of them shares a memory transaction with one that is read.

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
    pixel_bytes = _dimensions(graph, "batch", "channels_in") * DTYPE_BYTES[graph.dtype]
    return replace(graph, read_bytes=np.maximum(graph.read_bytes - skipped * pixel_bytes, 0.0))


def _dimensions(graph: OperatorGraph, *names: str) -> FloatArray:
    """Product of dimensions of convolution rows; what stands in their places in other rows is of no
    use.
    """
    places = [_PLACE[name] for name in names]
    product: FloatArray = graph.dims[:, places].astype(np.float64).prod(axis=1)
    return product
