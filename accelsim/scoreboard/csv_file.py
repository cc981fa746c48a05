"""Header and rows of a CSV file, plain or gzip, or the reason why it is none.

Nothing is read beyond a fixed size, a damaged gzip stream tells the row up to which it can be read,
and what is not text, not CSV, not a plain file, or another kind of archive is named as what it is.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

#: Largest table read, bytes after decompression; a gzip bomb ends here. Ten times the largest of
#: the reference tables.
MAX_TABLE_BYTES = 128_000_000
#: Longest line, and most cells and rows of a table: about half a gigabyte of memory.
MAX_LINE_BYTES = 1_000_000
MOST_CELLS = 4_000_000
MOST_ROWS = 500_000
_GZIP_MAGIC = b"\x1f\x8b"
#: Beginnings of other archives, which users rename.
_ARCHIVES = {
    b"\xfd7zXZ\0": "xz",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PAR1": "Parquet",
}
_LONGEST_MAGIC = 6


class FileRefusedError(Exception):
    """The whole file cannot be used; never leaves the reader of tables."""

    def __init__(
        self, reason: str, detail: str, row: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.row = row
        self.column = column


def read_records(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows and the line each row ends on, of a CSV file.

    Raises:
        FileRefusedError: If it cannot be read to its end.
    """
    if path.exists() and not path.is_file():
        raise FileRefusedError("no file", "is a folder or a device, not a file")
    reader: Any = None
    records: list[list[str]] = []
    lines: list[int] = []
    cells = 0
    try:
        with path.open("rb") as file:
            reader = csv.reader(_text_lines(_plain(file)), strict=True)
            for row in filter(None, reader):
                records.append(row)
                lines.append(reader.line_num)
                cells += len(row)
                _check_size(cells, MOST_CELLS, "cells")
                _check_size(len(records) - 1, MOST_ROWS, "rows")
    except csv.Error as error:
        raise FileRefusedError(
            "not CSV", f"is not well-formed CSV: {error}", row=reader.line_num
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        detail = f"the gzip stream is truncated or damaged after this row ({error}); "
        raise FileRefusedError(
            "truncated gzip", f"{detail}copy the file again", row=reader.line_num + 1
        ) from None
    except OSError as error:
        raise FileRefusedError("unreadable", f"cannot be read: {error.strerror or error}") from None
    if not records:
        raise FileRefusedError("empty", "is empty; expected a header line", row=1)
    return _checked_header(records[0]), records[1:], lines[1:]


def _check_size(count: int, most: int, unit: str) -> None:
    if count > most:
        raise FileRefusedError(
            "too large", f"has more than {most:,} {unit}, the most that are read"
        )


def _checked_header(cells: list[str]) -> list[str]:
    header = [name.strip() for name in cells]
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise FileRefusedError(
            "duplicate column", "appears twice in the header", row=1, column=twice[0]
        )
    if len(header) == 1 and (mark := next((mark for mark in ";\t|" if mark in header[0]), None)):
        raise FileRefusedError(
            "wrong separator", f"has columns separated by {mark!r}; expected commas", row=1
        )
    return header


def _plain(file: BinaryIO) -> BinaryIO:
    """The contents of a file, inflated where it is gzip.

    Raises:
        FileRefusedError: If it is an archive of another kind.
    """
    start = file.read(_LONGEST_MAGIC)
    file.seek(0)
    archive = next((name for magic, name in _ARCHIVES.items() if start.startswith(magic)), None)
    if archive is not None:
        raise FileRefusedError(
            "wrong format",
            f"is in {archive} format; expected CSV text, plain or compressed with gzip",
        )
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if start[:2] == _GZIP_MAGIC else file


def _text_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines of a stream, one at a time: what is too large ends where it is."""
    size = 0
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE_BYTES + 1)
        size += len(line)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            detail = f"is longer than {MAX_LINE_BYTES:,} bytes, the longest line that is read"
            raise FileRefusedError("not CSV", detail, row=number)
        if size > MAX_TABLE_BYTES:
            raise FileRefusedError(
                "too large", f"is larger than {MAX_TABLE_BYTES:,} bytes, the most that is read"
            )
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise FileRefusedError("not text", "is not UTF-8 text", row=number) from None
