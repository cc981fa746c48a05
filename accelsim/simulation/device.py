"""One device running iterations of a model: launches, copies, data loading and kernels overlapped,
in SimPy.

A host thread issues rows ahead of the device; a row starts once the row before it has ended and it
has been issued, so small batches are bound by launches. In the captured modes the whole graph is
one launch. Copies to and from the device have an engine each and overlap compute through
`buffer_count` input buffers; loader workers prepare batches ahead. Every iteration is a handful of
events, however many rows it has. What limits a long run is the resource with the largest demand per
iteration (the bottleneck law; Denning & Buzen, ACM Computing Surveys 10, 1978).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.frozen import frozen
from accelsim.simulation.device_settings import (
    DeviceRows,
    DeviceSettings,
    bottleneck,
    check_rows,
    device_time_s,
    launch_times_s,
)
from accelsim.simulation.engine import Engine, Job, RowDependency, Task
from accelsim.simulation.liveness import activation_live_bytes
from accelsim.simulation.streams import Segment, dependency_levels, spread_over_streams
from accelsim.simulation.timeline import StepFunction, Timeline
from accelsim.workloads.graph import FloatArray, OperatorGraph

if TYPE_CHECKING:
    from accelsim.cost.table import CostTable

__all__ = [
    "DeviceRows",
    "DeviceSettings",
    "SimulationResult",
    "simulate_device",
    "simulate_rows",
]


@frozen(eq=False)
class SimulationResult:
    """What a run did.

    Attributes:
        latency_s: First iteration from its batch being loaded to its results being back, in
            seconds.
        steady_state_s: Time per iteration once the pipeline is full, in seconds.
        first_iteration_s: First iteration with the loading of its batch, in seconds.
        makespan_s: The whole run with warm-up, in seconds.
        timeline: Every row of the run on its resource.
        window_s: Start and end of the measured iterations.
        demand_s: Busy time per iteration each stage needs: dispatch, compute, link, data_loading.
        utilisation: Share of the steady-state time each resource is busy.
        bottleneck: The stage with the largest demand (dispatch, link, data_loading). Where that
            is compute, what its time goes to most, by the rows' bounds: compute, memory,
            overhead (fixed latency of kernels), dispatch (gaps between them) or link.
        dispatch_bound_fraction: Share of the measured window the device waits for the host to issue
            work.
        dynamic_energy_j: Dynamic energy per iteration; None where unknown.
        energy_j: Dynamic energy + idle power x steady-state time, per iteration; None where either
            is unknown.
        average_power_w: Energy per iteration over its time; None where unknown.
        memory: Bytes in use over the last iteration; None where the rows' memory is unknown.
    """

    latency_s: float
    steady_state_s: float
    first_iteration_s: float
    makespan_s: float
    timeline: Timeline
    window_s: tuple[float, float]
    demand_s: Mapping[str, float]
    utilisation: Mapping[str, float]
    bottleneck: str
    dispatch_bound_fraction: float
    dynamic_energy_j: float | None
    energy_j: float | None
    average_power_w: float | None
    memory: StepFunction | None

    @property
    def peak_memory_bytes(self) -> float | None:
        """Most memory in use at once; None where unknown."""
        return None if self.memory is None else self.memory.maximum


@dataclass(slots=True)
class _Iteration:
    """Jobs of one iteration; a stage the run does not have stays empty."""

    load: list[Job] = field(default_factory=list)
    copy_in: list[Job] = field(default_factory=list)
    dispatch: Job | None = None
    kernels: list[Job] = field(default_factory=list)
    last_kernels: list[Job] = field(default_factory=list)
    results: list[Job] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        return max(job.end_s for job in self.results)


def simulate_device(
    table: CostTable,
    *,
    graph: OperatorGraph | None = None,
    live_bytes: FloatArray | None = None,
    **settings: Any,
) -> SimulationResult:
    """Simulate iterations of a costed graph on one device.

    Args:
        table: Costs of the graph's rows, costed for the same execution mode.
        graph: The graph, for row names, activation memory and (several streams) dependencies; None
            where none is needed.
        live_bytes: Activation memory in use while each row runs, shape (n,), in bytes; the graph's
            where None.
        settings: Fields of `DeviceSettings`.

    Raises:
        DoesNotFitError: If memory in use exceeds `memory_capacity_bytes`.
        InvalidValueError: If a setting is out of range.
    """
    rows = DeviceRows(table.time_s, table.dispatch_s, table.energy_j, table.bound)
    if graph is not None:
        rows = replace(
            rows,
            names=graph.name,
            live_bytes=activation_live_bytes(graph) if live_bytes is None else live_bytes,
            dependency_offset=graph.dependency_offset,
            dependency=graph.dependency,
        )
    elif live_bytes is not None:
        rows = replace(rows, live_bytes=live_bytes)
    return simulate_rows(rows, DeviceSettings(**settings))


def simulate_rows(rows: DeviceRows, settings: DeviceSettings) -> SimulationResult:
    """Simulate iterations given as plain columns; see `simulate_device`.

    Raises:
        DoesNotFitError: If memory in use exceeds the capacity.
        InvalidValueError: If a column has the wrong length, there are no rows, or several streams
            lack dependencies.
    """
    check_rows(rows, settings)
    time_s = device_time_s(rows, settings)
    run = _DeviceRun(rows, settings, time_s)
    while (
        not run.is_steady()
        and 4 * len(run.iterations) * (len(time_s) + _EVENTS_IN_ROWS) <= _MAX_ROWS
    ):
        settings = replace(settings, warmup_iterations=4 * settings.warmup_iterations)
        run = _DeviceRun(rows, settings, time_s)
    return run.result()


#: Where two stages take almost the same time a pipeline fills or drains slowly; the warm-up is made
#: 4 times longer until the run is steady or would cost as much as so many rows (an iteration's
#: events cost about as much as 200 rows).
_MAX_ROWS = 100_000
_EVENTS_IN_ROWS = 200
_TOLERANCE = 1e-9


class _DeviceRun:
    """The engine of one run and the jobs of its iterations."""

    def __init__(self, rows: DeviceRows, settings: DeviceSettings, time_s: FloatArray) -> None:
        self.rows, self.settings, self.time_s = rows, settings, time_s
        self.names = rows.names if rows.names is not None else tuple(map(str, range(len(time_s))))
        self.energy_j = np.zeros(len(time_s)) if rows.energy_j is None else rows.energy_j
        self.dispatch_s = launch_times_s(rows, settings)
        self.segments = self._segments()
        self.stages = _by_stage(self.segments)
        # Columns of each segment, made once and shared by all iterations.
        self.columns = {id(s): self._columns_of(s) for s in self.segments}
        side_s = {
            "copy_in": settings.copy_s(settings.input_bytes),
            "copy_out": settings.copy_s(settings.output_bytes),
            "data_loader": settings.loading_s,
        }
        self.side_s = {name: time_s for name, time_s in side_s.items() if time_s}
        self.engine = Engine()
        self._add_resources()
        # Workers that start together end together: only whole groups of batches come at the steady
        # rate.
        self.group = settings.loader_count if settings.loading_s else 1
        self.measured_count = -(-settings.iterations // self.group) * self.group
        self.iterations: list[_Iteration] = []
        for _ in range(settings.warmup_iterations + self.group - 1 + self.measured_count):
            self.iterations.append(self._submit(len(self.iterations)))
        self.engine.run()

    def _segments(self) -> list[Segment]:
        offset, dependency = self.rows.dependency_offset, self.rows.dependency
        if self.settings.streams == 1 or offset is None or dependency is None:
            return [Segment(0, 0, np.arange(len(self.time_s)), 1.0)]
        level = dependency_levels(offset, dependency)
        return spread_over_streams(self.time_s, level, self.settings.streams, self.rows.occupancy)

    def _columns_of(self, segment: Segment) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
        if len(self.segments) == 1:
            return self.time_s, self.energy_j, self.names
        names = tuple([self.names[row] for row in segment.rows.tolist()])
        return self.time_s[segment.rows] * segment.stretch, self.energy_j[segment.rows], names

    def _add_resources(self) -> None:
        in_order = [_stream_name(number) for number in sorted({s.stream for s in self.segments})]
        in_order += ["host"] if self.settings.is_asynchronous else []
        for name in in_order:
            self.engine.add_server(name, discipline="in_order")
        for name in self.side_s:
            if name == "data_loader":
                self.engine.add_server(name, self.settings.loader_count)
            else:
                self.engine.add_server(name, discipline="in_order")

    def _submit(self, index: int) -> _Iteration:
        settings = self.settings
        now = _Iteration()
        freed = self._earlier(index, settings.buffer_count).last_kernels
        held = self._earlier(index, 1).results if settings.synchronize else freed
        ahead = self._earlier(index, settings.loader_count * settings.prefetch_count)
        now.load = self._beside("data_loader", ahead.copy_in or ahead.last_kernels, "load")
        now.copy_in = self._beside("copy_in", now.load + freed)
        if settings.is_asynchronous:
            now.dispatch = self._dispatch(now.load + held)
        self._kernels(now, now.load + now.copy_in + held)
        now.results = self._beside("copy_out", now.last_kernels) or now.last_kernels
        return now

    def _earlier(self, index: int, distance: int) -> _Iteration:
        return self.iterations[index - distance] if index >= distance else _Iteration()

    def _beside(self, resource: str, after: list[Job], name: str = "") -> list[Job]:
        """Loading or copying beside the device, where the run has it."""
        if resource not in self.side_s:
            return []
        word = name or resource
        task = Task(word, resource, self.side_s[resource], after, category=word)
        return [self.engine.submit(task)]

    def _dispatch(self, after: list[Job]) -> Job:
        is_captured = self.settings.is_captured
        task = Task(
            "graph launch" if is_captured else "dispatch",
            "host",
            float(self.dispatch_s[0]) if is_captured else self.dispatch_s,
            after,
            category="dispatch",
            row_names=None if is_captured else self.names,
        )
        return self.engine.submit(task)

    def _kernels(self, now: _Iteration, before: list[Job]) -> None:
        for stage in self.stages:
            now.last_kernels = [self._segment(segment, now, before) for segment in stage]
            now.kernels.extend(now.last_kernels)
            before = now.last_kernels

    def _segment(self, segment: Segment, now: _Iteration, before: list[Job]) -> Job:
        duration_s, energy_j, names = self.columns[id(segment)]
        feed = None
        if now.dispatch is not None:
            is_whole = self.settings.is_captured or len(self.segments) == 1
            feed = RowDependency(now.dispatch, None if is_whole else segment.rows)
        task = Task(
            "iteration",
            _stream_name(segment.stream),
            duration_s,
            before,
            feed,
            energy_j=energy_j,
            category="kernel",
            row_names=names,
        )
        return self.engine.submit(task)

    def is_steady(self) -> bool:
        """Whether the last two groups took the same time, and all no less than the busiest stage
        needs in the long run.

        Less means that a backlog from the start is still draining.
        """
        ends = [iteration.end_s for iteration in self.iterations]
        if len(ends) <= 2 * self.group:
            return False
        last_s = ends[-1] - ends[-self.group - 1]
        before_s = ends[-self.group - 1] - ends[-2 * self.group - 1]
        measured_s = ends[-1] - ends[-self.measured_count - 1]
        needed_s = self.measured_count * max(self._demand_s().values())
        is_even = abs(last_s - before_s) <= _TOLERANCE * last_s
        return is_even and measured_s >= needed_s * (1 - _TOLERANCE)

    def result(self) -> SimulationResult:
        """Everything the finished run tells."""
        ends = [iteration.end_s for iteration in self.iterations]
        window = (ends[-self.measured_count - 1], ends[-1])
        steady_s = (window[1] - window[0]) / self.measured_count
        loaded_s = max((job.end_s for job in self.iterations[0].load), default=0.0)
        demand = self._demand_s()
        dynamic = None if self.rows.energy_j is None else float(self.rows.energy_j.sum())
        idle_w = self.settings.idle_w
        energy = None if dynamic is None or idle_w is None else dynamic + idle_w * steady_s
        memory = self._memory()
        counters = {} if memory is None else {"memory_bytes": memory}
        return SimulationResult(
            latency_s=ends[0] - loaded_s,
            steady_state_s=steady_s,
            first_iteration_s=ends[0],
            makespan_s=ends[-1],
            timeline=replace(self.engine.timeline(), counters=counters),
            window_s=window,
            demand_s=demand,
            utilisation=self._utilisation(steady_s),
            bottleneck=bottleneck(self.rows, self.settings, demand),
            dispatch_bound_fraction=self._dispatch_wait_s() / (window[1] - window[0])
            if steady_s
            else 0.0,
            dynamic_energy_j=dynamic,
            energy_j=energy,
            average_power_w=None if energy is None or not steady_s else energy / steady_s,
            memory=memory,
        )

    def _demand_s(self) -> dict[str, float]:
        settings = self.settings
        stage_s = [max(self._busy_s(segment) for segment in stage) for stage in self.stages]
        is_asynchronous, is_captured = settings.is_asynchronous, settings.is_captured
        launch_s = 0.0 if is_captured and not is_asynchronous else float(self.dispatch_s.sum())
        copies_s = [self.side_s.get(name, 0.0) for name in ("copy_in", "copy_out")]
        return {
            "dispatch": launch_s,
            "compute": sum(stage_s) - (0.0 if is_asynchronous else launch_s),
            "link": max(copies_s),
            "data_loading": settings.loading_s / settings.loader_count,
        }

    def _busy_s(self, segment: Segment) -> float:
        return float(self.columns[id(segment)][0].sum())

    def _utilisation(self, steady_s: float) -> dict[str, float]:
        """Demand over steady-state time of each resource: the utilisation law, free of the run's
        ends.
        """
        busy_s: dict[str, float] = {}
        for segment in self.segments:
            name = _stream_name(segment.stream)
            busy_s[name] = busy_s.get(name, 0.0) + self._busy_s(segment)
        if self.settings.is_asynchronous:
            busy_s["host"] = float(self.dispatch_s.sum())
        busy_s |= self.side_s
        if "data_loader" in busy_s:
            busy_s["data_loader"] /= self.settings.loader_count
        return {name: busy / steady_s if steady_s else 0.0 for name, busy in busy_s.items()}

    def _dispatch_wait_s(self) -> float:
        """Time stream 0 stood ready but its next row was not issued yet, over the measured
        iterations.
        """
        waited = 0.0
        for iteration in self.iterations[-self.measured_count :]:
            for job in iteration.kernels:
                if job.row_end_s is not None and job.task.resource == _stream_name(0):
                    before_s = np.concatenate([[job.start_s], job.row_end_s[:-1]])
                    waited += float((job.row_start_s() - before_s).sum())
        return waited

    def _memory(self) -> StepFunction | None:
        if self.rows.live_bytes is None:
            return None
        starts = np.empty(len(self.time_s))
        for segment, job in zip(self.segments, self.iterations[-1].kernels, strict=True):
            starts[segment.rows] = job.row_start_s()
        order = np.argsort(starts, kind="stable")
        end_s = max(job.end_s for job in self.iterations[-1].kernels)
        resident = self.settings.occupied_bytes
        level = np.concatenate([resident + self.rows.live_bytes[order], [resident]])
        return StepFunction(np.concatenate([starts[order], [end_s]]), level)


def _stream_name(stream: int) -> str:
    return "compute" if stream == 0 else f"compute:{stream}"


def _by_stage(segments: list[Segment]) -> list[list[Segment]]:
    by_stage = itertools.groupby(segments, key=lambda segment: segment.stage)
    return [list(stage) for _, stage in by_stage]
