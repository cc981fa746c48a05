"""Activation memory over a run: how many bytes of operator outputs are in use while each row runs.

In inference an output lives as `accelsim.cost.memory.live_bytes` says. In a training step the
forward pass piles up what it saves for the backward pass, which gives it back in reverse order.
This counts bytes in use; what an allocator adds by rounding and fragmentation is not in it.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.memory import live_bytes
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import Phase


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
        return live_bytes(graph)
    saved = np.cumsum(graph.saved_bytes)
    traffic = np.cumsum(graph.bytes * backward)
    before = np.concatenate([[0.0], traffic[:-1]])
    given_back = saved[-1] * before / traffic[-1] if traffic[-1] > 0 else np.zeros(len(graph))
    updating = graph.phase == Phase.OPTIMIZER  # writes weights and states in place
    output_bytes = np.where(updating, 0.0, np.maximum(graph.write_bytes - graph.saved_bytes, 0.0))
    return np.asarray(np.maximum(saved - given_back, 0.0) + output_bytes)
