"""Which replica takes a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import NO_GROUP, RequestLog
from accelsim.serving.schedulers.base import Scheduler

ROUTERS = (
    "round-robin",
    "random",
    "least-outstanding",
    "least-waiting",
    "least-kv",
    "prefix-aware",
)
#: Requests a prefix-aware router lets a replica be ahead of the least loaded: an estimate.
_IMBALANCE = 8


#: Place of the replica that takes a request; None where there is none to take it yet, below 0 where
#: it is refused.
Router = Callable[[int, Sequence[Scheduler]], int | None]
#: The same among replicas all of which may take a request.
PlainRouter = Callable[[int, Sequence[Scheduler]], int]


def _round_robin() -> PlainRouter:
    last = -1

    def choose(_request: int, replicas: Sequence[Scheduler]) -> int:
        nonlocal last
        last = (last + 1) % len(replicas)
        return last

    return choose


def _random(generator: np.random.Generator) -> PlainRouter:
    draws: list[float] = []

    def choose(_request: int, replicas: Sequence[Scheduler]) -> int:
        if not draws:
            draws.extend(generator.random(4096).tolist())
        return int(draws.pop() * len(replicas))

    return choose


def _least_outstanding() -> PlainRouter:
    """The first of the replicas with the least load, which all keep theirs in one array."""
    watched: Sequence[Scheduler] = ()
    loads = np.empty(0)

    def choose(_request: int, replicas: Sequence[Scheduler]) -> int:
        nonlocal watched, loads
        if replicas is not watched or len(replicas) != len(loads):
            watched, loads = replicas, np.empty(len(replicas))
            for index, replica in enumerate(replicas):
                replica.show_load(loads, index)
        return int(loads.argmin())

    return choose


def _least_waiting(_request: int, replicas: Sequence[Scheduler]) -> int:
    """The replica with the fewest requests in its queue; of equals the one with least to do (vLLM's
    DPLBAsyncMPClient weighs the queue most: 4 x waiting + running).
    """
    loads = [(len(replica.waiting), replica.load) for replica in replicas]
    return loads.index(min(loads))


def _least_cache(_request: int, replicas: Sequence[Scheduler]) -> int:
    loads = [(replica.used_blocks, replica.outstanding) for replica in replicas]
    return loads.index(min(loads))


def _prefix_aware(log: RequestLog) -> PlainRouter:
    """The replica that served a prefix last, unless it has far more to do than the least loaded."""
    groups = log.requests.prefix_group
    homes: dict[int, Scheduler] = {}
    least_outstanding = _least_outstanding()

    def choose(request: int, replicas: Sequence[Scheduler]) -> int:
        least = least_outstanding(request, replicas)
        group = NO_GROUP if groups is None else int(groups[request])
        if group == NO_GROUP:
            return least
        home = homes.get(group)
        most = replicas[least].outstanding + _IMBALANCE
        if home is None or home not in replicas or home.outstanding > most:
            home = homes[group] = replicas[least]
        return replicas.index(home)

    return choose


def router(name: str, log: RequestLog, generator: np.random.Generator) -> PlainRouter:
    """A router by name.

    Args:
        name: One of `ROUTERS`.
        log: The requests it routes.
        generator: Of the random router.

    Raises:
        InvalidValueError: If there is none of that name.
    """
    if name not in ROUTERS:
        raise InvalidValueError("router", name, "one of " + ", ".join(ROUTERS))
    if name == "round-robin":
        return _round_robin()
    if name == "random":
        return _random(generator)
    if name == "least-outstanding":
        return _least_outstanding()
    if name == "prefix-aware":
        return _prefix_aware(log)
    return _least_waiting if name == "least-waiting" else _least_cache
