"""Transformers over images, sentences and speech, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = [
    "Attention",
    "BertEncoder",
    "Mlp",
    "PostNorm",
    "VisionBlock",
    "WrittenAttention",
    "joined",
    "shift_mask",
    "window_places",
    "windows",
]


class Attention(nn.Module):
    """Queries of one sequence, keys and values of another or the same (Vaswani et al., NIPS 2017)."""

    def __init__(
        self, width: int, heads: int, causal: bool = False, biased_keys: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.value, self.output = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=biased_keys)

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Features of the queries' shape."""
        return self.output(self.attended(x, source, mask))

    def attended(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """What the heads found, before the output's product."""
        source = x if source is None else source
        parts = (self.query(x), self.key(source), self.value(source))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        return self._mixed(q, k, v, mask).transpose(1, 2).flatten(2)

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)


class WrittenAttention(Attention):
    """Products and softmax written out, with dropout between.

    Args:
        width: Features of a token.
        heads: Of attention.
        drop: Share of weights dropped in training.
    """

    def __init__(self, width: int, heads: int, drop: float = 0.1) -> None:
        super().__init__(width, heads)
        self.drop = drop

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
        scores = scores if mask is None else scores + mask
        return torch.matmul(functional.dropout(scores.softmax(-1), self.drop, self.training), v)


class Mlp(nn.Sequential):
    """Two linear layers, the inner four times as wide."""

    def __init__(self, width: int, drop: float = 0.0) -> None:
        super().__init__(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(drop)
        )


# -- images
# ----------------------------------------------------------------------------------------------------------


class VisionBlock(nn.Module):
    """Queries, keys and values from one product, norms before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = (
            heads,
            nn.LayerNorm(width, eps=1e-6),
            nn.LayerNorm(width, eps=1e-6),
        )
        self.parts, self.output, self.mlp = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            Mlp(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        b, n, width = x.shape
        q, k, v = (
            self.parts(self.norm1(x))
            .view(b, n, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, width)
        x = x + self.output(y)
        return x + self.mlp(self.norm2(x))


class _Vision(nn.Module):
    """Patches of 16 pixels behind a class token (Dosovitskiy et al., ICLR 2021)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(VisionBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.place
        return self.head(self.norm(self.blocks(y))[:, 0])


@registered("vit-base-16")
def _vit(batch: int) -> tuple[nn.Module, Inputs]:
    return _Vision(768, 12, 12), (torch.randn(batch, 3, 224, 224),)


_WINDOW = 7


def windows(x: Tensor, side: int) -> Tensor:
    """(batch, height, width, channels) as (windows, side * side, channels)."""
    b, h, w, c = x.shape
    y = x.view(b, h // side, side, w // side, side, c).transpose(2, 3)
    return y.reshape(-1, side * side, c)


def joined(x: Tensor, shape: tuple[int, ...], side: int) -> Tensor:
    """Windows as the image of that shape (batch, height, width, channels) which they are of."""
    b, h, w, c = shape
    return x.view(b, h // side, w // side, side, side, c).transpose(2, 3).reshape(b, h, w, c)


def window_places(side: int) -> Tensor:
    """Which of the (2 side - 1)^2 relative places each pair of a window's patches has."""
    row, column = torch.arange(side).repeat_interleave(side), torch.arange(side).repeat(side)
    down, right = row[:, None] - row[None, :], column[:, None] - column[None, :]
    return ((down + side - 1) * (2 * side - 1) + right + side - 1).flatten()


def shift_mask(size: int, shift: int, side: int) -> Tensor:
    """What keeps patches apart that a shift brought into one window: (windows, side^2, side^2), 0
    or -100.
    """
    part = (torch.arange(size) >= size - side).long() + (torch.arange(size) >= size - shift).long()
    region = windows((3 * part[:, None] + part[None, :])[None, :, :, None], side).squeeze(-1)
    return -100.0 * (region[:, None, :] != region[:, :, None]).float()


class _WindowBlock(nn.Module):
    """Attention within windows of 7 x 7 patches, in every other block shifted by three (Liu et al.,
    ICCV 2021).
    """

    def __init__(self, width: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.heads, self.shift, self.scale = heads, shift, (width // heads) ** -0.5
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.output, self.mlp = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            Mlp(width),
        )
        self.bias = nn.Parameter(torch.zeros((2 * _WINDOW - 1) ** 2, heads))
        self.register_buffer("places", window_places(_WINDOW))
        self.register_buffer("mask", shift_mask(size, shift, _WINDOW) if shift else None)

    def _attention(self, x: Tensor) -> Tensor:
        count, n, width = x.shape
        q, k, v = (
            self.parts(x).view(count, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = (
            scores + self.bias[self.places].view(n, n, self.heads).permute(2, 0, 1).contiguous()
        )
        if self.mask is not None:
            own = scores.view(-1, self.mask.shape[0], self.heads, n, n) + self.mask[:, None]
            scores = own.view(count, self.heads, n, n)
        return self.output((scores.softmax(-1) @ v).transpose(1, 2).reshape(count, n, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2)) if self.shift else y
        y = self._attention(windows(y, _WINDOW))
        y = joined(y, x.shape, _WINDOW)
        x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.mlp(self.norm2(x))


class _Merge(nn.Module):
    """Four neighbours as one patch of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.narrow = (
            nn.LayerNorm(4 * width),
            nn.Linear(4 * width, 2 * width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.narrow(self.norm(torch.cat(parts, -1)))


class _Swin(nn.Module):
    def __init__(self, width: int, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        layers: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            wide, size = width * 2**stage, 56 // 2**stage
            layers += [_Merge(wide // 2)] if stage else []
            shift = 3 if size > _WINDOW else 0
            layers += [_WindowBlock(wide, wide // 32, size, shift * (n % 2)) for n in range(depth)]
        self.layers = nn.Sequential(*layers)
        self.last, self.head = nn.LayerNorm(8 * width), nn.Linear(8 * width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(self.norm(self.patch(x).permute(0, 2, 3, 1)))
        return self.head(self.last(y).mean((1, 2)))


@registered("swin-tiny")
def _swin(batch: int) -> tuple[nn.Module, Inputs]:
    return _Swin(96, (2, 2, 6, 2)), (torch.randn(batch, 3, 224, 224),)


# -- sentences
# -------------------------------------------------------------------------------------------------------


class PostNorm(nn.Module):
    """Attention and feed-forward layer with norms behind."""

    def __init__(self, attention: nn.Module, width: int, eps: float) -> None:
        super().__init__()
        self.attention, self.mlp, self.drop = attention, Mlp(width, 0.1), nn.Dropout(0.1)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Features of the same shape."""
        x = self.norm1(x + self.drop(self.attention(x, mask=mask)))
        return self.norm2(x + self.mlp(x))


class BertEncoder(nn.Module):
    """Features of every token (Devlin et al., NAACL 2019).

    Args:
        width: Features of a token.
        heads: Of attention.
        layers: Blocks.
        attention: Of a block.
    """

    def __init__(self, width: int, heads: int, layers: int, attention: type[Attention]) -> None:
        super().__init__()
        self.token, self.place, self.kind = (
            nn.Embedding(30522, width),
            nn.Embedding(512, width),
            nn.Embedding(2, width),
        )
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            PostNorm(attention(width, heads), width, 1e-12) for _ in range(layers)
        )

    def features(self, ids: Tensor, kept: Tensor) -> Tensor:
        """Shape (batch, length, width); `kept` is 0 where a token is padding."""
        place = self.place(torch.arange(ids.shape[1], device=ids.device))
        x = self.drop(self.norm(self.token(ids) + self.kind(torch.zeros_like(ids)) + place))
        mask = (1.0 - kept)[:, None, None, :] * torch.finfo(x.dtype).min
        for block in self.blocks:
            x = block(x, mask)
        return x


class _SentenceEncoder(BertEncoder):
    """A distilled BERT whose tokens' mean, normalised, stands for the sentence (Wang et al.,
    NeurIPS 2020).
    """

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__(width, heads, layers, WrittenAttention)

    def forward(self, ids: Tensor, kept: Tensor) -> Tensor:
        x = self.features(ids, kept)
        mean = (x * kept.unsqueeze(-1)).sum(1) / kept.sum(1, keepdim=True).clamp(min=1e-9)
        return functional.normalize(mean, dim=-1)


@registered("minilm-l6")
def _minilm(batch: int) -> tuple[nn.Module, Inputs]:
    return _SentenceEncoder(384, 12, 6), (token_ids(batch, 64, 30522), torch.ones(batch, 64))


# -- speech
# ----------------------------------------------------------------------------------------------------------


class _SpeechBlock(nn.Module):
    """Norms before; a decoder's attends to the encoder too."""

    def __init__(self, width: int, heads: int, decodes: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = (
            Attention(width, heads, causal=decodes, biased_keys=False),
            Mlp(width),
        )
        self.norm3 = nn.LayerNorm(width) if decodes else None
        self.cross = Attention(width, heads, biased_keys=False) if decodes else None

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x))
        if self.cross is not None and self.norm3 is not None:
            x = x + self.cross(self.norm3(x), source)
        return x + self.mlp(self.norm2(x))


class _Whisper(nn.Module):
    """Thirty seconds of speech and the words so far (Radford et al., ICML 2023)."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (
            nn.Conv1d(80, width, 3, padding=1),
            nn.Conv1d(width, width, 3, 2, 1),
        )
        self.frame, self.norm1 = nn.Parameter(torch.zeros(1500, width)), nn.LayerNorm(width)
        self.encoder = nn.ModuleList(
            _SpeechBlock(width, heads, decodes=False) for _ in range(layers)
        )
        self.token, self.place = (
            nn.Embedding(vocabulary, width),
            nn.Parameter(torch.zeros(448, width)),
        )
        self.decoder = nn.ModuleList(
            _SpeechBlock(width, heads, decodes=True) for _ in range(layers)
        )
        self.norm2 = nn.LayerNorm(width)

    def forward(self, frames: Tensor, ids: Tensor) -> Tensor:
        x = (
            functional.gelu(self.conv2(functional.gelu(self.conv1(frames)))).transpose(1, 2)
            + self.frame
        )
        for block in self.encoder:
            x = block(x)
        x, y = self.norm1(x), self.token(ids) + self.place[: ids.shape[1]]
        for block in self.decoder:
            y = block(y, x)
        return functional.linear(self.norm2(y), self.token.weight)


@registered("whisper-tiny")
def _whisper(batch: int) -> tuple[nn.Module, Inputs]:
    return _Whisper(384, 6, 4, 51865), (torch.randn(batch, 80, 3000), token_ids(batch, 8, 51865))


class _Wave(nn.Module):
    """Convolutions over raw sound, then an encoder; letters of every frame (Baevski et al., NeurIPS
    2020).
    """

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        sizes = ((1, 10, 5), *((512, 3, 2),) * 4, *((512, 2, 2),) * 2)
        self.convs = nn.ModuleList(nn.Conv1d(i, 512, k, s, bias=False) for i, k, s in sizes)
        self.first, self.norm1 = nn.GroupNorm(512, 512), nn.LayerNorm(512)
        self.widen, self.norm2 = nn.Linear(512, width), nn.LayerNorm(width)
        self.place = weight_norm(nn.Conv1d(width, width, 128, padding=64, groups=16), dim=2)
        self.blocks = nn.Sequential(
            *(PostNorm(Attention(width, heads), width, 1e-5) for _ in range(layers))
        )
        self.head = nn.Linear(width, 32)

    def forward(self, sound: Tensor) -> Tensor:
        x = sound.unsqueeze(1)
        for n, conv in enumerate(self.convs):
            x = conv(x) if n else self.first(conv(x))
            x = functional.gelu(x)
        x = self.widen(self.norm1(x.transpose(1, 2)))
        place = functional.gelu(self.place(x.transpose(1, 2))[:, :, :-1])
        return self.head(self.blocks(self.norm2(x + place.transpose(1, 2))))


@registered("wav2vec2-base")
def _wav2vec(batch: int) -> tuple[nn.Module, Inputs]:
    return _Wave(768, 12, 12), (torch.randn(batch, 32_000),)
