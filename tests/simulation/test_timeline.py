"""Laws of timelines: energy is the integral of power, busy and idle time add up, merging loses
nothing.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.simulation.engine import Engine, Task
from accelsim.simulation.timeline import StepFunction, merge

rows = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.floats(0.01, 5), st.floats(0, 10)),
    min_size=1,
    max_size=25,
)
instants = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0.0, 1.0, 2.0]), st.floats(0, 10)),
    min_size=1,
    max_size=25,
)


def timeline_of(tasks, names=("a", "b")):
    engine = Engine()
    for name in names:
        engine.add_server(name, capacity=2 if name == "b" else 1)
    previous = []
    for index, (resource, duration, energy) in enumerate(tasks):
        after = previous[-1:] if index % 3 == 0 else []
        previous.append(
            engine.submit(
                Task(
                    f"r{index}",
                    resource,
                    duration,
                    after,
                    energy_j=energy,
                    category=f"c{index % 2}",
                )
            )
        )
    engine.run()
    return engine.timeline()


@pytest.mark.law
@given(rows, st.floats(0, 50))
def test_energy_is_the_integral_of_power(tasks, idle_w):
    line = timeline_of(tasks)
    end = line.makespan_s
    expected = sum(energy for _, _, energy in tasks) + idle_w * end
    assert line.power(idle_w).integral(0.0, end) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.law
@given(rows, st.floats(0.05, 0.95))
def test_windows_split_energy_and_work(tasks, share):
    line = timeline_of(tasks)
    cut = share * line.makespan_s
    parts = line.between(0.0, cut), line.between(cut, line.makespan_s)
    assert sum(part.energy_j.sum() for part in parts) == pytest.approx(
        line.energy_j.sum(), abs=1e-9
    )
    assert sum(part.duration_s.sum() for part in parts) == pytest.approx(
        line.duration_s.sum(), abs=1e-9
    )


@pytest.mark.law
@given(instants, st.integers(0, 20))
def test_rows_without_duration_are_in_one_window_with_all_their_energy(tasks, cut):
    line = timeline_of(tasks)
    end = line.makespan_s + 1.0
    parts = line.between(0.0, cut), line.between(cut, max(cut, end))
    assert sum(part.energy_j.sum() for part in parts) == pytest.approx(
        line.energy_j.sum(), abs=1e-9
    )


@pytest.mark.law
@given(rows)
def test_busy_time_and_gaps_fill_the_span(tasks):
    line = timeline_of(tasks)
    mine = line.select(resource="a")
    if len(mine):
        opens, closes = line.busy_intervals("a")
        start, end = closes[:-1], opens[1:]
        span = mine.end_s.max() - mine.start_s.min()
        assert line.busy_s("a") + (end - start).sum() == pytest.approx(span, rel=1e-9)
        assert line.busy_s("a") == pytest.approx(mine.duration_s.sum(), rel=1e-9)
    for resource in line.resources:
        assert 0.0 <= line.utilisation(resource) <= 1.0 + 1e-9


def test_counters_move_with_their_rows():
    steps = StepFunction(np.array([0.0, 1.0]), np.array([5.0, 7.0]))
    line = replace(timeline_of([("a", 2.0, 0.0)]), counters={"memory_bytes": steps})
    later = merge([line.shifted(1.0)]).counters["memory_bytes"]
    np.testing.assert_array_equal(later.time_s, [1.0, 2.0])
    np.testing.assert_array_equal(later.value, [5.0, 7.0])


def test_utilisation_counts_all_places_of_a_pool():
    line = timeline_of([("b", 4.0, 0.0), ("b", 2.0, 0.0)])
    assert line.utilisation("b") == pytest.approx(6.0 / 8.0)
    assert line.utilisation("b", 2.0, 4.0) == pytest.approx(0.5)
    assert line.utilisation("a") == 0.0
    with pytest.raises(InvalidValueError):
        line.utilisation("b", 3.0, 3.0)


def test_merge_keeps_rows_and_joins_or_separates_resources():
    first, second = (
        timeline_of([("a", 1.0, 2.0)]),
        timeline_of([("a", 3.0, 4.0), ("b", 1.0, 1.0)]).shifted(10.0),
    )
    joined = merge([first, second])
    assert joined.resources == ("a", "b")
    assert joined.capacities == (1, 2)
    assert joined.busy_s("a") == 4.0
    assert joined.energy_j.sum() == 7.0
    frame = joined.to_frame()
    assert list(frame.resource) == ["a", "b", "a"]
    assert list(frame.start_s) == [0.0, 10.0, 10.0]
    with pytest.raises(InvalidValueError):
        merge([])


def test_frame_has_names_and_categories_as_words():
    engine = Engine()
    engine.add_server("s")
    engine.submit(
        Task(
            "t",
            "s",
            np.array([1.0, 2.0]),
            category="kernel",
            row_names=("conv", "relu"),
            energy_j=6.0,
        )
    )
    engine.submit(Task("copy", "s", 1.0, category="copy", energy_j=5.0))
    engine.run()
    frame = engine.timeline().to_frame()
    assert list(frame.name) == ["conv", "relu", "copy"]
    assert list(frame.category) == ["kernel", "kernel", "copy"]
    assert list(frame.end_s) == [1.0, 3.0, 4.0]
    np.testing.assert_allclose(frame.energy_j, [2.0, 4.0, 5.0])


def test_tasks_that_share_row_names_share_the_table():
    engine = Engine()
    engine.add_server("s")
    names = ("x", "y")
    for _ in range(3):
        engine.submit(Task("t", "s", np.array([1.0, 1.0]), row_names=names))
    engine.run()
    line = engine.timeline()
    assert line.names == names
    np.testing.assert_array_equal(line.name, [0, 1] * 3)


def test_selection_by_unknown_names_is_refused():
    line = timeline_of([("a", 1.0, 0.0)])
    with pytest.raises(UnknownNameError):
        line.select(resource="c")
    with pytest.raises(UnknownNameError):
        line.select(category="kernels")
    assert len(line.select(category="c0")) == 1


def test_empty_timeline_is_empty():
    line = timeline_of([])
    assert (len(line), line.makespan_s, line.busy_s("a")) == (0, 0.0, 0.0)
    assert len(line.to_frame()) == 0


def test_step_function_holds_from_its_step_on():
    steps = StepFunction(np.array([1.0, 2.0, 4.0]), np.array([5.0, 1.0, 0.0]))
    np.testing.assert_array_equal(steps.at([0.5, 1.0, 3.9, 9.0]), [0.0, 5.0, 1.0, 0.0])
    assert steps.maximum == 5.0
    assert steps.integral(0.0, 3.0) == 6.0
    assert steps.integral(1.5, 1.5) == 0.0
