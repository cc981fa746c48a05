"""Pictures of a training estimate on one page: the Pareto front of a search and the tasks of an
iteration on each stage.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from accelsim.report.figure import html_fragment
from accelsim.report.parity import COLOURS

if TYPE_CHECKING:
    from accelsim.planning.training.estimate import TrainingEstimate
    from accelsim.simulation.timeline import Timeline

__all__ = ["FIGURE_PAGE", "pareto_figure", "timeline_figure", "training_page"]

#: Tasks that are drawn; of longer iterations the first and the last.
_MOST_TASKS: Final = 4000
_ROW_PIXELS: Final = 26
#: A page of figures.
FIGURE_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="font-family: sans-serif; max-width: 1100px; margin: auto">
<h1>{title}</h1>
{figures}
</body></html>
"""


def training_page(result: TrainingEstimate) -> str:
    """A page of HTML with the figures that a result has.

    Args:
        result: A result of a search, one with a timeline, or both.

    Raises:
        MissingDependencyError: If plotly is not installed.
    """
    figures = []
    if result.pareto:
        figures.append(pareto_figure(result.pareto))
    timeline = result.timeline
    if timeline is not None:
        figures.append(timeline_figure(timeline))
    title = f"{result.workload}, {result.device_count:,} x {result.device}"
    fragments = [
        html_fragment(figure, with_script=place == 0, name=f"figure-{place}")
        for place, figure in enumerate(figures)
    ]
    return FIGURE_PAGE.format(title=html.escape(title), figures="\n".join(fragments))


def pareto_figure(plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Time against memory of plans that no other beats, coloured by energy.

    Args:
        plans: Entries of `TrainingEstimate.pareto`.
    """
    marker = {
        "size": 10,
        "color": [plan["energy_j"] / 1e3 for plan in plans],
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": "dynamic energy, kJ"}},
    }
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [plan["iteration_s"] for plan in plans],
        "y": [plan["memory_bytes"] / 1e9 for plan in plans],
        "text": [plan["plan"] for plan in plans],
        "hovertemplate": "%{text}<br>%{x:.4g} s, %{y:.1f} GB<extra></extra>",
        "marker": marker,
    }
    layout = {
        "title": {"text": "Plans that no other beats in time, memory and energy"},
        "xaxis": {"title": {"text": "iteration, s"}, "type": "log"},
        "yaxis": {"title": {"text": "memory of the worst rank, GB"}, "rangemode": "tozero"},
        "template": "plotly_white",
    }
    return {"data": [points], "layout": layout}


def timeline_figure(timeline: Timeline) -> dict[str, Any]:
    """Tasks of an iteration, a row for each stream and link.

    Args:
        timeline: What `TrainingEstimate.timeline` gives.
    """
    lines = timeline.sorted()
    count = len(lines)
    rows = np.arange(count)
    if count > _MOST_TASKS:
        rows = np.concatenate([rows[: _MOST_TASKS // 2], rows[-_MOST_TASKS // 2 :]])
    used = [name for code, name in enumerate(lines.resources) if (lines.resource == code).any()]
    data = [
        _bars(timeline=lines, rows=rows[lines.category[rows] == code], word=word, code=code)
        for code, word in enumerate(lines.categories)
    ]
    layout = {
        "title": {"text": "One iteration"},
        "barmode": "overlay",
        "height": 160 + _ROW_PIXELS * len(used),
        "xaxis": {"title": {"text": "time, s"}},
        "yaxis": {
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": used,
            "automargin": True,
        },
        "template": "plotly_white",
    }
    return {"data": [bar for bar in data if bar["x"]], "layout": layout}


def _bars(timeline: Timeline, rows: Any, word: str, code: int) -> dict[str, Any]:
    """Tasks of one sort."""
    names = [timeline.names[name] for name in timeline.name[rows].tolist()]
    return {
        "type": "bar",
        "orientation": "h",
        "name": word,
        "base": timeline.start_s[rows].tolist(),
        "x": (timeline.end_s - timeline.start_s)[rows].tolist(),
        "y": [timeline.resources[resource] for resource in timeline.resource[rows].tolist()],
        "text": names,
        "textposition": "none",
        "hovertemplate": "%{text}<br>from %{base:.4g} s, %{x:.4g} s<extra></extra>",
        "marker": {"color": COLOURS[code % len(COLOURS)], "line": {"width": 0.5, "color": "white"}},
    }
