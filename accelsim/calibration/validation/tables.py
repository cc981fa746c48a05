"""Strict readers of measured tables: CSV, plain or gzip, with a unit in the name of every measured column.

A table is read whole or refused by name. What is wrong with the file (missing, truncated, a column missing or in another
unit) refuses the file; what is wrong with one row (not a number, a time that is not above 0, a second row of the same
configuration with another time) refuses the row. Both are recorded with file, line and column, so that other files and
rows are still scored and the user knows what to mend. Two rows of one configuration whose times agree within a table's
repeat tolerance are two measurements and both stay.
"""

from __future__ import annotations

import csv
import io
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InputError
from accelsim.workloads.graph import FloatArray

__all__ = ["Column", "DataFolder", "DataProblem", "Schema", "Table", "data_folder", "number", "text", "time_column"]

#: Largest table read, bytes after decompression; a gzip bomb ends here.
MAX_TABLE_BYTES = 512_000_000
_UNITS = ("ns", "us", "ms", "s", "sec", "seconds", "cycles", "w", "j", "bytes", "gbps")
_GZIP_MAGIC = b"\x1f\x8b"
#: Tells zlib that a gzip header comes first.
_GZIP_FORMAT = 16
Kind = Literal["text", "number", "time"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: text, a number >= 0, or a measured time or rate above 0; a file may leave an optional one empty.

    A file may lack a column with `may_lack`, whose cells then all count as empty.
    """

    name: str
    kind: Kind = "text"
    optional: bool = False
    may_lack: bool = False


def text(*names: str, may_lack: bool = False) -> tuple[Column, ...]:
    """Text columns."""
    return tuple(Column(name, may_lack=may_lack) for name in names)


def number(*names: str, optional: bool = False, may_lack: bool = False) -> tuple[Column, ...]:
    """Columns of numbers >= 0; NaN where an optional cell is empty."""
    return tuple(Column(name, "number", optional or may_lack, may_lack) for name in names)


def time_column(*names: str, optional: bool = False) -> tuple[Column, ...]:
    """Measured columns: every value must be above 0."""
    return tuple(Column(name, "time", optional) for name in names)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file must look like.

    Attributes:
        file: Path below the data folder; ``.gz`` may be missing or added.
        columns: Columns that are read; a file may have more.
        key: Columns that name a configuration; empty where rows may repeat.
        repeat_tolerance_fraction: Largest relative difference of two measurements of one configuration.
    """

    file: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    repeat_tolerance_fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class DataProblem:
    """Something wrong in a data file.

    Attributes:
        file: The file, as the user can find it.
        row: Line number, counted from 1 with the header; None for the whole file.
        column: Column; None for the whole file or row.
        reason: Short name of what is wrong.
        detail: What was found and what was expected.
    """

    file: str
    row: int | None
    column: str | None
    reason: str
    detail: str

    def __str__(self) -> str:
        place = [self.file]
        if self.row is not None:
            place.append(f"row {self.row}")
        if self.column is not None:
            place.append(f"column {self.column}")
        return f"{', '.join(place)}: {self.detail}"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of the rows that can be used.

    Attributes:
        file: The file.
        line: Line of each row, shape (n,).
        columns: Text columns as strings, others as floats, shape (n,) each.
        bad: Rows refused, by reason.
    """

    file: str
    line: NDArray[np.int64]
    columns: Mapping[str, Any]
    bad: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def take(self, rows: NDArray[Any]) -> Table:
        """The given rows (indices or mask)."""
        return Table(self.file, self.line[rows], {name: c[rows] for name, c in self.columns.items()}, self.bad)


class _FileRefusedError(Exception):
    """The whole file cannot be used; never leaves this module."""

    def __init__(self, reason: str, detail: str, row: int | None = None, column: str | None = None) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.row, self.column = reason, detail, row, column


@dataclass(slots=True)
class DataFolder:
    """A folder of measured tables; remembers what it read and what was wrong with it.

    Attributes:
        root: The folder.
        problems: Everything refused so far.
    """

    root: Path
    problems: list[DataProblem] = field(default_factory=list)
    _tables: dict[Schema, Table | None] = field(default_factory=dict)

    def has(self, schema: Schema) -> bool:
        """Whether the file is there."""
        return self.path(schema) is not None

    def table(self, schema: Schema) -> Table | None:
        """Read a table, once; None where the file is missing or refused as a whole.

        Args:
            schema: What the file must look like.
        """
        if schema not in self._tables:
            self._tables[schema] = self._read(schema)
        return self._tables[schema]

    def bad_rows(self, schema: Schema) -> Mapping[str, int]:
        """Rows of a table refused as bad data, by reason."""
        table = self._tables.get(schema)
        return {} if table is None else table.bad

    def path(self, schema: Schema) -> Path | None:
        """The file of a table, compressed or not; None where it is missing."""
        plain = schema.file.removesuffix(".gz")
        return next(
            (self.root / name for name in (schema.file, f"{plain}.gz", plain) if (self.root / name).is_file()), None
        )

    def _read(self, schema: Schema) -> Table | None:
        path = self.path(schema)
        if path is None:
            return None
        name = path.relative_to(self.root).as_posix()
        try:
            header, rows = _records(path)
            return self._checked(name, header, rows, schema)
        except _FileRefusedError as refusal:
            self.problems.append(DataProblem(name, refusal.row, refusal.column, refusal.reason, refusal.detail))
            return None

    def _checked(self, name: str, header: list[str], rows: list[list[str]], schema: Schema) -> Table:
        for column in schema.columns:
            _check_column(column, header)
        line = np.arange(2, len(rows) + 2, dtype=np.int64)
        usable = np.ones(len(rows), dtype=np.bool_)
        self._refuse(name, None, "wrong number of cells", _ragged(rows, len(header)), line, usable)
        cells = list(zip(*[row if len(row) == len(header) else [""] * len(header) for row in rows], strict=True))
        columns: dict[str, Any] = {}
        for column in schema.columns:
            raw = (cells[header.index(column.name)] if column.name in header else ("",) * len(rows)) if rows else ()
            values, wrong = _parsed(raw, column, usable)
            self._refuse(name, column.name, _REASONS[column.kind], wrong, line, usable)
            columns[column.name] = values
        self._refuse_repeats(name, schema, columns, line, usable)
        bad = Counter(f"bad data: {p.reason}" for p in self.problems if p.file == name and p.row is not None)
        kept = {key: values[usable] for key, values in columns.items()}
        return Table(name, line[usable], kept, dict(bad))

    def _refuse(
        self,
        name: str,
        column: str | None,
        reason: str,
        wrong: Mapping[int, str],
        line: NDArray[np.int64],
        usable: Mask,
    ) -> None:
        """Record rows that cannot be used, and take them out."""
        for index, detail in wrong.items():
            if usable[index]:
                self.problems.append(DataProblem(name, int(line[index]), column, reason, detail))
                usable[index] = False

    def _refuse_repeats(
        self, name: str, schema: Schema, columns: Mapping[str, Any], line: NDArray[np.int64], usable: Mask
    ) -> None:
        times = [column.name for column in schema.columns if column.kind == "time"]
        if not schema.key or not times:
            return
        keys = list(zip(*[columns[key].tolist() for key in schema.key], strict=True))
        self._refuse(
            name,
            times[0],
            "repeated row with another time",
            _repeats(keys, columns[times[0]], line, usable, schema),
            line,
            usable,
        )


_REASONS: Mapping[Kind, str] = {"text": "empty cell", "number": "not a number", "time": "time not above 0"}


def _records(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file.

    Raises:
        _FileRefusedError: If it cannot be read to its end.
    """
    try:
        raw = _bytes(path)
        reader = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""), strict=True)
        rows = [row for row in reader if row]
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise _FileRefusedError("not text", "is not UTF-8 text", row=line) from None
    except csv.Error as error:
        raise _FileRefusedError("not CSV", f"is not well-formed CSV: {error}") from None
    except OSError as error:
        raise _FileRefusedError("unreadable", f"cannot be read: {error.strerror or error}") from None
    if not rows:
        raise _FileRefusedError("empty", "is empty; expected a header line", row=1)
    header = [name.strip() for name in rows[0]]
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise _FileRefusedError("duplicate column", "appears twice in the header", row=1, column=twice[0])
    return header, rows[1:]


def _bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        raw = stream.read(MAX_TABLE_BYTES + 1)
    is_compressed = raw.startswith(_GZIP_MAGIC) or path.suffix == ".gz"
    found = _inflated(raw) if is_compressed else raw
    if len(found) > MAX_TABLE_BYTES:
        raise _FileRefusedError("too large", f"is larger than {MAX_TABLE_BYTES:,} bytes, the most that is read")
    return found


def _inflated(raw: bytes) -> bytes:
    """Contents of a gzip file of one or more members.

    Raises:
        _FileRefusedError: If it is damaged or ends too early; names the row up to which it can be read.
    """
    parts: list[bytes] = []
    size = 0
    while raw and size <= MAX_TABLE_BYTES:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | _GZIP_FORMAT)
        try:
            parts.append(member.decompress(raw, MAX_TABLE_BYTES + 1 - size))
            reason = "ends before the end of the stream"
        except zlib.error as error:
            reason = str(error)
        size += len(parts[-1]) if parts else 0
        if not member.eof and size <= MAX_TABLE_BYTES:
            row = b"".join(parts).count(b"\n") + 1
            detail = f"the gzip stream is truncated or damaged after this row ({reason}); copy the file again"
            raise _FileRefusedError("truncated gzip", detail, row=row)
        raw = member.unused_data
    return b"".join(parts)


def _check_column(column: Column, header: Sequence[str]) -> None:
    """Refuse a header without the column, and say which column looks like it in another unit."""
    if column.name in header or column.may_lack:
        return
    stem, _, unit = column.name.rpartition("_")
    if unit in _UNITS:
        near = next(
            (name for name in header if name == stem or name.rpartition("_")[::2] in [(stem, u) for u in _UNITS]), None
        )
        if near is not None:
            said = f"is missing, but there is {near!r}: give it in {unit} as {column.name!r}"
            raise _FileRefusedError("wrong unit", said, row=1, column=column.name)
    raise _FileRefusedError("missing column", "is missing from the header", row=1, column=column.name)


def _ragged(rows: list[list[str]], width: int) -> dict[int, str]:
    return {i: f"has {len(row)} cells, the header {width}" for i, row in enumerate(rows) if len(row) != width}


def _parsed(raw: Sequence[str], column: Column, usable: Mask) -> tuple[Any, dict[int, str]]:
    """Values of a column and what is wrong with which row."""
    if column.kind == "text":
        return np.array(raw, dtype=object).astype(str) if raw else np.zeros(0, dtype=str), {}
    values = _floats(raw)
    lowest = values <= 0 if column.kind == "time" else values < 0
    suspect = (np.isnan(values) | np.isinf(values) | lowest) & usable
    wrong: dict[int, str] = {}
    for index in np.flatnonzero(suspect).tolist():
        cell = raw[index].strip()
        if cell == "" and column.optional:
            continue
        wrong[index] = f"{cell[:40]!r} is not {'a time above 0' if column.kind == 'time' else 'a number of 0 or more'}"
    return values, wrong


def _floats(raw: Sequence[str]) -> FloatArray:
    if any("_" in cell for cell in raw):  # Python reads 1_0 as 10
        return np.array([_float(cell) for cell in raw], dtype=np.float64)
    try:
        return np.array(raw, dtype=object).astype(np.float64) if raw else np.zeros(0)
    except (ValueError, TypeError):
        return np.array([_float(cell) for cell in raw], dtype=np.float64)


def _float(cell: str) -> float:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        return math.nan


def _repeats(
    keys: list[tuple[Any, ...]], times: FloatArray, line: NDArray[np.int64], usable: Mask, schema: Schema
) -> dict[int, str]:
    """Rows of one configuration whose times disagree; every one of them, since none can be trusted."""
    seen: dict[tuple[Any, ...], list[int]] = {}
    for index in np.flatnonzero(usable).tolist():
        seen.setdefault(keys[index], []).append(index)
    wrong: dict[int, str] = {}
    for rows in seen.values():
        if len(rows) == 1:
            continue
        found = times[rows]
        if found.max() > found.min() * (1.0 + schema.repeat_tolerance_fraction):
            others = ", ".join(str(int(line[r])) for r in rows)
            wrong |= {
                r: f"rows {others} are one configuration with times from {found.min():g} to {found.max():g}"
                for r in rows
            }
    return wrong


def data_folder(path: Path) -> DataFolder:
    """A folder of the user's.

    Raises:
        InputError: If it is not a folder.
    """
    if not path.is_dir():
        raise InputError(f"data = {str(path)!r} is not a folder. Give the folder that holds the reference tables.")
    return DataFolder(path)
