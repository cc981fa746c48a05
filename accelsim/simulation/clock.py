"""The simulated clock: SimPy's environment with absolute times, and garbage collection that waits
while it runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappush

import simpy
from simpy.events import NORMAL, URGENT, Event


class Clock(simpy.Environment):
    """SimPy's environment, with two ways to schedule that its `schedule` lacks."""

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
