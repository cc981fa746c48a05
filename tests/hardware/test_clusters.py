"""Every node and cluster of the catalogue against what is published, and patterns that grow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog import device
from accelsim.catalog.clusters import cluster, cluster_names, cluster_sources, link, node_names
from accelsim.errors import InvalidValueError
from accelsim.hardware.cluster import Fleet, Pool
from accelsim.hardware.sourced import device_numbers

PATTERNS = (*cluster_names(), *node_names())
PUBLISHED_DEVICE_COUNTS = {
    "dgx-superpod-a100": 1120,  # NVIDIA RA-10029
    "dgx-superpod-h100": 1016,  # NVIDIA RA-11333
    "dgx-superpod-b200": 1024,  # NVIDIA reference architecture, DGX B200
    "dgx-superpod-b300": 2048,  # NVIDIA reference architecture, DGX B300
    "gb200-nvl72": 72,
    "gb300-nvl72": 72,
    "dgx-superpod-gb200": 576,  # NVIDIA reference architecture, DGX GB200
    "azure-nd-gb300-v6": 4608,  # Microsoft, October 2025
    "tpu-v3-pod": 1024,  # Google
    "tpu-v4-pod": 4096,
    "tpu-v5e-pod": 256,
    "tpu-v5p-pod": 8960,
    "tpu-v6e-pod": 256,
}
#: Slices that Google Cloud documents: pod, chips, extents.
PUBLISHED_SLICES = [
    ("tpu-v5e-pod", 8, (2, 4)),
    ("tpu-v5e-pod", 32, (4, 8)),
    ("tpu-v5e-pod", 128, (8, 16)),
    ("tpu-v6e-pod", 64, (8, 8)),
    ("tpu-v5p-pod", 8, (2, 2, 2)),
    ("tpu-v5p-pod", 64, (4, 4, 4)),
    ("tpu-v5p-pod", 128, (4, 4, 8)),
    ("tpu-v5p-pod", 6144, (16, 16, 24)),
    ("tpu-v4-pod", 2048, (8, 16, 16)),
]


@pytest.mark.parametrize(("name", "count"), PUBLISHED_DEVICE_COUNTS.items())
def test_device_counts_are_those_published(name, count):
    assert cluster(name).device_count == count


@pytest.mark.parametrize("name", PATTERNS)
def test_tiers_grow_and_the_last_holds_all_devices(name):
    found = cluster(name)
    counts = [tier.device_count for tier in found.tiers]
    assert counts == sorted(counts)
    assert counts[-1] == found.device_count


@pytest.mark.parametrize("name", PATTERNS)
def test_bandwidth_falls_and_latency_rises_from_tier_to_tier(name):
    tiers = cluster(name).tiers
    bandwidths = [tier.bandwidth_bytes_per_s for tier in tiers]
    latencies = [tier.latency_s for tier in tiers]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert latencies == sorted(latencies)
    assert all(3e8 <= bandwidth <= 1e12 for bandwidth in bandwidths)
    assert all(1e-7 <= latency <= 1e-4 for latency in latencies)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_torus_has_as_many_places_as_devices(name):
    for tier in cluster(name).tiers:
        if tier.topology == "torus":
            assert math.prod(tier.dimensions) == tier.device_count


@pytest.mark.parametrize("name", PATTERNS)
def test_devices_and_hosts_are_in_the_catalogue(name):
    node = cluster(name).node
    assert device(node.device_name).name == node.device_name
    assert device(node.host_name).device_class == "cpu"


@pytest.mark.parametrize("name", PATTERNS)
def test_the_device_tier_agrees_with_the_device(name):
    found = cluster(name)
    peer = device(found.device_name).peer_link
    first = found.tiers[0]
    if peer is None or first.link_name == found.node.network_link_name:
        return
    in_profile = peer.bandwidth_bytes_per_s.value
    if first.topology != "pcie_tree":
        assert first.bandwidth_bytes_per_s == pytest.approx(in_profile, rel=0.02)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_host_takes_power_beside_its_devices(name):
    node = cluster(name).node
    if node.host_power_w is not None:
        assert 0.1 < node.host_power_w / node.max_power_w < 0.6


@pytest.mark.parametrize("name", PATTERNS)
def test_every_number_has_a_source(name):
    for profile in cluster_sources(cluster(name)).values():
        assert all(len(row["source"]) > 3 for row in device_numbers(profile))
        assert all(row["source"] != "spec" for row in device_numbers(profile))


def test_cards_of_a_node_are_shared_by_its_devices():
    card = link("efa-100g").bandwidth_bytes_per_s.value
    assert cluster("p4d-ultracluster-64").tiers[-1].bandwidth_bytes_per_s == card * 4 / 8
    assert cluster("p5-ultracluster-64").tiers[-1].bandwidth_bytes_per_s == card * 32 / 8


def test_a_scale_up_domain_takes_the_place_of_the_nodes_tier():
    names = [tier.name for tier in cluster("gb200-nvl72").tiers]
    assert names == ["nvlink-domain", "rail"]
    assert cluster("gb200-nvl72").node.device_count == 4


def test_tiers_at_which_devices_meet():
    pod = cluster("dgx-superpod-h100")
    assert pod.tier_of(0, 7).name == "node"
    assert pod.tier_of(7, 8).name == "rail"
    assert pod.tier_of(255, 256).name == "spine"
    assert pod.tier_of(0, 5000).name == "spine"
    with pytest.raises(InvalidValueError, match="second_rank"):
        pod.tier_of(3, 3)


@pytest.mark.parametrize(("name", "count", "extents"), PUBLISHED_SLICES)
def test_slices_of_a_torus_have_the_documented_shapes(name, count, extents):
    assert cluster(name).with_devices(count).tiers[0].dimensions == extents


def test_a_pattern_grows_beyond_the_installation_and_says_so():
    pod = cluster("dgx-superpod-h100")
    larger = pod.with_devices(4096)
    assert pod.warnings == ()
    assert larger.device_count == 4096
    assert larger.tiers[-1].device_count == 4096
    assert larger.tiers[:-1] == pod.tiers[:-1]
    assert "4,096" in larger.warnings[0]
    assert "1,016" in larger.warnings[0]


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(PATTERNS), count=st.integers(1, 20_000))
def test_a_cluster_of_any_size_holds_its_devices(name, count):
    taken = cluster(name).with_devices(count)
    whole_nodes = math.ceil(count / taken.node.device_count)
    assert taken.node_count == whole_nodes
    assert taken.tiers[-1].device_count >= taken.device_count
    assert bool(taken.warnings) == (whole_nodes > taken.installed_node_count)
    with pytest.raises(InvalidValueError, match="device_count"):
        taken.with_devices(0)


def test_a_fleet_is_a_list_of_pools():
    pods = Pool.of_cluster("training", cluster("gb200-nvl72").with_devices(144))
    spot = Pool("spot", "l4", 10)
    fleet = Fleet((pods, spot))
    assert fleet.device_count == 154
    assert [pool.device_name for pool in fleet] == ["gb200", "l4"]
    assert "144" in fleet.warnings[0]
    with pytest.raises(InvalidValueError, match="pools"):
        Fleet((spot, spot))
