"""Networks that answer for every pixel, or keep all scales: segmentation, flow, translation of
images, poses' trunks.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fifth.classifiers import (
    Bottleneck,
    mobile_layers,
    residual_layers,
)
from accelsim.calibration.check_models.fourth.convolutional import images, pooled_head, relu_conv
from accelsim.calibration.check_models.register import Inputs, registered

__all__: list[str] = []

_RESIZED: Final = partial(functional.interpolate, mode="bilinear", align_corners=False)


# -- segmentation
# ----------------------------------------------------------------------------------------------------


def _full_head(i: int, classes: int) -> nn.Module:
    """Classes of every pixel (Long et al., CVPR 2015)."""
    return nn.Sequential(relu_conv(i, i // 4), nn.Dropout(0.1), nn.Conv2d(i // 4, classes, 1))


class _Segmenter(nn.Module):
    """Classes from the trunk's end, and from its middle beside, at the image's size."""

    def __init__(self, near: nn.Module, far: nn.Module, head: nn.Module, side: nn.Module) -> None:
        super().__init__()
        self.near, self.far, self.head, self.side = near, far, head, side

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        near = self.near(x)
        size = x.shape[-2:]
        return _RESIZED(self.head(self.far(near)), size=size), _RESIZED(self.side(near), size=size)


@registered("fcn-resnet-50")
def _fcn(batch: int) -> tuple[nn.Module, Inputs]:
    """Gaps instead of the last two strides, as torchvision has it."""
    *near, far = residual_layers(64, 1, (2, 4))
    return _Segmenter(
        nn.Sequential(*near), far, _full_head(2048, 21), _full_head(1024, 21)
    ), images(batch, 128)


class _Pooled(nn.Module):
    """The mean of all pixels at every pixel."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.path = nn.Sequential(nn.AdaptiveAvgPool2d(1), relu_conv(i, o, 1))

    def forward(self, x: Tensor) -> Tensor:
        return _RESIZED(self.path(x), size=x.shape[-2:])


class _Pyramid(nn.Module):
    """Convolutions with several gaps in parallel (Chen et al., arXiv 1706.05587)."""

    def __init__(self, i: int, o: int, gaps: tuple[int, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            [relu_conv(i, o, 1), *(relu_conv(i, o, d=d) for d in gaps), _Pooled(i, o)]
        )
        self.join = nn.Sequential(relu_conv(len(self.parts) * o, o, 1), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([part(x) for part in self.parts], 1))


@registered("deeplab-v3-mobilenet-v3")
def _deeplab(batch: int) -> tuple[nn.Module, Inputs]:
    layers = mobile_layers(2)
    head = nn.Sequential(
        _Pyramid(960, 256, (12, 24, 36)), relu_conv(256, 256), nn.Conv2d(256, 21, 1)
    )
    # torchvision's side head of a mobile trunk narrows 40 channels to 10
    return _Segmenter(
        nn.Sequential(*layers[:5]), nn.Sequential(*layers[5:]), head, _full_head(40, 21)
    ), images(batch, 320)


# -- high resolution
# -------------------------------------------------------------------------------------------------


class _Basic(nn.Module):
    """Two 3x3 convolutions beside the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.path = nn.Sequential(relu_conv(width, width), relu_conv(width, width, act=None))

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y += x
        return functional.relu(y, inplace=True)


def _between(widths: Sequence[int], i: int, j: int) -> nn.Module:
    """From scale `j` to scale `i`: up by repeating pixels, down by strides."""
    if j == i:
        return nn.Identity()
    if j > i:
        return nn.Sequential(
            relu_conv(widths[j], widths[i], 1, act=None), nn.Upsample(scale_factor=2.0 ** (j - i))
        )
    steps = [relu_conv(widths[j], widths[j], 3, 2) for _ in range(i - j - 1)]
    return nn.Sequential(*steps, relu_conv(widths[j], widths[i], 3, 2, act=None))


class _Exchange(nn.Module):
    """Blocks at each scale, then each scale gets the sum of all (Wang et al., TPAMI 2020)."""

    def __init__(self, widths: Sequence[int], count: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*(_Basic(w) for _ in range(count))) for w in widths
        )
        scales = range(len(widths))
        self.fuse = nn.ModuleList(
            nn.ModuleList(_between(widths, i, j) for j in scales) for i in scales
        )

    def forward(self, *scales: Tensor) -> list[Tensor]:
        found = [branch(x) for branch, x in zip(self.branches, scales, strict=True)]
        result = []
        for row in self.fuse:
            y = row[0](found[0])
            for part, x in zip(row[1:], found[1:], strict=True):
                y = y + part(x)
            result.append(functional.relu(y))
        return result


class _HighResolution(nn.Module):
    """Scales that run beside each other to the end, then a classifier's head over all of them."""

    def __init__(self, widths: Sequence[int], count: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            relu_conv(3, 64, 3, 2), relu_conv(64, 64, 3, 2), Bottleneck(64, 32, 128)
        )
        self.first = relu_conv(128, widths[0])
        befores = [128, *widths[1:-1]]
        self.further = nn.ModuleList(
            relu_conv(i, o, 3, 2) for i, o in zip(befores, widths[1:], strict=True)
        )
        self.stages = nn.ModuleList(_Exchange(widths[:n], count) for n in range(2, len(widths) + 1))
        wide = [128 * 2**n for n in range(len(widths))]
        self.widen = nn.ModuleList(
            Bottleneck(i, o // 4, o) for i, o in zip(widths, wide, strict=True)
        )
        self.down = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(o, 2 * o, 3, 2, 1), nn.BatchNorm2d(2 * o), nn.ReLU(inplace=True)
            )
            for o in wide[:-1]
        )
        last = [nn.Conv2d(wide[-1], 2048, 1), nn.BatchNorm2d(2048), nn.ReLU(inplace=True)]
        self.head = nn.Sequential(*last, *pooled_head(2048))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        scales = [self.first(x), self.further[0](x)]
        for n, stage in enumerate(self.stages):
            scales = [*scales, self.further[n](scales[-1])] if n else scales
            scales = stage(*scales)
        y = self.widen[0](scales[0])
        for widen, down, scale in zip(self.widen[1:], self.down, scales[1:], strict=True):
            y = widen(scale) + down(y)
        return self.head(y)


@registered("hrnet-w18-small")
def _hrnet(batch: int) -> tuple[nn.Module, Inputs]:
    return _HighResolution((16, 32, 64, 128), 2), images(batch)


# -- flow
# ------------------------------------------------------------------------------------------------------------


def _flow_conv(
    i: int, o: int, k: int, s: int = 1, *, norm: bool = False, acts: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(i, o, k, s, k // 2)]
    layers += [nn.InstanceNorm2d(o)] if norm else []
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if acts else []))


class _FlowBlock(nn.Module):
    def __init__(self, i: int, o: int, s: int, norm: bool) -> None:
        super().__init__()
        conv = partial(_flow_conv, norm=norm)
        self.path = nn.Sequential(
            conv(i, o // 4, 1), conv(o // 4, o // 4, 3, s), conv(o // 4, o, 1)
        )
        self.skip = conv(i, o, 1, s, acts=False) if s > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.skip(x) + self.path(x))


def _flow_encoder(outputs: int, norm: bool) -> nn.Module:
    """Features at an eighth of the image's size."""
    layers: list[nn.Module] = [_flow_conv(3, 32, 7, 2, norm=norm)]
    for i, o, s in ((32, 32, 1), (32, 64, 2), (64, 96, 2)):
        layers += [_FlowBlock(i, o, s, norm), _FlowBlock(o, o, 1, norm)]
    return nn.Sequential(*layers, nn.Conv2d(96, outputs, 1))


class _FlowUpdate(nn.Module):
    """A convolutional gated recurrent step from what is seen, where it is and the context."""

    def __init__(self, seen: int, hidden: int, context: int) -> None:
        super().__init__()
        self.look = _flow_conv(seen, 96, 1)
        self.flow = nn.Sequential(_flow_conv(2, 64, 7), _flow_conv(64, 32, 3))
        self.both = _flow_conv(96 + 32, 80, 3)
        total = hidden + context + 82
        self.keep, self.reset, self.new = (nn.Conv2d(total, hidden, 3, padding=1) for _ in range(3))
        self.step = nn.Sequential(_flow_conv(hidden, 128, 3), nn.Conv2d(128, 2, 3, padding=1))

    def forward(
        self, h: Tensor, context: Tensor, seen: Tensor, flow: Tensor
    ) -> tuple[Tensor, Tensor]:
        motion = torch.cat([self.both(torch.cat([self.look(seen), self.flow(flow)], 1)), flow], 1)
        x = torch.cat([context, motion], 1)
        both = torch.cat([h, x], 1)
        z, r = torch.sigmoid(self.keep(both)), torch.sigmoid(self.reset(both))
        q = torch.tanh(self.new(torch.cat([r * h, x], 1)))
        h = (1 - z) * h + z * q
        return h, self.step(h)


class _Raft(nn.Module):
    """Flow between two images, refined by looking it up in all pairs of pixels (Teed and Deng, ECCV
    2020).
    """

    levels, radius, hidden = 4, 3, 96

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.features, self.context = _flow_encoder(128, norm=True), _flow_encoder(160, norm=False)
        side = 2 * self.radius + 1
        self.steps, self.update = (
            steps,
            _FlowUpdate(self.levels * side**2, self.hidden, 160 - self.hidden),
        )

    def _pairs(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """Products of all pixels of one image with those of the other, at several scales."""
        n, c, h, w = a.shape
        pairs = torch.matmul(a.view(n, c, h * w).transpose(1, 2), b.view(n, c, h * w))
        pairs = pairs.view(n, h, w, 1, h, w) / c**0.5
        found = [pairs.reshape(n * h * w, 1, h, w)]
        for _ in range(self.levels - 1):
            found.append(functional.avg_pool2d(found[-1], 2, 2))
        return found

    def _looked_up(self, pairs: list[Tensor], places: Tensor) -> Tensor:
        """What lies around each place, at all scales."""
        n, _, h, w = places.shape
        line = torch.linspace(
            -self.radius, self.radius, 2 * self.radius + 1, device=places.device
        ).to(places.dtype)
        around = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).view(
            1, line.numel(), line.numel(), 2
        )
        centres, found = places.permute(0, 2, 3, 1).reshape(n * h * w, 1, 1, 2), []
        for volume in pairs:
            x, y = (centres + around).split(1, -1)
            height, width = volume.shape[-2:]
            grid = torch.cat([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)
            seen = functional.grid_sample(volume, grid, mode="bilinear", align_corners=True)
            found.append(seen.view(n, h, w, -1))
            centres = centres / 2
        return torch.cat(found, -1).permute(0, 3, 1, 2).contiguous()

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        a, b = self.features(torch.cat([first, second], 0)).chunk(2, 0)
        pairs = self._pairs(a, b)
        h, context = self.context(first).split([self.hidden, 160 - self.hidden], 1)
        h, context = torch.tanh(h), functional.relu(context)
        rows, columns = (torch.arange(n, device=first.device) for n in a.shape[-2:])
        start = torch.stack(torch.meshgrid(rows, columns, indexing="ij")[::-1]).to(a.dtype)
        start = start.unsqueeze(0).repeat(a.shape[0], 1, 1, 1)
        places, found = start, []
        for _ in range(self.steps):
            places = places.detach()
            h, change = self.update(h, context, self._looked_up(pairs, places), places - start)
            places = places + change
            size = [8 * n for n in a.shape[-2:]]
            found.append(
                8
                * functional.interpolate(
                    places - start, size=size, mode="bilinear", align_corners=True
                )
            )
        return tuple(found)


@registered("raft-small")
def _raft(batch: int) -> tuple[nn.Module, Inputs]:
    """Six refinements; papers report twelve to thirty-two."""
    return _Raft(6), (torch.randn(batch, 3, 128, 192), torch.randn(batch, 3, 128, 192))


# -- image to image
# --------------------------------------------------------------------------------------------------


class _SkipLevel(nn.Module):
    """Down, whatever lies further down, and up again, beside the input (Isola et al., CVPR 2017)."""

    def __init__(self, outer: int, inner: int, below: nn.Module | None, drop: float) -> None:
        super().__init__()
        down: list[nn.Module] = [
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(outer, inner, 4, 2, 1, bias=False),
        ]
        wide = inner if below is None else 2 * inner
        up = [
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(wide, outer, 4, 2, 1, bias=False),
            nn.BatchNorm2d(outer),
        ]
        middle = [] if below is None else [nn.BatchNorm2d(inner), below]
        self.path = nn.Sequential(*down, *middle, *up, *([nn.Dropout(drop)] if drop else []))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.path(x)], 1)


@registered("pix2pix-u-net")
def _pix2pix(batch: int) -> tuple[nn.Module, Inputs]:
    """The generator for 256 x 256 pixels, with batch norms."""
    level = _SkipLevel(512, 512, None, 0.0)
    for _ in range(3):
        level = _SkipLevel(512, 512, level, 0.5)
    for width in (256, 128, 64):
        level = _SkipLevel(width, 2 * width, level, 0.0)
    ends = [nn.ReLU(inplace=True), nn.ConvTranspose2d(128, 3, 4, 2, 1), nn.Tanh()]
    return nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1, bias=False), level, *ends), images(batch, 256)
