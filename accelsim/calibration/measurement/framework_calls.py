"""Calls of optimizers, of a framework's own work, and of copies between host and device."""

from __future__ import annotations

import torch

from accelsim.calibration.measurement.operands import Call, Operands, builds


@builds("adamw", "adamw_idle", "sgd")
def _update(source: Operands) -> Call:
    """Updates with random gradients, of idle parameters with none."""
    maker = torch.optim.SGD if source.operator == "sgd" else torch.optim.AdamW
    parameters, tensors = source.sizes("parameters tensors")
    each, scale = parameters // tensors, 0.0 if source.operator.endswith("idle") else 1.0
    weights = [source.stored(each).requires_grad_() for _ in range(tensors)]
    for x in weights:
        x.grad = source.stored(each) * scale
    step: Call = maker(weights, lr=1e-6).step
    return step


@builds("module_call")
def _module_call(source: Operands) -> Call:
    """What a module adds to an operator: a chain of modules that do nothing."""
    chain = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(source.shape["count"])))
    x = source.values(16)
    return lambda: chain(x)


@builds("plain_chain", "gradient_chain")
def _plain_chain(source: Operands) -> Call:
    """A chain of operators; the other one forward and backward: twice its operators, and the graph
    between them.
    """
    x, gradient, count = source.values(16), source.values(16), source.shape["count"]

    def chain() -> torch.Tensor:
        y = x
        for _ in range(count):
            y = torch.neg(y)
        return y

    if source.operator == "plain_chain":
        return chain
    x.requires_grad_()
    return lambda: torch.autograd.grad(chain(), x, gradient)


@builds("recurrent_module", "recurrent_layer")
def _recurrent_call(source: Operands) -> Call:
    """A module of one small layer, and the layer alone: the module looks through its weights and
    states first.
    """
    layer = torch.nn.LSTM(16, 16, batch_first=True, device=source.device, dtype=source.dtype)
    x = source.values(1, 1, 16)
    if source.operator == "recurrent_module":
        return lambda: layer(x)
    states = (source.values(1, 1, 16), source.values(1, 1, 16))
    weights = list(layer.parameters())
    return lambda: torch.lstm(x, states, weights, True, 1, 0.0, False, False, True)


@builds("host_to_device")
def _host_to_device(source: Operands) -> Call:
    x = torch.randn(source.shape["elements"]).pin_memory()
    return lambda: x.to(source.device, non_blocking=True)


@builds("device_to_host")
def _device_to_host(source: Operands) -> Call:
    x = source.operand("elements")
    target = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    return lambda: target.copy_(x, non_blocking=True)
