"""Transformers over images: windows compared by angle, linear attention, and small windows amid
convolutions.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.convolutional import images, relu_conv
from accelsim.calibration.check_models.fourth.transformers import (
    Mlp,
    joined,
    shift_mask,
    window_places,
    windows,
)
from accelsim.calibration.check_models.register import Inputs, registered

__all__ = ["linear_attention", "log_spaced"]


# -- Swin V2
# ---------------------------------------------------------------------------------------------------------

_WINDOW: Final = 8


def log_spaced(side: int) -> Tensor:
    """Relative places of a window, down and right, in steps that grow with distance: (1, 2 side -
    1, 2 side - 1, 2).
    """
    line = torch.arange(1 - side, side, dtype=torch.float32)
    places = (
        torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).unsqueeze(0) / (side - 1) * 8
    )
    return torch.sign(places) * torch.log2(places.abs() + 1.0) / 3.0


class _CosineAttention(nn.Module):
    """Normalised queries and keys, a learned heat, and a bias of each head by a perceptron over
    relative places.
    """

    def __init__(self, width: int, heads: int, mask: Tensor | None) -> None:
        super().__init__()
        self.heads, self.heat = heads, nn.Parameter(torch.full((heads, 1, 1), math.log(10.0)))
        self.bias = nn.Sequential(
            nn.Linear(2, 512), nn.ReLU(inplace=True), nn.Linear(512, heads, bias=False)
        )
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("table", log_spaced(_WINDOW))
        self.register_buffer("places", window_places(_WINDOW))
        self.register_buffer("mask", mask)

    def _place_bias(self, n: int) -> Tensor:
        found = self.bias(self.table).view(-1, self.heads)[self.places].view(n, n, self.heads)
        return 16 * torch.sigmoid(found.permute(2, 0, 1).contiguous().unsqueeze(0))

    def forward(self, x: Tensor) -> Tensor:
        count, n, width = x.shape
        place, bias = self._place_bias(n), self.parts.bias.clone()
        bias[width : 2 * width].zero_()  # keys have none
        parts = functional.linear(x, self.parts.weight, bias).reshape(
            count, n, 3, self.heads, width // self.heads
        )
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * torch.clamp(self.heat, max=math.log(100.0)).exp() + place
        if self.mask is not None:
            own = scores.view(-1, self.mask.shape[0], self.heads, n, n) + self.mask.unsqueeze(
                1
            ).unsqueeze(0)
            scores = own.view(-1, self.heads, n, n)
        return self.output((scores.softmax(-1) @ v).transpose(1, 2).reshape(count, n, width))


class _CosineBlock(nn.Module):
    """Attention within windows of 8 x 8 patches, in every other block shifted by four; norms
    behind.
    """

    def __init__(self, width: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.shift, self.norm1, self.norm2 = shift, nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _CosineAttention(
            width, heads, shift_mask(size, shift, _WINDOW) if shift else None
        )
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        y = joined(self.attention(windows(y, _WINDOW)), x.shape, _WINDOW)
        x = x + self.norm1(torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.norm2(self.mlp(x))


class _NormedMerge(nn.Module):
    """Four neighbours as one patch of twice the width, with a norm behind."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow, self.norm = (
            nn.Linear(4 * width, 2 * width, bias=False),
            nn.LayerNorm(2 * width),
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.norm(self.narrow(torch.cat(parts, -1)))


class _SwinV2(nn.Module):
    """Liu et al., CVPR 2022."""

    def __init__(self, width: int, depths: tuple[int, ...], side: int) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        layers: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            wide, size = width * 2**stage, side // 4 // 2**stage
            layers += [_NormedMerge(wide // 2)] if stage else []
            shift = _WINDOW // 2 if size > _WINDOW else 0
            layers += [_CosineBlock(wide, wide // 32, size, shift * (n % 2)) for n in range(depth)]
        self.layers, self.last = nn.Sequential(*layers), nn.LayerNorm(8 * width)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 1000))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(self.norm(self.patch(x).permute(0, 2, 3, 1)))
        return self.head(self.last(y).permute(0, 3, 1, 2))


@registered("swin-v2-tiny")
def _swin(batch: int) -> tuple[nn.Module, Inputs]:
    return _SwinV2(96, (2, 2, 6, 2), 256), images(batch, 256)


# -- EfficientViT
# ----------------------------------------------------------------------------------------------------

_SWISH: Final = partial(nn.Hardswish, inplace=True)
_swish_conv: Final = partial(relu_conv, act=_SWISH)


class _Added(nn.Module):
    """Layers beside their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x) + x


def _inverted(i: int, o: int, s: int, normed: bool) -> nn.Module:
    """An inverted bottleneck of four times the channels; without norms its first two convolutions
    have biases.
    """
    wide = 4 * i
    if normed:
        layers = [_swish_conv(i, wide, 1), _swish_conv(wide, wide, 3, s, wide)]
    else:
        layers = [
            nn.Conv2d(i, wide, 1),
            _SWISH(),
            nn.Conv2d(wide, wide, 3, s, 1, groups=wide),
            _SWISH(),
        ]
    return nn.Sequential(*layers, relu_conv(wide, o, 1, act=None))


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Sums over all places weighed by products that are not negative, by way of the products of
    keys and values.

    Args:
        q: Queries, not negative, shape (..., places, size).
        k: Keys, likewise.
        v: Values and a last one of 1, shape (..., places, size + 1).

    Returns:
        Shape (..., places, size).
    """
    found = q @ (k.transpose(-1, -2) @ v)
    return found[..., :-1] / (found[..., -1:] + 1e-5)


class _ScaleAttention(nn.Module):
    """Linear attention over pixels and over what 5x5 convolutions say of them."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size, count = size, 3 * width
        self.parts = nn.Conv2d(width, count, 1, bias=False)
        across = nn.Conv2d(count, count, 5, padding=2, groups=count, bias=False)
        self.around = nn.Sequential(
            across, nn.Conv2d(count, count, 1, groups=count // size, bias=False)
        )
        self.output = relu_conv(2 * width, width, 1, act=None)

    def forward(self, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        near = self.parts(x)
        both = (
            torch.cat([near, self.around(near)], 1)
            .reshape(b, -1, 3 * self.size, h * w)
            .transpose(-1, -2)
        )
        q, k, v = both.chunk(3, -1)
        q, k, v = functional.relu(q), functional.relu(k), functional.pad(v, (0, 1), value=1.0)
        y = linear_attention(q.float(), k.float(), v.float()).to(v.dtype)
        return self.output(y.transpose(-1, -2).reshape(b, -1, h, w))


@registered("efficientvit-b0")
def _efficientvit(batch: int) -> tuple[nn.Module, Inputs]:
    """Cai et al., ICCV 2023; heads of 16 features."""
    layers: list[nn.Module] = [_swish_conv(3, 8, 3, 2)]
    layers.append(_Added(_swish_conv(8, 8, 3, 1, 8), relu_conv(8, 8, 1, act=None)))
    for i, o in ((8, 16), (16, 32)):
        layers += [_inverted(i, o, 2, normed=True), _Added(_inverted(o, o, 1, normed=True))]
    for i, o in ((32, 64), (64, 128)):
        layers.append(_inverted(i, o, 2, normed=False))
        for _ in range(2):
            layers += [_Added(_ScaleAttention(o, 16)), _Added(_inverted(o, o, 1, normed=False))]
    head = [
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, 1280, bias=False),
        nn.LayerNorm(1280),
        _SWISH(),
    ]
    return nn.Sequential(*layers, _swish_conv(128, 1024, 1), *head, nn.Linear(1280, 1000)), images(
        batch
    )


# -- TinyViT
# ---------------------------------------------------------------------------------------------------------


_gelu_conv: Final = partial(relu_conv, act=nn.GELU)


class _MobileBlock(nn.Module):
    """An inverted bottleneck whose activation comes behind the sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 4 * width
        layers = (
            _gelu_conv(width, wide, 1),
            _gelu_conv(wide, wide, 3, 1, wide),
            relu_conv(wide, width, 1, act=None),
        )
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y += x
        return functional.gelu(y)


class _Halved(nn.Module):
    """Half the size; patches out, and in too where they have a side."""

    def __init__(self, i: int, o: int, side: int | None) -> None:
        super().__init__()
        self.side = side
        layers = _gelu_conv(i, o, 1), _gelu_conv(o, o, 3, 2, o), relu_conv(o, o, 1, act=None)
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.side is not None:
            x = x.view(x.shape[0], self.side, self.side, -1).permute(0, 3, 1, 2)
        return self.path(x).flatten(2).transpose(1, 2)


class _WindowAttention(nn.Module):
    """A bias of each head for every distance down and across, looked up once when training ends."""

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads, self.scale, self.norm = heads, (width // heads) ** -0.5, nn.LayerNorm(width)
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        row, column = torch.arange(side).repeat_interleave(side), torch.arange(side).repeat(side)
        down, right = (row[:, None] - row[None, :]).abs(), (column[:, None] - column[None, :]).abs()
        self.biases, self.looked_up = nn.Parameter(torch.zeros(heads, side * side)), torch.empty(0)
        self.register_buffer("distances", down * side + right)

    def train(self, mode: bool = True) -> _WindowAttention:
        super().train(mode)
        if not mode:
            self.looked_up = self.biases.detach()[:, self.distances]
        return self

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        parts = self.parts(self.norm(x)).view(b, n, self.heads, -1)
        q, k, v = (part.permute(0, 2, 1, 3) for part in parts.chunk(3, 3))
        bias = self.biases[:, self.distances] if self.training else self.looked_up
        weights = ((q @ k.transpose(-2, -1)) * self.scale + bias).softmax(-1)
        return self.output((weights @ v).transpose(1, 2).reshape(b, n, -1))


class _WindowLayer(nn.Module):
    """Attention within windows, a depthwise 3x3 convolution over the patches' image, and a
    perceptron.
    """

    def __init__(self, width: int, heads: int, side: int, window: int) -> None:
        super().__init__()
        self.side, self.window, self.attention = (
            side,
            window,
            _WindowAttention(width, heads, window),
        )
        self.local, self.norm, self.mlp = (
            relu_conv(width, width, 3, 1, width, None),
            nn.LayerNorm(width),
            Mlp(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        if self.side == self.window:
            y = self.attention(x)
        else:
            image = x.view(b, self.side, self.side, width)
            y = joined(self.attention(windows(image, self.window)), image.shape, self.window).view(
                b, n, width
            )
        x = (x + y).transpose(1, 2).reshape(b, width, self.side, self.side)
        x = self.local(x).view(b, width, n).transpose(1, 2)
        return x + self.mlp(self.norm(x))


class _TinyVit(nn.Module):
    """Wu et al., ECCV 2022."""

    def __init__(
        self, widths: tuple[int, ...], heads: tuple[int, ...], depths: tuple[int, ...]
    ) -> None:
        super().__init__()
        first = widths[0]
        layers: list[nn.Module] = [
            _gelu_conv(3, first // 2, 3, 2),
            relu_conv(first // 2, first, 3, 2, act=None),
        ]
        layers += [_MobileBlock(first) for _ in range(depths[0])]
        for stage, window in enumerate((7, 14, 7), 1):
            width, side = widths[stage], 56 // 2**stage
            layers.append(_Halved(widths[stage - 1], width, 2 * side if stage > 1 else None))
            layers += [
                _WindowLayer(width, heads[stage - 1], side, window) for _ in range(depths[stage])
            ]
        self.layers, self.norm, self.head = (
            nn.Sequential(*layers),
            nn.LayerNorm(widths[-1]),
            nn.Linear(widths[-1], 1000),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(x).mean(1)))


@registered("tinyvit-5m")
def _tinyvit(batch: int) -> tuple[nn.Module, Inputs]:
    return _TinyVit((64, 128, 160, 320), (4, 5, 10), (2, 2, 6, 2)), images(batch)
