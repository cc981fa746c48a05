"""Language models: which words were replaced, decoders with a cache or a memory, one that shrinks,
one of many experts.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.language_models import Gpt, written_gelu
from accelsim.calibration.check_models.fourth.transformers import Attention, BertEncoder
from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["Dispatched", "nllb", "shifted"]


# -- ELECTRA
# ---------------------------------------------------------------------------------------------------------


class _Discriminator(BertEncoder):
    """Which words another network replaced (Clark et al., ICLR 2020)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__(width, heads, layers, Attention)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, ids: Tensor, kept: Tensor) -> Tensor:
        return self.head(self.features(ids, kept)).squeeze(-1)


@registered("electra-base")
def _electra(batch: int) -> tuple[nn.Module, Inputs]:
    return _Discriminator(768, 12, 12), (token_ids(batch, 64, 30_522), torch.ones(batch, 64))


# -- GPT-2
# -----------------------------------------------------------------------------------------------------------


def _gpt() -> nn.Module:
    return Gpt(1024, 16, 24, 50_257, last=True)


@registered("gpt-2-medium-prefill")
def _gpt_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return _gpt(), (token_ids(batch, 32, 50_257),)


@registered("gpt-2-medium-decode")
def _gpt_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 16, 256, 64) for _ in range(48)]
    return _gpt(), (token_ids(batch, 1, 50_257), *past)


# -- Transformer-XL
# --------------------------------------------------------------------------------------------------

_CUTOFFS: Final = (0, 20_000, 40_000, 200_000, 267_735)
_MEMORY: Final = 150


def shifted(x: Tensor) -> Tensor:
    """Columns that count distances as columns that count places: row i moves left by what is behind
    it.

    Args:
        x: Shape (queries, keys, ...); column j is for the distance of keys - 1 - j from the last
            query.
    """
    n, m, *rest = x.shape
    zero = x.new_zeros(n, 1, *rest)
    return torch.cat([zero, x], 1).view(m + 1, n, *rest)[1:].view_as(x)


class _MemoryBlock(nn.Module):
    """Attention to the words and to what the layer below kept of those before; norms behind."""

    def __init__(self, width: int, heads: int, inner: int, drop: float) -> None:
        super().__init__()
        self.heads, self.scale, self.drop = heads, (width // heads) ** -0.5, nn.Dropout(drop)
        self.parts, self.distance = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.output, self.norm1, self.norm2 = (
            nn.Linear(width, width, bias=False),
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.mlp = nn.Sequential(
            *(nn.Linear(width, inner), nn.ReLU(inplace=True), nn.Dropout(drop)),
            *(nn.Linear(inner, width), nn.Dropout(drop)),
        )

    def _attended(
        self,
        x: Tensor,
        memory: Tensor,
        places: Tensor,
        biases: tuple[Tensor, Tensor],
        later: Tensor,
    ) -> Tensor:
        n, b, width = x.shape
        q, k, v = self.parts(torch.cat([memory, x], 0)).chunk(3, -1)
        q, k, v = (t.view(-1, b, self.heads, width // self.heads) for t in (q[-n:], k, v))
        r = self.distance(places).view(-1, self.heads, width // self.heads)
        scores = torch.einsum("ibnd,jbnd->ijbn", q + biases[0], k)
        scores = scores + shifted(torch.einsum("ibnd,jnd->ijbn", q + biases[1], r))
        scores.mul_(self.scale)
        weights = self.drop(scores.float().masked_fill(later, -1e30).type_as(scores).softmax(1))
        y = torch.einsum("ijbn,jbnd->ibnd", weights, v).contiguous().view(n, b, width)
        return self.drop(self.output(y))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        places: Tensor,
        biases: tuple[Tensor, Tensor],
        later: Tensor,
    ) -> Tensor:
        x = self.norm1(x + self._attended(x, memory, places, biases, later))
        return self.norm2(x + self.mlp(x))


class _TransformerXl(nn.Module):
    """Logarithms of the probabilities of all words, and what to keep for the next stretch (Dai et
    al., ACL 2019).
    """

    def __init__(self, width: int, heads: int, inner: int, layers: int) -> None:
        super().__init__()
        self.token, self.drop = nn.Embedding(_CUTOFFS[-1], width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(_MemoryBlock(width, heads, inner, 0.1) for _ in range(layers))
        self.word_bias, self.place_bias = (
            nn.Parameter(torch.zeros(heads, width // heads)) for _ in range(2)
        )
        self.bias, tails = nn.Parameter(torch.zeros(_CUTOFFS[-1])), len(_CUTOFFS) - 2
        self.tail_weight, self.tail_bias = (
            nn.Parameter(torch.zeros(tails, width)),
            nn.Parameter(torch.zeros(tails)),
        )
        self.register_buffer("frequency", 10_000 ** (-torch.arange(0, width, 2) / width))

    def _words(self, x: Tensor) -> Tensor:
        """Frequent words beside three classes of rarer ones, and those within each class."""
        weight, ends = self.token.weight, _CUTOFFS
        found = x.new_empty(x.shape[0], ends[-1])
        head_weight = torch.cat([weight[: ends[1]], self.tail_weight], 0)
        head = functional.linear(
            x, head_weight, torch.cat([self.bias[: ends[1]], self.tail_bias])
        ).log_softmax(1)
        found[:, : ends[1]] = head[:, : ends[1]]
        for n in range(1, len(ends) - 1):
            here = slice(ends[n], ends[n + 1])
            tail = functional.linear(x, weight[here], self.bias[here]).log_softmax(1)
            found[:, here] = head[:, -n, None] + tail
        return found

    def forward(self, ids: Tensor, *memories: Tensor) -> tuple[Tensor, ...]:
        ids = ids.transpose(0, 1).contiguous()
        n, m, width = ids.shape[0], memories[0].shape[0], self.token.embedding_dim
        x = self.drop(self.token(ids) * math.sqrt(width))
        later = (
            torch.ones(n, n + m, dtype=torch.uint8, device=x.device)
            .triu(1 + m)
            .bool()[:, :, None, None]
        )
        angles = torch.outer(
            torch.arange(n + m - 1, -1, -1.0, device=x.device), self.frequency.float()
        )
        places = self.drop(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype))
        kept = []
        for block, memory in zip(self.blocks, memories, strict=True):
            kept.append(torch.cat([memory, x], 0)[-m:].detach())
            x = block(x, memory, places, (self.word_bias, self.place_bias), later)
        return self._words(self.drop(x).view(-1, width)).view(n, -1, _CUTOFFS[-1]), *kept


@registered("transformer-xl")
def _transformer_xl(batch: int) -> tuple[nn.Module, Inputs]:
    """The authors' base network for WikiText-103: 32 words behind a memory of 150."""
    memories = [torch.randn(_MEMORY, batch, 410) for _ in range(16)]
    return _TransformerXl(410, 10, 2100, 16), (token_ids(batch, 32, _CUTOFFS[-1]), *memories)


# -- Funnel
# ----------------------------------------------------------------------------------------------------------


def _halved_places(places: list[int], block: int) -> list[int]:
    """Every other place; the class token's stays apart, a step before."""
    return [1 - 2**block, *places[1:-1][::2]]


def _halved(x: Tensor, axis: int) -> Tensor:
    """Every other of what stands along an axis, the first kept apart and the last dropped."""
    first, kept = [slice(None)] * axis, [slice(None)] * axis
    x = torch.cat([x[(*first, slice(None, 1))], x], axis)
    return x[(*kept, slice(None, -1, 2))]


class _FunnelAttention(nn.Module):
    """Scores of words, of distances and of segments, added; norm behind."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads, size = heads, width // heads
        self.scale, self.drop, self.norm = (
            size**-0.5,
            nn.Dropout(drop),
            nn.LayerNorm(width, eps=1e-9),
        )
        self.query, self.key, self.value = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )
        self.word_bias, self.place_bias, self.kind_bias = (
            nn.Parameter(torch.zeros(heads, size)) for _ in range(3)
        )
        self.distance, self.kind = (nn.Parameter(torch.zeros(n, heads, size)) for n in (width, 2))
        self.output = nn.Linear(width, width)

    def _placed(self, q: Tensor, places: Tensor, keys: int, step: int) -> Tensor:
        r = torch.einsum("td,dnh->tnh", places, self.distance)
        scores = torch.einsum("binh,tnh->bnit", q + self.place_bias * self.scale, r)
        b, heads, n, count = scores.shape
        scores = torch.reshape(scores, [b, heads, count, n])[:, :, step:]
        return torch.reshape(scores, [b, heads, n, count - step])[..., :keys]

    def _kinds(self, q: Tensor, same: Tensor) -> Tensor:
        found = torch.einsum("bind,snd->bnis", q + self.kind_bias * self.scale, self.kind)
        same = same[:, None].expand(-1, self.heads, -1, -1)
        other, own = torch.split(found, 1, dim=-1)
        return torch.where(same, own.expand(same.shape), other.expand(same.shape))

    def forward(
        self, x: Tensor, source: Tensor, places: Tensor, same: Tensor, apart: Tensor, kept: Tensor
    ) -> Tensor:
        b, n, width = x.shape
        m, size = source.shape[1], width // self.heads
        q = self.query(x).view(b, n, self.heads, size)
        k, v = (f(source).view(b, m, self.heads, size) for f in (self.key, self.value))
        q = q * self.scale
        scores = torch.einsum("bind,bjnd->bnij", q + self.word_bias * self.scale, k)
        placed, kinds = self._placed(q, places, m, 1 if n == m else 2), self._kinds(q, same)
        placed *= apart
        kinds *= apart
        scores = (scores + placed + kinds).float() - 1e6 * (1 - kept[:, None, None].float())
        weights = self.drop(torch.softmax(scores, -1, dtype=x.dtype))
        y = torch.einsum("bnij,bjnd->bind", weights, v).reshape(b, n, width)
        return self.norm(x + self.drop(self.output(y)))


class _FunnelLayer(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.attention, self.drop = _FunnelAttention(width, heads, drop), nn.Dropout(drop)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width, 1e-9)

    def forward(
        self, x: Tensor, source: Tensor, places: Tensor, same: Tensor, apart: Tensor, kept: Tensor
    ) -> Tensor:
        x = self.attention(x, source, places, same, apart, kept)
        return self.norm(x + self.drop(self.narrow(written_gelu(self.wide(x)))))


class _Funnel(nn.Module):
    """Blocks that halve the sequence, then layers over all tokens again (Dai et al., NeurIPS 2020)."""

    def __init__(self, width: int, heads: int, blocks: tuple[int, ...], back: int) -> None:
        super().__init__()
        layers = lambda count: nn.ModuleList(_FunnelLayer(width, heads, 0.1) for _ in range(count))  # noqa: E731
        self.token, self.norm, self.drop = (
            nn.Embedding(30_522, width),
            nn.LayerNorm(width, eps=1e-9),
            nn.Dropout(0.1),
        )
        self.blocks, self.back = nn.ModuleList(layers(count) for count in blocks), layers(back)

    def _structure(self, x: Tensor, kinds: Tensor) -> tuple[list[list[Tensor]], Tensor, Tensor]:
        """Sines of all distances of each block, which tokens are of one segment, and what is beside
        the class token.
        """
        n, width, device = x.shape[1], x.shape[2], x.device
        steps = torch.arange(0, width // 2, 1.0, device=device)
        angles = (
            torch.arange(-2 * n, 2 * n, 1.0, device=device)[:, None]
            * (1 / (10_000 ** (steps / (width // 2))))[None]
        )
        sines = torch.cat([self.drop(angles.sin()), self.drop(angles.cos())], -1).to(x.dtype)

        def looked_up(first: list[int], second: list[int], stride: int, shift: int) -> Tensor:
            most, least = second[0] - first[0] + shift * len(second) * stride, second[0] - first[-1]
            rows = torch.arange(most, least - 1, -stride, device=device)[:, None] + 2 * n
            return torch.gather(sines, 0, rows.expand(-1, width))

        places, found = list(range(n)), []
        for block in range(len(self.blocks)):
            halved = _halved_places(places, block) if block else places
            first = [looked_up(places, halved, 2 ** (block - 1), 2)] if block else []
            found.append([looked_up(halved, halved, 2**block, 1), *first])
            places = halved
        is_class = kinds == 2
        same = (is_class[:, :, None] | is_class[:, None]) | (kinds[:, :, None] == kinds[:, None])
        return found, same, functional.pad(x.new_ones(n - 1, n - 1), (1, 0, 1, 0))

    def _shrunk(self, ids: Tensor, kinds: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Features behind the first block, and behind the last."""
        x = self.drop(self.norm(self.token(ids)))
        start, (places, same, apart) = x, self._structure(x, kinds)
        for block, layers in enumerate(self.blocks):
            for n, layer in enumerate(layers):
                if n or not block:
                    x = layer(x, x, places[block][0], same, apart, kept)
                    continue
                y = torch.cat([x[:, :1], x[:, :-1]], 1)[:, None]
                y = functional.avg_pool2d(y, (2, 1), (2, 1), ceil_mode=True)[:, 0]
                same, apart = _halved(same, 1), _halved(apart, 0)
                x = layer(y, x, places[block][1], same, apart, kept)
                same, apart = _halved(same, 2), _halved(apart, 1)
                least = torch.cat([kept[:, :1], kept[:, :-1]], 1)[:, None, :, None]
                kept = -functional.max_pool2d(-least, (2, 1), (2, 1), ceil_mode=True)[:, 0, :, 0]
            start = start if block else x
        return start, x

    def forward(self, ids: Tensor, kinds: Tensor, kept: Tensor) -> Tensor:
        start, x = self._shrunk(ids, kinds, kept)
        rate, n = 2 ** (len(self.blocks) - 1), ids.shape[1]
        more = functional.pad(torch.repeat_interleave(x[:, 1:], rate, 1), (0, 0, 0, rate - 1))[
            :, : n - 1
        ]
        x = torch.cat([x[:, :1], more], 1) + start
        places, same, apart = self._structure(x, kinds)
        for layer in self.back:
            x = layer(x, x, places[0][0], same, apart, kept)
        return x


@registered("funnel-small")
def _funnel(batch: int) -> tuple[nn.Module, Inputs]:
    """Three blocks of four layers, two over all tokens."""
    ids = token_ids(batch, 128, 30_522), torch.randint(2, (batch, 128))
    return _Funnel(768, 12, (4, 4, 4), 2), (*ids, torch.ones(batch, 128))


# -- NLLB
# ------------------------------------------------------------------------------------------------------------


class _ReluMlp(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(functional.relu(self.wide(x)))


class Dispatched(nn.Module):
    """The best two of many feed-forward layers for each token, by one-hot products (Lepikhin et
    al., ICLR 2021).

    Args:
        width: Features of a token.
        inner: Features between.
        experts: Layers; each has room for all tokens, in training for twice an equal share.
    """

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(_ReluMlp(width, inner) for _ in range(experts))

    def _shares(self, x: Tensor) -> Tensor:
        """Weight of each token in each place of each expert, shape (tokens, experts, places)."""
        count, n = len(self.experts), x.shape[0]
        room = 2 * math.ceil(n / count) if self.training else n
        scores = self.router(x).float()
        weights = scores.softmax(1)
        hot1 = functional.one_hot(weights.argmax(1), count)
        hot2 = functional.one_hot(scores.masked_fill(hot1.bool(), float("-inf")).argmax(1), count)
        place1, place2 = hot1.cumsum(0) - 1, hot2.cumsum(0) - 1
        place2 = place2 + hot1.sum(0, keepdim=True)
        hot1, hot2 = hot1 * torch.lt(place1, room), hot2 * torch.lt(place2, room)
        share1, share2 = ((weights * hot).sum(1) for hot in (hot1, hot2))
        total = torch.clamp(share1 + share2, min=torch.finfo(weights.dtype).eps)
        parts = []
        for hot, place, share in ((hot1, place1, share1 / total), (hot2, place2, share2 / total)):
            where = functional.one_hot((place * hot).sum(1), room).to(weights.dtype)
            own = share.unsqueeze(-1) * hot.to(weights.dtype)
            parts.append(torch.bmm(own.unsqueeze(-1), where.unsqueeze(1)))
        return parts[0] + parts[1]

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape."""
        flat = x.reshape(-1, x.shape[-1])
        shares = self._shares(flat)
        sent = shares.bool().to(x.dtype).permute(1, 2, 0).flatten(0, 1)
        rows = sent.mm(flat).view(len(self.experts), -1, flat.shape[1])
        found = torch.stack([expert(part) for expert, part in zip(self.experts, rows, strict=True)])
        return shares.to(x.dtype).flatten(1).mm(found.flatten(0, 1)).view_as(x)


class _TranslationLayer(nn.Module):
    """Norms before; a decoder's attends to the encoder too."""

    def __init__(self, width: int, heads: int, mlp: nn.Module, decodes: bool) -> None:
        super().__init__()
        self.attention, self.mlp, self.drop = (
            Attention(width, heads, causal=decodes),
            mlp,
            nn.Dropout(0.1),
        )
        self.cross = Attention(width, heads) if decodes else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if decodes else 2))

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        x = x + self.drop(self.attention(self.norms[0](x)))
        if self.cross is not None:
            x = x + self.drop(self.cross(self.norms[1](x), source))
        return x + self.drop(self.mlp(self.norms[-1](x)))


class _Translator(nn.Module):
    """Encoder and decoder with experts in every fourth layer (NLLB Team, Nature 2024)."""

    def __init__(self, width: int, inner: int, layers: int, experts: int, vocabulary: int) -> None:
        super().__init__()
        self.token, self.drop, self.scale = (
            nn.Embedding(vocabulary, width),
            nn.Dropout(0.1),
            math.sqrt(width),
        )
        mlp = lambda n: Dispatched(width, inner, experts) if n % 4 == 3 else _ReluMlp(width, inner)  # noqa: E731
        self.encoder, self.decoder = (
            nn.ModuleList(
                _TranslationLayer(width, width // 128, mlp(n), decodes) for n in range(layers)
            )
            for decodes in (False, True)
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        angles = torch.outer(
            torch.arange(1026.0), 10_000 ** (-torch.arange(width // 2) / (width // 2 - 1))
        )
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))

    def _embedded(self, ids: Tensor) -> Tensor:
        places = torch.arange(2, ids.shape[1] + 2, device=ids.device)
        return self.drop(self.token(ids) * self.scale + self.places.index_select(0, places))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self._embedded(source)
        for layer in self.encoder:
            x = layer(x)
        x, y = self.norm1(x), self._embedded(target)
        for layer in self.decoder:
            y = layer(y, x)
        return functional.linear(self.norm2(y), self.token.weight)


def nllb(shrink: int, layers: int, experts: int, vocabulary: int) -> nn.Module:
    """NLLB-200 with widths divided; published as (1, 24, 128, 256_206)."""
    return _Translator(2048 // shrink, 8192 // shrink, layers, experts, vocabulary)


@registered("nllb-moe-shaped")
def _nllb(batch: int) -> tuple[nn.Module, Inputs]:
    """Widths by four, an eighth of experts and words, a third of the layers: 0.8 GB of weights in
    place of 218.
    """
    words = 256_206 // 8
    return nllb(4, 8, 16, words), (token_ids(batch, 32, words), token_ids(batch, 32, words))
