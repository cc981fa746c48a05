"""Replicas that fail, and spot replicas that are taken back.

Times between failures of one replica are exponential. A failed replica loses its caches and what it
was doing; its requests start anew elsewhere, and it comes back after a cold start, paid all the
while. A spot replica is told some time before: it takes no more requests, what is left then starts
anew, and nothing is paid until its successor comes.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.serving.replicas.fleet import ReplicaFleet
from accelsim.serving.replicas.pools import PoolRouter, ReplicaPool
from accelsim.serving.schedulers.base import NEVER

#: Most losses in a run, and most restarts of its mean request: a replica lost before any request
#: can end would be replaced for ever.
_MOST_LOSSES, _MOST_RESTARTS = 100_000, 100


@frozen
class OutagePolicy:
    """How replicas are lost.

    Attributes:
        mean_time_s: Mean time between two losses of one replica.
        notice_s: Time before a loss in which the replica takes no more requests.
        is_spot: Whether the replica is taken back, so that it is not paid until it is replaced.
    """

    mean_time_s: float
    notice_s: float = 0.0
    is_spot: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no time.

        Raises:
            InvalidValueError: Naming the field.
        """
        if not 0 < self.mean_time_s < math.inf:
            raise InvalidValueError("mean_time_s", self.mean_time_s, "seconds above 0")
        if not 0 <= self.notice_s < math.inf:
            raise InvalidValueError("notice_s", self.notice_s, "seconds >= 0")


class Outages:
    """Loses replicas of one pool; a `Control` of the fleet.

    Args:
        policy: How they are lost.
        pool: The pool.
        router: Told what is live.
        generator: Random numbers.
    """

    def __init__(
        self,
        policy: OutagePolicy,
        pool: ReplicaPool,
        router: PoolRouter,
        generator: np.random.Generator,
    ) -> None:
        self._policy, self._pool, self._router = policy, pool, router
        self._generator = generator
        self._events: list[tuple[float, int, str]] = []
        for index in pool.live:
            self._watch(index, 0.0)
        pool.watchers.append(self._watch)

    def _watch(self, index: int, now_s: float) -> None:
        """Draw the time of a replica's next loss."""
        gap_s = float(self._generator.exponential(self._policy.mean_time_s))
        heapq.heappush(self._events, (now_s + gap_s, index, "notice"))

    @property
    def next_s(self) -> float:
        """The next notice, loss or return."""
        return self._events[0][0] if self._events else NEVER

    def act(self, fleet: ReplicaFleet) -> None:
        """Warn, lose, or bring back a replica."""
        _, index, event = heapq.heappop(self._events)
        if event == "notice":
            self._warn(fleet, index)
        elif event == "loss":
            self._lose(fleet, index)
        else:
            self._bring_back(fleet, index)

    def _warn(self, fleet: ReplicaFleet, index: int) -> None:
        if index not in self._pool.live:  # let go meanwhile
            return
        self._pool.live.remove(index)
        self._pool.coming += 1
        self._router.refresh(fleet)
        heapq.heappush(self._events, (fleet.now_s + self._policy.notice_s, index, "loss"))

    def _lose(self, fleet: ReplicaFleet, index: int) -> None:
        pool = self._pool
        pool.lost += 1
        pool.restarted_requests += fleet.replicas[index].outstanding
        hopeless = pool.restarted_requests > _MOST_RESTARTS * len(fleet.log)
        if hopeless or pool.lost > _MOST_LOSSES:
            allowed = (
                f"long enough that a run loses at most {_MOST_LOSSES:,} replicas, and its mean "
                f"request starts anew at most {_MOST_RESTARTS} times"
            )
            remedy = "Give a longer time between losses, or a shorter load."
            raise InvalidValueError("mean_time_s", self._policy.mean_time_s, allowed, remedy)
        if self._policy.is_spot:
            fleet.end_pay(index)
        fleet.abandon(index)
        heapq.heappush(self._events, (fleet.now_s + pool.start_s, index, "return"))

    def _bring_back(self, fleet: ReplicaFleet, index: int) -> None:
        self._pool.coming -= 1
        if self._policy.is_spot:
            fleet.paid_s[index].append((fleet.now_s, None))
        self._pool.join(index, fleet.now_s)
        self._router.refresh(fleet)
