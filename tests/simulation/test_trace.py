"""Laws of traces: spans add up to busy times, tracks never overlap, memory stays bounded."""

import gzip
import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import OutputError
from accelsim.simulation.engine import Engine, Task
from accelsim.simulation.timeline import StepFunction, Timeline

durations = st.one_of(st.just(0.0), st.floats(1e-6, 3.0))
energies = st.sampled_from([0.0, 4.0])
rows = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0.0, 10.0), durations, energies), max_size=30
)


def timeline_of(spans, counters=None):
    """Spans as (resource, start, duration, energy) on three resources."""
    resource, start_s, duration_s, energy_j = np.array(spans, dtype=float).reshape(-1, 4).T
    zeros = np.zeros(len(spans), dtype=np.int32)
    return Timeline(
        resource=resource.astype(np.int32),
        name=zeros,
        category=zeros,
        start_s=start_s,
        end_s=start_s + duration_s,
        energy_j=energy_j,
        resources=("stream", 'quoted "link"', "µpool"),
        capacities=(1, 1, 4),
        names=("conv",),
        categories=("kernel",),
        counters=counters or {},
    )


def written(timeline, folder, name="trace.json"):
    path = folder / name
    timeline.to_perfetto(path, force=True)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def of_kind(events, kind):
    return [event for event in events if event["ph"] == kind]


def track_names(events):
    names = {e["tid"]: e["args"]["name"] for e in of_kind(events, "M") if e["tid"]}
    return {track: name.split(" #")[0] for track, name in names.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.mark.law
@given(spans=rows, seed=st.integers(0, 5))
def test_spans_add_up_to_busy_times_in_any_order(folder, spans, seed):
    timeline = timeline_of(spans)
    order = np.random.default_rng(seed).permutation(len(spans))
    events = written(timeline.take(order), folder)
    assert len(of_kind(events, "X")) == len(spans)
    names = track_names(events)
    for code, resource in enumerate(timeline.resources):
        mine = [e for e in of_kind(events, "X") if names[e["tid"]] == resource]
        total_s = sum(e["dur"] for e in mine) / 1e6
        work_s = timeline.duration_s[timeline.resource == code].sum()
        assert total_s == pytest.approx(work_s, abs=1e-10)
        assert union_s(mine) == pytest.approx(timeline.busy_s(resource), abs=1e-10)


def union_s(events):
    """Time covered by at least one span, second by second of the trace."""
    covered_us = reached_us = 0.0
    for start_us, end_us in sorted((e["ts"], e["ts"] + e["dur"]) for e in events):
        covered_us += max(0.0, end_us - max(start_us, reached_us))
        reached_us = max(reached_us, end_us)
    return covered_us / 1e6


@pytest.mark.law
@given(spans=rows)
def test_spans_of_a_track_do_not_overlap(folder, spans):
    events = written(timeline_of(spans), folder)
    reached_us = {}
    for event in sorted(of_kind(events, "X"), key=lambda e: (e["ts"], e["dur"])):
        assert event["ts"] >= reached_us.get(event["tid"], 0.0) - 1e-5
        reached_us[event["tid"]] = event["ts"] + event["dur"]


@pytest.mark.law
@given(spans=rows)
def test_power_counter_integrates_to_the_energy_of_lasting_rows(folder, spans):
    spans = [(code, start_s, 1e-3 + length_s, energy) for code, start_s, length_s, energy in spans]
    events = of_kind(written(timeline_of(spans), folder), "C")
    time_s = np.array([event["ts"] for event in events]) / 1e6
    power_w = np.array([event["args"]["power_w"] for event in events])
    energy_j = (power_w[:-1] * np.diff(time_s)).sum()
    assert energy_j == pytest.approx(sum(row[3] for row in spans), rel=1e-6, abs=1e-6)


def test_a_simulated_run_writes_its_tracks_and_counters(tmp_path):
    engine = Engine()
    engine.add_server("stream")
    job = engine.submit(Task("conv", "stream", 2e-6))
    engine.submit(Task("relu", "stream", 1e-6, (job,), energy_j=3.0, category="kernel"))
    engine.run()
    usage = StepFunction(np.array([0.0]), np.array([60.0]))
    timeline = replace(engine.timeline(), counters={"hbm memory_bytes": usage})
    timeline.to_perfetto(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    spans = [(e["name"], e["cat"], e["ts"], e["dur"]) for e in of_kind(events, "X")]
    assert spans == [("conv", "task", 0.0, 2.0), ("relu", "kernel", 2.0, 1.0)]
    counters = {(e["name"], e["ts"]): e["args"] for e in of_kind(events, "C")}
    assert counters["hbm memory_bytes", 0.0] == {"hbm memory_bytes": 60.0}
    assert counters["power_w", 2.0]["power_w"] == pytest.approx(3e6)
    with pytest.raises(OutputError, match="exists"):
        timeline.to_perfetto(tmp_path / "run.json")


def test_compressed_traces_hold_the_same_and_are_the_same_each_time(tmp_path):
    steps = StepFunction(np.array([0.0, 1.0]), np.array([5.0, 7.0]))
    timeline = timeline_of([(0, 0.0, 1.0, 1.0)], {"memory_bytes": steps})
    assert written(timeline, tmp_path, "t.json.gz") == written(timeline, tmp_path)
    first = (tmp_path / "t.json.gz").read_bytes()
    written(timeline, tmp_path, "t.json.gz")
    assert (tmp_path / "t.json.gz").read_bytes() == first


def test_memory_does_not_grow_with_the_trace(tmp_path):
    """What writing takes beside the timeline, at 100,000 rows: a million take below 200 MB."""
    count = 100_000
    end_s = np.arange(1.0, count + 1) * 1e-6
    spans = np.stack([np.zeros(count), end_s - 1e-6, np.full(count, 1e-6), np.ones(count)], axis=1)
    timeline = timeline_of(spans)
    tracemalloc.start()
    timeline.to_perfetto(tmp_path / "long.json.gz")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    buffers_bytes = 30e6
    assert peak_bytes < buffers_bytes + 160 * count
