"""Plain tables that fit the terminal: columns that matter least go first, long text wraps, names
are never cut.

Where not even the needed columns fit, every row is shown as a record: its name, then title and
value of each figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.report.columns import Cell, columns

_UNLIMITED = 1_000
#: Width below which a table says which columns it leaves out, and least width of a column that may
#: wrap.
_NARROW = 80
_LEAST_FOLDED = 14


@frozen
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

    @classmethod
    def of(
        cls,
        words: str,
        rows: Sequence[Values],
        left_out: str = "",
        styles: Sequence[str] = (),
        gap: int = 1,
        first_width: int = 0,
    ) -> Listing:
        """A listing of figures under columns.

        Args:
            words: The columns, as `accelsim.report.columns.columns` takes them.
            rows: Figures by name.
            left_out: Dispensable titles, between bars.
            styles: As the field.
            gap: As the field.
            first_width: As the field.
        """
        shown = columns(words)
        return cls(
            tuple(one.title for one in shown),
            [[_drawn(column.cell(row)) for column in shown] for row in rows],
            frozenset(one.title for one in shown if one.mark == ">"),
            frozenset(one.title for one in shown if one.mark == "~"),
            tuple(left_out.split(" | ") if left_out else ()),
            styles,
            first_width,
            gap,
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with as many columns as fit, or its rows as records where not even the
        needed ones do.
        """
        width = options.max_width
        for count in range(len(self.dispensable) + 1):
            headers = [header for header in self.headers if header not in self.dispensable[:count]]
            if self._width(headers) <= width:
                break
        if self._width(headers, _LEAST_FOLDED) > width:
            yield from self._records(width)
            return
        yield self._table(headers)
        if width < _NARROW and len(headers) < len(self.headers):
            lost = ", ".join(header for header in self.headers if header not in headers)
            yield Text(f"left out, too narrow: {lost}", style="dim")

    def _width(self, headers: Sequence[str], folded: int = _UNLIMITED) -> int:
        """Characters that some columns need when those that may wrap are at most `folded` wide."""
        total = self.gap * (len(headers) - 1)
        for header in headers:
            place = self.headers.index(header)
            widest = max([cell_len(header), *(cell_len(_plain(row[place])) for row in self.rows)])
            least = self.first_width if place == 0 else 0
            total += max(least, min(widest, folded) if header in self.fold else widest)
        return total

    def _records(self, width: int) -> Iterator[Text]:
        """Each row as its first cell, then the others with their titles, as many on a
        line as fit.
        """
        for index, row in enumerate(self.rows):
            style = self.styles[index] if self.styles else ""
            name = _plain(row[0])
            yield Text(
                f"{self.headers[0]} {name}" if self.headers[0] in self.right else name,
                style=f"bold {style}",
            )
            line = Text("  ")
            for header, cell in zip(self.headers[1:], row[1:], strict=True):
                if _plain(cell).strip() in {"", "-"}:
                    continue
                pair = Text.assemble(
                    (f"{header} ", "dim"), cell if isinstance(cell, Text) else Text(cell)
                )
                pair.rstrip()
                if len(line) > 2 and cell_len(line.plain) + 2 + cell_len(pair.plain) > width:
                    yield line
                    line = Text("  ")
                line = Text.assemble(line, ", " if len(line) > 2 else "", pair)
            yield line

    def _table(self, headers: Sequence[str]) -> Table:
        table = Table(
            box=None,
            pad_edge=False,
            padding=(0, self.gap, 0, 0),
            header_style="bold",
            show_edge=False,
            show_header=any(headers),
        )
        for header in headers:
            folds = header in self.fold
            table.add_column(
                Text(header),
                justify="right" if header in self.right else "left",
                no_wrap=not folds,
                overflow="fold" if folds else "ellipsis",
            )
        table.columns[0].min_width = self.first_width or None
        kept = [self.headers.index(header) for header in headers]
        for index, row in enumerate(self.rows):
            texts = [Text(cell) if isinstance(cell := row[place], str) else cell for place in kept]
            table.add_row(*texts, style=self.styles[index] if self.styles else None)
        return table


def panel(title: str, lines: Iterable[tuple[str, str]], below: Listing | None = None) -> Group:
    """What a result says of itself, line by line in a frame, and a table below it."""
    drawn = Panel(
        pairs(lines, style="bold"), title=Text(title), title_align="left", border_style="dim"
    )
    return Group(drawn, *([Padding(below, (1, 0, 0, 0))] if below and below.rows else []))


def pairs(rows: Iterable[tuple[str, str]], *, gap: int = 2, **first: Any) -> Table:
    """Names beside texts that may wrap.

    Args:
        rows: Name and text of each line.
        gap: Blanks between them.
        first: How the names are drawn, as `Table.add_column` takes it.
    """
    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_column(no_wrap=True, **first)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name), Text(text))
    return grid


def one_line(text: str) -> str:
    """A name that has several lines takes one, so that no line of a table is its own."""
    return text.replace("\n", "\\n")


def _drawn(cell: str | Cell) -> str:
    return one_line(cell if isinstance(cell, str) else cell.text)


def _plain(cell: str | Text) -> str:
    return cell.plain if isinstance(cell, Text) else cell
