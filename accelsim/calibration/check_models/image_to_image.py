"""Networks that make images of images or of random numbers: organs, depth, pictures."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import ConvNorm, Inputs, Residual, images, registered


def _pair(channels_in: int, channels_out: int) -> nn.Module:
    return nn.Sequential(ConvNorm(channels_in, channels_out), ConvNorm(channels_out, channels_out))


class _UNet(nn.Module):
    """Down, up, and what was seen at each size beside (Ronneberger et al., MICCAI 2015)."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth)]
        rising = sizes[-2::-1]
        self.down = nn.ModuleList(_pair(*pair) for pair in pairwise([3, *sizes]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in rising)
        self.join = nn.ModuleList(_pair(2 * size, size) for size in rising)
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([up(x), other], 1))
        return self.last(x)


@registered("u-net")
def _unet(batch: int) -> tuple[nn.Module, Inputs]:
    """Published widths, with batch norms and padding; two classes."""
    return _UNet(64, 5, 2), images(batch, 192)


def _mirrored_conv(channels_in: int, channels_out: int) -> nn.Module:
    conv = nn.Conv2d(channels_in, channels_out, 3)
    return nn.Sequential(nn.ReflectionPad2d(1), conv, nn.ELU(inplace=True))


def _basic(channels_in: int, channels_out: int, stride: int) -> Residual:
    """Two 3x3 convolutions."""
    first = ConvNorm(channels_in, channels_out, 3, stride)
    second = ConvNorm(channels_out, channels_out, act=None)
    return Residual([first, second], (channels_in, channels_out), stride)


class _Depth(nn.Module):
    """Nearness of every pixel at four scales, from one image (Godard et al., ICCV 2019)."""

    def __init__(self) -> None:
        super().__init__()
        stages: list[nn.Module] = [ConvNorm(3, 64, 7, 2)]
        for number, (before, width) in enumerate(pairwise((64, 64, 128, 256, 512))):
            blocks = [_basic(before, width, 2 if number else 1), _basic(width, width, 1)]
            pool = [] if number else [nn.MaxPool2d(3, 2, 1)]
            stages.append(nn.Sequential(*pool, *blocks))
        self.down = nn.ModuleList(stages)
        widths, skips = (256, 128, 64, 32, 16), (256, 128, 64, 64, 0)
        self.narrow = nn.ModuleList(_mirrored_conv(*pair) for pair in pairwise((512, *widths)))
        self.join = nn.ModuleList(
            _mirrored_conv(width + skip, width) for width, skip in zip(widths, skips, strict=True)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(width, 1, 3), nn.Sigmoid())
            for width in widths[1:]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x, kept = (x - 0.45) / 0.225, []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        y, found = kept.pop(), []
        for number, (narrow, join) in enumerate(zip(self.narrow, self.join, strict=True)):
            parts = [functional.interpolate(narrow(y), scale_factor=2, mode="nearest")]
            y = join(torch.cat([*parts, kept.pop()] if kept else parts, 1))
            if number:
                found.append(self.heads[number - 1](y))
        return tuple(found)


@registered("monodepth2")
def _depth(batch: int) -> tuple[nn.Module, Inputs]:
    """The network for one camera: ResNet-18 and a decoder; 640 x 192 pixels."""
    return _Depth(), (torch.rand(batch, 3, 192, 640),)


def _quartered(x: Tensor) -> Tensor:
    """Means of four neighbours, by slices."""
    return (x[:, :, ::2, ::2] + x[:, :, 1::2, ::2] + x[:, :, ::2, 1::2] + x[:, :, 1::2, 1::2]) / 4.0


def _conv(channels_in: int, channels_out: int, kernel: int = 3) -> nn.Module:
    return nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2)


class _DrawnBlock(nn.Module):
    """Twice the size: norms and activations before two 3x3 convolutions, beside a 1x1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        rise = nn.Upsample(scale_factor=2)
        first, second = ([nn.BatchNorm2d(width), nn.ReLU()] for _ in range(2))
        self.path = nn.Sequential(*first, rise, _conv(width, width), *second, _conv(width, width))
        self.skip = nn.Sequential(rise, _conv(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.path(x)


class _JudgedBlock(nn.Module):
    """Activations before two 3x3 convolutions; the mean of four pixels behind where it halves."""

    def __init__(self, channels_in: int, width: int, halves: bool) -> None:
        super().__init__()
        self.first, self.halves = channels_in != width, halves
        self.sees = nn.Conv2d(channels_in, width, 1) if halves else None
        self.conv1, self.conv2 = _conv(channels_in, width), _conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(functional.relu(self.conv1(x if self.first else functional.relu(x))))
        if self.sees is None:
            return x + y
        kept = self.sees(_quartered(x)) if self.first else _quartered(self.sees(x))
        return kept + _quartered(y)


class _WassersteinGan(nn.Module):
    """Images of 32 x 32 pixels from random numbers (Gulrajani et al., NIPS 2017); in training what
    the critic says of each, which the generator's step goes through.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.first = width, nn.Linear(128, 16 * width)
        last = [nn.BatchNorm2d(width), nn.ReLU(), _conv(width, 3), nn.Tanh()]
        self.generator = nn.Sequential(*(_DrawnBlock(width) for _ in range(3)), *last)
        sizes = ((3, True), (width, True), (width, False), (width, False))
        judged = (_JudgedBlock(channels, width, halves) for channels, halves in sizes)
        self.critic = nn.Sequential(*judged, nn.ReLU())
        self.head = nn.Linear(width, 1)

    def forward(self, z: Tensor) -> Tensor:
        drawn = self.generator(self.first(z).view(-1, self.width, 4, 4))
        return self.head(self.critic(drawn).mean((2, 3))).view(-1) if self.training else drawn


@registered("wgan-gp-resnet")
def _wasserstein(batch: int) -> tuple[nn.Module, Inputs]:
    """CIFAR-10 without labels, with the program's 128 channels."""
    return _WassersteinGan(128), (torch.randn(batch, 128),)
