"""ONNX operators that normalise, pool and reduce."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from accelsim.workloads.capture.onnx.contractions import padded, window_padding
from accelsim.workloads.capture.onnx.registry import Step, operator, sizes_of

_POOLS: dict[str, Any] = {
    "MaxPool": (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d),
    "AveragePool": (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d),
    "GlobalAveragePool": (
        functional.adaptive_avg_pool1d,
        functional.adaptive_avg_pool2d,
        functional.adaptive_avg_pool3d,
    ),
    "GlobalMaxPool": (
        functional.adaptive_max_pool1d,
        functional.adaptive_max_pool2d,
        functional.adaptive_max_pool3d,
    ),
}


# -- norms


@operator("BatchNormalization", 3, 4)
def batch_norm(step: Step, x: Tensor, scale: Tensor, bias: Tensor, *running: Tensor) -> Tensor:
    """By running statistics, or in training by those of the batch."""
    mean, variance, *_ = running
    return functional.batch_norm(x, mean, variance, scale, bias, training=step.training)


@operator("LayerNormalization SkipLayerNormalization")
def layer_norm(step: Step, x: Tensor, *tensors: Tensor | None) -> Any:
    """Over the last axes; ONNX Runtime's takes a residual in first."""
    if step.node.operator == "SkipLayerNormalization":
        x, tensors = _residual(x, tensors)
    axis = int(step.get("axis", -1)) % x.dim()
    scale, bias = [*tensors, None, None][:2]
    normal = functional.layer_norm(x, list(x.shape[axis:]), scale, bias)
    return (normal, x, x, x) if len(step.node.outputs) > 1 else normal


@operator("RMSNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization")
def rms_norm(step: Step, x: Tensor, *tensors: Tensor | None) -> Any:
    """Over the last axes, likewise."""
    if step.node.operator.startswith("Skip"):
        x, tensors = _residual(x, tensors)
    axis = int(step.get("axis", -1)) % x.dim()
    normal = functional.rms_norm(x, list(x.shape[axis:]), tensors[0] if tensors else None)
    return (normal, x, x, x) if len(step.node.outputs) > 1 else normal


def _residual(x: Tensor, tensors: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
    return x + tensors[0], tensors[1:]


@operator("InstanceNormalization")
def instance_norm(step: Step, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Each channel of each sample."""
    del step
    return functional.instance_norm(x, weight=scale, bias=bias)


@operator("GroupNormalization")
def group_norm(step: Step, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Groups of channels."""
    return functional.group_norm(x, int(step.get("num_groups", 1)), scale, bias)


@operator("LRN")
def local_norm(step: Step, x: Tensor) -> Tensor:
    """Over neighbouring channels."""
    return functional.local_response_norm(x, int(step.get("size", 1)))


@operator("LpNormalization")
def unit_norm(step: Step, x: Tensor) -> Tensor:
    """To length 1."""
    return functional.normalize(x, float(step.get("p", 2)), int(step.get("axis", -1)))


@operator("Softmax LogSoftmax")
def softmax(step: Step, x: Tensor) -> Tensor:
    """Over one axis; before version 13 over all from it on."""
    call = torch.softmax if step.node.operator == "Softmax" else torch.log_softmax
    if step.opset >= 13:
        return call(x, int(step.get("axis", -1)))
    axis = int(step.get("axis", 1)) % x.dim()
    return call(x.flatten(axis), axis).reshape(x.shape)


# -- pools


@operator("MaxPool AveragePool")
def pool(step: Step, x: Tensor) -> Tensor:
    """Windows of one, two or three axes."""
    window = list(step.get("kernel_shape") or ())
    if not 1 <= len(window) <= 3:
        raise step.refuse(f"has a window of {len(window)} axes: expected 1 to 3")
    stride = list(step.get("strides") or [1] * len(window))
    is_max = step.node.operator == "MaxPool"
    before, after = window_padding(step, list(x.shape[2:]), window)
    wide = any(2 * pad > size for pad, size in zip(before, window, strict=True))
    value = float("-inf") if is_max else 0.0
    x, padding = padded(x, before, after, value, apart=wide)  # torch pads half a window at most
    call, ceil = _POOLS[step.node.operator][len(window) - 1], bool(step.get("ceil_mode"))
    if not is_max:
        return call(x, window, stride, padding, ceil, bool(step.get("count_include_pad")))
    dilation = list(step.get("dilations") or [1] * len(window))
    return call(x, window, stride, padding, dilation, ceil)


@operator("GlobalAveragePool GlobalMaxPool")
def global_pool(step: Step, x: Tensor) -> Tensor:
    """One value for each channel."""
    rank = x.dim() - 2
    if not 1 <= rank <= 3:
        raise step.refuse(f"takes {x.dim()} axes: expected 3 to 5")
    return _POOLS[step.node.operator][rank - 1](x, [1] * rank)


# -- reductions


def _axes(step: Step, x: Tensor, given: Tensor | None) -> list[int]:
    """Axes of a reduction: an input, or of old versions an attribute; all by default."""
    axes = step.get("axes") if given is None else sizes_of(given)
    if axes:
        return list(axes)
    return [] if step.get("noop_with_empty_axes") else list(range(x.dim()))


@operator(
    "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum "
    "ReduceLogSumExp ReduceSumSquare"
)
def reduction(step: Step, x: Tensor, given: Tensor | None = None) -> Tensor:
    """Over some axes."""
    axes, keep = _axes(step, x, given), bool(step.get("keepdims", 1))
    if not axes:
        return x
    name = step.node.operator.removeprefix("Reduce")
    if name == "Prod":
        kept = [axis for axis in range(x.dim()) if axis not in {a % x.dim() for a in axes}]
        flat = x.permute([*kept, *axes]).reshape([*(x.shape[a] for a in kept), -1]).prod(-1)
        shape = [1 if a not in kept else x.shape[a] for a in range(x.dim())]
        return flat.reshape(shape) if keep else flat
    calls: dict[str, Any] = {
        "Mean": torch.mean,
        "Sum": torch.sum,
        "Max": torch.amax,
        "Min": torch.amin,
        "LogSumExp": torch.logsumexp,
        "L1": lambda y, a, k: torch.linalg.vector_norm(y, 1, a, k),
        "L2": lambda y, a, k: torch.linalg.vector_norm(y, 2, a, k),
        "LogSum": lambda y, a, k: torch.log(torch.sum(y, a, k)),
        "SumSquare": lambda y, a, k: torch.sum(y * y, a, k),
    }
    return calls[name](x, axes, keep)


@operator("ArgMax ArgMin")
def place_of_extreme(step: Step, x: Tensor) -> Tensor:
    """Where the largest or smallest lies."""
    call = torch.argmax if step.node.operator == "ArgMax" else torch.argmin
    return call(x, int(step.get("axis", 0)), bool(step.get("keepdims", 1)))


@operator("TopK")
def largest(step: Step, x: Tensor, count: Tensor | None = None) -> Any:
    """The largest of an axis and where they lie."""
    k = int(step.get("k", 1)) if count is None else prod(sizes_of(count))
    return tuple(torch.topk(x, k, int(step.get("axis", -1))))


@operator("CumSum", 1)
def running_sum(step: Step, x: Tensor, axis: Tensor) -> Tensor:
    """Along an axis."""
    del step
    return torch.cumsum(x, sizes_of(axis)[0])
