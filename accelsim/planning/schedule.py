"""The schedule of one pass on a device with one stream, in closed form and in many scenarios.

With one stream, rows follow each other as ``end[j] = max(end[j - 1], issued[j]) + time[j]``, which
unrolls to ``max(start + sum(time), issue start + K)``: K is the largest of what is issued up to a
row and the time from it on. Iterations then follow each other as those of
`accelsim.simulation.device` do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.table import Bound, CostTable, Execution
from accelsim.frozen import dataclass
from accelsim.planning.run import ResolvedRun
from accelsim.planning.simulate import device_settings
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray
from accelsim.workloads.lowering import LoweredBatch

__all__ = ["Schedule", "device_time_s"]

#: Iterations of a pass before its steady state is looked for, and rows that one may simulate in
#: all: those of `accelsim.simulation.device`.
_WARM_UP: Final = 2
_MAX_ROWS: Final = 100_000
_EVENTS_IN_ROWS: Final = 200
_TOLERANCE: Final = 1e-9
#: What the time of an iteration on the device goes to.


def device_time_s(table: CostTable, settings: Mapping[str, Any]) -> FloatArray:
    """Row times under the power limit, which binds row by row, and the gaps of a captured graph.

    Args:
        table: Costs of n rows.
        settings: `DeviceSettings` of the pass.

    Returns:
        Seconds, shape (n,).
    """
    time_s = table.time_s
    limit_w, idle_w = settings["power_limit_w"], settings["idle_w"]
    if limit_w is not None and idle_w is not None:
        time_s = np.maximum(time_s, table.energy_j / (limit_w - idle_w))
    is_eager = settings["execution"] == Execution.EAGER
    return time_s if is_eager and settings["is_asynchronous"] else time_s + table.dispatch_s


@dataclass(frozen=True, slots=True, eq=False)
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
    def of(
        cls,
        run: ResolvedRun,
        lowered: LoweredBatch,
        time_s: FloatArray,
        dispatch_s: FloatArray,
        settings: Mapping[str, Any],
    ) -> Schedule:
        """The schedule of one batch of scenarios."""
        busy_s = time_s @ lowered.repeat_count
        is_captured = settings["execution"] != Execution.EAGER
        if is_captured:
            launch_s = settings["graph_launch_s"]
            longest = dispatch_s.max(axis=1)
            issue_s = longest if launch_s is None else np.full(len(busy_s), launch_s)
            issued_to_end_s = issue_s + busy_s
        else:
            issue_s = dispatch_s @ lowered.repeat_count
            launch, before = lowered.launches_before()
            issued = dispatch_s @ before + dispatch_s[:, lowered.order[launch]]
            left_s = time_s @ (lowered.repeat_count[:, None] - before)
            issued_to_end_s = (issued + left_s).max(axis=1)
        given = _input_bytes(run, lowered, settings)
        return cls(
            launch_count=len(lowered.order),
            busy_s=busy_s,
            issue_s=issue_s,
            issued_to_end_s=issued_to_end_s,
            copy_s=given / settings["host_bandwidth_bytes_per_s"],
            is_captured=is_captured,
            synchronize=settings["synchronize"],
            dispatch_s=dispatch_s,
        )

    def latency_and_period_s(self) -> tuple[FloatArray, FloatArray]:
        """End of the first iteration, and time between the last two once they come evenly."""
        count, warm_up = len(self.busy_s), _WARM_UP
        ends = self._ends(warm_up + 1)
        latency_s, period_s = ends[0], ends[-1] - ends[-2]
        pending = ~self._is_steady(ends)
        iterations = warm_up + 1
        while pending.any() and self._may_go_on(iterations):
            warm_up *= 4
            iterations = warm_up + 1
            ends = self._ends(iterations)
            period_s = np.where(pending, ends[-1] - ends[-2], period_s)
            pending &= ~self._is_steady(ends)
        return latency_s, np.broadcast_to(period_s, (count,))

    def _may_go_on(self, iterations: int) -> bool:
        return 4 * iterations * (self.launch_count + _EVENTS_IN_ROWS) <= _MAX_ROWS

    def _ends(self, iterations: int) -> list[FloatArray]:
        """Ends of the iterations: two input buffers, host and copy engine and device in order."""
        free = np.zeros_like(self.busy_s)
        copied, issued, ends = free, free, [free, free]  # two iterations before the first
        for _ in range(iterations):
            copied = np.maximum(copied, ends[-2]) + self.copy_s
            held = ends[-1] if self.synchronize else ends[-2]
            issue_start = np.maximum(issued, held)
            issued = issue_start + self.issue_s
            start = np.maximum(np.maximum(ends[-1], copied), held)
            ends.append(np.maximum(start + self.busy_s, issue_start + self.issued_to_end_s))
        return ends[2:]

    def _is_steady(self, ends: Sequence[FloatArray]) -> BoolArray:
        """See `accelsim.simulation.device`: the last two iterations took the same time, no less
        than the busiest stage needs.
        """
        last_s, before_s = ends[-1] - ends[-2], ends[-2] - ends[-3]
        needed_s = np.maximum(np.maximum(self.issue_s, self.busy_s), self.copy_s)
        even: BoolArray = np.abs(last_s - before_s) <= _TOLERANCE * last_s
        return even & (last_s >= needed_s * (1 - _TOLERANCE))

    def bound(
        self, time_s: FloatArray, bound: NDArray[np.int8], launches: IntArray
    ) -> NDArray[Any]:
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
        within = np.array([code.label for code in Bound], dtype=object)[sums.argmax(axis=0)]
        stages = np.stack([self.issue_s, self.busy_s, self.copy_s]).argmax(axis=0)
        named = np.array(["dispatch", "compute", "link"], dtype=object)[stages]
        found: NDArray[Any] = np.where(stages == 1, within, named)
        return found


def _input_bytes(
    run: ResolvedRun, lowered: LoweredBatch, settings: Mapping[str, Any]
) -> FloatArray:
    """Bytes copied to the device per iteration, shape (s,)."""
    one = device_settings(run.device, run.execution, 1.0, is_decode=settings["synchronize"])
    copied: FloatArray = lowered.input_bytes() * one["input_bytes"]
    return copied
