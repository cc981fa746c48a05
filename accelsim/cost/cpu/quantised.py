"""What a network in INT8 keeps in wider formats on a CPU.

Products and convolutions are quantised; softmax, norms, attention and elementwise operators that
no kernel takes run in floats, and what they take and yield is of that format (NNCF, quantisation
for `ModelType.TRANSFORMER`; OpenVINO's CPU plugin). The product of probabilities and values is left
unquantised there too, and one kernel in floats runs it with the scores: heads of 64 in a network in
INT8 took 0.71 to 0.94 of the time they take in FP32, where matrix products took 0.28 to 0.38
(OpenVINO 2024.3, one thread of a Xeon of 2023 with AVX-512 VNNI, sequences of 384 and 128).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.cpu.machine import CpuMachine
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.workloads.graph import OperatorGraph, is_kind
from accelsim.workloads.operator import ATTENTION_KINDS, DIMENSIONS, OperatorKind

_K = OperatorKind
_NORMS = frozenset({_K.LAYER_NORM, _K.RMS_NORM, _K.GROUP_NORM})
_FLOATS = _NORMS | ATTENTION_KINDS | {_K.SOFTMAX, _K.ELEMENTWISE}
_PRODUCTS = frozenset({_K.GEMM, _K.BATCHED_GEMM, _K.GROUPED_GEMM})
_SIDES = [DIMENSIONS[_K.GEMM].index(side) for side in ("batch", "m", "n", "k")]


def quantised(graph: OperatorGraph, machine: CpuMachine) -> OperatorGraph:
    """A graph whose rows in INT8 have the formats and bytes that a quantised network has, n rows.

    A product yields floats unless an activation alone is joined to it, behind which its output is
    quantised again; what it adds, a residual, is of floats. A norm's output is quantised by a pass
    of its own, as the residual beside it stays.

    Estimate: embeddings, pooling and recurrent cells move bytes of INT8.
    """
    is_quantised = graph.dtype == Dtype.INT8
    if not is_quantised.any():
        return graph
    wide = machine.unquantised
    width = float(DTYPE_BYTES[wide])
    floats = is_quantised & is_kind(graph.kind, _FLOATS)
    read_bytes = np.where(floats, width, 1.0) * graph.read_bytes
    write_bytes = np.where(floats, width, 1.0) * graph.write_bytes
    norms = is_quantised & is_kind(graph.kind, _NORMS)
    read_bytes += np.where(norms, width * graph.write_bytes, 0.0)
    write_bytes += np.where(norms, graph.write_bytes, 0.0)
    products = is_quantised & is_kind(graph.kind, _PRODUCTS)
    batch, m, n, k = graph.dims[:, _SIDES].astype(np.float64).T
    operands = batch * k * (m + np.where(graph.weight_bytes > 0, 0.0, n))
    added = np.where(products, np.maximum(graph.read_bytes - operands, 0.0), 0.0)
    joined = 0.0 if graph.epilogue_flop is None else graph.epilogue_flop
    activated = (joined > 0.0) & (added <= 0.0)
    return replace(
        graph,
        dtype=np.where(floats, np.int8(wide), graph.dtype),
        read_bytes=read_bytes + (width - 1.0) * added,
        write_bytes=np.where(products & ~activated, width, 1.0) * write_bytes,
    )
