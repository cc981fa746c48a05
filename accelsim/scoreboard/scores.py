"""What a validation found: figures of groups, of suites, and all of them."""

from __future__ import annotations

from collections.abc import Mapping

from accelsim.frozen import frozen
from accelsim.scoreboard.data_folder import DataProblem
from accelsim.scoreboard.metrics import Figures
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.suite import Suite


@frozen(eq=False)
class GroupScore:
    """Accuracy of one operator or model on one device."""

    device: str
    profile: str
    group: str
    tier: str
    rows_asked: int
    refused: Mapping[str, int]
    figures: Figures
    is_view: bool = False


@frozen(eq=False)
class SuiteScore:
    """Accuracy of one suite.

    Attributes:
        suite: The suite.
        tier: Tier of all answered rows, or "mixed".
        rows_asked: Rows scored or refused.
        rows_used_in_fit: Rows not asked because a fit may have used them.
        refused: Rows by reason.
        figures: Over all answered rows.
        ranking_tau: Mean tau of choosing a device for each configuration; None where the suite
            ranks none.
        groups: One per device and operator or model.
        notes: What a reader should know, by device.
        rows: The scored rows.
    """

    suite: Suite
    tier: str
    rows_asked: int
    rows_used_in_fit: int
    refused: Mapping[str, int]
    figures: Figures
    ranking_tau: float | None
    groups: tuple[GroupScore, ...]
    notes: Mapping[str, str]
    rows: tuple[ScoredRows, ...]

    @property
    def systems(self) -> int:
        """Boards, models or engines of the answered rows that are left out whole."""
        return len(
            {name for batch in self.rows if not batch.refusal for name in batch.origin.tolist()}
        )


@frozen(eq=False)
class Scoreboard:
    """Everything one validation found.

    Attributes:
        suites: Scored suites.
        skipped: Suites not scored, with the reason.
        problems: Bad data, in file order.
    """

    suites: tuple[SuiteScore, ...]
    skipped: Mapping[str, str]
    problems: tuple[DataProblem, ...]
