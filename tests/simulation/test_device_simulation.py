"""Laws of one simulated device: launch-bound and device-bound limits, overlap, energy, what limits
a run.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.cost.table import Bound, CostTable, Execution
from accelsim.errors import InvalidValueError
from accelsim.simulation.device import simulate_device, simulate_rows
from accelsim.simulation.device_settings import DeviceRows, DeviceSettings

positive = st.floats(0.01, 2.0).map(lambda x: round(x, 4))
row_lists = st.lists(st.tuples(positive, positive), min_size=1, max_size=25)


def rows_of(pairs):
    time_s, dispatch_s = np.array(pairs).T
    return DeviceRows(time_s, dispatch_s, energy_j=10.0 * time_s)


def run(rows, **fields):
    return simulate_rows(rows, DeviceSettings(**fields))


# --- the two limits


@pytest.mark.law
@given(row_lists, st.sampled_from(["eager", "graph", "compiled"]))
def test_latency_lies_between_its_largest_part_and_their_sum(pairs, execution):
    rows = rows_of(pairs)
    result = run(rows, execution=Execution(execution))
    device_s = rows.time_s.sum()
    host_s = rows.dispatch_s.sum()
    if execution != "eager":
        device_s, host_s = device_s + host_s, rows.dispatch_s.max()
    assert (
        max(device_s, host_s) * (1 - 1e-9) <= result.latency_s <= (device_s + host_s) * (1 + 1e-9)
    )


@pytest.mark.law
@given(row_lists)
def test_long_runs_take_the_largest_demand_per_iteration(pairs):
    """Bottleneck law: the busiest stage alone sets throughput, once the pipeline has filled."""
    rows = rows_of(pairs)
    result = run(rows)
    # Two stages within 1 % of each other may still be filling after the longest warm-up.
    assert result.steady_state_s == pytest.approx(max(result.demand_s.values()), rel=0.011)
    line = result.timeline
    shares = [line.utilisation(name, *result.window_s) for name in line.resources]
    assert all(0 <= share <= 1 + 1e-9 for share in shares)


@pytest.mark.law
@given(row_lists, st.floats(0.1, 2))
def test_law_holds_with_copies(pairs, copied):
    rows = rows_of(pairs)
    size = copied * rows.time_s.sum()
    result = run(rows, input_bytes=size, host_bandwidth_bytes_per_s=1.0)
    assert result.steady_state_s == pytest.approx(max(result.demand_s.values()), rel=0.011)
    assert result.demand_s["link"] == pytest.approx(size)


def test_tiny_kernels_cost_their_launches():
    rows = DeviceRows(np.full(100, 1e-9), np.full(100, 5e-6), bound=np.zeros(100, dtype=np.int8))
    result = run(rows)
    assert result.latency_s == pytest.approx(100 * 5e-6, rel=1e-3)
    assert result.steady_state_s == pytest.approx(100 * 5e-6, rel=1e-3)
    assert result.bottleneck == "dispatch"


def test_long_kernels_hide_their_launches():
    rows = DeviceRows(
        np.full(100, 1e-3), np.full(100, 5e-6), bound=(np.arange(100) < 40).astype(np.int8)
    )
    result = run(rows)
    assert result.latency_s == pytest.approx(0.1 + 5e-6)
    assert result.steady_state_s == pytest.approx(0.1, rel=1e-9)
    assert result.bottleneck == "compute"
    assert run(replace(rows, bound=(np.arange(100) < 60).astype(np.int8))).bottleneck == "memory"


def test_captured_graph_pays_one_launch_and_its_node_gaps():
    captured = DeviceRows(
        np.full(100, 1e-6), np.full(100, 2e-7), bound=np.full(100, Bound.COMPUTE, dtype=np.int8)
    )
    graph = run(captured, execution=Execution.GRAPH)
    assert graph.latency_s == pytest.approx(2e-7 + 100 * 1.2e-6)
    assert graph.steady_state_s == pytest.approx(100 * 1.2e-6)
    assert graph.bottleneck == "compute"
    slow = run(captured, execution=Execution.COMPILED, graph_launch_s=1e-3)
    assert slow.latency_s == pytest.approx(1.12e-3)
    assert slow.bottleneck == "dispatch"
    gaps = run(replace(captured, dispatch_s=np.full(100, 2e-6)), execution=Execution.GRAPH)
    assert gaps.bottleneck == "dispatch"


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (Bound.COMPUTE, "compute"),
        (Bound.MEMORY, "memory"),
        (Bound.OVERHEAD, "overhead"),
        (Bound.DISPATCH, "dispatch"),
        (Bound.LINK, "link"),
    ],
)
def test_device_bound_runs_are_named_by_where_most_of_their_time_goes(bound, expected):
    codes = np.array([bound, Bound.COMPUTE, Bound.MEMORY], dtype=np.int8)
    assert (
        run(DeviceRows(np.array([3.0, 1.0, 1.0]), np.full(3, 1e-6), bound=codes)).bottleneck
        == expected
    )


def test_host_that_is_the_device_adds_dispatch_to_every_row():
    rows = rows_of([(1.0, 0.5), (2.0, 0.25)])
    result = run(rows, is_asynchronous=False)
    assert result.latency_s == pytest.approx(3.75)
    assert result.steady_state_s == pytest.approx(3.75)
    assert "host" not in result.timeline.resources


@pytest.mark.law
@given(row_lists)
def test_waiting_for_each_iteration_never_helps(pairs):
    rows = rows_of(pairs)
    waits = run(rows, synchronize=True)
    assert waits.steady_state_s == pytest.approx(waits.latency_s, rel=1e-9)
    assert waits.steady_state_s >= run(rows).steady_state_s * (1 - 1e-9)


@pytest.mark.law
@given(row_lists, st.integers(0, 24), st.sampled_from(["time_s", "dispatch_s"]))
def test_a_faster_row_never_slows_the_run(pairs, row, column):
    rows = rows_of(pairs)
    faster = getattr(rows, column).copy()
    faster[row % len(pairs)] *= 0.5
    assert run(replace(rows, **{column: faster})).latency_s <= run(rows).latency_s * (1 + 1e-12)


def test_events_do_not_depend_on_the_row_count_but_the_timeline_has_every_row():
    rows = rows_of([(0.1, 0.2)] * 500)
    result = run(rows, iterations=2, warmup_iterations=1)
    assert len(result.timeline.select(category="kernel")) == 3 * 500
    assert len(result.timeline.select(category="dispatch")) == 3 * 500


# --- copies


def test_copies_overlap_compute():
    rows = DeviceRows(np.array([1.0]), np.array([1e-6]))
    link = {"input_bytes": 8e9, "host_bandwidth_bytes_per_s": 1e10}
    both = run(rows, **link)
    assert both.latency_s == pytest.approx(0.8 + 1.0)
    assert both.steady_state_s == pytest.approx(1.0)
    assert both.demand_s["link"] == pytest.approx(0.8)
    slow = run(rows, **{**link, "host_bandwidth_bytes_per_s": 2e9})
    assert slow.steady_state_s == pytest.approx(4.0)
    assert slow.bottleneck == "link"


def test_no_iteration_starts_before_its_batch_is_there():
    rows = rows_of([(0.3, 0.01), (0.2, 0.01)])
    line = run(rows, input_bytes=1.0, host_bandwidth_bytes_per_s=4.0).timeline
    copies = line.select(category="copy_in").sorted()
    kernels = line.select(category="kernel").sorted()
    assert (kernels.start_s[::2] >= copies.end_s).all()
    assert (copies.start_s[2:] >= kernels.end_s[1::2][:-2]).all()  # two buffers


# --- energy, power


@pytest.mark.law
@given(row_lists, st.floats(0, 40))
def test_energy_is_the_integral_of_power_over_the_measured_window(pairs, idle_w):
    rows = rows_of(pairs)
    result = run(rows, idle_w=idle_w, warmup_iterations=60, iterations=4)
    drawn = result.timeline.power(idle_w).integral(*result.window_s)
    assert result.energy_j * 4 == pytest.approx(drawn, rel=1e-6)
    assert result.dynamic_energy_j == pytest.approx(rows.energy_j.sum())


def test_power_limit_slows_the_run_and_conserves_dynamic_energy():
    rows = DeviceRows(np.array([1.0, 1.0]), np.full(2, 1e-6), energy_j=np.array([100.0, 20.0]))
    result = run(rows, idle_w=10.0, power_limit_w=60.0)
    assert result.steady_state_s == pytest.approx(3.0)
    assert result.dynamic_energy_j == 120.0
    assert result.timeline.power(10.0).maximum <= 60.0 * (1 + 1e-9)
    assert run(rows, idle_w=10.0).steady_state_s == pytest.approx(2.0)


def test_unknown_energy_stays_unknown():
    rows = DeviceRows(np.ones(2), np.ones(2))
    assert run(rows, idle_w=5.0).energy_j is None
    known = replace(rows, energy_j=np.ones(2))
    assert run(known).energy_j is None
    assert run(known).dynamic_energy_j == 2.0


# --- cost tables, repeatability, bad input


def cost_table(count):
    generator = np.random.default_rng(4)
    column = generator.random(count)
    return CostTable(
        time_s=column,
        compute_s=column,
        memory_s=column / 2,
        dispatch_s=column / 10,
        energy_j=column * 3,
        flop=column,
        bytes=column,
        bound=np.full(count, int(Bound.MEMORY), dtype=np.int8),
        log_sigma=np.full(count, 0.3),
    )


def test_cost_table_goes_in_as_it_is():
    table = cost_table(20)
    result = simulate_device(table, DeviceSettings(idle_w=1.0, execution=Execution.GRAPH))
    assert result.bottleneck == "memory"
    assert result.dynamic_energy_j == pytest.approx(table.total_energy_j)
    assert result.latency_s == pytest.approx(
        table.total_time_s + table.dispatch_s.sum() + table.dispatch_s.max()
    )


def test_same_input_same_bits():
    settings = DeviceSettings(idle_w=3.0, input_bytes=0.5, host_bandwidth_bytes_per_s=1.0)
    first, second = (simulate_device(cost_table(200), settings) for _ in range(2))
    assert first.timeline.start_s.tobytes() == second.timeline.start_s.tobytes()
    assert first.steady_state_s == second.steady_state_s


@pytest.mark.parametrize(
    "fields",
    [
        {"iterations": 0},
        {"warmup_iterations": 0},
        {"graph_launch_s": -1.0},
        {"power_limit_w": float("nan")},
        {"input_bytes": 1.0},
        {"idle_w": float("inf")},
        {"iterations": 10**9},
    ],
)
def test_bad_settings_are_refused(fields):
    with pytest.raises(InvalidValueError):
        DeviceSettings(**fields)


@pytest.mark.parametrize(
    "rows",
    [
        DeviceRows(np.zeros(0), np.zeros(0)),
        DeviceRows(np.ones(2), np.ones(3)),
        DeviceRows(np.ones(2), np.array([1.0, -1.0])),
        DeviceRows(np.array([1.0, np.nan]), np.ones(2)),
        DeviceRows(np.ones(2), np.ones(2), energy_j=np.array([1.0, np.inf])),
        DeviceRows(np.ones(2), np.ones(2), names=("one",)),
    ],
)
def test_bad_columns_are_refused(rows):
    with pytest.raises(InvalidValueError):
        run(rows)
