"""The simulated clock: SimPy's environment with absolute times and ends of rows that need no event,
and garbage collection that waits while it runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, Protocol

import simpy
from simpy.events import NORMAL, URGENT, Event


class Rows(Protocol):
    """Tasks by number, whose ends are no events."""

    def end(self, row: int) -> None:
        """One has ended now."""


class Clock(simpy.Environment):
    """SimPy's environment, with ways to schedule that its `schedule` lacks."""

    def __init__(self) -> None:
        super().__init__()
        #: Like the queue of events, and in one order with it.
        self._row_ends: list[tuple[Any, ...]] = []

    def schedule_row(self, rows: Rows, row: int, duration_s: float) -> float:
        """Let a row end in `duration_s` from now, in the place of an event scheduled for it.

        Returns:
            The time now, in seconds.
        """
        now = self._now
        heappush(self._row_ends, (now + duration_s, NORMAL, next(self._eid), rows, row))
        return now

    def step(self) -> None:
        """Let the next event happen, or all rows end that do before it."""
        ends, queue = self._row_ends, self._queue
        if not ends or (queue and queue[0] < ends[0]):
            super().step()
            return
        while ends and not (queue and queue[0] < ends[0]):
            self._now, _, _, rows, row = heappop(ends)
            rows.end(row)

    def peek(self) -> float:
        """Time of what happens next; infinity where nothing does."""
        return float(min([super().peek(), *(end[0] for end in self._row_ends[:1])]))

    def schedule_end(self, event: Event, duration_s: float) -> float:
        """Let a triggered event happen in `duration_s` from now, as `schedule` does.

        Returns:
            The time now, in seconds.
        """
        now = self._now
        heappush(self._queue, (now + duration_s, NORMAL, next(self._eid), event))
        return now

    def schedule_at(self, event: Event, time_s: float) -> None:
        """Let a triggered event happen at exactly `time_s`, before what else happens then."""
        heappush(self._queue, (time_s, URGENT, next(self._eid), event))


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, and let it go on afterwards if it ran before.

    A simulation makes many objects that live long and few cycles; searching them for garbage takes
    up to half of its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
