"""Operator graphs straight from table columns, without a row-by-row builder.

Each function turns dimension columns into the columns of an `OperatorGraph`: FLOP with a
multiply-add as 2, each operand moved once. Rows are unconnected: a table's rows are measurements
apart from each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from accelsim.confidence.residual import run_log_sigma
from accelsim.cost.contraction import visible_pairs
from accelsim.cost.roofline import Roofline
from accelsim.cost.table import CostTable
from accelsim.dtype import Dtype
from accelsim.errors import UnsupportedOperatorError
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import ATTENTION_KINDS, MAX_DIMENSIONS, OperatorKind, Phase

_K = OperatorKind
#: FLOP per element of operators on vectors: an exponential or logarithm counts as its polynomial.
FLOP_PER_ELEMENT = {"pow": 20, "powu": 20, "gelu": 8, "tanh": 6, "softmax": 6, "ln": 8}
TWO_INPUTS = ("add", "mul", "div", "pow")
#: Elementwise operators of the measured sets.
ELEMENTWISE = (*TWO_INPUTS, "addu", "mulu", "divu", "powu", "relu", "gelu", "tanh")
_VECTOR_KINDS = {"softmax": _K.SOFTMAX, "ln": _K.LAYER_NORM}
_GATES = {_K.RNN: 1.0, _K.LSTM: 4.0, _K.GRU: 3.0}


def graph_of_columns(
    kind: ArrayLike,
    dims: Sequence[ArrayLike],
    dtype: Dtype,
    *,
    flop: ArrayLike,
    read: ArrayLike,
    write: ArrayLike,
    weight: ArrayLike = 0.0,
) -> OperatorGraph:
    """A graph of unconnected rows; scalars stand for whole columns."""
    count = np.broadcast(*map(np.asarray, dims), flop, read, write).size

    def column(values: ArrayLike) -> FloatArray:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)).copy()

    sizes = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    for index, values in enumerate(dims):
        sizes[:, index] = values
    name = ("",) * count
    return OperatorGraph(
        kind=np.broadcast_to(np.asarray(kind, dtype=np.int16), (count,)).copy(),
        dims=sizes,
        dtype=np.full(count, int(dtype), dtype=np.int8),
        phase=np.full(count, Phase.FORWARD, dtype=np.int8),
        flop=column(flop),
        read_bytes=column(read),
        write_bytes=column(write),
        weight_bytes=column(weight),
        saved_bytes=np.zeros(count),
        name=name,
        path=name,
        dependency_offset=np.zeros(count + 1, dtype=np.int64),
        dependency=np.zeros(0, dtype=np.int64),
    )


def roofline_s(graph: OperatorGraph, device: DeviceProfile) -> FloatArray:
    """max(FLOP / peak, bytes / bandwidth) of each row, shape (n,); NaN where the device has no rate
    for a row.

    Attention counts the pairs its mask leaves, since no kernel computes the others.
    """
    line = Roofline.of(device)
    try:
        return line.time_s(graph.flop * _visible_fraction(graph), graph.bytes, graph.dtype)
    except UnsupportedOperatorError:
        return np.full(len(graph), np.nan)


def _visible_fraction(graph: OperatorGraph) -> FloatArray:
    fraction = np.ones(len(graph))
    rows = np.flatnonzero(np.isin(graph.kind, list(ATTENTION_KINDS)))
    if rows.size:
        names = ("q_len", "kv_len", "causal", "window")
        query, keys, causal, window = (graph.dimension(name, rows, _K.ATTENTION) for name in names)
        fraction[rows] = visible_pairs(query, keys, causal, window) / np.maximum(query * keys, 1.0)
    return fraction


def issued_time_s(time_s: FloatArray, dispatch_s: FloatArray) -> float:
    """End of the last row when the host issues rows one after the other and the device runs them in
    order, s.
    """
    if not len(time_s):
        return 0.0
    issued = np.cumsum(dispatch_s)
    after = np.cumsum(time_s[::-1])[::-1]  # from the start of each row to the end of the last
    return float((issued + after).max())


def correlated_log_sigma(
    costs: CostTable, graph: OperatorGraph, repeats: FloatArray | float = 1.0
) -> float:
    """Standard deviation of ln(true / predicted) of a whole run; see `run_log_sigma`."""
    return run_log_sigma(
        graph.kind, costs.time_s * repeats, costs.log_sigma, costs.shared_log_sigma
    )
