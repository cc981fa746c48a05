"""What an ONNX operator is in torch: a registry of one function for each.

A function takes the node and its tensors (None where left out) and returns one tensor or a tuple.
Tensors are on the meta device, except for small constants and what follows from them and from
shapes: sizes, axes, positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from accelsim.errors import CaptureError, InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.capture.onnx.file import MAX_VALUES, OnnxNode

#: ONNX data type -> torch's; formats that only weights are stored in stand as single precision.
_DTYPES: Mapping[str, torch.dtype] = {
    "FLOAT": torch.float32,
    "FLOAT16": torch.float16,
    "DOUBLE": torch.float64,
    "BFLOAT16": torch.bfloat16,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "UINT8": torch.uint8,
    "UINT16": torch.int32,
    "UINT32": torch.int64,
    "UINT64": torch.int64,
    "BOOL": torch.bool,
    **dict.fromkeys(("INT4", "UINT4", "INT2", "UINT2"), torch.int8),
    **dict.fromkeys(
        ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1"),
        torch.float32,
    ),
    "FLOAT8E8M0": torch.float32,
}
#: Domains whose operators are known: ONNX itself, and ONNX Runtime's own.
_DOMAINS = ("", "com.microsoft")


@frozen
class Step:
    """A node as its function sees it.

    Attributes:
        node: The node.
        opset: Version of its domain's operators.
        training: Whether a training step is captured.
    """

    node: OnnxNode
    opset: int
    training: bool = False

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.node.attributes.get(name, default)

    def refuse(self, why: str) -> CaptureError:
        """An error that names the node."""
        return CaptureError(f"ONNX operator {self.node.operator} {self.node.name!r} {why}")


@frozen
class Function:
    """What an operator is in torch.

    Attributes:
        call: Function of the step and its tensors.
        broadcasts: Whether its tensors are broadcast to one shape.
        constants: Places of inputs that are no parameters of the model even where they are
            constants: scales, bounds, running statistics.
        is_shape: Whether shapes alone decide the result.
    """

    call: Callable[..., Any]
    broadcasts: bool = False
    constants: frozenset[int] = field(default_factory=frozenset)
    is_shape: bool = False


#: Operator type -> what it is in torch.
FUNCTIONS: dict[str, Function] = {}


def is_supported(node: OnnxNode) -> bool:
    """Whether an operator is known."""
    return node.domain in _DOMAINS and node.operator in FUNCTIONS


def operator(
    names: str, *constants: int, is_shape: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under operator types, one or several to a text.

    Raises:
        InvalidValueError: If a type is taken.
    """

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            _add(name, Function(call, constants=frozenset(constants), is_shape=is_shape))
        return call

    return register


def elementwise(calls: Mapping[str, Callable[..., Any]], *constants: int) -> None:
    """Register functions of one or more tensors, broadcast to one shape."""
    for name, call in calls.items():
        _add(name, Function(_without_step(call), broadcasts=True, constants=frozenset(constants)))


def _without_step(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _step, *tensors: call(*tensors)


def _add(name: str, function: Function) -> None:
    if name in FUNCTIONS:
        raise InvalidValueError("ONNX operator", name, "a type that is not registered yet")
    FUNCTIONS[name] = function


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of an ONNX data type.

    Raises:
        CaptureError: If torch has none: text, complex numbers.
    """
    if name not in _DTYPES:
        known = ", ".join(_DTYPES)
        raise CaptureError(f"ONNX data type {name} cannot be captured. Known are {known}.")
    return _DTYPES[name]


def sizes_of(x: torch.Tensor) -> list[int]:
    """Whole numbers that a tensor holds: sizes, axes, positions.

    Raises:
        CaptureError: If they depend on data, or are too many.
    """
    if x.numel() > MAX_VALUES:
        raise CaptureError(f"A list of {x.numel():,} sizes or positions is too long.")
    if x.is_meta:
        return [int(one.item()) for one in x.reshape(-1)]
    with _disable_current_modes():
        return [int(one) for one in x.reshape(-1).tolist()]
