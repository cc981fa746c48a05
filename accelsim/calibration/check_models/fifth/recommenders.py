"""Recommenders, networks over tables of features, and a graph network, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.recurrent_and_tabular import Bag, perceptron
from accelsim.calibration.check_models.fourth.transformers import Attention
from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["model_class_one"]


# -- clicks
# ----------------------------------------------------------------------------------------------------------

_RM1_TABLES: Final = 8
_RM1_LOOKUPS: Final = 80


class _ManyLookups(nn.Module):
    """Small perceptrons beside tables that are read eighty times each (Gupta et al., ISCA 2020)."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(Bag(rows, width, mode="sum") for _ in range(_RM1_TABLES))
        self.bottom = perceptron(128, 64, width)
        self.top = nn.Sequential(
            perceptron((_RM1_TABLES + 1) * width, 256, 64), nn.Linear(64, 1), nn.Sigmoid()
        )

    def forward(self, dense: Tensor, ids: Tensor, starts: Tensor) -> Tensor:
        found = [bag(ids[n], starts) for n, bag in enumerate(self.bags)]
        return self.top(torch.cat([self.bottom(dense), *found], 1))


def model_class_one(rows: int) -> nn.Module:
    """DLRM-RMC1; published with tables of 4,000,000 rows."""
    return _ManyLookups(rows, 32)


@registered("dlrm-rm1-shaped")
def _rm1(batch: int) -> tuple[nn.Module, Inputs]:
    """A quarter of the rows: 1 GB of tables in place of 4.1."""
    ids = torch.randint(1_000_000, (_RM1_TABLES, _RM1_LOOKUPS * batch))
    return model_class_one(1_000_000), (
        torch.randn(batch, 128),
        ids,
        _RM1_LOOKUPS * torch.arange(batch),
    )


class _Gated(nn.Module):
    """Tasks that each weigh the same experts by a gate of their own (Ma et al., KDD 2018)."""

    def __init__(self, features: int, experts: int, width: int, tower: int, tasks: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(perceptron(features, width) for _ in range(experts))
        self.gates = nn.ModuleList(nn.Linear(features, experts, bias=False) for _ in range(tasks))
        self.towers = nn.ModuleList(
            nn.Sequential(perceptron(width, tower), nn.Linear(tower, 1)) for _ in range(tasks)
        )

    def forward(self, x: Tensor) -> Tensor:
        found, answers = torch.stack([expert(x) for expert in self.experts], 1), []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            weights = gate(x).softmax(-1).unsqueeze(-1)
            answers.append(torch.sigmoid(tower((weights * found).sum(1))))
        return torch.cat(answers, 1)


@registered("mmoe")
def _mmoe(batch: int) -> tuple[nn.Module, Inputs]:
    """Income and marriage from the 499 columns of the census."""
    return _Gated(499, 8, 16, 8, 2), (torch.randn(batch, 499),)


class _SelfAttentive(nn.Module):
    """The next film from the last two hundred (Kang and McAuley, ICDM 2018).

    In training the scores of the film that was seen and of one that was not; else those of every
    film.
    """

    def __init__(self, items: int, length: int, width: int, layers: int, drop: float) -> None:
        super().__init__()
        self.item, self.place = (
            nn.Embedding(items + 1, width, padding_idx=0),
            nn.Embedding(length, width),
        )
        self.attention = nn.ModuleList(
            nn.MultiheadAttention(width, 1, drop, batch_first=True) for _ in range(layers)
        )
        self.first, self.second = (
            nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-8) for _ in range(2 * layers + 1))
        self.drop = nn.Dropout(drop)

    def _features(self, seen: Tensor) -> Tensor:
        n = seen.shape[1]
        x = self.item(seen) * self.item.embedding_dim**0.5
        x = self.drop(x + self.place(torch.arange(n, device=seen.device)))
        later = torch.ones(n, n, dtype=torch.bool, device=seen.device).triu(1)
        for layer, attention in enumerate(self.attention):
            q = self.norms[2 * layer](x)
            x = self.norms[2 * layer + 1](q + attention(q, x, x, attn_mask=later)[0])
            y = self.drop(functional.relu(self.drop(self.first[layer](x.transpose(1, 2)))))
            x = x + self.drop(self.second[layer](y)).transpose(1, 2)
        return self.norms[-1](x)

    def forward(self, seen: Tensor, following: Tensor, other: Tensor) -> Tensor:
        x = self._features(seen)
        if not self.training:
            return x[:, -1] @ self.item.weight.t()
        return torch.stack([(x * self.item(ids)).sum(-1) for ids in (following, other)])


@registered("sasrec")
def _sasrec(batch: int) -> tuple[nn.Module, Inputs]:
    """The 3,416 films of MovieLens 1M."""
    films = [token_ids(batch, 200, 3417) for _ in range(3)]
    return _SelfAttentive(3416, 200, 50, 2, 0.2), tuple(films)


# -- tables
# ----------------------------------------------------------------------------------------------------------


class _FeatureTokens(nn.Module):
    """A token for each number, each category and the answer."""

    def __init__(self, numbers: int, categories: Sequence[int], width: int) -> None:
        super().__init__()
        self.weight, self.answer = (
            nn.Parameter(torch.randn(numbers, width)),
            nn.Parameter(torch.zeros(width)),
        )
        self.bias = nn.Parameter(torch.zeros(numbers + len(categories), width))
        self.table = nn.Embedding(sum(categories), width)
        self.register_buffer("starts", torch.tensor([0, *categories[:-1]]).cumsum(0))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        x = (
            torch.cat([self.weight * numbers.unsqueeze(-1), self.table(ids + self.starts)], 1)
            + self.bias
        )
        return torch.cat([self.answer.expand(x.shape[0], 1, -1), x], 1)


class _FeatureBlock(nn.Module):
    """Attention of features to each other, then a gated layer; the first has no norm before its
    attention.
    """

    def __init__(self, width: int, heads: int, first: bool) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(width, heads), None if first else nn.LayerNorm(width)
        inner = width * 4 // 3
        self.norm2, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.wide, self.narrow = nn.Linear(width, 2 * inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x if self.norm1 is None else self.norm1(x))
        a, b = self.wide(self.norm2(x)).chunk(2, -1)
        return x + self.narrow(self.drop(a * functional.relu(b)))


#: Values of the eight categories of the Adult census.
_ADULT: Final = (9, 16, 7, 15, 6, 5, 2, 42)


@registered("ft-transformer")
def _ft_transformer(batch: int) -> tuple[nn.Module, Inputs]:
    """Gorishniy et al., NeurIPS 2021, with its default size."""
    return _FtTransformer(6, _ADULT, 192, 8, 3), (
        torch.randn(batch, 6),
        torch.stack([torch.randint(rows, (batch,)) for rows in _ADULT], 1),
    )


class _FtTransformer(nn.Module):
    def __init__(
        self, numbers: int, categories: Sequence[int], width: int, heads: int, layers: int
    ) -> None:
        super().__init__()
        self.tokens = _FeatureTokens(numbers, categories, width)
        self.blocks = nn.Sequential(
            *(_FeatureBlock(width, heads, first=not n) for n in range(layers))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        x = self.blocks(self.tokens(numbers, ids))
        return self.head(functional.relu(self.norm(x[:, 0])))


# -- graphs
# ----------------------------------------------------------------------------------------------------------


class _SampledGraph(nn.Module):
    """Classes of nodes from samples of their neighbours and those of their neighbours (Hamilton et
    al., NIPS 2017).

    Args:
        nodes: Of the graph, whose features are kept beside the weights.
        features: Of a node.
        width: Half of a layer's outputs: of the node itself, and of its neighbours.
        classes: Kinds of nodes.
        counts: Neighbours drawn of a node, and of each of those.
    """

    def __init__(
        self, nodes: int, features: int, width: int, classes: int, counts: tuple[int, int]
    ) -> None:
        super().__init__()
        self.counts = counts
        self.register_buffer("features", torch.empty(nodes, features).uniform_(-1.0, 1.0))
        sizes = (features, 2 * width)
        self.own, self.others = (
            nn.ModuleList(nn.Linear(i, width, bias=False) for i in sizes) for _ in range(2)
        )
        self.head = nn.Linear(2 * width, classes)

    def _joined(self, layer: int, own: Tensor, others: Tensor, count: int) -> Tensor:
        mean = others.view(own.shape[0], count, -1).mean(1)
        return torch.cat([self.own[layer](own), self.others[layer](mean)], 1)

    def forward(self, nodes: Tensor, near: Tensor, far: Tensor) -> Tensor:
        x, y, z = (functional.embedding(ids, self.features) for ids in (nodes, near, far))
        x = functional.relu(self._joined(0, x, y, self.counts[0]))
        y = functional.relu(self._joined(0, y, z, self.counts[1]))
        return self.head(functional.normalize(self._joined(1, x, y, self.counts[0]), dim=1))


@registered("graphsage")
def _graphsage(batch: int) -> tuple[nn.Module, Inputs]:
    """The 232,965 posts of Reddit's graph; ten neighbours and 25 of each, as the reference draws
    them.
    """
    first, second = 10, 25
    ids = [torch.randint(232_965, (batch * count,)) for count in (1, first, first * second)]
    return _SampledGraph(232_965, 602, 128, 41, (first, second)), tuple(ids)
