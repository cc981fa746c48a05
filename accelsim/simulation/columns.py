"""Many plain tasks at once: columns in, and the jobs they become.

Each task ends at the time and in the order that it would have if it were submitted alone. What
makes it quick is that a task is a row number: its end is no event, rows end one after the other
until an event comes before the next one, and dependencies are compressed sparse rows that are
inverted once, with numpy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from simpy.events import Event

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.simulation.clock import Clock
from accelsim.simulation.device_settings import check_numbers
from accelsim.simulation.resources import Server
from accelsim.simulation.timeline import CodeArray
from accelsim.workloads.graph import FloatArray, IntArray

#: Rows that have ended and are handed to the recorder together.
_CHUNK_ROWS = 65_536

_HAS_ENDED = -1  # in place of how many events a row waits for
_NO_FOLLOWER, _SEVERAL = -1, -2  # in place of the one row that waits for a row


@checked
@frozen(eq=False)
class TaskColumns:
    """Tasks for servers, one a row, n of them, in the order in which they are submitted.

    Attributes:
        resource: Codes into `resources`, shape (n,).
        duration_s: Seconds, >= 0, shape (n,).
        resources: Names of servers of the engine.
        dependency_offset: Start of each row's slice of `dependency`, shape (n + 1,); None where no
            row waits for another.
        dependency: Earlier rows that each row waits for, shape (edges,).
        ready_s: Times before which rows do not start, shape (n,), in seconds; None lets all start
            at once.
        energy_j: Dynamic energy, shape (n,), in joules; 0 where None.
        name: Codes into `names`, shape (n,); 0 where None.
        names: Row names. Share one tuple between submissions.
        category: Codes into `categories`, shape (n,); 0 where None.
        categories: Category names.
        after: Events that must have happened before any row starts.
    """

    resource: CodeArray
    duration_s: FloatArray
    resources: tuple[str, ...]
    dependency_offset: IntArray | None = None
    dependency: IntArray | None = None
    ready_s: FloatArray | None = None
    energy_j: FloatArray | None = None
    name: CodeArray | None = None
    names: tuple[str, ...] = ("task",)
    category: CodeArray | None = None
    categories: tuple[str, ...] = ("task",)
    after: Sequence[Event] = ()

    def __post_init__(self) -> None:
        for name in ("resource", "ready_s", "energy_j", "name", "category"):
            column = getattr(self, name)
            if column is not None and column.shape != (len(self),):
                raise InvalidValueError(name, column.shape, f"shape ({len(self)},), as duration_s")
        for name in ("duration_s", "ready_s", "energy_j"):
            check_numbers(name, getattr(self, name))
        if len(set(self.resources)) < len(self.resources):
            raise InvalidValueError("resources", self.resources, "each name once")
        _check_codes("resource", self.resource, self.resources)
        _check_codes("name", self.name, self.names)
        _check_codes("category", self.category, self.categories)
        self._check_dependencies()

    def __len__(self) -> int:
        return len(self.duration_s)

    def edges(self) -> tuple[IntArray, IntArray]:
        """Rows that are waited for and the rows that wait for them, by the waiting row."""
        if self.dependency_offset is None or self.dependency is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        waiting = np.repeat(np.arange(len(self)), np.diff(self.dependency_offset))
        return self.dependency, waiting

    def _check_dependencies(self) -> None:
        offset, dependency = self.dependency_offset, self.dependency
        if offset is None and dependency is None:
            return
        if (
            offset is None
            or dependency is None
            or not _is_offset(offset, len(self), len(dependency))
        ):
            expected = (
                f"{len(self) + 1} ascending starts of slices of dependency, from 0 to its end"
            )
            raise InvalidValueError("dependency_offset", offset, expected)
        source, target = self.edges()
        if ((source < 0) | (source >= target)).any():
            raise InvalidValueError("dependency", dependency, "earlier rows, counted from 0")


def _is_offset(offset: IntArray, row_count: int, edge_count: int) -> bool:
    if offset.shape != (row_count + 1,) or (np.diff(offset) < 0).any():
        return False
    return bool(offset[0] == 0 and offset[-1] == edge_count)


def _check_codes(name: str, codes: CodeArray | None, names: tuple[str, ...]) -> None:
    if codes is None:
        return
    if codes.min(initial=0) < 0 or codes.max(initial=0) >= max(len(names), 1):
        raise InvalidValueError(name, codes, f"codes from 0 to {len(names) - 1}")


def _triggered(event: Event, callbacks: Any) -> Event:
    """An event that is going to happen, or (with None for callbacks) has happened."""
    event._ok, event._value = True, None  # noqa: SLF001, succeed() would schedule it for now
    event.callbacks = callbacks
    return event


class JobColumns(Event):
    """Submitted columns, and the event of the end of their last row.

    Args:
        clock: The engine's clock.
        tasks: The columns.
        servers: The server of each of the columns' resources.
        note: Called with rows that have ended, in that order, some thousands at a time.
    """

    def __init__(
        self,
        clock: Clock,
        tasks: TaskColumns,
        servers: Sequence[Server],
        note: Callable[[JobColumns, list[int]], None],
    ) -> None:
        super().__init__(clock)
        count = len(tasks)
        self.tasks = tasks
        self.servers = servers
        self.open_count = count
        self._clock = clock
        self._note = note
        self._server = [servers[code] for code in tasks.resource.tolist()]
        self._duration_s: list[float] = tasks.duration_s.tolist()
        self._start_s = [float("nan")] * count
        self._free_s = np.full(count, clock.now, dtype=np.float64)  # free of all but other rows
        self._row_events: dict[int, Event] = {}
        self._ended: list[int] = []
        self._goal = min(count, _CHUNK_ROWS)
        self._arrivals: deque[tuple[float, int]] = deque()
        self._submit()

    @property
    def ready_s(self) -> FloatArray:
        """When all that each row waited for had happened, shape (n,), in seconds.

        NaN where a row that it waits for has not started yet.
        """
        ready_s = self._free_s.copy()
        source, target = self._edges()
        np.maximum.at(ready_s, target, self.end_s[source])
        return ready_s

    @property
    def start_s(self) -> FloatArray:
        """When each row started, shape (n,), in seconds; NaN before."""
        return np.array(self._start_s)

    @property
    def end_s(self) -> FloatArray:
        """When each row ends, shape (n,), in seconds; NaN before it has started."""
        return self.start_s + self.tasks.duration_s

    def start_of(self, rows: Sequence[int]) -> FloatArray:
        """Start of some rows, in seconds."""
        return np.fromiter(map(self._start_s.__getitem__, rows), np.float64, len(rows))

    def row_event(self, row: int) -> Event:
        """The event of one row's end, for whoever wants to wait for that row alone."""
        if row in self._row_events:
            return self._row_events[row]
        event = Event(self._clock)
        if self._waiting[row] != _HAS_ENDED:
            self._row_events[row] = event
            return event
        return _triggered(event, callbacks=None)  # waiting for it takes no time

    def begin(self, row: int) -> None:
        """Start a row now, on a place that its server has given it."""
        self._start_s[row] = self._clock.schedule_row(self, row, self._duration_s[row])

    def flush(self) -> None:
        """Hand over the rows that have ended since the last time."""
        rows, self._ended = self._ended, []
        self.open_count -= len(rows)
        self._goal = min(self.open_count, _CHUNK_ROWS)
        self._note(self, rows)
        if not self.open_count and rows:
            self.succeed()

    def _submit(self) -> None:
        """Count what each row waits for, and let those go on that wait for nothing."""
        source, target = self._edges()
        self._invert(source, target)
        count = len(self.tasks)
        waiting = np.bincount(target, minlength=count)
        first_rows = np.flatnonzero(waiting == 0)
        waiting[first_rows] += 1  # for the submission itself
        if self.tasks.ready_s is not None:
            later = np.flatnonzero(self.tasks.ready_s > self._clock.now)
            waiting[later] += 1
            self._schedule_arrivals(self.tasks.ready_s[later], later)
        self._waiting: list[int] = waiting.tolist()
        self._line_up()
        self._first_rows: list[int] = first_rows.tolist()
        if not count:
            self.succeed()
        self._held_count = 1
        for event in self.tasks.after:
            if event.callbacks is not None:
                event.callbacks.append(self._go_on)
                self._held_count += 1
        self._go_on()

    def _edges(self) -> tuple[IntArray, IntArray]:
        """Which row waits for which: dependencies, and the row before on an in-order server."""
        source, target = self.tasks.edges()
        is_in_order = np.array([server.discipline == "in_order" for server in self.servers])
        resource = self.tasks.resource
        if not is_in_order.any():
            return source, target
        rows = np.flatnonzero(is_in_order[resource])
        rows = rows[np.argsort(resource[rows], kind="stable")]
        is_same_server = resource[rows[1:]] == resource[rows[:-1]]
        before, behind = rows[:-1][is_same_server], rows[1:][is_same_server]
        return np.concatenate([source, before]), np.concatenate([target, behind])

    def _invert(self, source: IntArray, target: IntArray) -> None:
        """Which rows wait for a row: the one, or a slice of those of all rows."""
        count = len(self.tasks)
        order = np.lexsort((target, source))
        self._follower = target[order].tolist()
        follower_count = np.bincount(source, minlength=count)
        self._follower_offset = [0, *np.cumsum(follower_count).tolist()]
        only_follower = np.where(follower_count > 1, _SEVERAL, _NO_FOLLOWER)
        has_one = follower_count[source] == 1
        only_follower[source[has_one]] = target[has_one]
        self._only_follower: list[int] = only_follower.tolist()

    def _line_up(self) -> None:
        """On in-order servers, hold the first row behind what was submitted before it."""
        codes = self.tasks.resource
        for code, server in enumerate(self.servers):
            rows = np.flatnonzero(codes == code)
            if server.discipline != "in_order" or not len(rows):
                continue
            first_row = int(rows[0])
            if server.wait_for_last(partial(self._count_off, first_row)):
                self._waiting[first_row] += 1
            server.last = partial(self.row_event, int(rows[-1]))

    def _schedule_arrivals(self, time_s: FloatArray, rows: IntArray) -> None:
        order = np.argsort(time_s, kind="stable")
        self._arrivals.extend(zip(time_s[order].tolist(), rows[order].tolist(), strict=True))
        self._await_arrival()

    def _await_arrival(self) -> None:
        if self._arrivals:
            event = _triggered(Event(self._clock), [self._arrive])
            self._clock.schedule_at(event, self._arrivals[0][0])

    def _arrive(self, _event: Event) -> None:
        _, row = self._arrivals.popleft()
        self._count_off(row)
        self._await_arrival()

    def _go_on(self, _event: Event | None = None) -> None:
        self._held_count -= 1
        if not self._held_count:
            for row in self._first_rows:
                self._count_off(row)

    def _count_off(self, row: int, _event: Event | None = None) -> None:
        """Something other than a row has happened that a row waited for."""
        self._free_s[row] = self._clock.now
        self._count_off_row(row)

    def _count_off_row(self, row: int) -> None:
        self._waiting[row] -= 1
        if not self._waiting[row]:
            self._server[row].enqueue(self, row)

    def end(self, row: int) -> None:
        """Free a row's server, then let the rows that wait for it go on."""
        self._server[row].release()
        waiting = self._waiting
        waiting[row] = _HAS_ENDED
        follower = self._only_follower[row]
        if follower >= 0:  # `_count_off_row`, without the call
            left = waiting[follower] = waiting[follower] - 1
            if not left:
                self._server[follower].enqueue(self, follower)
        elif follower == _SEVERAL:
            offset = self._follower_offset
            for waiting_row in self._follower[offset[row] : offset[row + 1]]:
                self._count_off_row(waiting_row)
        if self._row_events and row in self._row_events:
            self._row_events.pop(row).succeed()
        self._ended.append(row)
        if len(self._ended) == self._goal:
            self.flush()
