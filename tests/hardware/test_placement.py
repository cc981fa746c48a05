"""Where groups stand in a cluster, and what a rank gets of each topology's links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.clusters import cluster
from accelsim.errors import InvalidValueError
from accelsim.hardware.cluster import MOST_DEVICES, Tier
from accelsim.hardware.placement import RankGroup, place

SUPERPOD = cluster("dgx-superpod-h100")
PATTERNS = ["dgx-superpod-h100", "gb200-nvl72", "mi300x-ethernet", "cpu-server-8", "tpu-v5p-pod"]


def levels(group, pattern=SUPERPOD):
    return place(group, pattern).levels


@pytest.mark.parametrize(
    ("group", "crossed"),
    [
        (RankGroup(1), []),
        (RankGroup(8), [("node", 8, 1)]),
        (RankGroup(4, stride=2), [("node", 4, 1)]),
        (RankGroup(64), [("node", 8, 1), ("rail", 8, 8)]),
        (RankGroup(32, stride=8), [("rail", 32, 1)]),
        (RankGroup(4, stride=256), [("spine", 4, 1)]),
        (RankGroup(512), [("node", 8, 1), ("rail", 32, 8), ("spine", 2, 256)]),
        (RankGroup.of((0, 1, 8, 9)), [("node", 2, 1), ("rail", 2, 2)]),
        (RankGroup.of((3, 4, 11)), [("node", 2, 1), ("rail", 2, 1)]),
    ],
)
def test_tiers_that_a_group_crosses(group, crossed):
    found = [(level.tier_name, level.fanout, level.lane_count) for level in levels(group)]
    assert found == crossed


def test_an_uneven_group_counts_its_thinnest_unit():
    inside, outside = levels(RankGroup(12))
    assert (inside.fanout, outside.fanout) == (8, 2)
    assert outside.lane_count == 4


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(PATTERNS), size=st.integers(1, 600), stride=st.sampled_from([1, 2, 8, 72])
)
def test_hops_of_a_ring_through_all_ranks_add_up(name, size, stride):
    placement = place(RankGroup(size, stride), cluster(name))
    assert sum(level.hop_count for level in placement.levels) == size - 1


@settings(max_examples=80, deadline=None)
@given(name=st.sampled_from(PATTERNS), size=st.integers(2, 600), stride=st.integers(1, 40))
def test_no_rank_gets_more_than_its_links(name, size, stride):
    pattern = cluster(name)
    limits = {tier.name: tier.achieved_bytes_per_s for tier in pattern.tiers}
    for level in place(RankGroup(size, stride), pattern).levels:
        most = limits[level.tier_name] * (1 + 1e-9)
        assert 0 < level.bandwidth_bytes_per_s <= most
        assert 0 < level.pair_bandwidth_bytes_per_s <= most
        assert 0 < level.exchange_bandwidth_bytes_per_s <= most


def test_a_mesh_gives_the_links_to_members():
    whole = cluster("mi300x-ethernet").tiers[0].achieved_bytes_per_s
    for size in (2, 4, 8):
        (level,) = levels(RankGroup(size), cluster("mi300x-ethernet"))
        assert level.bandwidth_bytes_per_s == pytest.approx(whole * (size - 1) / 7)
        assert level.pair_bandwidth_bytes_per_s == pytest.approx(whole / 7)


@pytest.mark.parametrize(("size", "lanes"), [(2, 1), (4, 4), (7, 4), (8, 6)])
def test_a_cube_mesh_gives_the_lanes_between_members(size, lanes):
    whole = cluster("dgx-1").tiers[0].achieved_bytes_per_s
    (level,) = levels(RankGroup(size), cluster("dgx-1"))
    assert level.bandwidth_bytes_per_s == pytest.approx(whole * lanes / 6)


def test_a_cube_mesh_reaches_a_stranger_over_one_lane():
    whole = cluster("dgx-1").tiers[0].achieved_bytes_per_s
    (level,) = levels(RankGroup.of((0, 5)), cluster("dgx-1"))
    assert level.bandwidth_bytes_per_s == pytest.approx(whole / 6)


def test_a_torus_gives_whole_axes_and_half_of_open_ones():
    pod = cluster("tpu-v5p-pod")
    whole = pod.tiers[0].achieved_bytes_per_s
    (cube,) = levels(RankGroup(64), pod.with_devices(64))
    assert cube.bandwidth_bytes_per_s == pytest.approx(whole)
    assert cube.step_count == 3 * 3
    (open_box,) = levels(RankGroup(8), pod.with_devices(8))
    assert open_box.bandwidth_bytes_per_s == pytest.approx(whole / 2)
    (first_axis,) = levels(RankGroup(4), pod.with_devices(64))
    assert first_axis.bandwidth_bytes_per_s == pytest.approx(whole / 3)
    (last_axis,) = levels(RankGroup(4, stride=16), pod.with_devices(64))
    assert last_axis.bandwidth_bytes_per_s == pytest.approx(whole / 3)
    (plane,) = levels(RankGroup(16), pod.with_devices(64))
    assert plane.bandwidth_bytes_per_s == pytest.approx(whole * 2 / 3)


def test_members_that_stand_apart_share_the_links_between():
    pod = cluster("tpu-v5e-pod")
    whole = pod.tiers[0].achieved_bytes_per_s
    (row,) = levels(RankGroup(16), pod)
    (every_second,) = levels(RankGroup(8, stride=2), pod)
    assert row.bandwidth_bytes_per_s == pytest.approx(whole / 2)
    assert every_second.bandwidth_bytes_per_s == pytest.approx(whole / 4)
    assert every_second.latency_s == pytest.approx(2 * row.latency_s)


def test_all_to_all_on_a_ring_takes_a_quarter_of_an_all_gather():
    # Austin et al., How to Scale Your Model (2025), sharding chapter: V / (4 W) against V / W.
    ring = Tier("ring", "x", "ring", 16, bandwidth_bytes_per_s=200e9, latency_s=1e-6)
    pod = cluster("dgx-1")
    one_ring = type(pod)("ring", "a ring", pod.node, 2, 2, (ring,))
    (level,) = levels(RankGroup(16), one_ring)
    sent = 15 / 16
    gathered = 16.0  # of one rank's share
    all_to_all_s = sent / level.exchange_bandwidth_bytes_per_s
    all_gather_s = sent * gathered / level.bandwidth_bytes_per_s
    assert all_to_all_s == pytest.approx(all_gather_s / sent / 4)


def test_ranks_beyond_the_installation_are_warned_of():
    placement = place(RankGroup(300, stride=8), SUPERPOD)
    assert "2,400" in placement.warnings[0]
    assert place(RankGroup(100, stride=8), SUPERPOD).warnings == ()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"size": 0}, "size"),
        ({"size": 2, "stride": 0}, "stride"),
        ({"size": 2, "explicit": (3, 3)}, "explicit"),
        ({"size": 2, "explicit": (-1, 3)}, "explicit"),
    ],
)
def test_bad_groups_are_named(fields, named):
    with pytest.raises(InvalidValueError, match=named):
        RankGroup(**fields)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RankGroup(MOST_DEVICES + 1),
        lambda: RankGroup(2, stride=10**18),
        lambda: SUPERPOD.with_devices(10**9),
        lambda: place(RankGroup.of([0, 10**12]), SUPERPOD),
    ],
)
def test_more_devices_than_can_be_are_refused_before_they_are_counted(make):
    with pytest.raises(InvalidValueError, match="10,000,000"):
        make()
