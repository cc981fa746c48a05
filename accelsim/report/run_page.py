"""The page of one run: its decision, roofline, timeline, power and memory, time and energy by layer
and kind, and where its numbers come from.

The roofline is that of Williams, Waterman and Patterson (CACM 52(4), 2009): FLOP/s of an operator
over its arithmetic intensity, beneath the device's peak and its memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.cost.idle import idle_power_w
from accelsim.plain import Document
from accelsim.report.page import (
    Cell,
    DataTable,
    Page,
    Section,
    axis,
    cell,
    figure,
    label,
)
from accelsim.report.parts import COLOURS, joules, provenance_sections, shares_section
from accelsim.report.quantity import amount, duration, number, percent
from accelsim.report.tables import estimate_lines

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.hardware.profile import DeviceProfile
    from accelsim.planning.estimate import Estimate
    from accelsim.planning.simulate import Simulation
    from accelsim.simulation.timeline import StepFunction, Timeline
    from accelsim.workloads.graph import FloatArray

#: Points, bars and spans of a figure, and rows of a table, at most.
_MAX_POINTS = 5_000
_MAX_SPANS = 2_000
_MAX_STEPS = 1_000
_MAX_ROWS = 200
_MAX_GROUPS = 40
_watts = partial(amount, unit="W")
_bytes = partial(amount, unit="B", small=False)
_rate = partial(amount, unit="FLOP/s", small=False)


def run_page(
    estimate: Estimate,
    device: DeviceProfile,
    simulation: Simulation | None,
    command: str,
    further: Sequence[Section] = (),
) -> Page:
    """The report of one estimate.

    Args:
        estimate: The result.
        device: Profile it was made for.
        simulation: The same run operator by operator; None where it does not fit.
        command: Command that makes the page again.
        further: What else is known of it, before where its numbers come from.
    """
    lines = estimate_lines(estimate, device)
    sections = [Section("figures", "Figures", DataTable(("figure", "value"), lines))]
    if simulation is not None:
        frame = _operator_frame(simulation)
        sections += [
            _roofline(frame, estimate, device),
            _timeline(simulation.timeline),
            _power_and_memory(simulation.timeline, device),
            _shares(frame, "kind", "Time and energy by kind of operator"),
            _shares(frame, "layer", "Time and energy by layer"),
            _shares(frame, "bound", "Time and energy by what limits it"),
        ]
    sections += _components(estimate)
    sections += further
    sections += provenance_sections([estimate.to_dict()], [device])
    title = f"{estimate.workload} on {estimate.device}"
    return Page(title, _decision(estimate, lines), tuple(sections), command, estimate.warnings)


def _components(estimate: Estimate) -> list[Section]:
    """Memory by part, and energy by part of the device where it is known."""
    figures = estimate.figures()
    title = "Memory by part"
    found = [shares_section("memory", title, figures["memory"], _bytes)]
    if figures["energy_parts_j"]:
        title = "Energy by component"
        found.append(shares_section("energy", title, figures["energy_parts_j"], joules))
    return found


def bound_seconds(simulation: Simulation) -> dict[str, float]:
    """Seconds of a run's operators by what limits them, most first.

    Args:
        simulation: The run.
    """
    sums = _operator_frame(simulation).groupby("bound")["time_s"].sum()
    return {str(name): float(sums[name]) for name in sums.sort_values(ascending=False).index}


def _decision(e: Estimate, lines: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The answer in words: time, what limits it, energy and cost; or that it does not fit."""
    said = dict(lines)
    if not e.fits:
        return (f"{e.workload} does not fit on {e.device}.", f"Memory: {said['memory']}.")
    answer = (
        f"{e.workload} on {e.device} takes {duration(e.latency_s)} for a batch of {e.batch:,} "
        f"and does {said['throughput']}."
    )
    interval = f"{duration(e.latency_low_s)} to {duration(e.latency_high_s)}"
    return (
        answer,
        f"It is limited by {said.get('limited by', 'nothing known')}. Memory: {said['memory']}.",
        f"Energy: {said['energy']}. Cost: {said['cost']}.",
        f"{percent(e.interval_level)} interval {interval}; {said['based on']}.",
    )


def _operator_frame(simulation: Simulation) -> pd.DataFrame:
    """Operators of all passes; time, energy, FLOP and bytes of all the times that each runs."""
    frame = simulation.to_frame()
    for name in ("time_s", "energy_j", "flop", "bytes"):
        frame[name] *= frame["repeat_count"]
    layers = _layers(frame["path"].tolist())
    frame["layer"] = frame["pass"] + ": " + layers if len(simulation.passes) > 1 else layers
    return frame


def _layers(paths: Sequence[str]) -> FloatArray:
    """Layer of each path: its first parts, up to the first number, as few as the figure holds."""
    parts = [path.split(".") for path in paths]
    numbered = [
        ".".join(words[: next((i + 1 for i, w in enumerate(words) if w.isdigit()), 1)])
        for words in parts
    ]
    short = [words[0] for words in parts]
    names = numbered if len(set(numbered)) <= _MAX_GROUPS else short
    return np.array([name or "(whole model)" for name in names], dtype=object)


def _roofline(frame: pd.DataFrame, e: Estimate, device: DeviceProfile) -> Section:
    """Every operator by intensity and rate; equal ones are one point."""
    keys = ["path", "name", "kind", "bound", "time_s", "flop", "bytes"]
    has_arithmetic = (frame["flop"] > 0) & (frame["bytes"] > 0) & (frame["time_s"] > 0)
    sums = frame[keys].sort_values("time_s", ascending=False)
    points = sums[has_arithmetic.loc[sums.index]]
    shown = points.head(_MAX_POINTS)
    intensity, rate = shown["flop"] / shown["bytes"], shown["flop"] / shown["time_s"]
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label(kind),
            "x": _short(intensity[shown["kind"] == kind]),
            "y": _short(rate[shown["kind"] == kind]),
            "text": [label(text) for text in _full_names(shown[shown["kind"] == kind])],
            "hovertemplate": "%{text}<br>%{x:.3s} FLOP/B, %{y:.3s}FLOP/s<extra></extra>",
            "marker": {"size": 8, "color": COLOURS[place % len(COLOURS)], "opacity": 0.75},
        }
        for place, kind in enumerate(shown["kind"].unique().tolist())
    ]
    roof = _roof(e, device, intensity)
    layout = {
        "xaxis": axis("arithmetic intensity, FLOP/B", type="log"),
        "yaxis": axis("FLOP/s", type="log", exponentformat="SI"),
    }
    columns = [shown[name].tolist() for name in ("kind", "time_s", "bound")]
    rows = [
        (name, kind, cell(x, number), cell(y, _rate), cell(time, duration), bound)
        for name, kind, time, bound, x, y in zip(
            _full_names(shown), *columns, intensity.tolist(), rate.tolist(), strict=True
        )
    ]
    titles = ("operator", "kind", ">FLOP/B", ">FLOP/s", ">time", "limited by")
    left = frame[~has_arithmetic]
    text = (
        f"{len(points):,} operators with arithmetic, {len(shown):,} of them drawn; {len(left):,} "
        f"without ({duration(float(left['time_s'].sum()))}) have no place in it. Peak: "
        f"{_rate(_peak(e, device))}, memory: {_bytes(device.memory_bandwidth_bytes_per_s)}/s."
    )
    table = _cut(titles, rows, 4, duration)
    return Section("roofline", "Roofline", table, text, figure([*traces, *roof], **layout))


def _peak(e: Estimate, device: DeviceProfile) -> float | None:
    """Peak at the run's precision; None where the profile has none for it."""
    peaks = {dtype.label: rate for dtype, rate in device.peak_flop_per_s.items()}
    return peaks.get(e.precision)


def _roof(e: Estimate, device: DeviceProfile, intensity: pd.Series[float]) -> list[Document]:
    peak, bandwidth = _peak(e, device), device.memory_bandwidth_bytes_per_s
    if peak is None or bandwidth is None or intensity.empty:
        return []
    ridge = peak / bandwidth
    ends = [min(float(intensity.min()), ridge) / 2, ridge, max(float(intensity.max()), ridge) * 2]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": label(f"{device.name} roof, {e.precision}"),
            "x": _short(ends),
            "y": _short([min(peak, x * bandwidth) for x in ends]),
            "line": {"color": COLOURS[5], "width": 2},
            "hoverinfo": "skip",
        }
    ]


def _timeline(timeline: Timeline) -> Section:
    """Resources over time; spans that a figure cannot tell apart are drawn as one."""
    spans = sorted(_spans(timeline), key=lambda span: -span[3])
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label(resource),
            "y": [label(span[0]) for span in spans if span[0] == resource],
            "base": _short([span[2] for span in spans if span[0] == resource]),
            "x": _short([span[3] for span in spans if span[0] == resource]),
            "text": [label(span[1]) for span in spans if span[0] == resource],
            "textposition": "none",
            "hovertemplate": "%{text}<br>%{base:.4s}s + %{x:.4s}s<extra></extra>",
            "marker": {"color": COLOURS[place % len(COLOURS)], "line": {"width": 0}},
        }
        for place, resource in enumerate(timeline.resources)
    ]
    layout = {
        "barmode": "overlay",
        "height": 120 + 60 * len(timeline.resources),
        "xaxis": axis("time", ticksuffix="s", exponentformat="SI", minexponent=0),
        "yaxis": axis(""),
        "showlegend": False,
    }
    rows = [
        (resource, name, cell(start, duration), cell(length, duration))
        for resource, name, start, length in spans
    ]
    titles = ("resource", "operator", ">start", ">busy for")
    busy = ", ".join(
        f"{name} busy {percent(timeline.utilisation(name))}" for name in timeline.resources
    )
    text = f"One repeat of each pass, {len(timeline):,} spans, {len(spans):,} drawn; {busy}."
    table = _cut(titles, rows, 3, duration)
    return Section("timeline", "Timeline", table, text, figure(traces, **layout))


def _spans(timeline: Timeline) -> Iterator[tuple[str, str, float, float]]:
    """Resource, name, start and busy time; the spans of a resource that start in the same part of
    the run are one where there are too many.
    """
    for code, resource in enumerate(timeline.resources):
        rows = np.flatnonzero(timeline.resource == code)
        rows = rows[np.argsort(timeline.start_s[rows], kind="stable")]
        start, length = timeline.start_s[rows], timeline.duration_s[rows]
        names = [timeline.names[name] for name in timeline.name[rows].tolist()]
        limit = _MAX_SPANS // len(timeline.resources)
        first = np.arange(len(rows))
        if len(rows) > limit:
            part = (start * limit / timeline.makespan_s).astype(np.int64)
            first = np.flatnonzero(np.diff(part, prepend=-1))
        count = np.diff(np.append(first, len(rows)))
        busy = np.add.reduceat(length, first) if len(rows) else length
        columns = (first.tolist(), count.tolist(), start[first].tolist(), busy.tolist())
        for place, joined, begins, lasts in zip(*columns, strict=True):
            name = names[place] if joined == 1 else f"{names[place]} and {joined - 1} more"
            yield resource, name, begins, lasts


def _power_and_memory(timeline: Timeline, device: DeviceProfile) -> Section:
    idle_w = idle_power_w(device)
    curves: list[tuple[str, StepFunction, Callable[[float | None], str]]] = []
    if idle_w is not None and np.isfinite(timeline.energy_j).all() and timeline.energy_j.any():
        curves.append(("power, W", timeline.power(idle_w), _watts))
    curves += [("activations, B", steps, _bytes) for steps in timeline.counters.values()]
    traces: list[Document] = []
    rows: list[tuple[str | Cell, ...]] = []
    for place, (name, steps, words) in enumerate(curves):
        edges, values = _resampled(steps, timeline.makespan_s)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label(name),
                "x": _short(edges),
                "y": _short(np.append(values, values[-1:])),
                "line": {"shape": "hv", "color": COLOURS[place]},
                "yaxis": "y" if place == 0 else "y2",
            }
        )
        rows += [
            (name, cell(time, duration), cell(value, words))
            for time, value in zip(edges.tolist(), values.tolist(), strict=False)
        ]
    layout = {
        "xaxis": axis("time", ticksuffix="s", exponentformat="SI", minexponent=0),
        "yaxis": axis(curves[0][0] if curves else "", exponentformat="SI", rangemode="tozero"),
        "yaxis2": axis(
            curves[-1][0] if curves else "",
            overlaying="y",
            side="right",
            exponentformat="SI",
            rangemode="tozero",
            showgrid=False,
        ),
    }
    peaks = ", ".join(f"{name} at most {words(steps.maximum)}" for name, steps, words in curves)
    table = DataTable(("quantity", ">from", ">value"), rows)
    text = f"One repeat of each pass, weights left out; {peaks}." if curves else "Unknown."
    return Section("power", "Power and memory over time", table, text, figure(traces, **layout))


def _resampled(steps: StepFunction, end_s: float) -> tuple[FloatArray, FloatArray]:
    """Edges and values of a step function up to the end; means of equal parts where it has too
    many steps.
    """
    inside = steps.time_s[(steps.time_s > 0) & (steps.time_s < end_s)]
    edges = np.concatenate([[0.0], inside, [end_s]])
    if len(edges) <= _MAX_STEPS:
        return edges, steps.at(edges[:-1])
    total = np.concatenate([[0.0], np.cumsum(steps.at(edges[:-1]) * np.diff(edges))])
    coarse = np.linspace(0.0, end_s, _MAX_STEPS)
    return coarse, np.diff(np.interp(coarse, edges, total)) / np.diff(coarse)


def _shares(frame: pd.DataFrame, column: str, title: str) -> Section:
    """Time and energy of groups of operators, largest first."""
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
            "x": _short(100 * (sums[source] / (total or 1.0)).head(drawn)),
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
    table = _cut(titles, rows, 1, duration)
    return Section(f"by-{column}", title, table, text, figure(traces, **layout))


def _cut(
    titles: tuple[str, ...],
    rows: Sequence[tuple[str | Cell, ...]],
    summed: int,
    words: Callable[[float | None], str],
) -> DataTable:
    """The first rows, and one that says how many more there are and what they sum up to."""
    if len(rows) <= _MAX_ROWS:
        return DataTable(titles, rows)
    rest = [row[summed] for row in rows[_MAX_ROWS:]]
    total = sum(one.value or 0.0 for one in rest if isinstance(one, Cell))
    last: list[str | Cell] = [f"{len(rest):,} more", *[""] * (len(titles) - 1)]
    last[summed] = cell(total, words)
    return DataTable(titles, [*rows[:_MAX_ROWS], tuple(last)])


def _full_names(frame: pd.DataFrame) -> list[str]:
    pairs = zip(frame["path"].tolist(), frame["name"].tolist(), strict=True)
    return [f"{path}.{name}" if path else str(name) for path, name in pairs]


def _short(values: Any) -> list[float]:
    """Five digits: what a figure can show."""
    return [float(f"{value:.4e}") for value in np.asarray(values, dtype=np.float64).tolist()]
