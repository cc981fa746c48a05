"""Pareto points of a sweep as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accelsim.files.formats import records
from accelsim.plain import Document
from accelsim.report.page import Page, figure, trace
from accelsim.report.parts import rows_section

if TYPE_CHECKING:
    import pandas as pd

#: Points beside the front that are drawn: more hide it and make the page slow.
_MOST = 5000


def pareto_page(
    points: pd.DataFrame,
    front: pd.DataFrame,
    objectives: Sequence[str],
    command: str,
    count: int | None = None,
) -> Page:
    """The points and the front, by the first two objectives, the front's coloured by device.

    Args:
        points: Those that are drawn, of many the ones at `drawn_places`.
        front: Those that no other beats.
        objectives: Columns, two at least; ``:max`` says that more is better.
        command: Command that makes the page again.
        count: All points, drawn or not; those drawn where None.
    """
    total = len(points) if count is None else count
    x, y = (figure_name.removesuffix(":max") for figure_name in objectives[:2])
    grey = {"size": 4, "color": "#7f8a94"}
    traces = [_trace(points, x, y, f"{len(points):,} points", grey)]
    name = next((column for column in ("device", "fleet") if column in front), None)
    groups = front.groupby(name) if name else [("front", front)]
    traces += [_trace(rows, x, y, str(value), {"size": 9}) for value, rows in groups]
    rows = records(front.dropna(axis=1, how="all"))
    text = f"{len(points):,} of {total:,} points drawn; the front is that of all."
    section = rows_section("pareto", "Pareto front", rows, text)
    section = replace(section, figure=figure(traces, x, y, "xy", height=640))
    title = f"Pareto front: {', '.join(objectives)}"
    decision = f"{len(front):,} of {total:,} points are beaten by no other."
    return Page(title, (decision,), (section,), command)


def drawn_places(points: pd.DataFrame) -> list[int]:
    """Places of at most 5,000 points, drawn at random: a stride would meet the period of a grid.

    Args:
        points: All points.
    """
    return sorted(points.index.to_series().sample(min(len(points), _MOST), random_state=0))


def _trace(points: pd.DataFrame, x: str, y: str, name: str, marker: Document) -> Document:
    columns = [column for column in ("workload", "device", "batch", "fleet") if column in points]
    texts = (
        points[columns].astype(str).agg(" ".join, axis=1) if columns else points.index.astype(str)
    )
    hover = "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>"
    return trace(name, points[x], points[y], text=texts, hovertemplate=hover, marker=marker)
