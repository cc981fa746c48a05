"""Networks that find faces and things, depth and organs in images, and one that draws, at their
published sizes.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.convolutional import Residual, images, relu_conv
from accelsim.calibration.check_models.fourth.transformers import Mlp, WrittenAttention
from accelsim.calibration.check_models.register import Inputs, registered

__all__ = ["segmenter", "standardized"]

_LEAKY: Final = partial(nn.LeakyReLU, 0.1, inplace=True)
_leaky_conv: Final = partial(relu_conv, act=_LEAKY)


# -- RetinaFace
# ------------------------------------------------------------------------------------------------------


def _mobile_stage(*sizes: tuple[int, int, int]) -> list[nn.Module]:
    """Depthwise and 1x1 convolutions in turn."""
    layers: list[nn.Module] = []
    for i, o, s in sizes:
        layers += [_leaky_conv(i, i, 3, s, i), _leaky_conv(i, o, 1)]
    return layers


class _SingleStage(nn.Module):
    """What lies within 3x3, 5x5 and 7x7 pixels, by 3x3 convolutions (Najibi et al., ICCV 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near, quarter = relu_conv(width, width // 2, act=None), width // 4
        self.first, self.far = _leaky_conv(width, quarter), relu_conv(quarter, quarter, act=None)
        self.farthest = nn.Sequential(
            _leaky_conv(quarter, quarter), relu_conv(quarter, quarter, act=None)
        )

    def forward(self, x: Tensor) -> Tensor:
        near, y = self.near(x), self.first(x)
        return functional.relu(torch.cat([near, self.far(y), self.farthest(y)], 1))


class _FaceHead(nn.Module):
    """Numbers of each of two anchors at each pixel."""

    def __init__(self, width: int, numbers: int) -> None:
        super().__init__()
        self.conv, self.numbers = nn.Conv2d(width, 2 * numbers, 1), numbers

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).permute(0, 2, 3, 1).contiguous().view(x.shape[0], -1, self.numbers)


class _RetinaFace(nn.Module):
    """Boxes, scores and five landmarks of faces at three scales (Deng et al., CVPR 2020)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        fine = _mobile_stage((8, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))
        self.stages = nn.ModuleList(
            nn.Sequential(*layers)
            for layers in (
                [_leaky_conv(3, 8, 3, 2), *fine],
                _mobile_stage((64, 128, 2), *((128, 128, 1),) * 5),
                _mobile_stage((128, 256, 2), (256, 256, 1)),
            )
        )
        self.beside = nn.ModuleList(_leaky_conv(i, width, 1) for i in (64, 128, 256))
        self.merge = nn.ModuleList(_leaky_conv(width, width) for _ in range(2))
        self.around = nn.ModuleList(_SingleStage(width) for _ in range(3))
        self.heads = nn.ModuleList(
            nn.ModuleList(_FaceHead(width, n) for _ in range(3)) for n in (4, 2, 10)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scales = []
        for stage in self.stages:
            x = stage(x)
            scales.append(x)
        found = [beside(scale) for beside, scale in zip(self.beside, scales, strict=True)]
        for n in (1, 0):
            risen = functional.interpolate(found[n + 1], size=found[n].shape[-2:], mode="nearest")
            found[n] = self.merge[n](found[n] + risen)
        found = [around(scale) for around, scale in zip(self.around, found, strict=True)]
        boxes, classes, marks = (
            torch.cat([head(scale) for head, scale in zip(heads, found, strict=True)], 1)
            for heads in self.heads
        )
        return boxes, classes if self.training else classes.softmax(-1), marks


@registered("retinaface-mobilenet")
def _faces(batch: int) -> tuple[nn.Module, Inputs]:
    """A quarter of MobileNet's channels below; images of 640 x 480 pixels."""
    return _RetinaFace(64), (torch.randn(batch, 3, 480, 640),)


# -- YOLO v2
# ---------------------------------------------------------------------------------------------------------


@registered("yolo-v2-tiny")
def _yolo(batch: int) -> tuple[nn.Module, Inputs]:
    """Five anchors of 80 classes at each of 13 x 13 places (Redmon and Farhadi, CVPR 2017)."""
    layers: list[nn.Module] = []
    for i, o in ((3, 16), (16, 32), (32, 64), (64, 128), (128, 256)):
        layers += [_leaky_conv(i, o), nn.MaxPool2d(2)]
    layers += [_leaky_conv(256, 512), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1)]
    layers += [_leaky_conv(512, 1024), _leaky_conv(1024, 512), nn.Conv2d(512, 425, 1)]
    return nn.Sequential(*layers), images(batch, 416)


# -- Monodepth
# -------------------------------------------------------------------------------------------------------


def _mirrored_conv(i: int, o: int) -> nn.Module:
    return nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(i, o, 3), nn.ELU(inplace=True))


class _Depth(nn.Module):
    """Nearness of every pixel at four scales, from one image (Godard et al., ICCV 2019)."""

    def __init__(self) -> None:
        super().__init__()
        stages: list[nn.Module] = [relu_conv(3, 64, 7, 2)]
        for n, (i, o) in enumerate(((64, 64), (64, 128), (128, 256), (256, 512))):
            blocks = [Residual(i, o, 2 if n else 1), Residual(o, o, 1)]
            stages.append(
                nn.Sequential(*blocks) if n else nn.Sequential(nn.MaxPool2d(3, 2, 1), *blocks)
            )
        self.down, widths, skips = (
            nn.ModuleList(stages),
            (256, 128, 64, 32, 16),
            (256, 128, 64, 64, 0),
        )
        befores = (512, *widths[:-1])
        self.narrow = nn.ModuleList(
            _mirrored_conv(i, o) for i, o in zip(befores, widths, strict=True)
        )
        self.join = nn.ModuleList(
            _mirrored_conv(o + skip, o) for o, skip in zip(widths, skips, strict=True)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(o, 1, 3), nn.Sigmoid())
            for o in widths[1:]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x, kept = (x - 0.45) / 0.225, []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        y, found = kept.pop(), []
        for n, (narrow, join) in enumerate(zip(self.narrow, self.join, strict=True)):
            parts = [functional.interpolate(narrow(y), scale_factor=2, mode="nearest")]
            y = join(torch.cat([*parts, kept.pop()] if kept else parts, 1))
            if n:
                found.append(self.heads[n - 1](y))
        return tuple(found)


@registered("monodepth2")
def _depth(batch: int) -> tuple[nn.Module, Inputs]:
    """The network for one camera: ResNet-18 and a decoder; 640 x 192 pixels."""
    return _Depth(), (torch.rand(batch, 3, 192, 640),)


# -- TransUNet
# -------------------------------------------------------------------------------------------------------


def standardized(weight: Tensor) -> Tensor:
    """Filters, each less its mean and over its deviation (Qiao et al., arXiv 1903.10520)."""
    variance, mean = torch.var_mean(weight, dim=[1, 2, 3], keepdim=True, unbiased=False)
    return (weight - mean) / torch.sqrt(variance + 1e-5)


class _StandardConv(nn.Conv2d):
    """A convolution whose filters are standardized at every pass."""

    def __init__(self, i: int, o: int, k: int, s: int = 1) -> None:
        super().__init__(i, o, k, s, k // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, standardized(self.weight), None, self.stride, self.padding)


class _GroupBottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 with group norms, beside a skip that has one group for each
    channel.
    """

    def __init__(self, i: int, width: int, s: int) -> None:
        super().__init__()
        o = 4 * width
        layers: list[nn.Module] = []
        for conv in (_StandardConv(i, width, 1), _StandardConv(width, width, 3, s)):
            layers += [conv, nn.GroupNorm(32, width, eps=1e-6), nn.ReLU(inplace=True)]
        self.path = nn.Sequential(
            *layers, _StandardConv(width, o, 1), nn.GroupNorm(32, o, eps=1e-6)
        )
        self.skip = (
            nn.Sequential(_StandardConv(i, o, 1, s), nn.GroupNorm(o, o))
            if i != o or s > 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = self.skip(x)
        return functional.relu(kept + self.path(x), inplace=True)


class _VisionLayer(nn.Module):
    """Norms before; products and softmax of attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.mlp = WrittenAttention(width, heads, drop=0.0), Mlp(width, 0.1)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(self.norm1(x)) + x
        return self.mlp(self.norm2(x)) + x


class _RisenBlock(nn.Module):
    """Twice the size, joined with what the trunk had at it, and two 3x3 convolutions."""

    def __init__(self, i: int, o: int, skip: int) -> None:
        super().__init__()
        self.rise = nn.UpsamplingBilinear2d(scale_factor=2)
        self.convs = nn.Sequential(relu_conv(i + skip, o), relu_conv(o, o))

    def forward(self, x: Tensor, skip: Tensor | None) -> Tensor:
        x = self.rise(x)
        return self.convs(x if skip is None else torch.cat([x, skip], 1))


class _TransUNet(nn.Module):
    """A residual trunk, a transformer over its pixels, and back to the image's size (Chen et al.,
    arXiv 2102.04306).
    """

    def __init__(self, side: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _StandardConv(3, 64, 7, 2), nn.GroupNorm(32, 64, eps=1e-6), nn.ReLU(inplace=True)
        )
        self.pool, self.stages, channels = nn.MaxPool2d(3, 2), nn.ModuleList(), 64
        for stage, count in enumerate((3, 4, 9)):
            narrow = 64 * 2**stage
            first = _GroupBottleneck(channels, narrow, 2 if stage else 1)
            channels = 4 * narrow
            self.stages.append(
                nn.Sequential(
                    first, *(_GroupBottleneck(channels, narrow, 1) for _ in range(count - 1))
                )
            )
        self.patch, self.drop = nn.Conv2d(channels, width, 1), nn.Dropout(0.1)
        self.place = nn.Parameter(torch.zeros(1, (side // 16) ** 2, width))
        self.blocks = nn.Sequential(*(_VisionLayer(width, heads) for _ in range(layers)))
        self.norm, self.more = nn.LayerNorm(width, eps=1e-6), relu_conv(width, 512)
        sizes = ((512, 256, 512), (256, 128, 256), (128, 64, 64), (64, 16, 0))
        self.up, self.head = (
            nn.ModuleList(_RisenBlock(*size) for size in sizes),
            nn.Conv2d(16, classes, 3, padding=1),
        )

    def _trunk(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Pixels of a sixteenth of the size, and those of an eighth, a quarter and a half."""
        b, _, side, _ = x.shape
        x = self.stem(x)
        kept = [x]
        x = self.pool(x)
        for n, stage in enumerate(self.stages[:-1]):
            x = stage(x)
            size = side // 4 // (n + 1)
            if x.shape[-1] != size:  # the pool loses a pixel
                whole = torch.zeros(b, x.shape[1], size, size, dtype=x.dtype, device=x.device)
                whole[:, :, : x.shape[2], : x.shape[3]] = x
                kept.append(whole)
            else:
                kept.append(x)
        return self.stages[-1](x), kept[::-1]

    def forward(self, x: Tensor) -> Tensor:
        x, kept = self._trunk(x)
        b, _, h, w = x.shape
        x = self.drop(self.patch(x).flatten(2).transpose(-1, -2) + self.place)
        x = self.norm(self.blocks(x))
        x = self.more(x.permute(0, 2, 1).contiguous().view(b, -1, h, w))
        for n, up in enumerate(self.up):
            x = up(x, kept[n] if n < len(kept) else None)
        return self.head(x)


def segmenter(side: int) -> nn.Module:
    """The network for images of so many pixels a side, published with 224."""
    return _TransUNet(side, 768, 12, 12, 9)


@registered("transunet")
def _transunet(batch: int) -> tuple[nn.Module, Inputs]:
    """Eight organs and none; slices of half the published side."""
    return segmenter(112), images(batch, 112)


# -- Wasserstein GAN
# -------------------------------------------------------------------------------------------------


def _quartered(x: Tensor) -> Tensor:
    """Means of four neighbours, by slices."""
    return (x[:, :, ::2, ::2] + x[:, :, 1::2, ::2] + x[:, :, ::2, 1::2] + x[:, :, 1::2, 1::2]) / 4.0


def _conv(i: int, o: int, k: int = 3) -> nn.Module:
    return nn.Conv2d(i, o, k, padding=k // 2)


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
    """Activations before two 3x3 convolutions, without norms; the mean of four pixels behind where
    it halves.
    """

    def __init__(self, i: int, width: int, halves: bool) -> None:
        super().__init__()
        self.first, self.halves, self.sees = (
            i != width,
            halves,
            nn.Conv2d(i, width, 1) if halves else None,
        )
        self.conv1, self.conv2 = _conv(i, width), _conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(functional.relu(self.conv1(x if self.first else functional.relu(x))))
        if self.sees is None:
            return x + y
        kept = self.sees(_quartered(x)) if self.first else _quartered(self.sees(x))
        return kept + _quartered(y)


class _WassersteinGan(nn.Module):
    """Images of 32 x 32 pixels from random numbers (Gulrajani et al., NIPS 2017).

    In training what the critic says of each, which the generator's step goes through; else the
    images.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.first = width, nn.Linear(128, 16 * width)
        last = [nn.BatchNorm2d(width), nn.ReLU(), _conv(width, 3), nn.Tanh()]
        self.generator = nn.Sequential(*(_DrawnBlock(width) for _ in range(3)), *last)
        sizes = ((3, True), (width, True), (width, False), (width, False))
        self.critic = nn.Sequential(
            *(_JudgedBlock(i, width, halves) for i, halves in sizes), nn.ReLU()
        )
        self.head = nn.Linear(width, 1)

    def forward(self, z: Tensor) -> Tensor:
        drawn = self.generator(self.first(z).view(-1, self.width, 4, 4))
        return self.head(self.critic(drawn).mean((2, 3))).view(-1) if self.training else drawn


@registered("wgan-gp-resnet")
def _wasserstein(batch: int) -> tuple[nn.Module, Inputs]:
    """CIFAR-10 without labels, with the program's 128 channels."""
    return _WassersteinGan(128), (torch.randn(batch, 128),)
