"""JSON and CSV of results, for other programs.

Key order is that of the data, so that two runs compare line by line. JSON has no NaN or infinity
(RFC 8259 knows neither): they become null like every unknown figure. CSV (RFC 4180) has one header
line; nested mappings become dotted columns, lists of plain values are joined with ";", tables
inside a row (an estimate's operators) are left out.

Names come from other people's files: control characters are written as escapes, and a text cell of
a CSV that a spreadsheet would run as a formula starts with an apostrophe (OWASP, CSV injection).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from accelsim.plain import Document, Values

if TYPE_CHECKING:
    import pandas as pd

#: Control characters but the end of a line, and those that reorder or hide text.
_CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_FORMULA_STARTS = ("=", "+", "-", "@")


class OutputFormat(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "md"


def json_text(data: object) -> str:
    """A mapping or list as indented JSON with a final newline.

    Args:
        data: Plain values, nested mappings and sequences.
    """
    return json.dumps(plain_values(data), indent=2, allow_nan=False) + "\n"


def csv_text(rows: Iterable[Values], columns: Sequence[str] = ()) -> str:
    """Rows as CSV with a header line.

    Args:
        rows: One mapping per line.
        columns: Columns to write even where there are no rows; others follow in the order they
            appear.
    """
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys((*columns, *(key for row in flat for key in row))))
    cells = ([row.get(name, "") for name in names] for row in flat)
    return _csv_lines([list(map(_text_cell, names)), *cells])


def csv_blocks(
    names: Sequence[str], blocks: Iterable[Mapping[str, Sequence[object]]]
) -> Iterator[str]:
    """Many rows as CSV, a block of columns at a time, so that the whole text is never in memory.

    Args:
        names: Columns of the header.
        blocks: Columns of plain values by name, all of one length in a block; a name that a block
            lacks is empty there.

    Yields:
        The header line, then the lines of each block.
    """
    yield _csv_lines([list(map(_text_cell, names))])
    for block in blocks:
        count = len(next(iter(block.values())))
        columns = (map(_cell, block.get(name, [None] * count)) for name in names)
        yield _csv_lines(zip(*columns, strict=True))


def _csv_lines(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def visible(text: str) -> str:
    """A text whose control characters are escapes, so that a terminal shows and does not obey."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def uniform_rows(rows: Sequence[Values], columns: Sequence[str] = ()) -> list[Document]:
    """The rows with the same keys in the same order, None where a row has no such key.

    Args:
        rows: The rows.
        columns: Keys every row gets after those of the rows.
    """
    names = list(dict.fromkeys((*(key for row in rows for key in row), *columns)))
    return [{name: row.get(name) for name in names} for row in rows]


def records(frame: pd.DataFrame) -> list[Document]:
    """Rows of a table as figures by name; None where a value is no number."""
    rows = frame.to_dict("records")
    return [{str(name): None if x != x else x for name, x in row.items()} for row in rows]  # noqa: PLR0124


def plain_values(value: object) -> Any:
    """Nested values as JSON can hold them: text keys, lists, None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _flat(row: Values, prefix: str = "") -> Document:
    cells: Document = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            cells |= _flat(value, f"{name}.")
        elif isinstance(value, (list, tuple)):
            if not any(isinstance(item, Mapping) for item in value):
                cells[name] = ";".join(str(_cell(item)) for item in value)
        else:
            cells[name] = _cell(value)
    return cells


def _cell(value: object) -> object:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return _text_cell(value) if isinstance(value, str) else value


def _text_cell(text: str) -> str:
    shown = visible(text)
    return f"'{shown}" if shown.startswith(_FORMULA_STARTS) else shown
