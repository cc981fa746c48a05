"""The discrete-event engine every simulator here runs on, over SimPy 4.1.

Tasks with dependencies run on named resources: servers (a compute stream, a host thread, a copy
engine, a pool of workers), links whose bandwidth transfers share, and memories of limited size. Any
SimPy event can be a dependency, any process can wait for a job. Time is a double in seconds;
nothing here is random, so the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy
from simpy.events import Event, Process

from accelsim.errors import DoesNotFitError, InvalidValueError, UnknownNameError
from accelsim.simulation.recording import Recorder
from accelsim.simulation.resources import Discipline, Memory, Server, SharedLink
from accelsim.simulation.task import (
    Job,
    Resource,
    RowDependency,
    Task,
    back_to_back_end_s,
    check_task,
)
from accelsim.simulation.timeline import Timeline

__all__ = [
    "Discipline",
    "Engine",
    "Job",
    "Memory",
    "RowDependency",
    "Server",
    "SharedLink",
    "Task",
    "back_to_back_end_s",
]


class Engine:
    """Resources, tasks and one simulated clock.

    Args:
        record: Keep finished jobs for the timeline. Off for long runs that only need their own
            statistics.

    Attributes:
        environment: The SimPy environment, for processes and events of one's own.
    """

    def __init__(self, *, record: bool = True) -> None:
        self.environment = simpy.Environment()
        self.memories: dict[str, Memory] = {}
        self._resources: dict[str, Resource] = {}
        self._recorder = Recorder() if record else None
        self._open_count = 0
        self._blocked: dict[Job, None] = {}

    @property
    def now_s(self) -> float:
        """Simulated time, in seconds."""
        return float(self.environment.now)

    def add_server(self, name: str, capacity: int = 1, discipline: Discipline = "fifo") -> Server:
        """Add a compute unit, stream, host thread, copy engine or pool of workers.

        Args:
            name: Its name, new to this engine.
            capacity: Tasks it runs at once, >= 1; exactly 1 where in order.
            discipline: Order of waiting tasks.

        Raises:
            InvalidValueError: If the name is taken or the capacity out of range.
        """
        if capacity < 1 or (discipline == "in_order" and capacity != 1):
            raise InvalidValueError("capacity", capacity, "an integer >= 1, and 1 for in_order")
        server = Server(name, capacity, discipline, self._grant)
        self._add(name, server)
        return server

    def add_shared_link(
        self, name: str, bandwidth_bytes_per_s: float, latency_s: float = 0.0
    ) -> SharedLink:
        """Add a link that divides its bandwidth among the transfers under way.

        Args:
            name: Its name, new to this engine.
            bandwidth_bytes_per_s: > 0, in bytes/s.
            latency_s: >= 0, in seconds.

        Raises:
            InvalidValueError: If the name is taken or a number out of range.
        """
        if not 0 < bandwidth_bytes_per_s < float("inf"):
            raise InvalidValueError(
                "bandwidth_bytes_per_s", bandwidth_bytes_per_s, "a finite number > 0"
            )
        if not 0 <= latency_s < float("inf"):
            raise InvalidValueError("latency_s", latency_s, "a finite number >= 0")
        link = SharedLink(self.environment, name, bandwidth_bytes_per_s, latency_s)
        self._add(name, link)
        return link

    def add_memory(self, name: str, capacity_bytes: float, initial_bytes: float = 0.0) -> Memory:
        """Add a memory.

        Raises:
            InvalidValueError: If the name is taken or a number out of range.
        """
        if name in self.memories:
            raise InvalidValueError("name", name, "a name no other memory has")
        if not 0 <= initial_bytes <= capacity_bytes or not capacity_bytes > 0:
            raise InvalidValueError(
                "initial_bytes", initial_bytes, f"0 to capacity_bytes = {capacity_bytes}"
            )
        self.memories[name] = Memory(self.environment, name, capacity_bytes, initial_bytes)
        return self.memories[name]

    def process(self, generator: Generator[Event, Any, Any]) -> Process:
        """Start a SimPy process on this engine's clock."""
        return self.environment.process(generator)

    def submit(self, task: Task) -> Job:
        """Hand in a task; it runs when its dependencies are done and its resource is free.

        Returns:
            The job: an event that happens when the task ends.

        Raises:
            DoesNotFitError: If the task allocates more than its memory holds.
            InvalidValueError: If a number of the task is out of range.
            UnknownNameError: If its resource or memory does not exist.
        """
        resource = self._resources.get(task.resource)
        if resource is None:
            raise UnknownNameError("resource", task.resource, self._resources)
        check_task(task, isinstance(resource, SharedLink))
        self._check_memory(task)
        job = Job(self.environment, task, resource)
        job.callbacks.append(self._finish)
        self._open_count += 1
        for event in task.dependencies:
            job.wait_for(event)
        if task.row_dependency is not None:
            job.wait_for_rows_of(task.row_dependency.job)
        resource.line_up(job)
        if job.waiting_count == 0:
            resource.enqueue(job)
        return job

    def run(self, until_s: float | Event | None = None) -> None:
        """Run until nothing is left to happen, until a time, or until an event.

        Raises:
            DoesNotFitError: If nothing can go on because tasks wait for memory that nobody frees.
            InvalidValueError: If tasks wait for events that never happen.
        """
        self.environment.run(until_s)
        if until_s is None and self._open_count:
            self._explain_stall()

    def timeline(self) -> Timeline:
        """Everything that has ended so far.

        Raises:
            InvalidValueError: If the engine does not record.
        """
        if self._recorder is None:
            raise InvalidValueError("record", False, "True", "Make the engine with record=True.")
        return self._recorder.timeline({name: r.capacity for name, r in self._resources.items()})

    def _add(self, name: str, resource: Resource) -> None:
        if name in self._resources:
            raise InvalidValueError("name", name, "a name no other resource of this engine has")
        self._resources[name] = resource

    def _check_memory(self, task: Task) -> None:
        if task.memory is None:
            return
        if task.memory not in self.memories:
            raise UnknownNameError("memory", task.memory, self.memories)
        capacity = self.memories[task.memory].capacity
        if task.memory_delta_bytes > capacity:
            raise DoesNotFitError(task.memory, "memory_bytes", task.memory_delta_bytes, capacity)

    def _grant(self, job: Job) -> None:
        task = job.task
        if task.memory is None or task.memory_delta_bytes <= 0:
            job.begin()
            return
        self._blocked[job] = None
        allocation = self.memories[task.memory].put(task.memory_delta_bytes)
        allocation.callbacks.append(lambda _event: self._unblock(job))

    def _unblock(self, job: Job) -> None:
        del self._blocked[job]
        job.begin()

    def _finish(self, event: Event) -> None:
        job: Any = event.value
        self._open_count -= 1
        if self._recorder is not None:
            self._recorder.note(job)
        task = job.task
        if task.memory is not None and task.memory_delta_bytes < 0:
            self.memories[task.memory].free(-task.memory_delta_bytes)
        job.resource.release(job)

    def _explain_stall(self) -> None:
        for job in self._blocked:
            memory = self.memories[str(job.task.memory)]
            needed = memory.level + job.task.memory_delta_bytes
            raise DoesNotFitError(
                memory.name,
                "memory_bytes",
                needed,
                memory.capacity,
                f"Task {job.task.name!r} waits for ever.",
            )
        raise InvalidValueError(
            "dependencies", f"{self._open_count} waiting tasks", "events that happen"
        )
