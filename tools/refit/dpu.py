"""Rates of DPU layers in ``class/dpu.yaml``, fitted anew to published throughput; names, boards and
other text stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from accelsim.confidence.quantiles import Z90
from accelsim.cost.fpga.network import DpuRates
from accelsim.errors import InputError
from accelsim.scoreboard.data_folder import DataFolder
from tools.refit.files import class_file, write_whole
from tools.scoreboard.dpu import SCHEMA, checked_runs
from tools.scoreboard.dpu_check import bare_core
from tools.scoreboard.dpu_engines import engine_of, fit_engine, predict_engines
from tools.scoreboard.dpu_prediction import FITTED_CORE, fit_runs


def refit_dpu(folder: DataFolder, out: Path, say: Callable[[str], None]) -> Path:
    """Fit the rates of every release and of every overlay of batch engines.

    Rows that the checks find bad take no part. Spreads of batch engines are the 90th percentile of
    the residuals of families left out over the normal's; an overlay without one-thread rows takes
    the all-thread spread for both.

    Args:
        folder: With the table of throughput.
        out: Folder of ``dpu.yaml``.
        say: Takes a line of progress.

    Returns:
        The file written.

    Raises:
        InputError: If the folder has no such table.
    """
    table, before = folder.table(SCHEMA), class_file(out, "dpu")
    if table is None or before is None:
        raise InputError(
            f"no table {SCHEMA.file} in {folder.root}: the rates of DPUs are fitted to it"
        )
    text = before.read_text(encoding="utf-8")
    runs, flags = checked_runs(table)
    good = (flags == "") & runs.known
    index = np.flatnonzero(
        good & np.array([bare_core(row.core) == FITTED_CORE for row in runs.rows])
    )
    release = np.array([runs.rows[row].release for row in index.tolist()])
    common = fit_runs(runs.take(index))
    names = sorted({runs.families[row] for row in index.tolist()})
    text = re.sub(
        r"(?m)^families: \[.*$",
        "families: [" + ", ".join(f'"{name}"' for name in names) + "]",
        text,
    )
    for name in np.unique(release).tolist():
        rates = fit_runs(runs.take(index[release == name]), common)
        text = re.sub(rf"(?m)^  {re.escape(name)}: .*$", f"  {name}: {_entry(rates)}", text)
        say(f"{name}: {(release == name).sum()} rows")

    predicted = dict(zip(("single", "multi"), predict_engines(runs, good), strict=True))
    overlay = np.array([engine_of(row) for row in runs.rows])
    for name in np.unique(overlay[good & (overlay != "")]).tolist():
        own = good & (overlay == name)
        sigma = {}
        for mode, seconds in predicted.items():
            error = np.abs(np.log(runs.times_s(mode)[own] / seconds[own]))
            if np.isfinite(error).any():
                sigma[mode] = float(np.nanpercentile(error, 90)) / Z90
        rates = fit_engine(runs.take(np.flatnonzero(own)))
        spread = ", ".join(
            f"{mode}: {round(sigma.get(mode, sigma['multi']), 2)}" for mode in predicted
        )
        lines = rf"(?m)^(  {re.escape(name)}:\n    boards: .*\n)    log_sigma: .*\n    rates: .*$"
        text = re.sub(lines, rf"\g<1>    log_sigma: {{{spread}}}\n    rates: {_entry(rates)}", text)
        say(f"{name}: {own.sum()} rows")
    return write_whole(out / "dpu.yaml", text)


def _entry(rates: DpuRates) -> str:
    return (
        "{"
        + ", ".join(f"{field.name}: {getattr(rates, field.name):.4e}" for field in fields(rates))
        + "}"
    )
