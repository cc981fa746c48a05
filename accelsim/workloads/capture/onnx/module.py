"""An ONNX graph as a torch module: its constants are parameters and buffers, its operators modules
of their own, so that the capture of torch modules counts and prices all of them.

What follows from shapes and small constants alone is computed at once and costs nothing, as
runtimes fold it. A product with a matrix of weights and the bias added to it are one linear layer,
as runtimes fuse them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from accelsim.errors import CaptureError
from accelsim.plain import Document, Values
from accelsim.workloads.capture.onnx import (
    layers,  # noqa: F401
    movement,  # noqa: F401
    pointwise,  # noqa: F401
)
from accelsim.workloads.capture.onnx.file import MAX_VALUES, OnnxGraph, OnnxNode, OnnxTensor
from accelsim.workloads.capture.onnx.registry import (
    DOMAINS,
    FUNCTIONS,
    Function,
    Tensors,
    TorchStep,
    torch_dtype,
)

#: Data types of weights, by the precision they are run in; others are fp32.
_STORED = {
    **dict.fromkeys(("INT8", "UINT8"), "int8"),
    **dict.fromkeys(("INT4", "UINT4"), "w4a16"),
    "FLOAT16": "fp16",
    "BFLOAT16": "bf16",
}
_FLOATS = frozenset({"FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"})
#: Operators whose integer inputs are quantised weights.
_DEQUANTISED = {
    "DequantizeLinear": 0,
    "ConvInteger": 1,
    "MatMulInteger": 1,
    "MatMulNBits": 1,
    "QLinearConv": 3,
    "QLinearMatMul": 3,
}
#: Operators whose inputs from the fourth on are running statistics.
_RUNNING = ("BatchNormalization",)


class _Operator(torch.nn.Module):  # type: ignore[misc]
    """One operator."""

    def __init__(self, step: TorchStep) -> None:
        super().__init__()
        self.step = step

    def forward(self, *tensors: torch.Tensor | None) -> Tensors:
        """What the operator gives of its tensors."""
        function = FUNCTIONS[self.step.node.operator]
        is_run = any(isinstance(x, torch.Tensor) and x.is_meta for x in tensors)
        if function.is_shape or not is_run:
            return self._folded(function, tensors)
        step = replace(self.step, training=self.training)
        operands = map(_as_number, tensors) if function.broadcasts else tensors
        return function.call(step, *operands)

    def _folded(self, function: Function, tensors: Sequence[torch.Tensor | None]) -> Any:
        """The result of constants, on the meta device where it is no small one."""
        shapes = [x.shape for x in tensors if x is not None]
        if function.broadcasts and prod(torch.broadcast_shapes(*shapes)) > MAX_VALUES:
            return function.call(self.step, *(x if x is None else x.to("meta") for x in tensors))
        with _disable_current_modes(), torch._C.DisableTorchFunction():  # noqa: SLF001
            result = function.call(self.step, *tensors)
            return tuple(
                x.to("meta") if isinstance(x, torch.Tensor) and x.numel() > MAX_VALUES else x
                for x in (result if isinstance(result, tuple) else (result,))
            )


def _as_number(x: Any) -> Any:
    """A constant number as such, which is no operand of its own."""
    if not isinstance(x, torch.Tensor) or x.is_meta or x.dtype is torch.bool:
        return x
    return x.item() if x.numel() == 1 and x.dim() <= 1 else x


class OnnxModule(torch.nn.Module):  # type: ignore[misc]
    """Runs an ONNX graph on tensors of the meta device.

    Args:
        graph: The graph.

    Raises:
        CaptureError: If it has operators that are not known; all are named.
    """

    def __init__(self, graph: OnnxGraph) -> None:
        super().__init__()
        _refuse_unknown(graph)
        nodes = _with_linear_layers(graph)
        self._names = tuple(graph.inputs)
        self._outputs = graph.outputs
        self._constants: Document = {}
        parameters = _parameters(nodes, graph.constants)
        statistics = {
            name for node in nodes if node.operator in _RUNNING for name in node.inputs[3:]
        }
        for index, (name, constant) in enumerate(graph.constants.items()):
            held = constant if name not in statistics else replace(constant, values=None)
            self._hold(name, held, f"constant_{index}", is_parameter=name in parameters)
        self.operators = torch.nn.ModuleList(
            _Operator(TorchStep(node, graph.opset)) for node in nodes
        )

    def _hold(self, name: str, constant: OnnxTensor, attribute: str, *, is_parameter: bool) -> None:
        """Keep a constant: as a parameter, as its values, or as a buffer without them."""
        if constant.values is not None and not is_parameter:
            self._constants[name] = constant.values
            return
        is_float = constant.dtype in _FLOATS or not is_parameter
        dtype = torch_dtype(constant.dtype) if is_float else torch.float32
        empty = torch.empty(constant.shape, dtype=dtype, device="meta")
        if is_parameter:
            self.register_parameter(attribute, torch.nn.Parameter(empty))
        else:
            self.register_buffer(attribute, empty)
        self._constants[name] = attribute

    def named_modules(
        self,
        memo: set[torch.nn.Module] | None = None,
        prefix: str = "",
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, torch.nn.Module]]:
        """The module and its operators, under the names that the file gives them."""
        del memo, remove_duplicate
        yield prefix, self
        for operator in self.operators:
            path = operator.step.node.name.strip("/").replace("/", ".")
            yield f"{prefix}.{path}" if prefix else path, operator

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Results of the graph."""
        values: Document = dict(zip(self._names, inputs, strict=True))
        with _disable_current_modes():
            for name, held in self._constants.items():
                is_named = isinstance(held, str)
                values[name] = getattr(self, held) if is_named else torch.from_numpy(held.copy())
        for operator in self.operators:
            node = operator.step.node
            tensors = [_find(values, name, node) if name else None for name in node.inputs]
            while tensors and tensors[-1] is None:
                tensors.pop()
            result = _run(operator, tensors)
            results = result if isinstance(result, tuple) else (result,)
            values.update(zip(node.outputs, results, strict=False))
        return tuple(_find(values, name, None) for name in self._outputs)


def _refuse_unknown(graph: OnnxGraph) -> None:
    unknown = Counter(
        f"{node.domain}.{node.operator}".lstrip(".")
        for node in graph.nodes
        if node.domain not in DOMAINS or node.operator not in FUNCTIONS
    )
    if unknown:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(unknown.items()))
        raise CaptureError(
            f"{graph.name or 'The graph'!r} has ONNX operators that are not known: {names}. "
            "Replace them, or capture the module the file was exported from."
        )


def _find(values: Values, name: str, node: OnnxNode | None) -> Any:
    if name not in values:
        reader = "a result" if node is None else f"read by {node.operator} {node.name!r}"
        raise CaptureError(
            f"ONNX tensor {name!r} is {reader} before any operator gives it: the graph has a "
            "cycle, or is cut off."
        )
    return values[name]


def _run(operator: _Operator, tensors: Sequence[torch.Tensor | None]) -> Tensors:
    """One operator, its failures with its name."""
    try:
        return operator(*tensors)
    except (TypeError, IndexError, KeyError, ValueError, OverflowError, AttributeError) as error:
        if isinstance(error, CaptureError):
            raise
        shapes = [None if x is None else list(x.shape) for x in tensors]
        raise operator.step.refuse(f"does not take tensors of shapes {shapes}: {error}") from error


def _parameters(
    nodes: Iterable[OnnxNode], constants: Mapping[str, OnnxTensor]
) -> dict[str, OnnxTensor]:
    """Constants that are parameters of the model: of floating point, but for scales, bounds and
    running statistics, and quantised weights.
    """
    parameters = {}
    for node in nodes:
        for index, name in enumerate(node.inputs):
            constant = constants.get(name)
            if constant is None or index in FUNCTIONS[node.operator].constants:
                continue
            is_weight = constant.dtype in _FLOATS and prod(constant.shape) > 1
            if is_weight or index == _DEQUANTISED.get(node.operator):
                parameters[name] = constant
    return parameters


def weight_type(graph: OnnxGraph) -> str:
    """Precision that most weights of a graph are stored in."""
    sizes = Counter[str]()
    for constant in _parameters(graph.nodes, graph.constants).values():
        sizes[_STORED.get(constant.dtype, "fp32")] += prod(constant.shape)
    return max(sizes, key=lambda name: sizes[name], default="fp32")


def _with_linear_layers(graph: OnnxGraph) -> list[OnnxNode]:
    """The nodes, products with a matrix of weights and the bias added to them joined."""
    read_counts = Counter(name for node in graph.nodes for name in node.inputs)
    read_counts.update(graph.outputs)
    products: dict[str, int] = {}
    nodes: list[OnnxNode] = []
    for node in graph.nodes:
        product = _biased_product(graph, node)
        if product in products and read_counts[product] == 1:
            index = products[product]
            bias = (name for name in node.inputs if name != product)
            inputs = (*nodes[index].inputs, *bias)
            nodes[index] = replace(nodes[index], inputs=inputs, outputs=node.outputs)
            continue
        if node.operator == "MatMul" and node.outputs and _ranks(graph, node)[1:] == [2]:
            products[node.outputs[0]] = len(nodes)
        nodes.append(node)
    return nodes


def _biased_product(graph: OnnxGraph, node: OnnxNode) -> str | None:
    """The tensor to which a node adds a constant row; None for other nodes."""
    ranks = _ranks(graph, node)
    if node.operator != "Add" or ranks not in ([1, None], [None, 1]):
        return None
    return node.inputs[ranks.index(None)]


def _ranks(graph: OnnxGraph, node: OnnxNode) -> list[int | None]:
    """Axes of a node's inputs that are constants; None for other tensors."""
    constants = (graph.constants.get(name) for name in node.inputs)
    return [None if constant is None else len(constant.shape) for constant in constants]
