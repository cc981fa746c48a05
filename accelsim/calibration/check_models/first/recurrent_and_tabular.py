"""Recurrent networks, recommenders, text and audio convolutions, perceptrons."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__: list[str] = []


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], hidden: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(5000, hidden)
        self.layers = nn.ModuleList(kind(hidden, hidden, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(hidden, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        for layer in self.layers:
            x, _ = layer(x)
        result: Tensor = self.head(x[:, -1])
        return result


@registered("lstm-classifier")
def _lstm(batch: int) -> tuple[nn.Module, Inputs]:
    return _Recurrent(nn.LSTM, 256, 2), (token_ids(batch, 64, 5000),)


@registered("gru-tagger")
def _gru(batch: int) -> tuple[nn.Module, Inputs]:
    return _Recurrent(nn.GRU, 384, 1), (token_ids(batch, 80, 5000),)


class _Dlrm(nn.Module):
    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, width),
            nn.ReLU(),
        )
        pairs = (tables + 1) ** 2 + width
        self.top = nn.Sequential(
            nn.Linear(pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        parts = torch.stack([x, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))], 1)
        crossed = torch.bmm(parts, parts.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, crossed], 1)))


@registered("dlrm")
def _dlrm(batch: int) -> tuple[nn.Module, Inputs]:
    return _Dlrm(16, 50_000, 64), (torch.randn(batch, 13), torch.randint(50_000, (batch, 16, 8)))


class _TextCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(20_000, 128)
        self.convs = nn.ModuleList(nn.Conv1d(128, 100, k, padding=k // 2) for k in (3, 5, 7))
        self.head = nn.Linear(300, 4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids).transpose(1, 2)
        parts = [functional.relu(conv(x)).amax(-1) for conv in self.convs]
        result: Tensor = self.head(torch.cat(parts, 1))
        return result


@registered("text-cnn")
def _text_cnn(batch: int) -> tuple[nn.Module, Inputs]:
    return _TextCnn(), (token_ids(batch, 128, 20_000),)


@registered("audio-cnn")
def _audio(batch: int) -> tuple[nn.Module, Inputs]:
    layers: list[nn.Module] = []
    for i, o in ((64, 128), (128, 128), (128, 256), (256, 256)):
        layers += [nn.Conv1d(i, o, 3, 1, 1), nn.BatchNorm1d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(256, 35)), (
        torch.randn(batch, 64, 400),
    )


@registered("mlp")
def _mlp(batch: int) -> tuple[nn.Module, Inputs]:
    layers = [
        part
        for i, o in ((784, 1024), (1024, 1024), (1024, 512))
        for part in (nn.Linear(i, o), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Linear(512, 10)), (torch.randn(batch, 784),)


class _Mixer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 256), nn.GELU(), nn.Linear(256, tokens))
        self.within = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))  # type: ignore[no-any-return]


@registered("mlp-mixer")
def _mixer(batch: int) -> tuple[nn.Module, Inputs]:
    blocks = [_Mixer(196, 256) for _ in range(6)]
    return nn.Sequential(*blocks, nn.LayerNorm(256), nn.Linear(256, 100)), (
        torch.randn(batch, 196, 256),
    )
