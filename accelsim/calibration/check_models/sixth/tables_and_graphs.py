"""Recommenders, forecasts of many series, a graph and a protein's block, at their published sizes."""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.recurrent_and_tabular import Bag, perceptron
from accelsim.calibration.check_models.register import Inputs, registered

__all__ = ["gathered", "video_candidates"]


# -- films and clicks
# ------------------------------------------------------------------------------------------------

_SEEN: Final = 50
_OTHERS: Final = 5000


class _Candidates(nn.Module):
    """The next video from those watched and words searched (Covington et al., RecSys 2016).

    In training the scores of the one watched and of some thousand others; else the best two hundred
    of all.
    """

    def __init__(self, videos: int, words: int, width: int) -> None:
        super().__init__()
        self.watched, self.searched = (
            Bag(videos, width, mode="mean"),
            Bag(words, width, mode="mean"),
        )
        self.region, self.device = nn.Embedding(250, 32), nn.Embedding(16, 16)
        self.tower = perceptron(2 * width + 48 + 5, 1024, 512, width)
        self.videos = nn.Embedding(
            videos, width, _weight=torch.empty(videos, width).uniform_(-0.01, 0.01)
        )

    def forward(
        self,
        watched: Tensor,
        searched: Tensor,
        places: Tensor,
        numbers: Tensor,
        following: Tensor,
        others: Tensor,
    ) -> Tensor | tuple[Tensor, Tensor]:
        where = [self.region(places[:, 0]), self.device(places[:, 1])]
        user = self.tower(
            torch.cat([self.watched(watched), self.searched(searched), *where, numbers], 1)
        )
        if not self.training:
            return torch.topk(user @ self.videos.weight.t(), 200)
        own = (user * self.videos(following)).sum(1, keepdim=True)
        return torch.cat([own, user @ self.videos(others).t()], 1)


def video_candidates(rows: int) -> nn.Module:
    """Published with a million videos and as many words."""
    return _Candidates(rows, rows, 256)


@registered("youtube-dnn-shaped")
def _youtube(batch: int) -> tuple[nn.Module, Inputs]:
    """An eighth of the rows: 0.4 GB of tables in place of 3.1."""
    rows = 125_000
    seen = [torch.randint(rows, (batch, _SEEN)) for _ in range(2)]
    places = torch.stack([torch.randint(250, (batch,)), torch.randint(16, (batch,))], 1)
    ids = torch.randint(rows, (batch,)), torch.randint(rows, (_OTHERS,))
    return video_candidates(rows), (*seen, places, torch.rand(batch, 5), *ids)


class _NeuralFactors(nn.Module):
    """All pairs of features summed, then a perceptron (He and Chua, SIGIR 2017)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(features, width), nn.Embedding(features, 1)
        self.bias = nn.Parameter(torch.zeros(1))
        self.crossed = nn.Sequential(nn.BatchNorm1d(width), nn.Dropout(0.3))
        deep = [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3)]
        self.deep = nn.Sequential(*deep, nn.Linear(width, 1, bias=False))

    def forward(self, ids: Tensor, values: Tensor) -> Tensor:
        x, values = self.table(ids), values.unsqueeze(-1)
        x = x * values
        pairs = 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1))
        found = self.deep(self.crossed(pairs)) + (self.linear(ids) * values).sum(1) + self.bias
        return found.view(-1)


@registered("nfm")
def _nfm(batch: int) -> tuple[nn.Module, Inputs]:
    """Frappe: ten of 5,382 features of a user, a program and where it is used."""
    return _NeuralFactors(5382, 256), (torch.randint(5382, (batch, 10)), torch.ones(batch, 10))


# -- series
# ----------------------------------------------------------------------------------------------------------


class _VariateBlock(nn.Module):
    """Attention between series, written out, and 1x1 convolutions; norms behind."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(0.1)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Conv1d(width, inner, 1), nn.Conv1d(inner, width, 1)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1) for f in (self.query, self.key, self.value))
        scores = torch.einsum("blhe,bshe->bhls", q, k)
        weights = self.drop(((width // self.heads) ** -0.5 * scores).softmax(-1))
        y = torch.einsum("bhls,bshd->blhd", weights, v).contiguous().view(b, n, width)
        x = self.norm1(x + self.drop(self.output(y)))
        y = self.drop(functional.gelu(self.wide(x.transpose(-1, 1))))
        return self.norm2(x + self.drop(self.narrow(y).transpose(-1, 1)))


class _SeriesAsTokens(nn.Module):
    """A token for each series' whole past (Liu et al., ICLR 2024)."""

    def __init__(self, past: int, ahead: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(past, width), nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(_VariateBlock(width, heads, width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, ahead)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True).detach()
        x = x - mean
        spread = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5)
        x = x / spread
        tokens = self.drop(self.first(torch.cat([x.permute(0, 2, 1), times.permute(0, 2, 1)], 1)))
        y = self.head(self.norm(self.blocks(tokens))).permute(0, 2, 1)[:, :, : x.shape[2]]
        spread, mean = (part[:, 0].unsqueeze(1).repeat(1, y.shape[1], 1) for part in (spread, mean))
        return y * spread + mean


@registered("itransformer")
def _itransformer(batch: int) -> tuple[nn.Module, Inputs]:
    """Electricity of 321 customers: four days, and the four to come."""
    return _SeriesAsTokens(96, 96, 512, 8, 3), (
        torch.randn(batch, 96, 321),
        torch.randn(batch, 96, 4),
    )


# -- papers
# ----------------------------------------------------------------------------------------------------------


def gathered(x: Tensor, near: Tensor, far: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over the neighbours of each node, as messages that are scattered.

    Args:
        x: Features, shape (nodes, width).
        near: Where each edge starts, shape (edges,).
        far: Where it ends, likewise.
        weights: Of the edges, likewise.

    Returns:
        Shape (nodes, width).
    """
    messages = weights.view(-1, 1) * x.index_select(0, near)
    return torch.zeros_like(x).scatter_add_(0, far.view(-1, 1).expand_as(messages), messages)


class _GraphConvolution(nn.Module):
    """A product, then weighted sums over neighbours (Kipf and Welling, ICLR 2017)."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.product, self.bias = nn.Linear(i, o, bias=False), nn.Parameter(torch.zeros(o))

    def forward(self, x: Tensor, near: Tensor, far: Tensor, weights: Tensor) -> Tensor:
        return gathered(self.product(x), near, far, weights) + self.bias


class _PaperGraph(nn.Module):
    """Subjects of papers, three citations deep, as the graph benchmark's baseline has it (Hu et
    al., NeurIPS 2020).
    """

    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        sizes = ((features, width), (width, width), (width, classes))
        self.layers = nn.ModuleList(_GraphConvolution(*pair) for pair in sizes)
        self.norms, self.drop = (
            nn.ModuleList(nn.BatchNorm1d(width) for _ in range(2)),
            nn.Dropout(0.5),
        )

    def forward(self, x: Tensor, near: Tensor, far: Tensor, weights: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = self.drop(functional.relu(norm(layer(x, near, far, weights))))
        return self.layers[-1](x, near, far, weights).log_softmax(-1)


@registered("gcn-arxiv")
def _gcn(batch: int) -> tuple[nn.Module, Inputs]:
    """A sample is a hundredth of the 169,343 papers and of their 1,166,243 citations, which count
    both ways.
    """
    nodes, edges = 1693 * batch, 23_156 * batch
    own = torch.arange(nodes)
    near, far = (torch.cat([torch.randint(nodes, (edges,)), own]) for _ in range(2))
    return _PaperGraph(128, 256, 40), (
        torch.randn(nodes, 128),
        near,
        far,
        torch.rand(edges + nodes),
    )


# -- proteins
# --------------------------------------------------------------------------------------------------------


class _GatedAttention(nn.Module):
    """Written out, with a bias, and gated by what asks."""

    def __init__(self, width: int, heads: int, size: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, size**-0.5
        self.query, self.key, self.value = (
            nn.Linear(width, heads * size, bias=False) for _ in range(3)
        )
        self.gate, self.output = nn.Linear(width, heads * size), nn.Linear(heads * size, width)

    def forward(self, x: Tensor, *biases: Tensor) -> Tensor:
        parts = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            for f in (self.query, self.key, self.value)
        )
        q, k, v = parts
        scores = torch.matmul(q * self.scale, k.transpose(-1, -2))
        for bias in biases:
            scores += bias
        y = torch.matmul(scores.softmax(-1), v).transpose(-2, -3)
        return self.output(
            (y * torch.sigmoid(self.gate(x)).unflatten(-1, (self.heads, -1))).flatten(-2)
        )


class _AxisAttention(nn.Module):
    """Along rows, with a bias from pairs of residues if there is one."""

    def __init__(self, width: int, pair: int | None, heads: int, size: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), _GatedAttention(width, heads, size)
        self.pair_norm = nn.LayerNorm(pair) if pair and pair != width else None
        self.pair = nn.Linear(pair, heads, bias=False) if pair else None

    def forward(self, x: Tensor, kept: Tensor, pairs: Tensor | None = None) -> Tensor:
        x = self.norm(x)
        biases = [(1e9 * (kept - 1))[..., None, None, :]]
        if self.pair is not None:
            source = x if pairs is None or self.pair_norm is None else self.pair_norm(pairs)
            biases.append(self.pair(source).permute(0, 3, 1, 2).unsqueeze(1))
        return self.attention(x, *biases)


class _OuterMean(nn.Module):
    """What two residues have in common in all sequences."""

    def __init__(self, width: int, size: int, o: int) -> None:
        super().__init__()
        self.norm, self.a, self.b = (
            nn.LayerNorm(width),
            nn.Linear(width, size),
            nn.Linear(width, size),
        )
        self.output = nn.Linear(size * size, o)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        x, mask = self.norm(x), kept.unsqueeze(-1)
        a, b = (f(x).mul(mask).transpose(-2, -3) for f in (self.a, self.b))
        outer = torch.einsum("nbac,ndae->nbdce", a, b)
        count = torch.einsum("nabc,nadc->nbdc", mask, mask)
        return self.output(outer.flatten(-2)) / (count + 1e-3)


class _TriangleProduct(nn.Module):
    """A pair from the two other sides of all triangles, along rows or along columns."""

    def __init__(self, width: int, along_rows: bool) -> None:
        super().__init__()
        self.rows, self.norm1, self.norm2 = along_rows, nn.LayerNorm(width), nn.LayerNorm(width)
        self.sides, self.gates = (
            nn.ModuleList(nn.Linear(width, width) for _ in range(2)) for _ in range(2)
        )
        self.output, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        x, mask = self.norm1(x), kept.unsqueeze(-1)
        sides = zip(self.sides, self.gates, strict=True)
        a, b = (mask * torch.sigmoid(gate(x)) * side(x) for side, gate in sides)
        order = ((0, 3, 1, 2), (0, 3, 2, 1)) if self.rows else ((0, 3, 2, 1), (0, 3, 1, 2))
        y = torch.matmul(a.permute(order[0]), b.permute(order[1])).permute(0, 2, 3, 1)
        return self.output(self.norm2(y)) * torch.sigmoid(self.gate(x))


def _transition(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
    )


class _Evoformer(nn.Module):
    """One of the 48 blocks, as it predicts (Jumper et al., Nature 2021, algorithm 6)."""

    def __init__(self, width: int, pair: int) -> None:
        super().__init__()
        self.row, self.column = (
            _AxisAttention(width, pair, 8, 32),
            _AxisAttention(width, None, 8, 32),
        )
        self.step, self.outer = _transition(width), _OuterMean(width, 32, pair)
        self.products = nn.ModuleList(_TriangleProduct(pair, rows) for rows in (True, False))
        self.start, self.end = (_AxisAttention(pair, pair, 4, 32) for _ in range(2))
        self.pair_step = _transition(pair)

    def forward(self, m: Tensor, z: Tensor, kept: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        m = m + self.row(m, kept, z)
        m = m + self.column(m.transpose(-2, -3), kept.transpose(-1, -2)).transpose(-2, -3)
        m = m + self.step(m) * kept.unsqueeze(-1)
        z = z + self.outer(m, kept)
        for product in self.products:
            z = z + product(z, pairs)
        z = (z + self.start(z, pairs)).transpose(-2, -3)
        z = (z + self.end(z, pairs.transpose(-1, -2))).transpose(-2, -3)
        return m, z + self.pair_step(z) * pairs.unsqueeze(-1)


@registered("evoformer-block")
def _evoformer(batch: int) -> tuple[nn.Module, Inputs]:
    """64 sequences of 64 residues."""
    features = torch.randn(batch, 64, 64, 256), torch.randn(batch, 64, 64, 128)
    return _Evoformer(256, 128), (*features, torch.ones(batch, 64, 64), torch.ones(batch, 64, 64))
