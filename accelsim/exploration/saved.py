"""Reads results that commands saved: JSON files, and folders of sweeps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from accelsim.errors import InputError, ProfileError
from accelsim.estimation.pareto import known_front
from accelsim.exploration.sweeps.results import frames, stored
from accelsim.files.datafile import MAX_DEPTH
from accelsim.files.formats import records
from accelsim.files.plainfile import parse_values, read_plain
from accelsim.plain import Document

if TYPE_CHECKING:
    import pandas as pd

#: Largest file that is read; larger results are folders of sweeps.
MAX_BYTES = 128_000_000
#: Columns of a sweep that a page shows.
_COLUMNS = (
    *("workload", "device", "mode", "batch", "latency_s", "throughput_per_s"),
    *("energy_per_sample_j", "cost_usd_per_1000", "bound", "reason", "offer"),
    *("usd_per_hour", "average_power_w"),
)
#: What the points of one answer share, and the figures that a page compares them by.
_SAME = ("workload", "mode")
_GOALS = ("latency_s", "energy_per_sample_j", "cost_usd_per_1000")
_FIGURES = (*_GOALS, "throughput_per_s")
#: Points of a sweep that a page takes in, drawn at random, beside those that its words rest on.
_MOST_POINTS = 100_000


def read_result(path: Path) -> object:
    """A saved result as plain values.

    Args:
        path: JSON file of a command, or folder of a sweep.

    Raises:
        InputError: If it cannot be read, is too large, or is no JSON.
        MissingDependencyError: If it is a sweep and pyarrow is not installed.
    """
    if path.is_dir():
        return _sweep_rows(path)
    try:
        document = parse_values(read_plain(path, MAX_BYTES), str(path))
    except ProfileError as refused:
        remedy = (
            "Results are JSON as --format json --out FILE.json writes it; keep large ones with "
            "accelsim sweep, whose folder is read in parts."
        )
        raise InputError(f"{refused}. {remedy}") from None
    return _checked(document, path)


def _checked(document: object, path: Path) -> object:
    """The document, no deeper than data files are."""
    layer = [document]
    for _ in range(MAX_DEPTH):
        nested = (item for item in layer if isinstance(item, dict | list))
        values = (item.values() if isinstance(item, dict) else item for item in nested)
        layer = list(chain.from_iterable(values))
    if layer:
        raise InputError(f"{path} is nested more than {MAX_DEPTH} deep.")
    return document


def _sweep_rows(folder: Path) -> list[Document]:
    columns, count = stored(folder)
    table = _page_points(folder, columns, count)
    rows = [row | {"reason": row.get("reason") or None} for row in records(table)]
    if len(rows) < count:
        shown = f"{len(rows):,} of {count:,} points are shown and counted"
        answered = (row for row in rows if row["reason"] is None)
        next(answered, rows[0])["warnings"] = [f"{shown}; the best are those of all"]
    return rows


def _page_points(folder: Path, columns: Sequence[str], count: int) -> pd.DataFrame:
    """Points that a page takes in: all, or some drawn at random and those its words rest on."""
    import pandas as pd

    is_estimate = "latency_s" in columns  # answers of other commands have other figures
    names = [name for name in _COLUMNS if name in columns] if is_estimate else columns
    is_all = count <= _MOST_POINTS
    drawn = np.arange(count)
    if not is_all:
        generator = np.random.default_rng(0)
        drawn = np.sort(generator.choice(count, _MOST_POINTS, replace=False, shuffle=False))
    drawn_frames, rivals = [], []
    for frame in frames(folder, names):
        ends = np.searchsorted(drawn, (frame.index[0], frame.index[-1] + 1))
        drawn_frames.append(frame.loc[drawn[slice(*ends)]])
        if is_estimate and not is_all:
            rivals.append(frame[frame.index.isin(_deciding(frame))])
    table = pd.concat(drawn_frames)
    if not rivals:
        return table
    rival_points = pd.concat(rivals)
    deciding = rival_points[rival_points.index.isin(_deciding(rival_points))]
    return pd.concat([table, deciding.drop(table.index, errors="ignore")]).sort_index()


def _deciding(frame: pd.DataFrame) -> set[Hashable]:
    """Places of the points that the words of a page rest on: of each model and mode the best by
    each figure, those that none beats, and the fastest of each device.
    """
    reason = frame["reason"]
    good = frame[reason.isna() | (reason == "")]
    good = good.reindex(columns=[*_SAME, "device", *_FIGURES])
    deciding = set[Hashable]()
    for _, points in good.groupby(list(_SAME), dropna=False, sort=False, observed=True):
        deciding.update(
            points.groupby("device", dropna=False, observed=True)["throughput_per_s"]
            .idxmax()
            .dropna()
        )
        for name in _GOALS:
            values = points[name].dropna()
            deciding.update([values.idxmin()] if len(values) else [])
        timed = points[points["latency_s"].notna()]
        deciding.update(timed.index[known_front(timed[list(_GOALS)].to_numpy(float))])
    return deciding
