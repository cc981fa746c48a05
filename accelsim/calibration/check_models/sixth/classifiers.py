"""Networks of convolutions that classify images, from the first to the second ConvNeXt, at their
published sizes.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from accelsim.calibration.check_models.fourth.convolutional import (
    ChannelNorm,
    images,
    pooled_head,
    relu_conv,
)
from accelsim.calibration.check_models.register import Inputs, registered
from accelsim.calibration.check_models.third.convolutional import PreActivation

__all__: list[str] = []


# -- small images
# ----------------------------------------------------------------------------------------------------


@registered("lenet-5")
def _lenet(batch: int) -> tuple[nn.Module, Inputs]:
    """Digits of 32 x 32 pixels (LeCun et al., Proc. IEEE 1998), every map of one layer seen by all
    of the next.
    """
    layers = [
        nn.Conv2d(1, 6, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
    ]
    head = [
        nn.Conv2d(16, 120, 5),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(120, 84),
        nn.Tanh(),
        nn.Linear(84, 10),
    ]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 1, 32, 32),)


@registered("wide-resnet-28-10")
def _wide(batch: int) -> tuple[nn.Module, Inputs]:
    """Three stages of four blocks, ten times as wide as usual (Zagoruyko and Komodakis, BMVC 2016)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    channels = 16
    for stage, width in enumerate((160, 320, 640)):
        for position in range(4):
            layers.append(PreActivation(channels, width, 2 if stage and not position else 1))
            channels = width
    head = [
        nn.BatchNorm2d(640),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(640, 10),
    ]
    return nn.Sequential(*layers, *head), images(batch, 32)


# -- ConvNeXt V2
# -----------------------------------------------------------------------------------------------------


class _ResponseNorm(nn.Module):
    """Each channel by its share of all channels' magnitude over the image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(x, ord=2, dim=(1, 2), keepdim=True)
        share = size / (size.mean(-1, keepdim=True) + 1e-6)
        return self.weight * (x * share) + self.bias + x


class _ConvNextBlock(nn.Module):
    """A wide depthwise convolution, then a perceptron over channels that compete (Woo et al., CVPR
    2023).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.across, self.norm = (
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            nn.LayerNorm(width, eps=1e-6),
        )
        wide = 4 * width
        self.mlp = nn.Sequential(
            nn.Linear(width, wide), nn.GELU(), _ResponseNorm(wide), nn.Linear(wide, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(self.across(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class _Classes(nn.Module):
    """Logits from the mean over all pixels, behind a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x.mean((-2, -1))))


@registered("convnext-v2-atto")
def _convnext(batch: int) -> tuple[nn.Module, Inputs]:
    widths = (40, 80, 160, 320)
    layers: list[nn.Module] = [nn.Conv2d(3, 40, 4, 4), ChannelNorm(40, eps=1e-6)]
    for stage, (width, count) in enumerate(zip(widths, (2, 2, 6, 2), strict=True)):
        if stage:
            layers += [ChannelNorm(width // 2, eps=1e-6), nn.Conv2d(width // 2, width, 2, 2)]
        layers += [_ConvNextBlock(width) for _ in range(count)]
    return nn.Sequential(*layers, _Classes(320)), images(batch)


# -- HarDNet
# ---------------------------------------------------------------------------------------------------------

_RELU6: Final = partial(nn.ReLU6, inplace=True)
_GROWTH: Final = 1.7


def _links(layer: int) -> list[int]:
    """The layers that one reads: those a power of two before it that divides its number."""
    return [layer - 2**n for n in range(layer.bit_length()) if layer % 2**n == 0]


class _HarmonicBlock(nn.Module):
    """Layers that read few of those before them; odd ones and the last come out (Chao et al., ICCV
    2019).
    """

    def __init__(self, i: int, growth: int, count: int) -> None:
        super().__init__()
        numbers = range(1, count + 1)
        widths = [
            i,
            *(int(int(growth * _GROWTH ** (len(_links(n)) - 1) + 1) / 2) * 2 for n in numbers),
        ]
        self.links = [_links(n) for n in numbers]
        self.layers = nn.ModuleList(
            relu_conv(sum(widths[k] for k in links), o, act=_RELU6)
            for links, o in zip(self.links, widths[1:], strict=True)
        )
        self.kept = [n for n in numbers if n % 2 or n == count]
        self.channels = sum(widths[n] for n in self.kept)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for links, layer in zip(self.links, self.layers, strict=True):
            read = [found[k] for k in links]
            found.append(layer(torch.cat(read, 1) if len(read) > 1 else read[0]))
        return torch.cat([found[n] for n in self.kept], 1)


@registered("hardnet-68")
def _hardnet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [
        relu_conv(3, 32, 3, 2, act=_RELU6),
        relu_conv(32, 64, act=_RELU6),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for o, growth, count, halves in (
        (128, 14, 8, True),
        (256, 16, 16, False),
        (320, 20, 16, True),
        (640, 40, 16, True),
        (1024, 160, 4, False),
    ):
        block = _HarmonicBlock(channels, growth, count)
        layers += [
            block,
            relu_conv(block.channels, o, 1, act=_RELU6),
            *([nn.MaxPool2d(2)] if halves else []),
        ]
        channels = o
    return nn.Sequential(*layers, *pooled_head(1024, 0.1)), images(batch)
