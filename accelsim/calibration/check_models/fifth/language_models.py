"""Decoders of language: with attention and feed-forward layer beside each other, local, grouped,
and of many experts.

Activations, norms, rotations and, in GPT-Neo, attention are the parts that the library transformers
writes out.
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
    Llama,
    rotated,
    written_gelu,
)
from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["granite"]


# -- Pythia
# ----------------------------------------------------------------------------------------------------------


class _ParallelBlock(nn.Module):
    """Attention, which turns a quarter of each head, and feed-forward layer beside each other
    (Black et al., 2022).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def _attended(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.parts(x).view(b, n, self.heads, -1).transpose(1, 2).chunk(3, -1)
        size = turns[0].shape[-1]
        q, k = (torch.cat([rotated(t[..., :size], *turns), t[..., size:]], -1) for t in (q, k))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(b, n, width).contiguous())

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        attended = self._attended(self.norm1(x), turns)
        return self.mlp(self.norm2(x)) + attended + x


class _Pythia(nn.Module):
    """Logits of every token (Biderman et al., ICML 2023)."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.token, self.head = (
            nn.Embedding(vocabulary, width),
            nn.Linear(width, vocabulary, bias=False),
        )
        self.blocks = nn.ModuleList(_ParallelBlock(width, heads) for _ in range(layers))
        self.norm, turned = nn.LayerNorm(width), width // heads // 4
        self.register_buffer("frequency", 10_000.0 ** (-torch.arange(0, turned, 2) / turned))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        angles = torch.outer(
            torch.arange(ids.shape[1], device=x.device).float(), self.frequency.float()
        )
        angles = torch.cat([angles, angles], -1)
        turns = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, turns)
        return self.head(self.norm(x))


@registered("pythia-160m")
def _pythia(batch: int) -> tuple[nn.Module, Inputs]:
    return _Pythia(768, 12, 12, 50304), (token_ids(batch, 64, 50304),)


# -- GPT-Neo
# ---------------------------------------------------------------------------------------------------------


class _LocalBlock(nn.Module):
    """Unscaled products in single precision, of a window of the last tokens in every other layer."""

    def __init__(self, width: int, heads: int, places: int, window: int | None) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        sees = torch.ones(places, places, dtype=torch.bool).tril()
        self.register_buffer("sees", sees if window is None else sees & ~sees.tril(-window))

    def forward(self, x: Tensor) -> Tensor:
        n, y = x.shape[1], self.norm1(x)
        q, k, v = (
            f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        scores = torch.matmul(q.to(torch.float32), k.to(torch.float32).transpose(-1, -2))
        least = torch.tensor(
            torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device
        )
        weights = torch.where(self.sees[:n, :n], scores, least).softmax(-1).to(v.dtype)
        x = self.output(torch.matmul(weights, v).transpose(1, 2).flatten(2)) + x
        return x + self.narrow(written_gelu(self.wide(self.norm2(x))))


class _GptNeo(nn.Module):
    """Learned places; the word table gives the logits (Black et al., 2021)."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int, places: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(places, width)
        windows = (256 if n % 2 else None for n in range(layers))
        self.blocks = nn.Sequential(
            *(_LocalBlock(width, heads, places, window) for window in windows)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return functional.linear(self.norm(self.blocks(x)), self.token.weight)


@registered("gpt-neo-125m")
def _gpt_neo(batch: int) -> tuple[nn.Module, Inputs]:
    return _GptNeo(768, 12, 12, 50257, 2048), (token_ids(batch, 96, 50257),)


# -- Qwen
# ------------------------------------------------------------------------------------------------------------

_QWEN_LAYERS: Final = 24


def _qwen() -> nn.Module:
    """Qwen2.5 0.5B: two heads of keys and values, biases of attention alone (Qwen team, arXiv
    2412.15115).
    """
    layers: list[nn.Module] = [GatedMlp(896, 4864) for _ in range(_QWEN_LAYERS)]
    return Llama(896, (14, 2), layers, 151_936, tied=True, base=1e6, biased=True)


@registered("qwen2.5-0.5b-prefill")
def _qwen_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return _qwen(), (token_ids(batch, 32, 151_936),)


@registered("qwen2.5-0.5b-decode")
def _qwen_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 2, 512, 64) for _ in range(2 * _QWEN_LAYERS)]
    return _qwen(), (token_ids(batch, 1, 151_936), *past)


# -- Granite
# ---------------------------------------------------------------------------------------------------------


class _Granite(Llama):
    """A Llama that multiplies its words, what each layer adds, and divides its logits."""

    def forward(self, ids: Tensor, *past: Tensor) -> Tensor:
        x = self.token(ids) * 12.0
        turns = self.turns(x, past[0].shape[2] if past else 0)
        for n, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * n](x), turns, past[2 * n : 2 * n + 2]) * 0.22
            x = x + mlp(self.norms[2 * n + 1](x)) * 0.22
        return functional.linear(self.norm(x)[:, -1], self.token.weight) / 6.0


def granite(layers: int) -> nn.Module:
    """Granite 3.0 1B-A400M, eight of 32 experts for each token; published with 24 layers (IBM,
    2024).
    """
    experts: list[nn.Module] = [Experts(1024, 512, 32, 8) for _ in range(layers)]
    return _Granite(1024, (16, 8), experts, 49_155, tied=True, base=1e4, scale=1 / 64)


@registered("granite-moe-shaped")
def _granite(batch: int) -> tuple[nn.Module, Inputs]:
    """A quarter of the layers: 1.5 GB of weights in place of 5.3."""
    return granite(6), (token_ids(batch, 64, 49_155),)
