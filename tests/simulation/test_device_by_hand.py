"""Schedules of one device small enough to draw on paper."""

from __future__ import annotations

import numpy as np
import pytest

from accelsim.cost.table import Execution
from accelsim.simulation.device import simulate_rows
from accelsim.simulation.device_settings import DeviceRows, DeviceSettings

LINK = {"host_bandwidth_bytes_per_s": 2.0}


def run(times, dispatch, rows=None, **settings):
    columns = {name: np.array(values, dtype=float) for name, values in (rows or {}).items()}
    return simulate_rows(
        DeviceRows(np.array(times, dtype=float), np.array(dispatch, dtype=float), **columns),
        DeviceSettings(**settings),
    )


@pytest.mark.parametrize(
    ("times", "dispatch", "settings", "latency", "steady", "bottleneck"),
    [
        # Issued at 1 and 2 s; kernels from 1 to 4 and on to 5: in the long run the device is never
        # idle.
        ((3, 1), (1, 1), {}, 5, 4, "compute"),
        # Issued at 3 and 6 s, each kernel a second: the device waits two seconds before each.
        ((1, 1), (3, 3), {}, 7, 6, "dispatch"),
        # The host waits for the results before it issues again: seven seconds, of which the device
        # works two.
        ((1, 1), (3, 3), {"synchronize": True}, 7, 7, "dispatch"),
        # One launch of three seconds, and a gap of three before each node.
        ((1, 1), (3, 3), {"execution": Execution.GRAPH}, 11, 8, "compute"),
        (
            (1, 1),
            (0.5, 0.5),
            {"execution": Execution.GRAPH, "graph_launch_s": 5.0},
            8,
            5,
            "dispatch",
        ),
        # The host is the device: dispatch and kernel in turn.
        ((1, 1), (3, 3), {"is_asynchronous": False}, 8, 8, "dispatch"),
        # A copy of two seconds, beside the kernel into the other buffer.
        ((3,), (0.5,), {"input_bytes": 4.0, **LINK}, 5, 3, "compute"),
        ((1,), (0.5,), {"input_bytes": 4.0, **LINK}, 3, 2, "link"),
    ],
)
def test_schedules(times, dispatch, settings, latency, steady, bottleneck):
    result = run(times, dispatch, **settings)
    assert result.latency_s == pytest.approx(latency)
    assert result.steady_state_s == pytest.approx(steady)
    assert result.bottleneck == bottleneck
    start_s, end_s = result.window_s
    assert end_s - start_s == pytest.approx(4 * steady)
    busy = sum(times) + (
        sum(dispatch)
        if settings.get("execution") or settings.get("is_asynchronous") is False
        else 0
    )
    assert result.timeline.utilisation("compute", start_s, end_s) == pytest.approx(busy / steady)


def test_demand_is_how_long_every_engine_is_busy_in_an_iteration():
    result = run((3,), (0.5,), input_bytes=4.0, iterations=2, warmup_iterations=2, **LINK)
    line = result.timeline
    busy = {name: line.busy_s(name) / 4 for name in line.resources}
    assert busy == pytest.approx({"compute": 3.0, "host": 0.5, "copy_in": 2.0})
    assert result.demand_s == pytest.approx({"dispatch": 0.5, "compute": 3.0, "link": 2.0})


def test_energy_is_dynamic_and_idle_over_the_steady_state():
    result = run((1, 1), (3, 3), {"energy_j": (10, 20)}, idle_w=5.0)
    assert result.dynamic_energy_j == 30
    assert result.energy_j == pytest.approx(30 + 5 * 6)
    assert run((1,), (0,), {"energy_j": (10,)}).energy_j is None
    assert run((1,), (0,), idle_w=5.0).dynamic_energy_j is None


def test_a_run_is_lengthened_until_it_is_steady():
    """A host that takes hardly less than the device falls behind slowly."""
    result = run((3.0,), (2.99,), input_bytes=5.99, warmup_iterations=1, iterations=1, **LINK)
    assert result.steady_state_s == pytest.approx(3.0, rel=1e-9)
