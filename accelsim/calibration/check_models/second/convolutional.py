"""Networks of convolutions: classifiers, detectors, segmentation, generators, diffusion, audio."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import ConvNorm, Inputs, registered

__all__: list[str] = []


def _image(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, 3, size, size),)


def _head(channels: int, classes: int = 1000) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


class _GroupedBottleneck(nn.Module):
    """Aggregated transformations: a grouped 3x3 convolution between two 1x1 (Xie et al., CVPR
    2017).
    """

    def __init__(self, i: int, width: int, o: int, s: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            ConvNorm(i, width, 1), ConvNorm(width, width, 3, s, 32), ConvNorm(width, o, 1, act=None)
        )
        self.skip = nn.Identity() if i == o and s == 1 else ConvNorm(i, o, 1, s, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.path(x) + self.skip(x), inplace=True)


@registered("resnext-26")
def _resnext(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage in range(4):
        width, o = 128 * 2**stage, 256 * 2**stage
        for position in range(2):
            layers.append(
                _GroupedBottleneck(channels, width, o, 2 if stage and not position else 1)
            )
            channels = o
    return nn.Sequential(*layers, *_head(channels)), _image(batch, 224)


class _Fire(nn.Module):
    def __init__(self, i: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(i, squeeze, 1)
        self.one, self.three = (
            nn.Conv2d(squeeze, expand, 1),
            nn.Conv2d(squeeze, expand, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.squeeze(x))
        return torch.cat([functional.relu(self.one(x)), functional.relu(self.three(x))], 1)


@registered("squeezenet")
def _squeezenet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
    ]
    channels = 64
    for squeeze, expand, pool in (
        (16, 64, False),
        (16, 64, True),
        (32, 128, False),
        (32, 128, True),
        (48, 192, False),
        (48, 192, False),
        (64, 256, False),
        (64, 256, False),
    ):
        layers.append(_Fire(channels, squeeze, expand))
        layers += [nn.MaxPool2d(3, 2, ceil_mode=True)] if pool else []
        channels = 2 * expand
    head = [nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head), _image(batch, 224)


class _Shuffle(nn.Module):
    """A unit of two branches and a channel shuffle (Ma et al., ECCV 2018)."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        half, source = o // 2, i if s > 1 else i // 2
        self.near = (
            nn.Sequential(ConvNorm(i, i, 3, s, i, None), ConvNorm(i, half, 1)) if s > 1 else None
        )
        self.far = nn.Sequential(
            ConvNorm(source, half, 1),
            ConvNorm(half, half, 3, s, half, None),
            ConvNorm(half, half, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.near is None:
            kept, x = x.chunk(2, 1)
        else:
            kept = self.near(x)
        y = torch.cat([kept, self.far(x)], 1)
        b, c, h, w = y.shape
        return y.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)


@registered("shufflenet-v2")
def _shufflenet(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [ConvNorm(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 24
    for o, count in ((116, 4), (232, 8), (464, 4)):
        for position in range(count):
            layers.append(_Shuffle(channels, o, 1 if position else 2))
            channels = o
    return nn.Sequential(*layers, ConvNorm(464, 1024, 1), *_head(1024)), _image(batch, 224)


class _ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.across, self.norm = (
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            nn.LayerNorm(width, eps=1e-6),
        )
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.across(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class _ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@registered("convnext-10-blocks")
def _convnext(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), _ChannelNorm(96)]
    for stage, count in enumerate((2, 2, 4, 2)):
        width = 96 * 2**stage
        layers += [_ChannelNorm(width // 2), nn.Conv2d(width // 2, width, 2, 2)] if stage else []
        layers += [_ConvNextBlock(width) for _ in range(count)]
    return nn.Sequential(*layers, *_head(768)), _image(batch, 192)


class _MobileV3(nn.Module):
    def __init__(
        self, i: int, wide: int, o: int, k: int, s: int, squeezes: bool, act: type[nn.Module]
    ) -> None:
        super().__init__()
        self.spread = nn.Sequential(
            ConvNorm(i, wide, 1, act=act), ConvNorm(wide, wide, k, s, wide, act)
        )
        self.gate = (
            nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(wide, wide // 4, 1),
                nn.ReLU(),
                nn.Conv2d(wide // 4, wide, 1),
                nn.Hardsigmoid(),
            )
            if squeezes
            else None
        )
        self.project, self.adds = ConvNorm(wide, o, 1, act=None), i == o and s == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.spread(x)
        y = self.project(y if self.gate is None else self.gate(y) * y)
        return x + y if self.adds else y


@registered("mobilenet-v3-small")
def _mobilenet_v3(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2, act=nn.Hardswish)]
    for i, wide, o, k, s, squeezes, act in (
        (16, 16, 16, 3, 2, True, nn.ReLU),
        (16, 72, 24, 3, 2, False, nn.ReLU),
        (24, 88, 24, 3, 1, False, nn.ReLU),
        (24, 96, 40, 5, 2, True, nn.Hardswish),
        (40, 240, 40, 5, 1, True, nn.Hardswish),
        (40, 120, 48, 5, 1, True, nn.Hardswish),
        (48, 288, 96, 5, 2, True, nn.Hardswish),
        (96, 576, 96, 5, 1, True, nn.Hardswish),
    ):
        layers.append(_MobileV3(i, wide, o, k, s, squeezes, act))
    head = [
        ConvNorm(96, 576, 1, act=nn.Hardswish),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(576, 1024),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(1024, 1000),
    ]
    return nn.Sequential(*layers, *head), _image(batch, 224)


class _Inception(nn.Module):
    """Parallel factorised convolutions (Szegedy et al., CVPR 2016)."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        line = lambda i, o, k: nn.Sequential(  # noqa: E731
            nn.Conv2d(i, o, k, padding=(k[0] // 2, k[1] // 2), bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(),
        )
        self.one = ConvNorm(channels, 192, 1)
        self.seven = nn.Sequential(
            ConvNorm(channels, width, 1), line(width, width, (1, 7)), line(width, 192, (7, 1))
        )
        self.three = nn.Sequential(ConvNorm(channels, 64, 1), ConvNorm(64, 96), ConvNorm(96, 192))
        self.pool = ConvNorm(channels, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.pool(functional.avg_pool2d(x, 3, 1, 1))
        return torch.cat([self.one(x), self.seven(x), self.three(x), pooled], 1)


@registered("inception-like")
def _inception(batch: int) -> tuple[nn.Module, Inputs]:
    stem = [
        ConvNorm(3, 32, 3, 2),
        ConvNorm(32, 64),
        nn.MaxPool2d(3, 2, 1),
        ConvNorm(64, 192),
        nn.MaxPool2d(3, 2, 1),
    ]
    blocks = [
        _Inception(192, 128),
        nn.MaxPool2d(3, 2, 1),
        _Inception(768, 160),
        _Inception(768, 192),
    ]
    return nn.Sequential(*stem, *blocks, *_head(768)), _image(batch, 192)


class _CrossStage(nn.Module):
    """A cross-stage partial block (Wang et al., CVPRW 2020), as one-stage detectors have it."""

    def __init__(self, i: int, o: int, count: int) -> None:
        super().__init__()
        half = o // 2
        self.first, self.second = (
            ConvNorm(i, half, 1, act=nn.SiLU),
            ConvNorm(i, half, 1, act=nn.SiLU),
        )
        pair = lambda: nn.Sequential(  # noqa: E731
            ConvNorm(half, half, 1, act=nn.SiLU), ConvNorm(half, half, act=nn.SiLU)
        )
        self.inner = nn.ModuleList(pair() for _ in range(count))
        self.join = ConvNorm(2 * half, o, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for block in self.inner:
            y = y + block(y)
        return self.join(torch.cat([y, self.second(x)], 1))


class _Detector(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        w, step = width, lambda i, o: ConvNorm(i, o, 3, 2, act=nn.SiLU)
        self.stem = nn.Sequential(
            ConvNorm(3, w, 3, 2, act=nn.SiLU), step(w, 2 * w), _CrossStage(2 * w, 2 * w, 1)
        )
        self.middle = nn.Sequential(step(2 * w, 4 * w), _CrossStage(4 * w, 4 * w, 2))
        self.deep = nn.Sequential(step(4 * w, 8 * w), _CrossStage(8 * w, 8 * w, 1))
        self.narrow, self.widen = (
            ConvNorm(8 * w, 4 * w, 1, act=nn.SiLU),
            ConvNorm(16 * w, 8 * w, 1, act=nn.SiLU),
        )
        self.neck = _CrossStage(8 * w, 4 * w, 1)
        self.heads = nn.ModuleList([nn.Conv2d(4 * w, outputs, 1), nn.Conv2d(8 * w, outputs, 1)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        middle = self.middle(self.stem(x))
        y = self.narrow(self.deep(middle))
        pools = [y]
        for _ in range(3):
            pools.append(functional.max_pool2d(pools[-1], 5, 1, 2))
        deep = self.widen(torch.cat(pools, 1))
        up = functional.interpolate(y, scale_factor=2.0, mode="nearest")
        near = self.neck(torch.cat([up, middle], 1))
        return self.heads[0](near), self.heads[1](deep)


@registered("yolo-like")
def _yolo(batch: int) -> tuple[nn.Module, Inputs]:
    return _Detector(16, 255), _image(batch, 256)


class _Segmenter(nn.Module):
    """Dilated convolutions in parallel and bilinear upsampling (Chen et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvNorm(3, 32, 3, 2),
            ConvNorm(32, 64, 3, 2),
            ConvNorm(64, 128, 3, 2),
            ConvNorm(128, 256),
        )
        self.near = ConvNorm(256, 64, 1)
        self.far = nn.ModuleList(
            nn.Conv2d(256, 64, 3, padding=d, dilation=d, bias=False) for d in (2, 4, 8)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(64) for _ in range(3))
        self.last = nn.Sequential(ConvNorm(256, 64, 1), nn.Conv2d(64, 21, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        parts = [self.near(y)]
        parts += [
            functional.relu(norm(far(y))) for far, norm in zip(self.far, self.norms, strict=True)
        ]
        return functional.interpolate(
            self.last(torch.cat(parts, 1)), size=x.shape[-2:], mode="bilinear"
        )


@registered("deeplab-like")
def _deeplab(batch: int) -> tuple[nn.Module, Inputs]:
    return _Segmenter(), _image(batch, 224)


@registered("dcgan-generator")
def _dcgan(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [
        nn.ConvTranspose2d(100, 512, 4, 1, 0, bias=False),
        nn.BatchNorm2d(512),
        nn.ReLU(True),
    ]
    for i, o in ((512, 256), (256, 128), (128, 64)):
        layers += [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()), (
        torch.randn(batch, 100, 1, 1),
    )


@registered("mnist-cnn")
def _mnist(batch: int) -> tuple[nn.Module, Inputs]:
    layers = [
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
    ]
    head = [
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
        nn.LogSoftmax(1),
    ]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 1, 28, 28),)


class _TimeResidual(nn.Module):
    def __init__(self, i: int, o: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
        self.time, self.skip = nn.Linear(time, o), nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        y = (
            self.conv1(functional.silu(self.norm1(x)))
            + self.time(functional.silu(t))[:, :, None, None]
        )
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class _ImageAttention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.parts, self.output = (
            nn.GroupNorm(8, channels),
            nn.Conv2d(channels, 3 * channels, 1),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = self.parts(self.norm(x)).view(b, 3, 4, c // 4, h * w).transpose(-1, -2).unbind(1)
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.output(y.transpose(-1, -2).reshape(b, c, h, w))


class _DiffusionUNet(nn.Module):
    """Noise prediction with time conditioning and attention at the coarsest level (Ho et al.,
    NeurIPS 2020).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        w, time = width, 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, w, 3, padding=1)
        self.down = nn.ModuleList([_TimeResidual(w, w, time), _TimeResidual(w, 2 * w, time)])
        self.shrink = nn.ModuleList([nn.Conv2d(w, w, 3, 2, 1), nn.Conv2d(2 * w, 2 * w, 3, 2, 1)])
        self.middle, self.attention = _TimeResidual(2 * w, 4 * w, time), _ImageAttention(4 * w)
        self.grow = nn.ModuleList(
            [nn.Conv2d(4 * w, 2 * w, 3, padding=1), nn.Conv2d(2 * w, w, 3, padding=1)]
        )
        self.up = nn.ModuleList([_TimeResidual(4 * w, 2 * w, time), _TimeResidual(2 * w, w, time)])
        self.norm, self.last = nn.GroupNorm(8, w), nn.Conv2d(w, 3, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        t, x = self.time(t), self.first(x)
        kept = []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = block(x, t)
            kept.append(x)
            x = shrink(x)
        x = self.attention(self.middle(x, t))
        for block, grow in zip(self.up, self.grow, strict=True):
            x = grow(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
            x = block(torch.cat([x, kept.pop()], 1), t)
        return self.last(functional.silu(self.norm(x)))


@registered("diffusion-u-net")
def _diffusion(batch: int) -> tuple[nn.Module, Inputs]:
    return _DiffusionUNet(48), (torch.randn(batch, 3, 48, 48), torch.randn(batch, 48))


class _GatedDilated(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pad, self.conv = dilation, nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.residual, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.conv(functional.pad(x, (self.pad, 0))).chunk(2, 1)
        y = torch.tanh(a) * torch.sigmoid(b)
        return x + self.residual(y), self.skip(y)


class _WaveNet(nn.Module):
    """Dilated causal convolutions with gates (van den Oord et al., 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(_GatedDilated(width, 2**i) for _ in range(2) for i in range(8))
        self.last = nn.Sequential(
            nn.ReLU(), nn.Conv1d(2 * width, 128, 1), nn.ReLU(), nn.Conv1d(128, 256, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.first(x), None
        for layer in self.layers:
            x, skip = layer(x)
            total = skip if total is None else total + skip
        return self.last(total)


@registered("wavenet-like")
def _wavenet(batch: int) -> tuple[nn.Module, Inputs]:
    return _WaveNet(64), (torch.randn(batch, 1, 2000),)
