"""Builds the torch calls of a case: calls that do its work on random data, with hot or cold
weights.

Backward operators are called as ATen operators, which is how autograd calls them. Calls of a cold
case take a different copy of the weights each, so many that together they exceed any last-level
cache; on a GPU every operand rotates past the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from accelsim.calibration.measurement import (  # noqa: F401  (they register)
    compiled_operators,
    matrix_operators,
    model_operators,
    scan_operators,
    vector_operators,
)
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.operands import (
    BUILDERS,
    COLD_BYTES,
    DTYPES,
    MOST_COPIES,
    Call,
    Pool,
    Source,
    torch_dtype,
)

__all__ = ["BUILDERS", "Call", "Pool", "Prepared", "build_calls", "prepare", "torch_dtype"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case ready to run.

    Attributes:
        calls: What it cycles through.
        inputs: Tensors that the operator before would have written.
    """

    calls: list[Call]
    inputs: list[torch.Tensor]


def build_calls(case: Case, pool: Pool, copies: int | None = None) -> list[Call]:
    """The calls of `prepare`."""
    return prepare(case, pool, copies).calls


def prepare(case: Case, pool: Pool, copies: int | None = None) -> Prepared:
    """The calls a case cycles through: one where weights stay hot, many on separate weights where
    they are cold.

    Args:
        case: What to run.
        pool: Random numbers, on the device.
        copies: Number of calls with operands of their own; chosen from the weights' size where
            None.

    Raises:
        KeyError: If no builder has the case's operator.
        RuntimeError: Whatever torch raises where the device cannot hold or run it.
    """
    builder = BUILDERS[case.operator]
    if copies is not None:
        return Prepared([builder(Source(case, pool)) for _ in range(copies)], [])
    source = Source(case, pool)
    calls = [builder(source) for _ in range(_weight_copies(case) if case.cold else 1)]
    return Prepared(calls, source.written)


def _weight_copies(case: Case) -> int:
    s = case.shape
    if case.operator == "addmm":
        elements = s["n"] * s["k"]
    else:
        elements = s["channels_out"] * s["channels_in"] // s["groups"] * s["kernel"] ** 2
    return int(min(MOST_COPIES, max(2, COLD_BYTES // (elements * DTYPES[case.dtype].itemsize))))
