"""Calls of recurrent layers, optimizers, a framework's own work, and copies between host and
device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from accelsim.calibration.measurement.operands import (
    BUILDERS,
    Builder,
    Call,
    Source,
    builds,
)

__all__: list[str] = []

# -- recurrent layers, optimizers, transfers
# -------------------------------------------------------------------------


def _recurrent(source: Source, kind: str) -> tuple[torch.nn.Module, torch.Tensor]:
    s = source.shape
    maker = torch.nn.LSTM if kind == "lstm" else torch.nn.GRU
    layer = maker(
        s["input"], s["hidden"], batch_first=True, device=source.device, dtype=source.dtype
    )
    return layer, source.values(s["batch"], s["steps"], s["input"])


def _recurrent_builder(kind: str) -> Builder:
    def build(source: Source) -> Call:
        # weights keep requires_grad, as a model's do: without it the framework takes another path
        # (bf16 GRU, 8 times slower)
        layer, x = _recurrent(source, kind)
        return lambda: layer(x)

    return build


BUILDERS |= {
    "lstm": _recurrent_builder("lstm"),
    "gru": _recurrent_builder("gru"),
    "lstm_train": _recurrent_builder("lstm"),
    "gru_train": _recurrent_builder("gru"),
}


@builds("recurrent_module", "recurrent_layer")
def _recurrent_call(source: Source) -> Call:
    """A module of one small layer, and the layer alone: the module looks through its weights and
    states first.
    """
    layer = torch.nn.LSTM(16, 16, batch_first=True, device=source.device, dtype=source.dtype)
    x, states = source.values(1, 1, 16), (source.values(1, 1, 16), source.values(1, 1, 16))
    if source.operator == "recurrent_module":
        return lambda: layer(x)
    weights = list(layer.parameters())
    return lambda: torch.lstm(x, states, weights, True, 1, 0.0, False, False, True)


def _recurrent_backward_builder(kind: str) -> Builder:
    def build(source: Source) -> Call:
        layer, x = _recurrent(source, kind)
        inputs = [x.requires_grad_(), *layer.parameters()]
        output, _ = layer(x)
        gradient = source.values(*output.shape)
        return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    return build


BUILDERS |= {
    "lstm_backward": _recurrent_backward_builder("lstm"),
    "gru_backward": _recurrent_backward_builder("gru"),
}


def _optimizer_builder(
    maker: Callable[[list[torch.Tensor]], torch.optim.Optimizer], scale: float = 1.0
) -> Builder:
    """Updates with random gradients times `scale`."""

    def build(source: Source) -> Call:
        s = source.shape
        each = s["parameters"] // s["tensors"]
        parameters = [source.stored(each).requires_grad_() for _ in range(s["tensors"])]
        for x in parameters:
            x.grad = source.stored(each) * scale
        step: Call = maker(parameters).step
        return step

    return build


BUILDERS |= {
    "adamw": _optimizer_builder(lambda x: torch.optim.AdamW(x, lr=1e-6)),
    "adamw_idle": _optimizer_builder(lambda x: torch.optim.AdamW(x, lr=1e-6), 0.0),
    "sgd": _optimizer_builder(lambda x: torch.optim.SGD(x, lr=1e-6)),
}


@builds("module_call")
def _module_call(source: Source) -> Call:
    """What a module adds to an operator: a chain of modules that do nothing."""
    chain = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(source.shape["count"])))
    x = source.values(16)
    return lambda: chain(x)


@builds("plain_chain")
def _plain_chain(source: Source) -> Call:
    x, count = source.values(16), source.shape["count"]
    return lambda: _chain(x, count)


@builds("gradient_chain")
def _gradient_chain(source: Source) -> Call:
    """The same chain forward and backward: twice its operators, and the graph between them."""
    x, count, gradient = (
        source.values(16).requires_grad_(),
        source.shape["count"],
        source.values(16),
    )
    return lambda: torch.autograd.grad(_chain(x, count), x, gradient)


def _chain(x: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        x = torch.neg(x)
    return x


@builds("host_to_device")
def _host_to_device(source: Source) -> Call:
    x = torch.randn(source.shape["elements"]).pin_memory()
    return lambda: x.to(source.device, non_blocking=True)


@builds("device_to_host")
def _device_to_host(source: Source) -> Call:
    x = source.values(source.shape["elements"])
    target = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    return lambda: target.copy_(x, non_blocking=True)
