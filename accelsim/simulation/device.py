"""One device running iterations of a model: launches, copies and kernels overlapped, in SimPy.

A host thread issues rows ahead of the device; a row starts once the row before it has ended and it
has been issued, so small batches are bound by launches. In the captured modes the whole graph is
one launch. Copies to the device have an engine of their own and overlap compute through two input
buffers. Every iteration is a handful of events, however many rows it has. What limits a long run is
the resource with the largest demand per iteration (the bottleneck law; Denning & Buzen, ACM
Computing Surveys 10, 1978).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accelsim.frozen import frozen
from accelsim.simulation.device_settings import (
    DeviceRows,
    DeviceSettings,
    bottleneck,
    check_rows,
    demand_s,
    device_time_s,
    launch_times_s,
)
from accelsim.simulation.engine import Engine, Job, RowDependency, Task
from accelsim.simulation.timeline import Timeline

if TYPE_CHECKING:
    from accelsim.cost.table import CostTable

#: Rows that a run may simulate in all, and the events of an iteration beside them.
_MAX_ROWS = 100_000
_EVENTS_IN_ROWS = 200
_TOLERANCE = 1e-9


@frozen(eq=False)
class SimulationResult:
    """What a run did.

    Attributes:
        latency_s: First iteration from its copy to its end, in seconds.
        steady_state_s: Time per iteration once the pipeline is full, in seconds.
        timeline: Every row of the run on its resource.
        window_s: Start and end of the measured iterations.
        demand_s: Busy time per iteration each stage needs: dispatch, compute, link.
        bottleneck: The stage with the largest demand (dispatch, link). Where that is compute, what
            its time goes to most, by the rows' bounds: compute, memory, overhead (fixed latency of
            kernels), dispatch (gaps between them) or link.
        dynamic_energy_j: Dynamic energy per iteration; None where unknown.
        energy_j: Dynamic energy + idle power x steady-state time, per iteration; None where either
            is unknown.
    """

    latency_s: float
    steady_state_s: float
    timeline: Timeline
    window_s: tuple[float, float]
    demand_s: Mapping[str, float]
    bottleneck: str
    dynamic_energy_j: float | None
    energy_j: float | None


def simulate_device(
    table: CostTable, settings: DeviceSettings, names: tuple[str, ...] | None = None
) -> SimulationResult:
    """Simulate iterations of a costed graph on one device.

    Args:
        table: Costs of the graph's rows, costed for the same execution mode.
        settings: How the device runs them.
        names: Their names; numbers where None.
    """
    rows = DeviceRows(table.time_s, table.dispatch_s, table.energy_j, table.bound, names)
    return simulate_rows(rows, settings)


def simulate_rows(rows: DeviceRows, settings: DeviceSettings) -> SimulationResult:
    """Simulate iterations given as plain columns; see `simulate_device`.

    Raises:
        InvalidValueError: If a column has the wrong length, or there are no rows.
    """
    check_rows(rows)
    run = _DeviceRun(rows, settings)
    while not run.is_steady() and run.may_be_longer():
        settings = replace(settings, warmup_iterations=4 * settings.warmup_iterations)
        run = _DeviceRun(rows, settings)
    return run.result()


class _DeviceRun:
    """The engine of one run and its iterations."""

    def __init__(self, rows: DeviceRows, settings: DeviceSettings) -> None:
        self.rows, self.settings = rows, settings
        self.time_s = device_time_s(rows, settings)
        self.names = rows.names or tuple(map(str, range(len(self.time_s))))
        self.energy_j = 0.0 if rows.energy_j is None else rows.energy_j
        self.launch_s = launch_times_s(rows, settings)
        self.demand_s = demand_s(rows, settings)
        self.engine = Engine()
        beside = [("host", settings.is_asynchronous), ("copy_in", settings.copy_s > 0)]
        for name in ("compute", *(name for name, is_used in beside if is_used)):
            self.engine.add_server(name, discipline="in_order")
        self.iterations: list[Job] = []
        for _ in range(settings.warmup_iterations + settings.iterations):
            self.iterations.append(self._submitted())
        self.engine.run()

    def _submitted(self) -> Job:
        """The kernels of a further iteration; its copy and its launches are submitted before."""
        settings = self.settings
        freed = self.iterations[-2:-1]  # the buffer of the iteration before the last one
        waits_for = self.iterations[-1:] if settings.synchronize else freed
        copies = []
        if settings.copy_s:
            task = Task("copy_in", "copy_in", settings.copy_s, freed, category="copy_in")
            copies.append(self.engine.submit(task))
        dispatch = self._dispatch(waits_for) if settings.is_asynchronous else None
        task = Task(
            "iteration",
            "compute",
            self.time_s,
            copies + waits_for,
            None if dispatch is None else RowDependency(dispatch),
            energy_j=self.energy_j,
            category="kernel",
            row_names=self.names,
        )
        return self.engine.submit(task)

    def _dispatch(self, after: list[Job]) -> Job:
        is_captured = self.settings.is_captured
        task = Task(
            "graph launch" if is_captured else "dispatch",
            "host",
            float(self.launch_s[0]) if is_captured else self.launch_s,
            after,
            category="dispatch",
            row_names=None if is_captured else self.names,
        )
        return self.engine.submit(task)

    def _window_s(self) -> tuple[float, float]:
        """Start and end of the measured iterations."""
        return self.iterations[-self.settings.iterations - 1].end_s, self.iterations[-1].end_s

    def may_be_longer(self) -> bool:
        """Whether four times as many iterations are not too many to simulate."""
        rows = len(self.time_s) + _EVENTS_IN_ROWS
        return 4 * len(self.iterations) * rows <= _MAX_ROWS

    def is_steady(self) -> bool:
        """Whether the last two iterations took the same time, and all no less than the busiest
        stage needs in the long run.

        Less means that a backlog from the start is still draining. That need is the bottleneck law
        (Denning and Buzen, ACM Computing Surveys 10, 1978).
        """
        ends = [kernels.end_s for kernels in self.iterations[-3:]]
        if len(ends) < 3:
            return False
        before_s, last_s = np.diff(ends)
        start_s, end_s = self._window_s()
        needed_s = self.settings.iterations * max(self.demand_s.values())
        is_even = abs(last_s - before_s) <= _TOLERANCE * last_s
        return bool(is_even and end_s - start_s >= needed_s * (1 - _TOLERANCE))

    def result(self) -> SimulationResult:
        """Everything the finished run tells."""
        window_s = self._window_s()
        steady_s = (window_s[1] - window_s[0]) / self.settings.iterations
        dynamic = None if self.rows.energy_j is None else float(self.rows.energy_j.sum())
        idle_w = self.settings.idle_w
        return SimulationResult(
            latency_s=self.iterations[0].end_s,
            steady_state_s=steady_s,
            timeline=self.engine.timeline(),
            window_s=window_s,
            demand_s=self.demand_s,
            bottleneck=bottleneck(self.rows, self.settings, self.demand_s),
            dynamic_energy_j=dynamic,
            energy_j=None if dynamic is None or idle_w is None else dynamic + idle_w * steady_s,
        )
