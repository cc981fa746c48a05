"""Clusters as calculations use them: a node repeated under ordered tiers of links.

Devices are numbered in order of tiers: the devices of one node follow each other, then those of the
next node of the same scale-up domain, rail group and spine. A cluster is a pattern: it can be taken
with more or fewer devices than the installation it is named after, and then says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.fabric import PLAIN, Fabric
from accelsim.hardware.interconnect import Topology

#: Devices of one cluster at most: fifty times the largest built (about 200,000 GPUs in 2025).
MOST_DEVICES = 10_000_000


@frozen
class Node:
    """A server.

    Attributes:
        name: Name in the catalogue.
        host_name: Device name of its CPU.
        host_count: CPUs.
        device_name: Device name of its accelerators; the CPU's where it has none.
        device_count: Devices.
        host_memory_bytes: Memory of the CPUs together; None where unknown.
        network_link_name: Link of one network card; None where it has none.
        network_link_count: Network cards.
        max_power_w: Power of the whole node at most; None where unknown.
        host_power_w: That power less the limits of its devices: CPUs, memory, cards, fans and
            losses; None where either is unknown.
        host_load_w: What they draw in training, where it was metered; None elsewhere.
    """

    name: str
    host_name: str
    host_count: int
    device_name: str
    device_count: int
    host_memory_bytes: float | None = None
    network_link_name: str | None = None
    network_link_count: int = 0
    max_power_w: float | None = None
    host_power_w: float | None = None
    host_load_w: float | None = None


@frozen
class Tier:
    """One tier of links.

    Attributes:
        name: Such as "node", "nvlink-domain", "rail" or "spine".
        link_name: Link in the catalogue.
        topology: How the links join what is below.
        device_count: Devices below one group of this tier.
        bandwidth_bytes_per_s: Of one device in one direction: its links of this tier together,
            over the oversubscription.
        latency_s: Of a short message between two neighbours that meet at this tier.
        achieved_fraction: Share of the bandwidth that long messages attain.
        oversubscription: Bandwidth from below over what the tier carries, >= 1.
        dimensions: Of a torus, first axis fastest in rank order.
        closed_multiple: An axis closes to a ring where its extent is a multiple of this.
        lane_counts: Lanes between each two devices of a hybrid cube mesh.
        energy_per_byte_j: Of one byte over the link; None where unknown.
        fabric: How a library drives the link.
    """

    name: str
    link_name: str
    topology: Topology
    device_count: int
    bandwidth_bytes_per_s: float
    latency_s: float
    achieved_fraction: float = 1.0
    oversubscription: float = 1.0
    dimensions: tuple[int, ...] = ()
    closed_multiple: int = 1
    lane_counts: tuple[tuple[int, ...], ...] = ()
    energy_per_byte_j: float | None = None
    fabric: Fabric = PLAIN

    @property
    def achieved_bytes_per_s(self) -> float:
        """Bandwidth of one device in one direction that long messages attain."""
        return self.bandwidth_bytes_per_s * self.achieved_fraction


@checked
@frozen
class Cluster:
    """Equal nodes joined by tiers of links, the nearest tier first.

    Attributes:
        name: Name in the catalogue.
        title: As people call it.
        node: What is repeated.
        node_count: Nodes taken.
        installed_node_count: Nodes of the installation that the pattern is named after.
        tiers: Nearest first; the last holds all devices.
        note: What it stands for, where it is no installation of the catalogue.
    """

    name: str
    title: str
    node: Node
    node_count: int
    installed_node_count: int
    tiers: tuple[Tier, ...]
    note: str = ""

    @property
    def device_name(self) -> str:
        """Device profile of every device."""
        return self.node.device_name

    @property
    def device_count(self) -> int:
        """Devices taken."""
        return self.node_count * self.node.device_count

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a result on this cluster should say."""
        if self.note:
            return (self.note,)
        if self.node_count <= self.installed_node_count:
            return ()
        installed = self.installed_node_count * self.node.device_count
        warning = (
            f"{self.name} has {installed:,} devices as installed, not {self.device_count:,}: "
            f"its last tier, {self.tiers[-1].name}, is assumed to grow"
        )
        return (warning,)

    def tier_of(self, first_rank: int, second_rank: int) -> Tier:
        """The tier at which two devices meet; the last for any beyond its size.

        Raises:
            InvalidValueError: If both are the same.
        """
        if first_rank == second_rank:
            raise InvalidValueError("second_rank", second_rank, f"a device other than {first_rank}")
        for tier in self.tiers:
            if first_rank // tier.device_count == second_rank // tier.device_count:
                return tier
        return self.tiers[-1]

    def with_devices(self, device_count: int) -> Cluster:
        """The same pattern with so many devices, rounded up to whole nodes.

        The last tier grows where they are more than it holds. A torus that is not filled becomes
        the most compact torus of that size, as a provider of slices gives it.

        Raises:
            InvalidValueError: If it is below 1 or above `MOST_DEVICES`.
        """
        if not 1 <= device_count <= MOST_DEVICES:
            raise InvalidValueError("device_count", device_count, f"1 to {MOST_DEVICES:,}")
        node_count = math.ceil(device_count / self.node.device_count)
        taken_count = node_count * self.node.device_count
        tiers = [
            _resized(tier, taken_count)
            if tier.dimensions and tier.device_count > taken_count
            else tier
            for tier in self.tiers
        ]
        if tiers[-1].device_count < taken_count:
            tiers[-1] = _resized(tiers[-1], taken_count)
        return replace(self, node_count=node_count, tiers=tuple(tiers))

    def with_contention(self, job_count: float) -> Cluster:
        """The cluster as one of several equal jobs sees it that share the network at all times.

        Each tier above the first gives a job its fair share (max-min) of the bandwidth, and the
        first one, too, where nodes hold one device and it is their network.

        Raises:
            InvalidValueError: If `job_count` is below 1.
        """
        if not job_count >= 1:
            raise InvalidValueError("job_count", job_count, "at least 1 job")
        nearest_count = 1 if self.node.device_count > 1 else 0
        shared = (
            replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s / job_count)
            for tier in self.tiers[nearest_count:]
        )
        return replace(self, tiers=(*self.tiers[:nearest_count], *shared))


@checked
@frozen
class Pool:
    """Equal devices of a fleet.

    Attributes:
        name: Such as "prefill" or "spot".
        device_name: Device profile.
        device_count: Devices.
        cluster: What joins them; None where they work apart.
    """

    name: str
    device_name: str
    device_count: int
    cluster: Cluster | None = None

    @classmethod
    def of_cluster(cls, name: str, cluster: Cluster) -> Pool:
        """All devices of a cluster as a pool."""
        return cls(name, cluster.device_name, cluster.device_count, cluster)


@checked
@frozen
class Fleet:
    """Pools of different devices.

    Attributes:
        pools: With names of their own.
    """

    pools: tuple[Pool, ...]

    def __post_init__(self) -> None:
        """Refuse two pools of one name."""
        names = [pool.name for pool in self.pools]
        if len(set(names)) < len(names):
            raise InvalidValueError("pools", names, "names that differ")

    def __iter__(self) -> Iterator[Pool]:
        """The pools in order."""
        return iter(self.pools)

    @property
    def device_count(self) -> int:
        """Devices of all pools."""
        return sum(pool.device_count for pool in self.pools)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a result on this fleet should say."""
        clusters = [pool.cluster for pool in self.pools if pool.cluster is not None]
        return tuple(warning for cluster in clusters for warning in cluster.warnings)


def _resized(tier: Tier, device_count: int) -> Tier:
    """The tier with so many devices. Estimate: a torus takes the most compact shape."""
    if not tier.dimensions:
        return replace(tier, device_count=device_count)
    child_count = tier.device_count // math.prod(tier.dimensions)
    position_count = math.ceil(device_count / child_count)
    dimensions = _compact_dimensions(position_count, tier.dimensions)
    return replace(tier, device_count=position_count * child_count, dimensions=dimensions)


def _compact_dimensions(position_count: int, within: tuple[int, ...]) -> tuple[int, ...]:
    """Extents with that product, as equal as can be, inside the given ones where that is possible.

    The slices that Google Cloud documents for TPU v4, v5e, v5p and v6e have these shapes.
    """
    shapes = list(_factorizations(position_count, len(within)))
    fitting = [s for s in shapes if all(a <= b for a, b in zip(s, sorted(within), strict=True))]
    return min(fitting or shapes, key=sum)


def _factorizations(product: int, count: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    """All ascending tuples of so many factors >= `least` with that product."""
    if count == 1:
        if product >= least:
            yield (product,)
        return
    for factor in range(least, math.isqrt(product) + 1):
        if product % factor == 0:
            for other_factors in _factorizations(product // factor, count - 1, factor):
                yield (factor, *other_factors)
