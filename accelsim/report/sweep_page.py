"""Pareto points of a sweep as a page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from accelsim.report.figure import html_fragment
from accelsim.report.training_page import FIGURE_PAGE

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pareto_page"]

#: Points beside the front that are drawn: more hide it and make the page slow.
_MOST: Final = 5000


def pareto_page(points: pd.DataFrame, front: pd.DataFrame, objectives: Sequence[str]) -> str:
    """A page of HTML with all points (at most 5,000, evenly taken) and the front, by the first two
    objectives, the front's coloured by device.

    Args:
        points: All points.
        front: Those that no other beats.
        objectives: Columns, two at least; ``:max`` says that more is better.

    Raises:
        MissingDependencyError: If plotly is not installed.
    """
    x, y = (word.removesuffix(":max") for word in objectives[:2])
    others = points.iloc[:: max(1, len(points) // _MOST)]
    grey = {"size": 4, "color": "#c8c8c8"}
    traces = [_trace(others, x, y, f"{len(points):,} points", grey)]
    name = "device" if "device" in front else "fleet" if "fleet" in front else None
    groups = front.groupby(name) if name else [("front", front)]
    traces += [_trace(part, x, y, str(value), {"size": 9}) for value, part in groups]
    title = f"Pareto front: {', '.join(objectives)}"
    layout = {
        "xaxis": {"title": {"text": x}, "type": "log"},
        "yaxis": {"title": {"text": y}, "type": "log"},
        "template": "plotly_white",
        "height": 640,
    }
    figure = html_fragment({"data": traces, "layout": layout}, name="pareto")
    return FIGURE_PAGE.format(title=html.escape(title), figures=figure)


def _trace(
    points: pd.DataFrame, x: str, y: str, name: str, marker: dict[str, Any]
) -> dict[str, Any]:
    about = [column for column in ("workload", "device", "batch", "fleet") if column in points]
    words = points[about].astype(str).agg(" ".join, axis=1) if about else points.index.astype(str)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": points[x].tolist(),
        "y": points[y].tolist(),
        "text": words.tolist(),
        "hovertemplate": "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
        "marker": marker,
    }
