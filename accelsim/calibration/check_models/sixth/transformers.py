"""Transformers over images, alone or above convolutions, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fifth.classifiers import residual_layers
from accelsim.calibration.check_models.fourth.convolutional import images, relu_conv
from accelsim.calibration.check_models.register import Inputs, registered

__all__: list[str] = []


# -- DETR
# ------------------------------------------------------------------------------------------------------------


class _FrozenNorm(nn.Module):
    """A batch norm that never changes, operator by operator."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name, value in (("weight", 1.0), ("bias", 0.0), ("mean", 0.0), ("variance", 1.0)):
            self.register_buffer(name, torch.full((width,), value))

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, mean, variance = (
            t.reshape(1, -1, 1, 1) for t in (self.weight, self.bias, self.mean, self.variance)
        )
        scale = weight * (variance + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


def _frozen(module: nn.Module) -> nn.Module:
    """The same with frozen norms."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, _FrozenNorm(child.num_features))
        else:
            _frozen(child)
    return module


class _Places(nn.Module):
    """Sines of where a pixel lies between the image's edges, down and across."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Tensor, outside: Tensor) -> Tensor:
        inside, count = ~outside, self.count
        down, across = (inside.cumsum(axis, dtype=torch.float32) for axis in (1, 2))
        down = down / (down[:, -1:, :] + 1e-6) * (2 * math.pi)
        across = across / (across[:, :, -1:] + 1e-6) * (2 * math.pi)
        steps = torch.arange(count, dtype=torch.float32, device=x.device)
        steps = 10_000 ** (2 * torch.div(steps, 2, rounding_mode="floor") / count)
        found = []
        for place in (down, across):
            angles = place[:, :, :, None] / steps
            found.append(
                torch.stack([angles[..., 0::2].sin(), angles[..., 1::2].cos()], 4).flatten(3)
            )
        return torch.cat(found, 3).permute(0, 3, 1, 2).to(x.dtype)


class _Layer(nn.Module):
    """Attention to itself, to what was seen where it decodes, and a feed-forward layer, with norms
    behind each.
    """

    def __init__(self, width: int, heads: int, inner: int, decodes: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, 0.1)
        self.cross = nn.MultiheadAttention(width, heads, 0.1) if decodes else None
        self.wide, self.narrow, self.drop = (
            nn.Linear(width, inner),
            nn.Linear(inner, width),
            nn.Dropout(0.1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if decodes else 2))

    def forward(
        self,
        x: Tensor,
        place: Tensor,
        outside: Tensor,
        seen: Tensor | None = None,
        where: Tensor | None = None,
    ) -> Tensor:
        q = x + place
        x = self.norms[0](
            x + self.drop(self.attention(q, q, x, None if self.cross else outside)[0])
        )
        if self.cross is not None and seen is not None and where is not None:
            y = self.cross(x + place, seen + where, seen, outside)[0]
            x = self.norms[1](x + self.drop(y))
        return self.norms[-1](x + self.drop(self.narrow(self.drop(functional.relu(self.wide(x))))))


class _Detr(nn.Module):
    """A hundred boxes and their classes, of all six layers that decode (Carion et al., ECCV 2020)."""

    def __init__(
        self, width: int, heads: int, inner: int, layers: int, queries: int, classes: int
    ) -> None:
        super().__init__()
        self.trunk, self.places = (
            _frozen(nn.Sequential(*residual_layers(64, 1))),
            _Places(width // 2),
        )
        self.narrow, self.query = nn.Conv2d(2048, width, 1), nn.Embedding(queries, width)
        self.encoder, self.decoder = (
            nn.ModuleList(_Layer(width, heads, inner, decodes) for _ in range(layers))
            for decodes in (False, True)
        )
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, classes + 1)
        box = [
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 4),
        ]
        self.boxes = nn.Sequential(*box)

    def forward(self, x: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(x)
        outside = functional.interpolate(outside[None].float(), size=x.shape[-2:]).to(torch.bool)[0]
        where = self.places(x, outside).flatten(2).permute(2, 0, 1)
        seen, outside = self.narrow(x).flatten(2).permute(2, 0, 1), outside.flatten(1)
        for layer in self.encoder:
            seen = layer(seen, where, outside)
        query = self.query.weight.unsqueeze(1).repeat(1, x.shape[0], 1)
        y, found = torch.zeros_like(query), []
        for layer in self.decoder:
            y = layer(y, query, outside, seen, where)
            found.append(self.norm(y))
        result = torch.stack(found).transpose(1, 2)
        return self.classes(result), self.boxes(result).sigmoid()


@registered("detr-resnet-50")
def _detr(batch: int) -> tuple[nn.Module, Inputs]:
    """The 91 numbers of COCO's classes; images of 256 pixels in place of 800."""
    outside = torch.zeros(batch, 256, 256, dtype=torch.bool)
    return _Detr(256, 8, 2048, 6, 100, 91), (*images(batch, 256), outside)


# -- Visformer
# -------------------------------------------------------------------------------------------------------


class _PixelAttention(nn.Module):
    """Queries, keys and values by a 1x1 convolution; products and softmax written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.parts, self.output = (
            nn.Conv2d(width, 3 * width, 1, bias=False),
            nn.Conv2d(width, width, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = (
            self.parts(x)
            .reshape(b, 3, self.heads, c // self.heads, -1)
            .permute(1, 0, 2, 4, 3)
            .unbind(0)
        )
        weights = ((q @ k.transpose(-2, -1)) * self.scale).softmax(-1)
        return self.output((weights @ v).permute(0, 1, 3, 2).reshape(b, -1, h, w))


class _PixelBlock(nn.Module):
    """Grouped 3x3 convolutions where the image is large, attention where it is small (Chen et al.,
    ICCV 2021).
    """

    def __init__(self, width: int, heads: int | None) -> None:
        super().__init__()
        self.attention = (
            nn.Sequential(nn.BatchNorm2d(width), _PixelAttention(width, heads)) if heads else None
        )
        wide = 4 * width if heads else 2 * width
        across = (
            [] if heads else [nn.Conv2d(wide, wide, 3, padding=1, groups=8, bias=False), nn.GELU()]
        )
        ends = nn.Conv2d(width, wide, 1, bias=False), nn.Conv2d(wide, width, 1, bias=False)
        self.mlp = nn.Sequential(nn.BatchNorm2d(width), ends[0], nn.GELU(), *across, ends[1])

    def forward(self, x: Tensor) -> Tensor:
        if self.attention is not None:
            x = x + self.attention(x)
        return x + self.mlp(x)


class _Patches(nn.Module):
    """Squares of pixels as one each, with a norm and a learned image of places."""

    def __init__(self, i: int, o: int, k: int, side: int) -> None:
        super().__init__()
        self.conv, self.place = nn.Conv2d(i, o, k, k), nn.Parameter(torch.zeros(1, o, side, side))
        self.norm = nn.BatchNorm2d(o)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)) + self.place


@registered("visformer-tiny")
def _visformer(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = [relu_conv(3, 16, 7, 2)]
    for i, o, k, side, count, heads in (
        (16, 96, 4, 28, 7, None),
        (96, 192, 2, 14, 4, 3),
        (192, 384, 2, 7, 4, 3),
    ):
        layers += [_Patches(i, o, k, side), *(_PixelBlock(o, heads) for _ in range(count))]
    head = [nn.BatchNorm2d(384), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(384, 1000)]
    return nn.Sequential(*layers, *head), images(batch)


# -- EfficientFormer
# -------------------------------------------------------------------------------------------------


class _PoolMixer(nn.Module):
    """The difference of a pixel from the mean around it, then a perceptron with batch norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        wide, narrow = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)
        self.mlp = nn.Sequential(
            wide, nn.BatchNorm2d(4 * width), nn.GELU(), narrow, nn.BatchNorm2d(width)
        )
        self.scale1, self.scale2 = (nn.Parameter(torch.full((width, 1, 1), 1e-5)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + (self.pool(x) - x) * self.scale1
        return x + self.mlp(x) * self.scale2


class _BiasedMixer(nn.Module):
    """Attention with a bias for each distance, down and across; values four times as wide as keys."""

    def __init__(self, width: int, heads: int, key: int, side: int) -> None:
        super().__init__()
        self.heads, self.key, self.scale = heads, key, key**-0.5
        self.parts, self.output = (
            nn.Linear(width, 6 * key * heads),
            nn.Linear(4 * key * heads, width),
        )
        row, column = torch.arange(side).repeat_interleave(side), torch.arange(side).repeat(side)
        down, right = (row[:, None] - row[None, :]).abs(), (column[:, None] - column[None, :]).abs()
        self.biases = nn.Parameter(torch.zeros(heads, side * side))
        self.register_buffer("distances", down * side + right)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale1, self.scale2 = (nn.Parameter(torch.full((width,), 1e-5)) for _ in range(2))

    def _attention(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        parts = self.parts(x).reshape(b, n, self.heads, -1).permute(0, 2, 1, 3)
        q, k, v = parts.split([self.key, self.key, 4 * self.key], 3)
        weights = ((q @ k.transpose(-2, -1)) * self.scale + self.biases[:, self.distances]).softmax(
            -1
        )
        return self.output((weights @ v).transpose(1, 2).reshape(b, n, -1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(self.norm1(x)) * self.scale1
        return x + self.mlp(self.norm2(x)) * self.scale2


class _EfficientFormer(nn.Module):
    """Pools as mixers but for the last block (Li et al., NeurIPS 2022); two heads' mean."""

    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...]) -> None:
        super().__init__()
        conv = lambda i, o: [nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o)]  # noqa: E731
        first = widths[0]
        layers: list[nn.Module] = [
            *conv(3, first // 2),
            nn.ReLU(),
            *conv(first // 2, first),
            nn.ReLU(),
        ]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            layers += conv(widths[stage - 1], width) if stage else []
            layers += [_PoolMixer(width) for _ in range(depth - (stage == len(depths) - 1))]
        self.layers, self.last = nn.Sequential(*layers), _BiasedMixer(widths[-1], 8, 32, 7)
        self.norm = nn.LayerNorm(widths[-1])
        self.head, self.taught = nn.Linear(widths[-1], 1000), nn.Linear(widths[-1], 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(self.layers(x).flatten(2).transpose(1, 2))
        x = self.norm(x).mean(1)
        return (self.head(x) + self.taught(x)) / 2


@registered("efficientformer-l1")
def _efficientformer(batch: int) -> tuple[nn.Module, Inputs]:
    return _EfficientFormer((48, 96, 224, 448), (3, 2, 6, 4)), images(batch)
