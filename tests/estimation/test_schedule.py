"""The closed form of one pass against the simulated device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.cost.table import Execution
from accelsim.estimation.schedule import pass_result
from accelsim.simulation.device import simulate_device
from accelsim.simulation.device_settings import DeviceSettings

TIMES = st.floats(0, 1, allow_subnormal=False)


@st.composite
def passes(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    """Costs of a few rows, and how a device runs them."""
    count = draw(st.integers(1, 5))
    columns = [np.array([draw(TIMES) for _ in range(count)]) for _ in range(3)]
    bound = np.array([draw(st.integers(0, 4)) for _ in range(count)], dtype=np.int8)
    table = SimpleNamespace(time_s=columns[0], dispatch_s=columns[1], energy_j=columns[2])
    table.bound = bound
    table.time_s[0] += 1e-3
    settings = {
        "execution": draw(st.sampled_from([Execution.EAGER, Execution.GRAPH])),
        "graph_launch_s": draw(st.none() | TIMES),
        "is_asynchronous": draw(st.booleans()),
        "synchronize": draw(st.booleans()),
        "input_bytes": draw(st.sampled_from([0.0, 1e6, 1e9])),
        "host_bandwidth_bytes_per_s": 1e9,
        "idle_w": draw(st.sampled_from([None, 0.0, 1.0])),
        "power_limit_w": draw(st.sampled_from([None, 2.0])),
    }
    return table, settings


@given(passes())
def test_a_pass_takes_in_closed_form_what_it_takes_simulated(run: tuple[Any, dict[str, Any]]):
    table, settings = run
    if not settings["is_asynchronous"]:
        settings = {**settings, "input_bytes": 0.0}  # the host is the device
    how = DeviceSettings(iterations=1, warmup_iterations=2, **settings)
    simulated, quick = simulate_device(table, how), pass_result(table, how)
    assert quick.latency_s == pytest.approx(simulated.latency_s, rel=1e-9)
    assert quick.steady_state_s == pytest.approx(simulated.steady_state_s, rel=1e-9)
    assert quick.dynamic_energy_j == simulated.dynamic_energy_j
    assert (quick.energy_j is None) == (simulated.energy_j is None)
    if quick.energy_j is not None:
        assert quick.energy_j == pytest.approx(simulated.energy_j, rel=1e-9)
    demand = sorted(simulated.demand_s.values())
    if demand[-2] < demand[-1] * (1 - 1e-9):  # neither of two equal stages is the bottleneck
        assert quick.bottleneck == simulated.bottleneck
