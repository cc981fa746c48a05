"""Plain recurrent layers as a CPU runs them: step by step, their inputs multiplied at once (ATen
native/RNN.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional


def stepped(
    name: str, x: torch.Tensor, hx: torch.Tensor, params: Sequence[torch.Tensor], *options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``torch.rnn_tanh`` and ``torch.rnn_relu`` compute, of a sequence that is not packed.

    Args:
        name: "rnn_tanh" or "rnn_relu".
        x: Inputs, shape (steps, batch, features), or (batch, steps, features) where `batch_first`.
        hx: First states, shape (layers x directions, batch, hidden).
        params: Weights of inputs and states, and their biases, layer by layer, direction by
            direction.
        *options: Whether there are biases, number of layers, share dropped between layers in
            training, whether it trains, whether each layer goes backwards too, and whether the
            batch comes first in `x`.

    Returns:
        Outputs, as `x` with hidden x directions features, and last states, as `hx`.
    """
    has_biases, num_layers, dropout, train, bidirectional, batch_first = options
    activation = torch.tanh if name == "rnn_tanh" else torch.relu
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    if batch_first:
        x = x.transpose(0, 1)
    last: list[torch.Tensor] = []
    for layer in range(num_layers):
        outputs = []
        for way in range(directions):
            w_ih, w_hh, *biases = params[len(last) * each : (len(last) + 1) * each]
            b_ih, b_hh = biases or (None, None)
            inputs = functional.linear(x, w_ih, b_ih).unbind(0)
            state, states = hx[len(last)], []
            order = -1 if way else 1
            for step in inputs[::order]:
                state = activation(functional.linear(state, w_hh, b_hh).add_(step))
                states.append(state)
            last.append(state)
            outputs.append(torch.stack(states[::order]))
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            x = functional.dropout(x, dropout)
    return x.transpose(0, 1) if batch_first else x, torch.stack(last)
