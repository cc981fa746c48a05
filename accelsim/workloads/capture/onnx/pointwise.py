"""ONNX operators of one element each, and those that quantise.

A runtime runs a product of quantised tensors in their format; `QuantizeLinear` and
`DequantizeLinear` around it are part of its kernel, so that they cost nothing of their own here.
"""

from __future__ import annotations

import operator as arithmetic
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from accelsim.workloads.capture.onnx.registry import Step, elementwise, operator, torch_dtype


def _sum(*tensors: Tensor) -> Tensor:
    return reduce(arithmetic.add, tensors)


def _quotient(a: Any, b: Any) -> Any:
    """Whole numbers are divided to whole numbers."""
    is_whole = not any(
        x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, float) for x in (a, b)
    )
    return torch.div(a, b, rounding_mode="trunc") if is_whole else a / b


elementwise(
    {
        "Relu": functional.relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Erf": torch.erf,
        "Exp": torch.exp,
        "Log": torch.log,
        "Sqrt": torch.sqrt,
        "Neg": torch.neg,
        "Abs": torch.abs,
        "Floor": torch.floor,
        "Ceil": torch.ceil,
        "Round": torch.round,
        "Reciprocal": torch.reciprocal,
        "Sign": torch.sign,
        "Sin": torch.sin,
        "Cos": torch.cos,
        "Tan": torch.tan,
        "Asin": torch.asin,
        "Acos": torch.acos,
        "Atan": torch.atan,
        "Sinh": torch.sinh,
        "Cosh": torch.cosh,
        "Softplus": functional.softplus,
        "Softsign": functional.softsign,
        "HardSwish": functional.hardswish,
        "Mish": functional.mish,
        "Selu": functional.selu,
        "Not": torch.logical_not,
        "IsNaN": torch.isnan,
        "IsInf": torch.isinf,
        "Identity": lambda x: x,
        "Add": arithmetic.add,
        "Sub": arithmetic.sub,
        "Mul": arithmetic.mul,
        "Pow": arithmetic.pow,
        "Mod": arithmetic.mod,
        "Equal": arithmetic.eq,
        "Less": arithmetic.lt,
        "LessOrEqual": arithmetic.le,
        "Greater": arithmetic.gt,
        "GreaterOrEqual": arithmetic.ge,
        "And": torch.logical_and,
        "Or": torch.logical_or,
        "Xor": torch.logical_xor,
        "Div": _quotient,
        "Max": lambda *tensors: reduce(torch.maximum, map(torch.as_tensor, tensors)),
        "Min": lambda *tensors: reduce(torch.minimum, map(torch.as_tensor, tensors)),
        "Sum": _sum,
        "Mean": lambda *tensors: _sum(*tensors) / len(tensors),
        "FastGelu": lambda x, *bias: functional.gelu(_sum(x, *bias), approximate="tanh"),
        "BiasGelu": lambda x, *bias: functional.gelu(_sum(x, *bias)),
        "QuickGelu": lambda x: x * torch.sigmoid(1.702 * x),
    }
)
elementwise({"Where": torch.where}, 0, 1, 2)


@operator("Clip", 1, 2)
def clip(step: Step, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Bounds are inputs or, of old versions, attributes."""
    bounds = (_bound(low, step.get("min")), _bound(high, step.get("max")))
    if bounds == (0, 6):
        return functional.relu6(x)
    return x if bounds == (None, None) else torch.clamp(x, *bounds)


def _bound(given: Tensor | None, attribute: float | None) -> Any:
    if given is None or given.is_meta:
        return attribute
    return given.item()


@operator("Gelu")
def gelu(step: Step, x: Tensor) -> Tensor:
    """Exact, or by tanh."""
    return functional.gelu(x, approximate=step.get("approximate", "none"))


@operator("Swish")
def swish(step: Step, x: Tensor) -> Tensor:
    """x sigmoid(alpha x)."""
    del step
    return functional.silu(x)


@operator("LeakyRelu Elu Celu ThresholdedRelu HardSigmoid Shrink")
def bent(step: Step, x: Tensor) -> Tensor:
    """Activations of one parameter, which changes nothing of their cost."""
    calls: dict[str, Any] = {
        "LeakyRelu": functional.leaky_relu,
        "Elu": functional.elu,
        "Celu": functional.celu,
        "HardSigmoid": functional.hardsigmoid,
        "Shrink": functional.softshrink,
    }
    if step.node.operator == "ThresholdedRelu":
        return functional.threshold(x, 1.0, 0.0)
    return calls[step.node.operator](x)


@operator("PRelu")
def parametric_relu(step: Step, x: Tensor, slope: Tensor) -> Tensor:
    """A slope for each channel, or one."""
    del step
    return functional.prelu(x, slope.reshape(-1))


@operator("Cast CastLike", 1)
def cast(step: Step, x: Tensor, like: Tensor | None = None) -> Tensor:
    """Another data type."""
    if like is not None:
        return x.to(like.dtype)
    from onnx import TensorProto

    return x.to(torch_dtype(TensorProto.DataType.Name(step.get("to", 1))))


@operator("Dropout", 1, 2)
def dropout(step: Step, x: Tensor, *_: Tensor | None) -> Any:
    """Runs in training alone; the mask it gives is of ones otherwise."""
    ratio = float(step.get("ratio", 0.5))
    kept = functional.dropout(x, ratio, step.training)
    return (kept, x) if len(step.node.outputs) > 1 else kept


@operator("QuantizeLinear DequantizeLinear", 1, 2)
def rescaled(step: Step, x: Tensor, *_: Tensor | None) -> Tensor:
    """Part of the products on either side; an estimate."""
    del step
    return x


@operator("DynamicQuantizeLinear")
def rescaled_at_run_time(step: Step, x: Tensor) -> Any:
    """The largest and smallest value are sought; the rest is part of the product behind it."""
    del step
    low, high = torch.aminmax(x)
    return x, high - low, low
