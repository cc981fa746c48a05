"""The page of one run: its decision, roofline, timeline, power and memory, time and energy by layer
and kind, and where its numbers come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.idle import idle_power_w
from accelsim.report.curves import Curve, curves_section
from accelsim.report.operators import OperatorRun, group_section, layers_of, roofline_section
from accelsim.report.page import (
    DataTable,
    Page,
    Section,
    axis,
    cell,
    figure,
    label,
)
from accelsim.report.parts import (
    COLOURS,
    joules,
    provenance_sections,
    rest_row,
    shares_section,
    short,
)
from accelsim.report.quantity import amount, duration, percent
from accelsim.report.tables import estimate_lines

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.hardware.profile import DeviceProfile
    from accelsim.planning.estimate import Estimate
    from accelsim.planning.simulate import Simulation
    from accelsim.simulation.timeline import Timeline

#: Spans of a figure at most.
_MAX_SPANS = 2_000
_watts = partial(amount, unit="W")
_bytes = partial(amount, unit="B", small=False)


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
        frame = operator_frame(simulation)
        sections += [
            roofline_section([OperatorRun(device, estimate.precision, frame)]),
            _timeline(simulation.timeline),
            _power_and_memory(simulation.timeline, device),
            group_section(frame, "kind", "Time and energy by kind of operator"),
            group_section(frame, "layer", "Time and energy by layer"),
            group_section(frame, "bound", "Time and energy by what limits it"),
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


def operator_frame(simulation: Simulation) -> pd.DataFrame:
    """Operators of all passes; time, energy, FLOP and bytes of all the times that each runs.

    Args:
        simulation: The run.
    """
    frame = simulation.to_frame()
    for name in ("time_s", "energy_j", "flop", "bytes"):
        frame[name] *= frame["repeat_count"]
    frame["layer"] = layers_of(frame["path"].tolist())
    if len(simulation.passes) > 1:
        frame["layer"] = frame["pass"] + ": " + frame["layer"]
    return frame


def _timeline(timeline: Timeline) -> Section:
    """Resources over time; spans that a figure cannot tell apart are drawn as one."""
    spans = sorted(_spans(timeline), key=lambda span: -span[3])
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label(resource),
            "y": [label(span[0]) for span in spans if span[0] == resource],
            "base": short([span[2] for span in spans if span[0] == resource]),
            "x": short([span[3] for span in spans if span[0] == resource]),
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
    table = DataTable(titles, rest_row(rows, 3, duration))
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
    """Power of the device and activations in use while the run goes on."""
    idle_w = idle_power_w(device)
    curves: list[Curve] = []
    if idle_w is not None and np.isfinite(timeline.energy_j).all() and timeline.energy_j.any():
        curves.append(Curve("power, W", timeline.power(idle_w), _watts))
    curves += [Curve("activations, B", steps, _bytes) for steps in timeline.counters.values()]
    title, text = "Power and memory over time", "One repeat of each pass, weights left out"
    return curves_section("power", title, curves, timeline.makespan_s, text)
