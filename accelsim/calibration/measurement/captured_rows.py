"""The operator row of a measured call: the very call is captured on the meta device.

What several kernels of one call read and write together becomes one row: the kind and dimensions of
its main kernel, the FLOP of all, and the bytes that enter and leave the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from accelsim.calibration.measured_rows import MeasuredRow
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.compiled_calls import COMPILED_OPERATORS
from accelsim.calibration.measurement.operands import BUILDERS, Builder, OperandPool, Operands
from accelsim.calibration.measurement.operators import GRADIENT_OPERATORS
from accelsim.calibration.run_file import Measurement, measured_graph
from accelsim.dtype import precision
from accelsim.workloads.capture.torch.aten import Kernel, Operand
from accelsim.workloads.capture.torch.intercept import Interceptor
from accelsim.workloads.capture.torch.recorder import OperatorRecorder, Row
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase
from accelsim.workloads.training import OPTIMIZERS, optimizer_graph

#: Families of a framework and a link rather than of a graph.
_WITHOUT_ROW = frozenset({"framework", "transfer"})
#: Operators that the meta device does not know, and what moves and computes the same.
_STAND_INS = {"_masked_softmax": "_softmax"}
#: Operators whose rows keep their own name: copies of what lies together, and layers that keep what
#: a backward pass needs, which a graph tells by that pass alone.
_OWN_NAMES = frozenset({"copy", "gru_train", "lstm_train", *_STAND_INS, *COMPILED_OPERATORS})
#: Gradients that are called by the name of another operator.
_GRADIENTS = frozenset({"mm_nn", "mm_tn", "sum_rows"})
#: Kinds that are a call's main kernel only where it has no other.
_AT_THE_SIDE = (OperatorKind.COPY, OperatorKind.ELEMENTWISE)


def has_row(case: Case) -> bool:
    """Whether an operator row stands for the case."""
    return case.family not in _WITHOUT_ROW


def captured_row(case: Case) -> MeasuredRow | None:
    """The row of a case; None where none stands for it.

    Raises:
        KeyError: If no builder has the case's operator.
        RuntimeError: Whatever torch raises where the call cannot be made.
    """
    if not has_row(case):
        return None
    shape = tuple(sorted(case.shape.items()))
    return _captured(BUILDERS[case.operator], case.operator, shape, case.dtype)


def case_graph(cases: Iterable[Case]) -> OperatorGraph:
    """One row per case, chained.

    Args:
        cases: Cases for which `has_row` holds.
    """
    return measured_graph([Measurement(c, None, 0.0, 0, {}, row=captured_row(c)) for c in cases])


@lru_cache(maxsize=100_000)
def _captured(
    build: Builder, operator: str, shape: tuple[tuple[str, int], ...], dtype: str
) -> MeasuredRow | None:
    del build  # a part of the key alone
    sizes = dict(shape)
    if operator.removesuffix("_idle") in OPTIMIZERS:
        return _update(operator, sizes, dtype)
    rows = _recorded(Case("", _STAND_INS.get(operator, operator), sizes, dtype))
    if not rows:
        return None
    main = max(reversed(rows), key=_importance)
    kernels = [row.kernel for row in rows]
    width = precision(dtype).activation.bytes
    phase = Phase.BACKWARD if _is_gradient(operator) else main.phase
    entering, leaving = _traffic(kernels)
    work = ((kernel.flop, kernel.gathered, kernel.scattered) for kernel in kernels)
    flop, gathered, scattered = map(sum, zip(*work, strict=True))
    return MeasuredRow(
        operator if operator in _OWN_NAMES else main.name,
        main.kernel.kind.label,
        phase.label,
        main.kernel.dims,
        flop=float(flop),
        read_bytes=_bytes(x for x in entering if not x.state) + width * gathered,
        write_bytes=_bytes(leaving) + width * scattered,
        weight_bytes=_bytes(x for x in entering if x.state),
    )


def _is_gradient(operator: str) -> bool:
    return "backward" in operator or operator in _GRADIENTS


def _importance(row: Row) -> tuple[bool, float]:
    """The main kernel of a call has the most arithmetic; elementwise ones and copies come last."""
    return row.kernel.kind not in _AT_THE_SIDE, row.kernel.flop


def _traffic(kernels: Sequence[Kernel]) -> tuple[list[Operand], list[Operand]]:
    """Tensors that enter a call, each once, and those that leave it unread."""
    entering: dict[tuple[int, int, tuple[int, ...]], Operand] = {}
    written: list[Operand] = []
    read_inside: set[int] = set()
    for kernel in kernels:
        made_inside = {x.storage for x in written}
        for x in kernel.reads:
            if x.storage in made_inside:
                read_inside.add(x.storage)
            else:
                entering[x.storage, x.offset, x.shape] = x
        written += kernel.writes
    return list(entering.values()), [x for x in written if x.storage not in read_inside]


def _bytes(operands: Iterable[Operand]) -> float:
    return float(sum(x.distinct * x.element_bytes for x in operands))


def _update(operator: str, sizes: dict[str, int], dtype: str) -> MeasuredRow:
    """An optimizer's step, which captured graphs have as one row too; of weights in the case's
    format alone.
    """
    count = sizes["parameters"] // sizes["tensors"] * sizes["tensors"]
    idle = count if operator.endswith("idle") else 0
    policy = replace(precision(dtype), master_weight=None)
    graph = optimizer_graph(
        count, sizes["tensors"], policy, OPTIMIZERS[operator.removesuffix("_idle")], idle
    )
    columns = graph.to_dict()
    return MeasuredRow.from_dict(
        {name: columns[name][0] for name in MeasuredRow.__dataclass_fields__}
    )


class _Shapes(OperandPool):
    """Operands on the meta device, where there is nothing but shapes."""

    def __init__(self) -> None:
        self.device = "meta"

    def take(self, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
        """A tensor without memory."""
        return torch.empty(sizes, dtype=dtype, device=self.device)

    copy = take

    def indices(self, below: int, *sizes: int) -> torch.Tensor:
        """Indices without memory."""
        del below
        return torch.empty(sizes, dtype=torch.int64, device=self.device)


def _recorded(case: Case) -> list[Row]:
    """Rows of one call of a case, its weights known as such."""
    operands = Operands(case, _Shapes())
    build = BUILDERS[case.operator]
    in_format = torch.nn.Module()
    in_format.register_parameter("weight", torch.nn.Parameter(operands.stored(1)))
    recorder = OperatorRecorder(in_format, case.operator)
    interceptor = Interceptor(recorder, fused_attention=True)
    has_gradient = case.operator in GRADIENT_OPERATORS
    with torch.set_grad_enabled(has_gradient):
        call = None if has_gradient else build(operands)
        recorder.belongs(operands.weights)
        with interceptor.active(), recorder:
            if call is None:  # the graph of the forward pass is recorded too
                call = build(operands)
                recorder.belongs(operands.weights)
            first_row = len(recorder.rows)
            call()
    return recorder.rows[first_row:]
