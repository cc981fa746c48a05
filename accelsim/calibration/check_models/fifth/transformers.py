"""Transformers over images and sentences, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.convolutional import images
from accelsim.calibration.check_models.fourth.transformers import Attention, Mlp
from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["ClassAttention"]


# -- BEiT
# ------------------------------------------------------------------------------------------------------------


def _patch_places(side: int) -> Tensor:
    """Which relative place each pair of patches has; the class token's pairs have three of their
    own.
    """
    row, column = torch.arange(side).repeat_interleave(side), torch.arange(side).repeat(side)
    down, right = row[:, None] - row[None, :], column[:, None] - column[None, :]
    count = (2 * side - 1) ** 2
    places = torch.full((side * side + 1, side * side + 1), count + 2)
    places[1:, 1:] = (down + side - 1) * (2 * side - 1) + right + side - 1
    places[0, 1:], places[1:, 0] = count, count + 1
    return places


class _BiasedAttention(nn.Module):
    """A bias of each head for every relative place; keys have no bias of their own."""

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads, self.parts = heads, nn.Linear(width, 3 * width, bias=False)
        self.query_bias, self.value_bias = (nn.Parameter(torch.zeros(width)) for _ in range(2))
        self.register_buffer("key_bias", torch.zeros(width))
        self.table = nn.Parameter(torch.zeros((2 * side - 1) ** 2 + 3, heads))
        self.register_buffer("places", _patch_places(side))
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        bias = torch.cat([self.query_bias, self.key_bias, self.value_bias])
        q, k, v = (
            functional.linear(x, self.parts.weight, bias)
            .view(b, n, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        place = (
            self.table[self.places.flatten()]
            .view(n, n, self.heads)
            .permute(2, 0, 1)
            .contiguous()
            .unsqueeze(0)
        )
        y = functional.scaled_dot_product_attention(q, k, v, place)
        return self.output(y.transpose(1, 2).reshape(b, n, width))


class _ScaledBlock(nn.Module):
    """Norms before, and a learned scale of each channel behind (Touvron et al., ICCV 2021).

    A class token may stand apart from patches that it reads and that stay as they are.
    """

    def __init__(self, attention: nn.Module, width: int, scale: float) -> None:
        super().__init__()
        self.attention, self.mlp = attention, Mlp(width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.scale1, self.scale2 = (nn.Parameter(torch.full((width,), scale)) for _ in range(2))

    def forward(self, x: Tensor, patches: Tensor | None = None) -> Tensor:
        seen = x if patches is None else torch.cat([x, patches], 1)
        x = x + self.scale1 * self.attention(self.norm1(seen))
        return x + self.scale2 * self.mlp(self.norm2(x))


class _Patches(nn.Module):
    """Squares of 16 pixels as tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.patch(x).flatten(2).transpose(1, 2)


class _Beit(nn.Module):
    """Bao et al., ICLR 2022, as it classifies: the mean of the patches, behind a norm."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches, self.token = _Patches(width), nn.Parameter(torch.zeros(1, 1, width))
        blocks = (
            _ScaledBlock(_BiasedAttention(width, heads, 14), width, 0.1) for _ in range(layers)
        )
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x)
        y = self.blocks(torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1))
        return self.head(self.norm(y[:, 1:].mean(1)))


@registered("beit-base")
def _beit(batch: int) -> tuple[nn.Module, Inputs]:
    return _Beit(768, 12, 12), images(batch)


# -- CaiT
# ------------------------------------------------------------------------------------------------------------


class _TalkingHeads(nn.Module):
    """Heads are mixed before and behind the softmax (Shazeer et al., arXiv 2003.02436)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.behind = nn.Linear(heads, heads), nn.Linear(heads, heads)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = (
            self.parts(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        weights = (q * self.scale) @ k.transpose(-2, -1)
        weights = self.before(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        weights = self.behind(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.output((weights @ v).transpose(1, 2).reshape(b, n, width))


class ClassAttention(Attention):
    """The class token alone asks."""

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Features of the class token, shape (batch, 1, width)."""
        return super().forward(x[:, :1], x if source is None else source, mask)


class _Cait(nn.Module):
    """A deep and narrow encoder of patches, then two layers for the class (Touvron et al., ICCV
    2021).
    """

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches, self.place = _Patches(width), nn.Parameter(torch.zeros(1, 196, width))
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.Sequential(
            *(_ScaledBlock(_TalkingHeads(width, heads), width, 1e-5) for _ in range(layers))
        )
        self.last = nn.ModuleList(
            _ScaledBlock(ClassAttention(width, heads), width, 1e-5) for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(self.patches(x) + self.place)
        token = self.token.expand(y.shape[0], -1, -1)
        for block in self.last:
            token = block(token, y)
        return self.head(self.norm(torch.cat([token, y], 1))[:, 0])


@registered("cait-xxs-24")
def _cait(batch: int) -> tuple[nn.Module, Inputs]:
    return _Cait(192, 4, 24), images(batch)


# -- PoolFormer
# ------------------------------------------------------------------------------------------------------


class _PoolBlock(nn.Module):
    """The difference of a patch from the mean around it, in place of attention (Yu et al., CVPR
    2022).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(1, width), nn.GroupNorm(1, width)
        self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        self.mlp = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
        )
        self.scale1, self.scale2 = (nn.Parameter(torch.full((width, 1, 1), 1e-5)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.scale1 * (self.pool(y) - y)
        return x + self.scale2 * self.mlp(self.norm2(x))


class _PoolFormer(nn.Module):
    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 7, 4, 2)]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            layers += [nn.Conv2d(widths[stage - 1], width, 3, 2, 1)] if stage else []
            layers += [_PoolBlock(width) for _ in range(depth)]
        self.layers, self.norm = nn.Sequential(*layers), nn.GroupNorm(1, widths[-1])
        self.head = nn.Linear(widths[-1], 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(x)).mean((-2, -1)))


@registered("poolformer-s12")
def _poolformer(batch: int) -> tuple[nn.Module, Inputs]:
    return _PoolFormer((64, 128, 320, 512), (2, 2, 6, 2)), images(batch)


# -- SqueezeBERT
# -----------------------------------------------------------------------------------------------------


class _FeatureNorm(nn.LayerNorm):
    """Over features that lie before the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 1)).permute(0, 2, 1)


class _GroupedAttention(nn.Module):
    """Queries, keys and values by convolutions in groups; products and softmax written out."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(0.1)
        self.query, self.key, self.value = (
            nn.Conv1d(width, width, 1, groups=groups) for _ in range(3)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(1, (self.heads, -1)) for f in (self.query, self.key, self.value))
        scores = torch.matmul(q.permute(0, 1, 3, 2), k) / q.shape[2] ** 0.5
        weights = self.drop((scores + mask).softmax(-1))
        y = torch.matmul(weights, v.permute(0, 1, 3, 2))
        return y.permute(0, 1, 3, 2).contiguous().flatten(1, 2)


class _SqueezeBlock(nn.Module):
    """A BERT layer whose products are convolutions, most of them in four groups (Iandola et al.,
    2020).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.output = _GroupedAttention(width, heads, 4), nn.Conv1d(width, width, 1)
        self.wide, self.narrow = (
            nn.Conv1d(width, 4 * width, 1, groups=4),
            nn.Conv1d(4 * width, width, 1, groups=4),
        )
        self.norm1, self.norm2 = _FeatureNorm(width, eps=1e-12), _FeatureNorm(width, eps=1e-12)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(self.drop(self.output(self.attention(x, mask))) + x)
        y = self.narrow(functional.gelu(self.wide(x)))
        return self.norm2(self.drop(y) + x)


class _SqueezeBert(nn.Module):
    """One of three relations between two sentences."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place, self.kind = (
            nn.Embedding(30528, width),
            nn.Embedding(512, width),
            nn.Embedding(2, width),
        )
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(_SqueezeBlock(width, heads) for _ in range(layers))
        self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, ids: Tensor, kept: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.token(ids) + self.place(places) + self.kind(torch.zeros_like(ids))
        x = self.drop(self.norm(x)).permute(0, 2, 1)
        mask = (1.0 - kept)[:, None, None, :] * torch.finfo(x.dtype).min
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.drop(torch.tanh(self.pool(x.permute(0, 2, 1)[:, 0]))))


@registered("squeezebert")
def _squeezebert(batch: int) -> tuple[nn.Module, Inputs]:
    return _SqueezeBert(768, 12, 12), (token_ids(batch, 64, 30528), torch.ones(batch, 64))
