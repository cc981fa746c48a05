"""What a change of one thing would do: a row of figures for each change, bars of one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accelsim.frozen import frozen
from accelsim.report.page import Cell, DataTable, Section, cell
from accelsim.report.parts import bars
from accelsim.report.quantity import percent

if TYPE_CHECKING:
    from accelsim.exploration.sensitivity.change import Change

#: Differences below are those of the order of sums.
_ROUNDING = 1e-9
Read = Callable[[Any], float | None]


@frozen
class Figure:
    """A figure of an answer.

    Attributes:
        title: Of its column.
        read: What it is of an answer; None where unknown.
        write: How it is written.
    """

    title: str
    read: Read
    write: Callable[[float | None], str]


def against(base: Any, read: Read) -> Read:
    """A figure as what it is more than that of another answer: 0 is as much; None where unknown.

    Args:
        base: The other answer.
        read: The figure.
    """

    def found(one: Any) -> float | None:
        mine, its = read(one), read(base)
        if mine is None or not its:
            return None
        share = mine / its - 1
        return share if abs(share) > _ROUNDING else 0.0

    return found


def changes_section(
    changes: Sequence[Change[Any]],
    figures: Sequence[Figure],
    drawn: Mapping[str, Read],
    text: str,
) -> Section:
    """A row for each change; bars of how much more some figures are.

    Args:
        changes: Answers with one thing changed.
        figures: Columns.
        drawn: What the bars are, by name: shares, as `against` gives.
        text: What it says.
    """
    rows = [(change.words, *_cells(change.result, figures), change.reason) for change in changes]
    known = [change for change in changes if change.result is not None]
    titles = ("change", *(f">{figure.title}" for figure in figures), "note")
    names = [change.words for change in known]
    series = {name: [_percents(read(one.result)) for one in known] for name, read in drawn.items()}
    picture = bars(names, series, "more than as it is, %") if known else None
    has_efficiency = any(change.words.startswith("efficiency") for change in changes)
    text += " Efficiency: memory bandwidth and peak together." if has_efficiency else ""
    title = "What a change would do"
    return Section("sensitivity", title, DataTable(titles, rows), text, picture)


def _cells(result: Any | None, figures: Sequence[Figure]) -> Iterator[str | Cell]:
    for figure in figures:
        yield "" if result is None else cell(figure.read(result), figure.write)


def _percents(share: float | None) -> float | None:
    return None if share is None else 100 * share


def signed(value: float | None) -> str:
    """A share that is more or less than another: "+12 %"."""
    return percent(value) if value is None or value <= 0 else f"+{percent(value)}"
