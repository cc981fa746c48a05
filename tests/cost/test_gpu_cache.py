"""Traffic that the last-level cache of a GPU takes off its memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim import catalog
from accelsim.catalog.workloads import workload
from accelsim.cost.gpu.cache import cached_traffic, hit_fraction
from accelsim.dtype import precision
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.model import PassShape


def test_hits_fall_with_the_traffic_between():
    hits = hit_fraction(np.array([0.0, 1e6, 4e7, 1e12]), 4e7)
    assert hits[0] == 1.0
    assert hits[2] == pytest.approx(np.exp(-1))
    assert np.all(np.diff(hits) < 0)
    assert hit_fraction(np.array([1.0]), 0.0)[0] == 0.0


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["resnet-50", "dlrm-mlperf", "bert-base"]),
    st.sampled_from(["t4", "l4", "a100-sxm-80gb"]),
)
def test_traffic_never_grows_nor_turns_negative(name, device):
    graph = fuse_elementwise(
        workload(name).lower(PassShape(batch=4, seq_len=128), precision("fp16")).graph
    )
    cached = cached_traffic(graph, catalog.device(device))
    for column in ("read_bytes", "write_bytes"):
        assert np.all(getattr(cached, column) <= getattr(graph, column) * (1 + 1e-12))
        assert np.all(getattr(cached, column) >= 0)
    assert np.array_equal(cached.weight_bytes, graph.weight_bytes)


def chain(elements):
    b = GraphBuilder(precision("fp16"))
    x = b.input(1, elements)
    for _ in range(3):
        x = b.activation(x)
    return b.build()


def test_small_tensors_stay_on_chip_and_large_ones_do_not():
    device = catalog.device("l4")
    small, large = chain(2**16), chain(2**30)
    first, last = cached_traffic(small, device), cached_traffic(large, device)
    assert first.read_bytes[1] < 0.5 * small.read_bytes[1]
    assert last.read_bytes[1] == pytest.approx(large.read_bytes[1])
    assert (
        first.write_bytes[2] == small.write_bytes[2]
    )  # nobody reads the last result: it goes to memory


def test_rows_of_a_small_table_are_cached():
    b = GraphBuilder(precision("fp16"))
    for rows in (1000, 10**8):
        b.embedding_bag(4096, 1, rows, 128)
    graph = b.build()
    small, large = cached_traffic(graph, catalog.device("l4")).read_bytes
    assert small < 0.5 * graph.read_bytes[0]
    assert large == pytest.approx(graph.read_bytes[1])
