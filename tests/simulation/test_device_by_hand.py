"""Schedules of one device small enough to draw on paper."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.cost.table import Bound, Execution
from accelsim.simulation.device import DeviceRows, DeviceSettings, simulate_rows

LINK = {"host_bandwidth_bytes_per_s": 2.0}


def run(times, dispatch, rows=None, **settings):
    columns = {name: np.array(values, dtype=float) for name, values in (rows or {}).items()}
    return simulate_rows(
        DeviceRows(np.array(times, dtype=float), np.array(dispatch, dtype=float), **columns),
        DeviceSettings(**settings),
    )


@pytest.mark.parametrize(
    ("times", "dispatch", "settings", "latency", "steady", "waiting", "bottleneck"),
    [
        # Issued at 1 and 2 s; kernels from 1 to 4 and on to 5: in the long run the device is never
        # idle.
        ((3, 1), (1, 1), {}, 5, 4, 0, "compute"),
        # Issued at 3 and 6 s, each kernel a second: the device waits two seconds before each.
        ((1, 1), (3, 3), {}, 7, 6, 4 / 6, "dispatch"),
        # The host waits for the results before it issues again: seven seconds, of which the device
        # works two.
        ((1, 1), (3, 3), {"synchronize": True}, 7, 7, 5 / 7, "dispatch"),
        # One launch of three seconds, and a gap of three before each node.
        ((1, 1), (3, 3), {"execution": Execution.GRAPH}, 11, 8, 0, "compute"),
        (
            (1, 1),
            (0.5, 0.5),
            {"execution": Execution.GRAPH, "graph_launch_s": 5.0},
            8,
            5,
            2 / 5,
            "dispatch",
        ),
        # The host is the device: dispatch and kernel in turn.
        ((1, 1), (3, 3), {"is_asynchronous": False}, 8, 8, 0, "dispatch"),
        # A copy of two seconds: in turn with the kernel on one buffer, beside it on two.
        ((3,), (0.5,), {"input_bytes": 4.0, "buffer_count": 1, **LINK}, 5, 5, 0, "compute"),
        ((3,), (0.5,), {"input_bytes": 4.0, "buffer_count": 2, **LINK}, 5, 3, 0, "compute"),
        ((1,), (0.5,), {"input_bytes": 4.0, **LINK}, 3, 2, 0, "link"),
        # In 2.25 s, out 1.25 s, each with a quarter of a second before it; both have engines of
        # their own.
        (
            (3,),
            (0.5,),
            {"input_bytes": 4.0, "output_bytes": 2.0, "host_latency_s": 0.25, **LINK},
            6.5,
            3,
            0,
            "compute",
        ),
        ((1,), (0.5,), {"input_bytes": 1.0, "output_bytes": 6.0, **LINK}, 4.5, 3, 0, "link"),
        # Two workers of six seconds bring a batch every three, in pairs: the first of each waits
        # for its launch.
        ((1,), (0.5,), {"loading_s": 6.0, "loader_count": 2}, 1.5, 3, 0.5 / 6, "data_loading"),
    ],
)
def test_schedules(times, dispatch, settings, latency, steady, waiting, bottleneck):
    result = run(times, dispatch, **settings)
    assert result.latency_s == pytest.approx(latency)
    assert result.steady_state_s == pytest.approx(steady)
    assert result.dispatch_bound_fraction == pytest.approx(waiting)
    assert result.bottleneck == bottleneck
    assert result.first_iteration_s == pytest.approx(latency + settings.get("loading_s", 0.0))
    busy = sum(times) + (
        sum(dispatch)
        if settings.get("execution") or settings.get("is_asynchronous") is False
        else 0
    )
    assert result.utilisation["compute"] == pytest.approx(busy / steady)


def test_utilisation_of_every_engine():
    settings = {
        "input_bytes": 4.0,
        "output_bytes": 2.0,
        "loading_s": 2.0,
        "loader_count": 1,
        **LINK,
    }
    result = run((3,), (0.5,), **settings)
    assert result.utilisation == pytest.approx(
        {"compute": 1.0, "host": 0.5 / 3, "copy_in": 2 / 3, "copy_out": 1 / 3, "data_loader": 2 / 3}
    )
    assert result.demand_s == pytest.approx(
        {"dispatch": 0.5, "compute": 3.0, "link": 2.0, "data_loading": 2.0}
    )


def test_energy_is_dynamic_and_idle_over_the_steady_state():
    result = run((1, 1), (3, 3), {"energy_j": (10, 20)}, idle_w=5.0)
    assert result.dynamic_energy_j == 30
    assert result.energy_j == pytest.approx(30 + 5 * 6)
    assert result.average_power_w == pytest.approx(60 / 6)
    assert run((1,), (0,), {"energy_j": (10,)}).energy_j is None
    assert run((1,), (0,), idle_w=5.0).dynamic_energy_j is None


def test_a_power_limit_stretches_what_the_clock_drives():
    """150 J over two seconds beside 10 W of idle power on 60 W: three seconds, all in the row that
    computes.
    """
    bound = np.array([Bound.COMPUTE, Bound.MEMORY], dtype=np.int8)
    rows = DeviceRows(np.ones(2), np.zeros(2), energy_j=np.array([50.0, 100.0]), bound=bound)
    settings = {"idle_w": 10.0, "power_limit_w": 60.0, "power_window_s": 10.0}
    result = simulate_rows(rows, DeviceSettings(**settings))
    assert result.steady_state_s == pytest.approx(3.0)
    line = result.timeline.select(resource="compute").sorted()
    assert line.duration_s[-2:] == pytest.approx([2.0, 1.0])


def test_memory_is_resident_and_live_bytes_over_the_last_iteration():
    result = run(
        (1, 2),
        (0, 0),
        {"live_bytes": (30, 10)},
        resident_bytes=100.0,
        input_bytes=4.0,
        buffer_count=3,
        **LINK,
    )
    memory, end = result.memory, result.makespan_s
    assert memory.at([end - 2.5, end - 1.0, end + 1.0]).tolist() == [142.0, 122.0, 112.0]
    assert result.peak_memory_bytes == 142.0


def test_a_run_is_lengthened_until_it_is_steady():
    """Copies and kernels that take almost the same time fill their buffers slowly."""
    result = run(
        (3.0,), (0.0,), input_bytes=5.99, warmup_iterations=1, iterations=1, buffer_count=4, **LINK
    )
    assert result.steady_state_s == pytest.approx(3.0, rel=1e-9)
