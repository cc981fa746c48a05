"""The register of check models, and the parts that several of them share."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

Inputs = tuple[Tensor, ...]
#: A module and example inputs.
Made = tuple[nn.Module, Inputs]
Factory = Callable[[int], Made]
#: Factories by name.
CHECK_MODELS: dict[str, Factory] = {}
_RELU = partial(nn.ReLU, inplace=True)


def registered(name: str) -> Callable[[Factory], Factory]:
    """Add a factory under a name."""

    def add(factory: Factory) -> Factory:
        CHECK_MODELS[name] = factory
        return factory

    return add


def in_format(model: Made, dtype: torch.dtype) -> Made:
    """A module and its inputs, floating-point parts in `dtype`."""
    module, inputs = model
    cast = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    return module.to(dtype), cast


def token_ids(batch: int, length: int, vocabulary: int) -> Tensor:
    """Random tokens, shape (batch, length)."""
    return torch.randint(vocabulary, (batch, length))


def images(batch: int, side: int = 224) -> Inputs:
    """Random images, shape (batch, 3, side, side)."""
    return (torch.randn(batch, 3, side, side),)


def pooled_head(channels: int) -> list[nn.Module]:
    """Logits of 1000 classes from the mean over all pixels."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(channels, 1000)]


def perceptron(*sizes: int) -> nn.Sequential:
    """Linear layers, an activation behind each."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers)


class ConvNorm(nn.Sequential):
    """Convolution of `kernel` by `kernel` pixels, batch norm and an activation, in place."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        act: Callable[[], nn.Module] | None = _RELU,
    ) -> None:
        padding = kernel // 2
        parts: list[nn.Module] = [
            nn.Conv2d(
                channels_in, channels_out, kernel, stride, padding, groups=groups, bias=False
            ),
            nn.BatchNorm2d(channels_out),
        ]
        super().__init__(*parts, *([act()] if act else []))


class Residual(nn.Module):
    """Convolutions beside a skip (He et al., CVPR 2016)."""

    def __init__(self, path: list[nn.Module], channels: tuple[int, int], stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(*path)
        same = channels[0] == channels[1] and stride == 1
        self.skip = nn.Identity() if same else ConvNorm(*channels, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        """Features of a stage."""
        y = self.path(x)
        y += self.skip(x)
        return functional.relu(y, inplace=True)


class Attention(nn.Module):
    """Attention of a sequence to itself (Vaswani et al., NIPS 2017)."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Features of the same shape."""
        projections = (self.query(x), self.key(x), self.value(x))
        q, k, v = (
            projection.unflatten(-1, (self.heads, -1)).transpose(1, 2) for projection in projections
        )
        y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        return self.output(y.transpose(1, 2).flatten(2))


class Mlp(nn.Sequential):
    """Two linear layers, the inner four times as wide."""

    def __init__(self, width: int, drop: float) -> None:
        wide = 4 * width
        super().__init__(
            nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width), nn.Dropout(drop)
        )


class PreNorm(nn.Module):
    """Attention and feed-forward layer, with norms before."""

    def __init__(self, width: int, heads: int, causal: bool = False, drop: float = 0.0) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal)
        self.mlp = Mlp(width, drop)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))
