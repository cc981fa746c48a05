"""Runs a sweep: points that are not finished yet, in batches that workers answer and this process
writes, so that each point is there once, whoever worked on it and however often.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError, OutputError
from accelsim.exploration.sweeps.batch import Batch, Part, asked_columns, compute
from accelsim.exploration.sweeps.content import content_hashes
from accelsim.exploration.sweeps.executors import LOCAL, LOST, Workers, worker_pool
from accelsim.exploration.sweeps.points import PointGroup, point_groups
from accelsim.exploration.sweeps.results import points
from accelsim.exploration.sweeps.spec import SweepSpec, load_sweep
from accelsim.exploration.sweeps.store import SweepStore, arrow
from accelsim.frozen import frozen

if TYPE_CHECKING:
    import pandas as pd

#: Points of one group that are answered together. Sums of floating-point numbers depend on it in
#: their last digit, so that it depends on nothing but the sweep.
_CELL = 1024
#: Most points of a batch; and the time that one should take, so that handing it over and writing
#: it, some ten milliseconds, is a few per cent, and a kill loses little.
_MOST = 16 * _CELL
_BATCH_S = 2.0
#: How often a batch is given to a worker before the sweep ends.
_TRIES = 3
#: Points of the first batch.
_FIRST = {"estimate": 64, "train": 4, "serve": 1, "plan": 1}


#: Points that a notebook shows.
_MOST_ROWS = 60


@frozen
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
        return points(self.folder)

    def _repr_html_(self) -> str:
        """The points, as notebooks show them."""
        return str(self.to_frame().to_html(max_rows=_MOST_ROWS, notebook=True))


@checked
def sweep(
    spec: str | Path | Mapping[str, Any] | SweepSpec,
    out: str | Path,
    *,
    workers: int | None = None,
    executor: str = LOCAL,
    report: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Answer all points of a sweep that are not finished in a folder.

    Args:
        spec: File, its content, or a sweep.
        out: Folder of the results; made, or gone on with.
        workers: Local processes; as many as CPUs where None, 1 stays in this one.
        executor: "local", or ``dask://HOST:PORT`` of a Dask scheduler.
        report: Called with finished points and all points.

    Returns:
        What was done.

    Raises:
        InputError: If the sweep, the folder's name or the executor is wrong.
        OutputError: If the folder cannot be used or written, a device or model it has points of was
            changed since, or workers end again and again on the same points.
        MissingDependencyError: If pyarrow, or for Dask distributed, is not installed.
    """
    arrow()
    asked = spec if isinstance(spec, SweepSpec) else load_sweep(spec)
    if not str(out):
        raise InvalidValueError("out", out, "the name of a folder")
    if workers is not None and not 1 <= workers <= 4096:
        raise InvalidValueError("workers", workers, "a whole number from 1 to 4096")
    start = time.perf_counter()
    with SweepStore(Path(out)) as store:
        store.check_content(content_hashes(asked.values))
        todo = _Todo.of(asked, store.finished())
        done, errors = todo.finished_count, 0
        with worker_pool(executor, workers or os.cpu_count() or 1) as crew:
            for batch, part in _finished(crew, todo, asked):
                store.add(batch.name, part.content, batch.keys)
                done, errors = done + len(batch.keys), errors + part.error_count
                if report is not None:
                    report(done, todo.finished_count + todo.count)
    wall = time.perf_counter() - start
    total = todo.finished_count + todo.count
    return SweepResult(store.folder, total, todo.count, errors, wall)


class _Before:
    """Points that were finished, or asked for, before others.

    Attributes:
        found: Finished points that are asked for.
    """

    def __init__(self, finished: set[bytes]) -> None:
        self._finished, self._seen = finished, set[bytes]()
        self.found = set[bytes]()

    def new_places(self, keys: Sequence[bytes], places: Iterable[int]) -> list[int]:
        """Places of the keys that come for the first time and are not finished."""
        new = []
        for place in places:
            key = keys[place]
            if key in self._finished:
                self.found.add(key)
            elif key not in self._seen:
                self._seen.add(key)
                new.append(place)
        return new


@frozen(eq=False)
class _Todo:
    """Distinct points that are not finished.

    Attributes:
        cells: Them, points of one group that are answered together.
        keys: Their keys, by cell.
        finished_count: Distinct points that were finished before.
    """

    cells: Sequence[PointGroup]
    keys: Sequence[Sequence[bytes]]
    finished_count: int

    @classmethod
    def of(cls, spec: SweepSpec, finished: set[bytes]) -> _Todo:
        """The points of a sweep without those finished and those asked before.

        Args:
            spec: The sweep.
            finished: Keys in the folder.
        """
        cells, keys = [], []
        before = _Before(finished)
        for group in point_groups(spec):
            own = group.point_keys()
            for first in range(0, group.count, _CELL):
                new = before.new_places(own, range(first, min(first + _CELL, group.count)))
                if new:
                    cells.append(group.take(np.array(new)))
                    keys.append([own[place] for place in new])
        return cls(cells, keys, len(before.found))

    @property
    def count(self) -> int:
        """Points."""
        return sum(map(len, self.keys))

    def batches(self, size: Callable[[], int], asked: Mapping[str, bool]) -> Iterator[Batch]:
        """All cells in order, in batches of at least `size()` points."""
        cells: list[PointGroup] = []
        keys: list[bytes] = []
        for cell, own in zip(self.cells, self.keys, strict=True):
            cells.append(cell)
            keys += own
            if len(keys) >= size():
                yield _batch(cells, keys, asked)
                cells, keys = [], []
        if keys:
            yield _batch(cells, keys, asked)


def _batch(cells: Sequence[PointGroup], keys: Sequence[bytes], asked: Mapping[str, bool]) -> Batch:
    name = blake2b(b"".join(keys), digest_size=16).hexdigest() + ".parquet"
    return Batch(name, tuple(cells), tuple(keys), asked)


class _Pace:
    """How many points a worker answers in the time a batch should take."""

    def __init__(self, first: int) -> None:
        self.size = first

    def note(self, count: int, busy_s: float) -> None:
        """A batch took so long; the next is at most four times as large."""
        fitting = count * _BATCH_S / max(busy_s, 1e-3)
        self.size = int(min(max(fitting, 1), 4 * self.size, _MOST))


class _Lost:
    """Batches whose worker ended or had too little memory, for another to answer."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._times = Counter[str]()

    def note(self, batch: Batch) -> None:
        """A batch was lost.

        Raises:
            OutputError: If it was lost too often.
        """
        self._times[batch.name] += 1
        if self._times[batch.name] == _TRIES:
            message = f"{_TRIES} workers ended on the same points (out of memory?)."
            raise OutputError(f"{message} Run again to go on, with fewer workers.")
        self._batches.append(batch)

    def take(self) -> Batch | None:
        """One of them; None where there is none."""
        return self._batches.pop() if self._batches else None


def _finished(crew: Workers, todo: _Todo, asked: SweepSpec) -> Iterator[tuple[Batch, Part]]:
    """Batches as they are finished."""
    pace = _Pace(_FIRST[asked.of])
    waiting, lost = todo.batches(lambda: pace.size, asked_columns(asked)), _Lost()
    running: dict[Future[Part], Batch] = {}
    while True:
        while len(running) < 2 * crew.count:
            batch = lost.take() or next(waiting, None)
            if batch is None:
                break
            running[crew.executor.submit(compute, batch)] = batch
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            batch = running.pop(future)
            try:
                part = future.result()
            except LOST:
                lost.note(batch)
                continue
            pace.note(len(batch.keys), part.busy_s)
            yield batch, part
