"""Strict reader of CSV files: distinct column names, and as many fields in each row."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from accelsim.errors import ProfileError
from accelsim.files.datafile import read_text

_MAX_BYTES = 5_000_000


def csv_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file, each with the name of its line.

    Raises:
        ProfileError: If the file cannot be read, or a row has not as many fields as its header.
    """
    reader = csv.reader(io.StringIO(read_text(path, _MAX_BYTES), newline=""), strict=True)
    try:
        header = next(reader, [])
        if not header or len(set(header)) < len(header) or not all(header):
            raise ProfileError(
                str(path), ["line 1: the header needs distinct, non-empty column names"]
            )
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                problem = (
                    f"line {reader.line_num}: {len(row)} fields under a header of {len(header)}"
                )
                raise ProfileError(str(path), [problem])
            yield f"line {reader.line_num}", dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise ProfileError(str(path), [f"line {reader.line_num}: not valid CSV: {error}"]) from None
