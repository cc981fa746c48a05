"""Texts by convolutions and by recurrent layers, and a recommender."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.parts import Made, perceptron, registered, token_ids


class _TextCnn(nn.Module):
    """A text's class by the strongest of its words' neighbourhoods (Kim, EMNLP 2014)."""

    def __init__(self, vocabulary: int, width: int, filters: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, filters, kernel) for kernel in (3, 4, 5))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(3 * filters, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.word(ids).transpose(1, 2)
        features = [functional.relu(conv(x)).amax(-1) for conv in self.convs]
        return self.head(self.drop(torch.cat(features, 1)))


@registered("text-cnn")
def _text_cnn(batch: int) -> Made:
    """The 18,765 words of film reviews, 300 features each."""
    return _TextCnn(18_765, 300, 100), (token_ids(batch, 64, 18_765),)


class _LstmClassifier(nn.Module):
    """A text's class by the last state of stacked layers."""

    def __init__(self, vocabulary: int, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.word(ids))[0][:, -1])


@registered("lstm-classifier")
def _lstm(batch: int) -> Made:
    return _LstmClassifier(5000, 256, 2, 5), (token_ids(batch, 64, 5000),)


class _Bag(nn.EmbeddingBag):
    """A table of uniform numbers: drawing millions of rows from a normal distribution is slow."""

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.uniform_(-(self.num_embeddings**-0.5), self.num_embeddings**-0.5)


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
