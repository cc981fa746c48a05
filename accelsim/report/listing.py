"""Plain tables that fit the terminal: long text wraps, and columns that find no room beside the
others stand in a table below, which repeats the first column. Nothing is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from accelsim.frozen import frozen
from accelsim.plain import Rows, Values
from accelsim.quantity import say
from accelsim.report.columns import columns

#: Least width of a column that may wrap.
_LEAST_FOLDED = 14
_WORD = re.compile(r"\s*\S+")
#: A name too long for a line breaks after a mark that joins its words.
_PIECE = re.compile(r"\s*[^\s/,:+_-]*[/,:+_-]*")


@frozen
class Wrapped:
    """A text that wraps after a word; inside one that is longer than the line, after a mark."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield its lines."""
        lines = [""]
        for piece in self._pieces(options.max_width):
            if lines[-1] and cell_len(lines[-1] + piece) > options.max_width:
                lines.append(piece.lstrip())
            else:
                lines[-1] += piece
        yield Text("\n".join(lines))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """From the longest piece to all on one line."""
        longest = max(map(cell_len, self._pieces(_LEAST_FOLDED)), default=0)
        return Measurement(longest, cell_len(self.text)).with_maximum(options.max_width)

    def _pieces(self, width: int) -> list[str]:
        """What stays together on lines of a width."""
        return [
            piece
            for word in _WORD.findall(self.text)
            for piece in ([word] if cell_len(word.lstrip()) <= width else _PIECE.findall(word))
        ]


@frozen
class Listing:
    """Rows of text under headers.

    Attributes:
        headers: Column titles, all different.
        rows: Cells, one per header.
        right: Titles of right-aligned columns.
        fold: Titles of columns that may wrap.
        styles: Style of each row; empty for none.
        first_width: Least width of the first column.
        gap: Blanks between columns.
    """

    headers: tuple[str, ...]
    rows: Sequence[Sequence[str | Text]]
    right: frozenset[str] = frozenset()
    fold: frozenset[str] = frozenset()
    styles: Sequence[str] = ()
    first_width: int = 0
    gap: int = 1

    @classmethod
    def of(
        cls,
        column_text: str,
        rows: Rows,
        styles: Sequence[str] = (),
        gap: int = 1,
        first_width: int = 0,
    ) -> Listing:
        """A listing of figures under columns.

        Args:
            column_text: The columns, as `accelsim.report.columns.columns` takes them.
            rows: Figures by name.
            styles: As the field.
            gap: As the field.
            first_width: As the field.
        """
        shown = columns(column_text)
        right, fold = (
            frozenset(column.title for column in shown if column.mark == mark) for mark in ">~"
        )
        return cls(
            tuple(column.title for column in shown),
            [[one_line(str(column.cell(row))) for column in shown] for row in rows],
            right,
            fold,
            styles,
            first_width,
            gap,
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a table of all columns, or one below the other, each with the first column."""
        blocks = [[0]]
        for index in range(1, len(self.headers)):
            if len(blocks[-1]) > 1 and self._width([*blocks[-1], index]) > options.max_width:
                blocks.append([0])
            blocks[-1].append(index)
        for number, block in enumerate(blocks):
            if number:
                yield Text("")
            yield self._table(block)

    def _width(self, columns: Sequence[int]) -> int:
        """Least characters that some columns need."""
        widths = [self.first_width if 0 in columns else 0]
        for column in columns:
            texts = (self.headers[column], *(str(row[column]) for row in self.rows))
            widest = max(map(cell_len, texts))
            folds = self.headers[column] in self.fold
            widths.append(min(widest, _LEAST_FOLDED) if folds else widest)
        return max(widths[:2]) + sum(widths[2:]) + self.gap * (len(columns) - 1)

    def _table(self, columns: Sequence[int]) -> Table:
        table = Table(
            box=None,
            pad_edge=False,
            padding=(0, self.gap, 0, 0),
            header_style="bold",
            show_edge=False,
            show_header=any(self.headers[column] for column in columns),
        )
        for column in columns:
            header = self.headers[column]
            folds = header in self.fold
            table.add_column(
                Text(header),
                justify="right" if header in self.right else "left",
                no_wrap=column > 0 and not folds,
                overflow="fold",
            )
        table.columns[0].min_width = self.first_width or None
        for index, row in enumerate(self.rows):
            cells = (_drawn(row[column]) for column in columns)
            table.add_row(*cells, style=self.styles[index] if self.styles else None)
        return table


def panel(title: str, lines: Iterable[tuple[str, str]], below: Listing | None = None) -> Group:
    """What a result says of itself, line by line in a frame, and a table below it."""
    framed = Panel(pairs(lines), title=Text(title), title_align="left", border_style="dim")
    return Group(framed, *(("", below) if below and below.rows else ()))


def heading(document: Values) -> Text:
    """Title and name of an entry of the catalogue."""
    return Text(f"{document['title']} ({document['name']})", style="bold cyan")


def notes(texts: Iterable[str]) -> list[Text]:
    """What a reader should know beside a table."""
    return [Text(text, style="dim") for text in texts]


def filled(forms: Mapping[str, str], values: Values) -> list[tuple[str, str]]:
    """Names and texts of the lines that say something.

    Args:
        forms: What is said under each name, as `accelsim.quantity.say` takes it.
        values: Figures by name.
    """
    lines = ((name, say(form, values)) for name, form in forms.items())
    return [(name, text) for name, text in lines if text]


def pairs(
    rows: Iterable[tuple[str, str]],
    *,
    gap: int = 2,
    style: str = "bold",
    min_width: int | None = None,
    justify: Literal["left", "right"] = "left",
) -> Table:
    """Names beside texts that may wrap.

    Args:
        rows: Name and text of each line.
        gap: Blanks between them.
        style: Of the names, as `Table.add_column` takes it, like what follows.
        min_width: Likewise.
        justify: Likewise.
    """
    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_column(no_wrap=True, style=style, min_width=min_width, justify=justify)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name), Wrapped(text))
    return grid


def one_line(text: str) -> str:
    """A name that has several lines takes one, so that no line of a table is its own."""
    return text.replace("\n", "\\n")


def _drawn(cell: str | Text) -> Wrapped | Text:
    return Wrapped(cell) if isinstance(cell, str) else cell
