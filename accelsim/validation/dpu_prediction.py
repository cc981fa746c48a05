"""Predicts every row of a DPU throughput table, with the row's family of networks left out of
whatever is fitted.

Zynq boards with networks of known layers take the layer model, its rates fitted per release.
Everything else (data-centre and Versal cores; networks whose layers are not known) takes a
fallback: time is proportional to a power of the operations and of the input's pixels, with one
factor per release, board and core. The fallback knows the network's cost from its layers where they
are known and from the stated operations where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.fpga.host_tasks import HOST_CORES
from accelsim.cost.fpga.network import (
    DpuBoards,
    DpuNetworks,
    DpuRates,
    join_networks,
    thread_times_s,
)
from accelsim.cost.fpga.network_rates import shipped_rates
from accelsim.validation.dpu_check import DpuRow, bare_core
from accelsim.validation.dpu_fit import FOLDS, family_folds, fit_rates
from accelsim.validation.dpu_networks import KnownNetwork
from accelsim.workloads.graph import FloatArray

__all__ = ["LAYER_CORES", "DpuRuns", "boards_of", "join_runs", "predict_fallback", "predict_layers"]

#: (PP, ICP, OCP) of the cores the layer model covers (AMD PG338).
LAYER_CORES = {"DPUCZDX8G_B4096": (8, 16, 16), "DPUCZDX8G_B1600": (8, 10, 10)}
#: Memory bandwidth (64-bit DDR4-2400 and 32-bit LPDDR4-2133) and host clock over 1.2 GHz of Zynq
#: boards, by name's start.
_BOARDS = {
    "ZCU102": (19.2e9, 1.0),
    "ZCU104": (19.2e9, 1.0),
    "Kria": (19.2e9, 1.2 / 1.333),
    "Ultra96": (8.53e9, 1.2 / 1.5),
}
#: The first ZCU102 boards came with a module of x8 chips.
_WIDE_MEMORY = "ZCU102 (0432055-04)"
_LEAST_ROWS = 20


@dataclass(frozen=True, slots=True, eq=False)
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
        return 1.0 / np.array(
            [getattr(row, f"{mode}_per_s") for row in self.rows], dtype=np.float64
        )

    def take(self, index: NDArray[np.int64]) -> DpuRuns:
        """Some of the rows."""
        chosen = index.tolist()
        parts = (
            [column[i] for i in chosen] for column in (self.rows, self.networks, self.families)
        )
        rows, networks, families = parts
        return DpuRuns(rows, networks, families, self.pixels[index])


def boards_of(rows: Sequence[DpuRow]) -> DpuBoards:
    """The Zynq boards of rows."""
    known = [
        next(value for start, value in _BOARDS.items() if row.board.startswith(start))
        for row in rows
    ]
    return DpuBoards(
        parallelism=np.array([LAYER_CORES[bare_core(row.core)] for row in rows], dtype=np.float64),
        clock_hz=np.array([row.clock_hz for row in rows]),
        core_count=np.array([row.core_count for row in rows]),
        memory_bytes_per_s=np.array([bandwidth for bandwidth, _ in known]),
        host_ratio=np.array([ratio for _, ratio in known]),
        scan_threads=np.array([_scan_threads(row.release) for row in rows]),
        has_wide_memory=np.array([row.board == _WIDE_MEMORY for row in rows], dtype=np.bool_),
        is_early=np.array([_is_early(row) for row in rows], dtype=np.bool_),
    )


def _is_early(row: DpuRow) -> bool:
    """KV260 until release 2.0: slower than the same core of a ZCU104 at the same clock, most with
    much traffic.
    """
    return row.board.startswith("Kria") and row.release in {"v1.4.1", "v2.0"}


def _scan_threads(release: str) -> float:
    """The library of 1.2 scanned scores in one thread, those after it in all."""
    return 1.0 if release.startswith("v1.2") else HOST_CORES


def join_runs(runs: DpuRuns) -> DpuNetworks:
    """Networks on their boards; every network's layers must be known."""
    networks = [network for network in runs.networks if network is not None]
    return join_networks(
        [n.layers for n in networks], [n.task for n in networks], boards_of(runs.rows)
    )


def fit_runs(runs: DpuRuns, start: DpuRates | None = None) -> DpuRates:
    """Rates that fit rows with known layers."""
    return fit_rates(join_runs(runs), runs.times_s("single"), runs.times_s("multi"), start)


def predict_layers(runs: DpuRuns, trained_on: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Single- and multi-thread times of rows with known layers, each family predicted by rates
    fitted without it.

    Families the shipped rates were not fitted to take those; the others take rates fitted to the
    other families here.

    Args:
        runs: Rows on `LAYER_CORES`, all networks known.
        trained_on: Rows that may be fitted to (those of the reference core, without bad rows),
            shape (n,).

    Returns:
        Seconds per image of one thread and of all, shape (n,) each; NaN where a release has too few
        other families.
    """
    fold = family_folds(runs.families, len(set(runs.families)))  # each family alone
    release = np.array([row.release for row in runs.rows])
    times = np.full((2, len(runs.rows)), np.nan)
    shipped = shipped_rates()
    new = np.array([family not in shipped.families for family in runs.families], dtype=np.bool_)
    for name in np.unique(release[new]).tolist():
        asked = new & (release == name)
        times[:, asked] = thread_times_s(
            join_runs(runs.take(np.flatnonzero(asked))), shipped.of(name)
        )
    for index in np.unique(fold[~new]).tolist():
        train = trained_on & (fold != index)
        if train.sum() < _LEAST_ROWS:
            continue
        common = fit_runs(runs.take(np.flatnonzero(train)))
        for name in np.unique(release[(fold == index) & ~new]):
            own, asked = train & (release == name), (fold == index) & (release == name) & ~new
            rates = (
                fit_runs(runs.take(np.flatnonzero(own)), common)
                if own.sum() >= _LEAST_ROWS
                else common
            )
            times[:, asked] = thread_times_s(join_runs(runs.take(np.flatnonzero(asked))), rates)
    return times[0], times[1]


#: Rows of one platform from which its own factor is trusted as much as its architecture's: about
#: the spread of a factor.
_SHRINK = 2.0


def predict_fallback(runs: DpuRuns, mode: str, trained_on: NDArray[np.bool_]) -> FloatArray:
    """Times from operations and pixels, the row's family left out; s, shape (n,), NaN where nothing
    is known.

    Args:
        runs: Rows of any core.
        mode: "single" or "multi".
        trained_on: Rows that may be fitted to.
    """
    measured = np.log(runs.times_s(mode))
    features = _features(runs)
    usable = np.isfinite(measured) & np.isfinite(features).all(axis=1)
    fold = family_folds(runs.families)
    platform = np.array(
        [f"{r.release} {r.board} {r.core} {r.core_count} {r.clock_hz}" for r in runs.rows]
    )
    architecture = np.array([f"{bare_core(row.core).split('_')[0]}" for row in runs.rows])
    predicted = np.full(len(runs.rows), np.nan)
    for index in range(FOLDS):
        train, asked = (
            trained_on & usable & (fold != index),
            (fold == index) & np.isfinite(features).all(axis=1),
        )
        for name in np.unique(architecture[asked]):
            own = train & (architecture == name)
            if own.sum() < _LEAST_ROWS:
                continue
            wanted = asked & (architecture == name)
            predicted[wanted] = _regress(features, measured, platform, own, wanted)
    times: FloatArray = np.exp(predicted)
    return times


def _features(runs: DpuRuns) -> FloatArray:
    """ln of time at peak, ln of pixels, whether layers are known, and ln of the share of cycles
    lost to rounding.
    """
    peak = np.array(
        [
            row.peak_per_s if row.peak_per_s > 0 else row.core_count * row.clock_hz * 4096
            for row in runs.rows
        ]
    )
    operations = np.array(
        [_operations(r, n) for r, n in zip(runs.rows, runs.networks, strict=True)]
    )
    reference = np.array([_reference_s(n) for n in runs.networks])
    known = np.isfinite(reference)
    bound = operations / 1.2288e12
    lost = np.where(known, np.log(reference / bound), 0.0)
    return np.stack(
        [np.log(operations / peak), np.log(runs.pixels), known.astype(float), lost], axis=1
    )


def _operations(row: DpuRow, network: KnownNetwork | None) -> float:
    if network is None or network.is_pruned:
        return row.operations if row.operations > 0 else float("nan")
    return network.flop


_REFERENCE = DpuBoards(
    parallelism=np.array([[8.0, 16.0, 16.0]]),
    clock_hz=np.array([300e6]),
    core_count=np.array([1.0]),
    memory_bytes_per_s=np.array([19.2e9]),
    host_ratio=np.array([1.0]),
    scan_threads=np.array([1.0]),
    has_wide_memory=np.array([False]),
    is_early=np.array([False]),
)


def _reference_s(network: KnownNetwork | None) -> float:
    """Time on one B4096 core at first-guess rates: a measure of how well the layers fit such
    arrays.
    """
    if network is None:
        return float("nan")
    single, _ = thread_times_s(
        join_networks([network.layers], [network.task], _REFERENCE), DpuRates()
    )
    return float(single[0])


def _regress(
    features: FloatArray,
    measured: FloatArray,
    platform: NDArray[np.str_],
    train: NDArray[np.bool_],
    asked: NDArray[np.bool_],
) -> FloatArray:
    """Robust least squares with one intercept per platform, drawn towards the architecture's."""
    from scipy.optimize import least_squares

    names, code = np.unique(platform[train], return_inverse=True)
    x, y = features[train], measured[train]
    width = x.shape[1]

    def residuals(values: FloatArray) -> FloatArray:
        errors = y - x @ values[:width] - values[width] - values[width + 1 :][code]
        return np.concatenate([errors, values[width + 1 :] / _SHRINK])

    def slopes(_values: FloatArray) -> FloatArray:
        rows = np.zeros((len(y) + len(names), width + 1 + len(names)))
        rows[: len(y), :width], rows[: len(y), width] = -x, -1.0
        rows[np.arange(len(y)), width + 1 + code] = -1.0
        rows[len(y) + np.arange(len(names)), width + 1 + np.arange(len(names))] = 1.0 / _SHRINK
        return rows

    first = np.zeros(width + 1 + len(names))
    first[0] = 1.0
    found = least_squares(residuals, first, jac=slopes, loss="soft_l1", f_scale=0.2, max_nfev=30).x
    own = {name: found[width + 1 + i] for i, name in enumerate(names.tolist())}
    factor = np.array([own.get(name, 0.0) for name in platform[asked].tolist()])
    predicted: FloatArray = features[asked] @ found[:width] + found[width] + factor
    return predicted
