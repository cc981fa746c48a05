"""Tasks, and the jobs they become once handed to an engine.

A job is a SimPy event, the event of its own end. A task may carry a column of durations: its rows
run back to back on one resource as one event, and their times follow in closed form from Lindley's
recursion (Lindley, Proc. Camb. Phil. Soc. 48, 1952), so that the number of events depends on the
number of scheduling decisions and not of operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from simpy.events import Event

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.simulation.clock import Clock
from accelsim.simulation.device_settings import check_numbers
from accelsim.workloads.graph import FloatArray, IntArray

if TYPE_CHECKING:
    from accelsim.simulation.resources import Server


@frozen(eq=False)
class RowDependency:
    """Row i of a task may start once row `rows[i]` of another job has ended: a stream fed by a host
    thread.

    Attributes:
        job: The feeding job.
        rows: Its rows, one per row of the fed task, as indices or a slice; all in order where None.
    """

    job: Job
    rows: slice | IntArray | None = None

    def end_s(self) -> FloatArray:
        """End of each feeding row, or of the whole job where it is one row, in seconds."""
        ends = self.job.row_end_s
        if ends is None:
            return np.array([self.job.end_s])
        return ends if self.rows is None else ends[self.rows]


@frozen(eq=False)
class Task:
    """A piece of work for one resource.

    Attributes:
        name: Shown in the timeline.
        resource: Name of a server of the engine.
        duration_s: Seconds, >= 0; a column (shape (n,)) runs back to back as one event.
        dependencies: Jobs or other SimPy events that must have happened first.
        row_dependency: Feeds the rows of this task one by one.
        energy_j: Dynamic energy, total or per row, in joules.
        category: Groups rows in the timeline.
        row_names: Names of the rows; `name` for all where None. Share one tuple between tasks.
    """

    name: str
    resource: str
    duration_s: float | FloatArray = 0.0
    dependencies: Sequence[Event] = ()
    row_dependency: RowDependency | None = None
    energy_j: float | FloatArray = 0.0
    category: str = "task"
    row_names: tuple[str, ...] | None = None


def back_to_back_end_s(
    start_s: float, duration_s: FloatArray, ready_s: FloatArray | None = None
) -> FloatArray:
    """End times of rows that run one after the other on one resource.

    end_i = max over j <= i of (max(start, ready_j) + duration_j + ... + duration_i): Lindley's
    recursion unrolled. Lindley, Proc. Camb. Phil. Soc. 48, 1952.

    Args:
        start_s: No row starts before, in seconds.
        duration_s: Durations >= 0, shape (n,), in seconds.
        ready_s: Times from which each row may start, shape (n,); `start_s` where None.

    Returns:
        Seconds, ascending, shape (n,).
    """
    total = np.cumsum(duration_s)
    if ready_s is None:
        return np.asarray(start_s + total)
    earliest = np.maximum(ready_s, start_s) - (total - duration_s)
    return np.asarray(np.maximum.accumulate(earliest) + total)


class Job(Event):
    """A submitted task, and the event of its end.

    Args:
        clock: The engine's clock.
        task: The task.
        resource: What it runs on.

    Attributes:
        ready_s: When its last dependency happened and it began to wait for its resource; NaN
            before.
        start_s: When it started; NaN before.
        end_s: When it ends, known from the start on; NaN before.
        row_ready_s: Times from which each row could start, where a row dependency gives them.
        row_end_s: End of each row of a column task, known from the start on; else None.
    """

    def __init__(self, clock: Clock, task: Task, resource: Server) -> None:
        super().__init__(clock)
        self.task = task
        self.resource = resource
        self.ready_s = self.start_s = self.end_s = float("nan")
        self.row_ready_s: FloatArray | None = None
        self.row_end_s: FloatArray | None = None
        self.waiting_count = 1
        self._clock = clock
        self._followers: list[Job] = []

    @property
    def has_started(self) -> bool:
        """Whether the job has started (its row ends are then known)."""
        return not math.isnan(self.start_s)

    @property
    def row_count(self) -> int:
        """Rows of the task: 1 unless its durations are a column."""
        return 1 if self.row_end_s is None else len(self.row_end_s)

    def row_start_s(self) -> FloatArray:
        """Start of each row, shape (row_count,), in seconds."""
        if self.row_end_s is None:
            return np.array([self.start_s])
        previous = np.concatenate([[self.start_s], self.row_end_s[:-1]])
        return previous if self.row_ready_s is None else np.maximum(previous, self.row_ready_s)

    def wait_for(self, event: Event) -> None:
        """Hold the job back until `event` has been processed."""
        if event.callbacks is not None:
            event.callbacks.append(self.dependency_done)
            self.waiting_count += 1

    def wait_for_rows_of(self, job: Job) -> None:
        """Hold the job back until `job` has started, so that its row ends are known."""
        if not job.has_started:
            job._followers.append(self)
            self.waiting_count += 1

    def dependency_done(self, _event: Event | None = None) -> None:
        """Count one dependency off; the last one puts the job into its resource's queue."""
        self.waiting_count -= 1
        if self.waiting_count == 0:
            self.ready_s = float(self._clock.now)
            self.resource.enqueue(self)

    def begin(self, _row: int = 0) -> None:
        """Start now, on a place of a server: fix all end times and schedule the end."""
        self.start_s = now = float(self._clock.now)
        duration = self.task.duration_s
        if isinstance(duration, np.ndarray):
            duration = self._fix_rows(now, duration)
        self.end_s = now + duration
        self._ok, self._value = True, None
        self._clock.schedule_end(self, duration)
        followers, self._followers = self._followers, []
        for follower in followers:
            follower.dependency_done()

    def _fix_rows(self, now: float, duration_s: FloatArray) -> float:
        feed = self.task.row_dependency
        if feed is not None:
            self.row_ready_s = np.broadcast_to(feed.end_s(), duration_s.shape)
        self.row_end_s = back_to_back_end_s(now, duration_s, self.row_ready_s)
        return max(float(self.row_end_s[-1]) - now, 0.0)


def check_task(task: Task) -> None:
    """Refuse a task with numbers out of range.

    Args:
        task: The task.

    Raises:
        InvalidValueError: Naming the field.
    """
    duration = task.duration_s
    if isinstance(duration, np.ndarray):
        if duration.ndim != 1 or not len(duration):
            raise InvalidValueError("duration_s", duration.shape, "a number, or a non-empty column")
        check_numbers("duration_s", duration)
    elif not 0 <= duration < np.inf:
        raise InvalidValueError("duration_s", duration, "a finite number >= 0")
    elif task.row_dependency is not None:
        raise InvalidValueError("row_dependency", task.name, "a task whose duration_s is a column")
