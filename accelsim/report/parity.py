"""What parity plots show of a suite: predicted against measured, by device, thinned where rows are
too many to tell apart.

The band of a device is the median 90 % interval of its rows. Thinned series keep their rows
farthest from the measurement, so that what a plot leaves out is never the worst; the rest is drawn
at random with a fixed seed. All marks are vectors, since a browser may have no WebGL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Document, grouped
from accelsim.quantity import say
from accelsim.report.page import axis, figure, trace
from accelsim.report.parts import COLOURS, short
from accelsim.workloads.graph import IntArray, TextArray

if TYPE_CHECKING:
    from accelsim.scoreboard.scored_rows import ScoredRows
    from accelsim.scoreboard.scores import SuiteScore
    from accelsim.workloads.graph import FloatArray

_SYMBOLS = ("circle", "triangle-up", "square", "diamond")
#: Rows of a thinned series that are drawn because they are the farthest off.
_WORST = 20
_SEED = 0
_MARGIN = 1.5
#: From this many points on marks are small and pale.
_MANY = 1_500
_MOST_TICKS = 9
_LINE = {"hoverinfo": "skip"}
#: What is said of a point beside its times.
_HOVER = (
    "{device}, {group}, {label} ({error_fraction}; 90 % interval {low:number} to {high:number}, "
    "tier {tier})"
)


@frozen(eq=False)
class Series:
    """Answered rows of one device; n rows.

    Attributes:
        device: Name in the table.
        group: Operator or model, shape (n,).
        label: Configuration.
        tier: Tier of the parameters.
        measured: Measured values above 0, shape (n,).
        predicted: Predicted values above 0.
        low: Low ends of the 90 % intervals.
        high: High ends.
    """

    device: str
    group: TextArray
    label: TextArray
    tier: TextArray
    measured: FloatArray
    predicted: FloatArray
    low: FloatArray
    high: FloatArray

    def __len__(self) -> int:
        return len(self.measured)

    @property
    def error(self) -> FloatArray:
        """Predicted / measured - 1, shape (n,)."""
        return self.predicted / self.measured - 1.0

    def row(self, place: int) -> Document:
        """A row's figures by name."""
        numbers = {
            "measured": self.measured,
            "predicted": self.predicted,
            "low": self.low,
            "high": self.high,
            "error_fraction": self.error,
        }
        named = {"device": self.device, "group": self.group[place], "label": self.label[place]}
        named |= {"tier": self.tier[place]}
        return named | {name: float(column[place]) for name, column in numbers.items()}

    def sample(self, most: int) -> IntArray:
        """At most `most` rows: those farthest off and others at random; ascending indices.

        Args:
            most: Rows to draw, at least 1.
        """
        if len(self) <= most:
            return np.arange(len(self))
        order = np.argsort(-np.abs(np.log(self.predicted / self.measured)), kind="stable")
        worst, others = order[: min(_WORST, most)], order[min(_WORST, most) :]
        drawn = np.random.default_rng(_SEED).choice(others, most - len(worst), replace=False)
        return np.sort(np.concatenate([worst, drawn]))


def parity_series(score: SuiteScore) -> list[Series]:
    """Answered rows of a suite by device, in the order of the suite."""
    answered = [part for part in score.rows if not part.refusal and len(part)]
    parts = grouped(answered, lambda part: part.device)
    series = [_series(device, own) for device, own in parts.items()]
    return [one for one in series if len(one)]


def _series(device: str, parts: Sequence[ScoredRows]) -> Series:
    measured, predicted, low, high = (
        np.concatenate(column)
        for column in zip(
            *((part.measured_s, part.predicted_s, part.low_s, part.high_s) for part in parts),
            strict=True,
        )
    )
    group, label, tier = (
        np.concatenate(column)
        for column in zip(
            *((part.group, part.label, np.full(len(part), part.tier)) for part in parts),
            strict=True,
        )
    )
    shown = (measured > 0) & (predicted > 0)  # a logarithmic axis has no place for others
    texts = (text[shown] for text in (group, label, tier))
    return Series(device, *texts, *(one[shown] for one in (measured, predicted, low, high)))


def parity_figure(score: SuiteScore, series: Sequence[Series], max_points: int) -> Document:
    """Predicted over measured of a suite, with the median band of its intervals.

    Args:
        score: The suite.
        series: Its devices, not empty.
        max_points: Points drawn at most, shared by the devices.
    """
    most = max(1, max_points // len(series))
    low, high = limits(series)
    unit = "s" if score.suite.quantity.endswith(", s") else ""
    is_dense = sum(min(len(one), most) for one in series) > _MANY
    mark = {"size": 5, "opacity": 0.5} if is_dense else {"size": 8, "opacity": 0.8}
    points = [_points(one, index, most, mark, unit) for index, one in enumerate(series)]
    ratio = float(np.median(np.concatenate([one.high / one.predicted for one in series])))
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
    x, y = (axis(f"{what} {score.suite.quantity}", **layout) for what in ("measured", "predicted"))
    return figure([band, *points, equal], xaxis=x, yaxis=y | {"scaleanchor": "x"})


def _points(one: Series, index: int, most: int, mark: Document, unit: str) -> Document:
    rows = one.sample(most)
    texts = [say(_HOVER, one.row(place)) for place in rows.tolist()]
    kind = {
        "color": COLOURS[index % len(COLOURS)],
        "symbol": _SYMBOLS[index // len(COLOURS) % len(_SYMBOLS)],
    }
    error = 100 * float(np.median(np.abs(one.error)))
    return trace(
        f"{one.device} ({len(one):,}, {error:.1f} %)",
        short(one.measured[rows]),
        short(one.predicted[rows]),
        text=texts,
        hovertemplate=f"%{{text}}: measured %{{x:.4s}}{unit}, predicted %{{y:.4s}}{unit}"
        "<extra></extra>",
        marker=mark | kind,
    )


def limits(series: Sequence[Series]) -> tuple[float, float]:
    """Common range of both axes."""
    values = np.concatenate([column for one in series for column in (one.measured, one.predicted)])
    return float(values.min()) / _MARGIN, float(values.max()) * _MARGIN


def title(score: SuiteScore) -> str:
    """Suite, tier, rows and mean error in a line."""
    figures = score.figures
    mape = 100 * (figures.mape_fraction or 0.0)
    return (
        f"{score.suite.name} (tier {score.tier}): {figures.rows_answered:,} rows, MAPE {mape:.1f} %"
    )


def sampling_note(series: Sequence[Series], most: int) -> str:
    """What a plot with at most `most` rows per series leaves out; empty where it leaves out
    nothing.
    """
    drawn, total = sum(min(len(one), most) for one in series), sum(map(len, series))
    if drawn == total:
        return ""
    return (
        f"{drawn:,} of {total:,} rows drawn: of each device the {min(_WORST, most)} "
        "farthest off, others at random"
    )
