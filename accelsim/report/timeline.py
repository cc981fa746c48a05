"""Resources over time as bars, with the spans as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.quantity import percent
from accelsim.report.page import Section, axis, figure, label
from accelsim.report.parts import COLOURS, short

if TYPE_CHECKING:
    from accelsim.simulation.timeline import Timeline

#: Spans of a figure at most.
_MAX_SPANS = 2_000
_ROW_PIXELS = 40
#: Resources whose use is said in words.
_MOST_SAID = 8


@frozen
class _Span:
    """Time in which a resource is busy: one row, or rows that start in the same part of the run."""

    resource: str
    category: str
    name: str
    start_s: float
    busy_s: float


def timeline_section(
    timeline: Timeline,
    title: str,
    text: str,
    colour_of: Literal["resource", "category"] = "resource",
) -> Section:
    """Resources over time; spans that a figure cannot tell apart are drawn as one.

    Args:
        timeline: What ran.
        title: Heading.
        text: What its rows are.
        colour_of: What has a colour of its own.
    """
    spans = sorted(_spans(timeline), key=lambda span: -span.busy_s)
    used = [name for name in timeline.resources if any(span.resource == name for span in spans)]
    names = timeline.categories if colour_of == "category" else used
    traces = [
        _trace(name, [span for span in spans if name in {span.resource, span.category}], index)
        for index, name in enumerate(names)
    ]
    order = {"categoryorder": "array", "categoryarray": [label(name) for name in used]}
    drawn = figure(
        [trace for trace in traces if trace["x"]],
        barmode="overlay",
        height=130 + _ROW_PIXELS * len(used),
        xaxis=axis("time", ticksuffix="s", minexponent=0),
        yaxis=axis("", autorange="reversed", **order),
        showlegend=colour_of == "category",
    )
    busy = ", ".join(
        f"{name} busy {percent(timeline.utilisation(name))}" for name in used[:_MOST_SAID]
    )
    text = f"{text}, {len(timeline):,} spans, {len(spans):,} drawn; {busy}."
    columns = "resource | operator=name | >start=start_s | >busy for=busy_s"
    rows = [asdict(span) for span in spans]
    return Section.of("timeline", title, columns, rows, text, drawn, summed="busy_s")


def _trace(name: str, spans: list[_Span], index: int) -> Document:
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(name),
        "y": [label(span.resource) for span in spans],
        "base": short([span.start_s for span in spans]),
        "x": short([span.busy_s for span in spans]),
        "text": [label(span.name) for span in spans],
        "textposition": "none",
        "hovertemplate": "%{text}<br>%{base:.4s}s + %{x:.4s}s<extra></extra>",
        "marker": {"color": COLOURS[index % len(COLOURS)], "line": {"width": 0}},
    }


def _spans(timeline: Timeline) -> Iterator[_Span]:
    """Spans of each resource; those that start in the same part of the run are one where there are
    too many.
    """
    limit = _MAX_SPANS // len(timeline.resources)
    for code, resource in enumerate(timeline.resources):
        rows = np.flatnonzero(timeline.resource == code)
        rows = rows[np.argsort(timeline.start_s[rows], kind="stable")]
        start, length = timeline.start_s[rows], timeline.duration_s[rows]
        names = [timeline.names[name] for name in timeline.name[rows].tolist()]
        starts = np.arange(len(rows))
        if len(rows) > limit:
            bins = (start * limit / timeline.makespan_s).astype(np.int64)
            starts = np.flatnonzero(np.diff(bins, prepend=-1))
        count = np.diff(np.append(starts, len(rows)))
        busy = np.add.reduceat(length, starts) if len(rows) else length
        kinds = timeline.category[rows][starts]
        columns = (starts, count, kinds, start[starts], busy)
        for row, joined, kind, start_s, busy_s in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            name = names[row] if joined == 1 else f"{names[row]} and {joined - 1} more"
            yield _Span(resource, timeline.categories[kind], name, start_s, busy_s)
