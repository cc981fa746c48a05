"""Networks of convolutions that classify images or choose moves, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.convolutional import (
    SqueezeExcite,
    images,
    pooled_head,
    relu_conv,
)
from accelsim.calibration.check_models.register import Inputs, registered

__all__ = ["Bottleneck", "mobile_layers", "residual_layers"]

_SWISH: Final = partial(nn.Hardswish, inplace=True)
_RELU: Final = partial(nn.ReLU, inplace=True)


class Bottleneck(nn.Module):
    """A 3x3 convolution, in groups or with gaps, between two 1x1, beside a skip (He et al., CVPR
    2016).

    Args:
        i: Channels in.
        width: Channels of the 3x3 convolution.
        o: Channels out.
        s: Stride.
        g: Groups.
        d: Distance of the pixels that a filter takes.
    """

    def __init__(self, i: int, width: int, o: int, s: int = 1, g: int = 1, d: int = 1) -> None:
        super().__init__()
        self.path = nn.Sequential(
            relu_conv(i, width, 1),
            relu_conv(width, width, 3, s, g, d=d),
            relu_conv(width, o, 1, act=None),
        )
        self.skip = nn.Identity() if i == o and s == 1 else relu_conv(i, o, 1, s, act=None)

    def forward(self, x: Tensor) -> Tensor:
        """Features of a stage, shape (batch, o, height / s, width / s)."""
        y = self.path(x)
        y += self.skip(x)
        return functional.relu(y, inplace=True)


def residual_layers(
    growth: int, groups: int, gaps: tuple[int, int] = (1, 1)
) -> list[nn.Sequential]:
    """Stem and four stages of a residual network of 50 layers.

    Args:
        growth: The first stage's width; each further one has twice as much.
        groups: Of the 3x3 convolutions.
        gaps: Distances of pixels in the last two stages, whose strides they replace where above
            one.
    """
    stages = [nn.Sequential(relu_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))]
    channels, before = 64, 1
    for stage, (count, d) in enumerate(zip((3, 4, 6, 3), (1, 1, *gaps), strict=True)):
        width, o, s = growth * 2**stage, 256 * 2**stage, 2 if stage and d == 1 else 1
        first = Bottleneck(channels, width, o, s, groups, before)
        stages.append(
            nn.Sequential(first, *(Bottleneck(o, width, o, 1, groups, d) for _ in range(count - 1)))
        )
        channels, before = o, d
    return stages


@registered("resnext-50-32x4d")
def _resnext(batch: int) -> tuple[nn.Module, Inputs]:
    """Thirty-two groups (Xie et al., CVPR 2017)."""
    return nn.Sequential(*residual_layers(128, 32), *pooled_head(2048)), images(batch)


# -- small networks
# --------------------------------------------------------------------------------------------------


class _Ghost(nn.Module):
    """Half of the channels by a convolution, the rest from those by a depthwise one."""

    def __init__(self, i: int, o: int, acts: bool) -> None:
        super().__init__()
        conv = partial(relu_conv, act=_RELU if acts else None)
        self.first, self.cheap = conv(i, o // 2, 1), conv(o // 2, o // 2, 3, g=o // 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return torch.cat([y, self.cheap(y)], 1)


def _divisible(channels: float, by: int) -> int:
    """The nearest multiple, at least nine tenths of what was asked."""
    near = max(by, int(channels + by / 2) // by * by)
    return near + by if near < 0.9 * channels else near


class _GhostBottleneck(nn.Module):
    def __init__(self, i: int, wide: int, o: int, k: int, s: int, squeezes: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Ghost(i, wide, acts=True)]
        layers += [relu_conv(wide, wide, k, s, wide, None)] if s > 1 else []
        layers += (
            [SqueezeExcite(wide, _divisible(wide / 4, 4), nn.ReLU, nn.Hardsigmoid)]
            if squeezes
            else []
        )
        self.path = nn.Sequential(*layers, _Ghost(wide, o, acts=False))
        skip = nn.Sequential(relu_conv(i, i, k, s, i, None), relu_conv(i, o, 1, act=None))
        self.skip = nn.Identity() if i == o and s == 1 else skip

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y += self.skip(x)
        return y


#: Kernel, width between, channels out, whether it squeezes, stride.
_GHOST_LAYERS: Final = (
    *((3, 16, 16, False, 1), (3, 48, 24, False, 2), (3, 72, 24, False, 1)),
    *((5, 72, 40, True, 2), (5, 120, 40, True, 1), (3, 240, 80, False, 2), (3, 200, 80, False, 1)),
    *(
        (3, 184, 80, False, 1),
        (3, 184, 80, False, 1),
        (3, 480, 112, True, 1),
        (3, 672, 112, True, 1),
    ),
    *((5, 672, 160, True, 2), (5, 960, 160, False, 1), (5, 960, 160, True, 1)),
    *((5, 960, 160, False, 1), (5, 960, 160, True, 1)),
)


@registered("ghostnet-1.0")
def _ghostnet(batch: int) -> tuple[nn.Module, Inputs]:
    """Table 1 of Han et al., CVPR 2020."""
    layers: list[nn.Module] = [relu_conv(3, 16, 3, 2)]
    channels = 16
    for k, wide, o, squeezes, s in _GHOST_LAYERS:
        layers.append(_GhostBottleneck(channels, wide, o, k, s, squeezes))
        channels = o
    head = [
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(960, 1280, 1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.2),
    ]
    return nn.Sequential(*layers, relu_conv(160, 960, 1), *head, nn.Linear(1280, 1000)), images(
        batch
    )


class _Inverted(nn.Module):
    """A depthwise convolution between a 1x1 that widens and one that narrows."""

    def __init__(self, i: int, wide: int, o: int, k: int, s: int) -> None:
        super().__init__()
        widen, across = relu_conv(i, wide, 1), relu_conv(wide, wide, k, s, wide)
        self.path, self.adds = (
            nn.Sequential(widen, across, relu_conv(wide, o, 1, act=None)),
            i == o and s == 1,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x) + x if self.adds else self.path(x)


@registered("mnasnet-1.0")
def _mnasnet(batch: int) -> tuple[nn.Module, Inputs]:
    """The B1 network of Tan et al., CVPR 2019."""
    layers: list[nn.Module] = [
        relu_conv(3, 32, 3, 2),
        relu_conv(32, 32, 3, 1, 32),
        relu_conv(32, 16, 1, act=None),
    ]
    channels = 16
    for o, k, s, growth, count in (
        (24, 3, 2, 3, 3),
        (40, 5, 2, 3, 3),
        (80, 5, 2, 6, 3),
        (96, 3, 1, 6, 2),
        (192, 5, 2, 6, 4),
        (320, 3, 1, 6, 1),
    ):
        for position in range(count):
            layers.append(_Inverted(channels, growth * channels, o, k, 1 if position else s))
            channels = o
    return nn.Sequential(*layers, relu_conv(320, 1280, 1), *pooled_head(1280, 0.2)), images(batch)


#: Kernel, width between, channels out, whether it squeezes, whether its activation is a hard swish,
#: stride.
_MOBILE_LAYERS: Final = (
    *((3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1)),
    *((5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1)),
    *((3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1)),
    *((3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1)),
    *((5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1)),
)


class _MobileBlock(nn.Module):
    """An inverted bottleneck that may squeeze; no 1x1 before where it does not widen."""

    def __init__(self, i: int, o: int, layer: tuple[int, int, bool, bool, int], d: int) -> None:
        super().__init__()
        k, wide, squeezes, swishes, s = layer
        conv = partial(relu_conv, act=_SWISH if swishes else _RELU)
        layers: list[nn.Module] = [conv(i, wide, 1)] if wide != i else []
        layers.append(conv(wide, wide, k, s, wide, d=d))
        layers += (
            [SqueezeExcite(wide, _divisible(wide // 4, 8), nn.ReLU, nn.Hardsigmoid)]
            if squeezes
            else []
        )
        self.path, self.adds = (
            nn.Sequential(*layers, relu_conv(wide, o, 1, act=None)),
            i == o and s == 1,
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        if self.adds:
            y += x
        return y


def mobile_layers(gap: int = 1) -> list[nn.Module]:
    """MobileNet V3 large up to its last convolution, of 960 channels (Howard et al., ICCV 2019).

    Args:
        gap: Distance of pixels in the last three blocks, whose stride it replaces where above one.
    """
    layers: list[nn.Module] = [relu_conv(3, 16, 3, 2, act=_SWISH)]
    channels = 16
    for k, wide, o, squeezes, swishes, s in _MOBILE_LAYERS:
        d = gap if o == 160 else 1
        layers.append(_MobileBlock(channels, o, (k, wide, squeezes, swishes, 1 if d > 1 else s), d))
        channels = o
    return [*layers, relu_conv(160, 960, 1, act=_SWISH)]


@registered("mobilenet-v3-large")
def _mobilenet(batch: int) -> tuple[nn.Module, Inputs]:
    head = [
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(960, 1280),
        _SWISH(),
        nn.Dropout(0.2, inplace=True),
    ]
    return nn.Sequential(*mobile_layers(), *head, nn.Linear(1280, 1000)), images(batch)


# -- plain networks
# --------------------------------------------------------------------------------------------------


class _ManyBranches(nn.Module):
    """A 3x3 and a 1x1 convolution and, where shapes allow, the input, each behind a batch norm."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.three, self.one = relu_conv(i, o, 3, s, act=None), relu_conv(i, o, 1, s, act=None)
        self.same = nn.BatchNorm2d(i) if i == o and s == 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.three(x) + self.one(x)
        return functional.relu(y if self.same is None else y + self.same(x))


@registered("repvgg-a0")
def _repvgg(batch: int) -> tuple[nn.Module, Inputs]:
    """As it trains, before its branches become one convolution (Ding et al., CVPR 2021)."""
    layers: list[nn.Module] = [_ManyBranches(3, 48, 2)]
    channels = 48
    for width, count in ((48, 2), (96, 4), (192, 14), (1280, 1)):
        for position in range(count):
            layers.append(_ManyBranches(channels, width, 1 if position else 2))
            channels = width
    return nn.Sequential(*layers, *pooled_head(1280)), images(batch)


@registered("nature-dqn")
def _dqn(batch: int) -> tuple[nn.Module, Inputs]:
    """Values of the six moves of a game from its last four pictures (Mnih et al., Nature 2015)."""
    layers: list[nn.Module] = []
    for i, o, k, s in ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
        layers += [nn.Conv2d(i, o, k, s), nn.ReLU()]
    head = [nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 4, 84, 84),)
