"""What an LSTM layer allocates: copies of the weights, gates, in training oneDNN's workspace and
gradients.

The forward pass keeps a workspace for the backward one: gates, cell and hidden states of every
step, and room for the gradients of the states. The backward pass runs on 32-bit gradients, which
are converted afterwards. Traced with torch 2.13 and oneDNN 3.12 on five shapes in two formats
(workspaces within 4 %); lines of matrices are padded as in oneDNN's rnn_utils.cpp, get_good_ld. The
directions of a layer run one after the other, each with weights and a workspace of its own; their
outputs are joined in a third buffer.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from accelsim.workloads.dtype import DTYPE_BYTES
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase

__all__ = ["HELD", "SAVED", "Script", "lstm_script", "lstm_workspace_bytes", "workspaces"]

#: Steps of a row: slot and bytes; 0 bytes frees the slot. Slot 0 is the output.
Script = list[tuple[int, float]]
#: Slot of blocks that stay as long as the output.
SAVED: Final = -2
#: Slot of blocks that stay until the step ends: gradients.
HELD: Final = -1
#: What a layer's scratch takes beside what grows with it.
_SCRATCH_START: Final = 4872.0


def _line_bytes(elements: FloatArray | float, width: FloatArray | float) -> FloatArray:
    """Bytes of a matrix line: whole cache lines, one more where it is a multiple of 256 elements."""
    whole = np.ceil(elements * width / 64.0) * 64.0
    line: FloatArray = np.where(whole / width % 256 == 0, whole + 64.0, whole)
    return line


def _scratch_bytes(batch: float, steps: float, hidden: float, width: float) -> float:
    """Gates of every step, states, in 32 bits too, and where lines are not whole two copies of the
    states of every step.

    oneDNN 3.12 takes 0.98 to 1.00 times as much on thirteen shapes in two formats, more than this
    of single sequences.
    """
    states = batch * hidden * width
    copies = (
        2.0 * (steps + 1.0) * batch * (math.ceil(hidden * width / 64.0) * 64.0 - hidden * width)
    )
    return 4.0 * steps * states + (9.0 if width == 4.0 else 13.0) * states + copies + _SCRATCH_START


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
    found: FloatArray = gates + (steps + 1.0) * batch * (narrow + full)
    return found


def workspaces(graph: OperatorGraph, *, is_training: bool) -> FloatArray:
    """Bytes of the workspaces that LSTM layers leave to their backward passes, and that these read,
    shape (n,).

    Args:
        graph: Operators, n rows.
        is_training: Whether the graph has backward rows.
    """
    found, kind = np.zeros(len(graph)), OperatorKind.LSTM
    kept = [is_training or name.endswith("_train") for name in graph.name]
    rows = np.flatnonzero(
        (graph.kind == int(kind))
        & (np.array(kept, dtype=bool) | (graph.phase == int(Phase.BACKWARD)))
    )
    names = ("batch", "steps", "input_size", "hidden_size", "directions")
    batch, steps, inputs, hidden, directions = (graph.dimension(name, rows, kind) for name in names)
    one = lstm_workspace_bytes(batch, steps, inputs, hidden, DTYPE_BYTES[graph.dtype[rows]])
    found[rows] = np.maximum(directions, 1.0) * one
    return found


def lstm_script(
    batch: float,
    steps: float,
    inputs: float,
    hidden: float,
    width: float,
    directions: int = 1,
    *,
    is_training: bool = False,
    is_backward: bool = False,
) -> Script:
    """What a layer allocates and frees.

    Args:
        batch: Sequences.
        steps: Steps of each.
        inputs: Width of the layer's input.
        hidden: Width of its state.
        width: Bytes of an element.
        directions: One, or two whose outputs are joined.
        is_training: Whether a backward pass follows.
        is_backward: Whether it is the backward pass.
    """
    x, y = batch * steps * inputs * width, batch * steps * hidden * width
    of_inputs, of_states = 4.0 * hidden * inputs * width, 4.0 * hidden * hidden * width
    scratch = (
        _scratch_bytes(batch, steps, hidden, width)
        if width == 4.0 or not (is_training or is_backward)
        else 1.0
    )
    whole = math.ceil(hidden / 32.0) * 32.0 / hidden  # weights lie in blocks of 32 units
    copies: Script = [
        (1, whole * of_inputs),
        (2, whole * of_states),
        (3, scratch),
        (3, 0.0),
        (2, 0.0),
        (1, 0.0),
    ]
    if is_backward:
        return _backward_script(x, y, of_inputs, of_states, copies, 4.0 / width, directions)
    workspace = float(lstm_workspace_bytes(batch, steps, inputs, hidden, width))
    saved: Script = [(SAVED, workspace)] if is_training else []
    if directions == 1:
        return [(0, y), *saved, *copies]
    if is_training:
        return [step for _ in range(directions) for step in ((SAVED, y), *saved, *copies)] + [
            (0, directions * y)
        ]
    return [(4, y), *copies, (5, y), *copies, (0, directions * y), (5, 0.0), (4, 0.0)]


def _backward_script(
    x: float,
    y: float,
    of_inputs: float,
    of_states: float,
    copies: Script,
    ratio: float,
    directions: int,
) -> Script:
    """One direction after the other: the second's gradient of the input is added to the first's."""
    found: Script = []
    for direction in range(directions):
        given = 11 if direction else 0
        if ratio == 1.0:
            found += [(4, y), (given, x), (HELD, of_inputs), (HELD, of_states), *copies, (4, 0.0)]
        else:
            found += [
                (4, y),
                (5, ratio * x),
                (6, ratio * of_inputs),
                (7, ratio * of_states),
                (8, ratio * y),
            ]
            found += [
                (9, ratio * of_inputs),
                (10, ratio * of_states),
                *copies,
                (10, 0.0),
                (9, 0.0),
                (8, 0.0),
                (4, 0.0),
            ]
            found += [
                (given, x),
                (5, 0.0),
                (HELD, of_inputs),
                (6, 0.0),
                (HELD, of_states),
                (7, 0.0),
            ]
        if direction:
            found.append((given, 0.0))
    return found
