"""Networks of convolutions: classifiers from AlexNet to ConvNeXt, a U-Net and a detector, at their
published sizes.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import ConvNorm, Inputs, registered

__all__ = [
    "ChannelNorm",
    "Residual",
    "SqueezeExcite",
    "densenet",
    "images",
    "pooled_head",
    "relu_conv",
]

_RELU: Final = partial(nn.ReLU, inplace=True)
_SILU: Final = partial(nn.SiLU, inplace=True)
_LEAKY: Final = partial(nn.LeakyReLU, 0.1, inplace=True)


def relu_conv(
    i: int,
    o: int,
    k: int = 3,
    s: int = 1,
    g: int = 1,
    act: Callable[[], nn.Module] | None = _RELU,
    d: int = 1,
) -> nn.Module:
    """Convolution, batch norm and an activation in place."""
    return ConvNorm(i, o, k, s, g, act, d)


def images(batch: int, size: int = 224) -> Inputs:
    """Random images, shape (batch, 3, size, size)."""
    return (torch.randn(batch, 3, size, size),)


def pooled_head(channels: int, drop: float = 0.0) -> list[nn.Module]:
    """Logits of 1000 classes from the mean over all pixels."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(drop), nn.Linear(channels, 1000)]


def _perceptron(inputs: int) -> list[nn.Module]:
    """The three linear layers of AlexNet and VGG."""
    layers: list[nn.Module] = [nn.Flatten()]
    for i, o in ((inputs, 4096), (4096, 4096)):
        layers += [nn.Linear(i, o), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return [*layers, nn.Linear(4096, 1000)]


@registered("alexnet")
def _alexnet(batch: int) -> tuple[nn.Module, Inputs]:
    """One tower, without local response normalisation (Krizhevsky, arXiv 1404.5997)."""
    layers: list[nn.Module] = []
    for i, o, k, s, p, pools in (
        (3, 64, 11, 4, 2, True),
        (64, 192, 5, 1, 2, True),
        (192, 384, 3, 1, 1, False),
        (384, 256, 3, 1, 1, False),
        (256, 256, 3, 1, 1, True),
    ):
        layers += [nn.Conv2d(i, o, k, s, p), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(3, 2)] if pools else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(6), *_perceptron(9216)), images(batch)


@registered("vgg-16")
def _vgg(batch: int) -> tuple[nn.Module, Inputs]:
    """Configuration D (Simonyan and Zisserman, ICLR 2015)."""
    layers: list[nn.Module] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, *_perceptron(25088)), images(batch)


class Residual(nn.Module):
    """Two 3x3 convolutions beside a skip (He et al., CVPR 2016)."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.path = nn.Sequential(relu_conv(i, o, 3, s), relu_conv(o, o, act=None))
        self.skip = nn.Identity() if i == o and s == 1 else relu_conv(i, o, 1, s, act=None)

    def forward(self, x: Tensor) -> Tensor:
        """Features of a stage, shape (batch, o, height / s, width / s)."""
        y = self.path(x)
        y += self.skip(x)
        return functional.relu(y, inplace=True)


@registered("resnet-34")
def _resnet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [relu_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for position in range(count):
            layers.append(Residual(channels, width, 2 if stage and not position else 1))
            channels = width
    return nn.Sequential(*layers, *pooled_head(512)), images(batch)


class _NormConv(nn.Sequential):
    """Batch norm and activation before a convolution."""

    def __init__(self, i: int, o: int, k: int) -> None:
        super().__init__(
            nn.BatchNorm2d(i), nn.ReLU(inplace=True), nn.Conv2d(i, o, k, padding=k // 2, bias=False)
        )


class _DenseBlock(nn.Module):
    """Layers that each take the outputs of all before (Huang et al., CVPR 2017)."""

    def __init__(self, i: int, count: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                _NormConv(i + growth * n, 4 * growth, 1), _NormConv(4 * growth, growth, 3)
            )
            for n in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def densenet(counts: Sequence[int]) -> nn.Module:
    """DenseNet whose blocks have so many layers of 32 channels."""
    layers: list[nn.Module] = [relu_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for block, count in enumerate(counts, 1):
        layers.append(_DenseBlock(channels, count, 32))
        channels += 32 * count
        if block < len(counts):
            layers += [_NormConv(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
    head = [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), *pooled_head(channels)]
    return nn.Sequential(*layers, *head)


@registered("densenet-121")
def _densenet(batch: int) -> tuple[nn.Module, Inputs]:
    return densenet((6, 12, 24, 16)), images(batch)


@registered("mobilenet-v1")
def _mobilenet(batch: int) -> tuple[nn.Module, Inputs]:
    """Depthwise and 1x1 convolutions in turn (Howard et al., arXiv 1704.04861)."""
    layers: list[nn.Module] = [relu_conv(3, 32, 3, 2)]
    channels = 32
    steps = (
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *((512, 1),) * 5,
        (1024, 2),
        (1024, 1),
    )
    for o, s in steps:
        layers += [relu_conv(channels, channels, 3, s, channels), relu_conv(channels, o, 1)]
        channels = o
    return nn.Sequential(*layers, *pooled_head(1024)), images(batch)


class SqueezeExcite(nn.Module):
    """Channels scaled by what all pixels say together (Hu et al., CVPR 2018)."""

    def __init__(
        self, channels: int, inner: int, act: type[nn.Module], gate: type[nn.Module] = nn.Sigmoid
    ) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, inner, 1),
            act(),
            nn.Conv2d(inner, channels, 1),
            gate(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        return self.gate(x) * x


class _InvertedBottleneck(nn.Module):
    def __init__(self, i: int, o: int, growth: int, k: int, s: int) -> None:
        super().__init__()
        wide = growth * i
        layers: list[nn.Module] = [relu_conv(i, wide, 1, act=_SILU)] if growth > 1 else []
        layers += [relu_conv(wide, wide, k, s, wide, _SILU), SqueezeExcite(wide, i // 4, nn.SiLU)]
        self.path, self.adds = (
            nn.Sequential(*layers, relu_conv(wide, o, 1, act=None)),
            i == o and s == 1,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x) + x if self.adds else self.path(x)


@registered("efficientnet-b0")
def _efficientnet(batch: int) -> tuple[nn.Module, Inputs]:
    """Table 1 of Tan and Le, ICML 2019."""
    layers: list[nn.Module] = [relu_conv(3, 32, 3, 2, act=_SILU)]
    channels = 32
    for growth, o, count, s, k in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for position in range(count):
            layers.append(_InvertedBottleneck(channels, o, growth, k, 1 if position else s))
            channels = o
    return nn.Sequential(
        *layers, relu_conv(320, 1280, 1, act=_SILU), *pooled_head(1280, 0.2)
    ), images(batch)


class _GroupedBlock(nn.Module):
    """A 3x3 convolution in groups of eight channels, squeezed and excited, between two 1x1."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            relu_conv(i, o, 1),
            relu_conv(o, o, 3, s, o // 8),
            SqueezeExcite(o, i // 4, nn.ReLU),
            relu_conv(o, o, 1, act=None),
        )
        self.skip = nn.Identity() if i == o and s == 1 else relu_conv(i, o, 1, s, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.skip(x) + self.path(x), inplace=True)


@registered("regnet-y-400mf")
def _regnet(batch: int) -> tuple[nn.Module, Inputs]:
    """Radosavovic et al., CVPR 2020, with the widths of its quantised line."""
    layers: list[nn.Module] = [relu_conv(3, 32, 3, 2)]
    channels = 32
    for width, count in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for position in range(count):
            layers.append(_GroupedBlock(channels, width, 1 if position else 2))
            channels = width
    return nn.Sequential(*layers, *pooled_head(440)), images(batch)


class ChannelNorm(nn.LayerNorm):
    """Over channels that lie before the pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNextBlock(nn.Module):
    """A wide depthwise convolution, then a perceptron over channels (Liu et al., CVPR 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.across, self.norm = (
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            nn.LayerNorm(width, eps=1e-6),
        )
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width, 1, 1), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.across(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return x + self.scale * y


@registered("convnext-tiny")
def _convnext(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96, eps=1e-6)]
    for stage, count in enumerate((3, 3, 9, 3)):
        width = 96 * 2**stage
        if stage:
            layers += [ChannelNorm(width // 2, eps=1e-6), nn.Conv2d(width // 2, width, 2, 2)]
        layers += [_ConvNextBlock(width) for _ in range(count)]
    head = [nn.AdaptiveAvgPool2d(1), ChannelNorm(768, eps=1e-6), nn.Flatten(), nn.Linear(768, 1000)]
    return nn.Sequential(*layers, *head), images(batch)


class _UNet(nn.Module):
    """Four levels down and up, each of two 3x3 convolutions, joined by copies (Ronneberger et al.,
    MICCAI 2015).
    """

    def __init__(self, sizes: Sequence[int], classes: int) -> None:
        super().__init__()
        pair = lambda i, o: nn.Sequential(relu_conv(i, o), relu_conv(o, o))  # noqa: E731
        self.first = pair(3, sizes[0])
        self.down = nn.ModuleList(pair(s, 2 * s) for s in sizes)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * s, s, 2, 2) for s in reversed(sizes))
        self.join = nn.ModuleList(pair(2 * s, s) for s in reversed(sizes))
        self.last, self.pool = nn.Conv2d(sizes[0], classes, 1), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.first(x)]
        for block in self.down:
            kept.append(block(self.pool(kept[-1])))
        y = kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            y = join(torch.cat([kept.pop(), up(y)], 1))
        return self.last(y)


@registered("u-net-full-width")
def _unet(batch: int) -> tuple[nn.Module, Inputs]:
    return _UNet((64, 128, 256, 512), 2), images(batch, 128)


class _TinyDetector(nn.Module):
    """Plain convolutions with boxes at two scales (Redmon and Farhadi, arXiv 1804.02767)."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        conv = partial(relu_conv, act=_LEAKY)
        layers: list[nn.Module] = []
        for i, o in ((3, 16), (16, 32), (32, 64), (64, 128)):
            layers += [conv(i, o), nn.MaxPool2d(2)]
        self.near = nn.Sequential(*layers, conv(128, 256))
        same = [nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1)]
        self.far = nn.Sequential(
            nn.MaxPool2d(2), conv(256, 512), *same, conv(512, 1024), conv(1024, 256, 1)
        )
        self.coarse = nn.Sequential(conv(256, 512), nn.Conv2d(512, outputs, 1))
        self.rise = nn.Sequential(conv(256, 128, 1), nn.Upsample(scale_factor=2.0, mode="nearest"))
        self.fine = nn.Sequential(conv(384, 256), nn.Conv2d(256, outputs, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        near = self.near(x)
        far = self.far(near)
        return self.coarse(far), self.fine(torch.cat([self.rise(far), near], 1))


@registered("yolo-v3-tiny")
def _yolo(batch: int) -> tuple[nn.Module, Inputs]:
    return _TinyDetector(255), images(batch, 416)
