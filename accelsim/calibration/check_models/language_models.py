"""Language models: of masked words, of translations, and decoders with shared keys.

Norms and rotations of the last ones are the parts that the library transformers writes out, as it
is what most people run.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, override, unused-ignore"

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import (
    Inputs,
    Made,
    PreNorm,
    registered,
    token_ids,
)

_WORDS = 50_265
_PADDING = 1


class _PostNorm(PreNorm):
    """Attention and feed-forward layer, with norms behind."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, drop=0.1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.drop(self.attention(x, mask)))
        return self.norm2(x + self.mlp(x))


class _Roberta(nn.Module):
    """Logits of the words at all places (Liu et al., arXiv 1907.11692)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(_WORDS, width, _PADDING)
        self.position = nn.Embedding(514, width, _PADDING)
        self.kind = nn.Embedding(1, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("kinds", torch.zeros(1, 514, dtype=torch.long))
        self.blocks = nn.ModuleList(_PostNorm(width, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(_WORDS))

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        is_token = ids.ne(_PADDING).int()
        positions = (torch.cumsum(is_token, 1).type_as(is_token) * is_token).long() + _PADDING
        kinds = torch.gather(self.kinds.expand(ids.shape[0], -1), 1, positions)
        x = self.drop(self.norm(self.token(ids) + self.kind(kinds) + self.position(positions)))
        mask = (1.0 - attention_mask)[:, None, None, :] * torch.finfo(x.dtype).min
        for block in self.blocks:
            x = block(x, mask)
        return functional.linear(self.head(x), self.token.weight, self.bias)


def _masked(batch: int, length: int) -> Inputs:
    """Words, none of them padding, and which of them count."""
    return torch.randint(2, _WORDS, (batch, length)), torch.ones(batch, length)


@registered("roberta-base")
def _roberta(batch: int) -> Made:
    return _Roberta(768, 12, 12), _masked(batch, 64)


@registered("roberta-large")
def _roberta_large(batch: int) -> Made:
    return _Roberta(1024, 16, 24), _masked(batch, 384)


class Gpt(nn.Module):
    """Logits of every token, by the word table (Radford et al., 2019)."""

    def __init__(
        self, width: int, heads: int, layers: int, vocabulary: int, length: int = 1024
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(PreNorm(width, heads, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, shape (batch, length, vocabulary)."""
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        return functional.linear(self.norm(self.blocks(x)), self.token.weight)


@registered("gpt2-large")
def _gpt2(batch: int) -> Made:
    return Gpt(1280, 20, 36, 50_257), (token_ids(batch, 512, 50_257),)


class RmsNorm(nn.Module):
    """Root mean square norm from its parts, in FP32 (Zhang and Sennrich, NeurIPS 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape; Zhang and Sennrich, 2019."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class _Translator(nn.Module):
    """Logits of a translation's words, by torch's own layers (Vaswani et al., NIPS 2017)."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.register_buffer("places", torch.zeros(512, width))
        self.layers = nn.Transformer(width, heads, layers, layers, 4 * width, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = (self.token(ids) + self.places[: ids.shape[1]] for ids in (source, target))
        later = torch.full(2 * y.shape[1:2], -math.inf, dtype=y.dtype, device=y.device).triu(1)
        y = self.layers(x, y, tgt_mask=later, tgt_is_causal=True)
        return functional.linear(y, self.token.weight)


@registered("transformer-base")
def _transformer(batch: int) -> Made:
    vocabulary = 37_000
    ids = token_ids(batch, 64, vocabulary), token_ids(batch, 16, vocabulary)
    return _Translator(512, 8, 6, vocabulary), ids


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads turned by the angles of their positions, halves as parts of complex numbers (Su et al.,
    arXiv 2104.09864).
    """
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class _GroupedAttention(nn.Module):
    """Rotary positions; several heads share keys and values (Ainslie et al., EMNLP 2023). Where it
    is normed, queries and keys have a norm over all heads.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, *, normed: bool = False) -> None:
        super().__init__()
        self.size = width // heads
        self.shares = heads // kv_heads
        self.query, self.output = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (
            nn.Linear(width, kv_heads * self.size, bias=False) for _ in range(2)
        )
        self.query_norm, self.key_norm = (
            RmsNorm(layer.out_features) if normed else nn.Identity()
            for layer in (self.query, self.key)
        )

    def _shared(self, x: Tensor) -> Tensor:
        b, heads, n, size = x.shape
        shared = x[:, :, None].expand(b, heads, self.shares, n, size)
        return shared.reshape(b, heads * self.shares, n, size)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], past: tuple[Tensor, ...]) -> Tensor:
        b, n, _ = x.shape
        projections = (
            self.query_norm(self.query(x)),
            self.key_norm(self.key(x)),
            self.value(x),
        )
        q, k, v = (y.view(b, n, -1, self.size).transpose(1, 2) for y in projections)
        q = _rotated(q, *turns)
        k = _rotated(k, *turns)
        if past:
            k = torch.cat([past[0], k], 2)
            v = torch.cat([past[1], v], 2)
        y = functional.scaled_dot_product_attention(
            q, self._shared(k), self._shared(v), is_causal=not past
        )
        return self.output(y.transpose(1, 2).reshape(b, n, -1).contiguous())


class _GatedMlp(nn.Module):
    """Shazeer, arXiv 2002.05202."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class _Experts(nn.Module):
    """The best few of many gated layers for each token, whose tokens are sorted by expert."""

    def __init__(self, width: int, inner: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = experts
        self.chosen = chosen
        self.wide = nn.Parameter(torch.randn(experts, 2 * inner, width) * 0.02)
        self.narrow = nn.Parameter(torch.randn(experts, width, inner) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.view(-1, x.shape[-1])
        weights, chosen_experts = torch.topk(
            functional.softmax(self.router(flat).float(), dim=-1), self.chosen, dim=-1
        )
        expert, order = torch.sort(chosen_experts.reshape(-1))
        counts = torch.histc(expert.float(), bins=self.experts, min=0, max=self.experts - 1)
        ends = torch.cumsum(counts, dim=0, dtype=torch.int32)
        rows = flat[torch.div(order, self.chosen, rounding_mode="floor")]
        gate, up = functional.grouped_mm(rows, self.wide.transpose(-2, -1), offs=ends).chunk(2, -1)
        y = functional.grouped_mm(
            functional.silu(gate) * up, self.narrow.transpose(-2, -1), offs=ends
        )
        y = y * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0], device=order.device)
        return y[back].view(-1, self.chosen, x.shape[-1]).sum(1).to(x.dtype).view_as(x)


class _Llama(nn.Module):
    """Logits of the last token, in training of all; with keys and values of the past, one step of
    decoding (Touvron et al., 2023). Each layer is attention, and a feed-forward layer or experts.
    """

    def __init__(
        self,
        width: int,
        layers: list[tuple[_GroupedAttention, nn.Module]],
        vocabulary: int,
        base: float,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.attention, self.mlps = map(nn.ModuleList, zip(*layers, strict=True))
        self.norm = RmsNorm(width)
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(2 * len(layers)))
        self.head = nn.Linear(width, vocabulary, bias=False)
        size = layers[0][0].size
        self.register_buffer("frequency", base ** (-torch.arange(0, size, 2) / size))

    def turns(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions from `start` on, shape (tokens, size); Su et al.,
        arXiv 2104.09864.
        """
        positions = torch.arange(start, start + x.shape[1], device=x.device).float()
        angles = torch.outer(positions, self.frequency.float())
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, ids: Tensor, *past: Tensor) -> Tensor:
        x = self.token(ids)
        turns = self.turns(x, past[0].shape[2] if past else 0)
        for n, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * n](x), turns, past[2 * n : 2 * n + 2])
            x = x + mlp(self.norms[2 * n + 1](x))
        x = self.norm(x)
        return self.head(x if self.training else x[:, -1])


_LLAMA_WORDS = 128_256


def _llama() -> nn.Module:
    """Llama 3.1 8B (Grattafiori et al., arXiv 2407.21783, table 3)."""
    layers = [(_GroupedAttention(4096, 32, 8), _GatedMlp(4096, 14_336)) for _ in range(32)]
    return _Llama(4096, layers, _LLAMA_WORDS, base=5e5)


@registered("llama-3.1-8b-prefill")
def _llama_prefill(batch: int) -> Made:
    return _llama(), (token_ids(batch, 1024, _LLAMA_WORDS),)


@registered("llama-3.1-8b-decode")
def _llama_decode(batch: int) -> Made:
    past = [torch.randn(batch, 8, 1024, 128) for _ in range(64)]
    return _llama(), (token_ids(batch, 1, _LLAMA_WORDS), *past)


def olmoe(shrink: int, layers: int) -> nn.Module:
    """OLMoE 1B-7B (Muennighoff et al., ICLR 2025) with all widths divided, eight of 64 experts a
    token; published as (1, 16).
    """
    width, inner, heads = (size // shrink for size in (2048, 1024, 16))
    blocks = [
        (_GroupedAttention(width, heads, heads, normed=True), _Experts(width, inner, 64, 8))
        for _ in range(layers)
    ]
    return _Llama(width, blocks, 50_304, base=1e4)


@registered("olmoe-shaped-prefill")
def _olmoe_prefill(batch: int) -> Made:
    """A quarter of the widths and of the layers: 0.6 GB of weights in place of 27.7."""
    return olmoe(4, 4), (token_ids(batch, 128, 50_304),)


@registered("olmoe-shaped-decode")
def _olmoe_decode(batch: int) -> Made:
    past = [torch.randn(batch, 4, 512, 128) for _ in range(8)]
    return olmoe(4, 4), (token_ids(batch, 1, 50_304), *past)
