"""Finds, reads and validates links, nodes and clusters of the catalogue.

They are the YAML files under ``device_profiles/interconnects``, ``nodes`` and ``clusters``. A node
is a cluster too: one server, and more of them behind its network cards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from accelsim.arguments import checked
from accelsim.catalog import device, device_names
from accelsim.errors import ProfileError, UnknownNameError
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
from accelsim.hardware.profile import with_citations
from accelsim.hardware.sourced import value_of

_FOLDERS = {"link": "interconnects", "node": "nodes", "cluster": "clusters"}
_KINDS = {Link: "link", NodeProfile: "node", ClusterProfile: "cluster"}
P = TypeVar("P", Link, NodeProfile, ClusterProfile)


@checked
def cluster(name: str) -> Cluster:
    """A cluster of the catalogue, or one node of it as a cluster.

    Args:
        name: Name of a cluster or node, in any case; of a device that none of them has, followed by
            "-server", see `servers`.

    Raises:
        UnknownNameError: If there is none; near matches are offered.
        ProfileError: If its file does not validate.
    """
    wanted = name_key(name)
    if wanted in _paths("nodes"):
        return cluster_of(node(wanted))
    if wanted not in _paths("clusters"):
        of_device = _server(wanted)
        if of_device is not None:
            return of_device
        known = (*_paths("clusters"), *_paths("nodes"))
        raise UnknownNameError("cluster", name, known, "See all with: accelsim clusters list.")
    return _cluster(cluster_profile(wanted))


def _server(name: str) -> Cluster | None:
    """The server of a device that a name asks for; None where it names none."""
    from accelsim.catalog.servers import SERVER, server

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


def cluster_sources(found: Cluster) -> dict[str, ClusterProfile | NodeProfile | Link]:
    """The files that a cluster of the catalogue is made from, by name: itself, its node, its links.

    Every number in them has its source.
    """
    files: dict[str, ClusterProfile | NodeProfile | Link] = {}
    if found.name in _paths("clusters"):
        files[found.name] = cluster_profile(found.name)
    files[found.node.name] = node(found.node.name)
    for tier in found.tiers:
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
    found: P = _file(path, profile_class)
    return found


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
    known = _fabrics()
    if name not in known:
        raise UnknownNameError("fabric", name, known)
    found = known[name]
    protocols = (
        Protocol(
            label, p.start_s.value, value_of(p.hop_s, 0.0), value_of(p.bandwidth_fraction, 1.0)
        )
        for label, p in found.protocols.items()
    )
    return Fabric(
        name=name,
        protocols=tuple(protocols),
        algorithms=found.algorithms,
        copy_ratio=value_of(found.copy_ratio, None),
        in_switch_fraction=value_of(found.in_switch_fraction, None),
        is_tree_chained=found.is_tree_chained,
        log_sigma=value_of(found.log_sigma, PLAIN.log_sigma),
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
