"""Runs a sweep: points that are not finished yet, in batches of one model and device, by processes
that write each batch as a part of the dataset.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from accelsim.errors import InvalidValueError, OutputError
from accelsim.planning.estimate import estimate
from accelsim.planning.estimate_many import SHAPE_COLUMNS, empty_columns, estimate_many
from accelsim.planning.sweep.content import content_hashes
from accelsim.planning.sweep.spec import SweepSpec, canonical, load_sweep
from accelsim.planning.sweep.store import PARTS, SweepStore, arrow

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SweepResult", "sweep"]

#: Points of one batch: a second or so of work, against a few ms to hand it over and index it.
_BATCH: Final = 4096
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep did.

    Attributes:
        folder: Where its points are.
        point_count: Distinct points.
        new_count: Those computed now; the others were finished before.
        error_count: Of the new ones, those with a reason in place of figures.
        wall_s: Time it took.
    """

    folder: Path
    point_count: int
    new_count: int
    error_count: int
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "folder": str(self.folder),
            "point_count": self.point_count,
            "new_count": self.new_count,
            "error_count": self.error_count,
            "wall_s": self.wall_s,
        }

    def to_frame(self) -> pd.DataFrame:
        """All finished points of the folder, a row each."""
        import pandas as pd

        return pd.read_parquet(self.folder / PARTS)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Points that differ in their sizes alone."""

    folder: Path
    fields: Mapping[str, Any]
    sizes: Sequence[Mapping[str, int]]
    keys: Sequence[bytes]

    @property
    def name(self) -> str:
        return hashlib.sha256(b"".join(self.keys)).hexdigest()[:32] + ".parquet"


def sweep(
    spec: str | Path | Mapping[str, Any] | SweepSpec,
    out: str | Path,
    *,
    workers: int | None = None,
    report: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Estimate all points of a sweep that are not finished in a folder.

    Args:
        spec: File, its content, or a sweep.
        out: Folder of the results; made, or gone on with.
        workers: Processes; as many as CPUs where None, 1 stays in this one.
        report: Called with finished points and all points.

    Returns:
        What was done.

    Raises:
        InputError: If the sweep is wrong.
        OutputError: If the folder cannot be used, a device or model it has points of was changed
            since, or a worker ended.
        MissingDependencyError: If pyarrow is not installed.
    """
    arrow()
    asked = spec if isinstance(spec, SweepSpec) else load_sweep(spec)
    if workers is not None and not 1 <= workers <= 4096:
        raise InvalidValueError("workers", workers, "a whole number from 1 to 4096")
    start = time.perf_counter()
    with SweepStore(Path(out)) as store:
        store.check_content(content_hashes(asked.each()))
        finished = store.finished()
        points = {_key(text): text for text in map(canonical, asked.each())}
        missing = {key: text for key, text in points.items() if key not in finished}
        done, errors = len(points) - len(missing), 0
        batches = _batches(store.folder, missing)
        for batch, failed in _computed(batches, workers or os.cpu_count() or 1):
            store.add(batch.name, batch.keys)
            done, errors = done + len(batch.keys), errors + failed
            if report is not None:
                report(done, len(points))
    wall = time.perf_counter() - start
    return SweepResult(store.folder, len(points), len(missing), errors, wall)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]


def _batches(folder: Path, points: Mapping[bytes, str]) -> Iterator[_Batch]:
    import json

    groups: dict[str, list[tuple[bytes, dict[str, int]]]] = {}
    for key, text in points.items():
        fields = json.loads(text)
        sizes = {name: fields.pop(name) for name in SHAPE_COLUMNS if name in fields}
        shape = [name for name in SHAPE_COLUMNS if name in sizes]
        groups.setdefault(json.dumps([fields, shape]), []).append((key, sizes))
    for group, members in groups.items():
        fields, _ = json.loads(group)
        for first in range(0, len(members), _BATCH):
            part = members[first : first + _BATCH]
            yield _Batch(folder, fields, [sizes for _, sizes in part], [key for key, _ in part])


def _computed(batches: Iterable[_Batch], workers: int) -> Iterator[tuple[_Batch, int]]:
    """Batches as they are finished, with the number of their points that failed."""
    if workers == 1:
        for batch in batches:
            yield batch, _compute(batch)
        return
    waiting = iter(batches)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running: dict[Future[int], _Batch] = {}
        try:
            while True:
                for batch in islice(waiting, 2 * workers - len(running)):
                    running[pool.submit(_compute, batch)] = batch
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            message = "a worker ended (out of memory?). Run again to go on, with fewer workers."
            raise OutputError(message) from None


def _compute(batch: _Batch) -> int:
    """Estimate a batch and write its part; the number of points with a reason."""
    columns = _estimated(batch.fields, batch.sizes)
    if columns is None:
        rows = [_estimated(batch.fields, [sizes]) for sizes in batch.sizes]
        alone = [
            row if row is not None else _failed(batch.fields, sizes)
            for row, sizes in zip(rows, batch.sizes, strict=True)
        ]
        columns = {name: np.concatenate([row[name] for row in alone]) for name in alone[0]}
    _write(batch, columns)
    return int((columns["reason"] != "").sum())


def _estimated(
    fields: Mapping[str, Any], sizes: Sequence[Mapping[str, int]]
) -> Mapping[str, Any] | None:
    """Columns of estimates; None where one of them is refused."""
    if any(type(size) is not int or size < 0 for point in sizes for size in point.values()):
        return None
    rest = {name: value for name, value in fields.items() if name not in {"model", "device"}}
    shapes = {name: np.array([point[name] for point in sizes]) for name in sizes[0]}
    model, device = fields.get("model", ""), fields.get("device", "")
    try:
        named = [model] * len(sizes)
        return estimate_many(named, device, shapes=shapes, **rest).columns
    except Exception:  # noqa: BLE001  (the reason is found point by point)
        return None


def _failed(fields: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    """A row whose reason is the error of its point."""
    row = empty_columns(1)
    row["workload"][:] = str(fields.get("model", ""))
    row["device"][:] = str(fields.get("device", ""))
    asked = {**fields, **sizes}
    try:
        estimate(asked.pop("model", ""), asked.pop("device", ""), **asked)
    except Exception as error:  # noqa: BLE001  (an error belongs to its point)
        row["reason"][:] = str(error) or type(error).__name__
    else:
        row["reason"][:] = "its columns could not be estimated together"
    return row


def _write(batch: _Batch, columns: Mapping[str, Any]) -> None:
    """Write a part under another name and move it into place.

    Raises:
        OutputError: If it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    typed = {name: _arrow_column(column) for name, column in columns.items()}
    asked = {
        f"asked_{name}": pa.array([str(value)] * len(batch.keys), pa.string())
        for name, value in batch.fields.items()
        if name not in {"model", "device"}
    }
    keys = pa.array([key.hex() for key in batch.keys], pa.string())
    place = batch.folder / PARTS / batch.name
    temporary = place.with_suffix(".new")
    try:
        pq.write_table(pa.table({"point": keys, **typed, **asked}), temporary)
        temporary.replace(place)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{place}: cannot be written: {error}") from None


def _arrow_column(column: Any) -> Any:
    import pyarrow as pa

    if column.dtype == object:
        return pa.array(column.tolist(), pa.string())
    return pa.array(column, from_pandas=column.dtype.kind == "f")
