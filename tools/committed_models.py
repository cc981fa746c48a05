"""Networks of the committed run that have left the check list for the lines that they take: with
them, all that was measured of them can be predicted anew.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models import CHECK_MODELS, Factory
from accelsim.calibration.check_models.language_models import RmsNorm
from accelsim.calibration.check_models.parts import (
    ConvNorm,
    Made,
    Residual,
    images,
    pooled_head,
    token_ids,
)


def _refined(batch: int) -> Made:
    """Three 3x3 convolutions first, means before the 1x1 of a skip (He et al., CVPR 2019)."""
    network, inputs = CHECK_MODELS["resnet-50"](batch)
    stem, *others = network
    first = [ConvNorm(3, 32, 3, 2), ConvNorm(32, 32), ConvNorm(32, 64), stem[1]]
    for number, stage in enumerate(others[1:4]):
        channels = 256 * 2**number
        pool = nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
        stage[0].skip = nn.Sequential(pool, ConvNorm(channels, 2 * channels, 1, act=None))
    return nn.Sequential(*first, *others), inputs


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


def _mirrored_conv(channels_in: int, channels_out: int) -> nn.Module:
    conv = nn.Conv2d(channels_in, channels_out, 3)
    return nn.Sequential(nn.ReflectionPad2d(1), conv, nn.ELU(inplace=True))


def _basic(channels_in: int, channels_out: int, stride: int) -> Residual:
    """Two 3x3 convolutions."""
    first = ConvNorm(channels_in, channels_out, 3, stride)
    second = ConvNorm(channels_out, channels_out, act=None)
    return Residual([first, second], (channels_in, channels_out), stride)


class _Depth(nn.Module):
    """Nearness of every pixel at four scales, from one image (Godard et al., ICCV 2019)."""

    def __init__(self) -> None:
        super().__init__()
        stages: list[nn.Module] = [ConvNorm(3, 64, 7, 2)]
        for number, (before, width) in enumerate(pairwise((64, 64, 128, 256, 512))):
            blocks = [_basic(before, width, 2 if number else 1), _basic(width, width, 1)]
            pool = [] if number else [nn.MaxPool2d(3, 2, 1)]
            stages.append(nn.Sequential(*pool, *blocks))
        self.down = nn.ModuleList(stages)
        widths = (256, 128, 64, 32, 16)
        skips = (256, 128, 64, 64, 0)
        self.narrow = nn.ModuleList(_mirrored_conv(*pair) for pair in pairwise((512, *widths)))
        self.join = nn.ModuleList(
            _mirrored_conv(width + skip, width) for width, skip in zip(widths, skips, strict=True)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(width, 1, 3), nn.Sigmoid())
            for width in widths[1:]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = (x - 0.45) / 0.225
        kept = []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        y = kept.pop()
        found = []
        for number, (narrow, join) in enumerate(zip(self.narrow, self.join, strict=True)):
            parts = [functional.interpolate(narrow(y), scale_factor=2, mode="nearest")]
            y = join(torch.cat([*parts, kept.pop()] if kept else parts, 1))
            if number:
                found.append(self.heads[number - 1](y))
        return tuple(found)


def _depth(batch: int) -> Made:
    """The network for one camera: ResNet-18 and a decoder; 640 x 192 pixels."""
    return _Depth(), (torch.rand(batch, 3, 192, 640),)


class _PlaceBias(nn.Module):
    """A bias of each head for 32 ranges of distance, logarithmic beyond half of them."""

    def __init__(self, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.both_ways = both_ways
        self.table = nn.Embedding(32, heads)

    def forward(self, length: int) -> Tensor:
        places = torch.arange(length, device=self.table.weight.device)
        distance = places[None, :] - places[:, None]
        count = 32
        bucket = torch.zeros_like(distance)
        if self.both_ways:
            count //= 2
            bucket = (distance > 0).long() * count
            distance = distance.abs()
        else:
            distance = -distance.clamp(max=0)
        exact = count // 2
        far = torch.log(distance.float() / exact) / math.log(128 / exact) * (count - exact)
        far = (exact + far.long()).clamp(max=count - 1)
        bucket = bucket + torch.where(distance < exact, distance, far)
        return self.table(bucket).permute(2, 0, 1).unsqueeze(0)


class _T5Attention(nn.Module):
    """Unscaled products, a bias, softmax; 64 features of a head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.drop = nn.Dropout(0.1)
        parts = (nn.Linear(width, 64 * heads, bias=False) for _ in range(3))
        self.query, self.key, self.value = parts
        self.output = nn.Linear(64 * heads, width, bias=False)

    def forward(self, x: Tensor, source: Tensor, bias: Tensor | None) -> Tensor:
        parts = (self.query(x), self.key(source), self.value(source))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        scores = torch.matmul(q, k.transpose(3, 2))
        if bias is not None:
            scores = scores + bias
        weights = self.drop(functional.softmax(scores.float(), dim=-1).type_as(scores))
        return self.output(torch.matmul(weights, v).transpose(1, 2).flatten(2))


def _written_gelu(x: Tensor) -> Tensor:
    """GELU by a hyperbolic tangent, operator by operator."""
    return (
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    )


class _T5Block(nn.Module):
    """Attention, of a decoder's block to the source too, and a gated layer."""

    def __init__(self, width: int, heads: int, inner: int, decodes: bool) -> None:
        super().__init__()
        self.attention = _T5Attention(width, heads)
        self.norm1 = RmsNorm(width)
        self.cross = _T5Attention(width, heads) if decodes else None
        self.norm2 = RmsNorm(width) if decodes else None
        self.gate, self.wide = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.narrow = nn.Linear(inner, width, bias=False)
        self.norm3 = RmsNorm(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, bias: Tensor, source: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        x = x + self.drop(self.attention(y, y, bias))
        if self.cross is not None and self.norm2 is not None and source is not None:
            x = x + self.drop(self.cross(self.norm2(x), source, None))
        y = self.norm3(x)
        y = self.drop(_written_gelu(self.gate(y)) * self.wide(y))
        return x + self.drop(self.narrow(y))


class _T5(nn.Module):
    """Encoder and decoder with relative places (Raffel et al., JMLR 2020; version 1.1)."""

    def __init__(self, width: int, heads: int, inner: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.token = nn.Embedding(vocabulary, width)
        self.drop = nn.Dropout(0.1)
        self.encoder, self.decoder = (
            nn.ModuleList(_T5Block(width, heads, inner, decodes) for _ in range(layers))
            for decodes in (False, True)
        )
        self.both_ways = _PlaceBias(heads, both_ways=True)
        self.one_way = _PlaceBias(heads, both_ways=False)
        self.norm1 = RmsNorm(width)
        self.norm2 = RmsNorm(width)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.drop(self.token(source))
        bias = self.both_ways(source.shape[1])
        for block in self.encoder:
            x = block(x, bias)
        x = self.drop(self.norm1(x))
        n = target.shape[1]
        later = torch.full((n, n), torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device).triu(1)
        y = self.drop(self.token(target))
        bias = self.one_way(n) + later
        for block in self.decoder:
            y = block(y, bias, x)
        return self.head(self.drop(self.norm2(y)))


def _mt5(batch: int) -> Made:
    """The words of a hundred languages (Xue et al., NAACL 2021)."""
    words = 250_112
    ids = token_ids(batch, 64, words), token_ids(batch, 16, words)
    return _T5(512, 6, 1024, 8, words), ids


#: Factories by name.
COMMITTED_MODELS: Final[Mapping[str, Factory]] = {
    "resnet-50-d": _refined,
    "pyramidnet-110": _pyramid,
    "mobileone-s0": _mobileone,
    "monodepth2": _depth,
    "mt5-small": _mt5,
}
