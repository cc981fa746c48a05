"""The operator suite: which shapes are measured, in which formats and conditions.

The order interleaves families, so that a run cut short has measured something of each. On a GPU
operands rotate past the cache, so that there is no cold condition of its own; kernels are timed in
replayed graphs, where the host's pace does not show, and eagerly, where it does. What
``torch.compile`` generates code for is a suite of its own: compiling takes seconds, so there are
few sizes of columns, each compiled once per format and thread count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.plan import Plan, read_plans

#: Operators that a graph cannot hold: the backward pass runs on the stream of its forward pass,
#: optimizers count their steps on the host, and copies from and to the host wait for it.
UNCAPTURED_OPERATORS = frozenset(
    {
        "scaled_dot_product_attention_backward",
        "lstm_train",
        "lstm_backward",
        "adamw",
        "sgd",
        "host_to_device",
        "device_to_host",
    }
)


def has_matrix_products(family: str) -> bool:
    """Whether FP32 products of a family may run as TF32."""
    is_product = family in {"gemm", "gemv", "batched_gemm", "recurrent"}
    return is_product or family.startswith("convolution")


def operator_suite(
    device: str,
    dtypes: Sequence[str],
    threads: Sequence[int],
    executions: Sequence[str] = ("eager",),
) -> list[Case]:
    """Every case of a calibration, most informative first.

    Args:
        device: "cpu" or "cuda".
        dtypes: Formats to measure.
        threads: Thread counts; the first is measured in full, the others on a part of the shapes.
            (0,) on a GPU.
        executions: "eager", and on a GPU "graph" for the operators that a graph can hold.

    Returns:
        Cases with unique keys, families interleaved: the first tenth of the list already spans
        every family.
    """
    ranked = [
        (rank, number, case)
        for number, plan in enumerate(read_plans())
        if device in plan.devices and plan.is_compiled == ("compiled" in executions)
        for case, rank in _cases(plan, device, dtypes, threads, executions)
    ]
    ranked.sort(key=lambda entry: entry[:2])
    return list({case.key: case for _, _, case in ranked}.values())


def compiled_suite(device: str, dtypes: Sequence[str], threads: Sequence[int]) -> list[Case]:
    """Cases of compiled operators, in the order of `operator_suite`.

    Args:
        device: "cpu" or "cuda".
        dtypes: Formats to measure.
        threads: Thread counts; (0,) on a GPU.
    """
    return operator_suite(device, dtypes, threads, ("compiled",))


def _cases(
    plan: Plan,
    device: str,
    dtypes: Sequence[str],
    threads: Sequence[int],
    executions: Sequence[str],
) -> Iterator[tuple[Case, float]]:
    """Cases of one plan with a rank from 0 (first) to about 1."""
    formats = [name for name in dtypes if not plan.dtypes or name in plan.dtypes]
    states = (False, True) if plan.cold and device == "cpu" else (False,)
    conditions = list(product(formats, enumerate(threads), executions, states))
    for operator in plan.operators:
        shapes = enumerate(plan.shapes(operator, device))
        for (position, shape), condition in product(shapes, conditions):
            dtype, (order, count), execution, cold = condition
            case = Case(plan.family, operator, shape, dtype, count, cold, execution)
            # two thirds on further threads; halves would follow the sequence's first base
            if _exists(case) and not (order and position % 3 == 1):
                yield case, position / plan.count + 0.01 * order + 0.005 * cold


def _exists(case: Case) -> bool:
    """Whether the combination of operator, format and execution exists."""
    if case.dtype == "tf32" and not has_matrix_products(case.family):
        return False
    return case.execution != "graph" or case.operator not in UNCAPTURED_OPERATORS
