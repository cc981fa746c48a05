"""Captured workloads without torch: their JSON form, and lowering at another precision or batch.

A captured graph keeps, beside its operator columns, the part of each byte column that does not
follow the precision policy (indices, masks, FP32 statistics), and how every number grows per batch
where two further captures showed that it grows linearly. Lowering is then exact integer arithmetic;
a batch the capture cannot answer for is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accelsim.dtype import Precision, precision
from accelsim.errors import InvalidValueError, OutputError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, codes, is_kind
from accelsim.workloads.operator import (
    ACTIVATION_PRODUCT_KINDS,
    LOOKUP_KINDS,
    MAX_DIMENSIONS,
    PRODUCT_KINDS,
    Phase,
)
from accelsim.workloads.training import optimizer

_FORMAT, _VERSION = "accelsim-workload", 1
#: Byte columns of a graph, in the order of the columns of `CapturedGraph.fixed_bytes`.
BYTE_COLUMNS = ("read_bytes", "write_bytes", "weight_bytes", "saved_bytes")
#: Fields of a model that its file has as they are.
_COPIED = ("parameter_count", "parameter_tensor_count", "trainable_count", "fused_attention")


@frozen(eq=False)
class CapturedGraph:
    """A graph at one batch and precision.

    Attributes:
        graph: The operators.
        batch: Batch the graph is for.
        fixed_bytes: Part of each byte column that keeps its width at any precision, shape (n, 4).
        batch_step: How the numbers grow with the batch; None where only this batch can be lowered.
    """

    graph: OperatorGraph
    batch: int
    fixed_bytes: FloatArray
    batch_step: BatchStep | None

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns that may grow with the batch."""
        columns = {name: getattr(self.graph, name) for name in ("dims", "flop", *BYTE_COLUMNS)}
        return columns | {"fixed_bytes": self.fixed_bytes}

    def at_batch(self, batch: int) -> CapturedGraph:
        """The graph at another batch.

        Estimate: the columns go on growing as they did over the three captured batches.

        Raises:
            InvalidValueError: If the graph is not linear in the batch, or a size would not be a
                whole number.
        """
        if batch == self.batch:
            return self
        if self.batch_step is None or batch < 1:
            allowed = f"{self.batch}, the captured batch"
            raise InvalidValueError("batch", batch, allowed, "Capture again at the batch wanted.")
        step, extra = self.batch_step, batch - self.batch
        steps, dims_steps = extra / step.unit, step.columns["dims"] * extra
        columns: dict[str, Any] = {
            name: column + step.columns[name] * steps for name, column in self.columns.items()
        }
        columns["dims"] = self.graph.dims + dims_steps // step.unit  # exact
        is_negative = any(column.min(initial=0) < 0 for column in columns.values())
        if is_negative or (dims_steps % step.unit).any():
            raise InvalidValueError(
                "batch", batch, f"a batch that keeps sizes whole (captured at {self.batch})"
            )
        fixed = columns.pop("fixed_bytes")
        return CapturedGraph(replace(self.graph, **columns), batch, fixed, None)

    def at_precision(self, source: Precision, target: Precision) -> OperatorGraph:
        """The graph with the widths and compute dtypes of another precision policy.

        Estimate: every byte that follows the policy grows with the width of its format.
        """
        columns, rows = {}, (self.graph.kind, self.graph.path)
        weights = weight_widths(*rows, target) / weight_widths(*rows, source)
        activations = target.activation.bytes / source.activation.bytes
        for index, name in enumerate(BYTE_COLUMNS):
            fixed = self.fixed_bytes[:, index]
            ratio = weights if name == "weight_bytes" else activations
            columns[name] = (getattr(self.graph, name) - fixed) * ratio + fixed
        return replace(self.graph, dtype=compute_dtypes(*rows, target), **columns)


@frozen(eq=False)
class BatchStep:
    """Growth of the columns of a `CapturedGraph` when the batch grows by `unit`."""

    unit: int
    columns: Mapping[str, NDArray[Any]]


@frozen(eq=False)
class CapturedPass:
    """One pass of a module, at any batch it is linear in.

    Attributes:
        graph: The rows at the captured batch.
        scalable: The rows at other batches, where the captured one is special (a copy left out at
            batch 1); else None.
    """

    graph: CapturedGraph
    scalable: CapturedGraph | None

    def lowered(self, batch: int, source: Precision, target: Precision) -> OperatorGraph:
        """The rows at a batch, their bytes taken from one precision policy to another.

        Raises:
            InvalidValueError: If the capture cannot answer for this batch.
        """
        graph = self.graph if self.scalable is None or batch == self.graph.batch else self.scalable
        return graph.at_batch(batch).at_precision(source, target)


@frozen(eq=False)
class CapturedModel:
    """What was captured.

    Attributes:
        forward: The forward pass, in inference.
        training: Forward and backward rows of a training step; None where only inference was
            captured.
        optimizer: Update rule of a training capture; None for plain inference.
        precision: Policy whose widths the byte columns have.
        parameter_count: Parameters.
        parameter_tensor_count: Tensors they live in.
        trainable_count: Parameters that training updates.
        fused_attention: Whether attention is one operator.
    """

    forward: CapturedPass
    training: CapturedPass | None
    optimizer: str | None
    precision: Precision
    parameter_count: int
    parameter_tensor_count: int
    trainable_count: int
    fused_attention: bool


def stored_bytes(graph: OperatorGraph, parameter_count: int, policy: Precision) -> float:
    """Bytes the parameters of a captured graph are stored in.

    Estimate: embedding tables are not quantised, as they are gathered, not multiplied.
    """
    _, width, rows = graph.dims[is_kind(graph.kind, LOOKUP_KINDS), :3].T.astype(np.float64)
    tables = min(float(width @ rows), float(parameter_count))
    return (parameter_count - tables) * policy.weight.bytes + tables * policy.unquantised.bytes


def weight_widths(kind: NDArray[np.int16], paths: Sequence[str], policy: Precision) -> FloatArray:
    """Bytes that rows of these kinds and module paths store a weight in, shape (n,)."""
    products = is_kind(kind, PRODUCT_KINDS)
    is_quantised = products & ~_are_kept(paths, policy)
    return np.where(is_quantised, policy.weight.bytes, policy.unquantised.bytes)


def compute_dtypes(
    kind: NDArray[np.int16], paths: Sequence[str], policy: Precision
) -> NDArray[np.int8]:
    """Compute dtype of rows by kind and module path: matrix rows the policy's compute dtype,
    products of activations that of attention, all others and the modules it keeps its activation
    dtype.
    """
    dtype = codes(len(kind), policy.activation)
    dtype[is_kind(kind, PRODUCT_KINDS)] = policy.compute
    dtype[is_kind(kind, ACTIVATION_PRODUCT_KINDS)] = policy.attention
    dtype[_are_kept(paths, policy)] = policy.activation
    return dtype


def _are_kept(paths: Sequence[str], policy: Precision) -> BoolArray:
    return np.array([policy.keeps(path) for path in paths], dtype=bool)


# -- lowering


def captured_forward(
    model: CapturedModel, batch: int, policy: Precision, phase: Phase
) -> OperatorGraph:
    """Rows of the inference pass at a batch and precision, in the given phase.

    Raises:
        InvalidValueError: If the capture cannot answer for this batch.
    """
    return model.forward.lowered(batch, model.precision, policy).with_phase(phase)


# -- JSON


def captured_document(model: CapturedModel, about: Document) -> Document:
    """The JSON form of a captured model.

    Args:
        model: What was captured.
        about: Name, title, task and note of its workload.
    """
    return {
        "format": _FORMAT,
        "version": _VERSION,
        **about,
        "training": model.training is not None,
        "optimizer": model.optimizer,
        "batch": model.forward.graph.batch,
        **{name: getattr(model, name) for name in _COPIED},
        "precision": model.precision.name,
        "graphs": {
            "forward": _pass_document(model.forward),
            "training": None if model.training is None else _pass_document(model.training),
        },
    }


def _pass_document(captured: CapturedPass) -> Document:
    scalable = None if captured.scalable is None else _graph_document(captured.scalable)
    return {**_graph_document(captured.graph), "scalable": scalable}


def _graph_document(captured: CapturedGraph) -> Document:
    step = captured.batch_step
    columns = {} if step is None else {name: x.tolist() for name, x in step.columns.items()}
    return {
        "batch": captured.batch,
        "operators": captured.graph.to_dict(),
        "fixed_bytes": captured.fixed_bytes.tolist(),
        "batch_step": None if step is None else {"unit": step.unit, **columns},
    }


def save_document(document: Document, path: str | os.PathLike[str]) -> None:
    """Write the JSON form of a captured workload; a file appears whole or not at all.

    Raises:
        OutputError: If the path exists or cannot be written.
    """
    target, created = Path(path), False
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    try:
        with target.open("x", encoding="utf-8") as file:
            created = True
            file.write(text)
    except FileExistsError:
        raise OutputError(f"{target} exists already. Choose another path or remove it.") from None
    except OSError as error:
        if created:
            target.unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{target} cannot be written: {reason}. Choose another path.") from None


def read_model(data: Values) -> tuple[CapturedModel, Document]:
    """A captured model and what its file says about its workload, from parsed JSON.

    Raises:
        InvalidValueError: If a field is missing or holds a bad value.
    """
    try:
        file = _File.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field, allowed = ".".join(map(str, problem["loc"])), f"otherwise ({problem['msg']})"
        remedy = "Capture the module again."
        raise InvalidValueError(field, problem["input"], allowed, remedy) from None
    forward = _read_pass(file.graphs, "forward")
    model = CapturedModel(
        forward=forward,
        training=_read_pass(file.graphs, "training") if file.training else None,
        optimizer=None if file.optimizer is None else optimizer(file.optimizer).name,
        precision=precision(file.precision),
        **{name: getattr(file, name) for name in _COPIED},
    )
    title = file.title or file.name
    return model, {"name": file.name, "title": title, "task": file.task, "note": file.note}


_Text = Annotated[str, Field(min_length=1, max_length=200)]
_Count = Annotated[int, Field(ge=0, lt=2**62)]
_Units = Annotated[int, Field(ge=1, lt=2**62)]
_Column = Annotated[list[float], Field(min_length=1)]
_OfColumns = Annotated[list[float], Field(min_length=4, max_length=4)]
_Table = Annotated[list[_OfColumns], Field(min_length=1)]
_Size = Annotated[int, Field(gt=-(2**53), lt=2**53)]
_Sizes = Annotated[list[_Size], Field(min_length=MAX_DIMENSIONS, max_length=MAX_DIMENSIONS)]


#: Largest growth of a FLOP or byte count by a sample: a hundred times a language model's 1e15.
_LARGEST_STEP = 1e17


class _FilePart(BaseModel):
    """Part of a file."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class _StepPart(_FilePart):
    unit: _Units
    dims: list[_Sizes]
    flop: _Column
    read_bytes: _Column
    write_bytes: _Column
    weight_bytes: _Column
    saved_bytes: _Column
    fixed_bytes: _Table


class _GraphPart(_FilePart):
    batch: _Units
    operators: Document
    fixed_bytes: _Table
    batch_step: _StepPart | None = None


class _PassPart(_GraphPart):
    scalable: _GraphPart | None = None


class _File(_FilePart):
    format: Literal["accelsim-workload"]
    version: Literal[1]
    name: _Text
    title: _Text | None = None
    task: _Text
    note: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    training: bool
    optimizer: _Text | None = None
    precision: _Text
    parameter_count: _Count
    parameter_tensor_count: _Count
    trainable_count: _Count
    fused_attention: bool
    graphs: dict[str, _PassPart | None]


def _read_pass(graphs: Mapping[str, _PassPart | None], name: str) -> CapturedPass:
    entry = graphs.get(name)
    if entry is None:
        raise InvalidValueError(f"graphs.{name}", None, "a graph")
    scalable = None if entry.scalable is None else _read_graph(entry.scalable, name)
    return CapturedPass(_read_graph(entry, name), scalable)


def _read_graph(entry: _GraphPart, name: str) -> CapturedGraph:
    graph = OperatorGraph.from_dict(entry.operators)
    allowed = {Phase.FORWARD} | ({Phase.BACKWARD} if name == "training" else set())
    if not set(graph.phase.tolist()) <= allowed or (np.diff(graph.phase) < 0).any():
        raise InvalidValueError(
            "graph.phase", "other", "forward rows, then (in training) backward rows"
        )
    fixed = _column(entry, "fixed_bytes", len(graph))
    bytes_ = np.stack([getattr(graph, column) for column in BYTE_COLUMNS], axis=1)
    if (fixed < 0).any() or (fixed > bytes_).any():
        raise InvalidValueError(
            f"graphs.{name}.fixed_bytes", "out of range", "numbers from 0 to the row's own bytes"
        )
    step = None if entry.batch_step is None else _read_step(entry.batch_step, len(graph))
    return CapturedGraph(graph, entry.batch, fixed, step)


def _read_step(entry: _StepPart, row_count: int) -> BatchStep:
    names = (name for name in _StepPart.model_fields if name != "unit")
    columns = {name: _column(entry, name, row_count) for name in names}
    for name, column in columns.items():
        if (np.abs(column) > _LARGEST_STEP).any():
            limit = f"numbers within {_LARGEST_STEP:g}"
            raise InvalidValueError(f"batch_step.{name}", "out of range", limit)
    return BatchStep(entry.unit, columns)


def _column(entry: _FilePart, name: str, row_count: int) -> NDArray[Any]:
    values = getattr(entry, name)
    if len(values) != row_count:
        raise InvalidValueError(name, f"{len(values)} rows", f"{row_count}")
    return np.array(values)
