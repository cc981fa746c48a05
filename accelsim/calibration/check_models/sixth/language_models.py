"""Language models: of characters, of landmarks, of states in place of attention, and decoders, one
of many experts.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.language_models import (
    Experts,
    GatedMlp,
    GroupedAttention,
    Llama,
    RmsNorm,
    rotated,
    written_gelu,
)
from accelsim.calibration.check_models.fourth.transformers import PostNorm, WrittenAttention
from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["dbrx", "scanned", "stable_lm"]


# -- CANINE
# ----------------------------------------------------------------------------------------------------------

_PRIMES: Final = (31, 43, 59, 61, 73, 97, 103, 113)
_STRETCH: Final = 128


class _StretchAttention(WrittenAttention):
    """Within stretches of 128 characters, one after the other."""

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        del source
        found = []
        for start in range(0, x.shape[1], _STRETCH):
            here = slice(start, start + _STRETCH)
            seen = (
                None
                if mask is None
                else (1.0 - mask[:, None, here, here].float()) * torch.finfo(x.dtype).min
            )
            found.append(
                self.attended(x[:, here], None, None if seen is None else seen.to(x.dtype))
            )
        return self.output(torch.cat(found, 1))


class _Canine(nn.Module):
    """Characters, four of which become one position of a BERT, and characters again (Clark et al.,
    TACL 2022).
    """

    def __init__(self, width: int, heads: int, layers: int, buckets: int) -> None:
        super().__init__()
        self.buckets = buckets
        self.shards = nn.ModuleList(nn.Embedding(buckets, width // len(_PRIMES)) for _ in _PRIMES)
        self.place, self.kind = nn.Embedding(buckets, width), nn.Embedding(16, width)
        self.norms, self.drop = (
            nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(3)),
            nn.Dropout(0.1),
        )
        self.near = PostNorm(_StretchAttention(width, heads), width, 1e-12)
        self.down, self.up = nn.Conv1d(width, width, 4, 4), nn.Conv1d(2 * width, width, 4)
        self.deep = nn.ModuleList(
            PostNorm(WrittenAttention(width, heads), width, 1e-12) for _ in range(layers)
        )
        self.last = PostNorm(WrittenAttention(width, heads), width, 1e-12)
        self.pool = nn.Linear(width, width)

    def _characters(self, ids: Tensor) -> Tensor:
        parts = [
            shard((ids + 1) * p % self.buckets)
            for shard, p in zip(self.shards, _PRIMES, strict=True)
        ]
        x = torch.cat(parts, -1) + self.kind(torch.zeros_like(ids))
        x += self.place(torch.arange(ids.shape[1], device=ids.device).unsqueeze(0))
        return self.drop(self.norms[0](x))

    def _molecules(self, x: Tensor) -> Tensor:
        y = functional.gelu(self.down(x.transpose(1, 2)).transpose(1, 2))
        return self.norms[1](torch.cat([x[:, :1], y[:, :-1]], 1))

    def forward(self, ids: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        n, least = ids.shape[1], torch.finfo(kept.dtype).min
        pairs = torch.ones_like(kept).unsqueeze(2) * kept.unsqueeze(1)
        x = self.near(self._characters(ids), pairs)
        y, mask = (
            self._molecules(x),
            (1.0 - functional.max_pool1d(kept.unsqueeze(1), 4, 4))[:, None] * least,
        )
        for block in self.deep:
            y = block(y, mask)
        pooled = torch.tanh(self.pool(y[:, 0]))
        repeated = torch.cat(
            [y[:, 1:].repeat_interleave(4, 1), y[:, -1:].repeat_interleave(n % 4 + 4, 1)], 1
        )
        both = functional.pad(torch.cat([x, repeated], -1).transpose(1, 2), (1, 2))
        x = self.drop(self.norms[2](functional.gelu(self.up(both).transpose(1, 2))))
        return self.last(x, (1.0 - kept)[:, None, None, :] * least), pooled


@registered("canine-s")
def _canine(batch: int) -> tuple[nn.Module, Inputs]:
    """Two stretches, the second half as long."""
    return _Canine(768, 12, 12, 16_384), (token_ids(batch, 192, 1_114_112), torch.ones(batch, 192))


# -- Nystroemformer
# --------------------------------------------------------------------------------------------------


class _LandmarkAttention(nn.Module):
    """Attention by way of means of neighbours, whose own weights are inverted step by step."""

    def __init__(self, width: int, heads: int, marks: int) -> None:
        super().__init__()
        self.heads, self.marks = heads, marks
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.conv = nn.Conv2d(heads, heads, (65, 1), padding=(32, 0), bias=False, groups=heads)

    @staticmethod
    def inverted(x: Tensor) -> Tensor:
        """Six steps towards the Moore-Penrose inverse."""
        eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        y = 1 / torch.max(torch.sum(x, dim=-2)) * x.transpose(-1, -2)
        for _ in range(6):
            xy = torch.matmul(x, y)
            y = torch.matmul(
                0.25 * y, 13 * eye - torch.matmul(xy, 15 * eye - torch.matmul(xy, 7 * eye - xy))
            )
        return y

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = (
            f(x).view(b, n, self.heads, -1).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        root = (width // self.heads) ** 0.25
        q, k = q / root, k / root
        near, far = (
            t.reshape(b, self.heads, self.marks, n // self.marks, -1).mean(-2) for t in (q, k)
        )
        first = torch.matmul(q, far.transpose(-1, -2)).softmax(-1)
        second = torch.matmul(near, far.transpose(-1, -2)).softmax(-1)
        third = (torch.matmul(near, k.transpose(-1, -2)) + mask).softmax(-1)
        y = torch.matmul(torch.matmul(first, self.inverted(second)), torch.matmul(third, v))
        y += self.conv(v)
        return self.output(y.permute(0, 2, 1, 3).contiguous().view(b, n, width))


class _LandmarkBlock(nn.Module):
    """Norms behind."""

    def __init__(self, width: int, heads: int, marks: int) -> None:
        super().__init__()
        self.attention, self.drop = _LandmarkAttention(width, heads, marks), nn.Dropout(0.1)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(self.drop(self.attention(x, mask)) + x)
        return self.norm2(self.drop(self.narrow(written_gelu(self.wide(x)))) + x)


class _Nystromformer(nn.Module):
    """Features of every token (Xiong et al., AAAI 2021)."""

    def __init__(self, width: int, heads: int, layers: int, marks: int) -> None:
        super().__init__()
        self.token, self.place, self.kind = (
            nn.Embedding(30_000, width),
            nn.Embedding(512, width),
            nn.Embedding(2, width),
        )
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(_LandmarkBlock(width, heads, marks) for _ in range(layers))

    def forward(self, ids: Tensor, kept: Tensor) -> Tensor:
        x = self.token(ids) + self.kind(torch.zeros_like(ids))
        x += self.place(torch.arange(2, ids.shape[1] + 2, device=ids.device).unsqueeze(0))
        x = self.drop(self.norm(x))
        mask = (1.0 - kept)[:, None, None, :] * torch.finfo(x.dtype).min
        for block in self.blocks:
            x = block(x, mask)
        return x


@registered("nystromformer")
def _nystromformer(batch: int) -> tuple[nn.Module, Inputs]:
    """64 landmarks, each the mean of two tokens."""
    return _Nystromformer(768, 12, 12, 64), (token_ids(batch, 128, 30_000), torch.ones(batch, 128))


# -- Mamba 2
# ---------------------------------------------------------------------------------------------------------


def _decays(a: Tensor) -> Tensor:
    """Sums of what lies between each pair of places, minus infinity above the diagonal."""
    n = a.shape[-1]
    x = a.unsqueeze(-1).expand(*a.shape, n)
    below = torch.ones(n, n, dtype=torch.bool, device=a.device)
    sums = x.masked_fill(~below.tril(-1), 0).cumsum(-2)
    return sums.masked_fill(~below.tril(0), -torch.inf)


def scanned(x: Tensor, a: Tensor, b: Tensor, c: Tensor, stretch: int) -> Tensor:
    """States that decay, by products within stretches and one state between (Dao and Gu, ICML 2024,
    listing 1).

    Args:
        x: Inputs times their steps, shape (batch, length, heads, size).
        a: Logarithms of decays, shape (batch, length, heads).
        b: How inputs enter the state, shape (batch, length, heads, states).
        c: How the state comes out, likewise.
        stretch: Places computed together; divides the length.

    Returns:
        Shape (batch, length, heads, size).
    """
    shape = x.shape
    x, a, b, c = (t.reshape(t.shape[0], -1, stretch, *t.shape[2:]) for t in (x, a, b, c))
    a = a.permute(0, 3, 1, 2)
    total = a.cumsum(-1)
    scores = torch.einsum("bclhn,bcshn->bclsh", c, b) * torch.exp(_decays(a)).permute(0, 2, 3, 4, 1)
    within = torch.einsum("bclsh,bcshp->bclhp", scores, x)
    left = torch.exp(total[..., -1:] - total).permute(0, 2, 3, 1).unsqueeze(-1)
    states = torch.einsum("bclhn,bclhp->bchpn", b * left, x)
    states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
    between = torch.exp(_decays(functional.pad(total[..., -1], (1, 0)))).transpose(1, 3)
    states = torch.einsum("bzch,bzhpn->bchpn", between, states)[:, :-1]
    across = torch.einsum("bclhn,bchpn->bclhp", c, states) * torch.exp(total).permute(
        0, 2, 3, 1
    ).unsqueeze(-1)
    return (within + across).contiguous().reshape(shape)


class _StateMixer(nn.Module):
    """A causal convolution of four tokens, states that decay, and a gated norm."""

    def __init__(self, width: int, size: int, states: int, stretch: int) -> None:
        super().__init__()
        inner = 2 * width
        self.size, self.states, self.stretch, heads = size, states, stretch, inner // size
        self.parts = nn.Linear(width, 2 * inner + 2 * states + heads, bias=False)
        self.conv = nn.Conv1d(
            inner + 2 * states, inner + 2 * states, 4, padding=3, groups=inner + 2 * states
        )
        self.step, self.rate = nn.Parameter(torch.ones(heads)), nn.Parameter(torch.zeros(heads))
        self.skip, self.norm = nn.Parameter(torch.ones(heads)), RmsNorm(inner)
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, n, width = x.shape
        inner, heads = 2 * width, self.step.shape[0]
        gate, x, step = self.parts(x).split([inner, inner + 2 * self.states, heads], -1)
        x = functional.silu(self.conv(x.transpose(1, 2))[..., :n].transpose(1, 2))
        x, b, c = x.split([inner, self.states, self.states], -1)
        x, step = (
            x.reshape(batch, n, heads, -1).float(),
            functional.softplus(step + self.step).float(),
        )
        b, c = (t.unsqueeze(2).float().repeat_interleave(heads, 2) for t in (b, c))
        y = scanned(
            x * step.unsqueeze(-1), -torch.exp(self.rate.float()) * step, b, c, self.stretch
        )
        y = (y + self.skip.unsqueeze(-1) * x).reshape(batch, n, inner).to(gate.dtype)
        return self.output(self.norm(y * functional.silu(gate)))


class _Mamba(nn.Module):
    """Logits of every token."""

    def __init__(self, width: int, layers: int, vocabulary: int, stretch: int) -> None:
        super().__init__()
        self.token, self.norm = nn.Embedding(vocabulary, width), RmsNorm(width)
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(layers))
        self.mixers = nn.ModuleList(_StateMixer(width, 64, 128, stretch) for _ in range(layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return functional.linear(self.norm(x), self.token.weight)


@registered("mamba-2-130m")
def _mamba(batch: int) -> tuple[nn.Module, Inputs]:
    """Stretches of 32 tokens, as a prompt of 64 is shorter than the published stretch of 256."""
    return _Mamba(768, 24, 50_288, 32), (token_ids(batch, 64, 50_288),)


# -- StableLM 2
# ------------------------------------------------------------------------------------------------------


class _PartlyTurned(GroupedAttention):
    """A quarter of each head turns."""

    def _turned(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        size = turns[0].shape[-1]
        return torch.cat([rotated(x[..., :size], *turns), x[..., size:]], -1)


class _StableLm(Llama):
    """Layer norms, and biases of queries, keys and values (Bellagente et al., arXiv 2402.17834)."""

    def __init__(self, width: int, heads: int, layers: list[nn.Module], vocabulary: int) -> None:
        super().__init__(
            width, (heads, heads), layers, vocabulary, tied=False, base=1e4, biased=True
        )
        self.attention = nn.ModuleList(
            _PartlyTurned(width, heads, heads, biased=True) for _ in layers
        )
        self.norms, self.norm = (
            nn.ModuleList(nn.LayerNorm(width) for _ in self.norms),
            nn.LayerNorm(width),
        )
        size = width // heads // 4
        self.register_buffer("frequency", 1e4 ** (-torch.arange(0, size, 2) / size))


def stable_lm(layers: int, vocabulary: int) -> nn.Module:
    """StableLM 2 1.6B; published with 24 layers and 100,352 tokens."""
    return _StableLm(2048, 32, [GatedMlp(2048, 5632) for _ in range(layers)], vocabulary)


_STABLE: Final = (
    3,
    25_088,
)  # an eighth of the layers, a quarter of the tokens: 1.03 GB of weights in place of 6.6


@registered("stablelm-2-shaped-prefill")
def _stable_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return stable_lm(*_STABLE), (token_ids(batch, 32, _STABLE[1]),)


@registered("stablelm-2-shaped-decode")
def _stable_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 32, 512, 64) for _ in range(2 * _STABLE[0])]
    return stable_lm(*_STABLE), (token_ids(batch, 1, _STABLE[1]), *past)


# -- DBRX
# ------------------------------------------------------------------------------------------------------------


class _ClippedAttention(GroupedAttention):
    """Queries, keys and values from one product, clipped."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__(width, heads, kv_heads)
        del self.query, self.key, self.value
        self.sizes = [width, kv_heads * self.size, kv_heads * self.size]
        self.parts = nn.Linear(width, sum(self.sizes), bias=False)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.parts(x).clamp(-8.0, 8.0).split(self.sizes, 2)


class _Dbrx(Llama):
    """Norms without biases; logits of every token in training."""

    def __init__(
        self, width: int, heads: tuple[int, int], layers: list[nn.Module], vocabulary: int
    ) -> None:
        super().__init__(width, heads, layers, vocabulary, tied=False, base=5e5)
        self.attention = nn.ModuleList(_ClippedAttention(width, *heads) for _ in layers)
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in self.norms)
        self.norm = nn.LayerNorm(width, bias=False)

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x)) if self.training else super()._logits(x)


def dbrx(shrink: int, layers: int) -> nn.Module:
    """DBRX with all widths and the vocabulary divided, four of 16 experts for each token; published
    as (1, 40).
    """
    experts: list[nn.Module] = [
        Experts(6144 // shrink, 10_752 // shrink, 16, 4) for _ in range(layers)
    ]
    return _Dbrx(6144 // shrink, (48 // shrink, 8 // shrink), experts, 100_352 // shrink)


@registered("dbrx-shaped")
def _dbrx(batch: int) -> tuple[nn.Module, Inputs]:
    """Widths by eight, four layers: 0.9 GB of weights in place of 526."""
    return dbrx(8, 4), (token_ids(batch, 32, 12_544),)
