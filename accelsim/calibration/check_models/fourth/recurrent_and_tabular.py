"""Recurrent networks, recommenders, a convolution over time and a graph network, at their published
sizes.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from accelsim.calibration.check_models.register import Inputs, registered, token_ids

__all__ = ["CRITEO_ROWS", "Bag", "Dlrm", "dlrm_inputs", "perceptron"]


# -- recurrent
# -------------------------------------------------------------------------------------------------------


class _SpeechLayer(nn.Module):
    """A gated recurrent layer in both directions, which are added, behind a batch norm."""

    def __init__(self, i: int, hidden: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(i) if norm else None
        self.layer = nn.GRU(i, hidden, bidirectional=True, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.norm is not None:
            x = self.norm(x.flatten(0, 1)).view_as(x)
        y, _ = self.layer(x)
        return y.unflatten(-1, (2, -1)).sum(2)


class _DeepSpeech(nn.Module):
    """Two convolutions over a spectrogram, then recurrent layers (Amodei et al., ICML 2016)."""

    def __init__(self, hidden: int, layers: int, letters: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            *(
                nn.Conv2d(1, 32, (41, 11), (2, 2), (0, 10)),
                nn.BatchNorm2d(32),
                nn.Hardtanh(0.0, 20.0, inplace=True),
            ),
            *(
                nn.Conv2d(32, 32, (21, 11), (2, 1)),
                nn.BatchNorm2d(32),
                nn.Hardtanh(0.0, 20.0, inplace=True),
            ),
        )
        sizes = [32 * 21, *(hidden for _ in range(layers - 1))]
        self.layers = nn.Sequential(
            *(_SpeechLayer(i, hidden, norm=n > 0) for n, i in enumerate(sizes))
        )
        self.norm, self.head = nn.BatchNorm1d(hidden), nn.Linear(hidden, letters, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convs(x).flatten(1, 2).permute(2, 0, 1).contiguous()
        y = self.layers(y)
        return self.head(self.norm(y.flatten(0, 1))).view(*y.shape[:2], -1).softmax(-1)


@registered("deepspeech-2")
def _deepspeech(batch: int) -> tuple[nn.Module, Inputs]:
    return _DeepSpeech(800, 5, 29), (torch.randn(batch, 1, 161, 200),)


class _LockedDropout(nn.Module):
    """The same features dropped at every step."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        mask = x.new_empty(1, x.shape[1], x.shape[2]).bernoulli_(1.0 - self.drop) / (
            1.0 - self.drop
        )
        return x * mask.expand_as(x)


class _AwdLstm(nn.Module):
    """Three recurrent layers and one table for input and output (Merity et al., ICLR 2018; no
    weights dropped).
    """

    def __init__(self, vocabulary: int, width: int, hidden: int) -> None:
        super().__init__()
        self.token, self.bias = (
            nn.Embedding(vocabulary, width),
            nn.Parameter(torch.zeros(vocabulary)),
        )
        sizes = ((width, hidden), (hidden, hidden), (hidden, width))
        self.layers = nn.ModuleList(nn.LSTM(i, o) for i, o in sizes)
        self.drops = nn.ModuleList(_LockedDropout(drop) for drop in (0.4, 0.25, 0.25, 0.4))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drops[0](self.token(ids))
        for layer, drop in zip(self.layers, self.drops[1:], strict=True):
            x = drop(layer(x)[0])
        return functional.linear(x, self.token.weight, self.bias)


@registered("awd-lstm")
def _awd_lstm(batch: int) -> tuple[nn.Module, Inputs]:
    return _AwdLstm(10_000, 400, 1150), (token_ids(70, batch, 10_000),)


# -- recommenders
# ----------------------------------------------------------------------------------------------------


def perceptron(*sizes: int) -> nn.Sequential:
    """Linear layers, an activation behind each."""
    layers: list[nn.Module] = []
    for i, o in pairwise(sizes):
        layers += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*layers)


#: Values of the 26 features in Criteo's Kaggle set.
CRITEO_ROWS: Final = (
    *(1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194),
    *(27, 14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)


class Bag(nn.EmbeddingBag):
    """A table of uniform numbers, as drawing hundreds of millions from a normal distribution takes
    long.
    """

    def reset_parameters(self) -> None:
        """Draw the rows anew."""
        with torch.no_grad():
            self.weight.uniform_(-(self.num_embeddings**-0.5), self.num_embeddings**-0.5)


class Dlrm(nn.Module):
    """Dense and sparse features, crossed pair by pair (Naumov et al., arXiv 1906.00091).

    Args:
        rows: Of each table.
        width: Features of a row.
        bottom: Widths of the layers over the 13 dense features, less the last.
        top: Widths of the layers over all pairs, less the last.
    """

    def __init__(
        self, rows: tuple[int, ...], width: int, bottom: tuple[int, ...], top: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.bags = nn.ModuleList(Bag(n, width, mode="sum") for n in rows)
        self.bottom = perceptron(13, *bottom, width)
        count = len(rows) + 1
        self.top = nn.Sequential(
            perceptron(width + count * (count - 1) // 2, *top), nn.Linear(top[-1], 1)
        )
        self.register_buffer("pairs", torch.tril_indices(count, count, -1))

    def forward(self, dense: Tensor, ids: Tensor, starts: Tensor) -> Tensor:
        """Probabilities of a click, shape (batch, 1)."""
        x = self.bottom(dense)
        found = [bag(ids[n], starts[n]) for n, bag in enumerate(self.bags)]
        parts = torch.cat([x, *found], 1).view(x.shape[0], -1, x.shape[1])
        crossed = torch.bmm(parts, parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([x, crossed], 1)))


def dlrm_inputs(batch: int, rows: tuple[int, ...]) -> Inputs:
    """Dense features, one row of each table, and where the rows of each sample start."""
    ids = torch.stack([torch.randint(count, (batch,)) for count in rows])
    return torch.randn(batch, 13), ids, torch.arange(batch).repeat(len(rows), 1)


@registered("dlrm-kaggle")
def _dlrm(batch: int) -> tuple[nn.Module, Inputs]:
    return Dlrm(CRITEO_ROWS, 16, (512, 256, 64), (512, 256)), dlrm_inputs(batch, CRITEO_ROWS)


class _NeuralFiltering(nn.Module):
    """A product of factors beside a perceptron over others (He et al., WWW 2017)."""

    def __init__(self, users: int, items: int, factors: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.deep_user, self.deep_item = (
            nn.Embedding(users, sizes[0] // 2),
            nn.Embedding(items, sizes[0] // 2),
        )
        self.deep, self.head = perceptron(*sizes), nn.Linear(factors + sizes[-1], 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        deep = self.deep(torch.cat([self.deep_user(user), self.deep_item(item)], -1))
        return self.head(torch.cat([self.user(user) * self.item(item), deep], -1))


@registered("neumf")
def _neumf(batch: int) -> tuple[nn.Module, Inputs]:
    """MovieLens 20M, with MLPerf's sizes."""
    module = _NeuralFiltering(138_493, 26_744, 64, (256, 256, 128, 64))
    return module, (torch.randint(138_493, (batch,)), torch.randint(26_744, (batch,)))


# -- sequences and graphs
# --------------------------------------------------------------------------------------------


class _TimeBlock(nn.Module):
    """Two causal convolutions with gaps and normalised weights, beside a skip."""

    def __init__(self, i: int, o: int, k: int, gap: int, drop: float) -> None:
        super().__init__()
        self.cut = (k - 1) * gap
        self.conv1, self.conv2 = (
            weight_norm(nn.Conv1d(n, o, k, padding=self.cut, dilation=gap)) for n in (i, o)
        )
        self.drop, self.skip = nn.Dropout(drop), nn.Conv1d(i, o, 1) if i != o else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(functional.relu(self.conv1(x)[:, :, : -self.cut].contiguous()))
        y = self.drop(functional.relu(self.conv2(y)[:, :, : -self.cut].contiguous()))
        return functional.relu(y + (x if self.skip is None else self.skip(x)))


class _TimeNetwork(nn.Module):
    """Gaps that double from layer to layer (Bai et al., arXiv 1803.01271)."""

    def __init__(self, inputs: int, width: int, layers: int, k: int, classes: int) -> None:
        super().__init__()
        blocks = (_TimeBlock(width if n else inputs, width, k, 2**n, 0.05) for n in range(layers))
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x)[:, :, -1]).log_softmax(1)


@registered("temporal-convolution")
def _time(batch: int) -> tuple[nn.Module, Inputs]:
    """Digits of 28 x 28 pixels, one after the other."""
    return _TimeNetwork(1, 25, 8, 7, 10), (torch.randn(batch, 1, 784),)


class _Features(nn.Module):
    """The sum of one row per categorical feature."""

    def __init__(self, rows: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n in rows)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tables[0](ids[:, 0])
        for n, table in enumerate(self.tables[1:], 1):
            x = x + table(ids[:, n])
        return x


class _GraphLayer(nn.Module):
    """Messages from neighbours added to a node, then a perceptron."""

    def __init__(self, width: int, bonds: tuple[int, ...]) -> None:
        super().__init__()
        self.own, self.bond = nn.Parameter(torch.zeros(1)), _Features(bonds, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, edges: Tensor, bonds: Tensor) -> Tensor:
        messages = functional.relu(x[edges[0]] + self.bond(bonds))
        found = torch.zeros_like(x).index_add(0, edges[1], messages)
        return self.norm(self.mlp((1.0 + self.own) * x + found))


_ATOM_ROWS: Final = (119, 4, 12, 12, 10, 6, 6, 2, 2)
_BOND_ROWS: Final = (5, 6, 2)


class _Isomorphism(nn.Module):
    """A property of molecules (Xu et al., ICLR 2019; Hu et al., NeurIPS 2020, for ogbg-molhiv)."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.atom = _Features(_ATOM_ROWS, width)
        self.layers = nn.ModuleList(_GraphLayer(width, _BOND_ROWS) for _ in range(layers))
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(width, 1)

    def forward(
        self, atoms: Tensor, edges: Tensor, bonds: Tensor, molecule: Tensor, size: Tensor
    ) -> Tensor:
        x = self.atom(atoms)
        for layer in self.layers[:-1]:
            x = self.drop(functional.relu(layer(x, edges, bonds)))
        x = self.drop(self.layers[-1](x, edges, bonds))
        mean = x.new_zeros(size.shape[0], x.shape[1]).index_add(0, molecule, x) / size
        return self.head(mean)


@registered("graph-isomorphism")
def _isomorphism(batch: int) -> tuple[nn.Module, Inputs]:
    """Molecules of 26 atoms and 28 bonds, the set's mean, each bond in both directions."""
    molecule, start = (
        torch.arange(batch).repeat_interleave(26),
        torch.arange(batch).repeat_interleave(28) * 26,
    )
    near, far = (torch.randint(26, (28 * batch,)) + start for _ in range(2))
    edges = torch.stack([torch.cat([near, far]), torch.cat([far, near])])
    atoms = torch.stack([torch.randint(rows, (26 * batch,)) for rows in _ATOM_ROWS], 1)
    bonds = torch.stack([torch.randint(rows, (56 * batch,)) for rows in _BOND_ROWS], 1)
    return _Isomorphism(300, 5), (atoms, edges, bonds, molecule, torch.full((batch, 1), 26.0))
