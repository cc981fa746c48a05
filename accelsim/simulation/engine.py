"""The discrete-event engine every simulator here runs on, over SimPy 4.1.

Tasks with dependencies run on named servers: a compute stream, a host thread, a copy engine, a pool
of workers. Any SimPy event can be a dependency, any process can wait for a job. Time is a double in
seconds; nothing here is random, so the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from simpy.events import Event, Process

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.simulation.clock import Clock, collection_paused
from accelsim.simulation.columns import JobColumns, TaskColumns
from accelsim.simulation.recording import FileRecorder, Recorder, RingRecorder
from accelsim.simulation.resources import Discipline, Server
from accelsim.simulation.task import (
    Job,
    RowDependency,
    Task,
    back_to_back_end_s,
    check_task,
)
from accelsim.simulation.timeline import Timeline

__all__ = [
    "Discipline",
    "Engine",
    "FileRecorder",
    "Job",
    "JobColumns",
    "Recorder",
    "RingRecorder",
    "RowDependency",
    "Server",
    "Task",
    "TaskColumns",
    "back_to_back_end_s",
]


@checked
class Engine:
    """Resources, tasks and one simulated clock.

    Args:
        record: Keep everything that ends for the timeline (True), nothing (False), or what a
            recorder of one's own keeps: the last rows (`RingRecorder`) or a file (`FileRecorder`).

    Attributes:
        environment: The SimPy environment, for processes and events of one's own.
    """

    def __init__(self, *, record: bool | Recorder = True) -> None:
        self.environment = Clock()
        self._resources: dict[str, Server] = {}
        self._recorder = Recorder() if record is True else record or None
        self._open_count = 0
        self._open_columns: dict[JobColumns, None] = {}

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
        if name in self._resources:
            raise InvalidValueError("name", name, "a name no other resource of this engine has")
        server = Server(name, len(self._resources), capacity, discipline)
        self._resources[name] = server
        return server

    def process(self, generator: Generator[Event, Any, Any]) -> Process:
        """Start a SimPy process on this engine's clock."""
        return self.environment.process(generator)

    def submit(self, task: Task) -> Job:
        """Hand in a task; it runs when its dependencies are done and its resource is free.

        Returns:
            The job: an event that happens when the task ends.

        Raises:
            InvalidValueError: If a number of the task is out of range.
            UnknownNameError: If its resource does not exist.
        """
        resource = self._resource(task.resource)
        check_task(task)
        job = Job(self.environment, task, resource)
        job.callbacks.append(self._finish)
        self._open_count += 1
        for event in task.dependencies:
            job.wait_for(event)
        if task.row_dependency is not None:
            job.wait_for_rows_of(task.row_dependency.job)
        if resource.discipline == "in_order":
            job.waiting_count += resource.wait_for_last(job.dependency_done)
            resource.last = lambda: job
        job.dependency_done()
        return job

    def submit_many(self, tasks: TaskColumns) -> JobColumns:
        """Hand in many plain tasks for servers; each runs as if it were submitted alone.

        Returns:
            The jobs: an event that happens when the last of them ends, with their times.

        Raises:
            UnknownNameError: If a resource does not exist.
        """
        servers = [self._resource(name) for name in tasks.resources]
        with collection_paused():
            jobs = JobColumns(self.environment, tasks, servers, self._note_rows)
        if len(tasks):
            self._open_columns[jobs] = None
        return jobs

    def run(self, until_s: float | Event | None = None) -> None:
        """Run until nothing is left to happen, until a time, or until an event.

        Python's cyclic garbage collector pauses meanwhile.

        Raises:
            InvalidValueError: If tasks wait for events that never happen.
        """
        with collection_paused():
            self.environment.run(until_s)
        if until_s is None and (self._open_count or self._open_columns):
            self._explain_stall()

    def timeline(self) -> Timeline:
        """Everything that has ended so far (and that the recorder has kept).

        Raises:
            InvalidValueError: If the engine does not record.
        """
        if self._recorder is None:
            raise InvalidValueError("record", False, "True", "Make the engine with record=True.")
        for jobs in list(self._open_columns):
            jobs.flush()
        capacities = {name: resource.capacity for name, resource in self._resources.items()}
        return self._recorder.timeline(capacities)

    def _resource(self, name: str) -> Server:
        if name not in self._resources:
            raise UnknownNameError("resource", name, self._resources)
        return self._resources[name]

    def _finish(self, job: Any) -> None:
        self._open_count -= 1
        if self._recorder is not None:
            self._recorder.note_job(job)
        job.resource.release()

    def _note_rows(self, jobs: JobColumns, rows: list[int]) -> None:
        if self._recorder is not None and rows:
            self._recorder.note_rows(jobs, rows)
        if not jobs.open_count:
            del self._open_columns[jobs]

    def _explain_stall(self) -> None:
        for jobs in list(self._open_columns):
            jobs.flush()
        waiting_count = self._open_count + sum(jobs.open_count for jobs in self._open_columns)
        raise InvalidValueError(
            "dependencies", f"{waiting_count} waiting tasks", "events that happen"
        )
