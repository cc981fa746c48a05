"""Replicas behind a router, and the arrivals that reach them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from accelsim.simulation.clock import collection_paused
from accelsim.simulation.serving.requests import RequestLog
from accelsim.simulation.serving.routers import Router
from accelsim.simulation.serving.schedulers.base import NEVER, Scheduler

__all__ = ["ArrivalQueue", "Fleet"]

_PROGRESS_EVERY: Final = 8192


class ArrivalQueue:
    """Requests in the order they arrive: those with a time of their own, those that follow another,
    and those that `user_count` users send one after the other.

    Args:
        log: The requests.
        user_count: Users of a closed loop; 0 for none.
    """

    def __init__(self, log: RequestLog, user_count: int = 0) -> None:
        asked = log.asked
        self._log = log
        self._arrival_s = log.arrival_s
        self._first_count = int((~np.isnan(asked.arrival_s)).sum()) if not user_count else 0
        self._place = 0
        self._later: list[tuple[float, int]] = []
        self._followers: dict[int, list[int]] = {}
        self._next = len(log)
        if user_count:
            self._next = min(user_count, len(log))
            for request in range(self._next):
                log.arrival_s[request] = 0.0
                self._later.append((0.0, request))
        elif asked.after is not None:
            for request in np.flatnonzero(np.isnan(asked.arrival_s)).tolist():
                self._followers.setdefault(int(asked.after[request]), []).append(request)
        self._is_closed = bool(user_count)

    @property
    def next_s(self) -> float:
        """Time of the next arrival; `NEVER` where there is none yet."""
        first = self._arrival_s[self._place] if self._place < self._first_count else NEVER
        later = self._later[0][0] if self._later else NEVER
        return min(first, later)

    def pop(self) -> int:
        """Take the next request."""
        first = self._arrival_s[self._place] if self._place < self._first_count else NEVER
        if self._later and self._later[0][0] < first:
            return heapq.heappop(self._later)[1]
        self._place += 1
        return self._place - 1

    @property
    def reacts(self) -> bool:
        """Whether ends of requests bring arrivals."""
        return self._is_closed or bool(self._followers)

    def note_end(self, request: int, now_s: float) -> None:
        """A request has ended: those that wait for it come."""
        if self._is_closed:
            if self._next < len(self._log):
                self._come(self._next, now_s)
                self._next += 1
            return
        for follower in self._followers.pop(request, ()):
            self._come(follower, now_s)

    def _come(self, request: int, now_s: float) -> None:
        think = self._log.asked.think_s
        time_s = now_s if think is None else now_s + float(think[request])
        self._arrival_s[request] = time_s
        heapq.heappush(self._later, (time_s, request))


class Fleet:
    """Replicas behind a router.

    Args:
        log: Requests, and what becomes of them.
        replicas: The replicas.
        router: Chooses the replica of each request.
        arrivals: When requests come.

    Attributes:
        now_s: Time of the last event.
        is_interrupted: Whether the run was cut short.
    """

    def __init__(
        self,
        log: RequestLog,
        replicas: Sequence[Scheduler],
        router: Router,
        arrivals: ArrivalQueue,
    ) -> None:
        self.log, self.replicas, self.router, self.arrivals = log, list(replicas), router, arrivals
        self.now_s = 0.0
        self.is_interrupted = False

    def run(self, progress: Callable[[int, float], None] | None = None) -> None:
        """Run until every request has ended; Ctrl-C keeps what has ended so far.

        Args:
            progress: Called now and then with the requests that have come and the simulated time.
        """
        try:
            with collection_paused():
                self._run(progress)
        except KeyboardInterrupt:
            self.is_interrupted = True
        for replica in self.replicas:
            replica.tally.close()

    def _run(self, progress: Callable[[int, float], None] | None) -> None:
        arrivals, replicas = self.arrivals, self.replicas
        ready = [replica.ready_s for replica in replicas]
        reacts, arrival_s, came = arrivals.reacts, arrivals.next_s, 0
        while (event_s := min(ready)) < NEVER or arrival_s < NEVER:
            if event_s <= arrival_s:
                place = ready.index(event_s)
                replica = replicas[place]
                self.now_s = event_s
                ended = replica.advance()
                ready[place] = replica.ready_s
                if ended and reacts:
                    for request in ended:
                        arrivals.note_end(request, event_s)
                    arrival_s = arrivals.next_s
                continue
            request = arrivals.pop()
            place = self.router.choose(request, replicas)
            replicas[place].submit(request, arrival_s)
            ready[place] = replicas[place].ready_s
            self.now_s = arrival_s
            arrival_s = arrivals.next_s
            came += 1
            if progress is not None and came % _PROGRESS_EVERY == 0:
                progress(came, self.now_s)
