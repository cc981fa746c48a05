"""Recommenders of clicks, films and places, and messages within molecules, at their published
sizes.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, unused-ignore"

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsim.calibration.check_models.fourth.recurrent_and_tabular import Dlrm, dlrm_inputs
from accelsim.calibration.check_models.register import Inputs, registered
from accelsim.calibration.check_models.sixth.tables_and_graphs import gathered

__all__ = ["Summary", "mlperf_dlrm", "softmax_of_groups"]


# -- clicks
# ----------------------------------------------------------------------------------------------------------

#: Values of the 26 features in Criteo's terabyte, of which MLPerf keeps forty million of each at
#: most.
_TERABYTE_ROWS: Final = (
    *(
        39_884_406,
        39_043,
        17_289,
        7420,
        20_263,
        3,
        7120,
        1543,
        63,
        38_532_951,
        2_953_546,
        403_346,
        10,
    ),
    *(2208, 11_938, 155, 4, 976, 14, 39_979_771, 25_641_295, 39_664_984, 585_935, 12_972, 108, 36),
)


def _capped(most: int) -> tuple[int, ...]:
    return tuple(min(rows, most) for rows in _TERABYTE_ROWS)


def mlperf_dlrm(most: int) -> nn.Module:
    """MLPerf's DLRM; published with tables of up to 40,000,000 rows."""
    return Dlrm(_capped(most), 128, (512, 256), (1024, 1024, 512, 256))


@registered("dlrm-mlperf-shaped")
def _dlrm(batch: int) -> tuple[nn.Module, Inputs]:
    """Tables of at most 200,000 rows: 0.9 GB in place of 96."""
    return mlperf_dlrm(200_000), dlrm_inputs(batch, _capped(200_000))


# -- films
# -----------------------------------------------------------------------------------------------------------


class _MultiVae(nn.Module):
    """What else a user would watch, from all that was watched (Liang et al., WWW 2018).

    In training how improbable each user's films are, with what the vector costs; else the scores of
    every film.
    """

    def __init__(self, items: int, hidden: int, vector: int) -> None:
        super().__init__()
        self.drop, self.wide, self.narrow = (
            nn.Dropout(0.5),
            nn.Linear(items, hidden),
            nn.Linear(hidden, 2 * vector),
        )
        self.back, self.head = nn.Linear(vector, hidden), nn.Linear(hidden, items)

    def forward(self, watched: Tensor) -> Tensor:
        x = self.drop(functional.normalize(watched))
        mean, spread = self.narrow(torch.tanh(self.wide(x))).chunk(2, 1)
        z = mean
        if self.training:
            deviation = torch.exp(0.5 * spread)
            z = torch.randn_like(deviation) * deviation + mean
        scores = self.head(torch.tanh(self.back(z)))
        if not self.training:
            return scores
        cost = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1)
        return 0.2 * cost - (scores.log_softmax(1) * watched).sum(1)


@registered("multi-vae")
def _multi_vae(batch: int) -> tuple[nn.Module, Inputs]:
    """The 20,108 films of MovieLens 20M, of which a user saw a hundred and fifty."""
    return _MultiVae(20_108, 600, 200), ((torch.rand(batch, 20_108) < 0.0075).float(),)


# -- places
# ----------------------------------------------------------------------------------------------------------

_USERS: Final = 29_858
_PLACES: Final = 40_981
_VISITS: Final = 810_128
_TRIPLES: Final = 2048
_ASKED: Final = 100


class _LightGraph(nn.Module):
    """Rows of users and items, averaged with those of their neighbours up to three steps away (He
    et al., SIGIR 2020).

    In training the scores of a place that was visited and of one that was not; else those of every
    place.
    """

    def __init__(self, users: int, items: int, width: int, layers: int) -> None:
        super().__init__()
        self.users, self.layers, self.table = users, layers, nn.Embedding(users + items, width)

    def forward(
        self, near: Tensor, far: Tensor, weights: Tensor, user: Tensor, own: Tensor, other: Tensor
    ) -> Tensor:
        x = self.table.weight
        found = [x]
        for _ in range(self.layers):
            x = gathered(x, near, far, weights)
            found.append(x)
        users, items = torch.stack(found, 1).mean(1).split([self.users, x.shape[0] - self.users])
        if not self.training:
            return torch.sigmoid(users[user[:_ASKED]] @ items.t())
        asked = users[user]
        return torch.stack([(asked * items[ids]).sum(1) for ids in (own, other)])


@registered("lightgcn")
def _lightgcn(batch: int) -> tuple[nn.Module, Inputs]:
    """Gowalla's users and places; a sample is a tenth of the visits it learns from, which count
    both ways.
    """
    visits = _VISITS * batch // 10
    user, place = torch.randint(_USERS, (visits,)), torch.randint(_PLACES, (visits,)) + _USERS
    near, far = torch.cat([user, place]), torch.cat([place, user])
    triples = (
        torch.randint(_USERS, (_TRIPLES,)),
        *(torch.randint(_PLACES, (_TRIPLES,)) for _ in range(2)),
    )
    return _LightGraph(_USERS, _PLACES, 64, 3), (near, far, torch.rand(2 * visits), *triples)


# -- molecules
# -------------------------------------------------------------------------------------------------------

_ATOMS: Final = 18


def softmax_of_groups(x: Tensor, group: Tensor, count: int) -> Tensor:
    """Softmax over all rows of a group, shape (rows, 1)."""
    most = x.new_zeros(count, 1).scatter_reduce_(
        0, group[:, None], x.detach(), "amax", include_self=False
    )
    x = (x - most.index_select(0, group)).exp()
    total = x.new_zeros(count, 1).scatter_add_(0, group[:, None], x) + 1e-16
    return x / total.index_select(0, group)


class Summary(nn.Module):
    """One vector of each group, whatever the order of its rows, read three times over (Vinyals et
    al., ICLR 2016).

    Args:
        width: Features of a row; of a group twice as many.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.layer = width, nn.LSTM(2 * width, width)

    def forward(self, x: Tensor, group: Tensor, count: int) -> Tensor:
        """Shape (count, 2 width), of rows, shape (rows, width), that are of the groups in `group`,
        shape (rows,).
        """
        state = x.new_zeros(1, count, self.width), x.new_zeros(1, count, self.width)
        found = x.new_zeros(count, 2 * self.width)
        for _ in range(3):
            q, state = self.layer(found.unsqueeze(0), state)
            q = q.view(count, self.width)
            weights = softmax_of_groups((x * q[group]).sum(-1, keepdim=True), group, count)
            read = torch.zeros_like(q).scatter_add_(0, group[:, None].expand_as(x), weights * x)
            found = torch.cat([q, read], -1)
        return found


class _Molecules(nn.Module):
    """Messages whose matrix comes from the bond, three times over (Gilmer et al., ICML 2017)."""

    def __init__(self, atom: int, bond: int, width: int, hidden: int) -> None:
        super().__init__()
        self.width, self.first, self.own = (
            width,
            nn.Linear(atom, width),
            nn.Linear(width, width, bias=False),
        )
        self.bond = nn.Sequential(
            nn.Linear(bond, hidden), nn.ReLU(), nn.Linear(hidden, width * width)
        )
        self.bias, self.step, self.summary = (
            nn.Parameter(torch.zeros(width)),
            nn.GRU(width, width),
            Summary(width),
        )
        self.join, self.head = nn.Linear(2 * width, width), nn.Linear(width, 1)

    def _heard(self, x: Tensor, near: Tensor, far: Tensor, bonds: Tensor) -> Tensor:
        matrices = self.bond(bonds).view(-1, self.width, self.width)
        messages = torch.matmul(x.index_select(0, near).unsqueeze(1), matrices).squeeze(1)
        total = torch.zeros_like(x).scatter_add_(0, far[:, None].expand_as(messages), messages)
        count = x.new_zeros(x.shape[0]).scatter_add_(0, far, torch.ones_like(messages[:, 0]))
        return total / count.clamp(min=1).unsqueeze(1) + self.own(x) + self.bias

    def forward(
        self,
        atoms: Tensor,
        near: Tensor,
        far: Tensor,
        bonds: Tensor,
        molecule: Tensor,
        size: Tensor,
    ) -> Tensor:
        x = functional.relu(self.first(atoms))
        h = x.unsqueeze(0)
        for _ in range(3):
            y, h = self.step(functional.relu(self._heard(x, near, far, bonds)).unsqueeze(0), h)
            x = y.squeeze(0)
        return self.head(functional.relu(self.join(self.summary(x, molecule, size.shape[0])))).view(
            -1
        )


@registered("mpnn-qm9")
def _mpnn(batch: int) -> tuple[nn.Module, Inputs]:
    """Molecules of 18 atoms, the set's mean, all pairs of which are bonds; sizes as its PyTorch
    version has them.
    """
    others = _ATOMS - 1
    near = torch.arange(_ATOMS).repeat_interleave(others)
    far = (near + 1 + torch.arange(others).repeat(_ATOMS)) % _ATOMS
    near, far = (
        ids.repeat(batch, 1) + _ATOMS * torch.arange(batch)[:, None] for ids in (near, far)
    )
    molecule = torch.arange(batch).repeat_interleave(_ATOMS)
    features = torch.randn(_ATOMS * batch, 11), torch.rand(near.numel(), 5)
    return _Molecules(11, 5, 64, 128), (
        features[0],
        near.flatten(),
        far.flatten(),
        features[1],
        molecule,
        torch.ones(batch),
    )
