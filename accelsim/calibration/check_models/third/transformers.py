"""Transformers: small vision, masked language, parallel blocks, sliding caches, switched experts,
queries, latents.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import ConvNorm, Inputs, registered, token_ids

__all__: list[str] = []


class _CrossAttention(nn.Module):
    """Queries of one sequence, keys and values of another or the same."""

    def __init__(
        self, width: int, heads: int, source: int | None = None, causal: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.pair = nn.Linear(source or width, 2 * width)

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        b, n, width = x.shape
        k, v = self.pair(x if source is None else source).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.query(x), k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(y.transpose(1, 2).reshape(b, n, width))


def _mlp(width: int, inner: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(width, inner), nn.GELU(approximate="tanh"), nn.Linear(inner, width)
    )


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, *, crosses: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = _CrossAttention(width, heads), _mlp(width, 4 * width)
        self.norm3 = nn.LayerNorm(width) if crosses else None
        self.cross = _CrossAttention(width, heads) if crosses else None

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x))
        if self.cross is not None and self.norm3 is not None:
            x = x + self.cross(self.norm3(x), source)
        return x + self.mlp(self.norm2(x))


class _SmallVision(nn.Module):
    """A class token before the patches (Touvron et al., ICML 2021)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.place
        return self.head(self.norm(self.blocks(y))[:, 0])


@registered("deit-tiny")
def _deit(batch: int) -> tuple[nn.Module, Inputs]:
    return _SmallVision(192, 3, 12), (torch.randn(batch, 3, 224, 224),)


class _MaskedLanguage(nn.Module):
    """Logits of the whole vocabulary at every place (Turc et al., 2019, small)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.kind, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 30522)
        )

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        place = self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.blocks(self.norm(self.token(ids) + place + self.kind(kinds))))


@registered("bert-small-masked")
def _masked(batch: int) -> tuple[nn.Module, Inputs]:
    return _MaskedLanguage(512, 8, 4), (token_ids(batch, 128, 30522), token_ids(batch, 128, 2))


class _ParallelBlock(nn.Module):
    """Attention and feed-forward layer beside each other (Black et al., 2022)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = (
            _CrossAttention(width, heads, causal=True),
            _mlp(width, 4 * width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.norm1(x)) + self.mlp(self.norm2(x))


@registered("parallel-decoder")
def _parallel(batch: int) -> tuple[nn.Module, Inputs]:
    blocks = [_ParallelBlock(640, 10) for _ in range(5)]
    return nn.Sequential(
        nn.Embedding(10_000, 640), *blocks, nn.LayerNorm(640), nn.Linear(640, 2000)
    ), (token_ids(batch, 160, 10_000),)


class _SlidingLayer(nn.Module):
    """One step of decoding over the last keys and values of a window (Jiang et al., 2023)."""

    def __init__(self, width: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.size = width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.output = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.key, self.value = (
            nn.Linear(width, kv_heads * self.size, bias=False) for _ in range(2)
        )
        self.gate, self.up = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(width, inner, bias=False),
        )
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        b, n, width = x.shape
        y = self.norm1(x)
        q, k, v = (
            f(y).view(b, n, -1, self.size).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        k, v = torch.cat([keys[:, :, 1:], k], 2), torch.cat([values[:, :, 1:], v], 2)
        y = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        x = x + self.output(y.transpose(1, 2).reshape(b, n, width))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class _SlidingDecoder(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.token, self.norm, self.head = (
            nn.Embedding(12_000, 768),
            nn.RMSNorm(768),
            nn.Linear(768, 12_000),
        )
        self.layers = nn.ModuleList(_SlidingLayer(768, 12, 4, 2048) for _ in range(layers))

    def forward(self, ids: Tensor, *past: Tensor) -> Tensor:
        x = self.token(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, past[2 * i], past[2 * i + 1])
        return self.head(self.norm(x[:, -1]))


@registered("sliding-decode")
def _sliding(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 4, 256, 64) for _ in range(10)]
    return _SlidingDecoder(5), (token_ids(batch, 1, 12_000), *past)


class _SwitchedExperts(nn.Module):
    """The best expert of each token, dispatched by one-hot products with a capacity (Lepikhin et
    al., 2020).
    """

    def __init__(self, width: int, inner: int, experts: int, capacity: int) -> None:
        super().__init__()
        self.router, self.capacity = nn.Linear(width, experts, bias=False), capacity
        self.first = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.second = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weight, chosen = self.router(flat).softmax(-1).max(-1)
        hot = functional.one_hot(chosen, self.first.shape[0])
        place = (hot.cumsum(0) * hot).sum(-1) - 1
        slot = functional.one_hot(place.clamp(0, self.capacity - 1), self.capacity).to(x.dtype)
        sent = hot.to(x.dtype).unsqueeze(-1) * slot.unsqueeze(1)
        taken = torch.einsum("tec,td->ecd", sent, flat)
        y = torch.bmm(functional.relu(torch.bmm(taken, self.first)), self.second)
        return (torch.einsum("tec,ecd->td", sent, y) * weight.unsqueeze(-1)).view_as(x)


class _SwitchedBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.moe = (
            _CrossAttention(width, heads, causal=True),
            _SwitchedExperts(width, 1024, 8, 48),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.moe(self.norm2(x))


@registered("switch-moe")
def _switch(batch: int) -> tuple[nn.Module, Inputs]:
    return nn.Sequential(
        nn.Embedding(8000, 256), *(_SwitchedBlock(256, 4) for _ in range(4)), nn.LayerNorm(256)
    ), (token_ids(batch, 128, 8000),)


class _QueryDetector(nn.Module):
    """A convolutional trunk, an encoder of its pixels, a decoder of object queries (Carion et al.,
    ECCV 2020).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = ((3, 32), (32, 64), (64, 128), (128, 256), (256, width))
        self.trunk = nn.Sequential(*(ConvNorm(i, o, 3, 2) for i, o in sizes))
        self.place, self.queries = (
            nn.Parameter(torch.zeros(1, 64, width)),
            nn.Parameter(torch.zeros(1, 50, width)),
        )
        self.encoder = nn.ModuleList(_Block(width, 8) for _ in range(3))
        self.decoder = nn.ModuleList(_Block(width, 8, crosses=True) for _ in range(3))
        self.kinds = nn.Linear(width, 92)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(x).flatten(2).transpose(1, 2) + self.place
        for block in self.encoder:
            x = block(x)
        y = self.queries.repeat(x.shape[0], 1, 1)
        for block in self.decoder:
            y = block(y, x)
        return self.kinds(y), self.boxes(y).sigmoid()


@registered("detr-like")
def _detr(batch: int) -> tuple[nn.Module, Inputs]:
    return _QueryDetector(256), (torch.randn(batch, 3, 256, 256),)


class _Perceiver(nn.Module):
    """Few latents that read a long input, then work among themselves (Jaegle et al., ICML 2021)."""

    def __init__(self, inputs: int, width: int, latents: int, layers: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.zeros(1, latents, width))
        self.norm, self.read = nn.LayerNorm(inputs), _CrossAttention(width, 4, inputs)
        self.blocks = nn.Sequential(*(_Block(width, 8) for _ in range(layers)))
        self.head = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        y = self.latents.expand(x.shape[0], -1, -1)
        return self.head(self.blocks(y + self.read(y, self.norm(x))).mean(1))


@registered("perceiver-like")
def _perceiver(batch: int) -> tuple[nn.Module, Inputs]:
    return _Perceiver(64, 256, 64, 6), (torch.randn(batch, 2048, 64),)


class _PatchSeries(nn.Module):
    """Patches of each channel's series as tokens (Nie et al., ICLR 2023)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.blocks = nn.Sequential(*(_Block(width, 8) for _ in range(3)))
        self.head = nn.Linear(42 * width, 96)

    def forward(self, x: Tensor) -> Tensor:
        b, channels, _ = x.shape
        mean = x.mean(-1, keepdim=True)
        patches = functional.pad(x - mean, (0, 8)).unfold(-1, 16, 8).flatten(0, 1)
        y = self.head(self.blocks(self.embed(patches)).flatten(1))
        return y.view(b, channels, 96) + mean


@registered("patch-series")
def _series(batch: int) -> tuple[nn.Module, Inputs]:
    return _PatchSeries(128), (torch.randn(batch, 7, 336),)
