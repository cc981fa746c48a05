"""What every pass over a graph must leave as it was: who waits for whom, and how much is in use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.cost.memory import live_bytes as live_to_the_end
from accelsim.dtype import precision
from accelsim.simulation.liveness import live_bytes
from accelsim.workloads.concatenation import elide_copies
from accelsim.workloads.fusion import fuse_elementwise

MODELS = ["llama-3.2-1b", "densenet-121", "inception-v3", "dlrm-mlperf", "yolo-v3", "unet"]


def lowered(name):
    model = workload(name)
    return model.lower(model.default, precision("fp16")).graph


def ancestors(graph):
    """Rows that each row waits for, directly or not, as bits of a number."""
    found = []
    for row in range(len(graph)):
        bits = 0
        for source in graph.dependencies_of(row).tolist():
            bits |= found[source] | 1 << source
        found.append(bits)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_removing_copies_keeps_who_waits_for_whom(name):
    graph = lowered(name)
    less = elide_copies(graph)
    rows = iter(range(len(graph)))
    kept = [
        next(
            row
            for row in rows
            if (graph.name[row], graph.path[row]) == key and np.array_equal(graph.dims[row], dims)
        )
        for key, dims in zip(zip(less.name, less.path, strict=True), less.dims, strict=True)
    ]
    assert len(kept) == len(less) <= len(graph)
    before, after = ancestors(graph), ancestors(less)
    for place, row in enumerate(kept):
        wanted = sum(1 << other for other, source in enumerate(kept) if before[row] >> source & 1)
        assert after[place] == wanted


@pytest.mark.parametrize("name", MODELS)
def test_passes_do_not_depend_on_being_run_again(name):
    graph = lowered(name)
    fused, elided = fuse_elementwise(graph), elide_copies(graph)
    for change, once in ((fuse_elementwise, fused), (elide_copies, elided)):
        assert change(once).model_flop == once.model_flop == graph.model_flop
        assert change(once).total_bytes <= once.total_bytes <= graph.total_bytes


@st.composite
def outputs(draw):
    """Bytes of each row's output, and the earlier rows each reads."""
    sizes = draw(st.lists(st.integers(0, 100), min_size=1, max_size=20))
    reads = [
        sorted(draw(st.sets(st.integers(0, row - 1), max_size=3))) if row else []
        for row in range(len(sizes))
    ]
    return sizes, reads


@settings(max_examples=100, deadline=None)
@given(outputs())
def test_live_bytes_are_those_of_outputs_that_are_yet_to_be_read(case):
    sizes, reads = case
    count = len(sizes)
    last = [
        max([row, *(reader for reader in range(count) if row in reads[reader])])
        for row in range(count)
    ]
    expected = [
        sum(sizes[row] for row in range(now + 1) if last[row] >= now) for now in range(count)
    ]
    offset = np.cumsum([0, *map(len, reads)])
    edges = np.array([source for sources in reads for source in sources], dtype=np.int64)
    assert live_bytes(np.array(sizes, dtype=float), offset, edges).tolist() == expected


@pytest.mark.parametrize("name", MODELS)
def test_footprints_count_unread_outputs_to_the_end(name):
    """As if a last row without an output read them."""
    graph = lowered(name)
    unread = np.flatnonzero(np.bincount(graph.dependency, minlength=len(graph)) == 0)
    edges = np.append(graph.dependency, unread)
    offset = np.append(graph.dependency_offset, len(edges))
    same = live_bytes(np.append(graph.write_bytes, 0.0), offset, edges)
    np.testing.assert_allclose(live_to_the_end(graph), same[:-1])
