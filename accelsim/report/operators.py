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
from accelsim.report.page import Section, figure, trace
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
        step: What tells it from other runs; the device's name if empty.
    """

    device: DeviceProfile
    precision: str
    frame: pd.DataFrame
    step: str = ""

    @property
    def name(self) -> str:
        """What it is called beside others."""
        return self.step or self.device.name

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
    placed = [_placed(run) for run in runs]
    shown = [rows.head(_MAX_POINTS // len(runs)) for rows in placed]
    texts = [_drawn_text(*each) for each in zip(runs, placed, shown, strict=True)]
    rows = [row for frame in shown for row in records(frame)]
    rows.sort(key=lambda row: -row["time_s"])
    same = ("run", "kind", "bound", "intensity", "flop_per_s")
    rows = folded(rows, "operator", ["time_s"], same)
    rows.sort(key=lambda row: -row["time_s"])
    run_column = f"{_kind_of_run(runs)}=run | " if len(runs) > 1 else ""
    columns = (
        f"{run_column}operator | kind | >FLOP/B=intensity:number | "
        ">FLOP/s=flop_per_s | >time=time_s | limited by=bound"
    )
    picture = figure(_traces(runs, shown), "arithmetic intensity, FLOP/B", "FLOP/s", "xy")
    text = " ".join(filter(None, (text, *texts)))
    return Section.of(name, title, columns, rows, text, picture, summed="time_s")


def _traces(runs: Sequence[OperatorRun], shown: Sequence[pd.DataFrame]) -> list[Document]:
    """Operators as points, then the roofs above them."""
    is_alone = len(runs) == 1
    marks: list[Document] = []
    roofs: list[Document] = []
    for index, (run, rows) in enumerate(zip(runs, shown, strict=True)):
        groups = rows.groupby("kind", sort=False) if is_alone else [(run.name, rows)]
        marks += [_points(str(name), group, n) for n, (name, group) in enumerate(groups, index)]
        colour = COLOURS[5 if is_alone else index % len(COLOURS)]
        line = {"line": {"color": colour, "width": 2}, "showlegend": is_alone}
        roofs += [roof | line for roof in _roof(run, rows["intensity"])]
    return marks + roofs


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


def _points(name: str, rows: pd.DataFrame, index: int) -> Document:
    return trace(
        name,
        short(rows["intensity"]),
        short(rows["flop_per_s"]),
        text=rows["operator"].tolist(),
        hovertemplate="%{text}<br>%{x:.3s} FLOP/B, %{y:.3s}FLOP/s<extra></extra>",
        marker={"size": 8, "color": COLOURS[index % len(COLOURS)], "opacity": 0.75},
    )


def _roof(run: OperatorRun, intensity: pd.Series[float]) -> list[Document]:
    """The lesser of peak and bandwidth times intensity (Williams et al. 2009)."""
    peak, bandwidth = run.peak_flop_per_s, run.device.memory_bandwidth_bytes_per_s
    if peak is None or bandwidth is None or intensity.empty:
        return []
    ridge = peak / bandwidth
    ends = [min(float(intensity.min()), ridge) / 2, ridge, max(float(intensity.max()), ridge) * 2]
    rates = short([min(peak, end * bandwidth) for end in ends])
    name = f"{run.name} roof, {run.precision}"
    return [trace(name, short(ends), rates, "lines", hoverinfo="skip")]


def _drawn_text(run: OperatorRun, placed: pd.DataFrame, shown: pd.DataFrame) -> str:
    """What is drawn of a run, what is left out, and the roof in numbers."""
    others = run.frame.drop(placed.index)
    others_s = float(others["time_s"].sum())
    apart = f"; {len(others):,} without ({duration(others_s)}) have no place in it"
    return (
        f"{run.name}: {len(shown):,} of {len(placed):,} operators with arithmetic drawn"
        f"{apart if others_s else ''}; peak {flop_rate(run.peak_flop_per_s)}, memory "
        f"{size(run.device.memory_bandwidth_bytes_per_s)}/s."
    )


def _kind_of_run(runs: Sequence[OperatorRun]) -> str:
    """What tells runs apart."""
    return "step" if runs[0].step else "device"


def layers_of(paths: Sequence[str]) -> FloatArray:
    """Layer of each path: its first parts, up to the first number, as few as a figure holds."""
    parts = [path.split(".") for path in paths]
    numbered = [
        ".".join(path[: next((i + 1 for i, name in enumerate(path) if name.isdigit()), 1)])
        for path in parts
    ]
    names = numbered if len(set(numbered)) <= _MAX_GROUPS else [path[0] for path in parts]
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

    sums = pd.concat([_sums(run.frame, column).assign(run=run.name) for run in runs])
    largest = sums["energy_j"].groupby(level=0).max().sort_values(ascending=False)
    groups = list(map(str, largest.index))
    rows = records(sums.assign(group=sums.index.astype(str)))
    rows.sort(key=lambda row: groups.index(row["group"]))
    energies_j = {(row["run"], row["group"]): row["energy_j"] for row in rows}
    shown = groups[:_MOST_BESIDE]
    series = {run.name: [energies_j.get((run.name, group)) for group in shown] for run in runs}
    picture = bars(shown, series, "dynamic energy, J")
    columns = (
        f"{column}=group | {_kind_of_run(runs)}=run | >time=time_s | >dynamic energy=energy_j | "
        ">of its energy=energy_fraction"
    )
    text = f"{len(shown):,} of {len(groups):,} groups drawn; idle power is in none of them."
    return Section.of(name, title, columns, rows, text, picture, summed="energy_j")


def _sums(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Time and energy of groups of operators, and their shares; the longest first."""
    sums = frame.groupby(column, sort=False)[["time_s", "energy_j"]].sum(min_count=1)
    sums = sums.sort_values("time_s", ascending=False)
    for name in ("time", "energy"):
        amounts = sums["time_s" if name == "time" else "energy_j"]
        sums[f"{name}_fraction"] = amounts / (amounts.sum() or np.nan)
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
    columns = (
        f"{column}=group | >time=time_s | >of time=time_fraction | >dynamic energy=energy_j | >of "
        "energy=energy_fraction"
    )
    text = (
        f"{len(names):,} groups, {drawn:,} drawn; idle power is in none of them. (n ×): n equal "
        "layers together."
    )
    title = f"Time and energy{of and f' of {of}'} by {_GROUPED[column]}"
    picture = bars(names, series, "share, %")
    return Section.of(f"by-{column}", title, columns, rows, text, picture, summed="time_s")
