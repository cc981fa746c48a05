"""Runs a sweep: points that are not finished yet, in batches that workers answer and this process
writes, so that each point is there once, whoever worked on it and however often.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError, OutputError
from accelsim.exploration.sweeps.batch import Part, PointBatch, asked_columns, compute
from accelsim.exploration.sweeps.content import content_hashes
from accelsim.exploration.sweeps.executors import LOCAL, LOST, Workers, worker_pool
from accelsim.exploration.sweeps.points import CELL, KEY_BYTES, PointGroup, point_groups
from accelsim.exploration.sweeps.results import points
from accelsim.exploration.sweeps.spec import SweepSpec, load_sweep
from accelsim.exploration.sweeps.store import SweepStore, arrow
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.graph import BoolArray

if TYPE_CHECKING:
    import pandas as pd

#: Most points of a batch; and the time that one should take, so that handing it over and writing
#: it, some ten milliseconds, is a few per cent, and a kill loses little.
_MOST = 16 * CELL
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

    def to_dict(self) -> Document:
        """Plain values."""
        return asdict(self) | {"folder": str(self.folder)}

    def to_frame(self) -> pd.DataFrame:
        """All finished points of the folder, a row each."""
        return points(self.folder)

    def _repr_html_(self) -> str:
        """The points, as notebooks show them."""
        return str(self.to_frame().to_html(max_rows=_MOST_ROWS, notebook=True))


@checked
def sweep(
    spec: str | Path | Values | SweepSpec,
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
    sweep_spec = spec if isinstance(spec, SweepSpec) else load_sweep(spec)
    if not str(out):
        raise InvalidValueError("out", out, "the name of a folder")
    if workers is not None and not 1 <= workers <= 4096:
        raise InvalidValueError("workers", workers, "a whole number from 1 to 4096")
    start = time.perf_counter()
    with SweepStore(Path(out)) as store:
        store.check_content(content_hashes(sweep_spec.values))
        todo = _Todo.of(sweep_spec, store.finished())
        finished_count, error_count = todo.finished_count, 0
        with worker_pool(executor, workers or os.cpu_count() or 1) as crew:
            for batch, part in _finished(crew, todo, sweep_spec):
                store.add(batch.name, part.content, batch.keys)
                finished_count += len(batch.keys)
                error_count += part.error_count
                if report is not None:
                    report(finished_count, todo.finished_count + todo.count)
    wall = time.perf_counter() - start
    total = todo.finished_count + todo.count
    return SweepResult(store.folder, total, todo.count, error_count, wall)


@frozen(eq=False)
class _Todo:
    """Distinct points that are not finished.

    Attributes:
        spec: The sweep.
        is_new: Which of its points come for the first time and are not finished, shape (points,).
        finished_count: Distinct points that were finished before.
    """

    spec: SweepSpec
    is_new: BoolArray
    finished_count: int

    @classmethod
    def of(cls, spec: SweepSpec, finished: Sequence[bytes]) -> _Todo:
        """The points of a sweep without those finished and those asked before.

        Args:
            spec: The sweep.
            finished: Keys in the folder, those of a part in one.
        """
        stored_count = sum(map(len, finished)) // KEY_BYTES
        keys = np.empty((stored_count + spec.count, 2), dtype="<u8")
        keys[:stored_count].reshape(-1)[:] = np.frombuffer(b"".join(finished), dtype="<u8")
        at = stored_count
        for group in point_groups(spec):
            keys[at : at + group.count] = group.key_numbers()
            at += group.count
        order = np.lexsort(keys.T)  # equal keys stay in order
        is_start = np.zeros(len(order) + 1, dtype=bool)
        is_start[[0, -1]] = True
        for column in keys.T:
            ordered = column[order]
            is_start[1:-1] |= ordered[1:] != ordered[:-1]
        is_first = np.zeros(len(order), dtype=bool)
        is_first[order[is_start[:-1]]] = True
        distinct = int(np.count_nonzero(order[is_start[1:]] >= stored_count))
        is_new = is_first[stored_count:]
        return cls(spec, is_new, distinct - int(np.count_nonzero(is_new)))

    @property
    def count(self) -> int:
        """Points."""
        return int(np.count_nonzero(self.is_new))

    def batches(self, size: Callable[[], int], columns: Mapping[str, bool]) -> Iterator[PointBatch]:
        """All cells in order, in batches of at least `size()` points."""
        cells: list[PointGroup] = []
        keys: list[bytes] = []
        start = 0
        for group in point_groups(self.spec):
            new = np.flatnonzero(self.is_new[start : start + group.count])
            start += group.count
            if not len(new):
                continue
            cells.append(group.take(new))
            keys += cells[-1].point_keys()
            if len(keys) >= size():
                yield PointBatch(tuple(cells), tuple(keys), columns)
                cells, keys = [], []
        if keys:
            yield PointBatch(tuple(cells), tuple(keys), columns)


def _finished(crew: Workers, todo: _Todo, spec: SweepSpec) -> Iterator[tuple[PointBatch, Part]]:
    """Batches as they are finished. Those whose worker ended or had too little memory are given to
    another.

    Raises:
        OutputError: If one was lost too often.
    """
    size = _FIRST[spec.of]
    waiting = todo.batches(lambda: size, asked_columns(spec))
    lost: list[PointBatch] = []
    loss_counts = Counter[str]()
    running: dict[Future[Part], PointBatch] = {}
    while True:
        while len(running) < 2 * crew.count:
            batch = lost.pop() if lost else next(waiting, None)
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
                loss_counts[batch.name] += 1
                if loss_counts[batch.name] == _TRIES:
                    message = f"{_TRIES} workers ended on the same points (out of memory?)."
                    remedy = "Run again to go on, with fewer workers."
                    raise OutputError(f"{message} {remedy}") from None
                lost.append(batch)
                continue
            fitting = len(batch.keys) * _BATCH_S / max(part.busy_s, 1e-3)
            size = int(min(max(fitting, 1), 4 * size, _MOST))
            yield batch, part
