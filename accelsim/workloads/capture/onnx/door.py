"""Captures an ONNX file as a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.errors import CaptureError, InvalidValueError, MissingDependencyError

if TYPE_CHECKING:
    import torch

    from accelsim.workloads.capture.onnx.file import OnnxGraph, OnnxInput
    from accelsim.workloads.model import Workload


_MAX_SIZE = 2**31


def capture_onnx(
    path: Path | str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    training: bool = False,
    optimizer: str | None = None,
    *,
    name: str | None = None,
    precision: str | None = None,
    **options: Any,
) -> Workload:
    """Capture an ONNX file as a workload, without reading its weights.

    Args:
        path: The file.
        shapes: Sizes of inputs by name, for those that the file leaves open; a first size that is
            open is 1, the batch.
        training: As of `capture`.
        optimizer: As of `capture`.
        name: Name of the workload; the file's unless given.
        precision: Policy of bytes; that of the file's weights unless given.
        **options: Other keywords of `capture`.

    Raises:
        MissingDependencyError: If onnx or torch is not installed.
        ProfileError: If the file cannot be read.
        CaptureError: If it has operators that are not known, or does not run on those shapes.
        InvalidValueError: If a size is missing, or no input has that name.
    """
    from accelsim.workloads.capture.onnx.file import read_onnx

    graph = read_onnx(path)
    try:
        from accelsim.workloads.capture.onnx.module import OnnxModule, weight_type
        from accelsim.workloads.capture.torch.module import capture
    except ImportError:
        raise MissingDependencyError("torch", "onnx") from None
    inputs = _inputs(graph, shapes or {})
    return capture(
        OnnxModule(graph),
        inputs,
        training,
        optimizer,
        name=name or Path(path).stem,
        precision=precision or weight_type(graph),
        **options,
    )


def parse_shapes(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Sizes of inputs from words like ``input=1x3x224x224``.

    Raises:
        InvalidValueError: If a word is not of that form.
    """
    shapes = {}
    for word in given:
        name, equals, sizes = word.rpartition("=")
        parts = sizes.split("x")
        if not equals or not name or not all(part.isdecimal() for part in parts):
            raise InvalidValueError("input", word, "name=1x3x224x224")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def _inputs(graph: OnnxGraph, shapes: Mapping[str, Sequence[int]]) -> tuple[torch.Tensor, ...]:
    """Inputs on the meta device."""
    absent = [name for name in shapes if name not in graph.inputs]
    if absent:
        raise InvalidValueError("input", absent[0], f"one of {', '.join(graph.inputs)}")
    if not graph.inputs:
        raise CaptureError(f"{graph.name or 'The graph'!r} has no inputs: there is nothing to run.")
    return tuple(_empty(name, one, shapes.get(name)) for name, one in graph.inputs.items())


def _empty(name: str, given: OnnxInput, shape: Sequence[int] | None) -> torch.Tensor:
    import torch

    from accelsim.workloads.capture.onnx.registry import torch_dtype

    sizes = _sizes(name, given, shape)
    return torch.empty(sizes, dtype=torch_dtype(given.dtype), device="meta")


def _sizes(name: str, given: OnnxInput, shape: Sequence[int] | None) -> list[int]:
    """Sizes of an input: those of the file, where it leaves them open those given."""
    fixed = given.shape
    if shape is not None:
        agree = len(shape) == len(fixed) and all(
            index == 0 or not isinstance(b, int) or a == b
            for index, (a, b) in enumerate(zip(shape, fixed, strict=True))
        )
        if not agree or not all(0 < size < _MAX_SIZE for size in shape):
            raise InvalidValueError(f"input {name}", tuple(shape), f"sizes like {_shown(fixed)}")
        return list(shape)
    sizes = [
        1 if index == 0 and not isinstance(one, int) else one for index, one in enumerate(fixed)
    ]
    if not all(isinstance(one, int) and 0 < one < _MAX_SIZE for one in sizes):
        example = "x".join(str(one) if isinstance(one, int) else "128" for one in sizes)
        raise InvalidValueError(
            f"input {name}",
            _shown(fixed),
            "sizes that are all known",
            f"Name them: accelsim capture FILE --input {name}={example} --out model.json",
        )
    return [int(one) for one in sizes if one is not None]


def _shown(sizes: Sequence[int | str | None]) -> str:
    return " x ".join("?" if size is None else str(size) for size in sizes)
