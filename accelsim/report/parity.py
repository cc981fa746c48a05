"""What parity plots show of a suite: predicted against measured, by device, thinned where rows are
too many to tell apart.

The band of a device is the median 90 % interval of its rows. Thinned series keep their rows
farthest from the measurement, so that what a plot leaves out is never the worst; the rest is drawn
at random with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.graph import IntArray, TextArray

if TYPE_CHECKING:
    from accelsim.scoreboard.scored_rows import ScoredRows
    from accelsim.scoreboard.scores import SuiteScore
    from accelsim.workloads.graph import FloatArray

#: Colours that stay apart for colour-blind readers (Okabe and Ito, 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
#: Rows of a thinned series that are drawn because they are the farthest off.
_WORST = 20
_SEED = 0
_MARGIN = 1.5


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
    answered: dict[str, list[ScoredRows]] = {}
    for part in score.rows:
        if not part.refusal and len(part):
            answered.setdefault(part.device, []).append(part)
    series = [_series(device, parts) for device, parts in answered.items()]
    return [one for one in series if len(one)]


def _series(device: str, parts: Sequence[ScoredRows]) -> Series:
    tier = np.concatenate([np.full(len(part), part.tier) for part in parts])
    texts = [np.concatenate([getattr(part, name) for part in parts]) for name in ("group", "label")]
    names = ("measured_s", "predicted_s", "low_s", "high_s")
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
    shown = (columns[0] > 0) & (columns[1] > 0)  # a logarithmic axis has no place for others
    return Series(
        device, *(text[shown] for text in (*texts, tier)), *(column[shown] for column in columns)
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
