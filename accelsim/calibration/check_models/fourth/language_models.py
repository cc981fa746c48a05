"""Language models: decoders with and without a cache, an encoder-decoder and a mixture of experts.

Activations, norms and rotations are the parts that the library transformers writes out, as it is
what most people run.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = [
    "T5",
    "Experts",
    "GatedMlp",
    "Gpt",
    "GroupedAttention",
    "Llama",
    "RmsNorm",
    "mixtral",
    "rotated",
    "written_gelu",
]


# -- GPT-2
# -----------------------------------------------------------------------------------------------------------


def written_gelu(x: Tensor) -> Tensor:
    """GELU by a hyperbolic tangent, operator by operator."""
    return (
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    )


class _GptBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, past: tuple[Tensor, ...] = ()) -> Tensor:
        q, k, v = self.parts(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        if past:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=not past)
        x = self.output(y.transpose(1, 2).flatten(2)) + x
        return x + self.narrow(written_gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    """Learned places, norms before, logits by the word table (Radford et al., 2019).

    Args:
        width: Features of a token.
        heads: Of attention.
        layers: Blocks.
        vocabulary: Tokens.
        last: Whether the logits are the last token's alone.
    """

    def __init__(
        self, width: int, heads: int, layers: int, vocabulary: int, *, last: bool = False
    ) -> None:
        super().__init__()
        self.token, self.place, self.last = (
            nn.Embedding(vocabulary, width),
            nn.Embedding(1024, width),
            last,
        )
        self.blocks = nn.ModuleList(_GptBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor, *past: Tensor) -> Tensor:
        """Logits; with keys and values of the past, one step of decoding."""
        start = past[0].shape[2] if past else 0
        x = self.token(ids) + self.place(
            torch.arange(start, start + ids.shape[1], device=ids.device)
        )
        for n, block in enumerate(self.blocks):
            x = block(x, past[2 * n : 2 * n + 2])
        x = self.norm(x)
        return functional.linear(x[:, -1] if self.last else x, self.token.weight)


@registered("gpt-2-small")
def _gpt2(batch: int) -> tuple[nn.Module, Inputs]:
    return Gpt(768, 12, 12, 50257), (token_ids(batch, 128, 50257),)


# -- T5
# --------------------------------------------------------------------------------------------------------------


class RmsNorm(nn.Module):
    """Root mean square norm from its parts, in single precision (Zhang and Sennrich, NeurIPS 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class _PlaceBias(nn.Module):
    """A bias of each head for 32 ranges of distance, logarithmic beyond half of them."""

    def __init__(self, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.both_ways, self.table = both_ways, nn.Embedding(32, heads)

    def forward(self, length: int) -> Tensor:
        places = torch.arange(length, device=self.table.weight.device)
        distance = places[None, :] - places[:, None]
        count, bucket = 32, torch.zeros_like(distance)
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
    """Unscaled products, a bias, softmax."""

    def __init__(self, width: int, heads: int, size: int, drop: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(drop)
        self.query, self.key, self.value = (
            nn.Linear(width, heads * size, bias=False) for _ in range(3)
        )
        self.output = nn.Linear(heads * size, width, bias=False)

    def forward(self, x: Tensor, source: Tensor, bias: Tensor | None) -> Tensor:
        parts = (self.query(x), self.key(source), self.value(source))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        scores = torch.matmul(q, k.transpose(3, 2))
        if bias is not None:
            scores = scores + bias
        weights = self.drop(functional.softmax(scores.float(), dim=-1).type_as(scores))
        return self.output(torch.matmul(weights, v).transpose(1, 2).flatten(2))


class _T5Block(nn.Module):
    """Attention and a feed-forward layer, which may be gated."""

    def __init__(
        self, width: int, heads: int, inner: int, drop: float, decodes: bool, size: int, gated: bool
    ) -> None:
        super().__init__()
        self.attention, self.norm1 = _T5Attention(width, heads, size, drop), RmsNorm(width)
        self.cross = _T5Attention(width, heads, size, drop) if decodes else None
        self.norm2 = RmsNorm(width) if decodes else None
        self.gate = nn.Linear(width, inner, bias=False) if gated else None
        self.wide, self.narrow = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(inner, width, bias=False),
        )
        self.norm3, self.drop = RmsNorm(width), nn.Dropout(drop)

    def forward(self, x: Tensor, bias: Tensor, source: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        x = x + self.drop(self.attention(y, y, bias))
        if self.cross is not None and self.norm2 is not None and source is not None:
            x = x + self.drop(self.cross(self.norm2(x), source, None))
        if self.gate is None:
            y = self.drop(functional.relu(self.wide(self.norm3(x))))
        else:
            y = self.norm3(x)
            y = self.drop(written_gelu(self.gate(y)) * self.wide(y))
        return x + self.drop(self.narrow(y))


class T5(nn.Module):
    """Encoder and decoder with relative places (Raffel et al., JMLR 2020).

    Args:
        width: Features of a token.
        heads: Of attention.
        inner: Features between, of the feed-forward layers.
        layers: Of the encoder and of the decoder.
        vocabulary: Tokens.
        size: Features of a head; those of a token by the heads if None.
        gated: Whether feed-forward layers are gated and the logits have a table of their own
            (version 1.1).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        layers: int,
        vocabulary: int,
        *,
        size: int | None = None,
        gated: bool = False,
    ) -> None:
        super().__init__()
        size = size or width // heads
        self.head = nn.Linear(width, vocabulary, bias=False) if gated else None
        self.token, self.drop, self.scale = (
            nn.Embedding(vocabulary, width),
            nn.Dropout(0.1),
            width**-0.5,
        )
        self.encoder, self.decoder = (
            nn.ModuleList(
                _T5Block(width, heads, inner, 0.1, decodes, size, gated) for _ in range(layers)
            )
            for decodes in (False, True)
        )
        self.both_ways, self.one_way = (
            _PlaceBias(heads, both_ways=True),
            _PlaceBias(heads, both_ways=False),
        )
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits of the target's tokens."""
        x, bias = self.drop(self.token(source)), self.both_ways(source.shape[1])
        for block in self.encoder:
            x = block(x, bias)
        x = self.drop(self.norm1(x))
        n = target.shape[1]
        later = torch.full((n, n), torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device).triu(1)
        y, bias = self.drop(self.token(target)), self.one_way(n) + later
        for block in self.decoder:
            y = block(y, bias, x)
        if self.head is None:
            return functional.linear(self.drop(self.norm2(y)) * self.scale, self.token.weight)
        return self.head(self.drop(self.norm2(y)))


@registered("t5-small")
def _t5(batch: int) -> tuple[nn.Module, Inputs]:
    return T5(512, 8, 2048, 6, 32128), (token_ids(batch, 128, 32128), token_ids(batch, 32, 32128))


# -- Llama's decoder and its kin
# -------------------------------------------------------------------------------------


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads turned by their places' angles; the two halves of a head are the parts of complex
    numbers.
    """
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class GroupedAttention(nn.Module):
    """Rotary places; several heads share keys and values (Ainslie et al., EMNLP 2023).

    Args:
        width: Features of a token.
        heads: Query heads.
        kv_heads: Heads of keys and values.
        biased: Whether queries, keys and values have biases.
        scale: Of the products; the root of a head's size divides them if None.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        *,
        biased: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.size, self.shares, self.scale = width // heads, heads // kv_heads, scale
        self.query, self.output = (
            nn.Linear(width, width, bias=biased),
            nn.Linear(width, width, bias=False),
        )
        self.key, self.value = (
            nn.Linear(width, kv_heads * self.size, bias=biased) for _ in range(2)
        )

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.query(x), self.key(x), self.value(x)

    def _turned(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        return rotated(x, *turns)

    def _shared(self, x: Tensor) -> Tensor:
        b, heads, n, size = x.shape
        return (
            x[:, :, None]
            .expand(b, heads, self.shares, n, size)
            .reshape(b, heads * self.shares, n, size)
        )

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], past: tuple[Tensor, ...]) -> Tensor:
        """Features of the same shape, of what `past` keeps too."""
        b, n, _ = x.shape
        q, k, v = (part.view(b, n, -1, self.size).transpose(1, 2) for part in self._parts(x))
        q, k = self._turned(q, turns), self._turned(k, turns)
        if past:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = functional.scaled_dot_product_attention(
            q, self._shared(k), self._shared(v), is_causal=not past, scale=self.scale
        )
        return self.output(y.transpose(1, 2).reshape(b, n, -1).contiguous())


class GatedMlp(nn.Module):
    """Shazeer, arXiv 2002.05202."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(width, inner, bias=False),
        )
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """The best few of many gated layers for each token, their tokens sorted by expert (Jiang et
    al., 2024).

    Args:
        width: Features of a token.
        inner: Features between.
        experts: Layers.
        chosen: Of these, for each token.
        normed: Whether the weights of those chosen are divided by their sum.
    """

    def __init__(
        self, width: int, inner: int, experts: int = 8, chosen: int = 2, *, normed: bool = True
    ) -> None:
        super().__init__()
        self.router, self.experts, self.chosen = (
            nn.Linear(width, experts, bias=False),
            experts,
            chosen,
        )
        self.normed = normed
        self.wide = nn.Parameter(torch.randn(experts, 2 * inner, width) * 0.02)
        self.narrow = nn.Parameter(torch.randn(experts, width, inner) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        flat = x.view(-1, x.shape[-1])
        weights, found = torch.topk(
            functional.softmax(self.router(flat).float(), dim=-1), self.chosen, dim=-1
        )
        weights = weights / weights.sum(-1, keepdim=True) if self.normed else weights
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


class Llama(nn.Module):
    """Logits of the last token; with keys and values of the past, one step of decoding (Touvron et
    al., 2023).

    Args:
        width: Features of a token.
        heads: Query heads and key heads.
        layers: The feed-forward layer or experts of each.
        vocabulary: Tokens.
        tied: Whether the word table gives the logits.
        base: Of the rotations.
        biased: Whether queries, keys and values have biases.
        scale: Of the products of attention; as usual if None.
    """

    def __init__(
        self,
        width: int,
        heads: tuple[int, int],
        layers: list[nn.Module],
        vocabulary: int,
        tied: bool,
        base: float,
        *,
        biased: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.token, self.mlps, self.norm = (
            nn.Embedding(vocabulary, width),
            nn.ModuleList(layers),
            RmsNorm(width),
        )
        self.attention = nn.ModuleList(
            GroupedAttention(width, *heads, biased=biased, scale=scale) for _ in layers
        )
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(2 * len(layers)))
        self.head = None if tied else nn.Linear(width, vocabulary, bias=False)
        size = width // heads[0]
        self.register_buffer("frequency", base ** (-torch.arange(0, size, 2) / size))

    def turns(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the places from `start` on, shape (tokens, size)."""
        places = torch.arange(start, start + x.shape[1], device=x.device).float()
        angles = torch.outer(places, self.frequency.float())
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, ids: Tensor, *past: Tensor) -> Tensor:
        """Logits of the last token."""
        x = self.token(ids)
        turns = self.turns(x, past[0].shape[2] if past else 0)
        for n, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * n](x), turns, past[2 * n : 2 * n + 2])
            x = x + mlp(self.norms[2 * n + 1](x))
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        last = self.norm(x)[:, -1]
        return functional.linear(last, self.token.weight) if self.head is None else self.head(last)


def _smollm() -> nn.Module:
    """Thirty thin layers (Allal et al., 2024)."""
    layers: list[nn.Module] = [GatedMlp(576, 1536) for _ in range(30)]
    return Llama(576, (9, 3), layers, 49152, tied=True, base=10_000.0)


@registered("smollm-135m-prefill")
def _smollm_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return _smollm(), (token_ids(batch, 128, 49152),)


@registered("smollm-135m-decode")
def _smollm_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 3, 384, 64) for _ in range(60)]
    return _smollm(), (token_ids(batch, 1, 49152), *past)


def mixtral(shrink: int, layers: int) -> nn.Module:
    """Mixtral 8x7B with all widths divided; published with neither (1, 32)."""
    experts: list[nn.Module] = [Experts(4096 // shrink, 14336 // shrink) for _ in range(layers)]
    return Llama(4096 // shrink, (32 // shrink, 8 // shrink), experts, 32000, tied=False, base=1e6)


@registered("mixtral-shaped")
def _mixtral(batch: int) -> tuple[nn.Module, Inputs]:
    return mixtral(8, 6), (token_ids(batch, 128, 32000),)
