"""What a fleet knows of a scheduler, and the queues requests wait in."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

import numpy as np

from accelsim.serving.loads.requests import RequestLog
from accelsim.serving.replicas.tally import Tally
from accelsim.workloads.graph import FloatArray

#: Time of what does not happen.
NEVER = math.inf


class PriorityQueue:
    """Requests by priority, then by the order they came in; lower comes first."""

    def __init__(self, priority: Sequence[int]) -> None:
        self._priority = priority
        self._heap: list[tuple[int, int, int]] = []
        self._unseen: deque[int] = deque()
        self._next, self._before = 0, -1

    def __len__(self) -> int:
        return len(self._heap) + len(self._unseen)

    def __getitem__(self, position: int) -> int:
        return self._heap[position][2]

    def append(self, request: int) -> None:
        """Queue a request behind those of its priority."""
        heapq.heappush(self._heap, (self._priority[request], self._next, request))
        self._next += 1

    def hold(self, request: int) -> None:
        """Queue a request behind all until it is seen."""
        self._unseen.append(request)

    def see(self, unseen: int) -> None:
        """Queue those held by their priority, but for the last few."""
        while len(self._unseen) > unseen:
            self.append(self._unseen.popleft())

    def appendleft(self, request: int) -> None:
        """Queue a request before those of its priority."""
        heapq.heappush(self._heap, (self._priority[request], self._before, request))
        self._before -= 1

    def popleft(self) -> int:
        """Take the first."""
        return heapq.heappop(self._heap)[2]


WaitingQueue = deque[int] | PriorityQueue


class Scheduler(ABC):
    """One replica: requests are submitted, and its next event is at `ready_s`.

    Args:
        log: Requests, and what becomes of them.
        queue: Where requests wait; first come, first served where None.

    Attributes:
        ready_s: Time of the next event; `NEVER` where idle.
        tally: Sums over its steps.
        waiting: Requests that wait.
        capacity_blocks: Cache blocks there are; 0 for a model without a cache.
        ended_count: Requests that ended, where the fleet counts them.
    """

    def __init__(self, log: RequestLog, queue: WaitingQueue | None = None) -> None:
        self.log = log
        self.capacity_blocks, self._speed = 0, 1.0
        self._loads: FloatArray = np.empty(1)
        self._load_index = 0
        self.ready_s = NEVER
        self.tally = Tally()
        self.outstanding = self.ended_count = 0  # sets the load, too
        self.waiting: WaitingQueue = deque() if queue is None else queue

    @property
    def outstanding(self) -> int:
        """Requests that wait or run."""
        return self._outstanding

    @outstanding.setter
    def outstanding(self, count: int) -> None:
        self._outstanding = count
        self._loads[self._load_index] = (count + 1) / self._speed

    @property
    def load(self) -> float:
        """Requests it would have with one more, over its speed."""
        return float(self._loads[self._load_index])

    def show_load(self, loads: FloatArray, index: int) -> None:
        """Keep its load at a place of an array from now on, where a router finds the least."""
        loads[index] = self._loads[self._load_index]
        self._loads, self._load_index = loads, index

    @property
    def speed(self) -> float:
        """Requests it serves per second beside others, for routers that weigh them."""
        return self._speed

    @speed.setter
    def speed(self, requests_per_s: float) -> None:
        self._speed = requests_per_s
        self.outstanding = self._outstanding  # sets the load, too

    @property
    def used_blocks(self) -> int:
        """Cache blocks that requests hold."""
        return 0

    @property
    def hit_tokens(self) -> int | None:
        """Tokens of prompts that were cached when they came; None where no prefixes are shared."""
        return None

    @abstractmethod
    def submit(self, request: int, now_s: float) -> None:
        """Queue a request; the replica may start at once."""

    @abstractmethod
    def advance(self) -> list[int]:
        """Pass the event at `ready_s` and start what follows.

        Returns:
            Requests that ended with it.
        """

    def drop_waiting(self) -> list[int]:
        """Take all that wait out of the queue."""
        return [self.waiting.popleft() for _ in range(len(self.waiting))]

    @abstractmethod
    def abandon(self) -> list[int]:
        """Lose all there is: the replica is as new.

        Returns:
            Requests that waited or ran.
        """
