"""The schedule of one pass on a device with one stream, in closed form: one run, or many scenarios.

With one stream, rows follow each other as ``end[j] = max(end[j - 1], issued[j]) + time[j]``, which
unrolls to ``max(start + sum(time), issue start + K)``: K is the largest of what is issued up to a
row and the time from it on. Iterations then follow each other as those of
`accelsim.simulation.device` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.background import background_power_w
from accelsim.cost.table import Bound, CostTable, Execution
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile
from accelsim.hardware.sourced import value_of
from accelsim.simulation.device_settings import (
    DeviceRows,
    DeviceSettings,
    bottleneck,
    check_rows,
    demand_s,
    device_time_s,
    launch_times_s,
)
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.workloads.lowering import LoweredBatch

#: Iterations of a pass before its steady state is looked for, and rows that one may simulate in
#: all: those of `accelsim.simulation.device`.
_WARM_UP = 2
_MAX_ROWS = 100_000
_EVENTS_IN_ROWS = 200
_TOLERANCE = 1e-9
#: Host link where a profile names none: PCIe 3.0 x16, 15.75 GB/s per direction (PCI-SIG), the
#: slowest common slot.
_DEFAULT_HOST_LINK_BYTES_PER_S = 15.75e9
#: Host time to launch a captured graph: NVIDIA, "Constant-time launch for straight-line CUDA
#: graphs" (2024), CUDA 12.6.
_GRAPH_LAUNCH_S = 2.5e-6


def device_settings(
    run: ResolvedRun, input_bytes: float = 0.0, *, is_decode: bool
) -> DeviceSettings:
    """How a run's device runs a pass; a serving engine's host works before each.

    Args:
        run: The run.
        input_bytes: Bytes of one batch as it comes from the host.
        is_decode: Whether the host waits for each step's token and copies no input.
    """
    device, execution = run.device, run.execution
    on_host, is_fpga = device.device_class == "cpu", device.device_class == "fpga"
    is_called = execution is Execution.COMPILED_CALLS
    limit = device.power.limit_w
    shares_memory = on_host or device.memory.is_unified
    launch_s = _GRAPH_LAUNCH_S + run.step_host_s if device.device_class == "gpu" else None
    if isinstance(device, AsicProfile):
        launch_s = value_of(device.launch_overhead_s, None)
    return DeviceSettings(
        # the host works beside an overlay
        execution=Execution.EAGER if is_fpga or is_called else execution,
        graph_launch_s=launch_s,
        is_asynchronous=not on_host,
        synchronize=is_decode,
        input_bytes=0.0 if shares_memory or is_decode else input_bytes,
        host_bandwidth_bytes_per_s=host_link_bytes_per_s(device),
        idle_w=background_power_w(device),
        power_limit_w=None if limit is None else limit.value,
    )


def host_link_bytes_per_s(device: DeviceProfile) -> float:
    """Bandwidth between a device and its host, one direction; that of the slowest common slot where
    the profile names none.
    """
    link = device.host_link
    return _DEFAULT_HOST_LINK_BYTES_PER_S if link is None else link.bandwidth_bytes_per_s.value


@frozen
class PassResult:
    """What a device takes for a pass; see `accelsim.simulation.device.SimulationResult`, which it
    equals to rounding.

    Attributes:
        latency_s: The pass alone, from its copy to the device to its end.
        steady_state_s: Time per pass, passes back to back.
        bottleneck: The stage with the largest demand; of the device's, what most of its time goes
            to.
        dynamic_energy_j: Dynamic energy.
        energy_j: With the idle power of the steady-state time; None where that is unknown.
    """

    latency_s: float
    steady_state_s: float
    bottleneck: str
    dynamic_energy_j: float
    energy_j: float | None

    def longer(self, ratio: float) -> PassResult:
        """The same pass in `ratio` times the time, at the same power."""
        return replace(
            self,
            latency_s=self.latency_s * ratio,
            steady_state_s=self.steady_state_s * ratio,
            dynamic_energy_j=self.dynamic_energy_j * ratio,
            energy_j=None if self.energy_j is None else self.energy_j * ratio,
        )

    def after(self, wait_s: float) -> PassResult:
        """The same pass where the device waits first, idle."""
        return replace(
            self,
            latency_s=self.latency_s + wait_s,
            steady_state_s=self.steady_state_s + wait_s,
            bottleneck="link" if wait_s > self.latency_s else self.bottleneck,
            energy_j=_sum(self.energy_j, self._idle_j(wait_s)),
        )

    def beside(self, idle: PassResult) -> PassResult:
        """The same pass with the energy of another pass's device, which idles meanwhile."""
        return replace(self, energy_j=_sum(self.energy_j, idle._idle_j(self.steady_state_s)))

    def _idle_j(self, time_s: float) -> float | None:
        """Energy of the device while it does nothing; None where that is unknown. Estimate: its
        idle power is constant.
        """
        if self.energy_j is None or not self.steady_state_s:
            return None
        return (self.energy_j - self.dynamic_energy_j) / self.steady_state_s * time_s


def _sum(energy_j: float | None, idle_j: float | None) -> float | None:
    return None if energy_j is None or idle_j is None else energy_j + idle_j


def pass_result(table: CostTable, settings: DeviceSettings) -> PassResult:
    """What a device takes for a pass.

    Args:
        table: Costs of its rows, in the order they are launched.
        settings: Its `device_settings`.

    Raises:
        InvalidValueError: If there are no rows, or a number is not finite.
    """
    rows = DeviceRows(table.time_s, table.dispatch_s, table.energy_j, table.bound)
    check_rows(rows)
    schedule = Schedule.of_pass(rows, settings)
    latency_s, period_s = (float(times[0]) for times in schedule.latency_and_period_s())
    dynamic_j = float(table.energy_j.sum())
    return PassResult(
        latency_s=latency_s,
        steady_state_s=period_s,
        bottleneck=bottleneck(rows, settings, demand_s(rows, settings)),
        dynamic_energy_j=dynamic_j,
        energy_j=None if settings.idle_w is None else dynamic_j + settings.idle_w * period_s,
    )


@frozen(eq=False)
class Schedule:
    """Iterations of one pass on a device with one stream, in s scenarios; shape (s,) each.

    Attributes:
        launch_count: Rows of an iteration.
        busy_s: Device time of an iteration.
        issue_s: Host time to issue it.
        issued_to_end_s: From the start of issuing to the end of the last row, the device free.
        copy_s: Time to copy an iteration's input.
        is_captured: Whether one launch issues the whole iteration.
        synchronize: Whether the host waits for each iteration's results.
        dispatch_s: Time to issue each distinct row, shape (s, d).
    """

    launch_count: int
    busy_s: FloatArray
    issue_s: FloatArray
    issued_to_end_s: FloatArray
    copy_s: FloatArray
    is_captured: bool
    synchronize: bool
    dispatch_s: FloatArray

    @classmethod
    def of_pass(cls, rows: DeviceRows, settings: DeviceSettings) -> Schedule:
        """The schedule of one pass, its rows in the order they are launched."""
        time_s, launch_s = device_time_s(rows, settings), launch_times_s(rows, settings)
        busy_s, issue_s = time_s.sum(), launch_s.sum()
        if not settings.is_asynchronous:
            issue_s = issued_to_end_s = np.zeros(())  # the host is the device
        elif settings.is_captured:
            issued_to_end_s = issue_s + busy_s
        else:
            left_s = np.cumsum(time_s[::-1])[::-1]
            issued_to_end_s = (np.cumsum(launch_s) + left_s).max()
        return cls(
            launch_count=len(time_s),
            busy_s=np.array([busy_s]),
            issue_s=np.array([issue_s]),
            issued_to_end_s=np.array([issued_to_end_s]),
            copy_s=np.array([settings.copy_s]),
            is_captured=settings.is_captured,
            synchronize=settings.synchronize,
            dispatch_s=rows.dispatch_s[None],
        )

    @classmethod
    def of(
        cls,
        lowered: LoweredBatch,
        time_s: FloatArray,
        dispatch_s: FloatArray,
        settings: DeviceSettings,
    ) -> Schedule:
        """The schedule of one batch of scenarios: longest paths in maxima and sums (Baccelli et
        al., Synchronization and Linearity, 1992).

        Args:
            lowered: The scenarios.
            time_s: Device times of their distinct rows, shape (s, d).
            dispatch_s: Times to issue these, shape (s, d).
            settings: How the device runs the pass, with an input of 1 byte.
        """
        busy_s = time_s @ lowered.repeat_count
        if settings.is_captured:
            launch_s = settings.graph_launch_s
            longest = dispatch_s.max(axis=1)
            issue_s = longest if launch_s is None else np.full(len(busy_s), launch_s)
            issued_to_end_s = issue_s + busy_s
        else:
            issue_s = dispatch_s @ lowered.repeat_count
            launch, before = lowered.launches_before()
            issued = dispatch_s @ before + dispatch_s[:, lowered.order[launch]]
            left_s = time_s @ (lowered.repeat_count[:, None] - before)
            issued_to_end_s = (issued + left_s).max(axis=1)
        return cls(
            launch_count=len(lowered.order),
            busy_s=busy_s,
            issue_s=issue_s,
            issued_to_end_s=issued_to_end_s,
            copy_s=lowered.input_bytes() * settings.copy_s,
            is_captured=settings.is_captured,
            synchronize=settings.synchronize,
            dispatch_s=dispatch_s,
        )

    def latency_and_period_s(self) -> tuple[FloatArray, FloatArray]:
        """End of the first iteration, and time between the last two once they come evenly: the
        period of a recurrence in maxima and sums (Baccelli et al., 1992).
        """
        count, warm_up = len(self.busy_s), _WARM_UP
        ends = self._ends(warm_up + 1)
        latency_s, period_s = ends[0], ends[-1] - ends[-2]
        pending = ~self._is_steady(ends)
        iterations = warm_up + 1
        event_count = self.launch_count + _EVENTS_IN_ROWS
        while pending.any() and 4 * iterations * event_count <= _MAX_ROWS:
            warm_up *= 4
            iterations = warm_up + 1
            ends = self._ends(iterations)
            period_s = np.where(pending, ends[-1] - ends[-2], period_s)
            pending &= ~self._is_steady(ends)
        return latency_s, np.broadcast_to(period_s, (count,))

    def _ends(self, iterations: int) -> list[FloatArray]:
        """Ends of the iterations: two input buffers, host and copy engine and device in order.

        A recurrence in maxima and sums (Baccelli et al., Synchronization and Linearity, 1992).
        """
        free = np.zeros_like(self.busy_s)
        copied, issued, ends = free, free, [free, free]  # two iterations before the first
        for _ in range(iterations):
            copied = np.maximum(copied, ends[-2]) + self.copy_s
            released = ends[-1] if self.synchronize else ends[-2]
            issue_start = np.maximum(issued, released)
            issued = issue_start + self.issue_s
            start = np.maximum(np.maximum(ends[-1], copied), released)
            ends.append(np.maximum(start + self.busy_s, issue_start + self.issued_to_end_s))
        return ends[2:]

    def _is_steady(self, ends: Sequence[FloatArray]) -> BoolArray:
        """See `accelsim.simulation.device`: the last two iterations took the same time, no less
        than the busiest stage needs (Baccelli et al., 1992: such a recurrence becomes periodic).
        """
        last_s, before_s = ends[-1] - ends[-2], ends[-2] - ends[-3]
        needed_s = np.maximum(np.maximum(self.issue_s, self.busy_s), self.copy_s)
        even: BoolArray = np.abs(last_s - before_s) <= _TOLERANCE * last_s
        return even & (last_s >= needed_s * (1 - _TOLERANCE))

    def bound(
        self, time_s: FloatArray, bound: NDArray[np.int8], launches: IntArray
    ) -> NDArray[np.object_]:
        """The stage with the largest demand; of compute, what most of its time goes to.

        Args:
            time_s: Times of the distinct rows, shape (s, d).
            bound: Their `Bound` codes, shape (s, d).
            launches: Launches of each, shape (d,).
        """
        weighted = time_s * launches
        sums = np.stack([np.where(bound == int(code), weighted, 0.0).sum(axis=1) for code in Bound])
        if self.is_captured:
            sums[Bound.DISPATCH] += self.dispatch_s @ launches
        bounds = np.array([code.label for code in Bound], dtype=object)[sums.argmax(axis=0)]
        stages = np.stack([self.issue_s, self.busy_s, self.copy_s]).argmax(axis=0)
        names = np.array(["dispatch", "compute", "link"], dtype=object)[stages]
        labels: NDArray[np.object_] = np.where(stages == 1, bounds, names)
        return labels
