"""Finds, reads and validates links, nodes and clusters of the catalogue.

They are the YAML files under ``device_profiles/interconnects``, ``nodes`` and ``clusters``. A node
is a cluster too: one server, and more of them behind its network cards.

A device that no node has stands in a server of its form factor. One whose profile has a link to its
peers stands on a board with seven others, as the modules of NVIDIA's HGX and of the Open Compute
Project do; one whose link joins a few cards with a bridge, or that has none, is a card in a slot of
PCI Express. The hosts, the network and the shape of the links are those of the catalogue's server
of that form nearest in year, the links' bandwidth the device's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from accelsim.arguments import checked
from accelsim.catalog import device, device_names
from accelsim.errors import InvalidValueError, ProfileError, UnknownNameError
from accelsim.files.datafile import data_root, name_key, read_mapping, validated
from accelsim.hardware.cluster import Cluster, Node, Tier
from accelsim.hardware.fabric import PLAIN, Fabric, Protocol
from accelsim.hardware.interconnect import (
    ClusterProfile,
    FabricProfile,
    FabricsProfile,
    Link,
    NodeProfile,
    TierProfile,
    TierShape,
    parse_interconnect,
)
from accelsim.hardware.profile import CpuProfile, DeviceProfile, HostLink, with_citations
from accelsim.hardware.sourced import value_of

#: Ending of the names of such servers.
SERVER = "-server"
_SLOTS = "pcie_tree"
#: Least devices of a server that another one is made after.
_LEAST_DEVICES = 8
_FOLDERS = {"link": "interconnects", "node": "nodes", "cluster": "clusters"}
_KINDS = {Link: "link", NodeProfile: "node", ClusterProfile: "cluster"}
P = TypeVar("P", Link, NodeProfile, ClusterProfile)


@checked
def cluster(name: str) -> Cluster:
    """A cluster of the catalogue, or one node of it as a cluster.

    Args:
        name: Name of a cluster or node, in any case; of a device that none of them has, followed by
            "-server", see `server`.

    Raises:
        UnknownNameError: If there is none; near matches are offered.
        ProfileError: If its file does not validate.
    """
    key = name_key(name)
    if key in _paths("nodes"):
        return cluster_of(node(key))
    if key not in _paths("clusters"):
        of_device = _server(key)
        if of_device is not None:
            return of_device
        names = (*_paths("clusters"), *_paths("nodes"))
        raise UnknownNameError("cluster", name, names, "See all with: accelsim clusters list.")
    return _cluster(cluster_profile(key))


def _server(name: str) -> Cluster | None:
    """The server of a device that a name asks for; None where it names none."""
    owner = name.removesuffix(SERVER)
    return server(owner) if owner != name and owner in device_names() else None


def cluster_names() -> tuple[str, ...]:
    """Names of the catalogue's clusters, sorted."""
    return tuple(sorted(_paths("clusters")))


def cluster_profile(name: str) -> ClusterProfile:
    """The file of a cluster, with the source of each number.

    Raises:
        UnknownNameError: If there is none.
    """
    return _entry(name, ClusterProfile)


def cluster_sources(built: Cluster) -> dict[str, ClusterProfile | NodeProfile | Link]:
    """The files that a cluster of the catalogue is made from, by name: itself, its node, its links.

    Every number in them has its source.
    """
    files: dict[str, ClusterProfile | NodeProfile | Link] = {}
    if built.name in _paths("clusters"):
        files[built.name] = cluster_profile(built.name)
    files[built.node.name] = node(built.node.name)
    for tier in built.tiers:
        files[tier.link_name] = link(tier.link_name)
    return files


def load_cluster_file(path: str | Path) -> Cluster:
    """Read and validate one cluster file; its links and node are those of the catalogue.

    Raises:
        ProfileError: If it does not validate; names the line and field of each problem.
        UnknownNameError: If its node or a link is not in the catalogue.
    """
    return _cluster(_file(Path(path), ClusterProfile))


def node(name: str) -> NodeProfile:
    """A node of the catalogue.

    Raises:
        UnknownNameError: If there is none.
    """
    return _entry(name, NodeProfile)


def node_names() -> tuple[str, ...]:
    """Names of the catalogue's nodes, sorted."""
    return tuple(sorted(_paths("nodes")))


def link(name: str) -> Link:
    """A link of the catalogue.

    Raises:
        UnknownNameError: If there is none.
    """
    return _entry(name, Link)


def link_names() -> tuple[str, ...]:
    """Names of the catalogue's links, sorted."""
    return tuple(sorted(_paths("interconnects")))


@lru_cache(maxsize=8)
def _paths(folder: str) -> dict[str, Path]:
    files = (data_root() / "device_profiles" / folder).glob("*.yaml")
    return {path.stem: path for path in sorted(files)}


def _entry(name: str, profile_class: type[P]) -> P:
    kind = _KINDS[profile_class]
    paths = _paths(_FOLDERS[kind])
    path = paths.get(name_key(name))
    if path is None:
        raise UnknownNameError(kind, name, paths)
    profile: P = _file(path, profile_class)
    return profile


@lru_cache(maxsize=512)
def _file(path: Path, profile_class: type[P]) -> P:
    profile = validated(path, lambda: parse_interconnect(read_mapping(path)))
    if not isinstance(profile, profile_class):
        raise ProfileError(str(path), [f"kind: expected a {_KINDS[profile_class]}"])
    return profile


def _cluster(profile: ClusterProfile) -> Cluster:
    base = node(profile.node)
    tiers = [_tier(tier, base) for tier in profile.tiers]
    device_tier = base.device_tier
    if device_tier is not None and device_tier.link != tiers[0].link_name:
        tiers.insert(0, tier_of_shape("node", device_tier, base.device_count.value))
    count = profile.node_count.value
    problems = _size_problems(tiers, count * base.device_count.value)
    if problems:
        raise ProfileError(profile.name, problems)
    return Cluster(profile.name, profile.title, _node(base), count, count, tuple(tiers))


def cluster_of(base: NodeProfile) -> Cluster:
    """A node as a cluster: its own tier, and a switch over its network cards."""
    count = base.device_count.value
    tiers = []
    if base.device_tier is not None:
        tiers.append(tier_of_shape("node", base.device_tier, count))
    if base.network_link is not None:
        network = TierShape(link=base.network_link, topology="switch")
        tiers.append(tier_of_shape("network", network, count, _cards_per_device(base)))
    if not tiers:
        raise ProfileError(base.name, ["neither device_tier nor network_link: nothing joins it"])
    return Cluster(base.name, base.title, _node(base), 1, 1, tuple(tiers))


def _node(base: NodeProfile) -> Node:
    return Node(
        name=base.name,
        host_name=base.host,
        host_count=base.host_count.value,
        device_name=base.device,
        device_count=base.device_count.value,
        host_memory_bytes=value_of(base.host_memory_bytes, None),
        network_link_name=base.network_link,
        network_link_count=value_of(base.network_link_count, 0),
        max_power_w=value_of(base.max_power_w, None),
        host_power_w=_host_power_w(base),
        host_load_w=value_of(base.host_load_w, None),
    )


def _host_power_w(base: NodeProfile) -> float | None:
    """Power of a node less its devices' limits; None where unknown or where they are its CPUs."""
    limit_w = value_of(device(base.device).power.limit_w, None)
    node_w = value_of(base.max_power_w, None)
    if node_w is None or limit_w is None or base.device == base.host:
        return None
    return node_w - base.device_count.value * limit_w


def _cards_per_device(base: NodeProfile) -> float:
    return value_of(base.network_link_count, base.device_count.value) / base.device_count.value


def _tier(profile: TierProfile, base: NodeProfile) -> Tier:
    default = _cards_per_device(base) if profile.link == base.network_link else 1.0
    return tier_of_shape(
        profile.name,
        profile,
        profile.device_count.value,
        value_of(profile.links_per_device, default),
        value_of(profile.oversubscription, 1.0),
    )


def tier_of_shape(
    name: str,
    shape: TierShape,
    device_count: int,
    links_per_device: float = 1.0,
    oversubscription: float = 1.0,
) -> Tier:
    """A tier of so many devices over the link that its shape names.

    Raises:
        UnknownNameError: If there is no such link.
    """
    wire = link(shape.link)
    bandwidth = wire.bandwidth_bytes_per_s.value * links_per_device / oversubscription
    return Tier(
        name=name,
        link_name=wire.name,
        topology=shape.topology,
        device_count=device_count,
        bandwidth_bytes_per_s=bandwidth,
        latency_s=value_of(shape.latency_s, wire.latency_s.value),
        achieved_fraction=wire.achieved_fraction.value,
        oversubscription=oversubscription,
        dimensions=shape.dimensions,
        closed_multiple=value_of(shape.closed_multiple, 1),
        lane_counts=shape.lane_counts,
        energy_per_byte_j=value_of(wire.energy_per_byte_j, None),
        fabric=PLAIN if wire.fabric is None else _fabric(wire.fabric),
    )


@lru_cache(maxsize=64)
def _fabric(name: str) -> Fabric:
    """A fabric by name.

    Raises:
        UnknownNameError: If ``calibration/class/fabrics.yaml`` has none of that name.
    """
    fabrics = _fabrics()
    if name not in fabrics:
        raise UnknownNameError("fabric", name, fabrics)
    profile = fabrics[name]
    protocols = (
        Protocol(
            label, p.start_s.value, value_of(p.hop_s, 0.0), value_of(p.bandwidth_fraction, 1.0)
        )
        for label, p in profile.protocols.items()
    )
    return Fabric(
        name=name,
        protocols=tuple(protocols),
        algorithms=profile.algorithms,
        copy_ratio=value_of(profile.copy_ratio, None),
        in_switch_fraction=value_of(profile.in_switch_fraction, None),
        is_tree_chained=profile.is_tree_chained,
        log_sigma=value_of(profile.log_sigma, PLAIN.log_sigma),
    )


@cache
def _fabrics() -> Mapping[str, FabricProfile]:
    path = data_root() / "calibration" / "class" / "fabrics.yaml"
    data = with_citations(read_mapping(path))
    return validated(path, lambda: FabricsProfile.model_validate(data)).fabrics


def _size_problems(tiers: list[Tier], device_count: int) -> list[str]:
    """What is wrong with the sizes of a cluster's tiers.

    The last tier may hold one group of the tier below: an installation of one rack or pod.
    """
    problems = []
    last = tiers[-1]
    for below, above in pairwise(tiers):
        if above.device_count < below.device_count:
            problems.append(f"tiers.{above.name}: expected at least the devices of {below.name}")
        elif above is not last and above.device_count % below.device_count:
            problems.append(f"tiers.{above.name}: expected whole groups of {below.name}")
    problems += [
        f"tiers.{tier.name}: expected the product of its dimensions"
        for tier in tiers
        if tier.dimensions and tier.device_count != math.prod(tier.dimensions)
    ]
    if last.device_count != device_count:
        problems.append(f"tiers.{last.name}: expected all {device_count} devices")
    return problems


def smallest_joining(device: DeviceProfile, count: int) -> Cluster:
    """The first node, or cluster, of a device that holds so many; servers of its form factor where
    there is none.

    Args:
        device: The device.
        count: How many are to be joined.

    Raises:
        InvalidValueError: If the device fits no slot.
    """
    for name in (*node_names(), *cluster_names()):
        candidate = cluster(name)
        if candidate.device_name == device.name and candidate.device_count >= count:
            return candidate
    return joined(device, count)


def joined(profile: DeviceProfile, count: int) -> Cluster:
    """So many of a device: in the largest node of the catalogue that has it, else in servers of its
    form factor.

    Args:
        profile: The device.
        count: How many.

    Raises:
        InvalidValueError: If no node has it and it fits no slot.
    """
    nodes = [node(name) for name in node_names()]
    fitting = [node for node in nodes if node.device == profile.whole_name]
    if not fitting:
        return server(profile.whole_name).with_devices(count)
    largest = max(fitting, key=lambda node: node.device_count.value)
    return cluster(largest.name).with_devices(count)


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
    device_link = wire if peer is None or bridged else peer
    base, shape = _nearest(profile, device_link, is_card=device_link is wire)
    shape = shape.model_copy(update={"link": _link(device_link).name})
    made = _made_after(base, profile, device_link, shape)
    built = cluster_of(made)
    rate = device_link.bandwidth_bytes_per_s.value
    tiers = [replace(built.tiers[0], bandwidth_bytes_per_s=rate), *built.tiers[1:]]
    if bridged and peer is not None:
        tiers.insert(0, _bridge(peer))
    note = f"no node of the catalogue has {profile.name}: {made.note}"
    return replace(built, tiers=tuple(tiers), note=note)


def _made_after(
    base: NodeProfile, profile: DeviceProfile, device_link: HostLink, shape: TierShape
) -> NodeProfile:
    count = base.device_count.value
    hosts = f"hosts ({base.host_count.value} x {base.host})"
    note = f"taken as a server with {count} of it over {device_link.name}, {hosts} and network"
    changes = {
        "name": f"{profile.name}{SERVER}",
        "title": f"Server with {count} {profile.title}",
        "device": profile.whole_name,
        "max_power_w": None,
        "host_load_w": None,
        "device_tier": shape,
        "note": f"{note} as {base.name} has them",
    }
    return base.model_copy(update=changes)


def _bridge(peer: HostLink) -> Tier:
    """The cards that a bridge joins."""
    shape = TierShape(link=_link(peer).name, topology="all_to_all")
    tier = tier_of_shape("bridge", shape, value_of(peer.device_count, 1))
    return replace(tier, bandwidth_bytes_per_s=peer.bandwidth_bytes_per_s.value)


def _nearest(
    profile: DeviceProfile, device_link: HostLink, *, is_card: bool
) -> tuple[NodeProfile, TierShape]:
    """The catalogue's server of a form factor, with links of the device's sort where there is one,
    nearest in year, the newer of two; and the shape of its links.
    """
    nodes = [
        (node, node.device_tier)
        for node in map(node, node_names())
        if node.device_tier is not None
        and node.network_link is not None
        and node.device_count.value >= _LEAST_DEVICES
        and (node.device_tier.topology == _SLOTS) == is_card
    ]
    alike = [(node, shape) for node, shape in nodes if _sort(shape.link) == _sort(device_link.name)]

    def distance(entry: tuple[NodeProfile, TierShape]) -> tuple[int, int, str]:
        year = device(entry[0].device).year
        return abs(year - profile.year), -year, entry[0].name

    return min(alike or nodes, key=distance)


def _link(device_link: HostLink) -> Link:
    """The catalogue's link of a device's sort of links, nearest in bandwidth, which says how
    libraries drive it.
    """
    rate, name = device_link.bandwidth_bytes_per_s.value, device_link.name.lower()
    links = list(map(link, link_names()))
    alike = [wire for wire in links if _sort(name) in wire.name] or links

    def distance(wire: Link) -> tuple[float, bool]:
        return abs(math.log(wire.bandwidth_bytes_per_s.value / rate)), wire.name not in name

    return min(alike, key=distance)


def _sort(name: str) -> str:
    """The first word of a link's name, without its generation."""
    match = re.match(r"[a-z]+", name.lower())
    return match[0] if match else name.lower()
