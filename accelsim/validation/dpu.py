"""Suite `dpu`: published throughput of Vitis AI's deep learning processing units over eight
releases.

One thread and all threads of each row are two rows here. Groups say how a row was predicted:
"single layers" and "multi layers" by the layer model fitted per release with the network's family
left out; "unseen core" by rates fitted to another core size; "engines" by the layer model of batch
engines (Alveo cards, VCK190), families left out; "fallback" from operations and pixels alone. Suite
`dpu-boards` carries a network's measurement on one board to the others by the model's ratio. Rows
that the checks find bad are refused with what is wrong. The device column is the release.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim import catalog
from accelsim.cost.fpga.network import gate_fractions
from accelsim.cost.fpga.network_rates import ShippedRates, shipped_rates
from accelsim.validation.data_folder import DataFolder, Schema, Table, number, text
from accelsim.validation.dpu_check import DpuRow, bare_core, check_rows
from accelsim.validation.dpu_engines import engine_of, join_engines, predict_engines
from accelsim.validation.dpu_networks import known_network, network_family
from accelsim.validation.dpu_prediction import (
    LAYER_CORES,
    DpuRuns,
    join_runs,
    predict_fallback,
    predict_layers,
)
from accelsim.validation.suite import Batch, Prediction, refused_batch, register_suite
from accelsim.workloads.graph import FloatArray

__all__ = ["FITTED_CORE", "SCHEMA", "checked_runs", "runs_of"]

SCHEMA = Schema(
    "fpga/vitis_ai_dpu.csv.gz",
    (
        *text("release", "board", "core", "std_name"),
        *number("n_cores", "mhz"),
        *number(
            "in_h", "in_w", "gops_per_image", "fps_single", "fps_multi", "peak_gops", optional=True
        ),
    ),
)
#: Core whose rows the rates are fitted to; other sizes are predicted unseen.
FITTED_CORE = "DPUCZDX8G_B4096"
#: Board whose measurements are carried to the other boards.
_SOURCE_BOARD = "ZCU102 (0432055-05)"


def runs_of(table: Table) -> DpuRuns:
    """Rows of the table with their networks."""
    rows, networks = [], []
    for index in range(len(table)):
        row = _row(table, index)
        rows.append(row)
        height, width = np.nan_to_num([table["in_h"][index], table["in_w"][index]])
        if min(height, width) < 1:  # half a size is none
            height = width = 0.0
        stated = None if np.isnan(row.operations) else row.operations
        networks.append(known_network(row.network, float(height), float(width), stated))
    families = [network_family(row.network) for row in rows]
    return DpuRuns(rows, networks, families, table["in_h"] * table["in_w"])


def checked_runs(table: Table) -> tuple[DpuRuns, NDArray[np.str_]]:
    """Rows of the table, and what the checks find wrong with each; empty where nothing is."""
    runs = runs_of(table)
    return runs, np.array([";".join(names) for names in check_rows(runs.rows)], dtype=str)


def _row(table: Table, index: int) -> DpuRow:
    words = [str(table[name][index]) for name in ("release", "board", "core")]
    numbers = {
        name: float(table[name][index])
        for name in ("n_cores", "mhz", "gops_per_image", "peak_gops")
    }
    return DpuRow(
        words[0],
        words[1],
        words[2],
        numbers["n_cores"],
        numbers["mhz"] * 1e6,
        str(table["std_name"][index]),
        numbers["gops_per_image"] * 1e9,
        float(table["fps_single"][index]),
        float(table["fps_multi"][index]),
        numbers["peak_gops"] * 1e9,
    )


@register_suite(
    "dpu", "DPU throughput over Vitis AI releases, families left out", (SCHEMA,), "model"
)
def load(folder: DataFolder) -> list[Batch]:
    """Batches by release and way of predicting."""
    table = folder.table(SCHEMA)
    if table is None or not len(table):
        return []
    runs, flags, index, by_layers = _checked(table)
    good = flags == ""
    core = np.array([bare_core(row.core) for row in runs.rows])
    by_engines = dict(zip(("single", "multi"), predict_engines(runs, good), strict=True))
    batches: list[Batch] = []
    for mode, times in zip(("single", "multi"), by_layers, strict=True):
        predicted, way = (
            predict_fallback(runs, mode, good),
            np.full(len(good), f"{mode} fallback", dtype=object),
        )
        at_once = by_engines[mode]
        predicted = np.where(np.isfinite(at_once), at_once, predicted)
        way[np.isfinite(at_once)] = f"{mode} engines"
        answered = index[np.isfinite(times)]
        predicted[answered] = times[np.isfinite(times)]
        way[answered] = [
            f"{mode} {'layers' if c == FITTED_CORE else 'unseen core'}" for c in core[answered]
        ]
        batches += _batches(runs, mode, predicted, way.astype(str), flags)
    return batches


@register_suite(
    "dpu-boards", "one DPU core on several boards, from its throughput on one", (SCHEMA,), "model"
)
def load_boards(folder: DataFolder) -> list[Batch]:
    """Single-thread rows of boards other than the source, by release; everything else is left to
    the suite `dpu`.
    """
    table = folder.table(SCHEMA)
    if table is None or not len(table):
        return []
    runs, flags, index, (single_s, _) = _checked(table)
    return _batches(
        runs, "single", *_carried(runs, single_s, index, flags == ""), flags, quiet=True
    )


@lru_cache(maxsize=1)
def _checked(
    table: Table,
) -> tuple[DpuRuns, NDArray[np.str_], NDArray[np.int64], tuple[FloatArray, FloatArray]]:
    """Rows, what the checks find wrong with each, and the layer model's rows and times; both suites
    share them.
    """
    runs, flags = checked_runs(table)
    return runs, flags, *_by_layers(runs, flags == "")


def _by_layers(
    runs: DpuRuns, good: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], tuple[FloatArray, FloatArray]]:
    """Rows that the layer model covers, and their single- and multi-thread times."""
    core = np.array([bare_core(row.core) for row in runs.rows])
    known = np.array([network is not None for network in runs.networks], dtype=np.bool_)
    index = np.flatnonzero(known & np.isin(core, list(LAYER_CORES)))
    if not index.size:
        return index, (np.zeros(0), np.zeros(0))
    return index, predict_layers(runs.take(index), (good & (core == FITTED_CORE))[index])


def _carried(
    runs: DpuRuns, single_s: FloatArray, index: NDArray[np.int64], good: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.str_]]:
    """Single-thread times on other boards: the source board's measurement times the
    model's ratio.
    """
    modelled = np.full(len(runs.rows), np.nan)
    modelled[index] = single_s
    measured = runs.times_s("single")
    source = {
        (row.release, bare_core(row.core), row.network): measured[i] / modelled[i]
        for i, row in enumerate(runs.rows)
        if row.board == _SOURCE_BOARD and good[i] and np.isfinite(modelled[i])
    }
    found = np.array(
        [
            source.get((row.release, bare_core(row.core), row.network), np.nan)
            if row.board != _SOURCE_BOARD
            else np.nan
            for row in runs.rows
        ]
    )
    predicted = np.where(good, modelled * found, np.nan)
    return predicted, np.full(len(runs.rows), "single other board", dtype=object).astype(str)


def _batches(
    runs: DpuRuns,
    mode: str,
    predicted_s: FloatArray,
    way: NDArray[np.str_],
    flags: NDArray[np.str_],
    *,
    quiet: bool = False,
) -> list[Batch]:
    """One batch per release; bad rows and rows nothing is known of are refused."""
    measured = runs.times_s(mode)
    release = np.array([row.release for row in runs.rows])
    label = np.array(
        [f"{row.network} on {row.board} {row.core} x{row.core_count:g}" for row in runs.rows]
    )
    batches: list[Batch] = []
    stated = np.isfinite(measured)
    sigma = _sigma(runs, way)
    profile = catalog.device("zcu102")
    for name in np.unique(release).tolist():
        own = stated & (release == name)
        asked = own & (flags == "") & np.isfinite(predicted_s)
        roofline = _roofline_s(runs)
        if asked.any():
            predict = _fixed(predicted_s[asked], sigma[asked])
            batches.append(
                Batch(
                    name,
                    profile,
                    way[asked],
                    label[asked],
                    measured[asked],
                    roofline[asked],
                    predict,
                )
            )
        if quiet:
            continue
        for reason in np.unique(
            np.where(flags == "", "operations or input size not stated", flags)[own & ~asked]
        ):
            lost = (
                own
                & ~asked
                & (np.where(flags == "", "operations or input size not stated", flags) == reason)
            )
            batches.append(
                refused_batch(name, way[lost], label[lost], measured[lost], f"bad row: {reason}")
            )
    return batches


def _sigma(runs: DpuRuns, way: NDArray[np.str_]) -> FloatArray:
    """Spread of each row's prediction."""
    unknown = np.array([network is None for network in runs.networks], dtype=np.bool_)
    shipped = shipped_rates()
    spread = np.array(
        [_way_sigma(shipped, name, row) for name, row in zip(way.tolist(), runs.rows, strict=True)]
    )
    spread = np.hypot(spread, shipped.log_sigma["gates"] * _gate_fractions(runs, way))
    return np.where(
        unknown & np.char.endswith(way, "fallback"), shipped.log_sigma["unknown layers"], spread
    )


def _way_sigma(shipped: ShippedRates, way: str, row: DpuRow) -> float:
    """Spread of a way of predicting; batch engines have their own."""
    if not way.endswith("engines"):
        return shipped.log_sigma[way]
    engine = shipped.engines[engine_of(row)]
    return engine.single_log_sigma if way.startswith("single") else engine.multi_log_sigma


def _gate_fractions(runs: DpuRuns, way: NDArray[np.str_]) -> FloatArray:
    """Share of each row's time in gates; 0 where no layer model predicts the row."""
    fractions, shipped = np.zeros(len(runs.rows)), shipped_rates()
    index = np.flatnonzero(np.char.endswith(way, "layers") | np.char.endswith(way, "unseen core"))
    if index.size:
        fractions[index] = gate_fractions(join_runs(runs.take(index)), shipped.of(shipped.newest))
    overlay = np.array([engine_of(row) for row in runs.rows])
    for name, engine in shipped.engines.items():
        index = np.flatnonzero(np.char.endswith(way, "engines") & (overlay == name))
        if index.size:
            fractions[index] = gate_fractions(join_engines(runs.take(index)), engine.rates)
    return fractions


def _roofline_s(runs: DpuRuns) -> FloatArray:
    """Operations over peak."""
    return np.array(
        [row.operations / row.peak_per_s if row.peak_per_s > 0 else np.nan for row in runs.rows]
    )


def _fixed(time_s: FloatArray, sigma: FloatArray) -> Callable[[Any | None], Prediction]:
    """The cross-validated prediction; parameters of a device do not enter, rates are fitted per
    fold.
    """

    def predict(_parameters: Any | None) -> Prediction:
        return Prediction(time_s, sigma)

    return predict
