"""Laws of the parts that cost models of compiled devices share: choice of the faster way, refusals,
array cycles, overlay cycles, footprints.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cost.fpga.overlay import overlay_cycles
from accelsim.cost.memory import MemoryFootprint, inference_footprint, training_footprint
from accelsim.cost.roofline import Roofline
from accelsim.cost.systolic.cycles import pipelined_cycles, systolic_cycles
from accelsim.cost.table import RowCosts, gather_costs, refuse_rows
from accelsim.dtype import DTYPE_BYTES, PRECISIONS, Dtype
from accelsim.errors import UnsupportedOperatorError
from accelsim.hardware.profile import Dataflow
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.training import OPTIMIZERS, training_graph

SIDES = st.integers(1, 2000)
ARRAY = st.integers(2, 128)
FLOWS = st.sampled_from(
    [Dataflow.OUTPUT_STATIONARY, Dataflow.WEIGHT_STATIONARY, Dataflow.INPUT_STATIONARY]
)
TIMES = st.lists(st.floats(0, 1), min_size=1, max_size=8)
FP16 = PRECISIONS["fp16"]


def costs(times):
    time = np.array(times)
    return RowCosts(time, time / 2, time / 3, 10 * time, 20 * time, log_sigma=0.4)


# -- the faster of two ways


@given(times=TIMES, data=st.data())
def test_the_faster_way_is_taken_row_by_row(times, data):
    others = data.draw(st.lists(st.floats(0, 1), min_size=len(times), max_size=len(times)))
    best = costs(times).or_faster(costs(others))
    assert np.array_equal(best.time_s, np.minimum(times, others))
    assert np.array_equal(best.compute_s, best.time_s / 2)
    assert np.array_equal(best.bytes, 20 * best.time_s)
    assert best.log_sigma == 0.4


@given(times=st.lists(st.floats(0.1, 1), min_size=2, max_size=8))
def test_only_the_rows_named_may_change(times):
    index = np.arange(1, len(times))
    best = costs(times).or_faster(costs(np.zeros(len(index))), index)
    assert best.time_s[0] == times[0]
    assert (best.time_s[1:] == 0).all()


@given(times=TIMES)
def test_gathering_puts_rows_back(times):
    order = np.argsort(times)
    parts = [(np.array([place]), costs([times[place]])) for place in order]
    whole = gather_costs(parts, len(times))
    assert np.array_equal(whole.time_s, np.array(times))


# -- refusals


def small_graph():
    builder = GraphBuilder(FP16)
    builder.activation(builder.linear(builder.input(4, 8), 16))
    return builder.build()


def test_the_first_refusal_that_applies_is_raised():
    graph = small_graph()
    nothing, second = np.zeros(2, dtype=bool), np.array([False, True])
    refusals = [(nothing, "never", "never"), (second, "no such unit", "Take another.")]
    with pytest.raises(
        UnsupportedOperatorError, match=r"'here'.*no such unit.*Take another"
    ) as info:
        refuse_rows(graph, "chip", ["first", "here"], refusals)
    assert "never" not in str(info.value)


def test_nothing_refused_raises_nothing():
    graph = small_graph()
    refuse_rows(graph, "chip", graph.name, [(np.zeros(2, dtype=bool), "never", "never")])


# -- arrays


@settings(max_examples=60, deadline=None)
@given(m=SIDES, n=SIDES, k=SIDES, rows=ARRAY, columns=ARRAY, flow=FLOWS)
def test_overlapped_folds_are_never_slower(m, n, k, rows, columns, flow):
    plain = float(systolic_cycles(m, n, k, rows, columns, flow))
    overlapped = float(pipelined_cycles(m, n, k, rows, columns, flow))
    assert overlapped <= plain
    assert overlapped * rows * columns >= m * n * k


# -- overlays

GRID = st.tuples(st.integers(1, 16), st.integers(1, 64), st.integers(1, 64))


@given(pixels=SIDES, inputs=SIDES, outputs=SIDES, window=st.integers(1, 49), grid=GRID)
def test_an_overlay_does_at_most_its_grid_a_cycle(pixels, inputs, outputs, window, grid):
    cycles = float(overlay_cycles(pixels, inputs, outputs, window, grid))
    work = pixels * inputs * outputs * window
    assert cycles * np.prod(grid) >= work
    assert cycles <= float(overlay_cycles(pixels, inputs, outputs, window, (1, 1, 1)))


@given(pixels=SIDES, inputs=SIDES, outputs=SIDES, window=st.integers(1, 49), grid=GRID)
def test_overlay_cycles_are_linear_in_the_window(pixels, inputs, outputs, window, grid):
    single = overlay_cycles(pixels, inputs, outputs, 1, grid)
    assert overlay_cycles(pixels, inputs, outputs, window, grid) == window * single


# -- roofline and memory

RATE = st.floats(1e6, 1e15)


@given(peak=RATE, bandwidth=RATE, intensity=st.floats(1e-3, 1e5), factor=st.floats(1, 100))
def test_a_roofline_is_monotone_and_bends_at_its_ridge(peak, bandwidth, intensity, factor):
    moved = np.array([1e9])
    flop, codes = intensity * moved, np.array([int(Dtype.FP16)], dtype=np.int8)
    table = np.full(len(DTYPE_BYTES), peak)
    time = Roofline("x", table, bandwidth).time_s(flop, moved, codes)
    faster = Roofline("x", factor * table, factor * bandwidth).time_s(flop, moved, codes)
    assert time / faster == pytest.approx(factor)
    is_compute_bound = intensity >= peak / bandwidth
    bound = flop[0] / peak if is_compute_bound else moved[0] / bandwidth
    assert time[0] == pytest.approx(bound)


@settings(max_examples=20, deadline=None)
@given(width=st.integers(1, 128), batch=st.integers(1, 32), cache=st.floats(0, 1e9))
def test_training_needs_more_memory_than_inference(width, batch, cache):
    builder = GraphBuilder(FP16)
    builder.linear(builder.activation(builder.linear(builder.input(batch, width), width)), width)
    forward, count = builder.build(), builder.parameter_totals.parameters
    tensors = builder.parameter_totals.tensors
    rule = OPTIMIZERS["adamw"]
    step = training_graph(forward, count, tensors, FP16, rule)
    trained = training_footprint(forward, step, count, FP16, rule)
    inferred = inference_footprint(forward, builder.parameter_totals.bytes)
    assert trained.weight_bytes >= inferred.weight_bytes
    assert trained.total_bytes > inferred.weight_bytes
    cached = inference_footprint(forward, builder.parameter_totals.bytes, cache)
    assert cached.total_bytes == pytest.approx(inferred.total_bytes + cache)


@given(parts=st.lists(st.floats(0, 1e12), min_size=2, max_size=2), capacity=st.floats(0, 1e13))
def test_what_is_short_is_the_difference_or_nothing(parts, capacity):
    footprint = MemoryFootprint(*parts)
    assert footprint.total_bytes == pytest.approx(sum(parts))
    assert footprint.short_bytes(capacity) == max(0.0, footprint.total_bytes - capacity)
