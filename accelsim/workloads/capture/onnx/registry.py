"""What an ONNX operator is in torch: a registry of one function for each.

A function takes the node and its tensors (None where left out) and returns one tensor or a tuple.
Tensors are on the meta device, except for small constants and what follows from them and from
shapes: sizes, axes, positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from accelsim.errors import CaptureError, InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.capture.onnx.file import MAX_VALUES, OnnxNode

#: Data types of ONNX by torch's; formats that only weights are stored in stand as single precision.
_DTYPE_NAMES = {
    torch.float32: """FLOAT FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT4E2M1
        FLOAT8E8M0""",
    torch.float16: "FLOAT16",
    torch.float64: "DOUBLE",
    torch.bfloat16: "BFLOAT16",
    torch.int8: "INT8 INT4 UINT4 INT2 UINT2",
    torch.int16: "INT16",
    torch.int32: "INT32 UINT16",
    torch.int64: "INT64 UINT32 UINT64",
    torch.uint8: "UINT8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, names in _DTYPE_NAMES.items() for name in names.split()}
#: Domains whose operators are known: ONNX itself, and ONNX Runtime's own.
DOMAINS = ("", "com.microsoft")


#: What an operator gives.
Tensors = torch.Tensor | tuple[torch.Tensor, ...]
_Call = Callable[..., Any]


@frozen
class TorchStep:
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

    def sizes(self, name: str, tensor: torch.Tensor | None) -> list[int] | None:
        """Sizes, axes or positions: an input, or of old versions an attribute; None for neither."""
        sizes = self.get(name) if tensor is None else sizes_of(tensor)
        return None if sizes is None else list(sizes)

    def refuse(self, why: str) -> CaptureError:
        """An error that names the node."""
        return CaptureError(f"ONNX operator {self.node.operator} {self.node.name!r} {why}")


@frozen
class Function:
    """What an operator is in torch.

    Attributes:
        call: Function of the step and its tensors.
        broadcasts: Whether its tensors are broadcast to one shape.
        constants: Indices of inputs that are no parameters of the model even where they are
            constants: scales, bounds, running statistics.
        is_shape: Whether shapes alone decide the result.
    """

    call: _Call
    broadcasts: bool = False
    constants: frozenset[int] = frozenset()
    is_shape: bool = False


#: Operator type -> what it is in torch.
FUNCTIONS: dict[str, Function] = {}


def operator(names: str, *constants: int, **traits: bool) -> Callable[[_Call], _Call]:
    """Register a function under operator types, one or several to a text.

    Args:
        names: Operator types.
        *constants: As of `Function`.
        **traits: Other attributes of `Function`.

    Raises:
        InvalidValueError: If a type is taken.
    """

    def register(call: _Call) -> _Call:
        for name in names.split():
            if name in FUNCTIONS:
                raise InvalidValueError("ONNX operator", name, "a type that is not registered yet")
            FUNCTIONS[name] = Function(call, constants=frozenset(constants), **traits)
        return call

    return register


def operators(calls: Mapping[str, _Call], *constants: int) -> None:
    """Register functions of the step and its tensors by operator type."""
    for name, call in calls.items():
        operator(name, *constants)(call)


def elementwise(calls: Mapping[str, _Call], *constants: int) -> None:
    """Register functions of one or more tensors, broadcast to one shape."""
    for name, call in calls.items():
        operator(name, *constants, broadcasts=True)(_without_step(call))


def _without_step(call: _Call) -> _Call:
    return lambda _step, *tensors: call(*tensors)


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of an ONNX data type.

    Raises:
        CaptureError: If torch has none: text, complex numbers.
    """
    if name not in _DTYPES:
        names = ", ".join(_DTYPES)
        raise CaptureError(f"ONNX data type {name} cannot be captured. Known are {names}.")
    return _DTYPES[name]


def sizes_of(x: torch.Tensor) -> list[int]:
    """Whole numbers that a tensor holds: sizes, axes, positions.

    Raises:
        CaptureError: If they depend on data, or are too many.
    """
    if x.numel() > MAX_VALUES:
        raise CaptureError(f"A list of {x.numel():,} sizes or positions is too long.")
    if x.is_meta:
        return [int(size.item()) for size in x.reshape(-1)]
    with _disable_current_modes():
        return [int(size) for size in x.reshape(-1).tolist()]
