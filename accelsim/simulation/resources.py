"""What tasks run on: servers with a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

from simpy.events import Event

#: Order in which a busy server takes waiting tasks. fifo: as they become ready. in_order: strictly
#: as submitted, like a CUDA stream; a task that is not ready holds up those behind it.
Discipline = Literal["fifo", "in_order"]


class Work(Protocol):
    """What a server runs: a job of one task, or the rows of columns of tasks."""

    def begin(self, row: int) -> None:
        """Start a row now."""


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
        else:
            self._waiting.append((work, row))

    def release(self) -> None:
        """Give the place of a task that has ended to the next in the queue."""
        if self._waiting:
            work, row = self._waiting.popleft()
            work.begin(row)
        else:
            self.busy_count -= 1
