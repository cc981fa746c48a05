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
    place = {OperatorKind.ELEMENTWISE: 3, OperatorKind.COPY: 4}.get(kernel.kind)
    if place is None or not kernel.writes or len(kernel.dims) > place or any(kernel.dims[3:place]):
        return kernel
    reads, target = kernel.reads, kernel.writes[0]
    runs = _run_count(reads, target)
    if runs is None:
        return kernel
    dims = (*kernel.dims, *(0,) * (place - len(kernel.dims)), runs)
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
    """Stretches of a loop over a result; None where the operands' shapes are not the result's, or
    fill parts of it.
    """
    rank = len(target.shape)
    strides = [target.stride]
    for x in reads:
        missing = rank - len(x.shape)
        sides = list(zip((1,) * missing + x.shape, (0,) * missing + x.stride, strict=True))
        fits = missing >= 0 and all(
            size in {1, most} for (size, _), most in zip(sides, target.shape, strict=True)
        )
        if not fits:
            return _part_count(reads, target)
        strides.append(tuple(0 if size == 1 else step for size, step in sides))
    long = [axis for axis in range(rank) if target.shape[axis] > 1]
    axes = sorted(long, key=lambda axis: (target.stride[axis], -axis))
    inner = target.shape[axes[0]] if axes else 1
    for before, axis in pairwise(axes):
        if any(s[axis] != s[before] * target.shape[before] for s in strides):
            break
        inner *= target.shape[axis]
    return target.elements // inner if axes else 1


def _part_count(parts: tuple[Operand, ...], target: Operand) -> int | None:
    """Copies that a concatenation makes; None where it is none."""
    shapes = [x.shape for x in parts if len(x.shape) == len(target.shape)]
    for axis, length in enumerate(target.shape):
        rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in (*shapes, target.shape)}
        if len(rest) == 1 and sum(shape[axis] for shape in shapes) == length and shapes:
            return len(parts) * prod(target.shape[:axis])
    return None
