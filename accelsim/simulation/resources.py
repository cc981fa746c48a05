"""What tasks run on: servers, links that share their bandwidth, and memories of limited size."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np
import simpy
from simpy.events import Event

from accelsim.errors import InvalidValueError
from accelsim.simulation.clock import Clock
from accelsim.simulation.task import Job
from accelsim.simulation.timeline import StepFunction

__all__ = ["Discipline", "Memory", "Server", "SharedLink", "Work"]

#: Order in which a busy server takes waiting tasks. fifo: as they become ready. priority: lowest
#: number first, then fifo. in_order: strictly as submitted, like a CUDA stream; a task that is not
#: ready holds up those behind it.
Discipline = Literal["fifo", "priority", "in_order"]


class Work(Protocol):
    """What a server runs: a job of one task, or the rows of columns of tasks."""

    def begin(self, row: int) -> None:
        """Start a row now."""

    def priority_of(self, row: int) -> int:
        """Priority of a row; smaller runs first."""


class Server:
    """A resource that runs up to `capacity` tasks at once and lets the others wait.

    Attributes:
        name: Its name.
        code: Its place among the engine's resources.
        capacity: Tasks it runs at once.
        discipline: Order of the waiting tasks.
        busy_count: Tasks it holds now.
        last: Gives the end of the task submitted last, on an in-order server.
    """

    def __init__(self, name: str, code: int, capacity: int, discipline: Discipline) -> None:
        self.name = name
        self.code = code
        self.capacity = capacity
        self.discipline = discipline
        self.busy_count = 0
        self.last: Callable[[], Event] | None = None
        self._waiting: deque[tuple[Work, int]] = deque()
        self._ranked: list[tuple[int, int, Work, int]] = []
        self._arrival_count = 0

    @property
    def queue_length(self) -> int:
        """Tasks that are ready and wait."""
        return len(self._waiting) + len(self._ranked)

    def wait_for_last(self, go_on: Callable[[Event], None]) -> bool:
        """On an in-order server, have `go_on` called once the task submitted last has ended.

        Returns:
            Whether it is still to end.
        """
        event = None if self.last is None else self.last()
        if event is None or event.callbacks is None:
            return False
        event.callbacks.append(go_on)
        return True

    def enqueue(self, work: Work, row: int = 0) -> None:
        """Take a task whose dependencies are done: run it, or queue it."""
        if self.busy_count < self.capacity:
            self.busy_count += 1
            work.begin(row)
        elif self.discipline == "priority":
            self._arrival_count += 1
            rank = (work.priority_of(row), self._arrival_count, work, row)
            heapq.heappush(self._ranked, rank)
        else:
            self._waiting.append((work, row))

    def release(self) -> None:
        """Give the place of a task that has ended to the next in the queue."""
        if self._waiting:
            work, row = self._waiting.popleft()
            work.begin(row)
        elif self._ranked:
            _, _, work, row = heapq.heappop(self._ranked)
            work.begin(row)
        else:
            self.busy_count -= 1


class SharedLink:
    """A link whose bandwidth all transfers under way share equally (egalitarian processor sharing).

    A transfer first waits the latency, which others overlap, then moves its bytes at bandwidth /
    (transfers under way). All active transfers progress at one rate, so one running total of bytes
    per transfer tells who ends next (Kleinrock, Queueing Systems II, 1976, section 4.4).

    Attributes:
        name: Its name.
        code: Its place among the engine's resources.
        bandwidth_bytes_per_s: One direction, in bytes/s.
        latency_s: Before the first byte, in seconds.
    """

    capacity = 1

    def __init__(
        self,
        environment: Clock,
        name: str,
        code: int,
        bandwidth_bytes_per_s: float,
        latency_s: float,
    ) -> None:
        self.environment = environment
        self.name = name
        self.code = code
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self.latency_s = latency_s
        self._moved_bytes = 0.0  # by each transfer since the link was last idle
        self._updated_s = 0.0
        self._active: list[tuple[float, int, Job]] = []
        self._arrival_count = 0
        self._timer: Event | None = None

    def enqueue(self, job: Job) -> None:
        """Start a transfer."""
        job.start_s = float(self.environment.now)
        timeout = self.environment.timeout(self.latency_s, job)
        timeout.callbacks.append(self._join)

    def release(self) -> None:
        """A transfer that ends leaves nothing to give on."""

    def _join(self, event: Event) -> None:
        job: Any = event.value
        self._advance()
        self._arrival_count += 1
        heapq.heappush(
            self._active, (self._moved_bytes + job.task.size_bytes, self._arrival_count, job)
        )
        self._set_timer()

    def _advance(self) -> None:
        now = float(self.environment.now)
        if self._active:
            self._moved_bytes += (
                (now - self._updated_s) * self.bandwidth_bytes_per_s / len(self._active)
            )
        else:
            self._moved_bytes = 0.0
        self._updated_s = now

    def _set_timer(self) -> None:
        if not self._active:
            return
        left_bytes = max(self._active[0][0] - self._moved_bytes, 0.0)
        self._timer = self.environment.timeout(
            left_bytes * len(self._active) / self.bandwidth_bytes_per_s
        )
        self._timer.callbacks.append(self._leave)

    def _leave(self, timer: Event) -> None:
        if timer is not self._timer:  # superseded by a later arrival
            return
        self._advance()
        target, _, job = heapq.heappop(self._active)
        self._moved_bytes = target  # exact, so that rounding never leaves a byte behind
        job.end_s = float(self.environment.now)
        job.succeed()
        self._set_timer()


class Memory(simpy.Container):
    """Memory of limited size: `put` allocates (and waits until it fits), `get` frees; the level
    over time is kept.

    Args:
        environment: The SimPy environment.
        name: Its name.
        capacity_bytes: Size in bytes.
        initial_bytes: In use at the start.

    Attributes:
        name: Its name.
        high_water_bytes: Most bytes in use so far.
        blocked: Jobs that wait for it, longest first.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        name: str,
        capacity_bytes: float,
        initial_bytes: float = 0.0,
    ) -> None:
        super().__init__(environment, capacity_bytes, initial_bytes)
        self.name = name
        self.high_water_bytes = initial_bytes
        self.blocked: dict[Job, None] = {}
        self._times = [float(environment.now)]
        self._levels = [initial_bytes]

    def allocate(self, size_bytes: float, job: Job) -> None:
        """Take bytes for a job as soon as they fit, and start it then."""
        self.blocked[job] = None
        allocation = self.put(size_bytes)
        allocation.callbacks.append(lambda _event: self._start(job))

    def usage(self) -> StepFunction:
        """Bytes in use over time."""
        return StepFunction(np.array(self._times), np.array(self._levels, dtype=np.float64))

    def free(self, amount_bytes: float) -> None:
        """Free bytes now.

        Raises:
            InvalidValueError: If fewer are in use.
        """
        if amount_bytes > self.level * (1 + 1e-12):
            raise InvalidValueError(
                f"{self.name} bytes to free", amount_bytes, f"at most the {self.level} in use"
            )
        self.get(min(amount_bytes, self.level))

    def _start(self, job: Job) -> None:
        del self.blocked[job]
        job.start()

    def _do_put(self, event: Any) -> bool | None:
        return self._noted(super()._do_put(event))

    def _do_get(self, event: Any) -> bool | None:
        return self._noted(super()._do_get(event))

    def _noted(self, done: bool | None) -> bool | None:
        if done:
            self._times.append(float(self._env.now))
            self._levels.append(float(self.level))
            self.high_water_bytes = max(self.high_water_bytes, float(self.level))
        return done
