"""Recurrent networks, recommenders, graphs, points and fields: small networks over vectors and
sequences.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__: list[str] = []


class _Tagger(nn.Module):
    def __init__(self, width: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.token = nn.Embedding(8000, width)
        self.layers = nn.LSTM(width, hidden, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, tags)

    def forward(self, ids: Tensor) -> Tensor:
        x, _ = self.layers(self.token(ids))
        return self.head(x).log_softmax(-1)


@registered("bilstm-tagger")
def _bilstm(batch: int) -> tuple[nn.Module, Inputs]:
    return _Tagger(128, 192, 20), (token_ids(batch, 48, 8000),)


class _LanguageModel(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.token, self.layers = nn.Embedding(vocabulary, width), nn.LSTM(width, width)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        x, _ = self.layers(self.drop(self.token(ids)))
        return self.head(self.drop(x))


@registered("lstm-language-model")
def _language_model(batch: int) -> tuple[nn.Module, Inputs]:
    return _LanguageModel(6000, 384), (token_ids(35, batch, 6000),)


class _Translator(nn.Module):
    """Gated recurrent encoder and decoder with attention over the source (Bahdanau et al., ICLR
    2015).
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder, self.decoder = (
            nn.GRU(width, width, batch_first=True),
            nn.GRU(width, width, batch_first=True),
        )
        self.join, self.head = nn.Linear(2 * width, width), nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        keys, state = self.encoder(self.source(source))
        y, _ = self.decoder(self.target(target), state)
        weights = torch.bmm(y, keys.transpose(1, 2)).softmax(-1)
        return self.head(torch.tanh(self.join(torch.cat([y, torch.bmm(weights, keys)], -1))))


@registered("gru-translator")
def _translator(batch: int) -> tuple[nn.Module, Inputs]:
    return _Translator(4000, 256), (token_ids(batch, 30, 4000), token_ids(batch, 25, 4000))


class _DeepFm(nn.Module):
    """Factorisation machine and perceptron over the same embeddings (Guo et al., IJCAI 2017)."""

    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.token, self.weight = nn.Embedding(fields * rows, width), nn.Embedding(fields * rows, 1)
        layers = [
            part
            for i, o in ((fields * width, 400), (400, 400))
            for part in (nn.Linear(i, o), nn.ReLU())
        ]
        self.deep = nn.Sequential(*layers, nn.Linear(400, 1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        second = 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.weight(ids).sum(1) + second + self.deep(x.flatten(1)))


@registered("deepfm")
def _deepfm(batch: int) -> tuple[nn.Module, Inputs]:
    return _DeepFm(26, 20_000, 16), (torch.randint(26 * 20_000, (batch, 26)),)


class _TwoTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.history, self.item = (
            nn.EmbeddingBag(100_000, 64, mode="mean"),
            nn.Embedding(100_000, 64),
        )
        tower = lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128))  # noqa: E731
        self.user_tower, self.item_tower = tower(), tower()

    def forward(self, history: Tensor, items: Tensor) -> Tensor:
        user = functional.normalize(self.user_tower(self.history(history)), dim=-1)
        item = functional.normalize(self.item_tower(self.item(items)), dim=-1)
        return user @ item.t() / 0.05


@registered("two-tower")
def _two_tower(batch: int) -> tuple[nn.Module, Inputs]:
    return _TwoTower(), (torch.randint(100_000, (batch, 30)), torch.randint(100_000, (batch,)))


class _TabularBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm1d(width),
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.path(x)


@registered("tabular-resnet")
def _tabular(batch: int) -> tuple[nn.Module, Inputs]:
    blocks = [_TabularBlock(256) for _ in range(6)]
    return nn.Sequential(
        nn.Linear(54, 256), *blocks, nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 7)
    ), (torch.randn(batch, 54),)


class _GraphNetwork(nn.Module):
    """Two graph convolutions over a normalised adjacency matrix (Kipf and Welling, ICLR 2017)."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, hidden), nn.Linear(hidden, classes)

    def forward(self, adjacency: Tensor, x: Tensor) -> Tensor:
        x = functional.relu(adjacency @ self.first(x))
        return (adjacency @ self.second(x)).log_softmax(-1)


@registered("graph-convolution")
def _graph(batch: int) -> tuple[nn.Module, Inputs]:
    return _GraphNetwork(512, 128, 16), (torch.randn(batch, 640, 640), torch.randn(batch, 640, 512))


@registered("point-net")
def _point_net(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = []
    for i, o in ((3, 64), (64, 64), (64, 128), (128, 512)):
        layers += [nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()]
    head = [
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 40),
    ]
    return nn.Sequential(*layers, *head), (torch.randn(batch, 3, 1024),)


class _Field(nn.Module):
    """A radiance field: sines of the position, a perceptron with a skip (Mildenhall et al., ECCV
    2020).
    """

    def __init__(self, width: int, bands: int) -> None:
        super().__init__()
        self.bands, inputs = bands, 3 + 6 * bands
        sizes = [inputs, width, width, width, width + inputs, width, width]
        self.layers = nn.ModuleList(nn.Linear(i, width) for i in sizes)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        waves = [f(x * 2.0**band) for band in range(self.bands) for f in (torch.sin, torch.cos)]
        start = y = torch.cat([x, *waves], -1)
        for i, layer in enumerate(self.layers):
            y = functional.relu(layer(torch.cat([y, start], -1) if i == 4 else y))
        return self.head(y)


@registered("radiance-field")
def _field(batch: int) -> tuple[nn.Module, Inputs]:
    return _Field(256, 6), (torch.randn(batch, 3),)
