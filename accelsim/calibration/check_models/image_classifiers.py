"""Networks that classify images or find things in them: convolutions, attention, perceptrons."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise

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


def _residual_stages() -> list[nn.Sequential]:
    """Stem and four stages of a residual network of 50 layers."""
    stages = [nn.Sequential(ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))]
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        first = _bottleneck(channels, width, 2 if stage else 1)
        channels = 4 * width
        rest = (_bottleneck(channels, width, 1) for _ in range(count - 1))
        stages.append(nn.Sequential(first, *rest))
    return stages


@registered("resnet-50")
def _resnet(batch: int) -> Made:
    return nn.Sequential(*_residual_stages(), *pooled_head(2048)), images(batch)


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
    stages = _residual_stages()
    for stage in stages[1:]:
        for block in stage:
            block.path.append(_ChannelGate())
    return nn.Sequential(*stages, *pooled_head(2048)), images(batch)


@registered("resnet-50-d")
def _refined(batch: int) -> Made:
    """Three 3x3 convolutions first, means before the 1x1 of a skip (He et al., CVPR 2019)."""
    stem, *stages = _residual_stages()
    first = [ConvNorm(3, 32, 3, 2), ConvNorm(32, 32), ConvNorm(32, 64), stem[1]]
    for number, stage in enumerate(stages[1:]):
        channels = 256 * 2**number
        pool = nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
        stage[0].skip = nn.Sequential(pool, ConvNorm(channels, 2 * channels, 1, act=None))
    return nn.Sequential(*first, *stages, *pooled_head(2048)), images(batch)


class _PyramidBlock(nn.Module):
    """Norms around two 3x3 convolutions; the input beside them is widened by zeros."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(channels_in),
            nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.pool = nn.AvgPool2d(2) if stride > 1 else nn.Identity()
        self.more = channels_out - channels_in

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        kept = self.pool(x)
        if self.more:
            b, _, h, w = kept.shape
            kept = torch.cat(
                [kept, torch.zeros(b, self.more, h, w, dtype=x.dtype, device=x.device)], 1
            )
        y += kept
        return y


@registered("pyramidnet-110")
def _pyramid(batch: int) -> Made:
    """Channels that grow by 48 in 54 blocks (Han et al., CVPR 2017); CIFAR-10."""
    widths = [round(width) for width in accumulate([48 / 54] * 54, initial=16.0)]
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)]
    for number, sizes in enumerate(pairwise(widths)):
        layers.append(_PyramidBlock(*sizes, 2 if number in {18, 36} else 1))
    layers += [nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.AvgPool2d(8)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 10)), images(batch, 32)


class _FoldedConv(nn.Module):
    """A convolution into which its branches and norms have been folded, and an activation."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.conv(x))


@registered("mobileone-s0")
def _mobileone(batch: int) -> Made:
    """As it is deployed, every block one convolution (Vasu et al., CVPR 2023)."""
    layers: list[nn.Module] = [_FoldedConv(3, 48, 3, 2)]
    channels = 48
    for width, count in ((48, 2), (128, 8), (256, 10), (1024, 1)):
        for position in range(count):
            stride = 1 if position else 2
            layers.append(_FoldedConv(channels, channels, 3, stride, channels))
            layers.append(_FoldedConv(channels, width, 1))
            channels = width
    return nn.Sequential(*layers, *pooled_head(1024)), images(batch)


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
