"""Levels of dependency and their spread over streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.simulation.streams import dependency_levels, spread_over_streams


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 25))
    lists = [
        draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        for i in range(count)
    ]
    offset = np.cumsum([0, *map(len, lists)])
    time_s = np.array(draw(st.lists(st.floats(0, 2), min_size=count, max_size=count)))
    return lists, offset, np.array([e for x in lists for e in x], dtype=np.int64), time_s


@pytest.mark.law
@given(graphs(), st.integers(1, 5))
def test_every_row_runs_once_and_after_what_it_waits_for(graph, stream_count):
    lists, offset, dependency, time_s = graph
    segments = spread_over_streams(time_s, dependency_levels(offset, dependency), stream_count)
    assert sorted(np.concatenate([s.rows for s in segments]).tolist()) == list(range(len(lists)))
    place = {row: (s.stage, s.stream, i) for s in segments for i, row in enumerate(s.rows.tolist())}
    for row, before in enumerate(lists):
        for other in before:
            same_segment = place[other][:2] == place[row][:2]
            assert place[other][0] < place[row][0] or (
                same_segment and place[other][2] < place[row][2]
            )
    assert {s.stream for s in segments} <= set(range(stream_count))


@pytest.mark.law
@given(graphs(), st.integers(2, 5), st.floats(0.1, 1))
def test_streams_never_beat_the_device_nor_lose_to_one_stream(graph, stream_count, occupied):
    _, offset, dependency, time_s = graph
    level = dependency_levels(offset, dependency)
    segments = spread_over_streams(time_s, level, stream_count, np.full(len(time_s), occupied))
    stage_s = {}
    for s in segments:
        stage_s[s.stage] = max(stage_s.get(s.stage, 0.0), float(time_s[s.rows].sum()) * s.stretch)
    total = sum(stage_s.values())
    assert occupied * time_s.sum() <= total * (1 + 1e-9) + 1e-12
    assert total <= time_s.sum() * (1 + 1e-9) + 1e-12


def test_full_kernels_gain_nothing_and_small_ones_overlap():
    time_s, level = np.array([1.0, 1.0, 1.0, 1.0]), np.array([0, 1, 1, 2])
    for occupancy, expected in ((None, 4.0), (np.full(4, 0.25), 3.0)):
        segments = spread_over_streams(time_s, level, 2, occupancy)
        spans = {s.stage: float(time_s[s.rows].sum()) * s.stretch for s in segments}
        assert sum(spans.values()) == pytest.approx(expected)


def test_levels_of_a_diamond():
    assert dependency_levels(np.array([0, 0, 1, 2, 4]), np.array([0, 0, 1, 2])).tolist() == [
        0,
        1,
        1,
        2,
    ]
