"""Captured workloads without torch: their JSON form, and lowering at another precision or batch.

A captured graph keeps, beside its operator columns, the part of each byte column that does not
follow the precision policy (indices, masks, FP32 statistics), and how every number grows per batch
where two further captures showed that it grows linearly. Lowering is then exact integer arithmetic;
a batch the capture cannot answer for is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InvalidValueError, OutputError
from accelsim.workloads.dtype import Precision, precision
from accelsim.workloads.graph import FloatArray, OperatorGraph, concatenate
from accelsim.workloads.operator import ATTENTION_KINDS, CONTRACTION_KINDS, OperatorKind, Phase
from accelsim.workloads.training import idle_parameter_count, optimizer, optimizer_graph

if TYPE_CHECKING:
    from accelsim.workloads.model import RunShape, Workload

__all__ = [
    "BYTE_COLUMNS",
    "CapturedGraph",
    "CapturedModel",
    "CapturedPass",
    "captured_forward",
    "captured_training",
    "load_captured",
    "save_captured",
]

_FORMAT, _VERSION = "accelsim-workload", 1
#: Byte columns of a graph, in the order of the columns of `CapturedGraph.fixed_bytes`.
BYTE_COLUMNS = ("read_bytes", "write_bytes", "weight_bytes", "saved_bytes")
_MAX_TEXT = 200


@dataclass(frozen=True, slots=True, eq=False)
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

    def at_batch(self, batch: int) -> CapturedGraph:
        """The graph at another batch.

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
        moved = step.dims * extra
        ratio = extra / step.unit
        columns = {
            name: getattr(self.graph, name) + getattr(step, name) * ratio
            for name in ("flop", *BYTE_COLUMNS)
        }
        fixed = self.fixed_bytes + step.fixed_bytes * ratio
        dims = self.graph.dims + moved // step.unit
        if (moved % step.unit).any() or min(
            c.min(initial=0) for c in (dims, fixed, *columns.values())
        ) < 0:
            raise InvalidValueError(
                "batch", batch, f"a batch that keeps sizes whole (captured at {self.batch})"
            )
        return CapturedGraph(replace(self.graph, dims=dims, **columns), batch, fixed, None)

    def at_precision(self, source: Precision, target: Precision) -> OperatorGraph:
        """The graph with the widths and compute dtypes of another precision policy."""
        columns = {}
        for place, name in enumerate(BYTE_COLUMNS):
            old, new = (
                p.weight if name == "weight_bytes" else p.activation for p in (source, target)
            )
            fixed = self.fixed_bytes[:, place]
            columns[name] = (getattr(self.graph, name) - fixed) * (new.bytes / old.bytes) + fixed
        return replace(self.graph, dtype=compute_dtypes(self.graph.kind, target), **columns)


@dataclass(frozen=True, slots=True, eq=False)
class BatchStep:
    """Growth of a graph's numbers when the batch grows by `unit`; shapes as in `CapturedGraph`."""

    unit: int
    dims: NDArray[np.int64]
    flop: FloatArray
    read_bytes: FloatArray
    write_bytes: FloatArray
    weight_bytes: FloatArray
    saved_bytes: FloatArray
    fixed_bytes: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
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


def compute_dtypes(kind: NDArray[np.int16], policy: Precision) -> NDArray[np.int8]:
    """Compute dtype of rows by kind: matrix rows the policy's compute dtype, all others its
    activation dtype.

    Attention multiplies activations: with mixed widths it runs in the activation dtype.
    """
    mixed = policy.activation.bytes != policy.compute.bytes
    dtype = np.full(len(kind), int(policy.activation), dtype=np.int8)
    dtype[np.isin(kind, [int(k) for k in CONTRACTION_KINDS])] = int(policy.compute)
    products = [int(k) for k in (*ATTENTION_KINDS, OperatorKind.BATCHED_GEMM)]
    dtype[np.isin(kind, products)] = int(policy.activation if mixed else policy.compute)
    return dtype


# -- lowering


def captured_forward(
    model: CapturedModel, batch: int, policy: Precision, phase: Phase
) -> OperatorGraph:
    """Rows of the inference pass at a batch and precision, in the given phase.

    Raises:
        InvalidValueError: If the capture cannot answer for this batch.
    """
    return model.forward.lowered(batch, model.precision, policy).with_phase(phase)


def captured_training(
    workload: Workload, shape: RunShape, policy: Precision, *, optimizer_name: str | None = None
) -> OperatorGraph:
    """One captured training step: forward, backward and optimizer rows.

    Args:
        workload: A workload captured with ``training=True``.
        shape: Its batch is used.
        policy: Dtypes.
        optimizer_name: Update rule; the captured one unless given.

    Raises:
        InvalidValueError: If the workload was captured for inference, or not at this batch.
    """
    model = workload.captured
    if model is None or model.training is None:
        raise InvalidValueError(
            "mode",
            "training",
            f"inference for {workload.name}",
            "Capture the module again with training=True.",
        )
    if not policy.trainable:
        raise InvalidValueError("precision", policy.name, "a precision that can be trained in")
    graph = model.training.lowered(shape.batch, model.precision, policy)
    rule = optimizer(optimizer_name or model.optimizer or "sgd")
    tensors = model.parameter_tensor_count
    idle = idle_parameter_count(graph)
    return concatenate([graph, optimizer_graph(model.trainable_count, tensors, policy, rule, idle)])


# -- JSON


def captured_document(workload: Workload) -> dict[str, Any]:
    """The JSON form of a captured workload.

    Raises:
        InvalidValueError: If the workload was not captured.
    """
    model = workload.captured
    if model is None:
        raise InvalidValueError("workload", workload.name, "a captured workload")
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "name": workload.name,
        "title": workload.title,
        "task": workload.task,
        "note": workload.note,
        "training": model.training is not None,
        "optimizer": model.optimizer,
        "batch": model.forward.graph.batch,
        "parameter_count": model.parameter_count,
        "parameter_tensor_count": model.parameter_tensor_count,
        "trainable_count": model.trainable_count,
        "precision": model.precision.name,
        "fused_attention": model.fused_attention,
        "graphs": {
            "forward": _pass_document(model.forward),
            "training": None if model.training is None else _pass_document(model.training),
        },
    }


def _pass_document(captured: CapturedPass) -> dict[str, Any]:
    scalable = None if captured.scalable is None else _graph_document(captured.scalable)
    return {**_graph_document(captured.graph), "scalable": scalable}


def _graph_document(captured: CapturedGraph) -> dict[str, Any]:
    step = captured.batch_step
    columns = () if step is None else [f.name for f in fields(step) if f.name != "unit"]
    return {
        "batch": captured.batch,
        "operators": captured.graph.to_dict(),
        "fixed_bytes": captured.fixed_bytes.tolist(),
        "batch_step": None
        if step is None
        else {"unit": step.unit, **{c: getattr(step, c).tolist() for c in columns}},
    }


def save_captured(workload: Workload, path: str | os.PathLike[str]) -> None:
    """Write a captured workload as JSON; a file appears whole or not at all.

    Raises:
        OutputError: If the path exists or cannot be written.
    """
    target = Path(path)
    text = json.dumps(captured_document(workload), separators=(",", ":"), allow_nan=False)
    try:
        with target.open("x", encoding="utf-8") as file:
            created = True
            file.write(text)
    except FileExistsError:
        raise OutputError(f"{target} exists already. Choose another path or remove it.") from None
    except OSError as error:
        if "created" in locals():
            target.unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{target} cannot be written: {reason}. Choose another path.") from None


def load_captured(data: Mapping[str, Any]) -> Workload:
    """Read a captured workload from parsed JSON.

    Raises:
        InvalidValueError: If a field is missing or holds a bad value.
    """
    from accelsim.workloads.model import RunShape, Workload

    if data.get("format") != _FORMAT or data.get("version") != _VERSION:
        found = (data.get("format"), data.get("version"))
        raise InvalidValueError(
            "format, version", found, f"({_FORMAT!r}, {_VERSION})", "Capture the module again."
        )
    rule = data.get("optimizer")
    if rule is not None:
        rule = optimizer(_text(data, "optimizer")).name
    graphs = data.get("graphs")
    if not isinstance(graphs, Mapping):
        raise InvalidValueError("graphs", graphs, "a mapping of graphs")
    forward = _read_pass(graphs, "forward")
    model = CapturedModel(
        forward=forward,
        training=_read_pass(graphs, "training") if _flag(data, "training") else None,
        optimizer=rule,
        precision=precision(_text(data, "precision")),
        parameter_count=_count(data, "parameter_count"),
        parameter_tensor_count=_count(data, "parameter_tensor_count"),
        trainable_count=_count(data, "trainable_count"),
        fused_attention=_flag(data, "fused_attention"),
    )
    name, note = _text(data, "name"), data.get("note")
    title = _text(data, "title") if "title" in data else name
    note = None if note is None else _text(data, "note", limit=10_000)
    return Workload(
        name,
        title,
        _text(data, "task"),
        None,
        None,
        RunShape(batch=forward.graph.batch),
        captured=model,
        note=note,
    )


def _read_pass(graphs: Mapping[str, Any], name: str) -> CapturedPass:
    graph = _read_graph(graphs, name, name)
    entry = graphs[name]
    return CapturedPass(
        graph, None if entry.get("scalable") is None else _read_graph(entry, "scalable", name)
    )


def _read_graph(entries: Mapping[str, Any], name: str, kind: str) -> CapturedGraph:
    entry = entries.get(name)
    operators = entry.get("operators") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(operators, Mapping):
        raise InvalidValueError(
            f"graphs.{name}.operators", operators, "a mapping of operator columns"
        )
    graph = OperatorGraph.from_dict(operators)
    allowed = {int(Phase.FORWARD)} | ({int(Phase.BACKWARD)} if kind == "training" else set())
    if not set(graph.phase.tolist()) <= allowed or (np.diff(graph.phase) < 0).any():
        raise InvalidValueError(
            "graph.phase", "other", "forward rows, then (in training) backward rows"
        )
    fixed = _table(entry, "fixed_bytes", (len(graph), len(BYTE_COLUMNS)))
    bytes_ = np.stack([getattr(graph, column) for column in BYTE_COLUMNS], axis=1)
    if (fixed < 0).any() or (fixed > bytes_).any():
        raise InvalidValueError(
            f"graphs.{name}.fixed_bytes", "out of range", "numbers from 0 to the row's own bytes"
        )
    batch = _count(entry, "batch", least=1)
    return CapturedGraph(graph, batch, fixed, _read_step(entry.get("batch_step"), graph))


def _read_step(entry: Any, graph: OperatorGraph) -> BatchStep | None:
    if entry is None:
        return None
    if not isinstance(entry, Mapping):
        raise InvalidValueError("batch_step", entry, "a mapping of columns, or null")
    count = len(graph)
    columns = {name: _table(entry, name, (count,)) for name in ("flop", *BYTE_COLUMNS)}
    dims = _table(entry, "dims", graph.dims.shape)
    if (dims != np.floor(dims)).any() or (np.abs(dims) >= 2**53).any():
        raise InvalidValueError("batch_step.dims", "fractions", "integers")
    unit = _count(entry, "unit", least=1)
    return BatchStep(
        unit,
        dims.astype(np.int64),
        **columns,
        fixed_bytes=_table(entry, "fixed_bytes", (count, len(BYTE_COLUMNS))),
    )


def _table(data: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> FloatArray:
    allowed = f"finite numbers of shape {shape}"
    if not isinstance(data.get(name), list):
        raise InvalidValueError(name, data.get(name), allowed)
    try:
        table = np.array(data[name])
    except (ValueError, OverflowError, RecursionError):
        raise InvalidValueError(name, "an uneven table", allowed) from None
    if shape[0] == 0 and table.size == 0:
        return np.zeros(shape)
    if table.shape != shape or table.dtype.kind not in "if" or not np.isfinite(table).all():
        raise InvalidValueError(name, f"shape {table.shape}, {table.dtype}", allowed)
    return table.astype(np.float64)


def _text(data: Mapping[str, Any], name: str, *, limit: int = _MAX_TEXT) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value or len(value) > limit:
        raise InvalidValueError(name, value, f"text of 1 to {limit} characters")
    return value


def _flag(data: Mapping[str, Any], name: str) -> bool:
    value = data.get(name)
    if not isinstance(value, bool):
        raise InvalidValueError(name, value, "true or false")
    return value


def _count(data: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**62:
        raise InvalidValueError(name, value, f"an integer from {least} to 2**62")
    return value
