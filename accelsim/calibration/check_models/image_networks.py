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
    layers: list[nn.Module] = [nn.Sequential(ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))]
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        first = _bottleneck(channels, width, 2 if stage else 1)
        channels = 4 * width
        rest = (_bottleneck(channels, width, 1) for _ in range(count - 1))
        layers.append(nn.Sequential(first, *rest))
    return nn.Sequential(*layers, *pooled_head(channels)), images(batch)


class _ChannelGate(nn.Module):
    """Channels scaled by what the means of their neighbours say (Wang et al., CVPR 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(self.pool(x).squeeze(-1).transpose(-1, -2))
        return x * torch.sigmoid(y.transpose(-1, -2).unsqueeze(-1)).expand_as(x)


@registered("eca-resnet-50")
def _gated(batch: int) -> Made:
    """Three neighbours at every stage, as the authors' program has it."""
    network, inputs = _resnet(batch)
    for stage in list(network.children())[1:5]:
        for block in stage:
            block.path.append(_ChannelGate())
    return network, inputs


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


@registered("yolo-v2-tiny")
def _yolo(batch: int) -> Made:
    """Five anchors of 80 classes at each of 13 x 13 places (Redmon and Farhadi, CVPR 2017)."""
    conv = partial(ConvNorm, act=partial(nn.LeakyReLU, 0.1, inplace=True))
    layers: list[nn.Module] = []
    for sizes in pairwise((3, 16, 32, 64, 128, 256)):
        layers += [conv(*sizes), nn.MaxPool2d(2)]
    layers += [conv(256, 512), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1)]
    layers += [conv(512, 1024), conv(1024, 512), nn.Conv2d(512, 425, 1)]
    return nn.Sequential(*layers), images(batch, 416)


class _Patched(nn.Module):
    """Blocks over the patches of 16 pixels of an image, and the mean of what they say."""

    def __init__(self, width: int, blocks: list[nn.Module], placed: bool) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*blocks)
        self.place = nn.Parameter(torch.zeros(1, 196, width)) if placed else None
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = self.blocks(y if self.place is None else y + self.place)
        return self.head(self.norm(y).mean(1))


@registered("vit-large")
def _vit(batch: int) -> Made:
    """Dosovitskiy et al., ICLR 2021."""
    return _Patched(1024, [PreNorm(1024, 16) for _ in range(24)], placed=True), images(batch)


class _MixerBlock(nn.Module):
    """Perceptrons across patches, then across channels (Tolstikhin et al., NeurIPS 2021)."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        half = width // 2
        wide = 4 * width
        self.across = nn.Sequential(nn.Linear(places, half), nn.GELU(), nn.Linear(half, places))
        self.within = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


@registered("mlp-mixer")
def _mixer(batch: int) -> Made:
    """B/16."""
    return _Patched(768, [_MixerBlock(196, 768) for _ in range(12)], placed=False), images(batch)


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
