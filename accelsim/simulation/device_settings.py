"""What one device is asked to run, as plain columns and settings, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.table import Bound, CostTable, Execution
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray


@frozen(eq=False)
class DeviceRows:
    """What one iteration runs; n rows in launch order.

    Attributes:
        time_s: Time on the device, shape (n,), in seconds.
        dispatch_s: Eager: host time to issue each row. Captured: the device's gap before each node
            of the graph. Shape (n,), in seconds.
        energy_j: Dynamic energy, shape (n,), in joules; None where unknown.
        bound: `Bound` codes, shape (n,); None where unknown.
        names: Row names, length n; None for plain numbers.
    """

    time_s: FloatArray
    dispatch_s: FloatArray
    energy_j: FloatArray | None = None
    bound: NDArray[np.int8] | None = None
    names: tuple[str, ...] | None = None


@frozen(kw_only=True)
class DeviceSettings:
    """How the iterations are run.

    Attributes:
        execution: Eager issues row by row; graph and compiled issue the whole iteration with one
            launch.
        iterations: Iterations measured for the steady state.
        warmup_iterations: Iterations before them, >= 1, while the pipeline fills; more are added
            where that takes longer.
        is_asynchronous: Whether the host runs ahead of the device. False: the host thread is the
            device (a CPU), each row takes its dispatch and then its time.
        synchronize: Whether the host waits for each iteration's results before it issues the next.
        graph_launch_s: Host time of the one launch of a captured graph; the longest `dispatch_s`
            where None.
        input_bytes: Copied to the device per iteration, into one of two buffers.
        host_bandwidth_bytes_per_s: Host link, one direction; needed where bytes are copied.
        idle_w: Idle power; None where unknown (energy is then unknown too).
        power_limit_w: Board limit that stretches rows; None leaves them as they are.
    """

    execution: Execution = Execution.EAGER
    iterations: int = 4
    warmup_iterations: int = 3
    is_asynchronous: bool = True
    synchronize: bool = False
    graph_launch_s: float | None = None
    input_bytes: float = 0.0
    host_bandwidth_bytes_per_s: float | None = None
    idle_w: float | None = None
    power_limit_w: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type == "int" and not 1 <= value <= 1_000_000:
                raise InvalidValueError(name, value, "an integer from 1 to 1,000,000")
            if not str(field.type).startswith("float") or value is None:
                continue
            if not 0 <= value < float("inf"):
                raise InvalidValueError(name, value, "a finite number >= 0")
        if self.input_bytes and not self.host_bandwidth_bytes_per_s:
            raise InvalidValueError(
                "host_bandwidth_bytes_per_s",
                self.host_bandwidth_bytes_per_s,
                "a number > 0 where input_bytes are copied",
            )

    @property
    def is_captured(self) -> bool:
        """Whether one launch issues the whole iteration."""
        return self.execution != Execution.EAGER

    @property
    def copy_s(self) -> float:
        """Time to copy an iteration's input over the host link, 0 for nothing."""
        if not self.input_bytes or self.host_bandwidth_bytes_per_s is None:
            return 0.0
        return self.input_bytes / self.host_bandwidth_bytes_per_s


def check_rows(rows: DeviceRows) -> None:
    """Refuse columns that do not fit each other.

    Raises:
        InvalidValueError: If a column has the wrong length or bad numbers.
    """
    count = len(rows.time_s)
    if not count:
        raise InvalidValueError("time_s", rows.time_s, "at least one row")
    for name in ("dispatch_s", "energy_j", "bound", "names"):
        column = getattr(rows, name)
        if column is not None and len(column) != count:
            raise InvalidValueError(name, f"{len(column)} rows", f"{count} rows, as time_s")
    for name in ("dispatch_s", "energy_j"):
        check_numbers(name, getattr(rows, name))


def check_numbers(name: str, column: FloatArray | None) -> None:
    """Refuse a column with numbers that are negative or not finite.

    Raises:
        InvalidValueError: Naming it.
    """
    if column is not None and len(column) and not (column.min() >= 0 and column.max() < np.inf):
        raise InvalidValueError(name, column, "finite numbers >= 0")


def demand_s(rows: DeviceRows, settings: DeviceSettings) -> dict[str, float]:
    """Busy time of each stage; a host that is the device issues operators and computes in turn."""
    on_host = not settings.is_asynchronous
    launch_s = 0.0 if on_host and settings.is_captured else launch_times_s(rows, settings).sum()
    return {
        "dispatch": float(launch_s),
        "compute": float(device_time_s(rows, settings).sum() - (launch_s if on_host else 0.0)),
        "link": settings.copy_s,
    }


def bottleneck(rows: DeviceRows, settings: DeviceSettings, demand_s: Mapping[str, float]) -> str:
    """The stage with the largest demand; of compute, what most of its time goes to by the rows'
    bounds, where they are known.
    """
    stage = max(demand_s, key=lambda name: demand_s[name])
    if stage != "compute" or rows.bound is None:
        return stage
    by_bound = np.bincount(rows.bound, rows.time_s, len(Bound))
    if settings.is_captured:
        by_bound[Bound.DISPATCH] += rows.dispatch_s.sum()
    return Bound(int(by_bound.argmax())).label


def launch_times_s(rows: DeviceRows, settings: DeviceSettings) -> FloatArray:
    """Host time of each launch: per row, or one figure for a captured graph."""
    if not settings.is_captured:
        return rows.dispatch_s
    launch_s = settings.graph_launch_s
    return np.array([float(rows.dispatch_s.max()) if launch_s is None else launch_s])


def device_time_s(rows: DeviceRows | CostTable, settings: DeviceSettings) -> FloatArray:
    """Row times with the power limit, node gaps and, where the host is the device, dispatch."""
    time_s, energy_j = rows.time_s, rows.energy_j
    idle_w, limit_w = settings.idle_w, settings.power_limit_w
    if limit_w is not None and idle_w is not None and energy_j is not None:
        time_s = power_limited_s(time_s, energy_j, idle_w, limit_w)
    # Eager dispatch runs on the host beside the device, unless they are one; gaps of a captured
    # graph are device time.
    if settings.is_captured or not settings.is_asynchronous:
        time_s = time_s + rows.dispatch_s
    return time_s


def power_limited_s(
    time_s: FloatArray, energy_j: FloatArray, idle_w: float, limit_w: float
) -> FloatArray:
    """Durations under a power limit, row by row.

    A board at its limit lowers its clock. To first order the switched energy of a piece of work
    stays what it was and only its duration grows, until dynamic energy over time plus idle power
    meets the limit: an estimate, since a lower voltage at a lower clock would save some energy too.

    Args:
        time_s: Uncapped duration of each row, shape (n,), in seconds, >= 0.
        energy_j: Dynamic energy of each row, shape (n,), in joules, >= 0.
        idle_w: Idle power, in watts, >= 0.
        limit_w: Power limit, in watts, > idle_w.

    Returns:
        Seconds, shape (n,), nowhere less than `time_s`.

    Raises:
        InvalidValueError: If the limit does not exceed idle power.
    """
    if not 0 <= idle_w < limit_w:
        raise InvalidValueError("limit_w", limit_w, f"a number above idle_w = {idle_w}")
    return np.maximum(time_s, energy_j / (limit_w - idle_w))
