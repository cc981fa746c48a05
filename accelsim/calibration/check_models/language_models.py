"""Language models: of masked words, of translations, and decoders with shared keys.

Norms, rotations and activations of the last ones are the parts that the library transformers
writes out, as it is what most people run.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import (
    Attention,
    Inputs,
    Made,
    Mlp,
    PreNorm,
    registered,
    token_ids,
)

_WORDS = 50_265
_PADDING = 1


class _PostNorm(nn.Module):
    """Attention and feed-forward layer, with norms behind."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.mlp = Mlp(width, 0.1)
        self.drop = nn.Dropout(0.1)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.drop(self.attention(x, mask)))
        return self.norm2(x + self.mlp(x))


class _Roberta(nn.Module):
    """Logits of the words at all places (Liu et al., arXiv 1907.11692)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(_WORDS, width, _PADDING)
        self.place = nn.Embedding(514, width, _PADDING)
        self.kind = nn.Embedding(1, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("kinds", torch.zeros(1, 514, dtype=torch.long))
        self.blocks = nn.ModuleList(_PostNorm(width, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(_WORDS))

    def forward(self, ids: Tensor, kept: Tensor) -> Tensor:
        own = ids.ne(_PADDING).int()
        places = (torch.cumsum(own, 1).type_as(own) * own).long() + _PADDING
        kinds = torch.gather(self.kinds.expand(ids.shape[0], -1), 1, places)
        x = self.drop(self.norm(self.token(ids) + self.kind(kinds) + self.place(places)))
        mask = (1.0 - kept)[:, None, None, :] * torch.finfo(x.dtype).min
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


class _Gpt(nn.Module):
    """Logits of every token, by the word table (Radford et al., 2019)."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(PreNorm(width, heads, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return functional.linear(self.norm(self.blocks(x)), self.token.weight)


@registered("gpt2-large")
def _gpt2(batch: int) -> Made:
    return _Gpt(1280, 20, 36, 50_257), (token_ids(batch, 512, 50_257),)


class _RmsNorm(nn.Module):
    """Root mean square norm from its parts, in FP32 (Zhang and Sennrich, NeurIPS 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


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
        self.norm1 = _RmsNorm(width)
        self.cross = _T5Attention(width, heads) if decodes else None
        self.norm2 = _RmsNorm(width) if decodes else None
        self.gate, self.wide = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.narrow = nn.Linear(inner, width, bias=False)
        self.norm3 = _RmsNorm(width)
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
        self.norm1 = _RmsNorm(width)
        self.norm2 = _RmsNorm(width)

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


@registered("mt5-small")
def _mt5(batch: int) -> Made:
    """The words of a hundred languages (Xue et al., NAACL 2021)."""
    words = 250_112
    ids = token_ids(batch, 64, words), token_ids(batch, 16, words)
    return _T5(512, 6, 1024, 8, words), ids


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads turned by their places' angles; halves are the parts of complex numbers."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class _GroupedAttention(nn.Module):
    """Rotary places; several heads share keys and values (Ainslie et al., EMNLP 2023)."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.shares = heads // kv_heads
        self.query, self.output = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (
            nn.Linear(width, kv_heads * self.size, bias=False) for _ in range(2)
        )

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.query(x), self.key(x), self.value(x)

    def _shared(self, x: Tensor) -> Tensor:
        b, heads, n, size = x.shape
        shared = x[:, :, None].expand(b, heads, self.shares, n, size)
        return shared.reshape(b, heads * self.shares, n, size)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], past: tuple[Tensor, ...]) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (part.view(b, n, -1, self.size).transpose(1, 2) for part in self._parts(x))
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
        weights, found = torch.topk(
            functional.softmax(self.router(flat).float(), dim=-1), self.chosen, dim=-1
        )
        expert, order = torch.sort(found.reshape(-1))
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
    """Logits of the last token; with keys and values of the past, one step of decoding (Touvron et
    al., 2023). Each of the layers is a feed-forward layer or experts.
    """

    def __init__(
        self,
        width: int,
        heads: tuple[int, int],
        layers: list[nn.Module],
        vocabulary: int,
        base: float,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.mlps = nn.ModuleList(layers)
        self.norm = _RmsNorm(width)
        self.attention = nn.ModuleList(_GroupedAttention(width, *heads) for _ in layers)
        self.norms = nn.ModuleList(_RmsNorm(width) for _ in range(2 * len(layers)))
        self.head = nn.Linear(width, vocabulary, bias=False)
        size = width // heads[0]
        self.register_buffer("frequency", base ** (-torch.arange(0, size, 2) / size))

    def turns(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the places from `start` on, shape (tokens, size)."""
        places = torch.arange(start, start + x.shape[1], device=x.device).float()
        angles = torch.outer(places, self.frequency.float())
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, ids: Tensor, *past: Tensor) -> Tensor:
        x = self.token(ids)
        turns = self.turns(x, past[0].shape[2] if past else 0)
        for n, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * n](x), turns, past[2 * n : 2 * n + 2])
            x = x + mlp(self.norms[2 * n + 1](x))
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x)[:, -1])


_LLAMA_WORDS = 128_256


def _llama() -> nn.Module:
    """Llama 3.1 8B (Grattafiori et al., arXiv 2407.21783, table 3)."""
    layers: list[nn.Module] = [_GatedMlp(4096, 14_336) for _ in range(32)]
    return _Llama(4096, (32, 8), layers, _LLAMA_WORDS, base=5e5)


@registered("llama-3.1-8b-prefill")
def _llama_prefill(batch: int) -> Made:
    return _llama(), (token_ids(batch, 1024, _LLAMA_WORDS),)


@registered("llama-3.1-8b-decode")
def _llama_decode(batch: int) -> Made:
    past = [torch.randn(batch, 8, 1024, 128) for _ in range(64)]
    return _llama(), (token_ids(batch, 1, _LLAMA_WORDS), *past)


class _NormedAttention(_GroupedAttention):
    """Norms of queries and of keys, over all heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, heads)
        self.query_norm = _RmsNorm(width)
        self.key_norm = _RmsNorm(width)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.query_norm(self.query(x)), self.key_norm(self.key(x)), self.value(x)


class _Olmoe(_Llama):
    """Logits of every token in training (Muennighoff et al., ICLR 2025)."""

    def __init__(self, width: int, heads: int, layers: list[nn.Module], vocabulary: int) -> None:
        super().__init__(width, (heads, heads), layers, vocabulary, base=1e4)
        self.attention = nn.ModuleList(_NormedAttention(width, heads) for _ in layers)

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x)) if self.training else super()._logits(x)


def olmoe(shrink: int, layers: int) -> nn.Module:
    """OLMoE 1B-7B with all widths divided, eight of 64 experts a token; published as (1, 16)."""
    width, inner, heads = (size // shrink for size in (2048, 1024, 16))
    return _Olmoe(width, heads, [_Experts(width, inner, 64, 8) for _ in range(layers)], 50_304)


@registered("olmoe-shaped-prefill")
def _olmoe_prefill(batch: int) -> Made:
    """A quarter of the widths and of the layers: 0.6 GB of weights in place of 27.7."""
    return olmoe(4, 4), (token_ids(batch, 128, 50_304),)


@registered("olmoe-shaped-decode")
def _olmoe_decode(batch: int) -> Made:
    past = [torch.randn(batch, 4, 512, 128) for _ in range(8)]
    return olmoe(4, 4), (token_ids(batch, 1, 50_304), *past)
