"""Rows of a suite with what was predicted for them, before any figure is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, TextArray

#: Columns of times.
TIMES = ("predicted_s", "measured_s", "low_s", "high_s", "roofline_s")


@frozen(eq=False)
class ScoredRows:
    """Rows of one batch with what was predicted; n rows.

    Attributes:
        device: Name in the table.
        profile: Name in the catalogue; empty where unknown.
        tier: Tier of the parameters; empty where refused.
        note: What a reader should know of the parameters.
        group: Operator or model, shape (n,).
        label: Configuration, shape (n,).
        setting: Mode, format and kind of model, shape (n,); empty where a row is no run of one.
        origin: Board, or model, whose rows are left out together, shape (n,).
        measured_s: Measured.
        predicted_s: Predicted; NaN where refused.
        low_s: Low end of the 90 % interval.
        high_s: High end.
        roofline_s: Plain roofline; NaN where unknown.
        refusal: Why all rows are refused; empty where they are not.
        used_in_fit: Rows left out because a fit may have used them.
        views: Named subsets.
    """

    device: str
    profile: str
    tier: str
    note: str
    group: TextArray
    label: TextArray
    setting: TextArray
    origin: TextArray
    measured_s: FloatArray
    predicted_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray
    roofline_s: FloatArray
    refusal: str
    used_in_fit: int
    views: tuple[tuple[str, BoolArray], ...]

    def __len__(self) -> int:
        return len(self.measured_s)


@frozen(eq=False)
class SuiteRows:
    """What was predicted of a suite.

    Attributes:
        rows: By batch.
        bad: Rows refused as bad data, by reason.
    """

    rows: Sequence[ScoredRows]
    bad: Mapping[str, int]


@frozen
class ScoringStep:
    """How far a validation has come.

    Attributes:
        suite: Suite that is being scored.
        place: Its place among the suites, from 1.
        suite_count: Suites of the run.
        doing: What is being done, in a word or two.
        rows_done: Rows of the suite predicted so far.
        rows_total: Rows of the suite; None while its tables are read.
    """

    suite: str
    place: int
    suite_count: int
    doing: str
    rows_done: int = 0
    rows_total: int | None = None
