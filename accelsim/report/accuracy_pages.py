"""Parity plots as pages: one HTML file per suite, whose points say what they are when the pointer
is on them.

A page needs nothing but the script beside it: ``plotly.min.js`` is written once per folder, and no
network is used. A click on a device in the legend hides it, a double click shows it alone. Needs
plotly (extra `plots`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.files.output import write_text
from accelsim.plain import Document
from accelsim.report.figure import html_fragment
from accelsim.report.parity import COLOURS, Series, limits, parity_series, sampling_note, title

if TYPE_CHECKING:
    from accelsim.scoreboard.scores import Scoreboard, SuiteScore

#: The script that pages share.
SCRIPT_NAME = "plotly.min.js"
#: Points of a page at most, shared by its devices; more make it slow to open.
_MAX_POINTS = 6_000
_SYMBOLS = ("circle", "triangle-up", "square", "diamond")
#: From this many points on marks are small and pale. All are drawn as vectors, since a browser may
#: have no WebGL.
_MANY = 1_500
_DIGITS = 4
_MOST_TICKS = 9
_SQUARE = {"scaleanchor": "x"}
_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8" /><title>{name}</title>
<meta name="viewport" content="width=device-width, initial-scale=1" />
<style>html, body, body > div {{ height: 100%; margin: 0; overflow: hidden }}</style></head>
<body>{fragment}</body></html>
"""


def write_parity_pages(board: Scoreboard, folder: Path, *, force: bool = False) -> list[Path]:
    """Write one page per suite that has answered rows, and the script they share.

    Args:
        board: A validation's result.
        folder: Existing folder.
        force: Whether existing pages may be replaced; a script that is there is kept.

    Returns:
        The files written.

    Raises:
        MissingDependencyError: If plotly is not installed.
        OutputError: If a page exists or cannot be written.
    """
    written: list[Path] = []
    for score in board.suites:
        series = parity_series(score)
        if not series:
            continue
        figure = parity_figure(score, series)
        fragment = html_fragment(figure, with_script="directory", name="parity")
        name = escape(f"{score.suite.name}: predicted against measured")
        path = folder / f"{score.suite.name}.html"
        write_text(path, _PAGE.format(name=name, fragment=fragment), force=force)
        written.append(path)
    script = folder / SCRIPT_NAME
    if written and not script.is_file():
        from plotly.offline import get_plotlyjs

        write_text(script, get_plotlyjs())
        written.append(script)
    return written


def parity_figure(
    score: SuiteScore, series: Sequence[Series], max_points: int = _MAX_POINTS
) -> Document:
    """Data and layout of a page, in plotly's terms.

    Args:
        score: The suite.
        series: Its devices, not empty.
        max_points: Points drawn at most, shared by the devices.
    """
    most = max(1, max_points // len(series))
    low, high = limits(series)
    is_time = score.suite.quantity.endswith(", s")
    is_dense = sum(min(len(one), most) for one in series) > _MANY
    mark = {"size": 5, "opacity": 0.5} if is_dense else {"size": 8, "opacity": 0.8}
    points = [_points(one, index, most, mark, is_time=is_time) for index, one in enumerate(series)]
    ratio = float(np.median(np.concatenate([one.high / one.predicted for one in series])))
    axis: Document = {
        "type": "log",
        "range": [float(np.log10(low)), float(np.log10(high))],
        "exponentformat": "power",
        "dtick": math.ceil(math.log10(high / low) / _MOST_TICKS),
        "ticks": "outside",
        "showline": True,
        "gridcolor": "#eeeeee",
        "constrain": "domain",
    }
    note = sampling_note(series, most) or "all rows drawn"
    refused = sum(score.refused.values())
    lines = [
        f"<b>{escape(title(score))}</b>",
        escape(note + (f"; {refused:,} rows refused" if refused else "")),
    ]
    layout = {
        "template": "none",
        "title": {"text": "<br>".join(lines), "font": {"size": 15}, "x": 0.02, "xanchor": "left"},
        "xaxis": axis | {"title": {"text": f"measured {score.suite.quantity}"}},
        "yaxis": axis | {"title": {"text": f"predicted {score.suite.quantity}"}} | _SQUARE,
        "plot_bgcolor": "#ffffff",
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "legend": {"title": {"text": "device (rows, median error)"}, "itemsizing": "constant"},
        "margin": {"t": 80, "r": 20},
    }
    return {"data": [_band(low, high, ratio), *points, _diagonal(low, high)], "layout": layout}


def _points(one: Series, index: int, most: int, mark: Document, *, is_time: bool) -> Document:
    rows = one.sample(most)
    unit = "s" if is_time else ""
    error = 100 * float(np.median(np.abs(one.error)))
    words = [
        [
            escape(str(one.group[i])),
            escape(str(one.label[i])),
            str(one.tier[i]),
            _short(one.low[i]),
            _short(one.high[i]),
            round(100 * float(one.error[i]), 1),
        ]
        for i in rows.tolist()
    ]
    hover = (
        f"<b>{escape(one.device)}</b> · %{{customdata[0]}}<br>%{{customdata[1]}}<br>"
        f"measured %{{x:.4s}}{unit}, predicted %{{y:.4s}}{unit} (%{{customdata[5]:+.1f}} %)<br>"
        f"90 % interval %{{customdata[3]:.4s}}{unit} to %{{customdata[4]:.4s}}{unit}, tier "
        f"%{{customdata[2]}}"
        "<extra></extra>"
    )
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escape(f"{one.device} ({len(one):,}, {error:.1f} %)"),
        "x": [_short(value) for value in one.measured[rows]],
        "y": [_short(value) for value in one.predicted[rows]],
        "customdata": words,
        "hovertemplate": hover,
        "marker": {
            "color": COLOURS[index % len(COLOURS)],
            "symbol": _SYMBOLS[index // len(COLOURS) % len(_SYMBOLS)],
            **mark,
        },
    }


def _short(value: Any) -> float:
    """Four digits: what a plot and its labels can show."""
    return float(f"{float(value):.{_DIGITS - 1}e}")


def _band(low: float, high: float, ratio: float) -> Document:
    """Area between the median ends of the 90 % intervals."""
    ends = [low * ratio, high * ratio, high / ratio, low / ratio]
    shape: Document = {
        "fill": "toself",
        "fillcolor": "rgba(150, 150, 150, 0.25)",
        "line": {"width": 0},
    }
    return _line("90 % interval (median)", [low, high, high, low], ends) | shape


def _diagonal(low: float, high: float) -> Document:
    line = _line("perfect", [low, high], [low, high])
    return line | {"line": {"color": "#333333", "width": 1}}


def _line(name: str, x: list[float], y: list[float]) -> Document:
    drawn: Document = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    return drawn | {"name": name, "x": x, "y": y}
