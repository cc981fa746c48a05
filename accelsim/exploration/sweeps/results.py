"""What to read from a sweep's points: the best, those that none beats, a table of two fields, and
what changed between two sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from accelsim.errors import AccelsimError, InvalidValueError, OutputError, UnknownNameError
from accelsim.estimation.pareto import pareto_mask
from accelsim.exploration.sweeps.store import arrow, part_paths
from accelsim.files.formats import records
from accelsim.plain import Document, Values

if TYPE_CHECKING:
    import pandas as pd

#: How points of one cell are put together.
HOW = ("min", "max", "mean", "median", "count")
_LARGE = ":max"
#: Columns that name a point, beside what its sweep varies.
NAMED = ("workload", "device", "batch", "precision")
#: Most reasons of points without figures that are told.
_MOST_REASONS = 8


def stored(folder: str | Path) -> tuple[list[str], int]:
    """Columns of a sweep's points, and how many points there are.

    Args:
        folder: Of the sweep.

    Raises:
        OutputError: If there is none, or a part is damaged.
        MissingDependencyError: If pyarrow is not installed.
    """
    arrow()
    import pyarrow.parquet as pq

    with _readable(folder):
        parts = part_paths(Path(folder))
        return pq.read_schema(parts[0]).names, sum(count for _, _, count in _placed(parts))


def frames(folder: str | Path, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Points of a sweep's folder, a part at a time, each by its place in the folder; words are
    categories.

    Args:
        folder: Of the sweep.
        columns: Those to read.

    Raises:
        OutputError: If there is none, or a part is damaged.
    """
    import pandas as pd
    import pyarrow.parquet as pq

    with _readable(folder):
        for path, start, count in _placed(part_paths(Path(folder))):
            with pq.ParquetFile(path) as file:
                table = file.read(columns=list(columns), use_threads=False)
            index = pd.RangeIndex(start, start + count)
            yield table.to_pandas(strings_to_categorical=True).set_index(index)


def _placed(parts: Sequence[Path]) -> Iterator[tuple[Path, int, int]]:
    """Each part with the place of its first point and its number of points."""
    import pyarrow.parquet as pq

    start = 0
    for path in parts:
        count = pq.read_metadata(path).num_rows
        yield path, start, count
        start += count


def points(
    folder: str | Path, where: str = "", columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Points of a sweep's folder, a row each, by their place in it.

    Args:
        folder: Of the sweep.
        where: Values that columns have, as ``workload=resnet-50,precision=fp16``; all if empty.
        columns: Those to read, of which ``:max`` is left out; all where None. Of many points all
            columns take gigabytes: read what decides, then `points_at` the places that it leaves.

    Raises:
        OutputError: If there is none, or a part is damaged.
        InputError: If a column is unknown, or no point has such values.
        MissingDependencyError: If pyarrow is not installed.
    """
    arrow()
    import pyarrow.parquet as pq

    parts = part_paths(Path(folder))
    conditions = [word.partition("=") for word in where.split(",") if word]
    with _readable(folder):
        listed = pq.read_schema(parts[0]).names
        names = listed if columns is None else [name.removesuffix(_LARGE) for name in columns]
        needed = list(dict.fromkeys([*names, *(name for name, _, _ in conditions)]))
        _known(listed, *needed)
        frame: pd.DataFrame = pq.read_table(parts, columns=needed).to_pandas(
            split_blocks=True, self_destruct=True
        )
    for name, _, text in conditions:
        values = [value for value in frame[name].unique() if str(value) == text]
        frame = frame[frame[name].isin(values)]
        if frame.empty:
            raise InvalidValueError("where", f"{name}={text}", "a value that points have")
    return frame[list(dict.fromkeys(names))]


def points_at(
    folder: str | Path, places: Sequence[int], columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Some points of a sweep's folder, in the order asked; parts are read one after the other.

    Args:
        folder: Of the sweep.
        places: Their places, as the index of `points` has them.
        columns: Those to read; all where None.

    Raises:
        OutputError: If there is none, or a part is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    indices = np.asarray(places, dtype=np.int64)
    order = np.sort(indices)
    with _readable(folder):
        parts = part_paths(Path(folder))
        schema = pq.read_schema(parts[0])
        names = schema.names if columns is None else list(columns)
        tables = [schema.empty_table().select(names)]
        for path, start, count in _placed(parts):
            own = order[slice(*np.searchsorted(order, (start, start + count)))]
            if len(own):
                tables.append(pq.read_table(path, columns=names).take(pa.array(own - start)))
        frame: pd.DataFrame = pa.concat_tables(tables).to_pandas()
    return frame.set_axis(order).loc[indices]


@contextmanager
def _readable(folder: str | Path) -> Iterator[None]:
    """Errors of damaged parts as those of the folder.

    Raises:
        OutputError: For any of them.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, AccelsimError):
            raise
        remedy = "Run its sweep again: it answers damaged parts anew."
        raise OutputError(f"{folder}: cannot be read: {error}. {remedy}") from None


def _known(frame: pd.DataFrame | Sequence[str], *names: str) -> None:
    """Refuse a column that is not there.

    Raises:
        UnknownNameError: Naming it and near ones.
    """
    for name in names:
        if name not in frame:
            columns = f"The columns: {', '.join(map(str, frame))}."
            raise UnknownNameError("column", name, map(str, frame), columns)


def _figures(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column of numbers.

    Raises:
        InvalidValueError: If it holds words.
        UnknownNameError: If it is not there.
    """
    _known(frame, name)
    if frame[name].dtype.kind not in "iufb":
        raise InvalidValueError("column", name, "a column of numbers")
    return frame[name].astype(float)


def _objective(frame: pd.DataFrame, word: str) -> pd.Series:
    """A column to be made small: ``NAME:max`` is turned around."""
    name = word.removesuffix(_LARGE)
    return _figures(frame, name) * (-1.0 if word.endswith(_LARGE) else 1.0)


def top(frame: pd.DataFrame, by: str, count: int = 10) -> pd.DataFrame:
    """The best points, those without the figure left out.

    Args:
        frame: Points.
        by: Column to be small, or ``NAME:max`` to be large.
        count: How many.

    Raises:
        InputError: If there is no such column of numbers, or the count is below 1.
    """
    if count < 1:
        raise InvalidValueError("count", count, "a whole number from 1")
    order = _objective(frame, by).dropna().sort_values(kind="stable").index
    return frame.loc[order[:count]]


def pareto(frame: pd.DataFrame, objectives: Sequence[str]) -> pd.DataFrame:
    """Points that no other beats in all objectives, sorted by the first; those of which one is
    unknown are left out.

    Args:
        frame: Points.
        objectives: Columns to be small, or ``NAME:max`` to be large; two at least.

    Raises:
        InputError: If there is no such column of numbers, or only one is named.
    """
    if len(objectives) < 2:
        raise InvalidValueError("objectives", ", ".join(objectives), "two columns at least")
    values = np.stack([_objective(frame, word).to_numpy() for word in objectives], axis=1)
    complete = np.flatnonzero(~np.isnan(values).any(axis=1))
    front = complete[pareto_mask(values[complete])]
    return frame.iloc[front[np.lexsort(values[front].T[::-1])]]


def pivot(
    frame: pd.DataFrame, rows: str, columns: str, values: str, how: str = "min"
) -> pd.DataFrame:
    """A table of a figure by two fields.

    Args:
        frame: Points.
        rows: Field of the rows.
        columns: Field of the columns.
        values: Figure.
        how: What a cell shows of the points it stands for (`HOW`).

    Raises:
        InputError: If there is no such column or way, or two of the three are one.
    """
    if how not in HOW:
        raise InvalidValueError("how", how, "one of " + ", ".join(HOW))
    _known(frame, rows, columns)
    _figures(frame, values)
    if len({rows, columns, values}) < 3:
        raise InvalidValueError("values", values, f"three columns, not {rows}, {columns}, {values}")
    return frame.pivot_table(index=rows, columns=columns, values=values, aggfunc=cast("Any", how))


def refusals(folder: str | Path) -> list[Document]:
    """Why points of a sweep have no figures, the most frequent reason first.

    Args:
        folder: Of the sweep.

    Returns:
        For each kind of reason, which is its text up to a colon, the number of its points
        (``points_count``), and the fields and the ``reason`` of the ``first`` of them.

    Raises:
        OutputError: If there is no sweep, or a part is damaged.
    """
    reasons = points(folder, columns=["reason"])["reason"].loc[lambda texts: texts != ""]
    kinds = reasons.groupby(reasons.str.split(":").str[0], sort=False)
    counts = kinds.size().sort_values(ascending=False, kind="stable")[:_MOST_REASONS]
    rows = records(points_at(folder, [kinds.groups[kind][0] for kind in counts.index]))
    return [
        {"points_count": int(count), "first": _point_name(row), "reason": row["reason"]}
        for row, count in zip(rows, counts, strict=True)
    ]


def _point_name(row: Values) -> str:
    """What names a point; where that is not known, all that was asked."""
    names = [str(row[name]) for name in NAMED if row.get(name)]
    asked = {n.removeprefix("asked_"): v for n, v in row.items() if n.startswith("asked_")}
    return ", ".join(names or [f"{name} {value}" for name, value in asked.items() if value])


def diff(before: pd.DataFrame, after: pd.DataFrame, tolerance: float = 1e-9) -> pd.DataFrame:
    """Figures of the points that two sweeps share which differ, a row per figure, the largest
    change first; points that only one has are counted in the attributes ``only_before`` and
    ``only_after``.

    Args:
        before: Points.
        after: Points.
        tolerance: Relative change up to which figures are equal.

    Raises:
        InvalidValueError: If the tolerance is negative, or no point is in both.
    """
    import pandas as pd

    if not tolerance >= 0:
        raise InvalidValueError("tolerance", tolerance, "a number >= 0")
    old, new = before.set_index("point"), after.set_index("point")
    shared = old.index.intersection(new.index)
    if shared.empty:
        allowed = "folders with points in common"
        raise InvalidValueError("results", "two sweeps without a common point", allowed)
    rows = []
    for name in old.columns.intersection(new.columns):
        changed, ratio = _change(old.loc[shared, name], new.loc[shared, name], tolerance)
        if changed:
            rows.append({"figure": name, "points_changed": changed, "largest_ratio": ratio})
    titles = ["figure", "points_changed", "largest_ratio"]
    table = pd.DataFrame(rows, columns=titles).sort_values("points_changed", ascending=False)
    table.attrs = {
        "shared": len(shared),
        "only_before": len(old) - len(shared),
        "only_after": len(new) - len(shared),
    }
    return table


def _change(old: pd.Series, new: pd.Series, tolerance: float) -> tuple[int, float | None]:
    """Points whose figure differs, and the ratio farthest from 1; None of words."""
    if "O" in {old.dtype.kind, new.dtype.kind} or old.dtype.kind == "b":
        return int((old.astype(str) != new.astype(str)).sum()), None
    old_values, new_values = old.to_numpy(float), new.to_numpy(float)
    both = ~np.isnan(old_values) & ~np.isnan(new_values)
    differs = np.isnan(old_values) != np.isnan(new_values)
    differs |= both & (np.abs(new_values - old_values) > tolerance * np.abs(old_values))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(new_values / old_values)
    logs = logs[differs & np.isfinite(logs)]
    ratio = float(np.exp(logs[np.abs(logs).argmax()])) if len(logs) else None
    return int(differs.sum()), ratio
