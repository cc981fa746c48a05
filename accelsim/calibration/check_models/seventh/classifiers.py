"""Networks of convolutions that classify images: dense, aggregated once, shuffled and mobile, at
their published sizes.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.convolutional import (
    densenet,
    images,
    pooled_head,
    relu_conv,
)
from accelsim.calibration.check_models.register import Inputs, registered

__all__: list[str] = []


@registered("densenet-169")
def _densenet(batch: int) -> tuple[nn.Module, Inputs]:
    """Huang et al., CVPR 2017."""
    return densenet((6, 12, 32, 32)), images(batch)


# -- VoVNet
# ----------------------------------------------------------------------------------------------------------


class _Aggregated(nn.Module):
    """Five convolutions in a row whose outputs are joined once, at the end (Lee et al., CVPRW
    2019).
    """

    def __init__(self, i: int, width: int, o: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(relu_conv(width if n else i, width) for n in range(5))
        self.join = relu_conv(i + 5 * width, o, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(found[-1]))
        return self.join(torch.cat(found, 1))


@registered("vovnet-39")
def _vovnet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [relu_conv(3, 64, 3, 2), relu_conv(64, 64), relu_conv(64, 128, 3, 2)]
    channels = 128
    for stage, (width, o, count) in enumerate(
        ((128, 256, 1), (160, 512, 1), (192, 768, 2), (224, 1024, 2))
    ):
        layers += [nn.MaxPool2d(3, 2, ceil_mode=True)] if stage else []
        for _ in range(count):
            layers.append(_Aggregated(channels, width, o))
            channels = o
    return nn.Sequential(*layers, *pooled_head(1024)), images(batch)


# -- ShuffleNet
# ------------------------------------------------------------------------------------------------------

_GROUPS: Final = 3


class _Shuffled(nn.Module):
    """1x1 convolutions in groups, between which channels change groups (Zhang et al., CVPR 2018)."""

    def __init__(self, i: int, o: int, s: int, first: bool) -> None:
        super().__init__()
        width, new = o // 4, o - i if s > 1 else o
        self.narrow = relu_conv(i, width, 1, 1, 1 if first else _GROUPS)
        self.across = relu_conv(width, width, 3, s, width, None)
        self.widen = relu_conv(width, new, 1, 1, _GROUPS, None)
        self.pool = nn.AvgPool2d(3, 2, 1) if s > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.across(self.narrow(x))
        b, c, h, w = y.shape
        y = y.reshape(b, c // _GROUPS, _GROUPS, h, w).permute(0, 2, 1, 3, 4).reshape(b, c, h, w)
        y = self.widen(y)
        if self.pool is None:
            return functional.relu(y + x)
        return torch.cat([self.pool(x), functional.relu(y)], 1)


@registered("shufflenet-v1")
def _shufflenet(batch: int) -> tuple[nn.Module, Inputs]:
    """Three groups, full width; no bias behind the mean, as its authors' program has it."""
    layers: list[nn.Module] = [relu_conv(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 24
    for o, count in ((240, 4), (480, 8), (960, 4)):
        for position in range(count):
            layers.append(_Shuffled(channels, o, 1 if position else 2, channels == 24))
            channels = o
    return nn.Sequential(
        *layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(960, 1000, bias=False)
    ), images(batch)


# -- MobileNet V4
# ----------------------------------------------------------------------------------------------------


class _Universal(nn.Module):
    """An inverted bottleneck with depthwise convolutions before it, within it, or both (Qin et al.,
    ECCV 2024).

    Args:
        i: Channels in.
        o: Channels out.
        growth: How much wider it is between.
        before: Side of the first depthwise convolution; 0 for none.
        within: Side of the second, likewise.
        s: Stride, of the second where there is one.
    """

    def __init__(self, i: int, o: int, growth: int, before: int, within: int, s: int) -> None:
        super().__init__()
        wide = growth * i
        layers = [relu_conv(i, i, before, 1 if within else s, i, None)] if before else []
        layers.append(relu_conv(i, wide, 1))
        layers += [relu_conv(wide, wide, within, s, wide)] if within else []
        self.path, self.adds = (
            nn.Sequential(*layers, relu_conv(wide, o, 1, act=None)),
            i == o and s == 1,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x) + x if self.adds else self.path(x)


#: Channels out, growth, sides of the two depthwise convolutions, stride.
_UNIVERSAL: Final = (
    *((96, 3, 5, 5, 2), *((96, 2, 0, 3, 1),) * 4, (96, 4, 3, 0, 1)),
    *(
        (128, 6, 3, 3, 2),
        (128, 4, 5, 5, 1),
        (128, 4, 0, 5, 1),
        (128, 3, 0, 5, 1),
        *((128, 4, 0, 3, 1),) * 2,
    ),
)


@registered("mobilenet-v4-small")
def _mobilenet(batch: int) -> tuple[nn.Module, Inputs]:
    """The small network of convolutions alone."""
    layers: list[nn.Module] = [
        relu_conv(3, 32, 3, 2),
        relu_conv(32, 32, 3, 2),
        relu_conv(32, 32, 1),
    ]
    layers += [relu_conv(32, 96, 3, 2), relu_conv(96, 64, 1)]
    channels = 64
    for o, growth, before, within, s in _UNIVERSAL:
        layers.append(_Universal(channels, o, growth, before, within, s))
        channels = o
    head = [nn.AdaptiveAvgPool2d(1), relu_conv(960, 1280, 1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, relu_conv(128, 960, 1), *head), images(batch)
