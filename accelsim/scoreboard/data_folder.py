"""Strict readers of measured tables: CSV, plain or gzip, with a unit in the name of every measured
column.

A table is read whole or refused by name. What is wrong with the file (missing, truncated, a column
missing or in another unit) refuses the file; what is wrong with one row (not a number, a time that
is not above 0, a second row of the same configuration with another time) refuses the row. Both are
recorded with file, line and column, so that other files and rows are still scored and the user
knows what to mend. Two rows of one configuration whose times agree within a table's repeat
tolerance are two measurements and both stay.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InputError
from accelsim.files.datafile import data_root, read_yaml
from accelsim.frozen import frozen
from accelsim.plain import Document, Values, grouped
from accelsim.scoreboard.csv_file import FileRefusedError, read_records
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, TextArray

#: Why a row is refused whose figure is in another unit than the one asked.
WRONG_UNIT = "bad data: wrong unit"
_UNITS = ("ns", "us", "ms", "s", "sec", "seconds", "cycles", "w", "j", "bytes", "gbps")
#: Least number above 0, largest number and length of text that a cell may have: beyond lie slips,
#: whose ratios overflow.
_LARGEST = 1e15
_LONGEST: Mapping[str, int] = {"name": 200, "text": 5_000}
#: Characters of all cells of a column when each is as long as the longest, as numpy stores them:
#: longer cells of a table with many rows are refused.
_MOST_CHARACTERS = 16_000_000
_ALWAYS_READ = 100
_SMALLEST = 1e-15
Kind = Literal["text", "name", "number", "count", "time"]
Mask = BoolArray


@frozen
class Column:
    """One column; a file may leave the cells of an optional one empty.

    Attributes:
        name: In the header.
        kind: Text; a name, which is text that is not empty; a number >= 0; a count, which is a
            whole number >= 1; or a measured time or rate above 0.
        optional: Whether a number may be missing; it is NaN then.
        may_lack: Whether a file may lack the column, whose cells then all count as empty.
        allowed: Names that are known; all where empty.
        largest: Largest number.
    """

    name: str
    kind: Kind = "text"
    optional: bool = False
    may_lack: bool = False
    allowed: frozenset[str] = frozenset()
    largest: float = _LARGEST


@frozen
class Schema:
    """What a file must look like.

    Attributes:
        file: Path below the data folder; ``.gz`` may be missing or added.
        columns: Columns that are read; a file may have more.
        key: Columns that name a configuration; empty where rows may repeat.
        repeat_tolerance_fraction: Largest relative difference of two measurements of one
            configuration.
        whole: Column whose rows of one value belong together: one that is refused takes the others
            with it; empty for none.
    """

    file: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    repeat_tolerance_fraction: float = 0.0
    whole: str = ""


def schema_of(file: str, entry: Values) -> Schema:
    """The schema of a file in the notation of ``calibration/published/tables.yaml``.

    Args:
        file: Path below the data folder.
        entry: Names of columns by kind ("time", "number or empty"), and what else a `Schema` has.
    """
    allowed = entry.get("allowed", {})
    largest = entry.get("largest", {})
    columns = [
        Column(
            name,
            kind,  # type: ignore[arg-type]
            optional=lack != "",
            may_lack=lack == "absent",
            allowed=frozenset(allowed.get(name, ())),
            largest=largest.get(name, _LARGEST),
        )
        for kind_and_lack, names in entry.items()
        for kind, _, lack in [kind_and_lack.partition(" or ")]
        if kind in _REASONS
        for name in names
    ]
    tolerance = entry.get("repeat_tolerance_fraction", 0.0)
    key = tuple(entry.get("key", ()))
    whole_column = entry.get("whole", "")
    return Schema(file, tuple(columns), key, tolerance, whole_column)


def schema(file: str) -> Schema:
    """The schema of a table that accelsim's own suites read."""
    return schema_of(file, published("tables")[file])


@lru_cache(maxsize=32)
def published(name: str) -> Values:
    """A file of ``calibration/published``: what is known of the measured tables.

    Args:
        name: Without its suffix.
    """
    return read_yaml(data_root() / "calibration" / "published" / f"{name}.yaml")


@frozen
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
        position = [self.file]
        if self.row is not None:
            position.append(f"row {self.row}")
        if self.column is not None:
            position.append(f"column {self.column}")
        return f"{', '.join(position)}: {self.detail}"


@frozen(eq=False)
class Table:
    """Columns of the rows that can be used.

    Attributes:
        file: The file.
        line: Line of each row, shape (n,).
        columns: Text columns as strings, others as floats, shape (n,) each.
        bad: Rows refused, by reason.
    """

    file: str
    line: IntArray
    columns: Values
    bad: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def records(self) -> Iterator[Document]:
        """Rows as mappings of plain values, in their order."""
        cells = zip(*(column.tolist() for column in self.columns.values()), strict=True)
        return (dict(zip(self.columns, row, strict=True)) for row in cells)

    def take(self, rows: NDArray[Any]) -> Table:
        """The given rows (indices or mask)."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, line=self.line[rows], columns=columns)


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

    def records(self, schema: Schema) -> Iterator[Document]:
        """Rows of a table as mappings of plain values; none where there is no such table."""
        table = self.table(schema)
        return iter(()) if table is None else table.records()

    def filled(self, schema: Schema) -> Table | None:
        """The same; None where no row can be used, too."""
        table = self.table(schema)
        return table if table is not None and len(table) else None

    def note(self, problem: DataProblem) -> None:
        """Record a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def bad_rows(self, schema: Schema) -> Mapping[str, int]:
        """Rows of a table refused as bad data, by reason."""
        table = self._tables.get(schema)
        return {} if table is None else table.bad

    def refuse_units(self, table: Table, wanted: TextArray) -> Mask:
        """Record rows whose figure is in another unit than the one asked of them.

        Args:
            table: Rows that are asked.
            wanted: Unit of each, shape (n,); empty where any will do.

        Returns:
            Which rows these are, shape (n,).
        """
        wrong: Mask = (wanted != "") & (table["unit"] != wanted)
        for row in np.flatnonzero(wrong).tolist():
            given_unit = str(table["unit"][row])[:40]
            unit = str(wanted[row])
            detail = f"{given_unit!r} is not {unit!r}, the unit of such rows"
            self.problems.append(
                DataProblem(table.file, int(table.line[row]), "unit", "wrong unit", detail)
            )
        return wrong

    def path(self, schema: Schema) -> Path | None:
        """The file of a table, compressed or not; None where there is nothing of that name."""
        plain = schema.file.removesuffix(".gz")
        names = dict.fromkeys(
            (schema.file, f"{plain}.gz", plain, *(f"{plain}{suffix}" for suffix in _OTHER_SUFFIXES))
        )
        present = [self.root / name for name in names if os.path.lexists(self.root / name)]
        return next((path for path in present if path.is_file()), present[0] if present else None)

    def _read(self, schema: Schema) -> Table | None:
        path = self.path(schema)
        if path is None:
            return None
        name = path.relative_to(self.root).as_posix()
        try:
            return self._checked(name, schema, *read_records(path))
        except FileRefusedError as refusal:
            self.problems.append(
                DataProblem(name, refusal.row, refusal.column, refusal.reason, refusal.detail)
            )
            return None

    def _checked(
        self, name: str, schema: Schema, header: list[str], rows: list[list[str]], lines: list[int]
    ) -> Table:
        for column in schema.columns:
            _check_column(column, header)
        line = np.array(lines, dtype=np.int64)
        usable = np.ones(len(rows), dtype=bool)

        refuse = partial(self._refuse, name, line, usable)
        ragged = _ragged(header, rows)
        if ragged and schema.whole:
            first = min(ragged)
            raise FileRefusedError("wrong number of cells", ragged[first], row=int(line[first]))
        refuse(None, "wrong number of cells", ragged)
        empty = [""] * len(header)
        full_rows = (empty if index in ragged else row for index, row in enumerate(rows))
        cells = dict(zip(header, zip(*full_rows, strict=True), strict=False))
        columns: Document = {}
        for column in schema.columns:
            raw = cells.get(column.name, ("",) * len(rows))
            columns[column.name], wrong = _parsed(raw, column, usable)
            refuse(column.name, _REASONS[column.kind], wrong)
        times = [column.name for column in schema.columns if column.kind == "time"]
        if schema.key and times:
            wrong = _repeats(schema, columns, columns[times[0]], line, usable)
            refuse(times[0], "repeated row with another time", wrong)
        if schema.whole:
            usable &= ~np.isin(columns[schema.whole], columns[schema.whole][~usable])
        return Table(name, line, columns, self._bad_rows_of(name)).take(usable)

    def _refuse(
        self,
        name: str,
        line: IntArray,
        usable: Mask,
        column: str | None,
        reason: str,
        wrong: Mapping[int, str],
    ) -> None:
        """Record rows that cannot be used, and take them out."""
        for index, detail in wrong.items():
            if usable[index]:
                self.problems.append(DataProblem(name, int(line[index]), column, reason, detail))
                usable[index] = False

    def _bad_rows_of(self, name: str) -> dict[str, int]:
        """Rows of a file refused so far, by reason."""
        rows = (p for p in self.problems if p.file == name and p.row is not None)
        return dict(Counter(f"bad data: {problem.reason}" for problem in rows))


#: Archives that are refused by name, since their tables were surely meant to be read.
_OTHER_SUFFIXES = (".xz", ".zip", ".bz2", ".zst")
_REASONS: Mapping[Kind, str] = {
    "text": "not a text",
    "name": "unknown name",
    "number": "not a number",
    "count": "not a count",
    "time": "time not above 0",
}
_WANTED: Mapping[Kind, str] = {
    "number": "a number from 0 to {:g}",
    "count": "a whole number from 1 to {:g}",
    "time": "a time above 0, and below {:g}",
}


def _ragged(header: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[int, str]:
    """Rows that have not as many cells as the header, with what is wrong."""
    width = len(header)
    return {
        index: f"has {len(row)} cells, the header {width}"
        for index, row in enumerate(rows)
        if len(row) != width
    }


def _check_column(column: Column, header: Sequence[str]) -> None:
    """Refuse a header without the column, and say which column looks like it, or has it in another
    unit.
    """
    if column.name in header or column.may_lack:
        return
    stem, _, unit = column.name.rpartition("_")
    if unit in _UNITS:
        others = {stem, *(f"{stem}_{other}" for other in _UNITS)}
        near = next((name for name in header if name.lower() in others), None)
        if near is not None:
            detail = f"is missing, but there is {near!r}: give it in {unit} as {column.name!r}"
            raise FileRefusedError("wrong unit", detail, row=1, column=column.name)
    close = get_close_matches(column.name.lower(), header, n=1, cutoff=0.75)
    hint = f"; {close[0]!r} is there" if close else ""
    raise FileRefusedError(
        "missing column", f"is missing from the header{hint}", row=1, column=column.name
    )


def _parsed(raw: Sequence[str], column: Column, usable: Mask) -> tuple[Any, dict[int, str]]:
    """Values of a column and what is wrong with which row."""
    if column.kind in {"text", "name"}:
        return _texts(raw, column)
    values = _floats(raw)
    below = {
        "time": values < _SMALLEST,
        "count": (values < 1) | (values != np.floor(values)),
        "number": (values < _SMALLEST) & (values != 0),
    }
    suspect = (np.isnan(values) | (values > column.largest) | below[column.kind]) & usable
    wrong: dict[int, str] = {}
    for index in np.flatnonzero(suspect).tolist():
        cell = raw[index].strip()
        if cell == "" and column.optional:
            continue
        wrong[index] = f"{cell[:40]!r} is not {_WANTED[column.kind].format(column.largest)}"
    return values, wrong


def _texts(raw: Sequence[str], column: Column) -> tuple[Any, dict[int, str]]:
    """Text cells; those that cannot be one are empty."""
    longest = min(_LONGEST[column.kind], max(_ALWAYS_READ, _MOST_CHARACTERS // max(len(raw), 1)))
    faults = {cell: fault for cell in set(raw) if (fault := _text_fault(cell, column, longest))}
    wrong = {index: faults[cell] for index, cell in enumerate(raw) if cell in faults}
    return np.array(["" if cell in faults else cell for cell in raw], dtype=str), wrong


def _text_fault(cell: str, column: Column, longest: int) -> str:
    """What is wrong with a text; empty where nothing is."""
    if len(cell) > longest:
        return f"{cell[:40]!r} has {len(cell):,} characters, more than {longest:,}"
    if column.kind == "text":
        return ""
    if not cell.strip():
        return "is empty"
    if column.allowed and cell not in column.allowed:
        return f"{cell!r} is not one of {', '.join(sorted(column.allowed))}"
    return "" if cell.isprintable() else f"{cell!r} has control characters"


def _floats(raw: Sequence[str]) -> FloatArray:
    if not any("_" in cell for cell in raw):  # Python reads 1_0 as 10
        with contextlib.suppress(ValueError, TypeError):
            return np.array(raw, dtype=object).astype(np.float64)
    return np.array([_float(cell) for cell in raw], dtype=np.float64)


def _float(cell: str) -> float:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        return math.nan


def _repeats(
    schema: Schema,
    columns: Values,
    times: FloatArray,
    line: IntArray,
    usable: Mask,
) -> dict[int, str]:
    """Rows of one configuration whose times disagree: every one, since none can be trusted."""
    keys = list(zip(*[columns[key].tolist() for key in schema.key], strict=True))
    wrong: dict[int, str] = {}
    for rows in grouped(np.flatnonzero(usable).tolist(), keys.__getitem__).values():
        low = times[rows].min()
        high = times[rows].max()
        if len(rows) > 1 and high > low * (1.0 + schema.repeat_tolerance_fraction):
            others = ", ".join(map(str, line[rows].tolist()))
            detail = f"rows {others} are one configuration with times from {low:g} to {high:g}"
            wrong |= dict.fromkeys(rows, detail)
    return wrong


def data_folder(path: Path) -> DataFolder:
    """A folder of the user's.

    Raises:
        InputError: If it is not a folder.
    """
    if not path.is_dir():
        raise InputError(
            f"data = {str(path)!r} is not a folder. Give the one that holds the reference tables."
        )
    return DataFolder(path)
