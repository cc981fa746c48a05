"""What one device is asked to run, as plain columns and settings, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.table import Bound, Execution
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.frozen import frozen
from accelsim.simulation.power_cap import cap_power
from accelsim.workloads.graph import FloatArray, IntArray


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
        live_bytes: Activation memory in use while each row runs, shape (n,), in bytes; None where
            unknown.
        dependency_offset: Start of each row's slice of `dependency`, shape (n + 1,); needed for
            several streams.
        dependency: Earlier rows each row waits for, shape (edges,).
        occupancy: Share of the device a row fills alone, shape (n,); 1 where None.
    """

    time_s: FloatArray
    dispatch_s: FloatArray
    energy_j: FloatArray | None = None
    bound: NDArray[np.int8] | None = None
    names: tuple[str, ...] | None = None
    live_bytes: FloatArray | None = None
    dependency_offset: IntArray | None = None
    dependency: IntArray | None = None
    occupancy: FloatArray | None = None


@frozen(kw_only=True)
class DeviceSettings:
    """How the iterations are run.

    Attributes:
        execution: Eager issues row by row; graph and compiled issue the whole iteration with one
            launch.
        iterations: Iterations measured for the steady state (rounded up to a multiple of
            `loader_count`).
        warmup_iterations: Iterations before them, >= 1, while the pipeline fills; more are added
            where that takes longer.
        is_asynchronous: Whether the host runs ahead of the device. False: the host thread is the
            device (a CPU), each row takes its dispatch and then its time.
        synchronize: Whether the host waits for each iteration's results before it issues the next.
        graph_launch_s: Host time of the one launch of a captured graph; the longest `dispatch_s`
            where None.
        streams: Streams the rows may spread over.
        input_bytes: Copied to the device per iteration.
        output_bytes: Copied back per iteration.
        host_bandwidth_bytes_per_s: Host link, one direction; needed where bytes are copied.
        host_latency_s: Per copy, in seconds.
        buffer_count: Input buffers on the device; 2 overlaps the copy of one batch with compute on
            the one before.
        loading_s: Time one worker takes to prepare one batch.
        loader_count: Loader workers.
        prefetch_count: Batches each worker may prepare ahead.
        idle_w: Idle power; None where unknown (energy is then unknown too).
        power_limit_w: Board limit that stretches rows; None leaves them as they are.
        power_window_s: Time over which the limit averages.
        resident_bytes: Memory in use throughout: weights, optimizer state.
        memory_capacity_bytes: Refuse to run with more than this; None does not check.
    """

    execution: Execution = Execution.EAGER
    iterations: int = 4
    warmup_iterations: int = 3
    is_asynchronous: bool = True
    synchronize: bool = False
    graph_launch_s: float | None = None
    streams: int = 1
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    host_bandwidth_bytes_per_s: float | None = None
    host_latency_s: float = 0.0
    buffer_count: int = 2
    loading_s: float = 0.0
    loader_count: int = 1
    prefetch_count: int = 2
    idle_w: float | None = None
    power_limit_w: float | None = None
    power_window_s: float = 0.0
    resident_bytes: float = 0.0
    memory_capacity_bytes: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type == "int" and not 1 <= value <= 1_000_000:
                raise InvalidValueError(name, value, "an integer from 1 to 1,000,000")
            if not str(field.type).startswith("float") or value is None:
                continue
            if not 0 <= value < float("inf"):
                raise InvalidValueError(name, value, "a finite number >= 0")
        if (self.input_bytes or self.output_bytes) and not self.host_bandwidth_bytes_per_s:
            raise InvalidValueError(
                "host_bandwidth_bytes_per_s",
                self.host_bandwidth_bytes_per_s,
                "a number > 0 where input_bytes or output_bytes are copied",
            )

    @property
    def is_captured(self) -> bool:
        """Whether one launch issues the whole iteration."""
        return self.execution != Execution.EAGER

    @property
    def occupied_bytes(self) -> float:
        """Memory in use before any row runs: resident bytes and input buffers."""
        buffers = self.buffer_count if self.input_bytes else 0
        return self.resident_bytes + buffers * self.input_bytes

    def copy_s(self, size_bytes: float) -> float:
        """Time of one copy over the host link, 0 for nothing (alpha-beta; Hockney, Parallel
        Computing 20, 1994).
        """
        if not size_bytes or self.host_bandwidth_bytes_per_s is None:
            return 0.0
        return self.host_latency_s + size_bytes / self.host_bandwidth_bytes_per_s


def check_rows(rows: DeviceRows, settings: DeviceSettings) -> None:
    """Refuse columns that do not fit each other, the settings or the memory.

    Raises:
        DoesNotFitError: If memory in use exceeds the capacity.
        InvalidValueError: If a column has the wrong length or bad numbers, or several streams lack
            dependencies.
    """
    count = len(rows.time_s)
    if not count:
        raise InvalidValueError("time_s", rows.time_s, "at least one row")
    for name in ("dispatch_s", "energy_j", "bound", "names", "live_bytes", "occupancy"):
        column = getattr(rows, name)
        if column is not None and len(column) != count:
            raise InvalidValueError(name, f"{len(column)} rows", f"{count} rows, as time_s")
    for name in ("dispatch_s", "energy_j"):
        column = getattr(rows, name)
        if column is not None and not (column.min() >= 0 and column.max() < np.inf):
            raise InvalidValueError(name, column, "finite numbers >= 0")
    if settings.streams > 1 and (rows.dependency_offset is None or rows.dependency is None):
        raise InvalidValueError(
            "streams", settings.streams, "1 where the rows' dependencies are not given"
        )
    _check_memory(rows, settings)


def _check_memory(rows: DeviceRows, settings: DeviceSettings) -> None:
    capacity = settings.memory_capacity_bytes
    if capacity is None:
        return
    live = 0.0 if rows.live_bytes is None else float(rows.live_bytes.max())
    needed = settings.occupied_bytes + live
    if needed > capacity:
        raise DoesNotFitError(
            "the device", "memory_bytes", needed, capacity, "Use a smaller batch."
        )


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


def device_time_s(rows: DeviceRows, settings: DeviceSettings) -> FloatArray:
    """Row times with the power limit, node gaps and, where the host is the device, dispatch."""
    time_s, energy_j = rows.time_s, rows.energy_j
    idle_w, limit_w = settings.idle_w, settings.power_limit_w
    if limit_w is not None and idle_w is not None and energy_j is not None:
        is_stretchable = None if rows.bound is None else rows.bound != Bound.MEMORY
        window_s = settings.power_window_s
        time_s = cap_power(
            time_s, energy_j, idle_w, limit_w, window_s=window_s, is_stretchable=is_stretchable
        )
    # Eager dispatch runs on the host beside the device, unless they are one; gaps of a captured
    # graph are device time.
    if settings.is_captured or not settings.is_asynchronous:
        time_s = time_s + rows.dispatch_s
    return time_s
