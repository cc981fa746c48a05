"""Recurrent networks, recommenders and perceptrons over vectors and sequences."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__: list[str] = []


class _Forecaster(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(features, hidden, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(hidden, 24)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.layers(x)
        return self.head(y[:, -1])


@registered("lstm-forecaster")
def _forecaster(batch: int) -> tuple[nn.Module, Inputs]:
    return _Forecaster(24, 160), (torch.randn(batch, 96, 24),)


class _SessionRecommender(nn.Module):
    """The next item of a session from a gated recurrent layer (Hidasi et al., ICLR 2016)."""

    def __init__(self, items: int, hidden: int) -> None:
        super().__init__()
        self.item, self.layer = (
            nn.Embedding(items, hidden),
            nn.GRU(hidden, hidden, batch_first=True),
        )

    def forward(self, ids: Tensor) -> Tensor:
        y, _ = self.layer(self.item(ids))
        return y[:, -1] @ self.item.weight.t()


@registered("session-gru")
def _session(batch: int) -> tuple[nn.Module, Inputs]:
    return _SessionRecommender(12_000, 192), (token_ids(batch, 20, 12_000),)


class _CrossNetwork(nn.Module):
    """Explicit crosses of all features beside a perceptron (Wang et al., WWW 2021)."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="mean") for _ in range(tables))
        total = tables * width + 13
        self.crosses = nn.ModuleList(nn.Linear(total, total) for _ in range(3))
        layers = [
            part for i, o in ((total, 512), (512, 256)) for part in (nn.Linear(i, o), nn.ReLU())
        ]
        self.deep, self.head = nn.Sequential(*layers), nn.Linear(total + 256, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = start = torch.cat([dense, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))], 1)
        for cross in self.crosses:
            x = start * cross(x) + x
        return torch.sigmoid(self.head(torch.cat([x, self.deep(start)], 1)))


@registered("cross-network")
def _cross(batch: int) -> tuple[nn.Module, Inputs]:
    return _CrossNetwork(12, 30_000, 32), (
        torch.randn(batch, 13),
        torch.randint(30_000, (batch, 12, 4)),
    )


class _WideAndDeep(nn.Module):
    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.wide, self.deep_tokens = (
            nn.EmbeddingBag(fields * rows, 1, mode="sum"),
            nn.Embedding(fields * rows, width),
        )
        sizes = ((fields * width + 10, 256), (256, 128), (128, 64))
        layers = [
            part for i, o in sizes for part in (nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU())
        ]
        self.deep = nn.Sequential(*layers, nn.Linear(64, 1))

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        deep = self.deep(torch.cat([self.deep_tokens(ids).flatten(1), numbers], 1))
        return torch.sigmoid(deep + self.wide(ids))


@registered("wide-and-deep")
def _wide_and_deep(batch: int) -> tuple[nn.Module, Inputs]:
    return _WideAndDeep(20, 5000, 24), (torch.randint(100_000, (batch, 20)), torch.randn(batch, 10))


@registered("perceptron-autoencoder")
def _autoencoder(batch: int) -> tuple[nn.Module, Inputs]:
    sizes = ((1024, 512), (512, 128), (128, 512), (512, 1024))
    layers = [part for i, o in sizes for part in (nn.Linear(i, o), nn.Tanh())]
    return nn.Sequential(*layers), (torch.randn(batch, 1024),)


class _Twins(nn.Module):
    """Two inputs through one perceptron, compared (Bromley et al., NIPS 1993)."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            nn.Linear(512, 512), nn.PReLU(), nn.LayerNorm(512), nn.Linear(512, 128)
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return functional.cosine_similarity(self.tower(a), self.tower(b), dim=-1)


@registered("twin-perceptrons")
def _twins(batch: int) -> tuple[nn.Module, Inputs]:
    return _Twins(), (torch.randn(batch, 512), torch.randn(batch, 512))
