"""Formulas of ATen reductions and scans: one FLOP per element read, and those that run as several
kernels.
"""

from __future__ import annotations

from accelsim.workloads.capture.aten import (
    Call,
    Kernel,
    Operand,
    formula,
    inner_tensor,
    whole,
)
from accelsim.workloads.capture.aten_memory import across, elementwise, rows_of
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.pointwise import POINTWISE_FLOP

__all__: list[str] = []

_K = OperatorKind

#: Reductions whose loop depends on whether the innermost axis stays, and the place of their axes.
_BY_AXIS = {"sum": 1, "mean": 1, "amax": 1, "amin": 1, "norm": 2, "linalg_vector_norm": 2}


@formula(
    """
    sum mean amax amin aminmax argmax argmin prod var var_mean std std_mean norm
    linalg_vector_norm all any count_nonzero max min nansum nll_loss_forward
    nll_loss2d_forward mse_loss binary_cross_entropy smooth_l1_loss huber_loss histc bincount
    """
)
def reduction(call: Call) -> list[Kernel]:
    """One FLOP per element read; `max(a, b)` and unreduced losses are elementwise."""
    x, result = call.inputs[0], call.outputs[0]
    if result.shape == x.shape and x.elements > 1:
        return elementwise(call)
    rows = max(result.elements, 1)
    form = (
        "place"
        if call.name.startswith("arg") or (call.name in {"max", "min"} and len(call.outputs) > 1)
        else ""
    )
    inner = _stretch(x, call.argument(_BY_AXIS[call.name], "dim")) if call.name in _BY_AXIS else 0
    dims = (rows, x.elements // rows, inner) if inner else (rows, x.elements // rows)
    form = "outer" if inner else form
    return whole(call, _K.REDUCTION, dims, x.elements, form)


def _stretch(x: Operand, axes: object) -> int:
    """Elements that lie together and are reduced each with others than its neighbours; 0 where
    neighbours are.
    """
    chosen = [
        axis
        for axis in (axes if isinstance(axes, (list, tuple)) else [axes])
        if isinstance(axis, int)
    ]
    if not chosen or not x.shape:
        return 0
    reduced = {axis % len(x.shape) for axis in chosen}
    length = 1
    for axis in sorted(
        (a for a in range(len(x.shape)) if x.shape[a] > 1), key=lambda a: x.stride[a]
    ):
        if axis in reduced or x.stride[axis] != length:
            break
        length *= x.shape[axis]
    return length if length > 1 else 0


@formula("logsumexp")
def logarithm_of_summed_exponentials(call: Call) -> list[Kernel]:
    """The nine kernels that the framework runs (ATen ReduceOps.cpp): the maximum is taken out, and
    added in the end.
    """
    x, result = call.inputs[0], call.outputs[0]
    rows = max(result.elements, 1)
    apart, most = inner_tensor(x, *x.shape), inner_tensor(x, rows)

    def reduced(operand: Operand, result: Operand, suffix: str) -> Kernel:
        return Kernel(
            _K.REDUCTION,
            (rows, x.elements // rows),
            float(x.elements),
            (operand,),
            (result,),
            suffix,
        )

    def each(operands: tuple[Operand, ...], result: Operand, suffix: str, flop: int = 1) -> Kernel:
        count = result.elements
        return Kernel(
            _K.ELEMENTWISE,
            (count, len(operands), flop),
            float(flop * count),
            operands,
            (result,),
            suffix,
        )

    return [
        reduced(x, most, "amax"),
        each((most,), most, "abs"),
        each((most,), most, "eq"),
        each((most,), most, "masked_fill"),
        each((x, most), apart, "sub"),
        each((apart,), apart, "exp", POINTWISE_FLOP["exp"]),
        reduced(apart, result, "sum"),
        each((result,), result, "log", POINTWISE_FLOP["log"]),
        each((result, most), result, "add"),
    ]


@formula("cumsum cumprod logcumsumexp sort argsort kthvalue median cummax cummin")
def scan(call: Call) -> list[Kernel]:
    """One FLOP per element along one axis; without an axis all elements are one row."""
    x = call.inputs[0]
    axis = call.argument(
        2 if call.name == "kthvalue" else 1, "dim", None if call.name == "median" else -1
    )
    if axis is None or not x.shape:
        return whole(call, _K.REDUCTION, (1, x.elements), x.elements)
    rows = rows_of(x, x.shape[int(axis)])
    return [
        Kernel(
            _K.REDUCTION, rows, float(x.elements), call.inputs, call.outputs, across(x, int(axis))
        )
    ]
