"""Links: bandwidth in one direction against the standards, latency and attained share by kind."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from accelsim.catalog.clusters import link, link_names, node, node_names
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
    # AMD: links of a GPU to its peers times a link's rate in one direction.
    "infinity-fabric-mi300x": 7 * 64.0,
    # IEEE 802.3 and the InfiniBand Trade Association: data rates.
    "ethernet-10g": 10 / 8,
    "ethernet-25g": 25 / 8,
    "ethernet-100g": 100 / 8,
    "ethernet-200g": 200 / 8,
    "ethernet-400g": 400 / 8,
    "roce-100g": 100 / 8,
    "roce-200g": 200 / 8,
    "roce-400g": 400 / 8,
    "roce-800g": 800 / 8,
    "efa-100g": 100 / 8,
    "infiniband-fdr": 4 * 14.0625 * 64 / 66 / 8,
    "infiniband-edr": 100 / 8,
    "infiniband-hdr": 200 / 8,
    "infiniband-ndr": 400 / 8,
    "infiniband-xdr": 800 / 8,
    # Google: half of what the documentation states for both directions.
    "ici-tpu-v5e": 400 / 2,
    "ici-tpu-v5p": 1200 / 2,
    "ici-tpu-v6e": 800 / 2,
    # Intel: two bytes a transfer on each of three links at 10.4 and 11.2 GT/s.
    "upi-3x10": 3 * 10.4 * 2,
    "upi-3x11": 3 * 11.2 * 2,
}
#: Start of a name -> least and most bandwidth in GB/s and latency in microseconds.
RANGES = {
    "ethernet": (1, 100, 5, 100),
    "roce": (10, 200, 1, 10),
    "efa": (10, 200, 5, 30),
    "infiniband": (6, 200, 1, 5),
    "gaudi2-roce": (100, 600, 1, 10),
    "ici": (100, 1_000, 0.3, 3),
    "infinity-fabric": (100, 1_000, 0.3, 5),
    "neuronlink": (100, 1_000, 0.3, 5),
    "nvlink": (50, 1_000, 0.3, 5),
    "pcie": (5, 130, 0.5, 3),
    "upi": (20, 300, 0.1, 1),
    "xgmi": (50, 400, 0.1, 1),
}
ENTRY = {
    "kind": "link",
    "name": "x",
    "title": "x",
    "bandwidth_gbit_per_s": {"value": 80, "source": "sheet"},
    "latency_us": {"value": 2, "kind": "estimate", "source": "sheet"},
    "achieved_fraction": {"value": 0.9, "kind": "estimate", "source": "sheet"},
    "sources": {"sheet": "a data sheet"},
}


@pytest.mark.parametrize(("name", "gb_per_s"), ONE_DIRECTION_GB_PER_S.items())
def test_bandwidth_is_lanes_times_rate_times_coding(name, gb_per_s):
    assert link(name).bandwidth_bytes_per_s.value == pytest.approx(1e9 * gb_per_s, rel=0.01)


@pytest.mark.parametrize("name", link_names())
def test_bandwidth_and_latency_are_those_of_the_kind(name):
    least, most, least_us, most_us = RANGES[_kind(name)]
    assert 1e9 * least <= link(name).bandwidth_bytes_per_s.value <= 1e9 * most
    assert 1e-6 * least_us <= link(name).latency_s.value <= 1e-6 * most_us


def _kind(name):
    return max((start for start in RANGES if name.startswith(start)), key=len)


@pytest.mark.parametrize("name", link_names())
def test_the_attained_share_is_that_of_headers_and_flow_control(name):
    assert 0.7 <= link(name).achieved_fraction.value < 1


@pytest.mark.parametrize("name", node_names())
def test_links_are_quicker_inside_a_node_than_between_nodes(name):
    profile = node(name)
    if profile.device_tier is None or profile.network_link is None:
        return
    inside, outside = link(profile.device_tier.link), link(profile.network_link)
    assert inside.bandwidth_bytes_per_s.value > outside.bandwidth_bytes_per_s.value
    assert inside.latency_s.value < outside.latency_s.value


@pytest.mark.parametrize("kind", [None, "", "device", "Link"])
def test_another_kind_is_refused_with_the_choices(kind):
    with pytest.raises(ValueError, match="expected one of link, node, cluster"):
        parse_interconnect({"kind": kind, "name": "x"})


def test_a_link_needs_a_bandwidth_above_zero():
    parsed = parse_interconnect(ENTRY)
    assert parsed.bandwidth_bytes_per_s.value == 10e9
    assert parsed.bandwidth_bytes_per_s.source == "a data sheet"
    nothing = {"bandwidth_gbit_per_s": {"value": 0, "source": "sheet"}}
    with pytest.raises(ValidationError, match="greater than 0"):
        parse_interconnect(ENTRY | nothing)
    with pytest.raises(ValidationError, match="sources"):
        parse_interconnect(ENTRY | {"sources": "a data sheet"})


@pytest.mark.parametrize("field", ["latency_us", "achieved_fraction"])
def test_a_link_states_its_latency_and_what_it_attains(field):
    without = {key: value for key, value in ENTRY.items() if key != field}
    with pytest.raises(ValidationError, match="Field required"):
        parse_interconnect(without)
    with pytest.raises(ValidationError, match="greater than 0"):
        parse_interconnect(ENTRY | {field: {"value": 0, "source": "sheet"}})
