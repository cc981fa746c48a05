"""Pools of replicas, and which of them may take a request.

A pool's replicas are of one device and one plan. Requests of one model go to the live replicas of
its pools; where prompts and further tokens run on pools of their own (disaggregated serving; Zhong
et al., DistServe, OSDI 2024), to those of the part that is next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from accelsim.serving.loads.requests import RequestLog
from accelsim.serving.replicas.fleet import ReplicaFleet
from accelsim.serving.replicas.routers import PlainRouter
from accelsim.serving.schedulers.base import Scheduler

#: Place of a request that no replica takes.
REFUSED = -1


@dataclass(slots=True, eq=False)
class ReplicaPool:
    """Replicas of one plan.

    Attributes:
        make: Makes one more.
        start_s: Seconds from the decision to have one to the first request it takes.
        live: Places of the replicas that take requests.
        members: Places of all there ever were.
        coming: Replicas that are starting.
        started: Replicas that an autoscaler started.
        removed: Replicas that it let go.
        lost: Losses of replicas.
        restarted_requests: Requests that had to start anew with them.
        watchers: Told the place of each replica that begins to take requests, and when.
    """

    make: Callable[[], Scheduler]
    start_s: float = 0.0
    live: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    coming: int = 0
    started: int = 0
    removed: int = 0
    lost: int = 0
    restarted_requests: int = 0
    watchers: list[Callable[[int, float], None]] = field(default_factory=list)

    def join(self, index: int, now_s: float) -> None:
        """Let a replica take requests; the router is told apart."""
        self.live.append(index)
        for watcher in self.watchers:
            watcher(index, now_s)


class Route:
    """Where requests of one model go for one part of their work.

    Args:
        pools: Pools that serve them.
        router: Chooses among their live replicas.
        max_outstanding: Requests per live replica beyond which more are refused; None for no limit.
    """

    def __init__(
        self, pools: Sequence[ReplicaPool], router: PlainRouter, max_outstanding: int | None = None
    ) -> None:
        self.pools, self.router, self.max_outstanding = list(pools), router, max_outstanding
        self.places: list[int] = []
        self.replicas: list[Scheduler] = []

    def refresh(self, replicas: Sequence[Scheduler]) -> None:
        """Take up what is live now."""
        self.places = [index for pool in self.pools for index in pool.live]
        self.replicas = [replicas[index] for index in self.places]

    @property
    def is_full(self) -> bool:
        """Whether every live replica has as many requests as are admitted."""
        most = self.max_outstanding
        return most is not None and all(replica.outstanding >= most for replica in self.replicas)


class PoolRouter:
    """Routes requests by model, and by part where a model's prompts have pools of their own.

    Args:
        log: The requests.
        routes: By model; of all their work, or of prompts.
        further: By model; of the tokens after the first, where other pools generate them.
    """

    def __init__(
        self, log: RequestLog, routes: Sequence[Route], further: Sequence[Route | None]
    ) -> None:
        self._log, self._routes, self._further = log, routes, further
        self._model = None if log.requests.model is None else log.requests.model.tolist()
        self._is_further: set[int] = set()

    def refresh(self, fleet: ReplicaFleet) -> None:
        """Take up what is live now, and give out what waited for it."""
        for route in (*self._routes, *self._further):
            if route is not None:
                route.refresh(fleet.replicas)
        fleet.release_parked()

    def hand_over(self, request: int) -> None:
        """The request's prompt is done, and its cache where its further tokens are generated."""
        self._is_further.add(request)

    def __call__(self, request: int, _replicas: Sequence[Scheduler]) -> int | None:
        """Place of a replica; see `Router`."""
        model = 0 if self._model is None else self._model[request]
        route: Route | None = self._routes[model]
        is_further = bool(self._is_further) and request in self._is_further
        if is_further:
            self._is_further.remove(request)
            route = self._further[model]
        if route is None or not route.places:
            if is_further:
                self._is_further.add(request)
            return None
        if not is_further and route.is_full:
            most = route.max_outstanding
            self._log.rejected[request] = f"not admitted: {most} requests at every replica"
            return REFUSED
        return route.places[route.router(request, route.replicas)]
