"""How elementwise operators and copies walk their operands: against an innermost axis, and in how
many stretches.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from accelsim.workloads.capture.aten import Kernel, Operand
from accelsim.workloads.operator import OperatorKind

__all__ = ["is_strided", "with_runs"]


def is_strided(kernel: Kernel) -> bool:
    """Whether an elementwise operator or a copy walks one of its operands against that operand's
    innermost axis.
    """
    if kernel.kind not in {OperatorKind.ELEMENTWISE, OperatorKind.COPY} or not kernel.writes:
        return False
    target = kernel.writes[0]
    axes = {
        _innermost(x)
        for x in (*kernel.reads, target)
        if x.shape == target.shape and 0 not in x.stride
    }
    return len(axes - {None}) > 1


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
    runs = _run_count(kernel.reads, kernel.writes[0])
    if runs is None:
        return kernel
    dims = (*kernel.dims, *(0,) * (place - len(kernel.dims)), runs)
    even = (
        kernel.kind is OperatorKind.ELEMENTWISE
        and runs > 1
        and _all_go_on(kernel.reads, kernel.writes[0])
    )
    return replace(kernel, dims=(*dims, 1) if even else dims)


def _all_go_on(reads: tuple[Operand, ...], target: Operand) -> bool:
    """Whether every operand goes on along the innermost axis, instead of giving one number to a
    whole stretch.
    """
    axis = next((a for a in range(-1, -len(target.shape) - 1, -1) if target.shape[a] > 1), None)
    sides = [
        (x.shape[axis], x.stride[axis])
        for x in (*reads, target)
        if axis is not None and len(x.shape) >= -axis
    ]
    return len(sides) == len(reads) + 1 and all(side == (sides[-1][0], 1) for side in sides)


def _run_count(reads: tuple[Operand, ...], target: Operand) -> int | None:
    """Stretches of a loop over a result; None where the operands' shapes are not the result's, or
    fill parts of it.
    """
    rank = len(target.shape)
    strides = [target.stride]
    for x in reads:
        shape = (1,) * (rank - len(x.shape)) + tuple(x.shape)
        if len(shape) != rank or any(
            a not in {1, b} for a, b in zip(shape, target.shape, strict=True)
        ):
            return _part_count(reads, target)
        padded = (0,) * (rank - len(x.stride)) + tuple(x.stride)
        strides.append(tuple(0 if a == 1 else s for a, s in zip(shape, padded, strict=True)))
    axes = sorted(
        (a for a in range(rank) if target.shape[a] > 1), key=lambda a: (target.stride[a], -a)
    )
    if not axes:
        return 1
    inner = 1
    for before, axis in zip([None, *axes], axes, strict=False):
        if before is not None and any(s[axis] != s[before] * target.shape[before] for s in strides):
            break
        inner *= target.shape[axis]
    return target.elements // inner


def _part_count(parts: tuple[Operand, ...], target: Operand) -> int | None:
    """Copies that a concatenation makes; None where it is none."""
    rank = len(target.shape)
    for axis in range(rank):
        rest = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in parts if len(x.shape) == rank}
        same = rest == {(*target.shape[:axis], *target.shape[axis + 1 :])}
        if same and sum(x.shape[axis] for x in parts if len(x.shape) == rank) == target.shape[axis]:
            return len(parts) * prod(target.shape[:axis])
    return None


def _innermost(x: Operand) -> int | None:
    """Axis along which a tensor is contiguous, of those longer than 1; None where it has none."""
    return next(
        (axis for axis, size in enumerate(x.shape) if size > 1 and x.stride[axis] == 1), None
    )
