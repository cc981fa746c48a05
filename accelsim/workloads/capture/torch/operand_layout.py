"""In how many stretches elementwise operators and copies walk their operands."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from accelsim.workloads.capture.torch.aten import Kernel, Operand
from accelsim.workloads.operator import OperatorKind


def with_runs(kernel: Kernel) -> Kernel:
    """An elementwise operator or a copy with the stretches that its loops take: elements over those
    of the innermost loop.

    The framework joins axes along which every operand goes on where it left off
    (ATen/TensorIterator.cpp, coalesce_dimensions); a short operand that is used again and again
    ends a stretch. Parts of a concatenation are copied one by one, each as often as axes before the
    joined one say.
    """
    count = {OperatorKind.ELEMENTWISE: 3, OperatorKind.COPY: 4}.get(kernel.kind)
    if count is None or not kernel.writes or len(kernel.dims) > count or any(kernel.dims[3:count]):
        return kernel
    reads, target = kernel.reads, kernel.writes[0]
    runs = _run_count(reads, target)
    if runs is None:
        return kernel
    dims = (*kernel.dims, *(0,) * (count - len(kernel.dims)), runs)
    is_even = kernel.kind is OperatorKind.ELEMENTWISE and runs > 1 and _all_go_on(reads, target)
    return replace(kernel, dims=(*dims, 1) if is_even else dims)


def _all_go_on(reads: tuple[Operand, ...], target: Operand) -> bool:
    """Whether every operand goes on along the innermost axis, instead of giving one number to a
    whole stretch.
    """
    axes = range(-1, -len(target.shape) - 1, -1)
    axis = next((a for a in axes if target.shape[a] > 1), None)
    if axis is None or any(len(x.shape) < -axis for x in reads):
        return False
    size = target.shape[axis]
    return all((x.shape[axis], x.stride[axis]) == (size, 1) for x in (*reads, target))


def _run_count(reads: tuple[Operand, ...], target: Operand) -> int | None:
    """Stretches of a loop over a result (ATen/TensorIterator.cpp); None where the operands'
    shapes are not the result's, or fill parts of it.
    """
    strides = [target.stride]
    for x in reads:
        broadcast = _broadcast_strides(x, target.shape)
        if broadcast is None:
            return _part_count(reads, target)
        strides.append(broadcast)
    long_axes = [axis for axis, size in enumerate(target.shape) if size > 1]
    axes = sorted(long_axes, key=lambda axis: (target.stride[axis], -axis))
    inner = target.shape[axes[0]] if axes else 1
    for before, axis in pairwise(axes):
        if any(s[axis] != s[before] * target.shape[before] for s in strides):
            break
        inner *= target.shape[axis]
    return target.elements // inner if axes else 1


def _broadcast_strides(x: Operand, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of an operand broadcast to a shape; None where it cannot be."""
    missing = len(shape) - len(x.shape)
    sizes = (1,) * missing + x.shape
    if missing < 0 or any(a not in {1, b} for a, b in zip(sizes, shape, strict=True)):
        return None
    strides = (0,) * missing + x.stride
    return tuple(0 if size == 1 else step for size, step in zip(sizes, strides, strict=True))


def _part_count(parts: tuple[Operand, ...], target: Operand) -> int | None:
    """Copies that a concatenation makes; None where it is none."""
    shapes = [x.shape for x in parts if len(x.shape) == len(target.shape)]
    for axis, length in enumerate(target.shape):
        other_sizes = {(*shape[:axis], *shape[axis + 1 :]) for shape in (*shapes, target.shape)}
        if len(other_sizes) == 1 and sum(shape[axis] for shape in shapes) == length and shapes:
            return len(parts) * prod(target.shape[:axis])
    return None
