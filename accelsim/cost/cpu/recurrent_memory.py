"""What an LSTM layer allocates in a training step: oneDNN's workspace, copies of the weights, gradients.

The forward pass keeps a workspace for the backward one: gates, cell and hidden states of every step, and room for the
gradients of the states. The backward pass runs on 32-bit gradients, which are converted afterwards. Traced with torch 2.13
and oneDNN 3.12 on five shapes in two formats (workspaces within 4 %); lines of matrices are padded as in oneDNN's
rnn_utils.cpp, get_good_ld.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["HELD", "Script", "lstm_script", "lstm_workspace_bytes"]

#: Steps of a row: slot and bytes; 0 bytes frees the slot. Slot 0 is the output.
Script = list[tuple[int, float]]
#: Slot of blocks that stay until the step ends: gradients.
HELD: Final = -1


def _line_bytes(elements: float, width: float) -> float:
    """Bytes of a matrix line: whole cache lines, one more where it is a multiple of 256 elements."""
    whole = math.ceil(elements * width / 64.0) * 64.0
    return whole + 64.0 if whole / width % 256 == 0 else whole


def lstm_workspace_bytes(batch: float, steps: float, inputs: float, hidden: float, width: float) -> float:
    """Bytes of the workspace of one layer in one direction.

    Args:
        batch: Sequences.
        steps: Steps of each.
        inputs: Width of the layer's input.
        hidden: Width of its state.
        width: Bytes of an element.
    """
    gates = steps * batch * (_line_bytes(4.0 * hidden, width) + hidden * width)
    wide = max(inputs, hidden)
    narrow = 2.0 * (_line_bytes(wide, width) + _line_bytes(hidden, width))
    full = 4.0 * _line_bytes(wide, 4.0) + 2.0 * _line_bytes(hidden, 4.0)
    return gates + (steps + 1.0) * batch * (narrow + full)


def lstm_script(batch: float, steps: float, inputs: float, hidden: float, width: float, *, is_backward: bool) -> Script:
    """What a layer allocates and frees in training.

    Args:
        batch: Sequences.
        steps: Steps of each.
        inputs: Width of the layer's input.
        hidden: Width of its state.
        width: Bytes of an element.
        is_backward: Whether it is the backward pass.
    """
    x, y = batch * steps * inputs * width, batch * steps * hidden * width
    of_inputs, of_states = 4.0 * hidden * inputs * width, 4.0 * hidden * hidden * width
    scratch = steps * batch * _line_bytes(4.0 * hidden, width) if width == 4.0 else 1.0
    copies: Script = [(1, of_inputs), (2, of_states), (3, scratch), (3, 0.0), (2, 0.0), (1, 0.0)]
    if not is_backward:
        workspace = lstm_workspace_bytes(batch, steps, inputs, hidden, width)
        return [(0, y + workspace), *copies]  # both live until the layer's backward pass has read them
    if width == 4.0:
        return [(4, y), (0, x), (HELD, of_inputs), (HELD, of_states), *copies, (4, 0.0)]
    ratio = 4.0 / width
    wide: Script = [(4, y), (5, ratio * x), (6, ratio * of_inputs), (7, ratio * of_states), (8, ratio * y)]
    more: Script = [(9, ratio * of_inputs), (10, ratio * of_states), *copies, (10, 0.0), (9, 0.0), (8, 0.0), (4, 0.0)]
    return [*wide, *more, (0, x), (5, 0.0), (HELD, of_inputs), (6, 0.0), (HELD, of_states), (7, 0.0)]
