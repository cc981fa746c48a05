"""How many tasks and operators per second the engine simulates on one core, bare SimPy beside it.

Run: python benchmarks/engine_throughput.py. Times are CPU seconds of the thread, the least of some
runs, each on inputs of its own (nothing is computed before or kept between runs), submission and
timeline included. Bars on a core where bare SimPy makes at least 1,000,000 callbacks/s: 400,000
tasks/s of one event each without recording, 250,000 with, 500,000 operators/s where segments of
operators are one event.
"""

import time
from functools import partial
from itertools import pairwise

import numpy as np
import simpy
from simpy.events import Event

import accelsim
from accelsim.simulation.engine import Engine, Job, RowDependency, Task, TaskColumns

STAGE_COUNT = 4
ITEM_COUNT = 25_000
ITERATION_COUNT = 200
ROW_COUNT = 1000
STREAM_COUNT = 4
SEGMENT_ROWS = 50
#: Shapes that no run has seen before.
NETWORK = ("resnet-50", "t4")
BATCHES = tuple(range(3, 43))


def pipeline(seed):
    """Items that pass one stage after the other, a task each: durations are new every time."""
    task_count = STAGE_COUNT * ITEM_COUNT
    stage = np.tile(np.arange(STAGE_COUNT, dtype=np.int32), ITEM_COUNT)
    waits = stage > 0
    return TaskColumns(
        resource=stage,
        duration_s=np.random.default_rng(seed).exponential(1e-5, task_count),
        resources=tuple(f"stage{number}" for number in range(STAGE_COUNT)),
        dependency_offset=np.concatenate([[0], np.cumsum(waits)]),
        dependency=np.flatnonzero(waits) - 1,
    )


def run_pipeline(tasks, *, record):
    """One event a task."""
    engine = Engine(record=record)
    for name in tasks.resources:
        engine.add_server(name)
    jobs = engine.submit_many(tasks)
    engine.run()
    return len(engine.timeline()) if record else int(np.isfinite(jobs.end_s).sum())


def run_one_by_one(tasks):
    """The same tasks, each an object of its own."""
    engine = Engine()
    for name in tasks.resources:
        engine.add_server(name)
    job = None
    for stage, duration_s in zip(tasks.resource.tolist(), tasks.duration_s.tolist(), strict=True):
        before = (job,) if stage else ()
        job = engine.submit(Task("task", tasks.resources[stage], duration_s, before))
    engine.run()
    return len(engine.timeline())


def segments(seed):
    """Times of an iteration's rows, and of their launches."""
    generator = np.random.default_rng(seed)
    return generator.exponential(1e-5, ROW_COUNT), np.full(ROW_COUNT, 5e-6)


def run_segments(columns):
    """One event per host iteration and per segment; each group of four waits for the one before."""
    time_s, dispatch_s = columns
    engine = Engine()
    engine.add_server("host", discipline="in_order")
    for stream in range(STREAM_COUNT):
        engine.add_server(f"stream{stream}", discipline="in_order")
    bounds = list(pairwise(range(0, ROW_COUNT + 1, SEGMENT_ROWS)))
    names = [tuple(f"row{row}" for row in range(low, high)) for low, high in bounds]
    ends: list[Job] = []
    for iteration in range(ITERATION_COUNT):
        held = [ends[iteration - 2]] if iteration >= 2 else []
        host = engine.submit(Task("dispatch", "host", dispatch_s, held, category="dispatch"))
        group: list[Job] = []
        previous: list[Job] = []
        for index, (low, high) in enumerate(bounds):
            stream = index % STREAM_COUNT
            previous, group = (group, []) if stream == 0 else (previous, group)
            feed = RowDependency(host, slice(low, high))
            name = f"stream{stream}"
            rows_s = time_s[low:high]
            task = Task("segment", name, rows_s, previous, feed, row_names=names[index])
            group.append(engine.submit(task))
        ends.append(group[-1])
    engine.run()
    timeline = engine.timeline()
    return int((timeline.category == timeline.categories.index("task")).sum())


def run_bare_timeouts(count):
    """Bare SimPy: a new timeout with one callback after the other."""
    environment = simpy.Environment()
    left = iter(range(count - 1))

    def go_on(_event):
        if next(left, None) is not None:
            environment.timeout(1.0).callbacks.append(go_on)

    environment.timeout(1.0).callbacks.append(go_on)
    environment.run()
    return count


def run_bare_callbacks(count):
    """Bare SimPy: one event scheduled again and again, the least it can do."""
    environment = simpy.Environment()
    left = iter(range(count - 1))

    def go_on(event):
        event.callbacks = callbacks
        if next(left, None) is not None:
            environment.schedule(event, delay=1.0)

    callbacks = [go_on]
    event = Event(environment).succeed()
    event.callbacks = callbacks
    environment.run()
    return count


def run_estimates(batches):
    """Estimates at the best tier, each of a batch that has not been asked for before."""
    for batch in batches:
        accelsim.estimate(*NETWORK, batch=batch, tier="best")
    return len(batches)


def rate_per_s(run, inputs):
    """Largest rate over some inputs, each made before its run, and how much one run did."""
    best_per_s, count = 0.0, 0
    for value in inputs:
        start_s = time.thread_time()
        count = run(value)
        best_per_s = max(best_per_s, count / (time.thread_time() - start_s))
    return best_per_s, count


def main():
    def row(label, rate, unit, rows_per_event, bar_per_s=None):
        verdict = "" if bar_per_s is None else f"bar {bar_per_s:,}: "
        if bar_per_s is not None:
            verdict += "met" if rate >= bar_per_s else "MISSED"
        print(f"{label:44s} {rate:>11,.0f} {unit:12s} {rows_per_event:>12s}  {verdict}")

    print(f"{'':44s} {'per second':>11s} {'':12s} {'rows/event':>12s}")
    rate, _ = rate_per_s(run_bare_callbacks, [100_000] * 5)
    row("bare SimPy, one event again and again", rate, "callbacks", "1")
    rate, _ = rate_per_s(run_bare_timeouts, [100_000] * 5)
    row("bare SimPy, new timeouts", rate, "callbacks", "1")
    silent, count = rate_per_s(partial(run_pipeline, record=False), map(pipeline, range(20)))
    row(f"pipeline of {count:,} tasks, not recorded", silent, "tasks", "1", 400_000)
    kept, _ = rate_per_s(partial(run_pipeline, record=True), map(pipeline, range(20, 40)))
    row("  recorded", kept, "tasks", "1", 250_000)
    rate, _ = rate_per_s(run_one_by_one, map(pipeline, range(40, 43)))
    row("  recorded, submitted one by one", rate, "tasks", "1")
    grouped, count = rate_per_s(run_segments, map(segments, range(3)))
    row(f"{count:,} operators in segments", grouped, "operators", str(SEGMENT_ROWS), 500_000)
    # The first ones load data and code; whoever sweeps batches pays that once.
    run_estimates((1, 2))
    chunks = [BATCHES[low : low + 10] for low in range(0, len(BATCHES), 10)]
    rate, _ = rate_per_s(run_estimates, chunks)
    row(f"estimate({', '.join(NETWORK)}, new batches, best)", rate, "estimates", "a network")
    return 0 if silent >= 400_000 and kept >= 250_000 and grouped >= 500_000 else 1


if __name__ == "__main__":
    raise SystemExit(main())
