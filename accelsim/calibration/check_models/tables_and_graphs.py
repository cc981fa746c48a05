"""Recommenders, texts among texts, forecasts, a graph of papers and what an agent learns."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import Made, perceptron, registered

_WORDS, _PAIRS = 100_000, 2_000_000


class _Bag(nn.EmbeddingBag):
    """A table of uniform numbers: drawing millions of rows from a normal distribution is slow."""

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.uniform_(-(self.num_embeddings**-0.5), self.num_embeddings**-0.5)


class _StarSpace(nn.Module):
    """The ten nearest of some articles by the angle between sums of rows (Wu et al., AAAI 2018)."""

    def __init__(self, rows: int, width: int, articles: int) -> None:
        super().__init__()
        self.table = _Bag(rows, width, mode="sum")
        self.register_buffer(
            "articles", functional.normalize(torch.empty(articles, width).uniform_(-1.0, 1.0))
        )

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return torch.topk(functional.normalize(self.table(ids)) @ self.articles.t(), 10)


@registered("starspace")
def _starspace(batch: int) -> Made:
    """The program's 100 features and two million rows for pairs; 25 words and their 24 pairs."""
    words = torch.randint(_WORDS, (batch, 25))
    rows = _WORDS + _PAIRS
    pairs = torch.randint(_WORDS, rows, (batch, 24))
    return _StarSpace(rows, 100, 10_000), (torch.cat((words, pairs), 1),)


class _Dlrm(nn.Module):
    """Dense features and sums of rows, crossed pair by pair (Naumov et al., arXiv 1906.00091)."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(_Bag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = perceptron(13, 512, 256, width)
        self.top = nn.Sequential(perceptron((tables + 1) ** 2 + width, 512, 256), nn.Linear(256, 1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x = self.bottom(dense)
        parts = torch.stack([x, *(bag(ids[:, n]) for n, bag in enumerate(self.bags))], 1)
        crossed = torch.bmm(parts, parts.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, crossed], 1)))


@registered("dlrm")
def _dlrm(batch: int) -> Made:
    """Sixteen tables of 50,000 rows, eight of each looked up."""
    return _Dlrm(16, 50_000, 64), (torch.randn(batch, 13), torch.randint(50_000, (batch, 16, 8)))


class _PooledBlock(nn.Module):
    """What it takes off the past, and a forecast between a few points."""

    def __init__(self, past: int, ahead: int, hidden: int, pool: int, points: int) -> None:
        super().__init__()
        self.past = past
        self.ahead = ahead
        self.pool = nn.MaxPool1d(pool, pool, ceil_mode=True)
        layers: list[nn.Module] = [nn.Linear(math.ceil(past / pool), hidden)]
        for _ in range(3):
            layers += [nn.Linear(hidden, hidden), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, past + points))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layers(self.pool(x.unsqueeze(1)).squeeze(1))
        points = y[:, self.past :].reshape(y.shape[0], 1, -1)
        return y[:, : self.past], functional.interpolate(
            points, size=self.ahead, mode="linear"
        ).permute(0, 2, 1)


class _HierarchicalSeries(nn.Module):
    """Forecasts of coarser and finer steps, added (Challu et al., AAAI 2023)."""

    def __init__(self, past: int, ahead: int, hidden: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            _PooledBlock(past, ahead, hidden, pool, ahead // steps)
            for pool, steps in ((2, 4), (2, 2), (1, 1))
        )

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        left = x.flip(-1)
        known = known.flip(-1)
        forecast = x[:, -1:, None]
        for block in self.blocks:
            taken, more = block(left)
            left = (left - taken) * known
            forecast = forecast + more
        return forecast


@registered("n-hits")
def _nhits(batch: int) -> Made:
    """96 hours from the 480 before, with its library's default layers."""
    return _HierarchicalSeries(480, 96, 512), (torch.randn(batch, 480), torch.ones(batch, 480))


def _gathered(x: Tensor, near: Tensor, far: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over each node's neighbours, along edges from `near` to `far`."""
    messages = weights.view(-1, 1) * x.index_select(0, near)
    return torch.zeros_like(x).scatter_add_(0, far.view(-1, 1).expand_as(messages), messages)


class _SpreadPredictions(nn.Module):
    """Subjects of papers by their words, spread along citations (Gasteiger et al., ICLR 2019)."""

    def __init__(self, features: int, hidden: int, classes: int, steps: int, share: float) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, classes)
        self.drop = nn.Dropout(0.5)
        self.steps = steps
        self.share = share

    def forward(self, x: Tensor, near: Tensor, far: Tensor, weights: Tensor) -> Tensor:
        own = self.second(self.drop(functional.relu(self.first(self.drop(x)))))
        y = own
        for _ in range(self.steps):
            y = _gathered(y, near, far, self.drop(weights)) * (1 - self.share)
            y = y + self.share * own
        return y.log_softmax(1)


@registered("appnp")
def _appnp(batch: int) -> Made:
    """A sample is the whole of PubMed; citations count both ways, and each paper is its own."""
    nodes = 19_717 * batch
    citations = 88_648 * batch
    near, far = (
        torch.cat([torch.randint(nodes, (citations,)), torch.arange(nodes)]) for _ in range(2)
    )
    features = torch.rand(nodes, 500), torch.rand(near.shape[0])
    return _SpreadPredictions(500, 64, 3, 10, 0.1), (features[0], near, far, features[1])


class _Policy(nn.Module):
    """Actions of a body and how surprising each is (Haarnoja et al., ICML 2018)."""

    def __init__(self, seen: int, moves: int, hidden: int, limit: float) -> None:
        super().__init__()
        self.layers = perceptron(seen, hidden, hidden)
        self.limit = limit
        self.mean = nn.Linear(hidden, moves)
        self.spread = nn.Linear(hidden, moves)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, shape (batch, moves), and the logarithm of their density, shape (batch,)."""
        y = self.layers(x)
        mean = self.mean(y)
        log_spread = self.spread(y).clamp(-20.0, 2.0)
        spread = log_spread.exp()
        drawn = mean + spread * torch.randn_like(mean)
        known = (
            -((drawn - mean) ** 2) / (2 * spread**2)
            - spread.log()
            - math.log(math.sqrt(2 * math.pi))
        )
        bent = 2 * (math.log(2.0) - drawn - functional.softplus(-2 * drawn))
        return self.limit * torch.tanh(drawn), known.sum(-1) - bent.sum(-1)


class _SoftActorCritic(nn.Module):
    """In training what the policy's step makes small, by two critics; else actions."""

    def __init__(self, seen: int, moves: int, hidden: int) -> None:
        super().__init__()
        self.policy = _Policy(seen, moves, hidden, 0.4)
        self.critics = nn.ModuleList(
            nn.Sequential(perceptron(seen + moves, hidden, hidden), nn.Linear(hidden, 1))
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        actions, surprise = self.policy(x)
        if not self.training:
            return actions
        values = [critic(torch.cat([x, actions], -1)).squeeze(-1) for critic in self.critics]
        return 0.2 * surprise - torch.min(*values)


@registered("sac-humanoid")
def _humanoid(batch: int) -> Made:
    """The 376 numbers and 17 joints of MuJoCo's humanoid."""
    return _SoftActorCritic(376, 17, 256), (torch.randn(batch, 376),)
