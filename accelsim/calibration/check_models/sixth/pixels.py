"""Networks that answer for every pixel: segmentation, super-resolution, boxes, salience, and
likelihoods of images.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.convolutional import SqueezeExcite, images, relu_conv
from accelsim.calibration.check_models.register import Inputs, registered

__all__: list[str] = []

_SILU: Final = partial(nn.SiLU, inplace=True)


# -- BiSeNet V2
# ------------------------------------------------------------------------------------------------------


class _Stem(nn.Module):
    """A quarter of the size by convolutions beside a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.join = relu_conv(3, 16, 3, 2), relu_conv(32, 16)
        self.left, self.right = (
            nn.Sequential(relu_conv(16, 8, 1), relu_conv(8, 16, 3, 2)),
            nn.MaxPool2d(3, 2, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.join(torch.cat([self.left(x), self.right(x)], 1))


class _Gather(nn.Module):
    """Depthwise convolutions on six times the channels, beside the input."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        wide = 6 * i
        shrink = [relu_conv(i, wide, 3, s, i, None)] if s > 1 else []
        across = relu_conv(wide if s > 1 else i, wide, 3, 1, wide if s > 1 else i)
        self.path = nn.Sequential(relu_conv(i, i), *shrink, across, relu_conv(wide, o, 1, act=None))
        skip = nn.Sequential(relu_conv(i, i, 3, s, i, None), relu_conv(i, o, 1, act=None))
        self.skip = skip if s > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.path(x) + self.skip(x), inplace=True)


class _Context(nn.Module):
    """The image's mean added to every pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = nn.Sequential(nn.BatchNorm2d(width), relu_conv(width, width, 1))
        self.last = relu_conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mean(x.mean((2, 3), keepdim=True)) + x)


class _Guided(nn.Module):
    """Details and meaning, each gated by the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        plain = lambda: nn.Sequential(  # noqa: E731
            relu_conv(width, width, 3, 1, width, None), nn.Conv2d(width, width, 1, bias=False)
        )
        self.fine, self.coarse = plain(), plain()
        self.down = nn.Sequential(relu_conv(width, width, 3, 2, act=None), nn.AvgPool2d(3, 2, 1))
        self.up = nn.Sequential(relu_conv(width, width, act=None), nn.Upsample(scale_factor=4))
        self.rise, self.last = nn.Upsample(scale_factor=4), relu_conv(width, width)

    def forward(self, details: Tensor, meaning: Tensor) -> Tensor:
        left = self.fine(details) * torch.sigmoid(self.up(meaning))
        right = self.rise(self.down(details) * torch.sigmoid(self.coarse(meaning)))
        return self.last(left + right)


class _Bilateral(nn.Module):
    """A wide and shallow branch beside a narrow and deep one (Yu et al., IJCV 2021), without the
    heads for training.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        wide = (
            (3, 64, 2),
            (64, 64, 1),
            (64, 64, 2),
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            *((128, 128, 1),) * 2,
        )
        self.details = nn.Sequential(*(relu_conv(i, o, 3, s) for i, o, s in wide))
        deep = (
            (16, 32, 2),
            (32, 32, 1),
            (32, 64, 2),
            (64, 64, 1),
            (64, 128, 2),
            *((128, 128, 1),) * 3,
        )
        self.meaning = nn.Sequential(_Stem(), *(_Gather(*sizes) for sizes in deep), _Context(128))
        head = [relu_conv(128, 1024), nn.Dropout(0.1), nn.Conv2d(1024, classes, 1)]
        self.join, self.head = (
            _Guided(128),
            nn.Sequential(*head, nn.Upsample(scale_factor=8, mode="bilinear")),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.join(self.details(x), self.meaning(x)))


@registered("bisenet-v2")
def _bisenet(batch: int) -> tuple[nn.Module, Inputs]:
    """The 19 classes of streets; an eighth of the published 1024 x 512 pixels."""
    return _Bilateral(19), images(batch, 256)


# -- RCAN
# ------------------------------------------------------------------------------------------------------------


class _Beside(nn.Module):
    """Layers beside their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y += x
        return y


def _colour_shift() -> nn.Module:
    """A fixed 1x1 convolution that takes the mean colour off, or adds it."""
    return nn.Conv2d(3, 3, 1).requires_grad_(requires_grad=False)


@registered("rcan")
def _rcan(batch: int) -> tuple[nn.Module, Inputs]:
    """Ten groups of twenty blocks with attention to channels, twice the size (Zhang et al., ECCV
    2018).
    """
    conv = lambda o=64: nn.Conv2d(64, o, 3, padding=1)  # noqa: E731
    block = lambda: _Beside(conv(), nn.ReLU(inplace=True), conv(), SqueezeExcite(64, 4, nn.ReLU))  # noqa: E731
    group = lambda: _Beside(*(block() for _ in range(20)), conv())  # noqa: E731
    body = _Beside(*(group() for _ in range(10)), conv())
    tail = [conv(256), nn.PixelShuffle(2), conv(3)]
    first = nn.Conv2d(3, 64, 3, padding=1)
    return nn.Sequential(_colour_shift(), first, body, *tail, _colour_shift()), images(batch, 24)


# -- YOLO v8
# ---------------------------------------------------------------------------------------------------------

_BINS: Final = 16
_CLASSES: Final = 80


class _Split(nn.Module):
    """Half of the channels through bottlenecks, each one's output kept."""

    def __init__(self, i: int, o: int, count: int, adds: bool) -> None:
        super().__init__()
        half = o // 2
        conv = partial(relu_conv, act=_SILU)
        self.adds, self.first, self.last = adds, conv(i, o, 1), conv((2 + count) * half, o, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(half, half), conv(half, half)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        found = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            y = block(found[-1])
            found.append(found[-1] + y if self.adds else y)
        return self.last(torch.cat(found, 1))


class _Pools(nn.Module):
    """One pool three times over."""

    def __init__(self, width: int) -> None:
        super().__init__()
        conv = partial(relu_conv, act=_SILU)
        self.first, self.last, self.pool = (
            conv(width, width // 2, 1),
            conv(2 * width, width, 1),
            nn.MaxPool2d(5, 1, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        found = [self.first(x)]
        for _ in range(3):
            found.append(self.pool(found[-1]))
        return self.last(torch.cat(found, 1))


class _Boxes(nn.Module):
    """At each place four distances, each a distribution over sixteen, and the classes."""

    def __init__(self, widths: tuple[int, ...], size: int) -> None:
        super().__init__()
        conv = partial(relu_conv, act=_SILU)
        side = lambda i, w, o: nn.Sequential(conv(i, w), conv(w, w), nn.Conv2d(w, o, 1))  # noqa: E731
        self.boxes = nn.ModuleList(side(i, 64, 4 * _BINS) for i in widths)
        self.classes = nn.ModuleList(side(i, 80, _CLASSES) for i in widths)
        self.mean = nn.Conv2d(_BINS, 1, 1, bias=False).requires_grad_(requires_grad=False)
        counts = [size // s for s in (8, 16, 32)]
        places = [
            torch.cartesian_prod(torch.arange(n), torch.arange(n)).flip(1).t() + 0.5 for n in counts
        ]
        self.register_buffer("places", torch.cat(places, 1))
        steps = [torch.full((1, n * n), float(s)) for n, s in zip(counts, (8, 16, 32), strict=True)]
        self.register_buffer("steps", torch.cat(steps, 1))

    def forward(self, *scales: Tensor) -> Tensor:
        b = scales[0].shape[0]
        parts = [
            torch.cat([f(x), g(x)], 1)
            for f, g, x in zip(self.boxes, self.classes, scales, strict=True)
        ]
        both = torch.cat([part.view(b, 4 * _BINS + _CLASSES, -1) for part in parts], 2)
        box, classes = both.split((4 * _BINS, _CLASSES), 1)
        shares = box.view(b, 4, _BINS, -1).transpose(2, 1).softmax(1)
        before, behind = self.mean(shares).view(b, 4, -1).chunk(2, 1)
        near, far = self.places.unsqueeze(0) - before, self.places.unsqueeze(0) + behind
        box = torch.cat([(near + far) / 2, far - near], 1) * self.steps
        return torch.cat([box, classes.sigmoid()], 1)


class _Yolo(nn.Module):
    """The smallest of the family without anchors (Jocher et al., 2023)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        conv = partial(relu_conv, act=_SILU)
        self.near = nn.Sequential(
            conv(3, 16, 3, 2),
            conv(16, 32, 3, 2),
            _Split(32, 32, 1, True),
            conv(32, 64, 3, 2),
            _Split(64, 64, 2, True),
        )
        self.middle = nn.Sequential(conv(64, 128, 3, 2), _Split(128, 128, 2, True))
        self.far = nn.Sequential(conv(128, 256, 3, 2), _Split(256, 256, 1, True), _Pools(256))
        self.rise = nn.Upsample(scale_factor=2.0)
        self.join1, self.join2 = _Split(384, 128, 1, False), _Split(192, 64, 1, False)
        self.down1, self.join3 = conv(64, 64, 3, 2), _Split(192, 128, 1, False)
        self.down2, self.join4 = conv(128, 128, 3, 2), _Split(384, 256, 1, False)
        self.head = _Boxes((64, 128, 256), size)

    def forward(self, x: Tensor) -> Tensor:
        near = self.near(x)
        middle = self.middle(near)
        far = self.far(middle)
        middle = self.join1(torch.cat([self.rise(far), middle], 1))
        near = self.join2(torch.cat([self.rise(middle), near], 1))
        middle = self.join3(torch.cat([self.down1(near), middle], 1))
        far = self.join4(torch.cat([self.down2(middle), far], 1))
        return self.head(near, middle, far)


@registered("yolo-v8n")
def _yolo(batch: int) -> tuple[nn.Module, Inputs]:
    """Boxes before overlapping ones are dropped."""
    return _Yolo(640), images(batch, 640)


# -- U2-Net
# ----------------------------------------------------------------------------------------------------------


def _biased(i: int, o: int, d: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=d, dilation=d), nn.BatchNorm2d(o), nn.ReLU(inplace=True)
    )


class _InnerU(nn.Module):
    """A small U-Net beside a convolution; where its size must stay, gaps that double replace the
    pools.

    Args:
        i: Channels in.
        o: Channels out.
        width: Channels between.
        depth: Levels.
        pools: Whether sizes shrink.
    """

    def __init__(self, i: int, o: int, width: int, depth: int, pools: bool) -> None:
        super().__init__()
        gaps = [1] * (depth - 1) + [2] if pools else [2**n for n in range(depth)]
        self.first, self.pools = _biased(i, o), pools
        self.down = nn.ModuleList(_biased(width if n else o, width, d) for n, d in enumerate(gaps))
        back = [1] * (depth - 1) if pools else gaps[-2::-1]
        self.up = nn.ModuleList(
            _biased(2 * width, o if n == depth - 2 else width, d) for n, d in enumerate(back)
        )
        self.pool, self.rise = (
            nn.MaxPool2d(2, 2, ceil_mode=True),
            nn.Upsample(scale_factor=2, mode="bilinear"),
        )

    def forward(self, x: Tensor) -> Tensor:
        start = self.first(x)
        kept, last = [self.down[0](start)], len(self.down) - 1
        for n, layer in enumerate(self.down[1:], 1):
            kept.append(layer(self.pool(kept[-1]) if self.pools and n < last else kept[-1]))
        y = kept.pop()
        for n, layer in enumerate(self.up):
            y = layer(torch.cat([self.rise(y) if self.pools and n else y, kept.pop()], 1))
        return y + start


class _NestedU(nn.Module):
    """A U-Net of U-Nets; a map from each level and one of all (Qin et al., Pattern Recognition
    2020).
    """

    def __init__(self) -> None:
        super().__init__()
        depths = ((7, True), (6, True), (5, True), (4, True), (4, False), (4, False))
        self.down = nn.ModuleList(
            _InnerU(64 if n else 3, 64, 16, *depth) for n, depth in enumerate(depths)
        )
        self.up = nn.ModuleList(_InnerU(128, 64, 16, *depth) for depth in depths[-2::-1])
        self.sides = nn.ModuleList(nn.Conv2d(64, 1, 3, padding=1) for _ in depths)
        self.rises = nn.ModuleList(
            nn.Upsample(scale_factor=2**n, mode="bilinear") for n in range(len(depths))
        )
        self.pool, self.join = nn.MaxPool2d(2, 2, ceil_mode=True), nn.Conv2d(len(depths), 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.down[0](x)]
        for block in self.down[1:]:
            kept.append(block(self.pool(kept[-1])))
        found = [kept.pop()]
        for block in self.up:
            found.append(block(torch.cat([self.rises[1](found[-1]), kept.pop()], 1)))
        maps = []
        for n, (side, y) in enumerate(zip(self.sides, reversed(found), strict=True)):
            maps.append(self.rises[n](side(y)) if n else side(y))
        return torch.stack([torch.sigmoid(y) for y in (self.join(torch.cat(maps, 1)), *maps)])


@registered("u2-net-lite")
def _u2net(batch: int) -> tuple[nn.Module, Inputs]:
    """U2-Net with 16 channels between, at half of the published side of 320."""
    return _NestedU(), images(batch, 160)


# -- Glow
# ------------------------------------------------------------------------------------------------------------


class _ActNorm(nn.Module):
    """A shift and a scale of each channel, with the logarithm of what they do to volumes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias, self.logs = (nn.Parameter(torch.zeros(1, width, 1, 1)) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (x + self.bias) * torch.exp(self.logs), self.logs.sum() * (x.shape[2] * x.shape[3])


class _NormedConv(nn.Module):
    def __init__(self, i: int, o: int, k: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(i, o, k, padding=k // 2, bias=False), _ActNorm(o)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))[0]


class _ScaledConv(nn.Module):
    """Starts from zero; each output has a scale."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.conv, self.logs = nn.Conv2d(i, o, 3, padding=1), nn.Parameter(torch.zeros(o, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * torch.exp(self.logs * 3)


class _Mixed(nn.Module):
    """An invertible 1x1 convolution whose matrix is kept as its triangles."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lower, self.upper = (nn.Parameter(0.02 * torch.randn(width, width)) for _ in range(2))
        self.logs = nn.Parameter(torch.zeros(width))
        self.register_buffer("order", torch.eye(width).flip(0))
        self.register_buffer("signs", torch.ones(width))
        self.register_buffer("below", torch.ones(width, width).tril(-1))
        self.register_buffer("eye", torch.eye(width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        lower = self.lower * self.below + self.eye
        upper = self.upper * self.below.transpose(0, 1).contiguous()
        upper = upper + torch.diag(self.signs * torch.exp(self.logs))
        weight = torch.matmul(self.order, torch.matmul(lower, upper))
        return functional.conv2d(x, weight[:, :, None, None]), self.logs.sum() * (
            x.shape[2] * x.shape[3]
        )


def _log_density(x: Tensor, mean: Tensor, logs: Tensor) -> Tensor:
    """Logarithm of a normal density, summed over an image."""
    p = -0.5 * (logs * 2.0 + (x - mean) ** 2 / torch.exp(logs * 2.0) + math.log(2 * math.pi))
    return p.sum((1, 2, 3))


class _FlowStep(nn.Module):
    """Norm, mixture of channels, and half of them scaled and shifted by what the other half says."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.mix = _ActNorm(width), _Mixed(width)
        self.block = nn.Sequential(
            *(
                _NormedConv(width // 2, hidden, 3),
                nn.ReLU(),
                _NormedConv(hidden, hidden, 1),
                nn.ReLU(),
            ),
            _ScaledConv(hidden, width),
        )

    def forward(self, x: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
        x, volume = self.norm(x)
        x, turned = self.mix(x)
        a, b = x.chunk(2, 1)
        h = self.block(a)
        scale = torch.sigmoid(h[:, 1::2] + 2.0)
        b = (b + h[:, 0::2]) * scale
        found = scale.log().sum((1, 2, 3)) + (found + volume + turned)
        return torch.cat([a, b], 1), found


class _Glow(nn.Module):
    """Bits per number of images, and what they become (Kingma and Dhariwal, NeurIPS 2018)."""

    def __init__(self, levels: int, steps: int, hidden: int) -> None:
        super().__init__()
        self.levels, self.splits, width = nn.ModuleList(), nn.ModuleList(), 3
        for level in range(levels):
            width = 4 * (width // 2 if level else width)
            self.levels.append(nn.ModuleList(_FlowStep(width, hidden) for _ in range(steps)))
            if level < levels - 1:
                self.splits.append(_ScaledConv(width // 2, width))
        self.prior = _ScaledConv(2 * width, 2 * width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        count = x.shape[1] * x.shape[2] * x.shape[3]
        x = x + torch.zeros_like(x).uniform_(0, 1 / 256)
        found = torch.zeros_like(x[:, 0, 0, 0]) - math.log(256.0) * count
        for level, steps in enumerate(self.levels):
            b, c, h, w = x.shape
            x = (
                x.view(b, c, h // 2, 2, w // 2, 2)
                .permute(0, 1, 3, 5, 2, 4)
                .contiguous()
                .view(b, 4 * c, h // 2, w // 2)
            )
            for step in steps:
                x, found = step(x, found)
            if level < len(self.splits):
                x, y = x.chunk(2, 1)
                h = self.splits[level](x)
                found = _log_density(y, h[:, 0::2], h[:, 1::2]) + found
        mean, logs = self.prior(torch.zeros_like(x).repeat(1, 2, 1, 1)).chunk(2, 1)
        found = found + _log_density(x, mean, logs)
        return x, -found / (math.log(2.0) * count)


@registered("glow")
def _glow(batch: int) -> tuple[nn.Module, Inputs]:
    """CIFAR-10: three levels of 32 steps with 512 channels between, norms already set."""
    return _Glow(3, 32, 512), (torch.rand(batch, 3, 32, 32) - 0.5,)
