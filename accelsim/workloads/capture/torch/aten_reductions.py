"""Formulas of ATen reductions and scans: one FLOP per element read, and those that run as several
kernels.
"""

from __future__ import annotations

from accelsim.workloads.capture.torch.aten import (
    Call,
    Kernel,
    Operand,
    formula,
    inner_tensor,
    whole,
)
from accelsim.workloads.capture.torch.aten_memory import across, elementwise, rows_of
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.pointwise import POINTWISE_FLOP

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
    dims, form = (rows, x.elements // rows), ""
    if call.name.startswith("arg") or (call.name in {"max", "min"} and len(call.outputs) > 1):
        form = "place"
    inner = _stretch(x, call.argument(_BY_AXIS[call.name], "dim")) if call.name in _BY_AXIS else 0
    if inner:
        return whole(call, _K.REDUCTION, (*dims, inner), x.elements, "outer")
    return whole(call, _K.REDUCTION, dims, x.elements, form)


def _stretch(x: Operand, axes: object) -> int:
    """Elements that lie together and are reduced each with others than its neighbours; 0 where
    neighbours are.
    """
    listed = axes if isinstance(axes, (list, tuple)) else [axes]
    reduced = {axis % max(len(x.shape), 1) for axis in listed if isinstance(axis, int)}
    if not reduced or not x.shape:
        return 0
    length = 1
    long = [axis for axis, size in enumerate(x.shape) if size > 1]
    for axis in sorted(long, key=lambda axis: x.stride[axis]):
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

    def reduced(result: Operand, source: Operand, suffix: str) -> Kernel:
        return Kernel(_K.REDUCTION, (rows, x.elements // rows), (source,), (result,), suffix)

    def each(result: Operand, suffix: str, *reads: Operand) -> Kernel:
        dims = (result.elements, len(reads), POINTWISE_FLOP.get(suffix, 1))
        return Kernel(_K.ELEMENTWISE, dims, reads, (result,), suffix)

    return [
        reduced(most, x, "amax"),
        each(most, "abs", most),
        each(most, "eq", most),
        each(most, "masked_fill", most),
        each(apart, "sub", x, most),
        each(apart, "exp", apart),
        reduced(result, apart, "sum"),
        each(result, "log", result),
        each(result, "add", result, most),
    ]


@formula("cumsum cumprod logcumsumexp sort argsort kthvalue median cummax cummin")
def scan(call: Call) -> list[Kernel]:
    """One FLOP per element along one axis; without an axis all elements are one row."""
    x = call.inputs[0]
    place, default = {"kthvalue": (2, -1), "median": (1, None)}.get(call.name, (1, -1))
    axis = call.argument(place, "dim", default)
    if axis is None or not x.shape:
        return whole(call, _K.REDUCTION, (1, x.elements), x.elements)
    rows = rows_of(x, x.shape[int(axis)])
    return whole(call, _K.REDUCTION, rows, x.elements, across(x, int(axis)))
