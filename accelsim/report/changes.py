"""What a change of one thing would do: a row of figures for each change, bars of some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from accelsim.plain import Document, Values
from accelsim.quantity import value_at
from accelsim.report.page import DataTable, Section
from accelsim.report.parts import bars
from accelsim.result import Result

if TYPE_CHECKING:
    from accelsim.exploration.sensitivity.change import Change

#: Differences below are those of the order of sums.
_ROUNDING = 1e-9
T = TypeVar("T", bound=Result)


def changes_section(
    base: Result | None,
    changes: Sequence[Change[T]],
    columns: str,
    drawn: Mapping[str, str],
    text: str,
) -> Section:
    """A row for each change; bars of how much more some figures are.

    Args:
        base: The answer as it is; None where there is none.
        changes: Answers with one thing changed.
        columns: Figures of an answer, as `accelsim.report.columns.columns` takes them; ``more.X``
            is how much more a drawn one is than as it is.
        drawn: Figures that are drawn, by what they are.
        text: What it says.
    """
    rows: list[Document] = []
    for change in changes:
        if change.result is not None:
            figures = change.result.figures()
            more = {name: _more(figures, path, base) for name, path in drawn.items()}
            rows.append({**figures, "change": change.words, "note": change.reason, "more": more})
    table = DataTable.of(f"change | {columns} | note", rows)
    blank = [""] * (len(table.titles) - 2)
    refused = [[one.words, *blank, one.reason] for one in changes if one.result is None]
    series = {
        name: [None if (share := row["more"][name]) is None else 100 * share for row in rows]
        for name in drawn
    }
    picture = bars([row["change"] for row in rows], series, "more than as it is, %")
    has_efficiency = any(change.words.startswith("efficiency") for change in changes)
    text += " Efficiency: memory bandwidth and peak together." if has_efficiency else ""
    whole = DataTable(table.titles, [*table.rows, *refused])
    title = "What a change would do"
    return Section("sensitivity", title, whole, text, picture if rows else None)


def _more(figures: Values, path: str, base: Result | None) -> float | None:
    """How much more a figure is than that of the answer as it is; None where unknown."""
    mine, its = value_at(figures, path), base and value_at(base.figures(), path)
    if not isinstance(mine, int | float) or not isinstance(its, int | float) or not its:
        return None
    share = mine / its - 1
    return share if abs(share) > _ROUNDING else 0.0
