"""Operators of one run, or of the same run on several devices: their roofline, and their time and
energy by kind, layer and limit.

A roofline has FLOP/s of an operator over its arithmetic intensity, beneath the device's peak and
its memory bandwidth (Williams, Waterman and Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.files.formats import records
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.quantity import duration, flop_rate, size
from accelsim.report.page import DataTable, Section, figure, trace
from accelsim.report.parts import COLOURS, bars, folded, full_names, short

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
#: Column that operators are grouped by -> what it is.
_GROUPED = {"kind": "kind of operator", "layer": "layer", "bound": "what limits it"}


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
    points = [_placed(run) for run in runs]
    shown = [point.head(share) for point in points]
    traces: list[Document] = []
    for index, (run, rows) in enumerate(zip(runs, shown, strict=True)):
        groups = [(run.name, rows)] if several else rows.groupby("kind", sort=False)
        traces += [
            _points(str(name), part, number) for number, (name, part) in enumerate(groups, index)
        ]
    for index, (run, rows) in enumerate(zip(runs, shown, strict=True)):
        colour = COLOURS[index % len(COLOURS)] if several else COLOURS[5]
        line = {"line": {"color": colour, "width": 2}, "showlegend": not several}
        traces += [one | line for one in _roof(run, rows["intensity"])]
    said = [_said(run, *parts) for run, *parts in zip(runs, points, shown, strict=True)]
    words = " ".join(filter(None, (text, *said)))
    listed = [row for frame in shown for row in records(frame)]
    listed.sort(key=lambda row: -row["time_s"])
    seen = ("run", "kind", "bound", "intensity", "flop_per_s")
    listed = folded(listed, "operator", ["time_s"], seen)
    listed.sort(key=lambda row: -row["time_s"])
    titles = (
        f"{f'{_what(runs)}=run | ' if several else ''}operator | kind | >FLOP/B=intensity:number | "
        ">FLOP/s=flop_per_s | >time=time_s | limited by=bound"
    )
    table = DataTable.of(titles, listed, summed="time_s")
    drawn = figure(traces, "arithmetic intensity, FLOP/B", "FLOP/s", "xy")
    return Section(name, title, table, words, drawn)


def _placed(run: OperatorRun) -> pd.DataFrame:
    """Operators that have a place in a roofline, longest first."""
    frame = run.frame
    has_place = (frame["flop"] > 0) & (frame["bytes"] > 0) & (frame["time_s"] > 0)
    rows = frame[has_place].sort_values("time_s", ascending=False)
    return rows.assign(
        intensity=rows["flop"] / rows["bytes"],
        flop_per_s=rows["flop"] / rows["time_s"],
        run=run.name,
        operator=full_names(rows),
    )


def _points(name: str, rows: pd.DataFrame, place: int) -> Document:
    return trace(
        name,
        short(rows["intensity"]),
        short(rows["flop_per_s"]),
        text=rows["operator"].tolist(),
        hovertemplate="%{text}<br>%{x:.3s} FLOP/B, %{y:.3s}FLOP/s<extra></extra>",
        marker={"size": 8, "color": COLOURS[place % len(COLOURS)], "opacity": 0.75},
    )


def _roof(run: OperatorRun, intensity: pd.Series[float]) -> list[Document]:
    peak, bandwidth = run.peak_flop_per_s, run.device.memory_bandwidth_bytes_per_s
    if peak is None or bandwidth is None or intensity.empty:
        return []
    ridge = peak / bandwidth
    ends = [min(float(intensity.min()), ridge) / 2, ridge, max(float(intensity.max()), ridge) * 2]
    rates = short([min(peak, x * bandwidth) for x in ends])
    name = f"{run.name} roof, {run.precision}"
    return [trace(name, short(ends), rates, "lines", hoverinfo="skip")]


def _said(run: OperatorRun, points: pd.DataFrame, shown: pd.DataFrame) -> str:
    """What is drawn of a run, what is left out, and the roof in numbers."""
    left = run.frame.drop(points.index)
    left_s = float(left["time_s"].sum())
    apart = f"; {len(left):,} without ({duration(left_s)}) have no place in it" if left_s else ""
    return (
        f"{run.name}: {len(shown):,} of {len(points):,} operators with arithmetic drawn"
        f"{apart}; peak {flop_rate(run.peak_flop_per_s)}, memory "
        f"{size(run.device.memory_bandwidth_bytes_per_s)}/s."
    )


def _what(runs: Sequence[OperatorRun]) -> str:
    """What tells runs apart."""
    return "step" if runs[0].words else "device"


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

    sums = [_sums(run.frame, column).assign(run=run.name) for run in runs]
    both = pd.concat(sums)
    most = both["energy_j"].groupby(level=0).max().sort_values(ascending=False)
    rows = records(both.assign(group=both.index.astype(str)))
    order = {str(group): index for index, group in enumerate(most.index)}
    rows.sort(key=lambda row: order[row["group"]])
    shown = list(order)[:_MOST_BESIDE]
    series = {
        run.name: [known.get(group) for group in shown]
        for run in runs
        for known in [{row["group"]: row["energy_j"] for row in rows if row["run"] == run.name}]
    }
    drawn = bars(shown, series, "dynamic energy, J")
    titles = (
        f"{column}=group | {_what(runs)}=run | >time=time_s | >dynamic energy=energy_j | >of its "
        "energy=energy_fraction"
    )
    text = f"{len(shown):,} of {len(order):,} groups drawn; idle power is in none of them."
    return Section(name, title, DataTable.of(titles, rows, summed="energy_j"), text, drawn)


def _sums(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Time and energy of groups of operators, and their shares; the longest first."""
    sums = frame.groupby(column, sort=False)[["time_s", "energy_j"]].sum(min_count=1)
    sums = sums.sort_values("time_s", ascending=False)
    for name in ("time", "energy"):
        own = sums["time_s" if name == "time" else "energy_j"]
        sums[f"{name}_fraction"] = own / (own.sum() or np.nan)
    return sums


def group_section(frame: pd.DataFrame, column: str, of: str = "") -> Section:
    """Time and energy of groups of operators, largest first.

    Args:
        frame: Operators with time_s, energy_j and the column.
        column: What they are grouped by.
        of: What they are of, where that is not a run.
    """
    sums = _sums(frame, column)
    rows = folded(records(sums.assign(group=sums.index.astype(str))), "group", list(sums.columns))
    rows.sort(key=lambda row: -row["time_s"])
    names = [str(row["group"]) for row in rows]
    drawn = min(len(names), _MAX_GROUPS)
    series = {
        f"share of {name}": short([100 * (row[f"{name}_fraction"] or 0.0) for row in rows[:drawn]])
        for name in ("time", "energy")
    }
    titles = (
        f"{column}=group | >time=time_s | >of time=time_fraction | >dynamic energy=energy_j | >of "
        "energy=energy_fraction"
    )
    text = (
        f"{len(names):,} groups, {drawn:,} drawn; idle power is in none of them. (n ×): n equal "
        "layers together."
    )
    table = DataTable.of(titles, rows, summed="time_s")
    title = f"Time and energy{of and f' of {of}'} by {_GROUPED[column]}"
    return Section(f"by-{column}", title, table, text, bars(names, series, "share, %"))
