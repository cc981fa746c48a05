"""Networks of convolutions: residual, fused mobile, plain, poses, super-resolution, text in images,
speech, signals.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import ConvNorm, Inputs, registered

__all__ = ["PreActivation"]


class PreActivation(nn.Module):
    """Batch norm and activation before each convolution (Zagoruyko and Komodakis, BMVC 2016)."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, s, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(i, o, 1, s, bias=False) if i != o or s > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """Features of a stage, shape (batch, o, height / s, width / s)."""
        y = functional.relu(self.norm1(x))
        kept = x if self.skip is None else self.skip(y)
        return kept + self.conv2(functional.relu(self.norm2(self.conv1(y))))


@registered("wide-resnet-16-4")
def _wide(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    channels = 16
    for stage, width in enumerate((64, 128, 256)):
        for position in range(2):
            layers.append(PreActivation(channels, width, 2 if stage and not position else 1))
            channels = width
    head = [nn.BatchNorm2d(256), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(256, 10)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 32, 32),)


class _FusedMobile(nn.Module):
    """A 3x3 convolution that widens and a 1x1 that narrows (Tan and Le, ICML 2021)."""

    def __init__(self, i: int, o: int, growth: int, s: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            ConvNorm(i, growth * i, 3, s, act=nn.SiLU), ConvNorm(growth * i, o, 1, act=None)
        )
        self.adds = i == o and s == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.path(x) if self.adds else self.path(x)


@registered("fused-mobile")
def _fused(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [ConvNorm(3, 24, 3, 2, act=nn.SiLU)]
    channels = 24
    for o, count, s in ((24, 1, 1), (48, 2, 2), (64, 2, 2), (96, 2, 2)):
        for position in range(count):
            layers.append(_FusedMobile(channels, o, 4, s if not position else 1))
            channels = o
    head = [
        ConvNorm(96, 640, 1, act=nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(640, 1000),
    ]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 192, 192),)


@registered("plain-vgg-style")
def _plain(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = []
    channels = 3
    for width, count in ((48, 1), (48, 2), (96, 3), (192, 4), (640, 1)):
        for position in range(count):
            layers += [
                nn.Conv2d(channels, width, 3, 1 if position else 2, 1),
                nn.ReLU(inplace=True),
            ]
            channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 1000)), (
        torch.randn(batch, 3, 224, 224),
    )


@registered("pose-estimator")
def _pose(batch: int) -> tuple[nn.Module, Inputs]:
    """A trunk and transposed convolutions up to heat maps (Xiao et al., ECCV 2018)."""
    trunk = [
        ConvNorm(3, 32, 3, 2),
        ConvNorm(32, 64, 3, 2),
        ConvNorm(64, 128, 3, 2),
        ConvNorm(128, 256, 3, 2),
    ]
    heads: list[nn.Module] = []
    for i in (256, 128, 128):
        heads += [
            nn.ConvTranspose2d(i, 128, 4, 2, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*trunk, *heads, nn.Conv2d(128, 17, 1)), (torch.randn(batch, 3, 192, 128),)


class _SuperResolution(nn.Module):
    """Residual blocks without norms and a pixel shuffle (Lim et al., CVPRW 2017)."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        conv = lambda i, o: nn.Conv2d(i, o, 3, padding=1)  # noqa: E731
        self.first, self.last = conv(3, width), conv(width, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(width, width), nn.ReLU(), conv(width, width)) for _ in range(blocks)
        )
        self.grow, self.shuffle = conv(width, 4 * width), nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        x = y = self.first(x)
        for block in self.blocks:
            y = y + block(y)
        return self.last(self.shuffle(self.grow(x + y)))


@registered("super-resolution")
def _super(batch: int) -> tuple[nn.Module, Inputs]:
    return _SuperResolution(48, 6), (torch.randn(batch, 3, 64, 64),)


class _TextReader(nn.Module):
    """Convolutions over a line of text, then a bidirectional LSTM (Shi et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o, pool in (
            (1, 32, (2, 2)),
            (32, 64, (2, 2)),
            (64, 128, (2, 1)),
            (128, 128, (4, 1)),
        ):
            layers += [
                nn.Conv2d(i, o, 3, padding=1),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.MaxPool2d(pool),
            ]
        self.body = nn.Sequential(*layers)
        self.layers = nn.LSTM(128, 128, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, 80)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.layers(self.body(x).squeeze(2).transpose(1, 2))
        return self.head(y)


@registered("text-reader")
def _reader(batch: int) -> tuple[nn.Module, Inputs]:
    return _TextReader(), (torch.randn(batch, 1, 32, 160),)


@registered("keyword-spotting")
def _keyword(batch: int) -> tuple[nn.Module, Inputs]:
    """Depthwise separable convolutions over a spectrogram (Zhang et al., 2017)."""
    layers: list[nn.Module] = [
        nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    for _ in range(4):
        layers += [ConvNorm(64, 64, 3, 1, 64), ConvNorm(64, 64, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)), (
        torch.randn(batch, 1, 49, 40),
    )


@registered("patch-discriminator")
def _discriminator(batch: int) -> tuple[nn.Module, Inputs]:
    """Strided convolutions with instance norms (Isola et al., CVPR 2017)."""
    layers: list[nn.Module] = [nn.Conv2d(6, 48, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
    for i, o, s in ((48, 96, 2), (96, 192, 2), (192, 384, 1)):
        layers += [nn.Conv2d(i, o, 4, s, 1), nn.InstanceNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(384, 1, 4, 1, 1)), (torch.randn(batch, 6, 192, 192),)


class _SignalUNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = (1, width, 2 * width, 4 * width, 8 * width)
        pairs = list(pairwise(sizes))
        self.down = nn.ModuleList(self._pair(i, o) for i, o in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose1d(o, i, 2, 2) for i, o in reversed(pairs[1:]))
        self.join = nn.ModuleList(self._pair(2 * i, i) for i, _ in reversed(pairs[1:]))
        self.last = nn.Conv1d(width, 4, 1)

    @staticmethod
    def _pair(i: int, o: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(i, o, 9, padding=4),
            nn.BatchNorm1d(o),
            nn.ReLU(),
            nn.Conv1d(o, o, 9, padding=4),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool1d(x, 2) if level else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([up(x), other], 1))
        return self.last(x)


@registered("signal-u-net")
def _signal(batch: int) -> tuple[nn.Module, Inputs]:
    return _SignalUNet(24), (torch.randn(batch, 1, 1024),)
