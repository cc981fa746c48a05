"""Collectives: closed forms of Thakur et al. 2005 and their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cost.collective import (
    COLLECTIVES,
    all_gather_time_s,
    all_to_all_time_s,
    best_all_reduce_time_s,
    broadcast_time_s,
    collective_time_s,
    halving_doubling_all_reduce_time_s,
    hierarchical_all_reduce_time_s,
    recursive_doubling_all_reduce_time_s,
    reduce_scatter_time_s,
    ring_all_reduce_time_s,
    send_recv_time_s,
    tree_all_reduce_time_s,
)
from accelsim.errors import InvalidValueError
from accelsim.hardware.interconnect import Link
from accelsim.hardware.sourced import Sourced
from accelsim.workloads.operator import COLLECTIVE_KINDS, OperatorKind


def link(bandwidth: float = 100e9, latency: float | None = 2e-6) -> Link:
    alpha = None if latency is None else Sourced(value=latency, source="test")
    beta = Sourced(value=bandwidth, source="test")
    return Link(name="test", title="test link", bandwidth_bytes_per_s=beta, latency_s=alpha)


ALL_REDUCES = [
    ring_all_reduce_time_s,
    tree_all_reduce_time_s,
    recursive_doubling_all_reduce_time_s,
    halving_doubling_all_reduce_time_s,
    best_all_reduce_time_s,
]
OTHERS = [all_gather_time_s, reduce_scatter_time_s, all_to_all_time_s, broadcast_time_s]
SIZES = st.floats(0, 1e12)


@pytest.mark.parametrize(
    ("form", "ranks", "expected_s"),
    [
        # n = 8, s = 800 MB, alpha = 2 us, beta = 1 / (100 GB/s): s beta = 8 ms.
        (ring_all_reduce_time_s, 8, 14 * 2e-6 + 2 * 7 / 8 * 8e-3),
        (halving_doubling_all_reduce_time_s, 8, 6 * 2e-6 + 2 * 7 / 8 * 8e-3),
        (recursive_doubling_all_reduce_time_s, 8, 3 * 2e-6 + 3 * 8e-3),
        (recursive_doubling_all_reduce_time_s, 9, 5 * 2e-6 + 5 * 8e-3),
        (tree_all_reduce_time_s, 8, 6 * 2e-6 + 2 * 8e-3),
        (all_gather_time_s, 8, 7 * 2e-6 + 7 / 8 * 8e-3),
        (reduce_scatter_time_s, 8, 7 * 2e-6 + 7 / 8 * 8e-3),
        (all_to_all_time_s, 8, 7 * 2e-6 + 7 / 8 * 8e-3),
        (broadcast_time_s, 8, 10 * 2e-6 + 2 * 7 / 8 * 8e-3),
    ],
)
def test_closed_forms(form, ranks, expected_s):
    assert form(800e6, ranks, link()) == pytest.approx(expected_s)


@pytest.mark.parametrize("form", ALL_REDUCES + OTHERS)
def test_one_rank_takes_no_time(form):
    assert form([0.0, 1e9], 1, link()).tolist() == [0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(size=SIZES, ranks=st.integers(2, 4096), form=st.sampled_from(ALL_REDUCES))
def test_no_all_reduce_beats_the_bandwidth_or_latency_bound(size, ranks, form):
    # Each rank must send (n-1)/n s twice over (Patarasuk and Yuan 2009), in at least log2 n steps.
    time = form(size, ranks, link())
    assert time >= 2 * (ranks - 1) / ranks * size / 100e9 * (1 - 1e-9)
    assert time >= np.log2(ranks) * 2e-6 * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    size=SIZES,
    ranks=st.integers(1, 2000),
    form=st.sampled_from(ALL_REDUCES + OTHERS),
    factor=st.floats(1.01, 10),
)
def test_monotone_in_size_bandwidth_and_latency(size, ranks, form, factor):
    base = form(size, ranks, link())
    assert form(size * factor, ranks, link()) >= base
    assert form(size, ranks, link(100e9 * factor)) <= base
    assert form(size, ranks, link(latency=2e-6 * factor)) >= base


@settings(max_examples=60, deadline=None)
@given(
    size=SIZES, ranks=st.integers(1, 2000), form=st.sampled_from([ring_all_reduce_time_s, *OTHERS])
)
def test_more_ranks_never_take_less_time(size, ranks, form):
    assert form(size, ranks + 1, link()) >= form(size, ranks, link()) * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(size=SIZES, ranks=st.integers(1, 2000))
def test_ring_all_reduce_is_reduce_scatter_then_all_gather(size, ranks):
    halves = reduce_scatter_time_s(size, ranks, link()) + all_gather_time_s(size, ranks, link())
    assert ring_all_reduce_time_s(size, ranks, link()) == pytest.approx(halves)


def test_the_best_is_doubling_for_short_and_bandwidth_optimal_for_long_messages():
    short, long = best_all_reduce_time_s([64.0, 1e9], 16, link())
    assert short == recursive_doubling_all_reduce_time_s(64.0, 16, link())
    assert long == halving_doubling_all_reduce_time_s(1e9, 16, link())


def test_hierarchy_is_the_ring_where_one_level_is_trivial():
    fast, slow = link(300e9, 1e-6), link(25e9, 5e-6)
    assert hierarchical_all_reduce_time_s(1e9, 8, 1, fast, slow) == pytest.approx(
        ring_all_reduce_time_s(1e9, 8, fast)
    )
    assert hierarchical_all_reduce_time_s(1e9, 1, 4, fast, slow) == pytest.approx(
        ring_all_reduce_time_s(1e9, 4, slow)
    )


def test_hierarchy_sends_a_shard_per_rank_over_the_network():
    fast, slow = link(300e9, None), link(25e9, None)
    expected = 2 * 7 / 8 * 1e9 / 300e9 + 2 * 3 / 4 * (1e9 / 8) / 25e9
    assert hierarchical_all_reduce_time_s(1e9, 8, 4, fast, slow) == pytest.approx(expected)
    assert expected < ring_all_reduce_time_s(1e9, 32, slow)


def test_send_recv_is_latency_and_bytes():
    assert send_recv_time_s([0.0, 100e9], link()).tolist() == pytest.approx([2e-6, 1 + 2e-6])
    assert collective_time_s(OperatorKind.SEND_RECV, 1e9, [1, 2], link()).tolist() == pytest.approx(
        [0.0, 0.010002]
    )


def test_unknown_latency_counts_as_bandwidth_alone():
    assert ring_all_reduce_time_s(1e9, 2, link(latency=None)) == pytest.approx(0.01)


def test_every_collective_kind_has_a_form():
    assert set(COLLECTIVES) == COLLECTIVE_KINDS


@pytest.mark.parametrize(
    ("size", "ranks", "field"), [(-1.0, 2, "size_bytes"), (1.0, 0, "rank_count")]
)
def test_bad_input_is_named(size, ranks, field):
    with pytest.raises(InvalidValueError, match=field):
        ring_all_reduce_time_s(size, ranks, link())
    with pytest.raises(InvalidValueError, match="kind"):
        collective_time_s(OperatorKind.GEMM, 1.0, 2, link())
