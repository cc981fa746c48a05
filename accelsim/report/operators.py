"""Operators of one run, or of the same run on several devices: their roofline, and their time and
energy by kind, layer and limit.

A roofline has FLOP/s of an operator over its arithmetic intensity, beneath the device's peak and
its memory bandwidth (Williams, Waterman and Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.report.page import Cell, DataTable, Section, axis, cell, figure, label
from accelsim.report.parts import COLOURS, bars, full_names, joules, rest_row, short
from accelsim.report.quantity import amount, duration, number, percent

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.graph import FloatArray

#: Points of a figure at most.
_MAX_POINTS = 5_000
#: Groups that a figure draws.
_MAX_GROUPS = 40
#: Groups of a figure with bars for several devices.
_MOST_BESIDE = 12
_rate = partial(amount, unit="FLOP/s", small=False)
_bytes = partial(amount, unit="B", small=False)


@frozen(eq=False)
class OperatorRun:
    """Operators of a run on a device.

    Attributes:
        device: Where they run.
        precision: Format whose peak is the roof.
        frame: A row for each: path, name, kind, bound, time_s, energy_j, flop and bytes.
        words: What tells it from other runs; the device's name if empty.
    """

    device: DeviceProfile
    precision: str
    frame: pd.DataFrame
    words: str = ""

    @property
    def name(self) -> str:
        """What it is called beside others."""
        return self.words or self.device.name

    @property
    def peak_flop_per_s(self) -> float | None:
        """Peak at the run's precision; None where the profile has none for it."""
        peaks = {dtype.label: rate for dtype, rate in self.device.peak_flop_per_s.items()}
        return peaks.get(self.precision)


def roofline_section(
    runs: Sequence[OperatorRun], text: str = "", *, name: str = "roofline", title: str = "Roofline"
) -> Section:
    """Every operator by intensity and rate, longest first: coloured by kind on one device, by
    device on several.

    Args:
        runs: At least one.
        text: What else is to be said.
        name: Id of the table.
        title: Heading.
    """
    several = len(runs) > 1
    share = _MAX_POINTS // len(runs)
    points = [_placed(run.frame) for run in runs]
    shown = [one.head(share) for one in points]
    traces: list[Document] = []
    for place, (run, rows) in enumerate(zip(runs, shown, strict=True)):
        if several:
            traces.append(_points(run.name, rows, place))
        else:
            traces += _by_kind(rows)
    roofs = [_roof(run, rows["intensity"]) for run, rows in zip(runs, shown, strict=True)]
    for place, roof in enumerate(roofs):
        colour = COLOURS[place % len(COLOURS)] if several else COLOURS[5]
        line = {"line": {"color": colour, "width": 2}, "showlegend": not several}
        traces += [one | line for one in roof]
    layout = {
        "xaxis": axis("arithmetic intensity, FLOP/B", type="log"),
        "yaxis": axis("FLOP/s", type="log", tickformat="~s"),
    }
    said = [_said(run, *parts) for run, *parts in zip(runs, points, shown, strict=True)]
    words = " ".join(filter(None, (text, *said)))
    table = _table(runs, shown)
    return Section(name, title, table, words, figure(traces, **layout))


def _placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Operators that have a place in a roofline, longest first."""
    has_place = (frame["flop"] > 0) & (frame["bytes"] > 0) & (frame["time_s"] > 0)
    rows = frame[has_place].sort_values("time_s", ascending=False)
    return rows.assign(
        intensity=rows["flop"] / rows["bytes"], flop_per_s=rows["flop"] / rows["time_s"]
    )


def _by_kind(rows: pd.DataFrame) -> list[Document]:
    kinds = rows["kind"].unique().tolist()
    return [_points(kind, rows[rows["kind"] == kind], place) for place, kind in enumerate(kinds)]


def _points(name: str, rows: pd.DataFrame, place: int) -> Document:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "x": short(rows["intensity"]),
        "y": short(rows["flop_per_s"]),
        "text": [label(text) for text in full_names(rows)],
        "hovertemplate": "%{text}<br>%{x:.3s} FLOP/B, %{y:.3s}FLOP/s<extra></extra>",
        "marker": {"size": 8, "color": COLOURS[place % len(COLOURS)], "opacity": 0.75},
    }


def _roof(run: OperatorRun, intensity: pd.Series[float]) -> list[Document]:
    peak, bandwidth = run.peak_flop_per_s, run.device.memory_bandwidth_bytes_per_s
    if peak is None or bandwidth is None or intensity.empty:
        return []
    ridge = peak / bandwidth
    ends = [min(float(intensity.min()), ridge) / 2, ridge, max(float(intensity.max()), ridge) * 2]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": label(f"{run.name} roof, {run.precision}"),
            "x": short(ends),
            "y": short([min(peak, x * bandwidth) for x in ends]),
            "hoverinfo": "skip",
        }
    ]


def _said(run: OperatorRun, points: pd.DataFrame, shown: pd.DataFrame) -> str:
    """What is drawn of a run, what is left out, and the roof in numbers."""
    left = run.frame.drop(points.index)
    left_s = float(left["time_s"].sum())
    apart = f"; {len(left):,} without ({duration(left_s)}) have no place in it" if left_s else ""
    return (
        f"{run.name}: {len(shown):,} of {len(points):,} operators with arithmetic drawn"
        f"{apart}; peak {_rate(run.peak_flop_per_s)}, memory "
        f"{_bytes(run.device.memory_bandwidth_bytes_per_s)}/s."
    )


def _table(runs: Sequence[OperatorRun], shown: Sequence[pd.DataFrame]) -> DataTable:
    """All operators, longest first; the device where there are several."""
    several = len(runs) > 1
    rows = [
        ((run.name,) if several else ()) + cells
        for run, frame in zip(runs, shown, strict=True)
        for cells in _cells(frame)
    ]
    time = 4 + several
    rows.sort(key=lambda row: -_value(row[time]))
    titles = ("operator", "kind", ">FLOP/B", ">FLOP/s", ">time", "limited by")
    return DataTable(((_what(runs),) if several else ()) + titles, rest_row(rows, time, duration))


def _what(runs: Sequence[OperatorRun]) -> str:
    """What tells runs apart."""
    return "step" if runs[0].words else "device"


def _value(found: str | Cell) -> float:
    return found.value or 0.0 if isinstance(found, Cell) else 0.0


def _cells(frame: pd.DataFrame) -> Iterable[tuple[Any, ...]]:
    columns = [
        frame[name].tolist() for name in ("kind", "intensity", "flop_per_s", "time_s", "bound")
    ]
    for name, kind, x, y, time, bound in zip(full_names(frame), *columns, strict=True):
        yield name, kind, cell(x, number), cell(y, _rate), cell(time, duration), bound


def layers_of(paths: Sequence[str]) -> FloatArray:
    """Layer of each path: its first parts, up to the first number, as few as a figure holds."""
    parts = [path.split(".") for path in paths]
    numbered = [
        ".".join(words[: next((i + 1 for i, w in enumerate(words) if w.isdigit()), 1)])
        for words in parts
    ]
    short = [words[0] for words in parts]
    names = numbered if len(set(numbered)) <= _MAX_GROUPS else short
    return np.array([name or "(whole model)" for name in names], dtype=object)


def energy_section(runs: Sequence[OperatorRun], column: str, *, name: str, title: str) -> Section:
    """Energy of groups of operators of several runs: a bar for each run.

    Args:
        runs: At least one.
        column: What the operators are grouped by.
        name: Id of the table.
        title: Heading.
    """
    import pandas as pd

    sums = {
        run.name: run.frame.groupby(column, sort=False)[["time_s", "energy_j"]].sum(min_count=1)
        for run in runs
    }
    most = pd.concat([one["energy_j"] for one in sums.values()]).groupby(level=0).max()
    groups = [str(group) for group in most.sort_values(ascending=False).index]
    rows = [
        (
            group,
            device,
            cell(float(one["time_s"][group]), duration),
            cell(_known(one["energy_j"], group), joules),
            cell(_share(one["energy_j"], group), percent),
        )
        for group in groups
        for device, one in sums.items()
        if group in one.index
    ]
    shown = groups[:_MOST_BESIDE]
    series = {
        device: [_known(one["energy_j"], group) for group in shown] for device, one in sums.items()
    }
    drawn = bars(shown, series, "dynamic energy, J", exponentformat="SI")
    titles = (column, _what(runs), ">time", ">dynamic energy", ">of its energy")
    text = f"{len(shown):,} of {len(groups):,} groups drawn; idle power is in none of them."
    table = DataTable(titles, rest_row(rows, 3, joules))
    return Section(name, title, table, text, drawn)


def _known(energies: pd.Series[float], group: str) -> float | None:
    energy = float(energies.get(group, np.nan))
    return energy if np.isfinite(energy) else None


def _share(energies: pd.Series[float], group: str) -> float | None:
    total, energy = float(energies.sum()), _known(energies, group)
    return energy / total if total and energy is not None else None


def group_section(frame: pd.DataFrame, column: str, title: str) -> Section:
    """Time and energy of groups of operators, largest first.

    Args:
        frame: Operators with time_s, energy_j and the column.
        column: What they are grouped by.
        title: Heading.
    """
    sums = frame.groupby(column, sort=False)[["time_s", "energy_j"]].sum(min_count=1)
    sums = sums.sort_values("time_s", ascending=False)
    total_s, total_j = float(sums["time_s"].sum()), float(sums["energy_j"].sum())
    names = [str(name) for name in sums.index]
    rows = [
        (
            name,
            cell(time, duration),
            cell(time / total_s if total_s else None, percent),
            cell(energy, joules),
            cell(energy / total_j if total_j else None, percent),
        )
        for name, time, energy in zip(
            names, sums["time_s"].tolist(), sums["energy_j"].tolist(), strict=True
        )
    ]
    drawn = min(len(names), _MAX_GROUPS)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": what,
            "y": [label(name) for name in names[:drawn]],
            "x": short(100 * (sums[source] / (total or 1.0)).head(drawn)),
            "marker": {"color": colour},
        }
        for what, source, total, colour in (
            ("share of time", "time_s", total_s, COLOURS[0]),
            ("share of energy", "energy_j", total_j, COLOURS[1]),
        )
    ]
    layout = {
        "height": 160 + 26 * drawn,
        "xaxis": axis("share, %"),
        "yaxis": axis("", autorange="reversed"),
    }
    titles = (column, ">time", ">of time", ">dynamic energy", ">of energy")
    text = f"{len(names):,} groups, {drawn:,} drawn; idle power is in none of them."
    table = DataTable(titles, rest_row(rows, 1, duration))
    return Section(f"by-{column}", title, table, text, figure(traces, **layout))
