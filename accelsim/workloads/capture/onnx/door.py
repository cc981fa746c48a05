"""Captures an ONNX file as a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.errors import CaptureError, InvalidValueError, MissingDependencyError

if TYPE_CHECKING:
    import torch

    from accelsim.workloads.capture.onnx.file import OnnxGraph
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


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Sizes of inputs from texts like ``input=1x3x224x224``.

    Raises:
        InvalidValueError: If a text is not of that form.
    """
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        numbers = sizes.split("x")
        if not name or not all(number.isdecimal() for number in numbers):
            raise InvalidValueError("input", text, "name=1x3x224x224")
        shapes[name] = tuple(map(int, numbers))
    return shapes


def _inputs(graph: OnnxGraph, shapes: Mapping[str, Sequence[int]]) -> tuple[torch.Tensor, ...]:
    """Inputs on the meta device."""
    import torch

    from accelsim.workloads.capture.onnx.registry import torch_dtype

    absent = [name for name in shapes if name not in graph.inputs]
    if absent:
        raise InvalidValueError("input", absent[0], f"one of {', '.join(graph.inputs)}")
    if not graph.inputs:
        raise CaptureError(f"{graph.name or 'The graph'!r} has no inputs: there is nothing to run.")
    return tuple(
        torch.empty(
            _sizes(name, declared.shape, shapes.get(name)),
            dtype=torch_dtype(declared.dtype),
            device="meta",
        )
        for name, declared in graph.inputs.items()
    )


def _sizes(
    name: str, declared: Sequence[int | str | None], shape: Sequence[int] | None
) -> Sequence[int]:
    """Sizes of an input: those of the file, where it leaves them open those given."""
    if shape is None:
        return _declared_sizes(name, declared)
    is_alike = len(shape) == len(declared) and all(
        size == fixed or not isinstance(fixed, int)
        for size, fixed in zip(shape[1:], declared[1:], strict=True)
    )
    if not is_alike or not all(map(_is_size, shape)):
        raise InvalidValueError(f"input {name}", tuple(shape), f"sizes like {_shown(declared)}")
    return shape


def _declared_sizes(name: str, declared: Sequence[int | str | None]) -> list[int]:
    """Sizes that a file says; a first one that is open is 1, the batch."""
    sizes = [1 if index == 0 and not isinstance(x, int) else x for index, x in enumerate(declared)]
    known = [size for size in sizes if isinstance(size, int) and _is_size(size)]
    if len(known) < len(sizes):
        example = "x".join(str(size) if isinstance(size, int) else "128" for size in sizes)
        raise InvalidValueError(
            f"input {name}",
            _shown(declared),
            "sizes that are all known",
            f"Name them: accelsim capture FILE --input {name}={example} --out model.json",
        )
    return known


def _is_size(size: int) -> bool:
    return 0 < size < _MAX_SIZE


def _shown(sizes: Sequence[int | str | None]) -> str:
    return " x ".join("?" if size is None else str(size) for size in sizes)
