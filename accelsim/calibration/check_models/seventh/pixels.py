"""Networks that answer for every pixel, read videos or draw: flow, poses, actions, roads, and a
decoder of latent images.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.convolutional import images
from accelsim.calibration.check_models.register import Inputs, registered

__all__ = ["correlated"]


# -- PWC-Net
# ---------------------------------------------------------------------------------------------------------

_REACH: Final = 4
_LEVELS: Final = (16, 32, 64, 96, 128, 196)
#: Channels that each convolution of a level adds to those it reads.
_ADDED: Final = (128, 128, 96, 64, 32)


def _leaky(i: int, o: int, s: int = 1, d: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, 3, s, d, d), nn.LeakyReLU(0.1))


def correlated(a: Tensor, b: Tensor) -> Tensor:
    """Means of products over channels with all pixels up to four away, shape (batch, 81, height,
    width).
    """
    h, w = a.shape[-2:]
    wide, side = functional.pad(b, (_REACH,) * 4), range(2 * _REACH + 1)
    found = [
        (a * wide[:, :, down : down + h, right : right + w]).mean(1, keepdim=True)
        for down in side
        for right in side
    ]
    return torch.cat(found, 1)


def _warped(x: Tensor, flow: Tensor) -> Tensor:
    """The image as seen where the flow points; zero where that is outside."""
    b, _, h, w = x.shape
    across = torch.arange(w, device=x.device).view(1, 1, 1, w).repeat(b, 1, h, 1)
    down = torch.arange(h, device=x.device).view(1, 1, h, 1).repeat(b, 1, 1, w)
    grid = torch.cat([across, down], 1).to(x.dtype) + flow
    edges = [2.0 * grid[:, n] / (size - 1) - 1.0 for n, size in enumerate((w, h))]
    grid = torch.stack(edges, -1)
    look = partial(functional.grid_sample, grid=grid, align_corners=False)
    return look(x) * (look(torch.ones_like(x)) >= 0.999).to(x.dtype)


class _FlowLevel(nn.Module):
    """Five convolutions that each read all before them, then a flow; both are passed on at twice
    the size.
    """

    def __init__(self, i: int, finest: bool) -> None:
        super().__init__()
        sizes = list(accumulate(_ADDED, initial=i))
        self.layers = nn.ModuleList(_leaky(n, o) for n, o in zip(sizes[:-1], _ADDED, strict=True))
        self.channels = sizes[-1]
        self.flow = nn.Conv2d(self.channels, 2, 3, padding=1)
        self.grow_flow = nn.ConvTranspose2d(
            2, 2, 4, 2, 1
        )  # the finest has one too, which nothing reads
        self.grow = None if finest else nn.ConvTranspose2d(self.channels, 2, 4, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            x = torch.cat([layer(x), x], 1)
        return x, self.flow(x)


class _PwcNet(nn.Module):
    """Pyramids of two images, one warped towards the other, and their correlation (Sun et al., CVPR
    2018).
    """

    def __init__(self) -> None:
        super().__init__()
        befores = (3, *_LEVELS[:-1])
        self.pyramid = nn.ModuleList(
            nn.Sequential(_leaky(i, o, 2), _leaky(o, o))
            for i, o in zip(befores, _LEVELS, strict=True)
        )
        seen = (2 * _REACH + 1) ** 2
        inputs = (seen, *(seen + width + 4 for width in _LEVELS[4:0:-1]))
        self.levels = nn.ModuleList(_FlowLevel(i, n == 4) for n, i in enumerate(inputs))
        layers, channels = [], self.levels[-1].channels
        for o, d in ((128, 1), (128, 2), (128, 4), (96, 8), (64, 16), (32, 1)):
            layers.append(_leaky(channels, o, 1, d))
            channels = o
        self.context = nn.Sequential(*layers, nn.Conv2d(32, 2, 3, padding=1))

    def forward(self, pair: Tensor) -> Tensor | tuple[Tensor, ...]:
        a, b = pair[:, :3], pair[:, 3:]
        near, far = [], []
        for step in self.pyramid:
            a, b = step(a), step(b)
            near.append(a)
            far.append(b)
        x, flow = self.levels[0](functional.leaky_relu(correlated(a, b), 0.1))
        flows = [flow]
        for n, level in enumerate(self.levels[1:], 1):
            below = self.levels[n - 1]
            flow, grown = below.grow_flow(flow), below.grow(x)
            a, b = near[5 - n], _warped(far[5 - n], flow * (0.625 * 2 ** (n - 1)))
            x, flow = level(
                torch.cat([functional.leaky_relu(correlated(a, b), 0.1), a, flow, grown], 1)
            )
            flows.append(flow)
        flows[-1] = flows[-1] + self.context(x)
        return tuple(flows) if self.training else flows[-1]


@registered("pwc-net")
def _pwc(batch: int) -> tuple[nn.Module, Inputs]:
    """The correlation shift by shift, as a CPU runs it."""
    return _PwcNet(), (torch.randn(batch, 6, 128, 192),)


# -- stacked hourglass
# -----------------------------------------------------------------------------------------------


class _PreBottleneck(nn.Module):
    """Norms and activations before a 1x1, a 3x3 and a 1x1 convolution, with biases."""

    def __init__(self, i: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, o, k in ((i, width, 1), (width, width, 3), (width, 2 * width, 1)):
            layers += [
                nn.BatchNorm2d(before),
                nn.ReLU(inplace=True),
                nn.Conv2d(before, o, k, padding=k // 2),
            ]
        self.path = nn.Sequential(*layers)
        self.skip = nn.Conv2d(i, 2 * width, 1) if i != 2 * width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y += self.skip(x)
        return y


class _Hourglass(nn.Module):
    """Four levels down and up, each beside a block at its own size."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        block = lambda: _PreBottleneck(2 * width, width)  # noqa: E731
        self.beside, self.down, self.up = block(), block(), block()
        self.middle = _Hourglass(width, depth - 1) if depth > 1 else block()
        self.rise = nn.Upsample(scale_factor=2)

    def forward(self, x: Tensor) -> Tensor:
        beside = self.beside(x)
        y = self.up(self.middle(self.down(functional.max_pool2d(x, 2, 2))))
        return beside + self.rise(y)


class _Stack(nn.Module):
    """Hourglasses one after the other, each with its own heatmaps of joints (Newell et al., ECCV
    2016).
    """

    def __init__(self, stacks: int, width: int, joints: int) -> None:
        super().__init__()
        wide = 2 * width
        first = [
            nn.Conv2d(3, 64, 7, 2, 3),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            _PreBottleneck(64, 64),
        ]
        further = [nn.MaxPool2d(2, 2), _PreBottleneck(128, 128), _PreBottleneck(256, width)]
        self.stem = nn.Sequential(*first, *further)
        self.stacks = nn.ModuleList(
            nn.Sequential(
                *(_Hourglass(width, 4), _PreBottleneck(wide, width), nn.Conv2d(wide, wide, 1)),
                *(nn.BatchNorm2d(wide), nn.ReLU(inplace=True)),
            )
            for _ in range(stacks)
        )
        self.heads = nn.ModuleList(nn.Conv2d(wide, joints, 1) for _ in range(stacks))
        self.features = nn.ModuleList(nn.Conv2d(wide, wide, 1) for _ in range(stacks - 1))
        self.back = nn.ModuleList(nn.Conv2d(joints, wide, 1) for _ in range(stacks - 1))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x, found = self.stem(x), []
        for n, (stack, head) in enumerate(zip(self.stacks, self.heads, strict=True)):
            y = stack(x)
            found.append(head(y))
            if n < len(self.back):
                x = x + self.features[n](y) + self.back[n](found[-1])
        return tuple(found)


@registered("stacked-hourglass")
def _hourglass(batch: int) -> tuple[nn.Module, Inputs]:
    """All eight, for 16 joints; images of half the published side of 256."""
    return _Stack(8, 128, 16), images(batch, 128)


# -- X3D
# -------------------------------------------------------------------------------------------------------------


def _conv3d(i: int, o: int, k: tuple[int, int, int], s: int = 1, g: int = 1) -> nn.Module:
    return nn.Conv3d(i, o, k, (1, s, s), tuple(n // 2 for n in k), groups=g, bias=False)


class _Squeezed3d(nn.Module):
    """Channels scaled by what the whole clip says."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            *(nn.AdaptiveAvgPool3d(1), nn.Conv3d(channels, inner, 1), nn.ReLU()),
            *(nn.Conv3d(inner, channels, 1), nn.Sigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class _ClipBlock(nn.Module):
    """A depthwise 3x3x3 convolution between two 1x1x1; every other block squeezes."""

    def __init__(self, i: int, o: int, s: int, inner: int | None) -> None:
        super().__init__()
        wide = int(2.25 * o)
        before = [_conv3d(i, wide, (1, 1, 1)), nn.BatchNorm3d(wide), nn.ReLU()]
        across = [_conv3d(wide, wide, (3, 3, 3), s, wide), nn.BatchNorm3d(wide)]
        across += [_Squeezed3d(wide, inner)] if inner else []
        self.path = nn.Sequential(
            *before, *across, nn.SiLU(), _conv3d(wide, o, (1, 1, 1)), nn.BatchNorm3d(o)
        )
        norm = [nn.BatchNorm3d(o)] if i != o else []
        self.skip = (
            nn.Sequential(_conv3d(i, o, (1, 1, 1), s), *norm) if i != o or s > 1 else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.skip(x) + self.path(x))


class _X3d(nn.Module):
    """A small image network grown along each axis of a video (Feichtenhofer, CVPR 2020)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv3d(3, 24, (1, 3, 3), 2), _conv3d(24, 24, (5, 1, 1), 1, 24)]
        layers += [nn.BatchNorm3d(24), nn.ReLU()]
        channels = 24
        for o, count, inner in ((24, 3, 8), (48, 5, 8), (96, 11, 16), (192, 7, 32)):
            for n in range(count):
                layers.append(_ClipBlock(channels, o, 1 if n else 2, None if n % 2 else inner))
                channels = o
        layers += [
            _conv3d(192, 432, (1, 1, 1)),
            nn.BatchNorm3d(432),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
        ]
        self.layers = nn.Sequential(
            *layers, _conv3d(432, 2048, (1, 1, 1)), nn.ReLU(), nn.Dropout(0.5)
        )
        self.head = nn.Linear(2048, classes)

    def forward(self, clip: Tensor) -> Tensor:
        y = self.head(self.layers(clip).permute(0, 2, 3, 4, 1))
        return y.mean((1, 2, 3)) if self.training else y.softmax(-1).mean((1, 2, 3))


@registered("x3d-s")
def _x3d(batch: int) -> tuple[nn.Module, Inputs]:
    """13 frames of 160 pixels, the 400 actions of Kinetics."""
    return _X3d(400), (torch.randn(batch, 3, 13, 160, 160),)


# -- ResUNet
# ---------------------------------------------------------------------------------------------------------


class _ResidualUnit(nn.Module):
    """Norms and activations before two 3x3 convolutions, beside a 1x1; the first has none before
    it.
    """

    def __init__(self, i: int, o: int, s: int = 1, first: bool = False) -> None:
        super().__init__()
        before = [] if first else [nn.BatchNorm2d(i), nn.ReLU()]
        second = [nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1)]
        self.path = nn.Sequential(*before, nn.Conv2d(i, o, 3, s, 1), *second)
        self.skip = nn.Sequential(nn.Conv2d(i, o, 1, s), nn.BatchNorm2d(o))

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x) + self.skip(x)


class _ResidualU(nn.Module):
    """Three levels of residual units and a bridge (Zhang et al., IEEE GRSL 2018)."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        befores = (3, *sizes[:-1])
        self.down = nn.ModuleList(
            _ResidualUnit(i, o, 2 if n else 1, not n)
            for n, (i, o) in enumerate(zip(befores, sizes, strict=True))
        )
        pairs = zip(sizes[:0:-1], sizes[-2::-1], strict=True)
        self.up = nn.ModuleList(_ResidualUnit(below + o, o) for below, o in pairs)
        self.rise, self.head = nn.Upsample(scale_factor=2), nn.Conv2d(sizes[0], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for unit in self.down:
            x = unit(x)
            kept.append(x)
        y = kept.pop()
        for unit in self.up:
            y = unit(torch.cat([self.rise(y), kept.pop()], 1))
        return torch.sigmoid(self.head(y))


@registered("resunet")
def _resunet(batch: int) -> tuple[nn.Module, Inputs]:
    """Roads in photographs of half the published side of 224."""
    return _ResidualU((64, 128, 256, 512)), images(batch, 112)


# -- the decoder of Stable Diffusion
# ---------------------------------------------------------------------------------


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, width, eps=1e-6)


class _DecodedBlock(nn.Module):
    """Group norms and activations before two 3x3 convolutions."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        layers = [
            _norm(i),
            nn.SiLU(),
            nn.Conv2d(i, o, 3, padding=1),
            _norm(o),
            nn.SiLU(),
            nn.Dropout(0.0),
        ]
        self.path = nn.Sequential(*layers, nn.Conv2d(o, o, 3, padding=1))
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.path(x)


class _OneHead(nn.Module):
    """Attention of one head over all pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = _norm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        y = self.norm(x.view(b, c, h * w)).transpose(1, 2)
        q, k, v = (f(y).unsqueeze(1) for f in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        return self.output(y).transpose(-1, -2).reshape(b, c, h, w) + x


@registered("sd-vae-decoder")
def _decoder(batch: int) -> tuple[nn.Module, Inputs]:
    """What draws images from four numbers per 8 x 8 pixels (Rombach et al., CVPR 2022); 48 x 48
    pixels in place of 512.
    """
    layers: list[nn.Module] = [nn.Conv2d(4, 4, 1), nn.Conv2d(4, 512, 3, padding=1)]
    layers += [_DecodedBlock(512, 512), _OneHead(512), _DecodedBlock(512, 512)]
    channels = 512
    for level, width in enumerate((512, 512, 256, 128)):
        for _ in range(3):
            layers.append(_DecodedBlock(channels, width))
            channels = width
        layers += (
            [nn.Upsample(scale_factor=2.0), nn.Conv2d(width, width, 3, padding=1)]
            if level < 3
            else []
        )
    head = [_norm(128), nn.SiLU(), nn.Conv2d(128, 3, 3, padding=1)]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 4, 6, 6),)
