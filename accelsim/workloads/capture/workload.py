"""Captured workloads: read from their files, and as a training step."""

from __future__ import annotations

from accelsim.dtype import Precision
from accelsim.errors import InvalidValueError
from accelsim.plain import Values
from accelsim.workloads.capture.captured import read_model
from accelsim.workloads.graph import OperatorGraph, concatenate
from accelsim.workloads.model import PassShape, Workload
from accelsim.workloads.training import idle_parameter_count, optimizer, optimizer_graph


def load_captured(data: Values) -> Workload:
    """Read a captured workload from parsed JSON.

    Raises:
        InvalidValueError: If a field is missing or holds a bad value.
    """
    model, about = read_model(data)
    batch = PassShape(batch=model.forward.graph.batch)
    return Workload(**about, family=None, parameters=None, default=batch, captured=model)


def captured_training(
    workload: Workload, shape: PassShape, policy: Precision, *, optimizer_name: str | None = None
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
