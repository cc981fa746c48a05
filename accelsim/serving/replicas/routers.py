"""Which replica takes a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import NO_GROUP, RequestLog
from accelsim.serving.schedulers.base import Scheduler

ROUTERS = ("round-robin", "random", "least-outstanding", "least-kv", "prefix-aware")
#: Requests a prefix-aware router lets a replica be ahead of the least loaded: an estimate.
_IMBALANCE = 8


class Router(Protocol):
    """Chooses replicas."""

    def choose(self, request: int, replicas: Sequence[Scheduler]) -> int | None:
        """Place of the replica that takes a request; None where there is none to take it yet, below
        0 where it is refused.
        """


class _RoundRobin:
    def __init__(self) -> None:
        self._next = -1

    def choose(self, request: int, replicas: Sequence[Scheduler]) -> int:  # noqa: ARG002
        self._next = (self._next + 1) % len(replicas)
        return self._next


class _Random:
    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._draws: list[float] = []

    def choose(self, request: int, replicas: Sequence[Scheduler]) -> int:  # noqa: ARG002
        if not self._draws:
            self._draws = self._generator.random(4096).tolist()
        return int(self._draws.pop() * len(replicas))


def _least_outstanding(replicas: Sequence[Scheduler]) -> int:
    loads = [(replica.outstanding + 1) / replica.speed for replica in replicas]
    return loads.index(min(loads))


class _LeastOutstanding:
    def choose(self, request: int, replicas: Sequence[Scheduler]) -> int:  # noqa: ARG002
        return _least_outstanding(replicas)


class _LeastCache:
    def choose(self, request: int, replicas: Sequence[Scheduler]) -> int:  # noqa: ARG002
        loads = [(replica.used_blocks, replica.outstanding) for replica in replicas]
        return loads.index(min(loads))


class _PrefixAware:
    """The replica that served a prefix last, unless it has far more to do than the least loaded."""

    def __init__(self, log: RequestLog) -> None:
        self._group = log.asked.prefix_group
        self._home: dict[int, Scheduler] = {}

    def choose(self, request: int, replicas: Sequence[Scheduler]) -> int:
        least = _least_outstanding(replicas)
        group = NO_GROUP if self._group is None else int(self._group[request])
        if group == NO_GROUP:
            return least
        home = self._home.get(group)
        if (
            home is None
            or home not in replicas
            or home.outstanding > replicas[least].outstanding + _IMBALANCE
        ):
            home = replicas[least]
        self._home[group] = home
        return replicas.index(home)


class PlainRouter(Protocol):
    """Chooses among replicas all of which may take a request."""

    def choose(self, request: int, replicas: Sequence[Scheduler]) -> int:
        """Place of the replica that takes a request."""


def router(name: str, log: RequestLog, generator: np.random.Generator) -> PlainRouter:
    """A router by name.

    Args:
        name: One of `ROUTERS`.
        log: The requests it routes.
        generator: Of the random router.

    Raises:
        InvalidValueError: If there is none of that name.
    """
    if name == "prefix-aware":
        return _PrefixAware(log)
    if name == "random":
        return _Random(generator)
    plain: dict[str, type[PlainRouter]] = {
        "round-robin": _RoundRobin,
        "least-outstanding": _LeastOutstanding,
        "least-kv": _LeastCache,
    }
    if name not in plain:
        raise InvalidValueError("router", name, "one of " + ", ".join(ROUTERS))
    return plain[name]()
