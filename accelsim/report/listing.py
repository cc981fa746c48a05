"""Plain tables that fit the terminal: columns that matter least go first, long text wraps, names
are never cut.

Where not even the needed columns fit, every row is shown as a record: its name, then title and
value of each figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from accelsim.frozen import frozen

_UNLIMITED = 1_000
#: Width below which a table says which columns it leaves out, and least width of a column that may
#: wrap.
_NARROW = 80
_LEAST_FOLDED = 14


def plain_table(
    headers: Sequence[str], *, right: Iterable[int] = (), fold: Iterable[int] = ()
) -> Table:
    """An empty table in the house style: no lines, bold headers.

    Args:
        headers: Column titles.
        right: Indices of right-aligned columns.
        fold: Indices of columns that wrap; all others keep to one line.
    """
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False
    )
    right, fold = set(right), set(fold)
    for index, header in enumerate(headers):
        table.add_column(
            Text(header),
            justify="right" if index in right else "left",
            no_wrap=index not in fold,
            overflow="fold" if index in fold else "ellipsis",
        )
    return table


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
        titles: str | Sequence[str],
        rows: Sequence[Sequence[str | Text]],
        left_out: str = "",
        **rest: Any,
    ) -> Listing:
        """A listing whose titles stand in one text, as in ``"~model | >time | limit"``.

        Args:
            titles: Titles between bars, or one by one where they may have bars of their own; of a
                column that is right-aligned (>) or may wrap (~).
            rows: Cells, one per title.
            left_out: Dispensable titles, between bars.
            rest: Other fields.
        """
        marked = _words(titles) if isinstance(titles, str) else titles
        headers = [_one_line(title[title[0] in ">~" :]) for title in marked]
        marks = [title[0] for title in marked]
        return cls(
            tuple(headers),
            [[_one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows],
            right=frozenset(h for h, mark in zip(headers, marks, strict=True) if mark == ">"),
            fold=frozenset(h for h, mark in zip(headers, marks, strict=True) if mark == "~"),
            dispensable=_words(left_out),
            **rest,
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


def _one_line(text: str) -> str:
    """A name that has several lines takes one, so that no line of a table is its own."""
    return text.replace("\n", "\\n")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split("|")) if text else ()


def _plain(cell: str | Text) -> str:
    return cell.plain if isinstance(cell, Text) else cell
