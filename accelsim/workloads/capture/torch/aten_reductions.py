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
    names,
    single_kernel,
)
from accelsim.workloads.capture.torch.aten_memory import across, elementwise, rows_along
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.pointwise import POINTWISE_FLOP

_K = OperatorKind

#: Reductions whose loop depends on whether the innermost axis stays.
_BY_AXIS = names("sum mean amax amin norm linalg_vector_norm")


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
    inner = _inner_stretch(x, call.arguments.get("dim")) if call.name in _BY_AXIS else 0
    if inner:
        return single_kernel(call, _K.REDUCTION, (*dims, inner), x.elements, "outer")
    return single_kernel(call, _K.REDUCTION, dims, x.elements, form)


def _inner_stretch(x: Operand, axes: object) -> int:
    """Elements that lie together and are reduced each with others than its neighbours; 0 where
    neighbours are.
    """
    listed = axes if isinstance(axes, (list, tuple)) else [axes]
    reduced = {axis % max(len(x.shape), 1) for axis in listed if isinstance(axis, int)}
    if not reduced or not x.shape:
        return 0
    length = 1
    long_axes = [axis for axis, size in enumerate(x.shape) if size > 1]
    for axis in sorted(long_axes, key=lambda axis: x.stride[axis]):
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
    differences, maxima = inner_tensor(x, *x.shape), inner_tensor(x, rows)

    def reduced(result: Operand, source: Operand, suffix: str) -> Kernel:
        return Kernel(_K.REDUCTION, (rows, x.elements // rows), (source,), (result,), suffix)

    def pointwise(result: Operand, suffix: str, *reads: Operand) -> Kernel:
        dims = (result.elements, len(reads), POINTWISE_FLOP.get(suffix, 1))
        return Kernel(_K.ELEMENTWISE, dims, reads, (result,), suffix)

    return [
        reduced(maxima, x, "amax"),
        pointwise(maxima, "abs", maxima),
        pointwise(maxima, "eq", maxima),
        pointwise(maxima, "masked_fill", maxima),
        pointwise(differences, "sub", x, maxima),
        pointwise(differences, "exp", differences),
        reduced(result, differences, "sum"),
        pointwise(result, "log", result),
        pointwise(result, "add", result, maxima),
    ]


@formula("cumsum cumprod logcumsumexp sort argsort kthvalue median cummax cummin")
def scan(call: Call) -> list[Kernel]:
    """One FLOP per element along one axis; without an axis all elements are one row."""
    x = call.inputs[0]
    axis = call.arguments.get("dim")
    if axis is None or not x.shape:
        return single_kernel(call, _K.REDUCTION, (1, x.elements), x.elements)
    rows = rows_along(x, axis)
    return single_kernel(call, _K.REDUCTION, rows, x.elements, across(x, axis))
