"""Tasks submitted as columns run exactly as the same tasks submitted one by one."""

import gc
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.simulation.engine import (
    Engine,
    FileRecorder,
    RingRecorder,
    Task,
    TaskColumns,
)

SERVERS = {"fifo": (1, "fifo"), "stream": (1, "in_order"), "pool": (3, "fifo")}
NAMES = tuple(SERVERS)
# Few distinct durations, so that many tasks end at the same time and ties are tried.
durations = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(0.0, 5.0))


@st.composite
def task_graphs(draw):
    """Up to 40 tasks as (server code, duration, earlier tasks, ready time)."""
    tasks = []
    for index in range(draw(st.integers(1, 40))):
        earlier = st.lists(st.integers(0, index - 1), max_size=3, unique=True)
        before = draw(earlier) if index else []
        server = draw(st.integers(0, len(NAMES) - 1))
        ready_s = draw(st.sampled_from([0.0, 0.0, 1.0, 2.5]))
        tasks.append((server, draw(durations), before, ready_s))
    return tasks


def new_engine(**options):
    engine = Engine(**options)
    for name, (capacity, discipline) in SERVERS.items():
        engine.add_server(name, capacity, discipline)
    return engine


def columns_of(tasks, **more):
    server, duration_s, before, ready_s = zip(*tasks, strict=True)
    lengths = [len(rows) for rows in before]
    return TaskColumns(
        resource=np.array(server, dtype=np.int32),
        duration_s=np.array(duration_s),
        resources=NAMES,
        dependency_offset=np.concatenate([[0], np.cumsum(lengths)]),
        dependency=np.array([row for rows in before for row in rows], dtype=np.int64),
        ready_s=np.array(ready_s),
        **more,
    )


def submit_one_by_one(engine, tasks, after=()):
    # Arrivals come before what else happens at their time, and were known from the start.
    gates = [engine.environment.timeout(ready_s) if ready_s else None for *_, ready_s in tasks]
    jobs = []
    for (server, duration_s, before, _), gate in zip(tasks, gates, strict=True):
        waits = [jobs[row] for row in before] + [event for event in (gate, *after) if event]
        jobs.append(engine.submit(Task("task", NAMES[server], duration_s, waits)))
    return jobs


def times_of(jobs):
    return np.array([(job.ready_s, job.start_s, job.end_s) for job in jobs]).T


@pytest.mark.law
@given(task_graphs())
def test_columns_run_as_the_same_tasks_one_by_one(tasks):
    engine = new_engine()
    jobs = submit_one_by_one(engine, tasks)
    engine.run()
    other = new_engine()
    columns = other.submit_many(columns_of(tasks))
    other.run()
    ready_s, start_s, end_s = times_of(jobs)
    np.testing.assert_allclose(columns.ready_s, ready_s, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(columns.start_s, start_s, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(columns.end_s, end_s, rtol=1e-12, atol=1e-12)
    assert len(other.timeline()) == len(tasks)
    for name in NAMES:
        assert other.timeline().busy_s(name) == pytest.approx(engine.timeline().busy_s(name))


@pytest.mark.law
@given(task_graphs(), task_graphs(), durations)
def test_columns_and_single_tasks_share_servers(first, second, gate_s):
    """Columns, then single tasks, then columns behind an event, on the same servers."""
    engine = new_engine()
    engine.add_server("gate")
    gate = engine.submit(Task("gate", "gate", gate_s))
    opening = engine.submit_many(columns_of(first))
    single = submit_one_by_one(engine, second)
    closing = engine.submit_many(columns_of(first, after=(gate, single[0])))
    engine.run()
    line = engine.timeline()
    work_s = 2 * sum(task[1] for task in first) + sum(task[1] for task in second)
    assert line.duration_s.sum() == pytest.approx(work_s + gate_s, abs=1e-9)
    assert (closing.ready_s >= max(gate.end_s, single[0].end_s)).all()
    stream = NAMES.index("stream")
    in_order = [opening.start_s[columns_of(first).resource == stream]]
    in_order.append([job.start_s for job in single if job.task.resource == "stream"])
    in_order.append(closing.start_s[columns_of(first).resource == stream])
    assert (np.diff(np.concatenate(in_order)) >= 0).all()
    for job, (_, _, before, _) in zip(single, second, strict=True):
        assert job.start_s >= max((single[row].end_s for row in before), default=0.0)


def test_processes_wait_for_one_row_and_for_all():
    engine = new_engine()
    tasks = [(0, 2.0, [], 0.0), (0, 3.0, [], 0.0)]
    jobs = engine.submit_many(columns_of(tasks))
    seen = []

    def user():
        yield jobs.row_event(0)
        seen.append(engine.now_s)
        yield jobs.row_event(0)
        seen.append(engine.now_s)
        yield jobs
        seen.append(engine.now_s)
        yield engine.submit_many(columns_of(tasks))
        seen.append(engine.now_s)

    engine.process(user())
    late = engine.submit(Task("late", "pool", 1.0, (jobs.row_event(1),)))
    engine.run()
    assert seen == [2.0, 2.0, 5.0, 10.0]
    assert late.start_s == 5.0


def test_no_rows_have_happened_at_once():
    engine = new_engine()
    empty = TaskColumns(np.zeros(0, dtype=np.int32), np.zeros(0), NAMES)
    jobs = engine.submit_many(empty)
    engine.run()
    assert jobs.processed
    assert len(engine.timeline()) == 0


def test_events_between_the_ends_of_rows_happen_at_their_times():
    engine = new_engine()
    jobs = engine.submit_many(columns_of([(0, 1.0, [], 0.0)] * 5))
    seen = []

    def watch():
        for wait_s in (1.5, 1.0, 0.5):  # between two ends, between two others, at an end
            yield engine.environment.timeout(wait_s)
            assert engine.environment.peek() >= engine.now_s
            seen.append((engine.now_s, int(np.isfinite(jobs.start_s).sum())))

    engine.process(watch())
    engine.run()
    assert seen == [(1.5, 2), (2.5, 3), (3.0, 4)]
    assert engine.now_s == 5.0
    assert engine.environment.peek() == np.inf


def test_run_until_a_time_and_on():
    engine = new_engine()
    tasks = [(0, 2.0, [], 0.0)] * 3
    jobs = engine.submit_many(columns_of(tasks))
    engine.run(3.0)
    assert len(engine.timeline()) == 1
    np.testing.assert_array_equal(jobs.start_s, [0.0, 2.0, np.nan])
    engine.run()
    assert len(engine.timeline()) == 3


def test_collection_pauses_while_it_runs_and_goes_on_afterwards():
    states = []
    engine = new_engine()
    engine.environment.timeout(1.0).callbacks.append(lambda _event: states.append(gc.isenabled()))
    assert gc.isenabled()
    engine.run()
    assert states == [False]
    assert gc.isenabled()
    gc.disable()
    try:
        engine.run(2.0)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_finished_jobs_leave_no_cycles_behind():
    """Else a long run with collection paused would keep all that has ended."""
    gc.collect()
    gc.disable()
    try:
        engine = new_engine(record=False)
        for _ in range(50):
            engine.submit_many(columns_of([(0, 1.0, [], 0.0)] * 20))
            engine.submit(Task("task", "fifo", 1.0))
        engine.run()
        assert gc.collect() < 50
    finally:
        gc.enable()


def test_rows_that_wait_for_ever_are_counted():
    engine = new_engine()
    never = engine.environment.event()
    engine.submit_many(columns_of([(0, 1.0, [], 0.0)] * 3, after=(never,)))
    engine.submit_many(columns_of([(0, 1.0, [], 0.0)] * 3))
    with pytest.raises(InvalidValueError, match="3 waiting tasks"):
        engine.run()


@pytest.mark.parametrize(
    "change",
    [
        {"duration_s": np.array([1.0, -1.0])},
        {"duration_s": np.array([1.0, np.nan])},
        {"ready_s": np.array([0.0, np.inf])},
        {"energy_j": np.zeros(3)},
        {"resources": ("server", "server")},
        {"resource": np.array([0, 1], dtype=np.int32)},
        {"resource": np.array([0, -1], dtype=np.int32)},
        {"name": np.array([0, 1], dtype=np.int32)},
        {"dependency": np.array([0])},
        {"dependency": np.array([0]), "dependency_offset": np.array([0, 1])},
        {"dependency": np.array([0]), "dependency_offset": np.array([0, 0, 2])},
        {"dependency": np.array([0]), "dependency_offset": np.array([0, 2, 1])},
        {"dependency": np.array([0]), "dependency_offset": np.array([0, 1, 1])},
        {"dependency": np.array([1]), "dependency_offset": np.array([0, 0, 1])},
        {"dependency": np.array([-1]), "dependency_offset": np.array([0, 0, 1])},
    ],
)
def test_bad_columns_are_refused(change):
    good = {
        "resource": np.zeros(2, dtype=np.int32),
        "duration_s": np.ones(2),
        "resources": ("server",),
    }
    TaskColumns(**good)
    with pytest.raises(InvalidValueError, match=next(iter(change))):
        TaskColumns(**(good | change))


def test_unknown_servers_are_refused():
    engine = Engine()
    engine.add_server("link")
    column = np.zeros(1, dtype=np.int32)
    with pytest.raises(UnknownNameError, match="link"):
        engine.submit_many(TaskColumns(column, np.ones(1), ("lnk",)))


# --- recorders


def named_run(record):
    """Forty rows of two names on one server, and a single task of two rows."""
    engine = Engine(record=record)
    engine.add_server("server")
    engine.add_server("other")
    engine.submit(Task("pair", "other", np.array([1.0, 2.0]), energy_j=np.array([5.0, 6.0])))
    code = np.arange(40, dtype=np.int32) % 2
    tasks = TaskColumns(
        resource=np.zeros(40, dtype=np.int32),
        duration_s=np.arange(1.0, 41.0),
        resources=("server",),
        energy_j=np.arange(40.0),
        name=code,
        names=("even", "odd"),
        category=code,
        categories=("copy", "kernel"),
    )
    for _ in range(2):
        engine.submit_many(tasks)
    engine.run()
    return engine.timeline()


def test_recorded_rows_carry_names_categories_and_energy():
    frame = named_run(record=True).to_frame()
    rows = frame[frame.resource == "server"]
    assert list(rows.name[:3]) == ["even", "odd", "even"]
    assert list(rows.category[:3]) == ["copy", "kernel", "copy"]
    assert rows.energy_j.sum() == 2 * 780.0
    assert set(frame.name) == {"even", "odd", "pair"}


def test_a_ring_keeps_the_rows_that_ended_last():
    whole = named_run(record=True)
    for count in (1, 7, 82, 1000):
        ring = named_run(RingRecorder(count))
        kept = np.sort(whole.end_s)[-count:]
        np.testing.assert_array_equal(np.sort(ring.end_s), kept)
    with pytest.raises(InvalidValueError, match="row_count"):
        RingRecorder(0)


def test_a_file_gives_back_what_memory_would():
    whole = named_run(record=True).to_frame()
    with tempfile.TemporaryFile() as file:
        engine_line = named_run(FileRecorder(file))
        assert file.tell() == 40 * len(engine_line)
    assert whole.equals(engine_line.to_frame())
