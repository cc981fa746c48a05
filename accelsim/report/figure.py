"""Figures as HTML: one way from a plotly figure to a fragment that any page can hold.

A fragment needs no network: the first one on a page brings plotly's script, the others leave it
out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.errors import InvalidValueError, MissingDependencyError

if TYPE_CHECKING:
    from accelsim.simulation.timeline import Timeline

__all__ = ["html_fragment", "timeline_figure"]

#: More bars than this make a page slow to open; a trace shows any number.
_MAX_ROWS = 20_000


def html_fragment(figure: Any, *, with_script: bool = True) -> str:
    """A figure as a `<div>` of HTML.

    Args:
        figure: A plotly figure, or the dictionary of one.
        with_script: Whether to bring plotly's script (about 4 MB); once a page is enough.

    Raises:
        MissingDependencyError: If plotly is not installed.
    """
    try:
        from plotly.graph_objects import Figure
        from plotly.io import to_html
    except ImportError:
        raise MissingDependencyError("plotly", "plots") from None
    config = {"displaylogo": False, "responsive": True}
    whole = Figure(figure)  # brings what a template's name stands for
    fragment = to_html(whole, config=config, include_plotlyjs=with_script, full_html=False)
    return str(fragment)


def timeline_figure(timeline: Timeline, *, title: str = "") -> dict[str, Any]:
    """A Gantt chart: a line a resource, a bar a row, a colour a category.

    Args:
        timeline: At most 20,000 rows; `Timeline.between` cuts a window out of a longer one.
        title: Shown above the chart.

    Returns:
        A figure in plotly's JSON schema.

    Raises:
        InvalidValueError: If there are too many rows.
    """
    if len(timeline) > _MAX_ROWS:
        advice = "Cut out a window with Timeline.between."
        raise InvalidValueError("timeline", f"{len(timeline)} rows", f"<= {_MAX_ROWS}", advice)
    rows = timeline.sorted()
    bars = [_bars(rows.select(category=category), category) for category in timeline.categories]
    layout = {
        "title": {"text": title},
        "barmode": "overlay",
        "template": "plotly_white",
        "xaxis": {"title": {"text": "time (s)"}},
        "yaxis": {"categoryorder": "array", "categoryarray": timeline.resources[::-1]},
    }
    return {"data": bars, "layout": layout}


def _bars(rows: Timeline, category: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": category,
        "y": np.array(rows.resources, dtype=object)[rows.resource].tolist(),
        "base": rows.start_s.tolist(),
        "x": rows.duration_s.tolist(),
        "text": np.array(rows.names, dtype=object)[rows.name].tolist(),
        "textposition": "none",
        "hovertemplate": "%{text}<br>%{base:.6s}s + %{x:.4s}s",
    }
