"""Builds the torch calls of a case: calls that do its work on random data, with hot or cold
weights.

Backward operators are called as ATen operators, which is how autograd calls them. Calls of a cold
case take a different copy of the weights each, so many that together they exceed any last-level
cache; on a GPU every operand rotates past the cache.
"""

from __future__ import annotations

import torch

from accelsim.calibration.measurement import (  # noqa: F401  (they register)
    compiled_calls,
    framework_calls,
    matrix_calls,
    memory_calls,
)
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.operands import (
    BUILDERS,
    COLD_BYTES,
    MOST_COPIES,
    OperandPool,
    Operands,
    read_calls,
)
from accelsim.calibration.measurement.timing import Call
from accelsim.frozen import frozen

read_calls()

#: Operators whose calls run with gradients enabled.
GRADIENT_OPERATORS = frozenset(
    {
        "scaled_dot_product_attention_backward",
        "lstm_train",
        "lstm_backward",
        "gru_train",
        "gru_backward",
        "gradient_chain",
    }
)


@frozen
class Prepared:
    """A case ready to run.

    Attributes:
        calls: What it cycles through.
        inputs: Tensors that the operator before would have written.
    """

    calls: list[Call]
    inputs: list[torch.Tensor]


def build_call(case: Case, numbers: OperandPool) -> Call:
    """One call of a case on new operands; errors as in `prepare`."""
    return BUILDERS[case.operator](Operands(case, numbers))


def prepare(case: Case, numbers: OperandPool) -> Prepared:
    """The calls a case cycles through: one where weights stay hot, many on separate weights where
    they are cold.

    Args:
        case: What to run.
        numbers: Where operands come from.

    Raises:
        KeyError: If no builder has the case's operator.
        RuntimeError: Whatever torch raises where the device cannot hold or run it.
    """
    builder = BUILDERS[case.operator]
    operands = Operands(case, numbers)
    calls = [builder(operands)]
    if case.cold:
        weight_bytes = sum(x.numel() * x.element_size() for x in operands.weights)
        copies = min(MOST_COPIES, max(2, COLD_BYTES // weight_bytes))
        calls += [builder(operands) for _ in range(copies - 1)]
    return Prepared(calls, operands.written)
