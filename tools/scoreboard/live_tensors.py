"""Peak of the bytes of live tensors in a training step of torch on a CPU.

Every storage that an operator makes is counted once until it is freed (`TorchDispatchMode`), with
the weights, gradients and optimizer states that are there before the step.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    """A module whose activations are computed again in the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """What the module gives."""
        return checkpoint(self.inner, x, use_reentrant=False)


class _LiveBytes(TorchDispatchMode):
    """Counts storages while they live."""

    def __init__(self, held: Iterator[Tensor]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}
        for tensor in held:
            self._note(tensor)

    def __torch_dispatch__(
        self, function: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._note(leaf)
        return result

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001  (the storage itself, which views share)
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)


def peak_live_bytes(module: nn.Module, inputs: Tensor, target: Tensor) -> int:
    """Peak of a step with AdamW whose gradients and states are there from the step before.

    Args:
        module: Gives scores, shape (..., classes).
        inputs: Its input.
        target: Classes, shape (...,).
    """
    optimizer = torch.optim.AdamW(module.parameters(), foreach=False)
    step = _step(module, optimizer, inputs, target)
    step()
    with _LiveBytes(_held(module, optimizer)) as live:
        step()
    return live.peak


def _step(
    module: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, target: Tensor
) -> Callable[[], None]:
    def step() -> None:
        scores = module(inputs)
        loss = functional.cross_entropy(scores.flatten(0, -2), target.flatten())
        del scores
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def _held(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Weights, buffers, gradients and states."""
    yield from module.buffers()
    for weight in module.parameters():
        yield weight
        if weight.grad is not None:
            yield weight.grad
    for state in optimizer.state.values():
        yield from (part for part in state.values() if isinstance(part, Tensor))
