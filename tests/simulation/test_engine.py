"""Laws of the engine: order, exclusivity, conservation, closed form = event by event."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.simulation.engine import Engine, RowDependency, Task, back_to_back_end_s

RESOURCES = ("one", "two", "pool")
CAPACITY = {"one": 1, "two": 1, "pool": 3}
durations = st.floats(min_value=0.0, max_value=5.0).map(lambda x: round(x, 3))
columns = st.lists(durations, min_size=1, max_size=12).map(np.array)


@st.composite
def task_graphs(draw):
    """Up to 30 tasks as (resource, duration or column, earlier tasks)."""
    count = draw(st.integers(1, 30))
    return [
        (
            draw(st.sampled_from(RESOURCES)),
            draw(st.one_of(durations, columns)),
            draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True)) if index else [],
        )
        for index in range(count)
    ]


def run_graph(graph):
    engine = Engine()
    engine.add_server("one")
    engine.add_server("two", discipline="in_order")
    engine.add_server("pool", capacity=3)
    jobs = []
    for index, (resource, duration, before) in enumerate(graph):
        after = [jobs[i] for i in before]
        jobs.append(engine.submit(Task(f"t{index}", resource, duration, after, energy_j=1.0)))
    engine.run()
    return jobs, engine.timeline()


@pytest.mark.law
@given(task_graphs())
def test_dependencies_exclusivity_and_conservation(graph):
    jobs, line = run_graph(graph)
    for job, (_, duration, before) in zip(jobs, graph, strict=True):
        assert job.start_s >= max((jobs[i].end_s for i in before), default=0.0)
        assert job.end_s - job.start_s == pytest.approx(np.sum(duration), abs=1e-9)
    assert line.duration_s.sum() == pytest.approx(sum(np.sum(d) for _, d, _ in graph), abs=1e-9)
    assert line.energy_j.sum() == pytest.approx(len(graph), rel=1e-9)
    for resource, capacity in CAPACITY.items():
        assert most_at_once(line, resource) <= capacity


def most_at_once(line, resource):
    rows = line.select(resource=resource)
    lasting = rows.duration_s > 1e-9
    edges = [(t + 1e-10, 1) for t in rows.start_s[lasting]] + [
        (t - 1e-10, -1) for t in rows.end_s[lasting]
    ]
    level = peak = 0
    for _, change in sorted(edges):
        level += change
        peak = max(peak, level)
    return peak


@pytest.mark.law
@given(task_graphs())
def test_no_server_idles_while_a_task_is_ready(graph):
    jobs, _ = run_graph(graph)
    for resource, capacity in CAPACITY.items():
        mine = [job for job in jobs if job.task.resource == resource]
        for job in mine:
            busy = [other for other in mine if other is not job and other.end_s > job.ready_s]
            if job.start_s > job.ready_s:
                running = [o for o in busy if o.start_s <= job.ready_s]
                assert len(running) >= capacity or any(o.start_s <= job.start_s for o in busy)
                assert any(o.end_s == job.start_s for o in mine)


@pytest.mark.law
@given(task_graphs())
def test_same_input_same_bits(graph):
    first, second = run_graph(graph)[1], run_graph(graph)[1]
    for column in ("resource", "name", "start_s", "end_s", "energy_j"):
        assert getattr(first, column).tobytes() == getattr(second, column).tobytes()


def test_in_order_server_keeps_submission_order_and_fifo_does_not():
    for discipline, expected in (("in_order", [4.0, 5.0]), ("fifo", [4.0, 1.0])):
        engine = Engine()
        engine.add_server("slow")
        engine.add_server("stream", discipline=discipline)
        gate = engine.submit(Task("gate", "slow", 3.0))
        jobs = [
            engine.submit(Task("late", "stream", 1.0, (gate,))),
            engine.submit(Task("early", "stream", 1.0)),
        ]
        engine.run()
        assert [job.end_s for job in jobs] == expected


def uncoalesced(start_s, rows, dispatch):
    """The same host thread and stream with every row a task of its own."""
    engine = Engine()
    engine.add_server("host", discipline="in_order")
    engine.add_server("stream", discipline="in_order")
    engine.submit(Task("busy", "stream", start_s))
    jobs = []
    for row_s, launch_s in zip(rows.tolist(), dispatch.tolist(), strict=True):
        issued = engine.submit(Task("dispatch", "host", launch_s))
        jobs.append(engine.submit(Task("row", "stream", row_s, (issued,))))
    engine.run()
    return np.array([job.start_s for job in jobs]), np.array([job.end_s for job in jobs])


@pytest.mark.law
@given(st.lists(st.tuples(durations, durations), min_size=1, max_size=40), durations)
def test_coalesced_rows_end_when_single_rows_would(pairs, start_s):
    rows, dispatch = np.array(pairs).T
    engine = Engine()
    engine.add_server("host", discipline="in_order")
    engine.add_server("stream", discipline="in_order")
    engine.submit(Task("busy", "stream", start_s))
    host = engine.submit(Task("dispatch", "host", dispatch))
    job = engine.submit(Task("rows", "stream", rows, row_dependency=RowDependency(host)))
    engine.run()
    starts, ends = uncoalesced(start_s, rows, dispatch)
    np.testing.assert_allclose(job.row_end_s, ends, rtol=1e-12, atol=1e-12)
    # A row of no length may start anywhere in a zero-wide gap; the others start to the bit as
    # accurately as they end.
    np.testing.assert_allclose(job.row_start_s(), starts, rtol=1e-12, atol=1e-12)
    assert job.end_s == pytest.approx(ends[-1], rel=1e-12, abs=1e-12)


@pytest.mark.law
@given(columns, st.data())
def test_back_to_back_is_lindley_step_by_step(rows, data):
    ready = np.array(data.draw(st.lists(durations, min_size=len(rows), max_size=len(rows))))
    expected, free = [], 2.0
    for duration, earliest in zip(rows, ready, strict=True):
        free = max(free, earliest) + duration
        expected.append(free)
    np.testing.assert_allclose(back_to_back_end_s(2.0, rows, ready), expected, rtol=1e-12)


def test_rows_fed_by_a_chosen_part_of_a_job_and_by_a_single_task():
    engine = Engine()
    for name in ("host", "a", "b"):
        engine.add_server(name)
    host = engine.submit(Task("h", "host", np.array([1.0, 1.0, 1.0, 1.0])))
    odd = engine.submit(
        Task("a", "a", np.array([0.1, 0.1]), row_dependency=RowDependency(host, np.array([1, 3])))
    )
    launch = engine.submit(Task("launch", "host", 2.0))
    whole = engine.submit(
        Task("b", "b", np.array([1.0, 1.0]), row_dependency=RowDependency(launch))
    )
    engine.run()
    np.testing.assert_allclose(odd.row_end_s, [2.1, 4.1])
    np.testing.assert_allclose(whole.row_end_s, [7.0, 8.0])


# --- SimPy around it, and bad input


def test_jobs_and_simpy_processes_wait_for_each_other():
    engine = Engine()
    engine.add_server("s")
    seen = []

    def user():
        job = engine.submit(Task("work", "s", 2.0))
        yield job
        seen.append(engine.now_s)
        yield engine.environment.timeout(1.0) & engine.submit(Task("more", "s", 4.0))
        seen.append(engine.now_s)

    process = engine.process(user())
    last = engine.submit(Task("after", "s", 1.0, (process,)))
    engine.run()
    assert seen == [2.0, 6.0]
    assert (last.start_s, last.end_s) == (6.0, 7.0)


def test_run_until_a_time_and_on():
    engine = Engine()
    engine.add_server("s")
    for _ in range(3):
        engine.submit(Task("t", "s", 2.0))
    engine.run(3.0)
    assert engine.now_s == 3.0
    assert len(engine.timeline()) == 1
    engine.run()
    assert len(engine.timeline()) == 3


def test_events_that_never_happen_are_reported():
    engine = Engine()
    engine.add_server("s")
    engine.submit(Task("t", "s", 1.0, (engine.environment.event(),)))
    with pytest.raises(InvalidValueError, match="1 waiting tasks"):
        engine.run()


@pytest.mark.parametrize(
    "task",
    [
        Task("t", "s", -1.0),
        Task("t", "s", float("nan")),
        Task("t", "s", float("inf")),
        Task("t", "s", np.array([1.0, -1.0])),
        Task("t", "s", np.array([np.nan])),
        Task("t", "s", np.array([])),
        Task("t", "s", np.ones((2, 2))),
    ],
)
def test_bad_numbers_are_refused(task):
    engine = Engine()
    engine.add_server("s")
    with pytest.raises(InvalidValueError):
        engine.submit(task)


def test_unknown_and_double_names_are_refused():
    engine = Engine()
    engine.add_server("stream")
    with pytest.raises(UnknownNameError, match="Did you mean stream"):
        engine.submit(Task("t", "streem"))
    with pytest.raises(InvalidValueError):
        engine.add_server("stream")
    with pytest.raises(InvalidValueError):
        engine.add_server("x", capacity=2, discipline="in_order")


def test_engine_without_record_has_no_timeline():
    with pytest.raises(InvalidValueError, match="record"):
        Engine(record=False).timeline()
