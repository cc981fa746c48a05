"""Networks that make images of images: organs, depth."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import ConvNorm, Made, Residual, images, registered


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
def _unet(batch: int) -> Made:
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
        widths = (256, 128, 64, 32, 16)
        skips = (256, 128, 64, 64, 0)
        self.narrow = nn.ModuleList(_mirrored_conv(*pair) for pair in pairwise((512, *widths)))
        self.join = nn.ModuleList(
            _mirrored_conv(width + skip, width) for width, skip in zip(widths, skips, strict=True)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(width, 1, 3), nn.Sigmoid())
            for width in widths[1:]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = (x - 0.45) / 0.225
        kept = []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        y = kept.pop()
        found = []
        for number, (narrow, join) in enumerate(zip(self.narrow, self.join, strict=True)):
            parts = [functional.interpolate(narrow(y), scale_factor=2, mode="nearest")]
            y = join(torch.cat([*parts, kept.pop()] if kept else parts, 1))
            if number:
                found.append(self.heads[number - 1](y))
        return tuple(found)


@registered("monodepth2")
def _depth(batch: int) -> Made:
    """The network for one camera: ResNet-18 and a decoder; 640 x 192 pixels."""
    return _Depth(), (torch.rand(batch, 3, 192, 640),)
