"""Transformers over images: across channels, within patches, and over the few patches that are not
masked.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fifth.transformers import ClassAttention
from accelsim.calibration.check_models.fourth.convolutional import images, relu_conv
from accelsim.calibration.check_models.fourth.transformers import Mlp, VisionBlock
from accelsim.calibration.check_models.register import Inputs, registered

__all__: list[str] = []


# -- XCiT
# ------------------------------------------------------------------------------------------------------------


class _FourierPlaces(nn.Module):
    """Sines of where a patch lies, down and across, as features by a 1x1 convolution."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.count, self.project = count, nn.Conv2d(2 * count, width, 1)

    def forward(self, batch: int, h: int, w: int) -> Tensor:
        weight, count = self.project.weight, self.count
        down = torch.arange(1, h + 1, device=weight.device).float().unsqueeze(1).repeat(1, 1, w)
        across = torch.arange(1, w + 1, device=weight.device).float().repeat(1, h, 1)
        down = down / (down[:, -1:, :] + 1e-6) * (2 * math.pi)
        across = across / (across[:, :, -1:] + 1e-6) * (2 * math.pi)
        steps = torch.arange(count, device=weight.device).float()
        steps = 10_000 ** (2 * torch.div(steps, 2, rounding_mode="floor") / count)
        found = []
        for place in (down, across):
            angles = place[:, :, :, None] / steps
            found.append(
                torch.stack([angles[..., 0::2].sin(), angles[..., 1::2].cos()], 4).flatten(3)
            )
        both = torch.cat(found, 3).permute(0, 3, 1, 2)
        return self.project(both.to(weight.dtype)).repeat(batch, 1, 1, 1)


class _ChannelAttention(nn.Module):
    """Weights of channels, not of patches: products of normalised queries and keys over all
    patches.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.heat = heads, nn.Parameter(torch.ones(heads, 1, 1))
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = (
            self.parts(x)
            .reshape(b, n, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 4, 1)
            .unbind(0)
        )
        q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        weights = ((q @ k.transpose(-2, -1)) * self.heat).softmax(-1)
        return self.output((weights @ v).permute(0, 3, 1, 2).reshape(b, n, width))


class _LocalPatches(nn.Module):
    """Depthwise 3x3 convolutions over the patches' image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        across = lambda: nn.Conv2d(width, width, 3, padding=1, groups=width)  # noqa: E731
        self.layers = nn.Sequential(across(), nn.GELU(), nn.BatchNorm2d(width), across())

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        b, n, width = x.shape
        return (
            self.layers(x.permute(0, 2, 1).reshape(b, width, h, w))
            .reshape(b, width, n)
            .permute(0, 2, 1)
        )


class _CovarianceBlock(nn.Module):
    """Attention across channels, convolutions, a perceptron; each with a norm before and a scale
    behind.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.local, self.mlp = (
            _ChannelAttention(width, heads),
            _LocalPatches(width),
            Mlp(width),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(3))
        self.scales = nn.ParameterList(torch.ones(width) for _ in range(3))

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        x = x + self.scales[0] * self.attention(self.norms[0](x))
        x = x + self.scales[1] * self.local(self.norms[1](x), h, w)
        return x + self.scales[2] * self.mlp(self.norms[2](x))


class _ClassBlock(nn.Module):
    """The class token reads all; the patches get their own norms and are doubled by the skip."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.mlp = ClassAttention(width, heads), Mlp(width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.scale1, self.scale2 = (nn.Parameter(torch.ones(width)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.scale1 * torch.cat([self.attention(y), y[:, 1:]], 1)
        x = torch.cat([self.norm2(x[:, :1]), x[:, 1:]], 1)
        return x + torch.cat([self.scale2 * self.mlp(x[:, :1]), x[:, 1:]], 1)


class _Xcit(nn.Module):
    """El-Nouby et al., NeurIPS 2021."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        sizes = (3, width // 8, width // 4, width // 2)
        steps = [relu_conv(i, o, 3, 2, act=nn.GELU) for i, o in pairwise(sizes)]
        self.patches = nn.Sequential(*steps, relu_conv(width // 2, width, 3, 2, act=None))
        self.places, self.token = _FourierPlaces(32, width), nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.ModuleList(_CovarianceBlock(width, heads) for _ in range(layers))
        self.last = nn.Sequential(*(_ClassBlock(width, heads) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x)
        b, c, h, w = y.shape
        y = y.flatten(2).transpose(1, 2)
        y = y + self.places(b, h, w).reshape(b, c, -1).permute(0, 2, 1)
        for block in self.blocks:
            y = block(y, h, w)
        y = self.last(torch.cat([self.token.expand(b, -1, -1), y], 1))
        return self.head(self.norm(y)[:, 0])


@registered("xcit-nano-12")
def _xcit(batch: int) -> tuple[nn.Module, Inputs]:
    """Patches of 16 pixels."""
    return _Xcit(128, 4, 12), images(batch)


# -- TNT
# -------------------------------------------------------------------------------------------------------------


class _PlainAttention(nn.Module):
    """Queries and keys from one product, values from another, neither with biases; written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.both, self.value = (
            nn.Linear(width, 2 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k = (
            self.both(x)
            .reshape(b, n, 2, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        v = self.value(x).reshape(b, n, self.heads, -1).permute(0, 2, 1, 3)
        weights = (torch.matmul(q, k.transpose(-2, -1)) * self.scale).softmax(-1)
        return self.output(torch.matmul(weights, v).transpose(1, 2).reshape(b, n, width))


class _NestedBlock(nn.Module):
    """A small transformer within each patch, whose pixels are added to the patch, then one over
    patches.
    """

    def __init__(self, width: int, heads: int, inner: int, inner_heads: int, pixels: int) -> None:
        super().__init__()
        self.within, self.across = (
            _PlainAttention(inner, inner_heads),
            _PlainAttention(width, heads),
        )
        self.mlp1, self.mlp2, self.join = Mlp(inner), Mlp(width), nn.Linear(pixels * inner, width)
        self.norms = nn.ModuleList(
            nn.LayerNorm(size) for size in (inner, inner, inner, width, width)
        )

    def forward(self, pixels: Tensor, patches: Tensor) -> tuple[Tensor, Tensor]:
        pixels = pixels + self.within(self.norms[0](pixels))
        pixels = pixels + self.mlp1(self.norms[1](pixels))
        b, n, _ = patches.shape
        added = patches[:, 1:] + self.join(self.norms[2](pixels).reshape(b, n - 1, -1))
        patches = torch.cat([patches[:, :1], added], 1)
        patches = patches + self.across(self.norms[3](patches))
        return pixels, patches + self.mlp2(self.norms[4](patches))


class _Nested(nn.Module):
    """Transformer in transformer (Han et al., NeurIPS 2021): 16 pixels of a patch, each of 4 x 4
    image pixels.
    """

    def __init__(self, width: int, heads: int, inner: int, inner_heads: int, layers: int) -> None:
        super().__init__()
        self.conv, self.unfold = nn.Conv2d(3, inner, 7, 4, 3), nn.Unfold(4, stride=4)
        self.norm1, self.join, self.norm2 = (
            nn.LayerNorm(16 * inner),
            nn.Linear(16 * inner, width),
            nn.LayerNorm(width),
        )
        self.token, self.place = (
            nn.Parameter(torch.zeros(1, 1, width)),
            nn.Parameter(torch.zeros(1, 197, width)),
        )
        self.pixel_place, self.inner = nn.Parameter(torch.zeros(1, inner, 4, 4)), inner
        self.blocks = nn.ModuleList(
            _NestedBlock(width, heads, inner, inner_heads, 16) for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        b = x.shape[0]
        pixels = (
            self.unfold(self.conv(x)).transpose(1, 2).reshape(-1, self.inner, 4, 4)
            + self.pixel_place
        )
        pixels = pixels.reshape(-1, self.inner, 16).transpose(1, 2)
        patches = self.norm2(self.join(self.norm1(pixels.reshape(b, 196, -1))))
        patches = torch.cat([self.token.expand(b, -1, -1), patches], 1) + self.place
        for block in self.blocks:
            pixels, patches = block(pixels, patches)
        return self.head(self.norm(patches)[:, 0])


@registered("tnt-s")
def _tnt(batch: int) -> tuple[nn.Module, Inputs]:
    return _Nested(384, 6, 24, 4, 12), images(batch)


# -- MAE
# -------------------------------------------------------------------------------------------------------------

_PATCH = 16


class _MaskedAutoencoder(nn.Module):
    """A quarter of the patches encoded, all of them decoded; how far the masked are off (He et al.,
    CVPR 2022).

    Args:
        width: Features of a patch in the encoder.
        heads: Of the encoder.
        layers: Of the encoder.
        back: The same three of the decoder.
    """

    def __init__(self, width: int, heads: int, layers: int, back: tuple[int, int, int]) -> None:
        super().__init__()
        fixed = lambda size: nn.Parameter(torch.zeros(1, 197, size), requires_grad=False)  # noqa: E731
        self.patch, self.token = (
            nn.Conv2d(3, width, _PATCH, _PATCH),
            nn.Parameter(torch.zeros(1, 1, width)),
        )
        self.place, self.blocks = (
            fixed(width),
            nn.Sequential(*(VisionBlock(width, heads) for _ in range(layers))),
        )
        narrow, back_heads, back_layers = back
        self.norm, self.narrow = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, narrow)
        self.masked, self.back_place = nn.Parameter(torch.zeros(1, 1, narrow)), fixed(narrow)
        self.back = nn.Sequential(*(VisionBlock(narrow, back_heads) for _ in range(back_layers)))
        self.back_norm, self.head = nn.LayerNorm(narrow, eps=1e-6), nn.Linear(narrow, 3 * _PATCH**2)

    def _encoded(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.patch(images).flatten(2).transpose(1, 2) + self.place[:, 1:]
        b, n, width = x.shape
        order = torch.rand(b, n, device=x.device).argsort(1)
        back, kept = order.argsort(1), order[:, : n // 4]
        x = torch.gather(x, 1, kept.unsqueeze(-1).repeat(1, 1, width))
        mask = torch.ones(b, n, device=x.device)
        mask[:, : n // 4] = 0
        x = torch.cat([(self.token + self.place[:, :1]).expand(b, -1, -1), x], 1)
        return self.norm(self.blocks(x)), torch.gather(mask, 1, back), back

    def _decoded(self, x: Tensor, back: Tensor) -> Tensor:
        x = self.narrow(x)
        b, n, width = x.shape
        y = torch.cat([x[:, 1:], self.masked.repeat(b, back.shape[1] + 1 - n, 1)], 1)
        y = torch.gather(y, 1, back.unsqueeze(-1).repeat(1, 1, width))
        y = self.back(torch.cat([x[:, :1], y], 1) + self.back_place)
        return self.head(self.back_norm(y))[:, 1:]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, mask, back = self._encoded(images)
        found = self._decoded(x, back)
        b, side = images.shape[0], images.shape[2] // _PATCH
        wanted = images.reshape(b, 3, side, _PATCH, side, _PATCH)
        wanted = torch.einsum("nchpwq->nhwpqc", wanted).reshape(b, side * side, -1)
        off = ((found - wanted) ** 2).mean(-1)
        return (off * mask).sum() / mask.sum(), found, mask


@registered("mae-base")
def _mae(batch: int) -> tuple[nn.Module, Inputs]:
    return _MaskedAutoencoder(768, 12, 12, (512, 16, 8)), images(batch)
