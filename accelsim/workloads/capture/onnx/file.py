"""Reads ONNX files without their weights.

An ONNX file is a protocol buffer whose weights are fields of their tensors, or lie in files beside
it (https://onnx.ai/onnx/repo-docs/ExternalData.html). Neither is read: the fields of a large tensor
are skipped on the way, so that memory is bounded by the graph. Field numbers are those of
``onnx.proto``; the wire format is https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import MissingDependencyError, ProfileError
from accelsim.files.plainfile import open_plain
from accelsim.frozen import frozen
from accelsim.plain import Values

#: Largest tensor whose values are kept, in elements.
MAX_VALUES = 4096
#: Largest tensor, in elements, and deepest nesting of messages.
_MAX_ELEMENTS, _MAX_DEPTH = 2**46, 64
#: Bytes of a file without its weights, operators, and the size from which a message is looked into.
_MAX_STRUCTURE_BYTES, _MAX_NODES, _LARGE_BYTES = 64_000_000, 50_000, 65_536
#: Message -> field -> the message in it that may hold tensors.
_INSIDE = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor"},
    "tensor": {},
}
#: Wire type of a field with a length, and bytes of the others; 0 for a number of any length.
_LENGTH_DELIMITED, _FIXED_BYTES = 2, {0: 0, 1: 8, 5: 4}
_NO_ONNX_FILE = "not an ONNX file, or a damaged one"
#: Fields of a tensor that hold its values.
_VALUES = frozenset({4, 5, 6, 7, 9, 10, 11})


@frozen
class OnnxTensor:
    """A constant.

    Attributes:
        dtype: Name of its ONNX data type ("FLOAT").
        shape: Sizes.
        values: Its values; None where it is large or lies in another file.
    """

    dtype: str
    shape: tuple[int, ...]
    values: NDArray[Any] | None


@frozen
class OnnxInput:
    """An input: its data type, and sizes, a name or None where one is not fixed."""

    dtype: str
    shape: tuple[int | str | None, ...]


@frozen
class OnnxNode:
    """One operator: its type, domain, name, tensors ("" where left out) and attributes."""

    operator: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Values


@frozen
class OnnxGraph:
    """A graph in the order it runs.

    Attributes:
        name: Its name; empty where it has none.
        opset: Version of the operators of the default domain.
        nodes: Operators.
        inputs: What a run gives.
        outputs: Names of results.
        constants: Tensors of the file.
    """

    name: str
    opset: int
    nodes: tuple[OnnxNode, ...]
    inputs: Mapping[str, OnnxInput]
    outputs: tuple[str, ...]
    constants: Mapping[str, OnnxTensor]


class _DamagedError(Exception):
    """The file is no ONNX file, or one that is not read; the text says why."""


def read_onnx(path: Path | str) -> OnnxGraph:
    """The graph of an ONNX file.

    Raises:
        MissingDependencyError: If onnx is not installed.
        ProfileError: If the file cannot be read, is damaged, or larger without its weights than
            what is read.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingDependencyError("onnx", "onnx") from None
    try:
        with open_plain(Path(path)) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            structure = b"".join(_without_weights(stream, size_bytes, "model", 0))
        return _model(onnx.ModelProto.FromString(structure))
    except DecodeError:
        raise ProfileError(str(path), [_NO_ONNX_FILE]) from None
    except ProfileError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise ProfileError(str(path), [f"cannot be read: {error}"]) from None
    except _DamagedError as error:
        raise ProfileError(str(path), [str(error)]) from None


# -- the file without its weights


def _without_weights(stream: BinaryIO, end: int, message: str, depth: int) -> Iterator[bytes]:
    """Fields of a message up to `end`, without the values of large tensors."""
    if depth > _MAX_DEPTH:
        raise _DamagedError("graphs nested too deeply")
    total_bytes = 0
    while stream.tell() < end:
        for piece in _field(stream, end, message, depth):
            total_bytes += len(piece)
            if total_bytes > _MAX_STRUCTURE_BYTES:
                most = f"{_MAX_STRUCTURE_BYTES:,} bytes without its weights, the most that is read"
                raise _DamagedError(f"larger than {most}")
            yield piece


def _field(stream: BinaryIO, end: int, message: str, depth: int) -> Iterator[bytes]:
    """One field: its tag and number, or its tag, length and content (protobuf.dev)."""
    tag = _varint(stream)
    number, wire_type = tag >> 3, tag & 7
    if wire_type == _LENGTH_DELIMITED:
        yield from _long_field(stream, end, (message, number), depth)
        return
    if not number or wire_type not in _FIXED_BYTES:
        raise _DamagedError(_NO_ONNX_FILE)
    size_bytes = _FIXED_BYTES[wire_type]
    value = stream.read(size_bytes) if size_bytes else _encoded(_varint(stream))
    yield _encoded(tag) + value


def _long_field(stream: BinaryIO, end: int, field: tuple[str, int], depth: int) -> Iterator[bytes]:
    """A field with a length, behind its tag; without the values of a large tensor."""
    message, number = field
    tag, size_bytes = _encoded(number << 3 | _LENGTH_DELIMITED), _varint(stream)
    stop = stream.tell() + size_bytes
    if stop > end:
        raise _DamagedError("cut off before its end")
    is_large = size_bytes > _LARGE_BYTES
    inner = _INSIDE[message].get(number) if is_large or message == "model" else None
    if inner is not None:
        body = b"".join(_without_weights(stream, stop, inner, depth + 1))
        yield from (tag, _encoded(len(body)), body)
    elif message == "tensor" and number in _VALUES and is_large:
        stream.seek(stop)
    elif size_bytes > _MAX_STRUCTURE_BYTES:
        raise _DamagedError(f"a field of {size_bytes:,} bytes that holds no weights")
    else:
        yield from (tag, _encoded(size_bytes), stream.read(size_bytes))


def _varint(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)
        if not byte:
            raise _DamagedError("cut off before its end")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise _DamagedError(_NO_ONNX_FILE)


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# -- messages to plain types


def _model(model: Any) -> OnnxGraph:
    if model.functions:
        raise _DamagedError("has functions of its own; write them out: onnx.inliner")
    opset = max((entry.version for entry in model.opset_import if not entry.domain), default=1)
    graph = _graph(model.graph, opset)
    if not graph.nodes:
        raise _DamagedError("not an ONNX file, or one without operators")
    return graph


def _graph(graph: Any, opset: int) -> OnnxGraph:
    if len(graph.node) > _MAX_NODES:
        raise _DamagedError(f"more than {_MAX_NODES:,} operators")
    if graph.sparse_initializer:
        raise _DamagedError("has sparse weights; store them dense")
    constants = {tensor.name: _tensor(tensor) for tensor in graph.initializer}
    inputs = {x.name: _input(x) for x in graph.input if x.name not in constants}
    return OnnxGraph(
        graph.name,
        opset,
        tuple(map(_node, graph.node)),
        inputs,
        tuple(output.name for output in graph.output),
        constants,
    )


def _node(node: Any) -> OnnxNode:
    domain = "" if node.domain == "ai.onnx" else node.domain
    attributes = {attribute.name: _attribute(attribute) for attribute in node.attribute}
    name = node.name or next(iter(node.output), "")
    tensors = tuple(node.input), tuple(node.output)
    return OnnxNode(node.op_type, domain, name, *tensors, attributes)


def _attribute(attribute: Any) -> Any:
    from onnx import AttributeProto, helper

    if attribute.type == AttributeProto.TENSOR:
        return _tensor(attribute.t)
    if attribute.type in {AttributeProto.GRAPH, AttributeProto.GRAPHS}:
        return None  # of control flow, which is not captured
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(value) if isinstance(value, (tuple, list)) or hasattr(value, "append") else value


def _input(value: Any) -> OnnxInput:
    from onnx import TensorProto

    if value.type.WhichOneof("value") != "tensor_type":
        raise _DamagedError(f"input {value.name!r} is no tensor")
    tensor = value.type.tensor_type
    sizes = (size.dim_value or size.dim_param or None for size in tensor.shape.dim)
    return OnnxInput(TensorProto.DataType.Name(tensor.elem_type), tuple(sizes))


def _tensor(tensor: Any) -> OnnxTensor:
    from onnx import TensorProto, numpy_helper

    shape, dtype = tuple(tensor.dims), TensorProto.DataType.Name(tensor.data_type)
    if min(shape, default=0) < 0 or prod(shape) > _MAX_ELEMENTS:
        wrong = f"tensor {tensor.name!r} has sizes {list(shape)}"
        raise _DamagedError(f"{wrong}: expected up to {_MAX_ELEMENTS:,} elements")
    is_outside = tensor.data_location == TensorProto.EXTERNAL
    if is_outside or prod(shape) > MAX_VALUES or dtype == "STRING":
        return OnnxTensor(dtype, shape, None)
    values = numpy_helper.to_array(tensor)
    is_narrow = values.dtype.kind not in "biuf"  # formats that numpy itself does not have
    return OnnxTensor(dtype, shape, values.astype(np.float32) if is_narrow else values)
