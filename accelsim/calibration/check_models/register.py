"""The register of check models, and what several of them share."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn

__all__ = ["CHECK_MODELS", "ConvNorm", "Factory", "Inputs", "registered", "token_ids"]

Inputs = tuple[Tensor, ...]
Factory = Callable[[int], tuple[nn.Module, Inputs]]
#: Factories by name.
CHECK_MODELS: Final[dict[str, Factory]] = {}


def registered(name: str) -> Callable[[Factory], Factory]:
    """Add a factory under a name."""

    def add(factory: Factory) -> Factory:
        CHECK_MODELS[name] = factory
        return factory

    return add


def token_ids(batch: int, length: int, vocabulary: int) -> Tensor:
    """Random tokens, shape (batch, length)."""
    return torch.randint(vocabulary, (batch, length))


class ConvNorm(nn.Sequential):
    """Convolution, batch norm and an activation; its pixels lie `d` apart."""

    def __init__(
        self,
        i: int,
        o: int,
        k: int = 3,
        s: int = 1,
        g: int = 1,
        act: Callable[[], nn.Module] | None = nn.ReLU,
        d: int = 1,
    ) -> None:
        parts: list[nn.Module] = [
            nn.Conv2d(i, o, k, s, d * (k // 2), d, g, bias=False),
            nn.BatchNorm2d(o),
        ]
        super().__init__(*parts, *([act()] if act else []))
