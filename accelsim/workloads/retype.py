"""A graph at another precision: compute dtypes and byte widths changed, everything else kept."""

from __future__ import annotations

import numpy as np

from accelsim.dtype import PRECISIONS, Dtype, Precision
from accelsim.errors import InvalidValueError
from accelsim.workloads.capture.captured import BYTE_COLUMNS, CapturedGraph, compute_dtypes
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import Phase


def precision_of(graph: OperatorGraph) -> Precision:
    """The precision policy a graph was written in, read off its dtypes (optimizer rows aside).

    Raises:
        InvalidValueError: If its dtypes follow no policy.
    """
    rows = graph.phase != Phase.OPTIMIZER
    for policy in PRECISIONS.values():
        expected = compute_dtypes(graph.kind, graph.path, policy)
        if (expected[rows] == graph.dtype[rows]).all():
            return policy
    labels = ", ".join(sorted({Dtype(code).label for code in graph.dtype.tolist()}))
    policies = ", ".join(PRECISIONS)
    raise InvalidValueError(
        "graph.dtype", labels, f"the dtypes of one policy ({policies})", "Leave precision out."
    )


def retype(graph: OperatorGraph, precision: Precision) -> OperatorGraph:
    """The graph at another precision; index bytes of lookups scale with the rest.

    Args:
        graph: Rows written in one policy.
        precision: Policy wanted.

    Raises:
        InvalidValueError: If the graph's dtypes follow no policy.
    """
    source = precision_of(graph)
    if source == precision:
        return graph
    nothing_fixed = np.zeros((len(graph), len(BYTE_COLUMNS)))
    return CapturedGraph(graph, 1, nothing_fixed, None).at_precision(source, precision)
