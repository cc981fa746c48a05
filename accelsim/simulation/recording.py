"""Turns finished jobs into timeline columns, expanding column tasks row by row only when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from accelsim.simulation.timeline import CodeArray, Timeline
from accelsim.workloads.graph import FloatArray, IntArray

if TYPE_CHECKING:
    from accelsim.simulation.task import Job

__all__ = ["Recorder"]


class Recorder:
    """Keeps finished jobs in the order they ended."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []

    def note(self, job: Job) -> None:
        """Keep a finished job."""
        self._jobs.append(job)

    def timeline(self, capacities: Mapping[str, int]) -> Timeline:
        """Timeline of all kept jobs.

        Args:
            capacities: Capacity of each resource, by name.
        """
        counts = np.fromiter(
            (job.row_count for job in self._jobs), dtype=np.int64, count=len(self._jobs)
        )
        offset = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        names, name = _name_codes(self._jobs, offset)
        categories, category = _codes(
            (job.task.category for job in self._jobs), {}, len(self._jobs)
        )
        table = {resource: code for code, resource in enumerate(capacities)}
        _, resource = _codes((job.task.resource for job in self._jobs), table, len(self._jobs))
        times = np.empty((3, int(offset[-1])))
        for job, low, high in zip(
            self._jobs, offset[:-1].tolist(), offset[1:].tolist(), strict=True
        ):
            _write_rows(job, times[:, low:high])
        return Timeline(
            resource=np.repeat(resource, counts),
            name=name,
            category=np.repeat(category, counts),
            start_s=times[0],
            end_s=times[1],
            energy_j=times[2],
            resources=tuple(capacities),
            capacities=tuple(capacities.values()),
            names=names,
            categories=categories,
        )


def _write_rows(job: Job, rows: FloatArray) -> None:
    """Write start, end and energy of a job's rows into `rows`, shape (3, row count)."""
    energy = job.task.energy_j
    if job.row_end_s is None:
        rows[0, 0], rows[1, 0] = job.start_s, job.end_s
        rows[2] = energy
        return
    rows[0] = job.row_start_s()
    np.maximum(
        job.row_end_s, rows[0], out=rows[1]
    )  # a row of zero length must not end an ulp too early
    rows[2] = (
        energy
        if isinstance(energy, np.ndarray) or not energy
        else _shared(energy, rows[1] - rows[0])
    )


def _shared(energy_j: float, duration_s: FloatArray) -> FloatArray:
    """One figure for a whole column, shared among its rows by time (evenly where they take none)."""
    total = duration_s.sum()
    weight = duration_s / total if total > 0 else np.full(len(duration_s), 1 / len(duration_s))
    return np.asarray(energy_j * weight)


def _codes(
    words: Iterable[str], table: dict[str, int], count: int
) -> tuple[tuple[str, ...], CodeArray]:
    codes = np.fromiter(
        (table.setdefault(word, len(table)) for word in words), dtype=np.int32, count=count
    )
    return tuple(table), codes


def _name_codes(jobs: list[Job], offset: IntArray) -> tuple[tuple[str, ...], CodeArray]:
    """Name table and codes; tasks that share one tuple of row names share its entries."""
    words: list[str] = []
    base_of: dict[int | str, int] = {}
    codes = np.empty(int(offset[-1]), dtype=np.int32)
    for job, low, high in zip(jobs, offset[:-1].tolist(), offset[1:].tolist(), strict=True):
        rows = job.task.row_names
        is_named = rows is not None and len(rows) == high - low
        key: int | str = id(rows) if is_named else job.task.name
        if key not in base_of:
            base_of[key] = len(words)
            words.extend(rows if rows is not None and is_named else (job.task.name,))
        codes[low:high] = base_of[key] + np.arange(high - low) if is_named else base_of[key]
    return tuple(words), codes
