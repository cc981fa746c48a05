"""Reads results that commands saved: JSON files, and folders of sweeps."""

from __future__ import annotations

from collections.abc import Hashable
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
from accelsim.workloads.graph import IntArray

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
    level, layer = 0, [document]
    while layer:
        level += 1
        if level > MAX_DEPTH:
            raise InputError(f"{path} is nested more than {MAX_DEPTH} deep.")
        nested = [item for item in layer if isinstance(item, dict | list)]
        layer = [
            value
            for item in nested
            for value in (item.values() if isinstance(item, dict) else item)
        ]
    return document


def _sweep_rows(folder: Path) -> list[Document]:
    import pandas as pd

    columns, count = stored(folder)
    is_estimate = "latency_s" in columns  # answers of other commands have other figures
    names = [name for name in _COLUMNS if name in columns] if is_estimate else columns
    is_all = count <= _MOST_POINTS
    drawn = np.arange(count) if is_all else _draw(count)
    drawn_frames, best, start = [], [], 0
    for frame in frames(folder, names):
        ends = start, start + len(frame)
        drawn_frames.append(frame.loc[drawn[slice(*np.searchsorted(drawn, ends))]])
        start = ends[1]
        if is_estimate and not is_all:
            best.append(frame[frame.index.isin(_deciding(frame))])
    table = pd.concat(drawn_frames)
    if best:
        rivals = pd.concat(best)
        deciding = rivals[rivals.index.isin(_deciding(rivals))]
        table = pd.concat([table, deciding.drop(table.index, errors="ignore")]).sort_index()
    rows = [row | {"reason": row.get("reason") or None} for row in records(table)]
    if len(rows) < count:
        warning = (
            f"{len(rows):,} of {count:,} points are shown and counted; the best are those of all"
        )
        answered = (row for row in rows if row["reason"] is None)
        next(answered, rows[0])["warnings"] = [warning]
    return rows


def _draw(count: int) -> IntArray:
    """Places of the points that a page takes in, in order."""
    places = np.random.default_rng(0).choice(count, _MOST_POINTS, replace=False, shuffle=False)
    return np.sort(places)


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
