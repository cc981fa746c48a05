"""Replicas behind a router, the arrivals that reach them, and what changes them as they run."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from accelsim.serving.loads.requests import RequestLog
from accelsim.serving.replicas.routers import Router
from accelsim.serving.schedulers.base import NEVER, Scheduler
from accelsim.simulation.clock import collection_paused
from accelsim.workloads.graph import IntArray

_PROGRESS_EVERY = 256
#: Called with the requests that have come and the simulated time.
Progress = Callable[[int, float], None]


class ArrivalQueue:
    """Requests in the order they arrive: those with a time of their own, those that follow another,
    and those that `user_count` users send one after the other.

    Args:
        log: The requests.
        user_count: Users of a closed loop; 0 for none.
        delay_s: Time from a user to the scheduler of a prompt of so many tokens; none where None.

    Attributes:
        next_s: Time of the next arrival at a scheduler; `NEVER` where there is none yet.
    """

    def __init__(
        self,
        log: RequestLog,
        user_count: int = 0,
        delay_s: Callable[[int], float] | None = None,
    ) -> None:
        columns = log.requests
        self._log, self._delay_s = log, delay_s
        self._arrival_s = log.arrival_s
        self._first_count = 0 if user_count else columns.start_count
        self._position = 0
        self._first_s = self._comes_s(0, 0.0) if self._first_count else NEVER
        self._later: list[tuple[float, int]] = []
        self._followers: dict[int, list[int]] = {}
        #: Further requests that one waits for.
        self._waits: Counter[int] = Counter()
        self._next = len(log)
        if user_count:
            self._next = min(user_count, len(log))
            for request in range(self._next):
                log.arrival_s[request] = 0.0
                heapq.heappush(self._later, (self._comes_s(request, 0.0), request))
        elif columns.after is not None:
            self._follow(columns.after, np.flatnonzero(np.isnan(columns.arrival_s)))
        self._is_closed = bool(user_count)
        self.next_s = self._later[0][0] if user_count else self._first_s

    def _follow(self, after: IntArray, later: IntArray) -> None:
        """Let requests wait for the ends of others."""
        joins, followers = self._log.requests.joins, self._followers
        for request, before in zip(later.tolist(), after[later].tolist(), strict=True):
            followers.setdefault(before, []).append(request)
        if joins is not None:
            joining = np.flatnonzero(joins >= 0)
            for request, follower in zip(joining.tolist(), joins[joining].tolist(), strict=True):
                followers.setdefault(request, []).append(follower)
                self._waits[follower] += 1

    def _comes_s(self, request: int, last_s: float) -> float:
        """When a request reaches a scheduler: no sooner than the one before it."""
        time_s: float = self._arrival_s[request]
        if self._delay_s is None:
            return time_s
        return max(time_s + self._delay_s(self._log.prompt_tokens[request]), last_s)

    def pop(self) -> int:
        """Take the next request."""
        later = self._later
        if later and later[0][0] < self._first_s:
            request = heapq.heappop(later)[1]
        else:
            request = self._position
            self._position = following = request + 1
            last_s = self._first_s
            self._first_s = (
                self._comes_s(following, last_s) if following < self._first_count else NEVER
            )
        self.next_s = min(self._first_s, later[0][0]) if later else self._first_s
        return request

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
            if self._waits and self._waits[follower]:
                self._waits[follower] -= 1
            else:
                self._come(follower, now_s)

    def _come(self, request: int, now_s: float) -> None:
        think = self._log.requests.think_s
        time_s = now_s if think is None else now_s + float(think[request])
        self._arrival_s[request] = time_s
        comes_s = self._comes_s(request, 0.0)
        heapq.heappush(self._later, (comes_s, request))
        self.next_s = min(self.next_s, comes_s)


class Control(Protocol):
    """What changes a fleet while it runs: transfers of caches, scaling, outages."""

    @property
    def next_s(self) -> float:
        """Time it acts next; `NEVER` where it waits for something."""

    def act(self, fleet: ReplicaFleet) -> None:
        """Do what is due at `next_s`."""


class ReplicaFleet:
    """Replicas behind a router.

    Args:
        log: Requests, and what becomes of them.
        replicas: The replicas there are at the start.
        router: Chooses the replica of each request.
        arrivals: When requests come.
        controls: What changes the fleet while it runs.

    Attributes:
        now_s: Time of the last event.
        until_s: Time before which nothing happens but what the acting control does.
        is_interrupted: Whether the run was cut short.
        held_count: Requests on their way from one replica to another.
        paid_s: Spans of time in which each replica is paid; until the run's end where None.
        handover: Takes requests that the replica of a place has done its part of and that go on
            elsewhere; gives those that have ended for good.
    """

    def __init__(
        self,
        log: RequestLog,
        replicas: Sequence[Scheduler],
        router: Router,
        arrivals: ArrivalQueue,
        controls: Sequence[Control] = (),
    ) -> None:
        self.log, self.replicas, self.router, self.arrivals = log, list(replicas), router, arrivals
        self.controls = list(controls)
        self.now_s = self.until_s = 0.0
        self.is_interrupted = False
        self.held_count = 0
        self.paid_s: list[list[tuple[float, float | None]]] = [[(0.0, None)] for _ in replicas]
        self.handover: Callable[[int, list[int], float, ReplicaFleet], list[int]] | None = None
        self._ready = [NEVER] * len(self.replicas)
        #: Next events by time and place; those of a time that is no longer a replica's are void.
        self._events: list[tuple[float, int]] = []
        for index in range(len(self.replicas)):
            self._note_ready(index)
        self._parked: deque[int] = deque()
        self._draining: set[int] = set()

    def run(self, progress: Progress | None = None) -> None:
        """Run until every request has ended.

        Args:
            progress: Called now and then with the requests that have come and the simulated time;
                who watches a run keeps what has ended so far where Ctrl-C ends it.

        Raises:
            KeyboardInterrupt: On Ctrl-C where nobody watches: part of a run is no answer to a
                search, a sweep or a plan that asked for all of it.
        """
        try:
            with collection_paused():
                self._run(progress)
        except KeyboardInterrupt:
            if progress is None:
                raise
            self.is_interrupted = True
        for replica in self.replicas:
            replica.tally.close()

    def _run(self, progress: Progress | None) -> None:
        arrivals, ready, events = self.arrivals, self._ready, self._events
        is_changed = bool(self.controls)
        is_watched = arrivals.reacts or is_changed
        came = 0
        while True:
            while events and ready[events[0][1]] != events[0][0]:  # void
                heapq.heappop(events)
            event_s, arrival_s = events[0][0] if events else NEVER, arrivals.next_s
            if is_changed and self._act(min(event_s, arrival_s)):
                continue
            if event_s <= arrival_s:
                if event_s == NEVER:
                    return
                self._advance(is_watched)
                continue
            self.now_s = arrival_s
            self.dispatch(arrivals.pop())
            came += 1
            if progress is not None and came % _PROGRESS_EVERY == 0:
                progress(came, arrival_s)

    def _advance(self, is_watched: bool) -> None:
        """Pass the next event of a replica; what ends is told where somebody waits for it."""
        event_s, index = self._events[0]
        replica = self.replicas[index]
        self.now_s = event_s
        ended = replica.advance()
        self._ready[index] = ready_s = replica.ready_s
        if ready_s == NEVER:
            heapq.heappop(self._events)
        else:
            heapq.heapreplace(self._events, (ready_s, index))
        if ended and is_watched:
            replica.ended_count += len(ended)
            self._note_ends(index, ended)

    def _note_ready(self, index: int) -> None:
        """Queue a replica's next event where it has changed."""
        ready_s = self.replicas[index].ready_s
        if ready_s != self._ready[index]:
            self._ready[index] = ready_s
            if ready_s != NEVER:
                heapq.heappush(self._events, (ready_s, index))

    def _act(self, event_s: float) -> bool:
        """Let the control act that is due before the next event; nothing is, once all is done."""
        control_due = min(self.controls, key=lambda control: control.next_s)
        if control_due.next_s > event_s or control_due.next_s == NEVER:
            return False
        if event_s == NEVER and not self._parked and not self.held_count:
            return False
        self.now_s = control_due.next_s
        others = [control.next_s for control in self.controls if control is not control_due]
        self.until_s = min([event_s, *others])
        control_due.act(self)
        return True

    def dispatch(self, request: int) -> None:
        """Give a request to the replica that the router chooses; it waits while there is none."""
        index = self.router(request, self.replicas)
        if index is None:
            self._parked.append(request)
            return
        if index >= 0:
            self.log.replica[request] = index
            replica = self.replicas[index]
            replica.submit(request, self.now_s)
            self._note_ready(index)
        rejected = self.log.rejected
        if rejected and request in rejected and self.arrivals.reacts:
            self.arrivals.note_end(request, self.now_s)

    def _note_ends(self, index: int, ended: list[int]) -> None:
        if self.handover is not None:
            ended = self.handover(index, ended, self.now_s, self)
        for request in ended:
            self.arrivals.note_end(request, self.now_s)
        if index in self._draining and not self.replicas[index].outstanding:
            self._draining.remove(index)
            self.end_pay(index)

    @property
    def parked_count(self) -> int:
        """Requests that wait for a replica to be there."""
        return len(self._parked)

    # what controls do

    def add(self, replica: Scheduler) -> int:
        """Add a replica that is paid from now on; gives its place."""
        self.replicas.append(replica)
        self._ready.append(NEVER)
        index = len(self.replicas) - 1
        self._note_ready(index)
        self.paid_s.append([(self.now_s, None)])
        return index

    def end_pay(self, index: int) -> None:
        """Pay a replica no longer."""
        begun, until = self.paid_s[index][-1]
        if until is None:
            self.paid_s[index][-1] = (begun, self.now_s)

    def drain(self, index: int) -> None:
        """Let a replica leave once what it has is done; the router gives it nothing more."""
        if self.replicas[index].outstanding:
            self._draining.add(index)
        else:
            self.end_pay(index)

    def abandon(self, index: int) -> None:
        """Stop a replica at once; its requests start anew elsewhere."""
        lost = self.replicas[index].abandon()
        self._ready[index] = NEVER
        self._draining.discard(index)
        for request in lost:
            self.log.forget(request)
        for request in lost:
            self.dispatch(request)

    def release_parked(self) -> None:
        """Give out the requests that waited for a replica."""
        waiting, self._parked = self._parked, deque()
        for request in waiting:
            self.dispatch(request)
