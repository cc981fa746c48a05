"""A graph as matrix products, which is all that the arrays of a matrix chip run.

Convolutions are lowered by im2col, attention to its scores and its context, recurrent cells to one
product over all inputs and one per step. Operators without a product are the vector unit's.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from accelsim.cost.contraction import Contraction, attention_products, contraction, recurrence
from accelsim.cost.table import Rows
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import CONV_KINDS, OperatorKind

_K = OperatorKind
_ATTENTION = {_K.ATTENTION, _K.ATTENTION_BACKWARD}
_RECURRENT = {_K.RNN, _K.LSTM, _K.GRU}
_PLAIN = {_K.GEMM, _K.BATCHED_GEMM, _K.GROUPED_GEMM, *CONV_KINDS}


@frozen(eq=False)
class Products:
    """Matrix products of a graph, l of them, and the work that is none.

    Attributes:
        shape: Groups of (m x k) by (k x n), shape (l,).
        repeat: How often each runs, one after the other, shape (l,).
        row: Row of the graph each belongs to, shape (l,).
        vector_flop: FLOP of all other operators together.
        graph: The graph.
    """

    shape: Contraction
    repeat: FloatArray
    row: IntArray
    vector_flop: float
    graph: OperatorGraph

    def __len__(self) -> int:
        return len(self.repeat)


@lru_cache(maxsize=64)
def all_products(graph: OperatorGraph) -> Products:
    """Every contraction of any graph as products; a backward row repeats its forward products as
    its FLOP do.
    """
    columns = [np.zeros((6, 0))]
    vector_flop = 0.0
    for kind, index in graph.rows_by_kind():
        found = _products_of(Rows(graph, index, kind))
        for shape, repeat in found:
            columns.append(np.stack([shape.groups, shape.m, shape.n, shape.k, repeat, index]))
        vector_flop += 0.0 if found else float(graph.flop[index].sum())
    table = np.concatenate(columns, axis=1)
    *sides, repeat, row = table[:, (table[:4] > 0).all(axis=0)]
    return Products(Contraction(*sides), repeat, row.astype(np.int64), vector_flop, graph)


def _products_of(rows: Rows) -> list[tuple[Contraction, FloatArray]]:
    """Products of rows of one kind and how often each runs; none for the vector unit's kinds."""
    if rows.kind in _PLAIN:
        return [(contraction(rows), np.ones(len(rows)))]
    if rows.kind in _ATTENTION:
        both = attention_products(rows)
        forward = both.scores.flop + both.context.flop
        passes = np.divide(both.flop, forward, out=np.zeros(len(rows)), where=forward > 0)
        return [(both.scores, passes), (both.context, passes)]
    if rows.kind in _RECURRENT:
        cell = recurrence(rows)
        return [(cell.inputs, cell.passes), (cell.step, cell.steps * cell.passes)]
    return []


def pack_groups(
    shape: Contraction, rows: FloatArray | float, columns: FloatArray | float
) -> tuple[Contraction, FloatArray]:
    """Grouped products side by side on the array's diagonal, as many as its rows and columns hold.

    Estimate: block-diagonal packing of groups, which compilers may or may not do.

    Args:
        shape: Products, shape (r,).
        rows: Array height.
        columns: Array width.

    Returns:
        The larger products, and how many groups each holds, shape (r,).
    """
    fit = np.minimum(rows // np.maximum(shape.k, 1.0), columns // np.maximum(shape.n, 1.0))
    together = np.clip(fit, 1.0, np.maximum(shape.groups, 1.0))
    packed = Contraction(
        np.ceil(shape.groups / together), shape.m, shape.n * together, shape.k * together
    )
    return packed, together
