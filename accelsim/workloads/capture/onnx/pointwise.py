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

from accelsim.workloads.capture.onnx.registry import (
    Tensors,
    TorchStep,
    elementwise,
    operator,
    operators,
    torch_dtype,
)

#: Operators that torch has under the same name.
_SAME_NAME = {
    torch: """Relu Sigmoid Tanh Erf Exp Log Sqrt Neg Abs Floor Ceil Round Reciprocal Sign Sin Cos
        Tan Asin Acos Atan Sinh Cosh Selu IsNaN IsInf""",
    functional: "Softplus Softsign HardSwish Mish",
    arithmetic: "Add Sub Mul Pow Mod",
}


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
        name: getattr(library, name.lower())
        for library, names in _SAME_NAME.items()
        for name in names.split()
    }
)
elementwise(
    {
        "Not": torch.logical_not,
        "Identity": lambda x: x,
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
#: Activations with parameters, of which one number changes nothing of the cost.
operators(
    {
        "Gelu": lambda step, x: functional.gelu(x, approximate=step.get("approximate", "none")),
        "Swish": lambda _, x: functional.silu(x),
        "LeakyRelu": lambda _, x: functional.leaky_relu(x),
        "Elu": lambda _, x: functional.elu(x),
        "Celu": lambda _, x: functional.celu(x),
        "HardSigmoid": lambda _, x: functional.hardsigmoid(x),
        "Shrink": lambda _, x: functional.softshrink(x),
        "ThresholdedRelu": lambda _, x: functional.threshold(x, 1.0, 0.0),
        "PRelu": lambda _, x, slope: functional.prelu(x, slope.reshape(-1)),
    }
)
#: Scaling to and from quantised numbers is part of the products on either side; an estimate.
operators(dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), lambda _, x, *_scales: x), 1, 2)


@operator("Clip", 1, 2)
def clip(
    step: TorchStep, x: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> Tensor:
    """Bounds are inputs or, of old versions, attributes."""
    bounds = (_bound(low, step.get("min")), _bound(high, step.get("max")))
    if bounds == (0, 6):
        return functional.relu6(x)
    return x if bounds == (None, None) else torch.clamp(x, *bounds)


def _bound(tensor: Tensor | None, attribute: float | None) -> float | None:
    return attribute if tensor is None or tensor.is_meta else tensor.item()


@operator("Cast CastLike", 1)
def cast(step: TorchStep, x: Tensor, like: Tensor | None = None) -> Tensor:
    """Another data type."""
    from onnx import TensorProto

    name = TensorProto.DataType.Name(step.get("to", 1))
    return x.to(torch_dtype(name) if like is None else like.dtype)


@operator("Dropout", 1, 2)
def dropout(step: TorchStep, x: Tensor, *_: Tensor | None) -> Tensors:
    """Runs in training alone; the mask it gives is of ones otherwise."""
    result = functional.dropout(x, step.get("ratio", 0.5), step.training)
    return (result, x) if len(step.node.outputs) > 1 else result


@operator("DynamicQuantizeLinear")
def rescaled_at_run_time(_: TorchStep, x: Tensor) -> Tensors:
    """The largest and smallest value are sought; the rest is part of the product behind it."""
    low, high = torch.aminmax(x)
    return x, high - low, low
