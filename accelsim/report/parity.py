"""Predicted against measured, by device, with the interval: of each row where rows are few, their
median where they are many.

All marks are vectors, since a browser may have no WebGL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.plain import Document
from accelsim.quantity import say
from accelsim.report.page import axis, figure, trace
from accelsim.report.parts import COLOURS, short

if TYPE_CHECKING:
    from accelsim.scoreboard.device_rows import DeviceRows
    from accelsim.scoreboard.scores import SuiteScore

_SYMBOLS = ("circle", "triangle-up", "square", "diamond")
_MARGIN = 1.5
#: From this many points on marks are small and pale.
_MANY = 1_500
#: Up to this many points each has its interval.
_FEW = 60
_MOST_TICKS = 9
_LINE = {"hoverinfo": "skip"}
#: What is said of a point beside its times.
_HOVER = (
    "{device}[, {group}][, {label}] ({error_fraction}; 90 % interval {low:number} to "
    "{high:number}[, tier {tier}])"
)


def parity_figure(series: Sequence[DeviceRows], quantity: str, max_points: int) -> Document:
    """Predicted over measured, with the median band of the intervals.

    Args:
        series: Rows by device, not empty.
        quantity: What is measured, with its unit.
        max_points: Points drawn at most, shared by the devices.
    """
    most = max(1, max_points // len(series))
    low, high = limits(series)
    unit = "s" if quantity.endswith(", s") else ""
    count = sum(min(len(rows), most) for rows in series)
    marker = {"size": 5, "opacity": 0.5} if count > _MANY else {"size": 8, "opacity": 0.8}
    points = [
        _points(rows, index, most, marker, unit) | (_intervals(rows) if count <= _FEW else {})
        for index, rows in enumerate(series)
    ]
    ratio = float(np.median(np.concatenate([rows.high / rows.predicted for rows in series])))
    ends = [low * ratio, high * ratio, high / ratio, low / ratio]
    area = {"fill": "toself", "fillcolor": "rgba(150, 150, 150, 0.25)", "line": {"width": 0}}
    band = trace("90 % interval (median)", [low, high, high, low], ends, "lines", **area, **_LINE)
    equal = trace("perfect", [low, high], [low, high], "lines", line={"width": 1}, **_LINE)
    layout = {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "dtick": math.ceil(math.log10(high / low) / _MOST_TICKS),
        "constrain": "domain",
    }
    x, y = (axis(f"{kind} {quantity}", **layout) for kind in ("measured", "predicted"))
    return figure([band, *points, equal], xaxis=x, yaxis=y | {"scaleanchor": "x"})


def _points(rows: DeviceRows, index: int, most: int, marker: Document, unit: str) -> Document:
    sample = rows.sample(most)
    return trace(
        f"{rows.device} ({len(rows):,}, {100 * float(np.median(np.abs(rows.error))):.1f} %)",
        short(rows.measured[sample]),
        short(rows.predicted[sample]),
        text=[say(_HOVER, rows.row(row)) for row in sample.tolist()],
        hovertemplate=f"%{{text}}: measured %{{x:.4s}}{unit}, predicted %{{y:.4s}}{unit}"
        "<extra></extra>",
        marker=marker
        | {
            "color": COLOURS[index % len(COLOURS)],
            "symbol": _SYMBOLS[index // len(COLOURS) % len(_SYMBOLS)],
        },
    )


def _intervals(rows: DeviceRows) -> Document:
    """A bar over the interval of each row."""
    above, below = rows.high - rows.predicted, rows.predicted - rows.low
    bars = {"type": "data", "symmetric": False, "thickness": 1}
    return {"error_y": {**bars, "array": short(above), "arrayminus": short(below)}}


def limits(series: Sequence[DeviceRows]) -> tuple[float, float]:
    """Common range of both axes."""
    columns = (column for rows in series for column in (rows.measured, rows.predicted))
    values = np.concatenate(list(columns))
    return float(values.min()) / _MARGIN, float(values.max()) * _MARGIN


def title(score: SuiteScore) -> str:
    """Suite, tier, rows and mean error in a line."""
    figures = score.figures
    mape = 100 * (figures.mape_fraction or 0.0)
    return (
        f"{score.suite.name} (tier {score.tier}): {figures.rows_answered:,} rows, MAPE {mape:.1f} %"
    )
