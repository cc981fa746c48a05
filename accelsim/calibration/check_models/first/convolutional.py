"""Convolutional networks: residual, mobile, dense, U-shaped."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import ConvNorm, Inputs, registered

__all__: list[str] = []


class _Residual(nn.Module):
    def __init__(
        self, path: nn.Module, skip: nn.Module | None, act: Callable[[Tensor], Tensor] | None
    ) -> None:
        super().__init__()
        self.path, self.skip, self.act = path, skip or nn.Identity(), act

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.path(x) + self.skip(x)
        return self.act(y) if self.act else y


def _basic(i: int, o: int, s: int) -> nn.Module:
    skip = None if i == o and s == 1 else ConvNorm(i, o, 1, s, act=None)
    return _Residual(
        nn.Sequential(ConvNorm(i, o, 3, s), ConvNorm(o, o, act=None)), skip, functional.relu
    )


def _bottleneck(i: int, w: int, s: int) -> nn.Module:
    o = 4 * w
    skip = None if i == o and s == 1 else ConvNorm(i, o, 1, s, act=None)
    path = nn.Sequential(ConvNorm(i, w, 1), ConvNorm(w, w, 3, s), ConvNorm(w, o, 1, act=None))
    return _Residual(path, skip, functional.relu)


def _resnet(
    counts: tuple[int, ...], block: Callable[[int, int, int], nn.Module], growth: int
) -> nn.Module:
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate(counts):
        width = 64 * 2**stage
        for position in range(count):
            layers.append(block(channels, width, 2 if stage and not position else 1))
            channels = growth * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


@registered("resnet-18")
def _resnet18(batch: int) -> tuple[nn.Module, Inputs]:
    return _resnet((2, 2, 2, 2), _basic, 1), (torch.randn(batch, 3, 224, 224),)


@registered("resnet-50")
def _resnet50(batch: int) -> tuple[nn.Module, Inputs]:
    return _resnet((3, 4, 6, 3), _bottleneck, 4), (torch.randn(batch, 3, 224, 224),)


@registered("mobilenet-v2")
def _mobilenet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2, act=nn.ReLU6)]
    channels = 32
    for t, c, n, s in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for position in range(n):
            stride, wide = s if position == 0 else 1, channels * t
            parts = [ConvNorm(channels, wide, 1, act=nn.ReLU6)] if t > 1 else []
            path = nn.Sequential(
                *parts,
                ConvNorm(wide, wide, 3, stride, wide, nn.ReLU6),
                ConvNorm(wide, c, 1, act=None),
            )
            layers.append(_Residual(path, None, None) if stride == 1 and channels == c else path)
            channels = c
    head = [
        ConvNorm(320, 1280, 1, act=nn.ReLU6),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, 1000),
    ]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 224, 224),)


class _SqueezeExcite(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.pool, self.down, self.up = (
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, inner, 1),
            nn.Conv2d(inner, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.up(functional.silu(self.down(self.pool(x)))))
        return x * gate


@registered("efficientnet-like")
def _efficientnet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2, act=nn.SiLU)]
    channels = 32
    for t, c, n, s, k in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 2, 2, 5),
    ):
        for position in range(n):
            stride, wide = s if position == 0 else 1, channels * t
            parts: list[nn.Module] = [ConvNorm(channels, wide, 1, act=nn.SiLU)] if t > 1 else []
            parts += [
                ConvNorm(wide, wide, k, stride, wide, nn.SiLU),
                _SqueezeExcite(wide, max(4, channels // 4)),
            ]
            path = nn.Sequential(*parts, ConvNorm(wide, c, 1, act=None))
            layers.append(_Residual(path, None, None) if stride == 1 and channels == c else path)
            channels = c
    head = [
        ConvNorm(192, 1280, 1, act=nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, 1000),
    ]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 192, 192),)


@registered("vgg-11")
def _vgg(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += (
            [nn.MaxPool2d(2)]
            if not width
            else [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        )
        channels = width or channels
    head = [
        nn.Flatten(),
        nn.Linear(25088, 4096),
        nn.ReLU(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, 1000),
    ]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 224, 224),)


class _Dense(nn.Module):
    def __init__(self, i: int, growth: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(i),
            nn.ReLU(),
            nn.Conv2d(i, 4 * growth, 1, bias=False),
            ConvNorm(4 * growth, growth),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.path(x)], 1)


@registered("densenet-like")
def _densenet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate((4, 8, 12)):
        for _ in range(count):
            layers.append(_Dense(channels, 32))
            channels += 32
        if stage < 2:
            layers += [ConvNorm(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)
    ), (torch.randn(batch, 3, 160, 160),)


class _UNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth)]
        pair = lambda i, o: nn.Sequential(ConvNorm(i, o), ConvNorm(o, o))  # noqa: E731
        self.down = nn.ModuleList(pair(i, o) for i, o in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * s, s, 2, 2) for s in reversed(sizes[:-1]))
        self.join = nn.ModuleList(pair(2 * s, s) for s in reversed(sizes[:-1]))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([up(x), other], 1))
        result: Tensor = self.last(x)
        return result


@registered("u-net")
def _unet(batch: int) -> tuple[nn.Module, Inputs]:
    return _UNet(24, 4), (torch.randn(batch, 3, 192, 192),)


@registered("autoencoder")
def _autoencoder(batch: int) -> tuple[nn.Module, Inputs]:
    encode = [nn.Conv2d(i, o, 4, 2, 1) for i, o in ((3, 32), (32, 64), (64, 128))]
    decode = [nn.ConvTranspose2d(i, o, 2, 2) for i, o in ((128, 64), (64, 32), (32, 3))]
    layers = [part for layer in (*encode, *decode) for part in (layer, nn.ReLU())]
    return nn.Sequential(*layers[:-1], nn.Sigmoid()), (torch.randn(batch, 3, 64, 64),)


@registered("cifar-cnn")
def _cifar(batch: int) -> tuple[nn.Module, Inputs]:
    layers = [
        ConvNorm(3, 48),
        ConvNorm(48, 48),
        nn.MaxPool2d(2),
        ConvNorm(48, 96),
        ConvNorm(96, 96),
        nn.MaxPool2d(2),
    ]
    head = [nn.Flatten(), nn.Linear(96 * 64, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 32, 32),)
