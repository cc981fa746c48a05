"""Networks that classify images, find things in them or paint them: convolutions, attention,
perceptrons.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import (
    ConvNorm,
    Made,
    PreNorm,
    Residual,
    images,
    pooled_head,
    registered,
)


def _bottleneck(channels_in: int, width: int, stride: int) -> Residual:
    """A 3x3 convolution between two 1x1."""
    channels_out = 4 * width
    path = [
        ConvNorm(channels_in, width, 1),
        ConvNorm(width, width, 3, stride),
        ConvNorm(width, channels_out, 1, act=None),
    ]
    return Residual(path, (channels_in, channels_out), stride)


@registered("resnet-50")
def _resnet(batch: int) -> Made:
    """He et al., CVPR 2016, table 1, with the strides on the 3x3 convolutions as in torchvision."""
    layers: list[nn.Module] = [nn.Sequential(ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))]
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        entry_block = _bottleneck(channels, width, 2 if stage else 1)
        channels = 4 * width
        further_blocks = (_bottleneck(channels, width, 1) for _ in range(count - 1))
        layers.append(nn.Sequential(entry_block, *further_blocks))
    return nn.Sequential(*layers, *pooled_head(channels)), images(batch)


class _Added(nn.Module):
    """Layers beside their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x) + x


@registered("mobilenet-v2")
def _mobilenet(batch: int) -> Made:
    """Inverted bottlenecks (Sandler et al., CVPR 2018)."""
    conv = partial(ConvNorm, act=partial(nn.ReLU6, inplace=True))
    layers: list[nn.Module] = [conv(3, 32, 3, 2)]
    channels = 32
    sizes = ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))
    for width, count, first_stride in sizes:
        ratio = 6 if width > 16 else 1
        for position in range(count):
            stride = 1 if position else first_stride
            wide = channels * ratio
            parts: list[nn.Module] = [conv(channels, wide, 1)] if ratio > 1 else []
            parts.append(conv(wide, wide, 3, stride, wide))
            parts.append(ConvNorm(wide, width, 1, act=None))
            layers.append(_Added(*parts) if position else nn.Sequential(*parts))
            channels = width
    return nn.Sequential(*layers, conv(320, 1280, 1), *pooled_head(1280)), images(batch)


class _Patched(nn.Module):
    """Blocks over the patches of 16 pixels of an image, and the mean of what they say."""

    def __init__(self, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*blocks)
        self.position = nn.Parameter(torch.zeros(1, 196, width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = self.blocks(y + self.position)
        return self.head(self.norm(y).mean(1))


@registered("vit-large")
def _vit(batch: int) -> Made:
    """Dosovitskiy et al., ICLR 2021."""
    return _Patched(1024, [PreNorm(1024, 16) for _ in range(24)]), images(batch)


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
        level_features: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            level_features.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(level_features[:-1]), strict=True):
            x = join(torch.cat([up(x), skip], 1))
        return self.last(x)


@registered("u-net")
def _unet(batch: int) -> Made:
    """Published widths, with batch norms and padding; two classes."""
    return _UNet(64, 5, 2), images(batch, 192)
