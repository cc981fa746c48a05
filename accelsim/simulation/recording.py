"""Recorders: what becomes of tasks that have ended, and the timeline made of it.

A recorder turns ended tasks into spans (fixed records of codes and times) some thousands at a time.
It keeps them all, or the last ones, or writes them to a file, so that what a long run holds in
memory is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InvalidValueError
from accelsim.simulation.timeline import Timeline
from accelsim.workloads.graph import FloatArray

if TYPE_CHECKING:
    from accelsim.simulation.columns import JobColumns
    from accelsim.simulation.task import Job

SpanArray = NDArray[np.void]

_SPAN = np.dtype(
    [
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("energy_j", np.float64),
        ("resource", np.int32),
        ("name", np.int32),
        ("category", np.int32),
    ],
    align=True,
)

#: Rows of single jobs that are turned into spans together.
_CHUNK_ROWS = 65_536


class Recorder:
    """Keeps all that has ended, in that order."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._job_rows = 0
        self._chunks: list[SpanArray] = []
        self._names: list[str] = []
        self._base_of_name: dict[int | str, tuple[int, object]] = {}
        self._categories: dict[str, int] = {}

    def note_job(self, job: Job) -> None:
        """Take a job that has ended."""
        self._jobs.append(job)
        self._job_rows += job.row_count
        if self._job_rows >= _CHUNK_ROWS:
            self._expand_jobs()

    def note_rows(self, jobs: JobColumns, rows: list[int]) -> None:
        """Take rows of columns that have ended.

        Args:
            jobs: The columns' jobs.
            rows: Row numbers, in the order in which they ended.
        """
        index = np.array(rows)
        tasks = jobs.tasks
        spans = np.zeros(len(index), dtype=_SPAN)
        spans["start_s"] = start_s = jobs.start_of(rows)
        spans["end_s"] = start_s + tasks.duration_s[index]
        if tasks.energy_j is not None:
            spans["energy_j"] = tasks.energy_j[index]
        server_codes = np.array([server.code for server in jobs.servers], dtype=np.int32)
        spans["resource"] = server_codes[tasks.resource[index]]
        spans["name"] = self._name_base(tasks.names)
        if tasks.name is not None:
            spans["name"] += tasks.name[index]
        categories = np.array([self._category(name) for name in tasks.categories], dtype=np.int32)
        spans["category"] = categories[0 if tasks.category is None else tasks.category[index]]
        self._keep(spans)

    def timeline(self, capacities: Mapping[str, int]) -> Timeline:
        """Timeline of all that was kept.

        Args:
            capacities: Capacity of each resource by name, in the order of their codes.
        """
        self._expand_jobs()
        spans = self._all_spans()
        columns: dict[str, Any] = {name: spans[name].copy() for name in _SPAN.names or ()}
        return Timeline(
            **columns,
            resources=tuple(capacities),
            capacities=tuple(capacities.values()),
            names=tuple(self._names),
            categories=tuple(self._categories),
        )

    def _keep(self, spans: SpanArray) -> None:
        self._chunks.append(spans)

    def _all_spans(self) -> SpanArray:
        self._chunks = [np.concatenate([np.zeros(0, dtype=_SPAN), *self._chunks])]
        return self._chunks[0]

    def _expand_jobs(self) -> None:
        """Turn the single jobs taken so far into spans, a row of a column task one each."""
        jobs, row_count = self._jobs, self._job_rows
        self._jobs, self._job_rows = [], 0
        if not jobs:
            return
        spans = np.empty(row_count, dtype=_SPAN)
        low = 0
        for job in jobs:
            high = low + job.row_count
            self._write_job(job, spans[low:high])
            low = high
        self._keep(spans)

    def _write_job(self, job: Job, spans: SpanArray) -> None:
        task = job.task
        spans["resource"] = job.resource.code
        spans["category"] = self._category(task.category)
        if task.row_names is not None and len(task.row_names) == len(spans):
            base = self._name_base(task.row_names)
            spans["name"] = np.arange(base, base + len(spans))
        else:
            spans["name"] = self._name_base(task.name)
        if job.row_end_s is None:
            spans["start_s"], spans["end_s"] = job.start_s, job.end_s
            spans["energy_j"] = task.energy_j
            return
        start_s = job.row_start_s()
        # A row of zero length must not end an ulp too early.
        end_s = np.maximum(job.row_end_s, start_s)
        spans["start_s"], spans["end_s"] = start_s, end_s
        is_column = isinstance(task.energy_j, np.ndarray)
        spans["energy_j"] = task.energy_j if is_column else _shared(task.energy_j, end_s - start_s)

    def _name_base(self, names: str | tuple[str, ...]) -> int:
        """Code of the first of some names; tasks that share one tuple share its codes."""
        key = names if isinstance(names, str) else id(names)
        if key not in self._base_of_name:
            # The tuple is kept too, lest another one takes its id.
            self._base_of_name[key] = len(self._names), names
            self._names.extend((names,) if isinstance(names, str) else names)
        return self._base_of_name[key][0]

    def _category(self, word: str) -> int:
        return self._categories.setdefault(word, len(self._categories))


class RingRecorder(Recorder):
    """Keeps the rows that ended last.

    Args:
        row_count: Rows to keep, >= 1; up to twice as many are held in between.

    Raises:
        InvalidValueError: If there is none to keep.
    """

    def __init__(self, row_count: int) -> None:
        if row_count < 1:
            raise InvalidValueError("row_count", row_count, "an integer >= 1")
        super().__init__()
        self.row_count = row_count

    def _keep(self, spans: SpanArray) -> None:
        super()._keep(spans)
        if sum(map(len, self._chunks)) > 2 * self.row_count:
            self._all_spans()

    def _all_spans(self) -> SpanArray:
        spans = super()._all_spans()
        last = np.argsort(spans["end_s"], kind="stable")[-self.row_count :]
        self._chunks = [spans[np.sort(last)]]
        return self._chunks[0]


class FileRecorder(Recorder):
    """Writes spans to a binary file as they come, 40 bytes each; a timeline reads them back.

    Args:
        file: Open for reading and writing, empty; the caller closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def _keep(self, spans: SpanArray) -> None:
        self._file.write(spans.tobytes())

    def _all_spans(self) -> SpanArray:
        self._file.seek(0)
        return np.frombuffer(self._file.read(), dtype=_SPAN)


def _shared(energy_j: float | FloatArray, duration_s: FloatArray) -> FloatArray:
    """One figure for all rows, shared among them by time (evenly where they take none).

    Estimate: even power while the rows run.
    """
    total_s = duration_s.sum()
    count = len(duration_s)
    weight = duration_s / total_s if total_s > 0 else np.full(count, 1 / count)
    return np.asarray(energy_j * weight)
