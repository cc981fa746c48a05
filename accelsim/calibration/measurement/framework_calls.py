"""Calls of optimizers, of a framework's own work, and of copies between host and device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from accelsim.calibration.measurement.operands import BUILDERS, Builder, Call, Operands, builds

__all__: list[str] = []


def _optimizer(
    maker: Callable[[list[torch.Tensor]], torch.optim.Optimizer], scale: float = 1.0
) -> Builder:
    """Updates with random gradients times `scale`."""

    def build(source: Operands) -> Call:
        parameters, tensors = source.sizes("parameters tensors")
        each = parameters // tensors
        weights = [source.stored(each).requires_grad_() for _ in range(tensors)]
        for x in weights:
            x.grad = source.stored(each) * scale
        step: Call = maker(weights).step
        return step

    return build


BUILDERS |= {
    "adamw": _optimizer(lambda x: torch.optim.AdamW(x, lr=1e-6)),
    "adamw_idle": _optimizer(lambda x: torch.optim.AdamW(x, lr=1e-6), 0.0),
    "sgd": _optimizer(lambda x: torch.optim.SGD(x, lr=1e-6)),
}


@builds("module_call")
def _module_call(source: Operands) -> Call:
    """What a module adds to an operator: a chain of modules that do nothing."""
    chain = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(source.shape["count"])))
    x = source.values(16)
    return lambda: chain(x)


@builds("plain_chain")
def _plain_chain(source: Operands) -> Call:
    x, count = source.values(16), source.shape["count"]
    return lambda: _chain(x, count)


@builds("gradient_chain")
def _gradient_chain(source: Operands) -> Call:
    """The same chain forward and backward: twice its operators, and the graph between them."""
    x, gradient = source.values(16).requires_grad_(), source.values(16)
    count = source.shape["count"]
    return lambda: torch.autograd.grad(_chain(x, count), x, gradient)


def _chain(x: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        x = torch.neg(x)
    return x


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
