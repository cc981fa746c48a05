"""The lifetime of activations, in inference and in a training step."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.cost.memory import live_bytes
from accelsim.simulation.liveness import activation_live_bytes
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import MAX_DIMENSIONS, Phase


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 25))
    lists = [
        draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        for i in range(count)
    ]
    offset = np.cumsum([0, *map(len, lists)])
    size = np.array(draw(st.lists(st.floats(0, 2), min_size=count, max_size=count)))
    return lists, offset, np.array([e for x in lists for e in x], dtype=np.int64), size


@pytest.mark.law
@given(graphs())
def test_live_bytes_row_by_row(case):
    """Each row's own output, and earlier ones that are yet to be read or that nobody reads."""
    lists, offset, dependency, size = case
    chain = graph_of([Phase.FORWARD] * len(size), size, 0.0 * size)
    found = live_bytes(replace(chain, dependency_offset=offset, dependency=dependency))
    for row in range(len(lists)):
        readers = [
            [r for r, before in enumerate(lists) if source in before] for source in range(row + 1)
        ]
        alive = [s for s in range(row + 1) if s == row or max(readers[s], default=row) >= row]
        assert found[row] == pytest.approx(size[alive].sum(), abs=1e-9)


def graph_of(phases, write, saved):
    count = len(phases)
    return OperatorGraph(
        kind=np.zeros(count, dtype=np.int16),
        dims=np.zeros((count, MAX_DIMENSIONS), dtype=np.int64),
        dtype=np.zeros(count, dtype=np.int8),
        phase=np.array(phases, dtype=np.int8),
        flop=np.ones(count),
        read_bytes=np.zeros(count),
        write_bytes=np.array(write, dtype=float),
        weight_bytes=np.zeros(count),
        saved_bytes=np.array(saved, dtype=float),
        name=("x",) * count,
        path=("",) * count,
        dependency_offset=np.maximum(np.arange(count + 1) - 1, 0),
        dependency=np.arange(count - 1),
    )


def test_inference_frees_what_has_been_read():
    graph = graph_of([Phase.FORWARD] * 3, [10, 20, 30], [5, 5, 5])
    assert activation_live_bytes(graph).tolist() == [10.0, 30.0, 50.0]


def test_training_piles_up_what_is_saved_and_gives_it_back():
    forward, backward, update = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER
    graph = graph_of(
        [forward] * 2 + [backward] * 2 + [update], [10, 20, 30, 10, 99], [10, 20, 0, 0, 0]
    )
    live = activation_live_bytes(graph)
    assert live[:2].tolist() == [10.0, 30.0]
    assert live[2] == 30.0 + 30.0  # all saved, and its own gradient
    assert live[3] == pytest.approx(30.0 * (1 - 30 / 40) + 10.0)
    assert live[4] == pytest.approx(0.0)
