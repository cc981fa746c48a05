"""Plain tables that fit the terminal: columns that matter least go first, long text wraps, names are never cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = ["Listing", "plain_table"]

_UNLIMITED: Final = 1_000


def plain_table(headers: Sequence[str], *, right: Iterable[int] = (), fold: Iterable[int] = ()) -> Table:
    """An empty table in the house style: no lines, bold headers.

    Args:
        headers: Column titles.
        right: Indices of right-aligned columns.
        fold: Indices of columns that wrap; all others keep to one line.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    right, fold = set(right), set(fold)
    for index, header in enumerate(headers):
        table.add_column(
            Text(header),
            justify="right" if index in right else "left",
            no_wrap=index not in fold,
            overflow="fold" if index in fold else "ellipsis",
        )
    return table


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of text under headers.

    Attributes:
        headers: Column titles, all different.
        rows: Cells, one per header.
        right: Titles of right-aligned columns.
        fold: Titles of columns that may wrap.
        dispensable: Titles of columns left out where the terminal is narrow, in this order.
        styles: Style of each row; empty for none.
        first_width: Least width of the first column.
        gap: Blanks between columns.
    """

    headers: tuple[str, ...]
    rows: Sequence[Sequence[str | Text]]
    right: frozenset[str] = frozenset()
    fold: frozenset[str] = frozenset()
    dispensable: tuple[str, ...] = ()
    styles: Sequence[str] = ()
    first_width: int = 0
    gap: int = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with as many columns as fit."""
        unlimited = options.update(width=_UNLIMITED)
        table = self._table(self.headers)
        for count in range(1, len(self.dispensable) + 1):
            if Measurement.get(console, unlimited, table).maximum <= options.max_width:
                break
            table = self._table([h for h in self.headers if h not in self.dispensable[:count]])
        yield table

    def _table(self, headers: Sequence[str]) -> Table:
        kept = [self.headers.index(header) for header in headers]
        right = [place for place, header in enumerate(headers) if header in self.right]
        fold = [place for place, header in enumerate(headers) if header in self.fold]
        table = plain_table(headers, right=right, fold=fold)
        table.padding = (0, self.gap, 0, 0)
        table.columns[0].min_width = self.first_width or None
        for index, row in enumerate(self.rows):
            cells = [row[place] for place in kept]
            texts = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
            table.add_row(*texts, style=self.styles[index] if self.styles else None)
        return table
