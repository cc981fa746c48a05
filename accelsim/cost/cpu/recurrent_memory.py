"""What an LSTM layer keeps for its backward pass: oneDNN's workspace.

The forward pass keeps a workspace for the backward one: gates, cell and hidden states of every
step, and room for the gradients of the states. The backward pass runs on 32-bit gradients, which
are converted afterwards. Traced with torch 2.13 and oneDNN 3.12 on five shapes in two formats
(workspaces within 4 %); lines of matrices are padded as in oneDNN's rnn_utils.cpp, get_good_ld. The
directions of a layer run one after the other, each with weights and a workspace of its own; their
outputs are joined in a third buffer.
"""

from __future__ import annotations

import numpy as np

from accelsim.dtype import DTYPE_BYTES
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.variant import Trait


def _line_bytes(elements: FloatArray | float, width: FloatArray | float) -> FloatArray:
    """Bytes of a matrix line: whole cache lines, one more where it is a multiple of 256
    elements.
    """
    whole = np.ceil(elements * width / 64.0) * 64.0
    return np.where(whole / width % 256 == 0, whole + 64.0, whole)


def lstm_workspace_bytes(
    batch: FloatArray | float,
    steps: FloatArray | float,
    inputs: FloatArray | float,
    hidden: FloatArray | float,
    width: FloatArray | float,
) -> FloatArray:
    """Bytes of the workspace of one layer in one direction, of scalars or of columns.

    Args:
        batch: Sequences.
        steps: Steps of each.
        inputs: Width of the layer's input.
        hidden: Width of its state.
        width: Bytes of an element.
    """
    gates = steps * batch * (_line_bytes(4.0 * hidden, width) + hidden * width)
    wide = np.maximum(inputs, hidden)
    narrow = 2.0 * (_line_bytes(wide, width) + _line_bytes(hidden, width))
    full = 4.0 * _line_bytes(wide, 4.0) + 2.0 * _line_bytes(hidden, 4.0)
    return gates + (steps + 1.0) * batch * (narrow + full)


def workspaces(graph: OperatorGraph, *, is_training: bool) -> FloatArray:
    """Bytes of the workspaces that LSTM layers leave to their backward passes, and that these read,
    shape (n,).

    Args:
        graph: Operators, n rows.
        is_training: Whether the graph has backward rows.
    """
    found, kind = np.zeros(len(graph)), OperatorKind.LSTM
    kept = is_training | graph.has_trait(Trait.KEEPS_GATES)
    rows = np.flatnonzero((graph.kind == int(kind)) & (kept | (graph.phase == Phase.BACKWARD)))
    if not len(rows):
        return found
    names = ("batch", "steps", "input_size", "hidden_size", "directions")
    batch, steps, inputs, hidden, directions = (graph.dimension(name, rows, kind) for name in names)
    each = lstm_workspace_bytes(batch, steps, inputs, hidden, DTYPE_BYTES[graph.dtype[rows]])
    found[rows] = np.maximum(directions, 1.0) * each
    return found
