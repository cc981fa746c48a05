"""Predicts every row of a DPU throughput table, with the row's family of networks left out of
whatever is fitted.

Zynq boards with networks of known layers take the layer model, its rates fitted per release.
Everything else (data-centre and Versal cores; networks whose layers are not known) takes a
fallback with one factor per release, board and core. A network's operations, weights and what it
loses to rounding are known from its layers, or from the whole that it was narrowed from: time is
proportional to a power of each and of the input's pixels. Where no layers are known, it is the sum
of a time per stated operation, one per pixel and one per image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.fpga.network import (
    DpuBoards,
    DpuNetworks,
    DpuRates,
    join_networks,
    thread_times_s,
)
from accelsim.cost.fpga.network_rates import shipped_rates
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, TextArray
from tools.scoreboard.dpu_check import DpuRow, bare_core
from tools.scoreboard.dpu_fit import FOLDS, family_folds, fit_rates
from tools.scoreboard.dpu_networks import KnownNetwork

#: Core whose rows the rates are fitted to; other sizes are predicted unseen.
FITTED_CORE = "DPUCZDX8G_B4096"

#: (PP, ICP, OCP) of the cores the layer model covers (AMD PG338).
_LAYER_CORES = {FITTED_CORE: (8, 16, 16), "DPUCZDX8G_B1600": (8, 10, 10)}
#: Memory bandwidth (64-bit DDR4-2400 and 32-bit LPDDR4-2133) and host clock over 1.2 GHz of Zynq
#: boards, by name's start.
_BOARDS = {
    "ZCU102": (19.2e9, 1.0),
    "ZCU104": (19.2e9, 1.0),
    "Kria": (19.2e9, 1.2 / 1.333),
    "Ultra96": (8.53e9, 1.2 / 1.5),
}
_LEAST_ROWS = 20


@frozen(eq=False)
class DpuRuns:
    """Rows of a table with what is known of their networks.

    Attributes:
        rows: As printed.
        networks: Layers of each; None where they are not known.
        families: Family of each.
        pixels: Input pixels; NaN where not stated.
    """

    rows: Sequence[DpuRow]
    networks: Sequence[KnownNetwork | None]
    families: Sequence[str]
    pixels: FloatArray

    def times_s(self, mode: str) -> FloatArray:
        """Measured seconds per image of mode "single" or "multi"; NaN where not stated."""
        return 1.0 / self.column(f"{mode}_per_s")

    def column(self, name: str) -> NDArray[Any]:
        """An attribute of the rows, shape (n,)."""
        return np.array([getattr(row, name) for row in self.rows])

    @property
    def cores(self) -> TextArray:
        """Bare architecture of each row, shape (n,)."""
        return np.array([bare_core(row.core) for row in self.rows])

    @property
    def has_layers(self) -> BoolArray:
        """Rows whose networks' layers, or those of the whole of a narrower one, are known, shape
        (n,).
        """
        return np.array([network is not None for network in self.networks], dtype=bool)

    @property
    def known(self) -> BoolArray:
        """Rows whose networks' layers are known, shape (n,)."""
        return np.array([n is not None and not n.is_whole_of for n in self.networks], dtype=bool)

    def take(self, index: IntArray) -> DpuRuns:
        """Some of the rows."""
        columns = (self.rows, self.networks, self.families)
        rows, networks, families = ([c[i] for i in index.tolist()] for c in columns)
        return DpuRuns(rows, networks, families, self.pixels[index])


def _boards_of(rows: Sequence[DpuRow]) -> DpuBoards:
    """The Zynq boards of rows."""
    known = np.array(
        [next(_BOARDS[start] for start in _BOARDS if row.board.startswith(start)) for row in rows]
    )
    return DpuBoards(
        parallelism=np.array([_LAYER_CORES[bare_core(row.core)] for row in rows], dtype=np.float64),
        clock_hz=np.array([row.clock_hz for row in rows]),
        core_count=np.array([row.core_count for row in rows]),
        memory_bytes_per_s=known[:, 0],
        host_ratio=known[:, 1],
    )


def join_runs(runs: DpuRuns) -> DpuNetworks:
    """Networks on their boards; every network's layers must be known."""
    return join_known(runs, _boards_of(runs.rows))


def join_known(runs: DpuRuns, boards: DpuBoards) -> DpuNetworks:
    """The same on given boards."""
    networks = [network for network in runs.networks if network is not None]
    return join_networks([n.layers for n in networks], [n.task for n in networks], boards)


def fit_runs(runs: DpuRuns, start: DpuRates | None = None) -> DpuRates:
    """Rates that fit rows with known layers."""
    return fit_rates(join_runs(runs), runs.times_s("single"), runs.times_s("multi"), start)


def predict_layers(runs: DpuRuns, good: BoolArray) -> FloatArray:
    """Single- and multi-thread times of rows with known layers, each family predicted by rates
    fitted without it.

    Families the shipped rates were not fitted to take those; the others take rates fitted to the
    other families here.

    Args:
        runs: Rows of any core.
        good: Rows that may be fitted to, those of the reference core, shape (n,).

    Returns:
        Seconds per image of one thread and of all, shape (2, n); NaN where a row is of another kind
        of core, or a release has too few other families.
    """
    index = np.flatnonzero(runs.known & np.isin(runs.cores, list(_LAYER_CORES)))
    times = np.full((2, len(runs.rows)), np.nan)
    if index.size:
        trained_on = (good & (runs.cores == FITTED_CORE))[index]
        times[:, index] = _layer_times(runs.take(index), trained_on)
    return times


def _layer_times(runs: DpuRuns, trained_on: BoolArray) -> FloatArray:
    fold = family_folds(runs.families, len(set(runs.families)))  # each family alone
    release = runs.column("release")
    times = np.full((2, len(runs.rows)), np.nan)
    shipped = shipped_rates()
    new = ~np.isin(runs.families, list(shipped.families))

    def some(rows: BoolArray) -> DpuRuns:
        return runs.take(np.flatnonzero(rows))

    for name in np.unique(release[new]).tolist():
        asked = new & (release == name)
        times[:, asked] = thread_times_s(join_runs(some(asked)), shipped.of(name))
    for index in np.unique(fold[~new]).tolist():
        train = trained_on & (fold != index)
        left_out = (fold == index) & ~new
        if train.sum() < _LEAST_ROWS:
            continue
        common = fit_runs(some(train))
        for name in np.unique(release[left_out]).tolist():
            own = train & (release == name)
            asked = left_out & (release == name)
            rates = fit_runs(some(own), common) if own.sum() >= _LEAST_ROWS else common
            times[:, asked] = thread_times_s(join_runs(some(asked)), rates)
    return times


#: Rows of one platform from which its own factor is trusted as much as its architecture's: about
#: the spread of a factor.
_SHRINK = 2.0
#: ln of time at peak, of pixels and of 1: features of rows whose layers are not known.
_UNKNOWN_WIDTH = 3
#: ln of time by values and features, and its slopes by values.
_Form = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def _power_law(values: FloatArray, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A product of powers of what features are the logarithms of."""
    return features @ values, features


def _sum_of_parts(values: FloatArray, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A sum of times proportional to what features are the logarithms of."""
    parts = np.exp(features + values)
    total = parts.sum(axis=1)
    return np.log(total), parts / total[:, None]


def predict_fallback(runs: DpuRuns, mode: str, trained_on: BoolArray) -> FloatArray:
    """Times from operations and pixels, the row's family left out; s, shape (n,), NaN where nothing
    is known.

    Args:
        runs: Rows of any core.
        mode: "single" or "multi".
        trained_on: Rows that may be fitted to.
    """
    measured = np.log(runs.times_s(mode))
    features = _features(runs)
    has_features = np.isfinite(features[:, :_UNKNOWN_WIDTH]).all(axis=1)
    usable = trained_on & np.isfinite(measured) & has_features
    fold = family_folds(runs.families)
    platform = np.array(
        [f"{r.release} {r.board} {r.core} {r.core_count} {r.clock_hz}" for r in runs.rows]
    )
    architecture = np.array([core.split("_")[0] for core in runs.cores.tolist()])
    predicted = np.full(len(runs.rows), np.nan)
    for index in range(FOLDS):
        left_out = (fold == index) & has_features
        for name in np.unique(architecture[left_out]):
            train = usable & (fold != index) & (architecture == name)
            asked = left_out & (architecture == name)
            for form, width, fits, asks in (
                (_sum_of_parts, _UNKNOWN_WIDTH, train, asked & ~runs.has_layers),
                (_power_law, features.shape[1], train & runs.has_layers, asked & runs.has_layers),
            ):
                if fits.sum() >= _LEAST_ROWS and asks.any():
                    used = features[:, :width]
                    predicted[asks] = _regress(form, used, measured, platform, fits, asks)
    times: FloatArray = np.exp(predicted)
    return times


def _features(runs: DpuRuns) -> FloatArray:
    """ln of time at peak, of pixels and of 1; of known layers ln of the cycles that they take over
    those at peak and of their weights per operation, as engines without a copy of the weights read
    them for each batch. NaN where none are known; layers of a narrowed network are the whole's.
    """
    peak = runs.column("peak_per_s")
    lanes = runs.column("core_count") * runs.column("clock_hz") * 4096
    pairs = zip(runs.rows, runs.networks, strict=True)
    operations = np.array([_operations(row, network) for row, network in pairs])
    known = runs.has_layers
    flop = np.array([np.nan if network is None else network.flop for network in runs.networks])
    of_layers = np.full((2, len(runs.rows)), np.nan)
    if known.any():
        some = runs.take(np.flatnonzero(known))
        joined = join_known(some, _boards_of([_REFERENCE] * len(some.rows)))
        reference_s, _ = thread_times_s(joined, DpuRates())
        weight_s = np.add.reduceat(joined.weight_s, joined.start)
        of_layers[:, known] = np.log(
            [reference_s, weight_s] / (flop[known] / _REFERENCE.peak_per_s)
        )
    at_peak = np.log(operations / np.where(peak > 0, peak, lanes))
    return np.stack([at_peak, np.log(runs.pixels), np.zeros(len(known)), *of_layers], axis=1)


def _operations(row: DpuRow, network: KnownNetwork | None) -> float:
    if network is None or network.is_whole_of:
        return row.operations if row.operations > 0 else float("nan")
    return network.flop


#: One B4096 core, whose time at first-guess rates says how well layers fit such arrays.
_REFERENCE = DpuRow(
    *("v1.2", "ZCU102", FITTED_CORE, 1.0, 300e6),
    *("", np.nan, np.nan, np.nan, 1.2288e12),
)


def _regress(
    form: _Form,
    features: FloatArray,
    measured: FloatArray,
    platform: TextArray,
    train: BoolArray,
    asked: BoolArray,
) -> FloatArray:
    """Robust least squares with one factor for all platforms and one for each, drawn towards it."""
    from scipy.optimize import least_squares

    names, code = np.unique(platform[train], return_inverse=True)
    x, y = features[train], measured[train]
    width, count = x.shape[1], len(names)

    def residuals(values: FloatArray) -> FloatArray:
        time, _ = form(values[:width], x)
        errors = y - time - values[width] - values[width + 1 :][code]
        return np.concatenate([errors, values[width + 1 :] / _SHRINK])

    def slopes(values: FloatArray) -> FloatArray:
        rows = np.zeros((len(y) + count, width + 1 + count))
        rows[: len(y), :width], rows[: len(y), width] = -form(values[:width], x)[1], -1.0
        rows[np.arange(len(y)), width + 1 + code] = -1.0
        rows[len(y) :, width + 1 :] = np.eye(count) / _SHRINK
        return rows

    first = np.zeros(width + 1 + count)
    first[:width] = np.median(y[:, None] - x, axis=0) if form is _sum_of_parts else np.eye(width)[0]
    coefficients = least_squares(
        residuals, first, jac=slopes, loss="soft_l1", f_scale=0.2, max_nfev=30
    ).x
    own = {name: coefficients[width + 1 + i] for i, name in enumerate(names.tolist())}
    factor = np.array([own.get(name, 0.0) for name in platform[asked].tolist()])
    predicted, _ = form(coefficients[:width], features[asked])
    times: FloatArray = predicted + coefficients[width] + factor
    return times
