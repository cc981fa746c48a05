"""Predicts rows of Alveo cards, the VCK190 and the VCK5000, whose overlays are batch engines, with
each family left out.

One set of rates per overlay holds for all boards, clocks and releases. Other data-centre overlays
keep the fallback of `tools.scoreboard.dpu_prediction`. With families left out, this model and
the fallback have median errors of 44 and 29 % on the DPUCAHX8L, 37 and 30 % on the V70's
DPUCV2DX8G (13 families). No board of the catalogue has the DPUCVDX8H's four or six engines, and its
eight are 35 and 57 % off, but 87 and 56 % on average. The DPUCADF8H of the U200 and U250 has ten
good rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.fpga.batch_engines import engine_boards, engine_times_s
from accelsim.cost.fpga.network import DpuNetworks, DpuRates
from accelsim.cost.fpga.network_rates import release_order
from accelsim.workloads.graph import BoolArray, FloatArray
from tools.scoreboard.dpu_check import DpuRow
from tools.scoreboard.dpu_fit import family_folds, fit_rates
from tools.scoreboard.dpu_prediction import DpuRuns, join_known

#: (PP, ICP, OCP) of an engine: 2,048 and 4,096 multiply-adds per cycle (AMD PG367; PG389).
_PARALLELISM = {
    "DPUCAHX8H": (8.0, 16.0, 16.0),
    "DPUCAHX8H-DWC": (8.0, 16.0, 16.0),
    "DPUCVDX8G": (16.0, 16.0, 16.0),
}
#: Clocks that neighbouring releases contradict: the same rates of the same engines stand at these.
_CLOCK_SLIPS = {("v1.3.2", "Alveo U280", 14): 150e6, ("v1.3.2", "Alveo U50", 10): 247.5e6}
#: Clock of the AI engines where the table gives that of the fabric.
_AI_ENGINE_HZ = 1.25e9
#: Engines of the VCK190: batches of three before release 2.5, of six since (AMD UG1414).
_FEW_ENGINES, _ENGINES = 3.0, 6.0
#: A server's host is faster than the Zynq boards' that first guesses are of.
_FIRST = replace(DpuRates(), image_s=1e-4, pixel_s=1e-9, layer_s=1e-5)
_LEAST_ROWS = 20


def engine_of(row: DpuRow) -> str:
    """Overlay whose rates a row takes; empty where it has none of these."""
    if row.core.startswith(("DPUCAHX8H", "DPUv3E")):  # one overlay, renamed
        return "DPUCAHX8H-DWC" if "DWC" in row.core else "DPUCAHX8H"
    return "DPUCVDX8G" if row.core.startswith("DPUCVDX8G") else ""


def _clock_and_engines(row: DpuRow) -> tuple[float, float]:
    if engine_of(row) != "DPUCVDX8G":
        slip = _CLOCK_SLIPS.get((row.release, row.board, int(row.core_count)))
        return slip or row.clock_hz, row.core_count
    engines = _ENGINES if release_order(row.release) >= (2, 5) else _FEW_ENGINES
    return max(row.clock_hz, _AI_ENGINE_HZ), engines


def join_engines(runs: DpuRuns) -> DpuNetworks:
    """Networks on their boards; every row has batch engines and a known network."""
    placed = np.array([_clock_and_engines(row) for row in runs.rows])
    sides = np.array([_PARALLELISM[engine_of(row)] for row in runs.rows])
    return join_known(runs, engine_boards(sides, placed[:, 0], placed[:, 1]))


def fit_engine(runs: DpuRuns) -> DpuRates:
    """Rates of one overlay that fit rows with known layers."""
    measured = (runs.times_s("single"), runs.times_s("multi"))
    return fit_rates(join_engines(runs), *measured, first=_FIRST, times=engine_times_s)


def predict_engines(runs: DpuRuns, good: BoolArray) -> FloatArray:
    """Single- and multi-thread times of rows on batch engines with known layers, the row's family
    left out; s, shape (2, n).

    Args:
        runs: Rows of any core.
        good: Rows that may be fitted to.

    Returns:
        NaN where a row is none of these, or too few rows of other families remain.
    """
    overlay = np.array([engine_of(row) for row in runs.rows])
    fold = family_folds(runs.families)
    times = np.full((2, len(runs.rows)), np.nan)
    for name in _PARALLELISM:
        own = runs.known & (overlay == name)
        for index in np.unique(fold[own & good]):
            train = own & good & (fold != index)
            asked = own & (fold == index)
            if train.sum() >= _LEAST_ROWS:
                rates = fit_engine(runs.take(np.flatnonzero(train)))
                joined = join_engines(runs.take(np.flatnonzero(asked)))
                times[:, asked] = engine_times_s(joined, rates)
    return times
