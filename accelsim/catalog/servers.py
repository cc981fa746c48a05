"""Servers of devices that no node of the catalogue has: one of their form factor.

A device whose profile has a link to its peers stands on a board with seven others of its kind, as
the modules of NVIDIA's HGX and of the Open Compute Project do; one whose link joins a few cards
with a bridge, or that has none, is a card in a slot of PCI Express. The hosts, the network and the
shape of the links are those of the catalogue's server of that form nearest in year, the links'
bandwidth the device's own.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from accelsim.catalog import clusters, device
from accelsim.errors import InvalidValueError
from accelsim.hardware.cluster import Cluster, Tier
from accelsim.hardware.interconnect import Link, NodeProfile, TierShape
from accelsim.hardware.profile import CpuProfile, DeviceProfile, HostLink
from accelsim.hardware.sourced import value_of

#: Ending of the names of such servers.
SERVER = "-server"
_SLOTS = "pcie_tree"
#: Least devices of a server that another one is made after.
_LEAST_DEVICES = 8


def joined(profile: DeviceProfile, count: int) -> Cluster:
    """So many of a device: in the largest node of the catalogue that has it, else in servers of its
    form factor.

    Args:
        profile: The device.
        count: How many.

    Raises:
        InvalidValueError: If no node has it and it fits no slot.
    """
    nodes = [clusters.node(name) for name in clusters.node_names()]
    fitting = [node for node in nodes if node.device == profile.whole_name]
    if not fitting:
        return server(profile.whole_name).with_devices(count)
    largest = max(fitting, key=lambda node: node.device_count.value)
    return clusters.cluster(largest.name).with_devices(count)


def server(name: str) -> Cluster:
    """A server of a device, as a cluster that more of them may join.

    Args:
        name: Name of a device.

    Raises:
        UnknownNameError: If there is no such device.
        InvalidValueError: If it fits no slot: a CPU, a chip without a link to a host, a whole node.
    """
    profile = device(name)
    wire, peer = profile.host_link, profile.peer_link
    if wire is None or profile.scope == "node" or isinstance(profile, CpuProfile):
        allowed = "a device that fits a slot, with a link to a host"
        raise InvalidValueError("device", name, allowed, "Name a cluster: accelsim clusters list.")
    joined = 0 if peer is None else value_of(peer.device_count, math.inf)
    bridged = peer is not None and joined < math.inf
    own = wire if peer is None or bridged else peer
    base, shape = _nearest(profile, own, is_card=own is wire)
    link = _link(own)
    made = _made_after(base, profile, own, shape.model_copy(update={"link": link.name}))
    built = clusters.cluster_of(made)
    rate = own.bandwidth_bytes_per_s.value
    tiers = [replace(built.tiers[0], bandwidth_bytes_per_s=rate), *built.tiers[1:]]
    if bridged and peer is not None:
        tiers.insert(0, _bridge(peer))
    note = f"no node of the catalogue has {profile.name}: {made.note}"
    return replace(built, tiers=tuple(tiers), note=note)


def _made_after(
    base: NodeProfile, profile: DeviceProfile, own: HostLink, shape: TierShape
) -> NodeProfile:
    count = base.device_count.value
    hosts = f"hosts ({base.host_count.value} x {base.host})"
    note = (
        f"taken as a server with {count} of it over {own.name}, {hosts} and network as {base.name}"
    )
    changes = {
        "name": f"{profile.name}{SERVER}",
        "title": f"Server with {count} {profile.title}",
        "device": profile.whole_name,
        "max_power_w": None,
        "device_tier": shape,
        "note": f"{note} has them",
    }
    return base.model_copy(update=changes)


def _bridge(peer: HostLink) -> Tier:
    """The cards that a bridge joins."""
    shape = TierShape(link=_link(peer).name, topology="all_to_all")
    tier = clusters.tier_of_shape("bridge", shape, value_of(peer.device_count, 1))
    return replace(tier, bandwidth_bytes_per_s=peer.bandwidth_bytes_per_s.value)


def _nearest(
    profile: DeviceProfile, own: HostLink, *, is_card: bool
) -> tuple[NodeProfile, TierShape]:
    """The catalogue's server of a form factor, with links of the device's sort where there is one,
    nearest in year, the newer of two; and the shape of its links.
    """
    nodes = [
        (node, node.device_tier)
        for node in map(clusters.node, clusters.node_names())
        if node.device_tier is not None
        and node.network_link is not None
        and node.device_count.value >= _LEAST_DEVICES
        and (node.device_tier.topology == _SLOTS) == is_card
    ]
    alike = [(node, shape) for node, shape in nodes if _sort(shape.link) == _sort(own.name)]

    def distance(entry: tuple[NodeProfile, TierShape]) -> tuple[int, int, str]:
        year = device(entry[0].device).year
        return abs(year - profile.year), -year, entry[0].name

    return min(alike or nodes, key=distance)


def _link(own: HostLink) -> Link:
    """The catalogue's link of a device's sort of links, nearest in bandwidth, which says how
    libraries drive it.
    """
    rate, name = own.bandwidth_bytes_per_s.value, own.name.lower()
    links = [clusters.link(one) for one in clusters.link_names()]
    alike = [one for one in links if _sort(name) in one.name] or links

    def distance(one: Link) -> tuple[float, bool]:
        apart = abs(math.log(one.bandwidth_bytes_per_s.value / rate))
        return apart, one.name not in name

    return min(alike, key=distance)


def _sort(name: str) -> str:
    """The first word of a link's name, without its generation."""
    found = re.match(r"[a-z]+", name.lower())
    return found[0] if found else name.lower()
