"""Collectives: closed forms of Thakur et al. 2005, their laws, and tiers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.clusters import cluster
from accelsim.cost.collective import (
    ALGORITHMS,
    Tiers,
    collective_costs,
    collectives_s,
    direct_all_reduce_s,
)
from accelsim.errors import InvalidValueError
from accelsim.hardware.cluster import Cluster, Node, Tier
from accelsim.hardware.fabric import PLAIN, Fabric, Protocol
from accelsim.hardware.placement import Level, Placement, RankGroup
from accelsim.workloads.operator import COLLECTIVE_KINDS, OperatorKind

ALL_REDUCE = OperatorKind.ALL_REDUCE
#: A switch that reduces breaks the bounds of messages between devices.
FORMS = [(kind, name) for kind, forms in ALGORITHMS.items() for name in forms if name != "nvls"]
ALL_REDUCES = [name for kind, name in FORMS if kind is ALL_REDUCE]
SIZES = st.floats(0, 1e12)
SUPERPOD = cluster("dgx-superpod-h100")
BANDWIDTH = 100e9
LATENCY_S = 2e-6


def server(device_count):
    return Node("node", "cpu", host_count=1, device_name="gpu", device_count=device_count)


def switch(link_name, device_count, bandwidth, latency):
    return Tier(
        name=link_name,
        link_name=link_name,
        topology="switch",
        device_count=device_count,
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
    )


def flat(ranks, bandwidth=BANDWIDTH, latency=LATENCY_S):
    """A cluster of one switch."""
    tiers = (switch("wire", ranks, bandwidth, latency),)
    return Cluster("flat", "one switch", server(ranks), 1, 1, tiers)


def two_tiers(per_node, nodes, slow_bandwidth=25e9):
    inside = switch("fast", per_node, 300e9, 1e-6)
    outside = switch("slow", per_node * nodes, slow_bandwidth, 5e-6)
    return Cluster("tiers", "two tiers", server(per_node), nodes, nodes, (inside, outside))


def time_s(kind, size, ranks, algorithm=None, **link):
    group = RankGroup(ranks)
    pattern = flat(ranks, **link)
    costs = collective_costs(
        kind,
        size,
        group,
        pattern,
        algorithm=algorithm,
    )
    return costs.time_s


#: Collective, algorithm, ranks -> hops of latency, payloads moved.
CLOSED_FORMS = {
    ("all_reduce", "ring", 8): (14, 2 * 7 / 8),
    ("all_reduce", "hierarchical", 8): (14, 2 * 7 / 8),
    ("all_reduce", "halving_doubling", 8): (6, 2 * 7 / 8),
    ("all_reduce", "recursive_doubling", 8): (3, 3),
    ("all_reduce", "recursive_doubling", 9): (5, 5),
    ("all_reduce", "tree", 8): (6, 2),
    ("all_gather", "ring", 8): (7, 7 / 8),
    ("all_gather", "doubling", 8): (3, 7 / 8),
    ("reduce_scatter", "ring", 8): (7, 7 / 8),
    ("all_to_all", "pairwise", 8): (7, 7 / 8),
    ("broadcast", "scatter_gather", 8): (10, 2 * 7 / 8),
    ("broadcast", "binomial", 8): (3, 3),
    ("broadcast", "chain", 8): (7, 1),
    ("send_recv", "send", 8): (1, 1),
}


@pytest.mark.parametrize(("form", "expected"), CLOSED_FORMS.items())
def test_closed_forms(form, expected):
    kind, algorithm, ranks = form
    hops, moved = expected
    size_bytes = 800e6
    expected_s = hops * LATENCY_S + moved * size_bytes / BANDWIDTH
    assert time_s(kind, size_bytes, ranks, algorithm) == pytest.approx(expected_s)


#: Ranks, latency in s, bytes/s -> seconds of a ring and of halving and doubling, for 256 MiB.
#: Thakur et al. 2005; Patarasuk and Yuan 2009.
ORACLES = {
    (8, 5e-6, 150e9): (0.003201746986666667, 0.0031617469866666668),
    (64, 1e-5, 25e9): (0.022399292159999997, 0.02125929216),
}


@pytest.mark.parametrize(("link", "expected"), ORACLES.items())
def test_oracles_of_all_reduce(link, expected):
    ranks, latency, bandwidth = link
    for algorithm, expected_s in zip(("ring", "halving_doubling"), expected, strict=True):
        pattern = flat(ranks, bandwidth, latency)
        group = RankGroup(ranks)
        costs = collective_costs(
            ALL_REDUCE,
            2**28,
            group,
            pattern,
            algorithm=algorithm,
        )
        assert costs.time_s[0] == pytest.approx(expected_s, rel=1e-12)


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
    costs = collective_costs(
        kind,
        [0.0, 1e9],
        RankGroup(1),
        SUPERPOD,
        algorithm=algorithm,
    )
    assert costs.time_s.tolist() == [0.0, 0.0]
    assert not costs.bytes_on_link.any()
    assert costs.binding_link.tolist() == ["", ""]


@settings(max_examples=60, deadline=None)
@given(size=SIZES, ranks=st.integers(2, 4096), algorithm=st.sampled_from(ALL_REDUCES))
def test_no_all_reduce_beats_the_bandwidth_or_latency_bound(size, ranks, algorithm):
    # Each rank must send (n-1)/n s twice over (Patarasuk and Yuan 2009), in at least log2 n steps.
    time = time_s(ALL_REDUCE, size, ranks, algorithm)
    sent_bytes = 2 * (ranks - 1) / ranks * size
    rounding = 1 - 1e-9
    assert time >= sent_bytes / BANDWIDTH * rounding
    assert time >= np.log2(ranks) * LATENCY_S * rounding


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
    assert time_s(kind, size, ranks, algorithm, bandwidth=BANDWIDTH * factor) <= base
    assert time_s(kind, size, ranks, algorithm, latency=LATENCY_S * factor) >= base


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
        return collective_costs(
            kind,
            size,
            group,
            two_tiers(8, ranks * stride // 8 + 1),
            algorithm="ring",
        ).time_s

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
    alone = collective_costs(
        kind,
        size,
        group,
        pattern,
        algorithm=chosen,
    )
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
        return collective_costs(
            ALL_REDUCE,
            1e9,
            group,
            pattern,
            algorithm="hierarchical",
        ).time_s

    inside = time_s(ALL_REDUCE, 1e9, 8, "ring", bandwidth=300e9, latency=1e-6)
    outside = time_s(ALL_REDUCE, 1e9, 4, "ring", bandwidth=25e9, latency=5e-6)
    assert hierarchical(RankGroup(8)) == pytest.approx(inside)
    assert hierarchical(RankGroup(4, stride=8)) == pytest.approx(outside)


def test_hierarchy_sends_a_shard_per_rank_over_the_network():
    pattern = two_tiers(8, 4)
    group = RankGroup(32)
    costs = collective_costs(
        ALL_REDUCE,
        1e9,
        group,
        pattern,
        algorithm="hierarchical",
    )
    inside_bytes = 2 * 7 / 8 * 1e9
    outside_bytes = 2 * 3 / 4 * 1e9 / 8
    inside_s = 14 * 1e-6 + inside_bytes / 300e9
    outside_s = 6 * 5e-6 + outside_bytes / 25e9
    assert costs.time_s[0] == pytest.approx(inside_s + outside_s)
    assert costs.link_names == ("fast", "slow")
    assert costs.bytes_on_link[0].tolist() == pytest.approx([inside_bytes, outside_bytes])
    assert costs.binding_link.tolist() == ["slow"]


def test_a_flat_ring_pays_the_network_hop_once_a_node():
    costs = collective_costs(
        ALL_REDUCE,
        0.0,
        RankGroup(32),
        two_tiers(8, 4),
        algorithm="ring",
    )
    assert costs.time_s[0] == pytest.approx(2 * (28 * 1e-6 + 3 * 5e-6))


def test_the_binding_link_depends_on_the_fabric():
    group = RankGroup(64)
    narrow = collective_costs("all_to_all", 1e9, group, SUPERPOD)
    assert narrow.binding_link.tolist() == ["infiniband-ndr"]
    rack = collective_costs("all_to_all", 1e9, group, cluster("gb200-nvl72"))
    assert rack.binding_link.tolist() == ["nvlink5"]
    assert rack.time_s < narrow.time_s / 10


def test_oversubscription_slows_what_crosses_it():
    slow = two_tiers(8, 4, slow_bandwidth=25e9 / 2)
    even = two_tiers(8, 4)
    group = RankGroup(4, stride=8)
    halved = collective_costs("all_to_all", 1e12, group, slow).time_s
    assert halved == pytest.approx(2 * collective_costs("all_to_all", 1e12, group, even).time_s)


def test_a_message_takes_the_last_tier_crossed():
    far = collective_costs("send_recv", 0.0, RankGroup(2, stride=8), SUPERPOD)
    rail = SUPERPOD.tiers[1]
    assert far.time_s[0] == rail.latency_s + rail.fabric.protocol("ll").start_s
    assert far.link_names == ("infiniband-ndr",)


def test_a_run_beyond_the_installation_is_warned_of():
    assert collective_costs("all_reduce", 1.0, RankGroup(4096), SUPERPOD).warnings
    assert not collective_costs("all_reduce", 1.0, RankGroup(512), SUPERPOD).warnings


#: Board, GPUs, MiB -> seconds measured by nccl-tests on NVLink.
#: VIA-Research/vTrain, trace/a100 and trace/v100 (a hybrid cube mesh).
MEASURED_S = {
    ("dgx-a100", 4, 1024): 7259.4e-6,
    ("dgx-a100", 7, 1024): 8112.8e-6,
    ("dgx-a100", 6, 128): 1120.8e-6,
    ("dgx-1", 2, 1024): 47610.0e-6,
    ("dgx-1", 4, 1024): 18869.0e-6,
    ("dgx-1", 7, 1024): 21156.0e-6,
}


@pytest.mark.parametrize(("run", "measured_s"), MEASURED_S.items())
def test_long_all_reduces_are_near_those_measured(run, measured_s):
    board, ranks, mebibytes = run
    group = RankGroup(ranks)
    costs = collective_costs(ALL_REDUCE, mebibytes * 2**20, group, cluster(board))
    assert costs.time_s[0] == pytest.approx(measured_s, rel=0.03)


@pytest.mark.parametrize(
    ("size", "algorithm", "protocol"),
    [(2**15, "ring", "ll"), (2**23, "ring", "ll128"), (2**30, "ring", "simple")],
)
def test_longer_payloads_take_protocols_of_more_bandwidth(size, algorithm, protocol):
    costs = collective_costs(ALL_REDUCE, size, RankGroup(8), cluster("dgx-a100"))
    assert (costs.algorithm[0], costs.protocol[0]) == (algorithm, protocol)


#: Node, devices, payload in bytes -> bus bandwidth in bytes/s by NCCL 2.30, reductions in the
#: switch. github stas00/ml-engineering, network/benchmarks/README.md.
IN_SWITCH = {
    ("dgx-h200", 8, 2**34): 482.25e9,
    ("dgx-b200", 8, 2**34): 838.97e9,
    ("dgx-superpod-b200", 32, 2**34): 376.71e9,
}


@pytest.mark.parametrize(("run", "bus_bytes_per_s"), IN_SWITCH.items())
def test_switches_that_reduce_exceed_the_wire(run, bus_bytes_per_s):
    name, ranks, payload = run
    costs = collective_costs(ALL_REDUCE, payload, RankGroup(ranks), cluster(name))
    found = 2 * (ranks - 1) / ranks * payload / costs.time_s[0]
    assert found == pytest.approx(bus_bytes_per_s, rel=0.05)


@settings(max_examples=60, deadline=None)
@given(size=SIZES, ranks=st.integers(3, 8), factor=st.floats(1.01, 10))
def test_a_switch_that_reduces_still_takes_each_payload_once(size, ranks, factor):
    node, group = cluster("dgx-h200"), RankGroup(ranks)
    sizes = [size, size * factor]
    times = collective_costs(ALL_REDUCE, sizes, group, node, algorithm="nvls").time_s
    assert times[0] <= times[1]
    assert (times >= np.array(sizes) / node.tiers[0].bandwidth_bytes_per_s).all()


def test_only_a_switch_that_reduces_has_nvls():
    with pytest.raises(InvalidValueError, match="nvlink3"):
        collective_costs(ALL_REDUCE, 1.0, RankGroup(8), cluster("dgx-a100"), algorithm="nvls")


def test_jobs_on_one_network_share_it_and_not_the_node():
    shared = SUPERPOD.with_contention(4)
    inside, across = RankGroup(8), RankGroup(8, stride=8)
    assert _long_s(inside, shared) == _long_s(inside, SUPERPOD)
    assert _long_s(across, shared) == pytest.approx(4 * _long_s(across, SUPERPOD), rel=0.01)
    with pytest.raises(InvalidValueError, match="job_count"):
        SUPERPOD.with_contention(0.5)


def test_jobs_share_the_network_of_nodes_with_one_device():
    single = cluster("t4-ethernet-16")
    ratio = _long_s(RankGroup(16), single.with_contention(4)) / _long_s(RankGroup(16), single)
    assert ratio == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize("name", ["gb200-nvl72", "tpu-v4-pod"])
def test_a_job_has_its_scale_up_links_alone(name):
    whole = cluster(name)
    assert whole.with_contention(4).tiers[0] == whole.tiers[0]


def _long_s(group, pattern):
    return collective_costs("all_gather", 1e12, group, pattern).time_s[0]


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
        collective_costs(
            kind,
            size,
            RankGroup(2),
            SUPERPOD,
            algorithm=algorithm,
        )


def test_an_engines_own_all_reduce_is_within_its_tables():
    """vLLM 0.24 on H200, replayed graphs: aiconfigurator-core 0.12.0, custom_allreduce, us."""
    tables = {2: (4.6, 6.3, 12.4), 4: (4.9, 10.5, 17.8), 8: (5.7, 11.1, 18.1)}
    payload = [16_384, 262_144, 1_048_576]
    for ranks, measured in tables.items():
        found = 1e6 * direct_all_reduce_s(payload, ranks, 4.5e-6, 4.5e11)
        assert found == pytest.approx(measured, rel=0.2)
        assert (np.diff(found) > 0).all()


# -- two levels by hand: three nodes of six ranks, of which all six have a lane to the network

INSIDE = Level(
    tier_name="node",
    link_name="fast",
    fanout=6,
    lane_count=1,
    hop_count=15,
    step_count=5,
    latency_s=1e-6,
    bandwidth_bytes_per_s=400e9,
    pair_bandwidth_bytes_per_s=300e9,
    exchange_bandwidth_bytes_per_s=200e9,
    reduction_bandwidth_bytes_per_s=350e9,
    fabric=PLAIN,
    copy_s_per_byte=1e-12,
)
OUTSIDE = replace(
    INSIDE,
    tier_name="rail",
    link_name="slow",
    fanout=3,
    lane_count=6,
    hop_count=3,
    step_count=2,
    latency_s=5e-6,
    bandwidth_bytes_per_s=50e9,
    pair_bandwidth_bytes_per_s=40e9,
    exchange_bandwidth_bytes_per_s=30e9,
    reduction_bandwidth_bytes_per_s=20e9,
    copy_s_per_byte=3e-12,
)
RING, PAIR, EXCHANGE = ([400e9, 50e9], [300e9, 40e9], [200e9, 30e9])
N = 18
#: Hops at each level, payloads that a device sends, bandwidths, and whether levels work at once.
#: Six is no power of two: halving and doubling folds two ranks into four first and last.
TWO_LEVELS = {
    ("all_reduce", "ring"): ([30, 6], [2 * 17 / N, 2 * 17 / N / 6], RING, True),
    ("all_reduce", "hierarchical"): ([10, 4], [2 * 5 / 6, 2 * 2 / 3 / 6], RING, False),
    ("all_reduce", "tree"): ([6, 4], [2, 2 / 6], PAIR, True),
    ("all_reduce", "recursive_doubling"): ([4, 3], [4, 3], PAIR, False),
    ("all_reduce", "halving_doubling"): ([6, 4], [2 * 3 / 4 + 2, (2 * 1 / 2 + 2) / 6], PAIR, False),
    ("all_reduce", "nvls"): ([2, 4], [1 + 1 / 6, 2 / 6], [350e9, 40e9], True),
    ("all_gather", "ring"): ([15, 3], [17 / N, 17 / N / 6], RING, True),
    ("reduce_scatter", "hierarchical"): ([5, 2], [5 / 6, 2 / 3 / 6], RING, False),
    ("all_gather", "doubling"): ([3, 2], [5 / 6, 2 / 3 / 6], PAIR, False),
    ("all_to_all", "pairwise"): ([5, 12], [17 / N, 12 / N], EXCHANGE, True),
    ("broadcast", "binomial"): ([3, 2], [3, 2], PAIR, False),
    ("broadcast", "scatter_gather"): ([18, 5], [2 * 17 / N, 2 * 17 / N / 6], RING, True),
    ("broadcast", "chain"): ([15, 3], [1, 1 / 6], RING, True),
    ("send_recv", "send"): ([0, 1], [0, 1], PAIR, False),
}


def test_all_algorithms_are_worked_out_on_two_levels():
    gathers = {("all_gather", "hierarchical"), ("reduce_scatter", "ring")}  # the same functions
    gathers |= {("reduce_scatter", "doubling")}
    known = {(kind.label, name) for kind, forms in ALGORITHMS.items() for name in forms}
    assert known == set(TWO_LEVELS) | gathers


@pytest.mark.parametrize(("form", "expected"), TWO_LEVELS.items())
def test_levels_add_up_or_work_at_once(form, expected):
    hops, sent, bandwidth, is_pipelined = expected
    algorithms = {kind.label: forms for kind, forms in ALGORITHMS.items()}
    found = algorithms[form[0]][form[1]](Tiers.of(Placement(N, (INSIDE, OUTSIDE))))
    assert found.latency_s == pytest.approx(np.array(hops) * [1e-6, 5e-6])
    assert found.sent_share == pytest.approx(np.array(sent))
    assert found.bandwidth_bytes_per_s.tolist() == bandwidth
    levels = np.array(sent) / bandwidth
    assert found.seconds_per_byte == pytest.approx(max(levels) if is_pipelined else sum(levels))


def test_trees_run_as_chains_where_the_library_chains_them():
    chained = replace(INSIDE, fabric=Fabric(is_tree_chained=True))
    tiers = Tiers.of(Placement(N, (chained, OUTSIDE)))
    assert tiers.tree_hop_count.tolist() == [5, 2]  # log2(3) rounded up
    assert tiers.size == N


@pytest.mark.parametrize("is_far", [True, False])
def test_one_level_of_distant_units_bars_distant_partners(is_far):
    levels = (INSIDE, replace(OUTSIDE, is_any_to_any=not is_far))
    assert Tiers.of(Placement(N, levels)).is_any_to_any is not is_far


def test_a_protocol_slows_all_rates_and_adds_to_each_hop():
    tiers = Tiers.of(Placement(N, (INSIDE, OUTSIDE)))
    slow = tiers.under([Protocol(hop_s=2e-6, bandwidth_fraction=0.5), Protocol()])
    assert slow.latency_s == pytest.approx(np.array([3e-6, 5e-6]))
    for name in ("", "pair_", "exchange_", "reduction_"):
        field = f"{name}bandwidth_bytes_per_s"
        assert getattr(slow, field) == pytest.approx(getattr(tiers, field) * [0.5, 1.0])


def with_fabrics(inside, outside):
    """Four nodes of eight with a library for each tier."""
    plain = two_tiers(8, 4)
    tiers = [replace(t, fabric=f) for t, f in zip(plain.tiers, (inside, outside), strict=True)]
    return replace(plain, tiers=tuple(tiers))


#: Share of a payload that a device copies: all where it is reduced and gathered, none in a message.
COPIED = {"all_reduce": 1, "all_gather": 1 / 2, "reduce_scatter": 1 / 2, "send_recv": 0}


@pytest.mark.parametrize("kind", COPIED)
def test_protocols_start_once_and_copies_are_the_nearest_levels(kind):
    inside = Fabric(protocols=(Protocol("ll", 3e-6, 1e-6, 0.5),), copy_ratio=4.0, log_sigma=0.1)
    outside = Fabric(protocols=(Protocol("ll", 7e-6, 2e-6, 0.25),), copy_ratio=2.0, log_sigma=0.3)
    group, size = RankGroup(32), np.array([0.0, 1e9])
    algorithm = "send" if kind == "send_recv" else "ring"
    bare = collective_costs(kind, size, group, with_fabrics(PLAIN, PLAIN), algorithm=algorithm)
    found = collective_costs(kind, size, group, with_fabrics(inside, outside), algorithm=algorithm)
    hops = {"all_reduce": (56, 6), "send_recv": (0, 1)}.get(kind, (28, 3))
    started = 7e-6 + hops[0] * 1e-6 + hops[1] * 2e-6
    assert found.time_s[0] - bare.time_s[0] == pytest.approx(started)
    sent = {"all_reduce": 2 * 31 / 32, "send_recv": 1.0}.get(kind, 31 / 32)
    lanes = 1 if kind == "send_recv" else 8
    network = sent / lanes / (0.25 * 25e9)
    node = sent / (0.5 * 300e9) if kind != "send_recv" else 0
    copied = COPIED[kind] / (4.0 * 300e9)
    assert found.time_s[1] - found.time_s[0] == pytest.approx((max(network, node) + copied) * 1e9)
    assert found.log_sigma == 0.3
    assert found.protocol.tolist() == ["ll", "ll"]


@pytest.mark.parametrize("kind", sorted(COLLECTIVE_KINDS))
def test_groups_asked_together_take_what_each_takes_alone(kind):
    groups = [RankGroup(*ranks) for ranks in ((4, 1), (4, 8), (1, 8), (32, 1), (4, 1), (2, 8))]
    size, stride = np.array([(group.size, group.stride) for group in groups]).T
    payload = np.linspace(1e3, 1e9, len(groups))
    together, sigma = collectives_s(kind, payload, size, stride, SUPERPOD)
    for place, group in enumerate(groups):
        alone = collective_costs(kind, payload[place], group, SUPERPOD)
        assert together[place] == pytest.approx(alone.time_s[0], rel=1e-12)
        assert group.size == 1 or sigma[place] == alone.log_sigma
    assert together[0] < together[1]  # the second group's ranks are of four nodes


def test_the_link_that_binds_depends_on_the_payload():
    narrow = two_tiers(8, 4, 25e9)
    costs = collective_costs(
        ALL_REDUCE, [0.0, 1e9], RankGroup(32), narrow, algorithm="hierarchical"
    )
    # No payload: 6 hops of 5 us against 14 of 1 us; 1 GB: 1.75 GB at 300 GB/s against 0.19 at 25.
    assert costs.binding_link.tolist() == ["slow", "slow"]
    wide = two_tiers(8, 4, 100e9)
    costs = collective_costs(ALL_REDUCE, [0.0, 1e9], RankGroup(32), wide, algorithm="hierarchical")
    assert costs.binding_link.tolist() == ["slow", "fast"]
    assert costs.bytes_on_link[0].tolist() == [0, 0]


def test_a_library_offers_what_it_has_of_several_algorithms():
    """Of a kind with one algorithm, that one, whatever the library names."""
    trees = Fabric(algorithms=("tree",))
    pattern = with_fabrics(trees, PLAIN)
    assert collective_costs(ALL_REDUCE, 1e9, RankGroup(8), pattern).algorithm[0] == "tree"
    assert collective_costs("all_to_all", 1e9, RankGroup(8), pattern).algorithm[0] == "pairwise"


@pytest.mark.parametrize(("ranks", "has_nvls"), [(2, False), (3, True), (8, True)])
def test_reductions_in_the_switch_need_three_ranks_of_the_nearest_level(ranks, has_nvls):
    reducing = Fabric(in_switch_fraction=1.0, algorithms=("ring", "nvls"))
    near, far = with_fabrics(reducing, PLAIN), with_fabrics(PLAIN, reducing)
    for pattern, has in ((near, has_nvls), (far, False)):
        asked = (ALL_REDUCE, 1e9, RankGroup(ranks), pattern)
        assert (collective_costs(*asked).algorithm[0] == "nvls") is has
        if not has:
            with pytest.raises(InvalidValueError, match="nvls"):
                collective_costs(*asked, algorithm="nvls")


def test_an_engines_all_reduce_reads_all_at_once_or_in_two_phases():
    """vLLM, csrc/custom_all_reduce.cuh: (n - 1) s, or 2 (n - 1)/n s after 1.7 starts, at 0.35 of
    the links.
    """
    short, long = direct_all_reduce_s([0.0, 1e9], 8, 10e-6, 100e9)
    assert short == pytest.approx(10e-6)
    assert long == pytest.approx(17e-6 + 2 * 7 / 8 * 1e9 / 35e9)
    small = direct_all_reduce_s(1e4, 8, 10e-6, 100e9)
    assert small == pytest.approx(10e-6 + 7 * 1e4 / 35e9)
    assert direct_all_reduce_s(1e9, 1, 10e-6, 100e9) == pytest.approx(10e-6)


def test_a_token_is_sent_once_to_each_node_of_its_experts():
    """DeepSeek-V3's dispatch: 8 copies of a token over two levels, by the closed form."""
    copies, size_bytes = 8, 1e12
    group = RankGroup(32)
    found = collective_costs("all_to_all", size_bytes, group, SUPERPOD, copies=8)
    plain = collective_costs("all_to_all", size_bytes, group, SUPERPOD)
    assert found.algorithm[0] == "fan_out"
    nodes, ranks = 4, 32
    inside = 7 / 8 * ranks * (1 - (1 - 1 / ranks) ** copies) / copies
    between = 3 / 4 * nodes * (1 - (1 - 1 / nodes) ** copies) / copies
    assert found.bytes_on_link[0] / size_bytes == pytest.approx([inside, between])
    assert plain.bytes_on_link[0, 1] / size_bytes == pytest.approx(3 / 4)


@pytest.mark.parametrize("ranks", [2, 8, 16, 64])
def test_a_copy_more_of_the_same_tokens_is_never_cheaper(ranks):
    pattern, group = SUPERPOD, RankGroup(ranks)
    times = [
        collective_costs("all_to_all", copies * 1e8, group, pattern, copies=copies).time_s[0]
        for copies in (1, 2, 4, 8, 16)
    ]
    assert times == sorted(times)


def test_ranks_that_gather_all_tokens_get_each_once_whatever_its_copies():
    """8 ranks of a node with 100 MB of tokens each, 8 experts a token: all send theirs to 7."""
    tokens, copies, group = 1e8, 8, RankGroup(8)
    how = {"copies": copies, "gathers": True}
    found = collective_costs("all_to_all", copies * tokens, group, SUPERPOD, **how)
    assert found.algorithm[0] == "gather"
    assert found.bytes_on_link[0, 0] == pytest.approx(7 * tokens)
    ring = collective_costs("all_gather", 8 * tokens, group, SUPERPOD, algorithm="ring")
    assert found.time_s[0] == pytest.approx(ring.time_s[0], rel=0.01)


def test_tokens_are_gathered_within_a_node_alone():
    size, group = 1e9, RankGroup(32)
    how = {"copies": 8, "gathers": True}
    gathered = collective_costs("all_to_all", size, group, SUPERPOD, **how)
    sent = collective_costs("all_to_all", size, group, SUPERPOD, copies=8)
    assert gathered.time_s == pytest.approx(sent.time_s)


def test_no_copies_are_refused():
    with pytest.raises(InvalidValueError, match="copies"):
        collective_costs("all_to_all", 1.0, RankGroup(8), SUPERPOD, copies=0)
