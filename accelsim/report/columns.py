"""Columns of tables, told in one text: the title of each, and the figure that it shows.

A table for a terminal and one of a page are made from the same text, as ``"~device | >time=
latency_s | fleet={count} x {device}"``: a title that starts with > is of numbers, one with ~ of
texts that may wrap. A figure is written as its name says (see `accelsim.quantity`).
"""

from __future__ import annotations

import re

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

    def __str__(self) -> str:
        return self.text


@frozen
class Column:
    """A column of a table.

    Attributes:
        title: As people read it.
        mark: > of numbers, ~ of texts that may wrap, else empty.
        form: What it shows of a row, as `accelsim.quantity.say` takes it.
        figure: Name of the first figure that it shows, whose value a number has.
    """

    title: str
    mark: str
    form: str
    figure: str

    def cell(self, row: Values) -> str | Cell:
        """What it shows of a row: a number with its value; a cell as it is."""
        if isinstance(cell := row.get(self.figure), Cell):
            return cell
        text = say(self.form, row)
        return text if self.mark != ">" else with_value(text, value_at(row, self.figure))


def with_value(text: str, value: object) -> str | Cell:
    """A text beside its value where that is a number, or unknown."""
    if value is None:
        return Cell(text, None)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(text, float(value)) if is_number else text  # type: ignore[arg-type]


def columns(text: str) -> list[Column]:
    """The columns that a text names.

    Args:
        text: Titles and the figures that they show, between bars; a title alone is the name.
    """
    return [_column(*map(str.strip, column.partition("="))) for column in text.split(" | ")]


def _column(marked_title: str, _: str, shown: str) -> Column:
    title = marked_title.lstrip(">~")
    form = shown or title.replace(" ", "_")
    form = form if "{" in form else f"{{{form}}}"
    figure = re.split("[}:?]", form.partition("{")[2])[0]
    return Column(title, marked_title.removesuffix(title), form, figure)
