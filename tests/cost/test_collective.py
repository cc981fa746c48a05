"""Collectives: closed forms of Thakur et al. 2005, their laws, and tiers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.cluster_catalog import cluster
from accelsim.cost.collective import ALGORITHMS, collective_costs
from accelsim.errors import InvalidValueError
from accelsim.hardware.cluster import Cluster, Node, Tier
from accelsim.hardware.placement import RankGroup
from accelsim.workloads.operator import COLLECTIVE_KINDS, OperatorKind

ALL_REDUCE = OperatorKind.ALL_REDUCE
FORMS = [(kind, name) for kind, forms in ALGORITHMS.items() for name in forms]
ALL_REDUCES = list(ALGORITHMS[ALL_REDUCE])
SIZES = st.floats(0, 1e12)
SUPERPOD = cluster("dgx-superpod-h100")


def flat(ranks, bandwidth=100e9, latency=2e-6):
    """A cluster of one switch."""
    node = Node("node", "cpu", 1, "gpu", ranks)
    tier = Tier("switch", "wire", "switch", ranks, bandwidth, latency)
    return Cluster("flat", "one switch", node, 1, 1, (tier,))


def two_tiers(per_node, nodes, fast=(300e9, 1e-6), slow=(25e9, 5e-6)):
    node = Node("node", "cpu", 1, "gpu", per_node)
    inside = Tier("node", "fast", "switch", per_node, *fast)
    outside = Tier("rail", "slow", "switch", per_node * nodes, *slow)
    return Cluster("tiers", "two tiers", node, nodes, nodes, (inside, outside))


def time_s(kind, size, ranks, algorithm=None, **link):
    costs = collective_costs(kind, size, RankGroup(ranks), flat(ranks, **link), algorithm=algorithm)
    return costs.time_s


@pytest.mark.parametrize(
    ("kind", "algorithm", "ranks", "expected_s"),
    [
        # n = 8, s = 800 MB, alpha = 2 us, beta = 1 / (100 GB/s): s beta = 8 ms.
        ("all_reduce", "ring", 8, 14 * 2e-6 + 2 * 7 / 8 * 8e-3),
        ("all_reduce", "hierarchical", 8, 14 * 2e-6 + 2 * 7 / 8 * 8e-3),
        ("all_reduce", "halving_doubling", 8, 6 * 2e-6 + 2 * 7 / 8 * 8e-3),
        ("all_reduce", "recursive_doubling", 8, 3 * 2e-6 + 3 * 8e-3),
        ("all_reduce", "recursive_doubling", 9, 5 * 2e-6 + 5 * 8e-3),
        ("all_reduce", "tree", 8, 6 * 2e-6 + 2 * 8e-3),
        ("all_gather", "ring", 8, 7 * 2e-6 + 7 / 8 * 8e-3),
        ("all_gather", "doubling", 8, 3 * 2e-6 + 7 / 8 * 8e-3),
        ("reduce_scatter", "ring", 8, 7 * 2e-6 + 7 / 8 * 8e-3),
        ("all_to_all", "pairwise", 8, 7 * 2e-6 + 7 / 8 * 8e-3),
        ("broadcast", "scatter_gather", 8, 10 * 2e-6 + 2 * 7 / 8 * 8e-3),
        ("broadcast", "binomial", 8, 3 * 2e-6 + 3 * 8e-3),
        ("broadcast", "chain", 8, 7 * 2e-6 + 8e-3),
        ("send_recv", "send", 8, 2e-6 + 8e-3),
    ],
)
def test_closed_forms(kind, algorithm, ranks, expected_s):
    assert time_s(kind, 800e6, ranks, algorithm) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("algorithm", "ranks", "latency", "bandwidth", "expected_s"),
    [
        # 256 MiB; Thakur et al. 2005, Patarasuk and Yuan 2009.
        ("ring", 8, 5e-6, 150e9, 0.003201746986666667),
        ("halving_doubling", 8, 5e-6, 150e9, 0.0031617469866666668),
        ("ring", 64, 1e-5, 25e9, 0.022399292159999997),
        ("halving_doubling", 64, 1e-5, 25e9, 0.02125929216),
    ],
)
def test_oracles_of_all_reduce(algorithm, ranks, latency, bandwidth, expected_s):
    time = time_s(ALL_REDUCE, 268435456, ranks, algorithm, latency=latency, bandwidth=bandwidth)
    assert time[0] == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("kind", "algorithm", "factor"),
    [
        # Bus over algorithm bandwidth; NVIDIA nccl-tests, doc/PERFORMANCE.md.
        ("all_reduce", "ring", lambda n: 2 * (n - 1) / n),
        ("reduce_scatter", "ring", lambda n: (n - 1) / n),
        ("all_gather", "ring", lambda n: (n - 1) / n),
        ("all_to_all", "pairwise", lambda n: (n - 1) / n),
        ("broadcast", "chain", lambda n: 1),
    ],
)
def test_bus_bandwidth_factors(kind, algorithm, factor, ranks):
    time = time_s(kind, 100e9, ranks, algorithm, latency=1e-30)
    assert time[0] == pytest.approx(factor(ranks), rel=1e-12)


@pytest.mark.parametrize(("kind", "algorithm"), FORMS)
def test_one_rank_takes_no_time_and_sends_nothing(kind, algorithm):
    costs = collective_costs(kind, [0.0, 1e9], RankGroup(1), SUPERPOD, algorithm=algorithm)
    assert costs.time_s.tolist() == [0.0, 0.0]
    assert not costs.bytes_on_link.any()
    assert costs.binding_link.tolist() == ["", ""]


@settings(max_examples=60, deadline=None)
@given(size=SIZES, ranks=st.integers(2, 4096), algorithm=st.sampled_from(ALL_REDUCES))
def test_no_all_reduce_beats_the_bandwidth_or_latency_bound(size, ranks, algorithm):
    # Each rank must send (n-1)/n s twice over (Patarasuk and Yuan 2009), in at least log2 n steps.
    time = time_s(ALL_REDUCE, size, ranks, algorithm)
    assert time >= 2 * (ranks - 1) / ranks * size / 100e9 * (1 - 1e-9)
    assert time >= np.log2(ranks) * 2e-6 * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    size=SIZES,
    ranks=st.integers(1, 2000),
    form=st.sampled_from(FORMS),
    factor=st.floats(1.01, 10),
)
def test_monotone_in_size_bandwidth_and_latency(size, ranks, form, factor):
    kind, algorithm = form
    base = time_s(kind, size, ranks, algorithm)
    assert time_s(kind, size * factor, ranks, algorithm) >= base
    assert time_s(kind, size, ranks, algorithm, bandwidth=100e9 * factor) <= base
    assert time_s(kind, size, ranks, algorithm, latency=2e-6 * factor) >= base


@settings(max_examples=60, deadline=None)
@given(size=SIZES, ranks=st.integers(1, 2000), form=st.sampled_from(FORMS))
def test_more_ranks_never_take_less_time(size, ranks, form):
    kind, algorithm = form
    if algorithm in {"halving_doubling", "recursive_doubling"}:
        return  # a power of two is quicker than one rank less
    more = time_s(kind, size, ranks + 1, algorithm)
    assert more >= time_s(kind, size, ranks, algorithm) * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(size=SIZES, ranks=st.integers(1, 900), stride=st.sampled_from([1, 8]))
def test_ring_all_reduce_is_reduce_scatter_then_all_gather(size, ranks, stride):
    def ring(kind):
        group = RankGroup(ranks, stride)
        return collective_costs(kind, size, group, SUPERPOD, algorithm="ring").time_s

    halves = ring("reduce_scatter") + ring("all_gather")
    assert ring("all_reduce") == pytest.approx(halves)


@settings(max_examples=60, deadline=None)
@given(
    size=SIZES,
    ranks=st.integers(1, 900),
    kind=st.sampled_from(list(ALGORITHMS)),
    name=st.sampled_from(["dgx-superpod-h100", "mi300x-ethernet", "tpu-v5p-pod", "dgx-1"]),
)
def test_the_quickest_is_one_of_the_algorithms(size, ranks, kind, name):
    group, pattern = RankGroup(ranks), cluster(name)
    costs = collective_costs(kind, size, group, pattern)
    if ranks == 1:
        return
    chosen = str(costs.algorithm[0])
    alone = collective_costs(kind, size, group, pattern, algorithm=chosen)
    assert costs.time_s == pytest.approx(alone.time_s)
    assert costs.binding_link[0] in costs.link_names
    assert (costs.bytes_on_link >= 0).all()


def test_the_best_is_doubling_for_short_and_bandwidth_optimal_for_long_messages():
    costs = collective_costs(ALL_REDUCE, [64.0, 1e9], RankGroup(16), flat(16))
    assert costs.algorithm.tolist() == ["recursive_doubling", "halving_doubling"]


def test_partners_stand_beside_each_other_on_a_torus():
    pod = cluster("tpu-v5p-pod").with_devices(64)
    costs = collective_costs(ALL_REDUCE, [1.0, 1e9], RankGroup(64), pod)
    assert set(costs.algorithm) <= {"ring", "hierarchical"}


def test_hierarchy_is_the_ring_where_one_level_is_trivial():
    def hierarchical(group):
        pattern = two_tiers(8, 4)
        return collective_costs(ALL_REDUCE, 1e9, group, pattern, algorithm="hierarchical").time_s

    inside = time_s(ALL_REDUCE, 1e9, 8, "ring", bandwidth=300e9, latency=1e-6)
    outside = time_s(ALL_REDUCE, 1e9, 4, "ring", bandwidth=25e9, latency=5e-6)
    assert hierarchical(RankGroup(8)) == pytest.approx(inside)
    assert hierarchical(RankGroup(4, stride=8)) == pytest.approx(outside)


def test_hierarchy_sends_a_shard_per_rank_over_the_network():
    pattern = two_tiers(8, 4)
    group = RankGroup(32)
    costs = collective_costs(ALL_REDUCE, 1e9, group, pattern, algorithm="hierarchical")
    inside_s = 14 * 1e-6 + 2 * 7 / 8 * 1e9 / 300e9
    outside_s = 6 * 5e-6 + 2 * 3 / 4 * (1e9 / 8) / 25e9
    assert costs.time_s[0] == pytest.approx(inside_s + outside_s)
    assert costs.link_names == ("fast", "slow")
    assert costs.bytes_on_link[0].tolist() == pytest.approx([2 * 7 / 8 * 1e9, 2 * 3 / 32 * 1e9])
    assert costs.binding_link.tolist() == ["slow"]


def test_a_flat_ring_pays_the_network_hop_once_a_node():
    costs = collective_costs(ALL_REDUCE, 0.0, RankGroup(32), two_tiers(8, 4), algorithm="ring")
    assert costs.time_s[0] == pytest.approx(2 * (28 * 1e-6 + 3 * 5e-6))


def test_the_binding_link_depends_on_the_fabric():
    group = RankGroup(64)
    narrow = collective_costs("all_to_all", 1e9, group, SUPERPOD)
    assert narrow.binding_link.tolist() == ["infiniband-ndr"]
    rack = collective_costs("all_to_all", 1e9, group, cluster("gb200-nvl72"))
    assert rack.binding_link.tolist() == ["nvlink5"]
    assert rack.time_s < narrow.time_s / 10


def test_oversubscription_slows_what_crosses_it():
    slow = two_tiers(8, 4, slow=(25e9 / 2, 5e-6))
    even = two_tiers(8, 4)
    group = RankGroup(4, stride=8)
    halved = collective_costs("all_to_all", 1e12, group, slow).time_s
    assert halved == pytest.approx(2 * collective_costs("all_to_all", 1e12, group, even).time_s)


def test_a_message_takes_the_last_tier_crossed():
    far = collective_costs("send_recv", 0.0, RankGroup(2, stride=8), SUPERPOD)
    assert far.time_s[0] == SUPERPOD.tiers[1].latency_s
    assert far.link_names == ("infiniband-ndr",)


def test_a_run_beyond_the_installation_is_warned_of():
    assert collective_costs("all_reduce", 1.0, RankGroup(4096), SUPERPOD).warnings
    assert not collective_costs("all_reduce", 1.0, RankGroup(512), SUPERPOD).warnings


@pytest.mark.parametrize(
    ("board", "ranks", "size_bytes", "measured_us"),
    [
        # nccl-tests on NVLink: VIA-Research/vTrain, trace/a100 and trace/v100 (a DGX-1).
        ("dgx-a100", 4, 1073741824, 7259.4),
        ("dgx-a100", 7, 1073741824, 8112.8),
        ("dgx-a100", 6, 134217728, 1120.8),
        ("dgx-1", 2, 1073741824, 47610.0),
        ("dgx-1", 4, 1073741824, 18869.0),
        ("dgx-1", 7, 1073741824, 21156.0),
    ],
)
def test_long_all_reduces_are_near_those_measured(board, ranks, size_bytes, measured_us):
    costs = collective_costs(ALL_REDUCE, size_bytes, RankGroup(ranks), cluster(board))
    assert costs.time_s[0] * 1e6 == pytest.approx(measured_us, rel=0.2)


def test_every_collective_kind_has_a_form():
    assert set(ALGORITHMS) == COLLECTIVE_KINDS


@pytest.mark.parametrize(
    ("kind", "size", "algorithm", "field"),
    [
        (ALL_REDUCE, -1.0, None, "payload_bytes"),
        (OperatorKind.GEMM, 1.0, None, "kind"),
        ("all_reduced", 1.0, None, "kind"),
        (ALL_REDUCE, 1.0, "pairwise", "algorithm"),
    ],
)
def test_bad_input_is_named(kind, size, algorithm, field):
    with pytest.raises(InvalidValueError, match=field):
        collective_costs(kind, size, RankGroup(2), SUPERPOD, algorithm=algorithm)
