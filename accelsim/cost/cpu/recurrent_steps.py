"""What each step of a recurrent layer does: the weights that it goes through, and the rows that its
products fill.

An LSTM in inference, and every one of 16 bits, is one fused kernel of oneDNN that multiplies inputs
and states step by step; others multiply the inputs of all steps at once (oneDNN 3.12
rnn_brgemm_utils.cpp, ref_rnn.cpp; ATen RNN.cpp).
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.cpu.cache_counts import round_share
from accelsim.cost.cpu.kind_rows import KindRows, rows_of_kind
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import RECURRENT_KINDS, OperatorKind
from accelsim.workloads.variant import Trait

#: Share of the last-level cache from which on forward steps lose weights.
_ROUND_FITS = 0.7
#: Two vectors of the framework's loops.
_PAIR_BYTES = 128.0
#: Rows up to which the math library multiplies row by row.
SINGLE_ROWS = 3
#: Rows from which a fused step's products run at full rate.
_PIPELINED_ROWS = 4.0
#: Passes over its result that the math library's outer product of several rows takes beyond that of
#: one: 3.1 MB take 37 us of one row, 240 to 330 of 2 to 14, where an addition takes 61 (EPYC 9005,
#: torch 2.13).
_OUTER_PASSES = 9.0


def further_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes that a recurrent layer's second direction reads again, shape (n,): the layer's
    input.
    """
    found = np.zeros(len(graph))
    for kind in RECURRENT_KINDS:
        rows = rows_of_kind(graph, kind)
        inputs = rows["batch"] * rows["steps"] * rows["input_size"]
        found[rows.index] = np.maximum(rows["directions"] - 1.0, 0.0) * inputs * rows.width
    return found


def gate_rests(hidden: FloatArray, width: FloatArray) -> FloatArray:
    """Elements of a gate's row that a sigmoid takes one by one, shape (k,): what is left of pairs
    of vectors.

    A step's gates lie beside each other, so each row of one is a stretch of its own (ATen Loops.h,
    vectorized_loop): 240 rows of 32, 48, 50 and 64 floats take 2.3, 10.4, 11.5 and 4.0 us, in bf16
    18, 28, 29 and 5.3 (EPYC 9005).
    """
    return hidden % (_PAIR_BYTES / width)


@frozen(eq=False)
class StepWork:
    """Work of recurrent layers; columns of shape (k,).

    Attributes:
        flop: FLOP of all steps, with the rows of a fused kernel's products filled.
        steps: Steps, of both directions.
        moved_bytes: Bytes of weights and their gradients that a step moves.
        far_moved_bytes: Those of them that come from main memory where the caches hold nothing from
            step to step.
        round_bytes: Bytes that they go round in.
        is_backward: Whether they write gradients.
    """

    flop: FloatArray
    steps: FloatArray
    moved_bytes: FloatArray
    far_moved_bytes: FloatArray
    round_bytes: FloatArray
    is_backward: BoolArray

    def far_bytes(self, l3_bytes: float) -> FloatArray:
        """Bytes that the steps after the first move beyond the last-level cache, shape (k,).

        Forward steps fetch weights ahead, and lose less of a round than those that write gradients
        too.

        Args:
            l3_bytes: Last-level cache.
        """
        forward = np.clip(
            (self.round_bytes / l3_bytes - _ROUND_FITS) / (1.0 - _ROUND_FITS), 0.0, 1.0
        )
        share = np.where(self.is_backward, round_share(self.round_bytes, l3_bytes), forward)
        return (self.steps - 1.0) * self.far_moved_bytes * share


def step_work(rows: KindRows, *, is_training: bool) -> StepWork:
    """What the steps of recurrent layers do.

    A fused kernel goes through both matrices each step, but forward of a single row, whose inputs
    it multiplies at once too; backward through their gradients as well, which it adds up in 32
    bits, reading and writing them. Others go through the states' weights alone, a GRU of up to
    three rows in fp32 once a row. A GRU's backward pass writes the gradient of the states' weights
    anew each step, in fp32 from more than one row slowly, and adds it to the sum.

    A fused step takes 32 columns at a time: the sums of fewer than four rows do not fill the
    multipliers' pipelines (1 to 4 rows of 1 MB of weights take 10 to 12 us alike, 7 take 16; EPYC
    9005, torch 2.13).

    Args:
        rows: Layers of one kind, LSTM, GRU or RNN.
        is_training: Whether the graph has backward rows.
    """
    batch, steps, inside, hidden, directions = (
        rows[name] for name in ("batch", "steps", "input_size", "hidden_size", "directions")
    )
    width, kind = rows.width, rows.kind
    is_lstm, backward = kind == OperatorKind.LSTM, rows.is_backward
    kept = rows.has_trait(Trait.KEEPS_GATES) | is_training
    fused = is_lstm & ((width == 2) | ~(backward | kept))
    merged = fused & ~backward & (batch <= 1) & (steps > 1)

    gates = 4.0 if is_lstm else 3.0
    states, both = gates * hidden**2 * width, gates * hidden * (hidden + inside) * width
    weights = np.where(fused & ~merged, both, states)
    sums = np.where(fused & backward, both * 4.0 / width, 0.0)
    plain = (not is_lstm) & (width == 4)
    added = np.where((kind == OperatorKind.GRU) & backward, states, 0.0)
    outer = np.where(plain & (batch > 1), _OUTER_PASSES * added, 0.0)
    passes = np.where(plain & (batch <= SINGLE_ROWS), np.maximum(batch, 1.0), 1.0)

    filled = np.maximum(batch, _PIPELINED_ROWS) / np.maximum(batch, 1.0)
    of_inputs = inside / np.maximum(inside + hidden, 1.0)
    factor = np.select(
        [merged, fused & ~backward], [of_inputs + (1.0 - of_inputs) * filled, filled], 1.0
    )
    return StepWork(
        rows.graph.flop[rows.index] * factor,
        steps * np.maximum(directions, 1.0),
        passes * weights + 2.0 * sums + 4.0 * added + outer,
        weights + 2.0 * sums + 4.0 * added,
        weights + sums + 2.0 * added,
        backward,
    )
