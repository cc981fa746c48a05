"""Calls of optimizers, and of copies between host and device."""

from __future__ import annotations

import torch

from accelsim.calibration.measurement.operands import Operands, builds
from accelsim.calibration.measurement.timing import Call


@builds("adamw", "adamw_idle", "sgd")
def _update(source: Operands) -> Call:
    """Updates with random gradients, of idle parameters with none."""
    maker = torch.optim.SGD if source.operator == "sgd" else torch.optim.AdamW
    parameters, tensors = source.sizes("parameters tensors")
    elements, scale = parameters // tensors, 0.0 if source.operator.endswith("idle") else 1.0
    weights = [source.stored(elements).requires_grad_() for _ in range(tensors)]
    for x in weights:
        x.grad = source.stored(elements) * scale
    step: Call = maker(weights, lr=1e-6).step
    return step


@builds("host_to_device")
def _host_to_device(source: Operands) -> Call:
    x = torch.randn(source.shape["elements"]).pin_memory()
    return lambda: x.to(source.device, non_blocking=True)


@builds("device_to_host")
def _device_to_host(source: Operands) -> Call:
    x = source.operand("elements")
    target = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    return lambda: target.copy_(x, non_blocking=True)
