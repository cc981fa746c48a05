"""ONNX operators that move, shape and make tensors."""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accelsim.workloads.capture.onnx.file import MAX_VALUES, OnnxTensor
from accelsim.workloads.capture.onnx.registry import Step, operator, sizes_of, torch_dtype

#: Modes of a resize, by the number of spatial axes.
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _made(shape: list[int], value: Any, dtype: torch.dtype) -> Tensor:
    """A tensor of one value; described alone where it is large."""
    if prod(shape) > MAX_VALUES:
        return torch.empty(shape, dtype=dtype, device="meta")
    return torch.full(shape, value, dtype=dtype)


# -- shapes


@operator("Shape", is_shape=True)
def shape_of(step: Step, x: Tensor) -> Tensor:
    """Sizes, or some of them."""
    start, end = step.get("start", 0), step.get("end")
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


@operator("Size", is_shape=True)
def element_count(step: Step, x: Tensor) -> Tensor:
    """Number of elements."""
    del step
    return torch.tensor(x.numel())


@operator("Reshape")
def reshape(step: Step, x: Tensor, shape: Tensor | None = None) -> Tensor:
    """0 stands for the size there was, -1 for what is left."""
    sizes = list(step.get("shape") or ()) if shape is None else sizes_of(shape)
    if not step.get("allowzero"):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(step: Step, x: Tensor) -> Tensor:
    """To a matrix."""
    axis = int(step.get("axis", 1))
    return x.reshape(prod(x.shape[:axis]), -1)


@operator("Squeeze")
def squeeze(step: Step, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Without axes of size 1."""
    found = step.get("axes") if axes is None else sizes_of(axes)
    return x.squeeze() if found is None else x.squeeze(tuple(found))


@operator("Unsqueeze")
def unsqueeze(step: Step, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """With axes of size 1."""
    found = list(step.get("axes") or ()) if axes is None else sizes_of(axes)
    rank = x.dim() + len(found)
    for axis in sorted(one % rank for one in found):
        x = x.unsqueeze(axis)
    return x


@operator("Transpose")
def transpose(step: Step, x: Tensor) -> Tensor:
    """Axes in another order; turned round where none is given."""
    return x.permute(step.get("perm") or list(reversed(range(x.dim()))))


@operator("Expand")
def expand(step: Step, x: Tensor, shape: Tensor) -> Tensor:
    """Broadcast to a shape."""
    del step
    return x.expand(torch.broadcast_shapes(x.shape, tuple(sizes_of(shape))))


@operator("Tile")
def tile(step: Step, x: Tensor, repeats: Tensor) -> Tensor:
    """Repeated along each axis."""
    del step
    times = sizes_of(repeats)
    if prod(times) * x.numel() > MAX_VALUES:
        x = x.to("meta")
    return x.repeat(times)


# -- parts


@operator("Concat")
def concatenation(step: Step, *tensors: Tensor) -> Tensor:
    """Along an axis."""
    return torch.cat(list(tensors), int(step.get("axis", 0)))


@operator("Split")
def split(step: Step, x: Tensor, sizes: Tensor | None = None) -> Any:
    """Parts of an axis, given or equal."""
    axis = int(step.get("axis", 0))
    given = step.get("split") if sizes is None else sizes_of(sizes)
    count = len(step.node.outputs)
    return tuple(torch.split(x, given or -(-x.shape[axis] // max(count, 1)), axis))


@operator("Slice", 1, 2, 3, 4)
def part(step: Step, x: Tensor, *given: Tensor | None) -> Tensor:
    """From, to and by how much, for some axes."""
    starts, ends, axes, steps = (
        step.get(name) if place >= len(given) or given[place] is None else sizes_of(given[place])
        for place, name in enumerate(("starts", "ends", "axes", "steps"))
    )
    if starts is None or ends is None:
        raise step.refuse("has no start or no end")
    axes = list(range(len(starts))) if axes is None else axes
    for start, end, axis, by in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        if by < 0:
            index = torch.arange(x.shape[axis])[slice(start, end if end > -(2**31) else None)]
            x = x.flip(axis)[_along(x, axis, slice(0, len(index) or None, -by))]
        else:
            x = x[_along(x, axis, slice(start, end, by))]
    return x


def _along(x: Tensor, axis: int, wanted: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * (axis % x.dim()), wanted)


@operator("Gather")
def gather(step: Step, x: Tensor, index: Tensor) -> Tensor:
    """Rows of a table, or slices of an axis."""
    axis = int(step.get("axis", 0))
    if isinstance(x, torch.nn.Parameter) and x.dim() == 2 and axis == 0 and index.is_meta:
        return functional.embedding(index, x)
    if not index.dim():
        return x.select(axis, int(index)) if not index.is_meta else _at(x, axis, index)
    axis %= x.dim()
    found = x.index_select(axis, index.reshape(-1))
    return found.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _at(x: Tensor, axis: int, index: Tensor) -> Tensor:
    return x.index_select(axis, index.reshape(1)).squeeze(axis)


@operator("GatherElements")
def gather_elements(step: Step, x: Tensor, index: Tensor) -> Tensor:
    """One element for each of the index."""
    return torch.gather(x, int(step.get("axis", 0)), index)


@operator("GatherND")
def gather_slices(step: Step, x: Tensor, index: Tensor) -> Tensor:
    """Slices that the last axis of the index names."""
    if step.get("batch_dims"):
        raise step.refuse("has batch axes: expected batch_dims 0")
    return x[tuple(index.unbind(-1))]


@operator("ScatterElements")
def scatter_elements(step: Step, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """One element for each of the index, in a copy."""
    return torch.scatter(x, int(step.get("axis", 0)), index, values)


@operator("ScatterND")
def scatter_slices(step: Step, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Slices that the last axis of the index names, in a copy."""
    del step
    return x.index_put(index.unbind(-1), values)


@operator("Trilu", 1)
def triangle(step: Step, x: Tensor, offset: Tensor | None = None) -> Tensor:
    """What lies above or below a diagonal."""
    call = torch.triu if step.get("upper", 1) else torch.tril
    return call(x, 0 if offset is None else sizes_of(offset)[0])


@operator("ReverseSequence", 1)
def reversed_sequence(step: Step, x: Tensor, lengths: Tensor) -> Tensor:
    """Turned round along the time axis."""
    del lengths
    return x.flip(int(step.get("time_axis", 0)))


# -- sizes of images


@operator("Pad", 1, 2, 3)
def pad(step: Step, x: Tensor, *given: Tensor | None) -> Tensor:
    """Before and after each axis."""
    pads = step.get("pads") if not given or given[0] is None else sizes_of(given[0])
    axes = range(x.dim()) if len(given) < 3 or given[2] is None else sizes_of(given[2])
    pads, axes = list(pads or ()), [axis % x.dim() for axis in axes]
    if len(pads) != 2 * len(axes):
        raise step.refuse(f"has {len(pads)} pads for {len(axes)} axes")
    sides = [(0, 0)] * x.dim()
    for place, axis in enumerate(axes):
        sides[axis] = (pads[place], pads[place + len(axes)])
    mode = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}.get(
        step.get("mode", "constant"), "constant"
    )
    while mode != "constant" and len(sides) > 1 and sides[0] == (0, 0):
        sides = sides[1:]
    return functional.pad(x.to("meta"), list(chain.from_iterable(reversed(sides))), mode)


@operator("Resize Upsample", 1, 2, 3)
def resize(step: Step, x: Tensor, *given: Tensor | None) -> Tensor:
    """Spatial axes to other sizes, given or by factors."""
    is_old = step.node.operator == "Upsample" or step.opset < 11
    scales, sizes = ([*given, None, None, None][place] for place in ((0, 3) if is_old else (1, 2)))
    rank, axes = x.dim() - 2, step.get("axes")
    target: list[int] = list(x.shape)
    places = list(range(x.dim())) if axes is None else [int(axis) for axis in axes]
    if sizes is not None and sizes.numel():
        values: list[float] = [float(size) for size in sizes_of(sizes)]
    else:
        factors = step.get("scales") if scales is None or scales.is_meta else scales.tolist()
        values = [x.shape[p] * f for p, f in zip(places, factors or (), strict=True)]
    for place, value in zip(places, values, strict=True):
        target[place] = int(value)
    if target[:2] != list(x.shape[:2]) or rank not in _LINEAR:
        raise step.refuse(f"resizes {list(x.shape)} to {target}: expected spatial axes alone")
    mode = {"linear": _LINEAR[rank], "cubic": "bicubic"}.get(step.get("mode", "nearest"), "nearest")
    return functional.interpolate(x, size=target[2:], mode=mode)


@operator("DepthToSpace")
def depth_to_space(step: Step, x: Tensor) -> Tensor:
    """Channels to blocks of pixels."""
    return functional.pixel_shuffle(x, int(step.get("blocksize", 1)))


@operator("SpaceToDepth")
def space_to_depth(step: Step, x: Tensor) -> Tensor:
    """Blocks of pixels to channels."""
    return functional.pixel_unshuffle(x, int(step.get("blocksize", 1)))


@operator("GridSample")
def grid_sample(step: Step, x: Tensor, grid: Tensor) -> Tensor:
    """Values between the pixels that a grid names."""
    del step
    return functional.grid_sample(x, grid, align_corners=False)


# -- what is made of nothing


@operator("Constant")
def constant(step: Step) -> Tensor:
    """A tensor of the file."""
    for name, value in step.node.attributes.items():
        if isinstance(value, OnnxTensor):
            if value.values is not None:
                return torch.from_numpy(np.array(value.values))
            return torch.empty(value.shape, dtype=torch_dtype(value.dtype), device="meta")
        if name in {"value_int", "value_ints"}:
            return torch.tensor(value, dtype=torch.int64)
        if name in {"value_float", "value_floats"}:
            return torch.tensor(value, dtype=torch.float32)
    raise step.refuse("has no value")


@operator("ConstantOfShape")
def filled(step: Step, shape: Tensor) -> Tensor:
    """One value in every place."""
    given = step.get("value")
    if not isinstance(given, OnnxTensor) or given.values is None:
        return _made(sizes_of(shape), 0.0, torch.float32)
    return _made(sizes_of(shape), given.values.reshape(-1)[0].item(), torch_dtype(given.dtype))


@operator("Range")
def counted(step: Step, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """Numbers at equal distances."""
    if any(x.is_meta for x in (start, limit, delta)):
        raise step.refuse("has a length that depends on data")
    first, last, by = (x.item() for x in (start, limit, delta))
    count = max(0, -(-(last - first) // by)) if by else 0
    if count > MAX_VALUES:
        return torch.empty(int(count), dtype=start.dtype, device="meta")
    return torch.arange(first, last, by, dtype=start.dtype)


@operator("OneHot", 1, 2)
def one_hot(step: Step, index: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """A vector for each index."""
    axis, (count, *_) = int(step.get("axis", -1)), sizes_of(depth)
    shape = list(index.shape)
    shape.insert(axis % (len(shape) + 1), count)
    return torch.empty(shape, dtype=values.dtype, device="meta").fill_(0)


@operator("NonZero")
def places_of_nonzero(step: Step, x: Tensor) -> Tensor:
    """Where a tensor is not zero; data, unless its values are known."""
    del step
    return torch.nonzero(x).t()
