"""ONNX operators that move, shape and make tensors."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from accelsim.workloads.capture.onnx.file import MAX_VALUES, OnnxTensor
from accelsim.workloads.capture.onnx.registry import (
    Tensors,
    TorchStep,
    operator,
    operators,
    sizes_of,
    torch_dtype,
)

#: Modes of a resize, by the number of spatial axes.
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _filled(shape: list[int], value: float, dtype: torch.dtype) -> Tensor:
    """A tensor of one value; described alone where it is large."""
    if prod(shape) > MAX_VALUES:
        return torch.empty(shape, dtype=dtype, device="meta")
    return torch.full(shape, value, dtype=dtype)


# -- shapes


operator("Shape", is_shape=True)(
    lambda step, x: torch.tensor(
        list(x.shape)[step.get("start", 0) : step.get("end")], dtype=torch.int64
    )
)
operator("Size", is_shape=True)(lambda _, x: torch.tensor(x.numel()))
operators(
    {
        "Transpose": lambda step, x: x.permute(step.get("perm") or [*reversed(range(x.dim()))]),
        "Expand": lambda _, x, shape: x.expand(torch.broadcast_shapes(x.shape, sizes_of(shape))),
        "Concat": lambda step, *tensors: torch.cat(tensors, step.get("axis", 0)),
        "GatherElements": lambda step, x, index: torch.gather(x, step.get("axis", 0), index),
        "ScatterElements": lambda step, x, index, values: torch.scatter(
            x, step.get("axis", 0), index, values
        ),
        "ScatterND": lambda _, x, index, values: x.index_put(index.unbind(-1), values),
        "DepthToSpace": lambda step, x: functional.pixel_shuffle(x, step.get("blocksize", 1)),
        "SpaceToDepth": lambda step, x: functional.pixel_unshuffle(x, step.get("blocksize", 1)),
        "GridSample": lambda _, x, grid: functional.grid_sample(x, grid, align_corners=False),
        # Data, unless its values are known.
        "NonZero": lambda _, x: torch.nonzero(x).t(),
    }
)
operators({"ReverseSequence": lambda step, x, _: x.flip(step.get("time_axis", 0))}, 1)


@operator("Reshape")
def reshape(step: TorchStep, x: Tensor, shape: Tensor | None = None) -> Tensor:
    """0 stands for the size there was, -1 for what is left."""
    sizes = step.sizes("shape", shape) or []
    if not step.get("allowzero"):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(step: TorchStep, x: Tensor) -> Tensor:
    """To a matrix."""
    return x.reshape(prod(x.shape[: step.get("axis", 1)]), -1)


@operator("Squeeze")
def squeeze(step: TorchStep, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Without axes of size 1."""
    removed = step.sizes("axes", axes)
    return x.squeeze() if removed is None else x.squeeze(tuple(removed))


@operator("Unsqueeze")
def unsqueeze(step: TorchStep, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """With axes of size 1."""
    added = step.sizes("axes", axes) or []
    rank = x.dim() + len(added)
    for axis in sorted(axis % rank for axis in added):
        x = x.unsqueeze(axis)
    return x


@operator("Tile")
def tile(_: TorchStep, x: Tensor, repeats: Tensor) -> Tensor:
    """Repeated along each axis."""
    times = sizes_of(repeats)
    return (x.to("meta") if prod(times) * x.numel() > MAX_VALUES else x).repeat(times)


# -- parts


@operator("Split")
def split(step: TorchStep, x: Tensor, sizes: Tensor | None = None) -> Tensors:
    """Parts of an axis, given or equal."""
    axis = step.get("axis", 0)
    even = -(-x.shape[axis] // max(len(step.node.outputs), 1))
    return tuple(torch.split(x, step.sizes("split", sizes) or even, axis))


@operator("Slice", 1, 2, 3, 4)
def sliced(
    step: TorchStep,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """From, to and by how much, for some axes."""
    first, last = step.sizes("starts", starts), step.sizes("ends", ends)
    if first is None or last is None:
        raise step.refuse("has no start or no end")
    sliced_axes = step.sizes("axes", axes)
    sliced_axes = list(range(len(first))) if sliced_axes is None else sliced_axes
    strides = step.sizes("steps", steps) or [1] * len(first)
    for axis, start, end, stride in zip(sliced_axes, first, last, strides, strict=True):
        bounds = slice(start, end, stride)
        if stride < 0:
            index = torch.arange(x.shape[axis])[slice(start, end if end > -(2**31) else None)]
            x, bounds = x.flip(axis), slice(0, len(index) or None, -stride)
        x = x[(*[slice(None)] * (axis % x.dim()), bounds)]
    return x


@operator("Gather")
def gather(step: TorchStep, x: Tensor, index: Tensor) -> Tensor:
    """Rows of a table, or slices of an axis."""
    axis = step.get("axis", 0)
    if isinstance(x, torch.nn.Parameter) and x.dim() == 2 and axis == 0 and index.is_meta:
        return functional.embedding(index, x)
    if not index.dim() and not index.is_meta:
        return x.select(axis, int(index))
    axis %= x.dim()
    gathered = x.index_select(axis, index.reshape(-1))
    return gathered.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


@operator("GatherND")
def gather_slices(step: TorchStep, x: Tensor, index: Tensor) -> Tensor:
    """Slices that the last axis of the index names."""
    if step.get("batch_dims"):
        raise step.refuse("has batch axes: expected batch_dims 0")
    return x[tuple(index.unbind(-1))]


@operator("Trilu", 1)
def triangle(step: TorchStep, x: Tensor, offset: Tensor | None = None) -> Tensor:
    """What lies above or below a diagonal."""
    call = torch.triu if step.get("upper", 1) else torch.tril
    return call(x, 0 if offset is None else sizes_of(offset)[0])


# -- sizes of images


#: Torch's names of modes that do not pad with a constant.
_PAD_MODES = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}


@operator("Pad", 1, 2, 3)
def pad(
    step: TorchStep,
    x: Tensor,
    pads: Tensor | None = None,
    _value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    """Before and after each axis."""
    sizes = step.sizes("pads", pads) or []
    padded = [axis % x.dim() for axis in (range(x.dim()) if axes is None else sizes_of(axes))]
    if len(sizes) != 2 * len(padded):
        raise step.refuse(f"has {len(sizes)} pads for {len(padded)} axes")
    sides = [(0, 0)] * x.dim()
    for axis, before, after in zip(padded, sizes, sizes[len(padded) :], strict=False):
        sides[axis] = (before, after)
    mode = _PAD_MODES.get(step.get("mode"), "constant")
    while mode != "constant" and len(sides) > 1 and sides[0] == (0, 0):
        sides = sides[1:]
    return functional.pad(x.to("meta"), list(chain.from_iterable(reversed(sides))), mode)


@operator("Resize Upsample", 1, 2, 3)
def resize(step: TorchStep, x: Tensor, *optional: Tensor | None) -> Tensor:
    """Spatial axes to other sizes, given or by factors: inputs are regions (ignored), factors and
    sizes, before version 11 factors alone.
    """
    is_old = step.node.operator == "Upsample" or step.opset < 11
    factors, sizes = [*[None] * is_old, *optional, None, None, None][1:3]
    axes, rank, target = step.get("axes") or range(x.dim()), x.dim() - 2, list(x.shape)
    if sizes is not None and sizes.numel():
        values: Iterable[float] = sizes_of(sizes)
    else:
        ratios = step.get("scales") if factors is None or factors.is_meta else factors.tolist()
        values = (x.shape[axis] * ratio for axis, ratio in zip(axes, ratios or (), strict=True))
    for axis, value in zip(axes, values, strict=True):
        target[axis] = int(value)
    if target[:2] != list(x.shape[:2]) or rank not in _LINEAR:
        raise step.refuse(f"resizes {list(x.shape)} to {target}: expected spatial axes alone")
    mode = {"linear": _LINEAR[rank], "cubic": "bicubic"}.get(step.get("mode"), "nearest")
    return functional.interpolate(x, size=target[2:], mode=mode)


# -- what is made of nothing


@operator("Constant")
def constant(step: TorchStep) -> Tensor:
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
def constant_of_shape(step: TorchStep, shape: Tensor) -> Tensor:
    """One value everywhere."""
    value = step.get("value")
    if not isinstance(value, OnnxTensor) or value.values is None:
        return _filled(sizes_of(shape), 0.0, torch.float32)
    return _filled(sizes_of(shape), value.values.reshape(-1)[0].item(), torch_dtype(value.dtype))


@operator("Range")
def counted(step: TorchStep, *bounds: Tensor) -> Tensor:
    """Numbers at equal distances."""
    if any(x.is_meta for x in bounds):
        raise step.refuse("has a length that depends on data")
    start, stop, stride = (x.item() for x in bounds)
    count, dtype = max(0, -(-(stop - start) // stride)) if stride else 0, bounds[0].dtype
    if count > MAX_VALUES:
        return torch.empty(int(count), dtype=dtype, device="meta")
    return torch.arange(start, stop, stride, dtype=dtype)


@operator("OneHot", 1, 2)
def one_hot(step: TorchStep, index: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """A vector for each index."""
    shape = list(index.shape)
    shape.insert(step.get("axis", -1) % (len(shape) + 1), sizes_of(depth)[0])
    return torch.empty(shape, dtype=values.dtype, device="meta").fill_(0)
