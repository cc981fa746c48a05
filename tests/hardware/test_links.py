"""Bandwidths of links in one direction, against lanes times rate times coding of their standards."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from accelsim import catalog
from accelsim.hardware.interconnect import parse_interconnect

LANES = 16
ONE_DIRECTION_GB_PER_S = {
    # PCI-SIG: 16 lanes; 8b/10b up to the second generation, 128b/130b from the third.
    "pcie2-x16": LANES * 5.0 * 8 / 10 / 8,
    "pcie3-x16": LANES * 8.0 * 128 / 130 / 8,
    "pcie4-x16": LANES * 16.0 * 128 / 130 / 8,
    "pcie5-x16": LANES * 32.0 * 128 / 130 / 8,
    # NVIDIA: links of a GPU times a link's rate in one direction.
    "nvlink1": 4 * 20.0,  # P100
    "nvlink2": 6 * 25.0,  # V100
    "nvlink3": 12 * 25.0,  # A100
    "nvlink4": 18 * 25.0,  # H100
    "nvlink5": 18 * 50.0,  # B200
    # IEEE 802.3 and the InfiniBand Trade Association: data rates.
    "ethernet-10g": 10 / 8,
    "ethernet-25g": 25 / 8,
    "ethernet-100g": 100 / 8,
    "ethernet-200g": 200 / 8,
    "ethernet-400g": 400 / 8,
    "infiniband-edr": 100 / 8,
    "infiniband-hdr": 200 / 8,
    "infiniband-ndr": 400 / 8,
    # Intel: two bytes a transfer on each of three links at 10.4 and 11.2 GT/s.
    "upi-3x10": 3 * 10.4 * 2,
    "upi-3x11": 3 * 11.2 * 2,
}


@pytest.mark.parametrize(("name", "gb_per_s"), ONE_DIRECTION_GB_PER_S.items())
def test_bandwidth_is_lanes_times_rate_times_coding(name, gb_per_s):
    assert catalog.link(name).bandwidth_bytes_per_s.value == pytest.approx(1e9 * gb_per_s, rel=0.01)


def test_links_are_quicker_inside_a_node_than_between_nodes():
    for name in catalog.node_names():
        node = catalog.node(name)
        if node.device_link is None or node.network_link is None:
            continue
        inside, outside = catalog.link(node.device_link), catalog.link(node.network_link)
        assert inside.bandwidth_bytes_per_s.value > outside.bandwidth_bytes_per_s.value
        if inside.latency_s is not None and outside.latency_s is not None:
            assert inside.latency_s.value < outside.latency_s.value


@pytest.mark.parametrize("name", catalog.link_names())
def test_latencies_are_those_of_one_hop(name):
    latency = catalog.link(name).latency_s
    assert latency is None or 1e-8 <= latency.value <= 5e-5


@pytest.mark.parametrize("kind", [None, "", "device", "Link"])
def test_another_kind_is_refused_with_the_choices(kind):
    with pytest.raises(ValueError, match="expected one of link, node, cluster"):
        parse_interconnect({"kind": kind, "name": "x"})


def test_a_link_needs_a_bandwidth_above_zero():
    entry = {"kind": "link", "name": "x", "title": "x", "bandwidth_gbit_per_s": {"value": 80, "source": "s"},
             "sources": {"s": "a data sheet"}}  # fmt: skip
    link = parse_interconnect(entry)
    assert link.bandwidth_bytes_per_s.value == 10e9
    assert link.bandwidth_bytes_per_s.source == "a data sheet"
    with pytest.raises(ValidationError, match="greater than 0"):
        parse_interconnect(entry | {"bandwidth_gbit_per_s": {"value": 0, "source": "s"}})
    with pytest.raises(ValidationError, match="sources"):
        parse_interconnect(entry | {"sources": "a data sheet"})
