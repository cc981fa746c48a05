"""Language models: two that read masked words, one of translations, one of states, and a decoder of
many experts.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.language_models import (
    T5,
    Experts,
    GroupedAttention,
    Llama,
    RmsNorm,
)
from accelsim.calibration.check_models.fourth.transformers import Attention, PostNorm
from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["olmoe", "weighed"]

_WORDS: Final = 50_265
_PADDING: Final = 1


# -- RoBERTa
# ---------------------------------------------------------------------------------------------------------


class _Roberta(nn.Module):
    """Logits of the words at all places (Liu et al., arXiv 1907.11692)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = (
            nn.Embedding(_WORDS, width, _PADDING),
            nn.Embedding(514, width, _PADDING),
        )
        self.kind, self.norm, self.drop = (
            nn.Embedding(1, width),
            nn.LayerNorm(width, eps=1e-5),
            nn.Dropout(0.1),
        )
        self.register_buffer("kinds", torch.zeros(1, 514, dtype=torch.long))
        self.blocks = nn.ModuleList(
            PostNorm(Attention(width, heads), width, 1e-5) for _ in range(layers)
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-5))
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


@registered("roberta-base")
def _roberta(batch: int) -> tuple[nn.Module, Inputs]:
    return _Roberta(768, 12, 12), (torch.randint(2, _WORDS, (batch, 64)), torch.ones(batch, 64))


# -- Linformer
# -------------------------------------------------------------------------------------------------------


class _ShortAttention(nn.Module):
    """Keys and values of a quarter as many places, each a learned sum over all (Wang et al., arXiv
    2006.04768).
    """

    def __init__(self, width: int, heads: int, places: int) -> None:
        super().__init__()
        self.heads, self.scale, self.drop = heads, (width // heads) ** -0.5, nn.Dropout(0.1)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.fewer_keys, self.fewer_values = (
            nn.Linear(places, places // 4, bias=False) for _ in range(2)
        )

    def _heads(self, x: Tensor) -> Tensor:
        n, b, width = x.shape
        return x.contiguous().view(n, b * self.heads, width // self.heads).transpose(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, b, width = x.shape
        q, parts = self.query(x), []
        for fewer, product in ((self.fewer_keys, self.key), (self.fewer_values, self.value)):
            short = functional.linear(x.permute(1, 2, 0).contiguous(), fewer.weight[:, :n])
            parts.append(self._heads(product(short.permute(2, 0, 1).contiguous())))
        q *= self.scale
        k, v = parts
        scores = torch.bmm(self._heads(q), k.transpose(1, 2))
        weights = self.drop(functional.softmax(scores, -1, dtype=torch.float32).type_as(scores))
        return self.output(torch.bmm(weights, v).transpose(0, 1).contiguous().view(n, b, width))


class _ShortBlock(nn.Module):
    """Attention and feed-forward layer, with norms behind."""

    def __init__(self, width: int, heads: int, places: int) -> None:
        super().__init__()
        self.attention, self.drop = _ShortAttention(width, heads, places), nn.Dropout(0.1)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.drop(self.attention(x)))
        y = functional.gelu(self.wide(x).float()).type_as(x)
        return self.norm2(x + self.drop(self.narrow(y)))


class _Linformer(nn.Module):
    """One of some classes of a text, as the authors' RoBERTa has it; places before samples."""

    def __init__(self, width: int, heads: int, layers: int, places: int, classes: int) -> None:
        super().__init__()
        self.token = nn.Embedding(_WORDS, width, _PADDING)
        self.place = nn.Embedding(places + _PADDING + 1, width, _PADDING)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(_ShortBlock(width, heads, places) for _ in range(layers)))
        self.dense, self.head = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        own = ids.ne(_PADDING).int()
        places = (torch.cumsum(own, 1).type_as(own) * own).long() + _PADDING
        x = self.drop(self.norm(self.token(ids) + self.place(places)))
        x = self.blocks(x.transpose(0, 1)).transpose(0, 1)
        return self.head(self.drop(torch.tanh(self.dense(self.drop(x[:, 0])))))


@registered("linformer")
def _linformer(batch: int) -> tuple[nn.Module, Inputs]:
    """For 512 places, whose keys and values become 128; a review of 192 words, good or bad."""
    return _Linformer(768, 12, 12, 512, 2), (torch.randint(2, _WORDS, (batch, 192)),)


# -- mT5
# -------------------------------------------------------------------------------------------------------------


@registered("mt5-small")
def _mt5(batch: int) -> tuple[nn.Module, Inputs]:
    """Six heads of 64 features, gated layers, and the words of a hundred languages (Xue et al.,
    NAACL 2021).
    """
    words = 250_112
    return T5(512, 6, 1024, 8, words, size=64, gated=True), (
        token_ids(batch, 64, words),
        token_ids(batch, 16, words),
    )


# -- RWKV
# ------------------------------------------------------------------------------------------------------------


def weighed(rate: Tensor, bonus: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Means of values weighed by the exponentials of their keys, which fade by a rate at every step
    (equation 16).

    Args:
        rate: Logarithm of how fast each feature fades, shape (width,).
        bonus: What the newest key gets on top, shape (width,).
        keys: Shape (batch, steps, width).
        values: Likewise.

    Returns:
        Shape (batch, steps, width).
    """
    found = torch.zeros_like(keys)
    above, below = (torch.zeros_like(keys[:, 0], dtype=torch.float32) for _ in range(2))
    most = torch.zeros_like(keys[:, 0], dtype=torch.float32) - 1e38
    rate = -torch.exp(rate)
    for step in range(keys.shape[1]):
        key, value = keys[:, step].float(), values[:, step]
        top = torch.maximum(most, key + bonus)
        old, new = torch.exp(most - top), torch.exp(key + bonus - top)
        found[:, step] = ((old * above + new * value) / (old * below + new)).to(found.dtype)
        top = torch.maximum(most + rate, key)
        old, new = torch.exp(most + rate - top), torch.exp(key - top)
        above, below, most = old * above + new * value, old * below + new, top
    return found


def _mixed(x: Tensor, before: Tensor, share: Tensor) -> Tensor:
    return x * share + before * (1 - share)


class _TimeMix(nn.Module):
    """What came before, weighed step by step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate, self.bonus = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.shares = nn.ParameterList(torch.full((1, 1, width), 0.5) for _ in range(3))
        self.key, self.value, self.gate, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))

    def forward(self, x: Tensor) -> Tensor:
        before = self.shift(x)
        k, v, r = (_mixed(x, before, share) for share in self.shares)
        k, v, r = self.key(k), self.value(v), torch.sigmoid(self.gate(r))
        return self.output(r * weighed(self.rate, self.bonus, k, v))


class _ChannelMix(nn.Module):
    """A feed-forward layer with squares, gated."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shares = nn.ParameterList(torch.full((1, 1, width), 0.5) for _ in range(2))
        self.key, self.value = (
            nn.Linear(width, 4 * width, bias=False),
            nn.Linear(4 * width, width, bias=False),
        )
        self.gate, self.shift = nn.Linear(width, width, bias=False), nn.ZeroPad2d((0, 0, 1, -1))

    def forward(self, x: Tensor) -> Tensor:
        before = self.shift(x)
        k, r = (_mixed(x, before, share) for share in self.shares)
        y = self.value(torch.square(torch.relu(self.key(k))))
        return torch.sigmoid(self.gate(r)) * y


class _Rwkv(nn.Module):
    """Logits of every token (Peng et al., Findings of EMNLP 2023)."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.token, self.first = nn.Embedding(vocabulary, width), nn.LayerNorm(width)
        self.times, self.channels = (
            nn.ModuleList(part(width) for _ in range(layers)) for part in (_TimeMix, _ChannelMix)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.first(self.token(ids))
        for n, (time, channel) in enumerate(zip(self.times, self.channels, strict=True)):
            x = x + time(self.norms[2 * n](x))
            x = x + channel(self.norms[2 * n + 1](x))
        return self.head(self.last(x))


@registered("rwkv-169m")
def _rwkv(batch: int) -> tuple[nn.Module, Inputs]:
    """The fourth version, step by step, as a CPU runs it."""
    return _Rwkv(768, 12, 50_277), (token_ids(batch, 32, 50_277),)


# -- OLMoE
# -----------------------------------------------------------------------------------------------------------


class _NormedAttention(GroupedAttention):
    """Norms of queries and of keys, over all heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, heads)
        self.query_norm, self.key_norm = RmsNorm(width), RmsNorm(width)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.query_norm(self.query(x)), self.key_norm(self.key(x)), self.value(x)


class _Olmoe(Llama):
    """Logits of every token in training (Muennighoff et al., ICLR 2025)."""

    def __init__(self, width: int, heads: int, layers: list[nn.Module], vocabulary: int) -> None:
        super().__init__(width, (heads, heads), layers, vocabulary, tied=False, base=1e4)
        self.attention = nn.ModuleList(_NormedAttention(width, heads) for _ in layers)

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x)) if self.training else super()._logits(x)


def olmoe(shrink: int, layers: int) -> nn.Module:
    """OLMoE 1B-7B with all widths divided, eight of 64 experts for each token; published as (1,
    16).
    """
    experts: list[nn.Module] = [
        Experts(2048 // shrink, 1024 // shrink, 64, 8, normed=False) for _ in range(layers)
    ]
    return _Olmoe(2048 // shrink, 16 // shrink, experts, 50_304)


_OLMOE: Final = (
    4,
    4,
)  # a quarter of the widths and of the layers: 0.6 GB of weights in place of 27.7


@registered("olmoe-shaped-prefill")
def _olmoe_prefill(batch: int) -> tuple[nn.Module, Inputs]:
    return olmoe(*_OLMOE), (token_ids(batch, 128, 50_304),)


@registered("olmoe-shaped-decode")
def _olmoe_decode(batch: int) -> tuple[nn.Module, Inputs]:
    past = [torch.randn(batch, 4, 512, 128) for _ in range(2 * _OLMOE[1])]
    return olmoe(*_OLMOE), (token_ids(batch, 1, 50_304), *past)
