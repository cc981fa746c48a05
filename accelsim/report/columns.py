"""Columns of tables, told in one text: the title of each, and the figure that it shows.

A table for a terminal and one of a page are made from the same text, as ``"~device | >time=
latency_s | fleet={count} x {device}"``: a title that starts with > is of numbers, one with ~ of
texts that may wrap. A figure is written as its name says (see `accelsim.quantity`).
"""

from __future__ import annotations

from accelsim.frozen import frozen
from accelsim.plain import Values
from accelsim.quantity import say, value_at


@frozen
class Cell:
    """A number of a table.

    Attributes:
        text: As people read it.
        value: In the SI unit; None where unknown.
    """

    text: str
    value: float | None


@frozen
class Column:
    """A column of a table.

    Attributes:
        title: As people read it.
        mark: > of numbers, ~ of texts that may wrap, else empty.
        words: What it shows of a row, as `accelsim.quantity.say` takes it.
        figure: Name of the first figure that it shows, whose value a number has.
    """

    title: str
    mark: str
    words: str
    figure: str

    def cell(self, row: Values) -> str | Cell:
        """What it shows of a row: a number with its value; a cell as it is."""
        if isinstance(made := row.get(self.figure), Cell):
            return made
        text = say(self.words, row)
        return text if self.mark != ">" else with_value(text, value_at(row, self.figure))


def with_value(text: str, value: object) -> str | Cell:
    """A text beside its value where that is a number, or unknown."""
    if value is None:
        return Cell(text, None)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(text, float(value)) if is_number else text  # type: ignore[arg-type]


def columns(words: str) -> list[Column]:
    """The columns that a text names.

    Args:
        words: Titles and the figures that they show, between bars; a title alone is the name.
    """
    columns = []
    for one in words.split(" | "):
        marked, _, shown = (part.strip() for part in one.partition("="))
        title = marked.lstrip(">~")
        mark = marked.removesuffix(title)
        said = shown or title.replace(" ", "_")
        said = said if "{" in said else f"{{{said}}}"
        figure = said.partition("{")[2].partition("}")[0].partition(":")[0].removesuffix("?")
        columns.append(Column(title, mark, said, figure))
    return columns
