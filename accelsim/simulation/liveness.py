"""Activation memory over a run: how many bytes of operator outputs are in use while each row runs.

In inference an output lives until the last row that reads it has run. In a training step the
forward pass piles up what it saves for the backward pass, which gives it back in reverse order.
This counts bytes in use; what an allocator adds by rounding and fragmentation is not in it.
"""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import Phase


def live_bytes(
    output_bytes: FloatArray,
    dependency_offset: IntArray,
    dependency: IntArray,
) -> FloatArray:
    """Bytes of row outputs alive while each row runs: an output lives from its row to the last row
    that reads it.

    Args:
        output_bytes: Bytes each row writes, shape (n,).
        dependency_offset: Start of each row's slice of `dependency`, shape (n + 1,).
        dependency: Earlier rows each row reads, shape (edges,).

    Returns:
        Bytes, shape (n,).
    """
    count = len(output_bytes)
    last_use = np.arange(count)
    reader = np.repeat(np.arange(count), np.diff(dependency_offset))
    np.maximum.at(last_use, dependency, reader)
    freed = np.bincount(last_use, output_bytes, count)
    return np.asarray(np.cumsum(output_bytes) - np.concatenate([[0.0], np.cumsum(freed)[:-1]]))


def activation_live_bytes(graph: OperatorGraph) -> FloatArray:
    """Activation and gradient bytes in use while each row of a graph runs; weights and optimizer
    state are not in it.

    Training (rows of a backward phase): forward rows add their `saved_bytes`; a backward row finds
    saved what its share of the backward traffic has not yet given back. Each row has its own output
    besides, where that is not saved. Estimate: saved bytes are given back evenly with the traffic
    of the backward pass.

    Args:
        graph: Operators in launch order.

    Returns:
        Bytes, shape (n,).
    """
    backward = graph.phase == Phase.BACKWARD
    if not backward.any():
        return live_bytes(graph.write_bytes, graph.dependency_offset, graph.dependency)
    saved = np.cumsum(graph.saved_bytes)
    traffic = np.cumsum(graph.bytes * backward)
    before = np.concatenate([[0.0], traffic[:-1]])
    given_back = saved[-1] * before / traffic[-1] if traffic[-1] > 0 else np.zeros(len(graph))
    updating = graph.phase == Phase.OPTIMIZER  # writes weights and states in place
    own = np.where(updating, 0.0, np.maximum(graph.write_bytes - graph.saved_bytes, 0.0))
    return np.asarray(np.maximum(saved - given_back, 0.0) + own)
