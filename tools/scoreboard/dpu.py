"""Suite `dpu`: published throughput of Vitis AI's deep learning processing units over eight
releases.

One thread and all threads of each row are two rows here. Groups say how a row was predicted:
"single layers" and "multi layers" by the layer model fitted per release with the network's family
left out; "unseen core" by rates fitted to another core size; "engines" by the layer model of batch
engines (Alveo cards, VCK190), families left out; "fallback" from operations, pixels and, where
layers are known (of a narrowed network those of the whole), what they lose to rounding. Suite
`dpu-boards` carries a network's measurement on one board to the others by the model's ratio. Rows
that the checks find bad are refused with what is wrong. The device column is the release.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from accelsim import catalog
from accelsim.cost.fpga.network import gate_fractions
from accelsim.cost.fpga.network_rates import ShippedRates, shipped_rates
from accelsim.estimation.likeness import Setting
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.suite import (
    MeasuredBatch,
    Prediction,
    fixed_prediction,
    refused_batch,
    register_suite,
)
from accelsim.workloads.graph import BoolArray, FloatArray, TextArray
from tools.scoreboard.dpu_check import DpuRow, check_rows
from tools.scoreboard.dpu_engines import engine_of, join_engines, predict_engines
from tools.scoreboard.dpu_networks import known_network, network_family
from tools.scoreboard.dpu_prediction import (
    FITTED_CORE,
    DpuRuns,
    join_runs,
    predict_fallback,
    predict_layers,
)

SCHEMA = schema("fpga/vitis_ai_dpu.csv.gz")
#: Columns of a `DpuRow`, and their units.
_ROW = (
    *("release", "board", "core", "n_cores", "mhz", "std_name"),
    *("gops_per_image", "fps_single", "fps_multi", "peak_gops"),
)
_UNITS = {"mhz": 1e6, "gops_per_image": 1e9, "peak_gops": 1e9}
#: Board whose measurements are carried to the other boards.
_SOURCE_BOARD = "ZCU102 (0432055-05)"


def runs_of(table: Table) -> DpuRuns:
    """Rows of the table with their networks."""
    columns = [table[name] * _UNITS[name] if name in _UNITS else table[name] for name in _ROW]
    rows = [DpuRow(*cells) for cells in zip(*(c.tolist() for c in columns), strict=True)]
    sizes = np.nan_to_num(np.stack([table["in_h"], table["in_w"]], axis=1))
    sizes[sizes.min(axis=1) < 1] = 0.0  # half a size is none
    networks = [
        known_network(row.network, *size, None if np.isnan(row.operations) else row.operations)
        for row, size in zip(rows, sizes.tolist(), strict=True)
    ]
    families = [network_family(row.network) for row in rows]
    return DpuRuns(rows, networks, families, table["in_h"] * table["in_w"])


def checked_runs(table: Table) -> tuple[DpuRuns, TextArray]:
    """Rows of the table, and what the checks find wrong with each; empty where nothing is."""
    runs = runs_of(table)
    return runs, np.array([";".join(names) for names in check_rows(runs.rows)], dtype=str)


#: Every row is of a quantised network.
_SETTING = str(Setting("inference", "int8", "convolution"))


@register_suite(
    "dpu", "DPU throughput over Vitis AI releases, families left out", (SCHEMA,), "model"
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Batches by release and way of predicting."""
    table = folder.filled(SCHEMA)
    if table is None:
        return []
    runs, flags, by_layers = _checked(table)
    good = flags == ""
    batches: list[MeasuredBatch] = []
    for mode, layers_s, engines_s in zip(
        ("single", "multi"), by_layers, predict_engines(runs, good), strict=True
    ):
        is_layers = np.isfinite(layers_s)
        is_engines = np.isfinite(engines_s)
        known = [is_layers & (runs.cores == FITTED_CORE), is_layers, is_engines]
        fallback_s = predict_fallback(runs, mode, good)
        predicted = np.select(known, [layers_s, layers_s, engines_s], fallback_s)
        way = np.select(known, ["layers", "unseen core", "engines"], "fallback")
        batches += _batches(runs, mode, predicted, np.char.add(f"{mode} ", way), flags)
    return batches


@register_suite(
    "dpu-boards", "one DPU core on several boards, from its throughput on one", (SCHEMA,), "model"
)
def load_boards(folder: DataFolder) -> list[MeasuredBatch]:
    """Single-thread rows of boards other than the source, by release; everything else is left to
    the suite `dpu`.
    """
    table = folder.filled(SCHEMA)
    if table is None:
        return []
    runs, flags, (single_s, _) = _checked(table)
    predicted = _carried(runs, single_s, flags == "")
    way = np.full(len(flags), "single other board")
    return [batch for batch in _batches(runs, "single", predicted, way, flags) if not batch.refusal]


@lru_cache(maxsize=1)
def _checked(table: Table) -> tuple[DpuRuns, TextArray, FloatArray]:
    """Rows, what the checks find wrong with each, and the layer model's single- and multi-thread
    times; both suites share them.
    """
    runs, flags = checked_runs(table)
    return runs, flags, predict_layers(runs, flags == "")


def _carried(runs: DpuRuns, modelled_s: FloatArray, good: BoolArray) -> FloatArray:
    """Single-thread times on other boards: the source board's measurement times the
    model's ratio.
    """
    keys = list(zip(runs.column("release"), runs.cores, runs.column("network"), strict=True))
    is_source = runs.column("board") == _SOURCE_BOARD
    ratio = runs.times_s("single") / modelled_s
    usable = np.flatnonzero(is_source & good & np.isfinite(modelled_s))
    source = {keys[row]: ratio[row] for row in usable.tolist()}
    ratios = np.array([source.get(key, np.nan) for key in keys])
    return np.where(good & ~is_source, modelled_s * ratios, np.nan)


def _batches(
    runs: DpuRuns, mode: str, predicted_s: FloatArray, way: TextArray, flags: TextArray
) -> list[MeasuredBatch]:
    """One batch per release; bad rows and rows nothing is known of are refused."""
    measured = runs.times_s(mode)
    release = runs.column("release")
    label = np.array(
        [f"{row.network} on {row.board} {row.core} x{row.core_count:g}" for row in runs.rows]
    )
    sigma = _sigma(runs, way)
    profile = catalog.device("zcu102")
    peak = runs.column("peak_per_s")
    line_s = np.where(peak > 0, runs.column("operations") / peak, np.nan)
    stated = np.isfinite(measured)
    answered = stated & (flags == "") & np.isfinite(predicted_s)
    families = np.array(runs.families)
    fault = np.where(flags == "", "operations or input size not stated", flags)
    batches: list[MeasuredBatch] = []
    for name in np.unique(release).tolist():
        own = release == name
        rows = own & answered
        if rows.any():
            predict = fixed_prediction(Prediction(predicted_s[rows], sigma[rows]))
            columns = (way[rows], label[rows], measured[rows], line_s[rows])
            setting, origin = np.full(len(label[rows]), _SETTING), families[rows]
            batches.append(
                MeasuredBatch(name, profile, *columns, predict, setting=setting, origin=origin)
            )
        lost = own & stated & ~answered
        for reason in np.unique(fault[lost]).tolist():
            rows = lost & (fault == reason)
            asked = (way[rows], label[rows], measured[rows])
            batches.append(refused_batch(name, *asked, f"bad row: {reason}"))
    return batches


def _sigma(runs: DpuRuns, way: TextArray) -> FloatArray:
    """Spread of each row's prediction."""
    shipped = shipped_rates()
    pairs = zip(way.tolist(), runs.rows, strict=True)
    spread = np.array([_way_sigma(shipped, name, row) for name, row in pairs])
    spread = np.hypot(spread, shipped.log_sigma["gates"] * _gate_fractions(runs, way, shipped))
    is_unknown = ~runs.has_layers & np.char.endswith(way, "fallback")
    return np.where(is_unknown, shipped.log_sigma["unknown layers"], spread)


def _way_sigma(shipped: ShippedRates, way: str, row: DpuRow) -> float:
    """Spread of a way of predicting; batch engines have their own."""
    if not way.endswith("engines"):
        return shipped.log_sigma[way]
    engine = shipped.engines[engine_of(row)]
    return engine.single_log_sigma if way.startswith("single") else engine.multi_log_sigma


def _gate_fractions(runs: DpuRuns, way: TextArray, shipped: ShippedRates) -> FloatArray:
    """Share of each row's time in gates; 0 where no layer model predicts the row."""
    is_layers = np.char.endswith(way, "layers") | np.char.endswith(way, "unseen core")
    is_engines = np.char.endswith(way, "engines")
    overlay = np.array([engine_of(row) for row in runs.rows])
    parts = [(is_layers, join_runs, shipped.of(shipped.newest))]
    for name, engine in shipped.engines.items():
        parts.append((is_engines & (overlay == name), join_engines, engine.rates))
    fractions = np.zeros(len(runs.rows))
    for rows, join, rates in parts:
        if rows.any():
            fractions[rows] = gate_fractions(join(runs.take(np.flatnonzero(rows))), rates)
    return fractions
