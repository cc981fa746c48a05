"""Profiles of links, nodes and clusters: what their YAML files hold, each number with its source.

A `Link` is an alpha-beta channel: latency plus size over bandwidth, per direction (Hockney,
Parallel Computing 20(3), 1994). A node joins host CPUs, devices, the tier of links among them and
its network cards. A cluster repeats one node under ordered tiers, nearest first.
`accelsim.hardware.cluster` holds what calculations use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from accelsim.hardware.profile import with_citations
from accelsim.hardware.sourced import FrozenModel, Positive, PositiveCount, Sourced
from accelsim.plain import Values

Topology = Literal[
    "all_to_all",  # every pair has a link of its own; a device's bandwidth is split over its peers
    "switch",  # one non-blocking switch, or several in parallel
    "pcie_tree",  # PCI Express under the host's root complexes
    "hybrid_cube_mesh",  # some pairs have lanes, which a table counts
    "ring",
    "torus",
    "fat_tree",  # switches of switches
]

Fraction = Sourced[Annotated[float, Field(gt=0, le=1)]]
Ratio = Sourced[Annotated[float, Field(ge=1)]]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$", max_length=80)]
Count = Annotated[int, Field(ge=1)]
LaneCount = Annotated[int, Field(ge=0)]
LaneRow = Annotated[tuple[LaneCount, ...], Field(strict=False)]


class Link(FrozenModel):
    """A channel of one endpoint.

    Bandwidth is per direction and that of all lanes together. Latency is that of one short message
    between neighbours, as software sees it. `achieved_fraction` is the share of the bandwidth that
    long messages of a collective attain. `fabric` says how a library drives it.
    """

    kind: Literal["link"] = "link"
    name: Name
    title: str
    fabric: Name | None = None
    bandwidth_bytes_per_s: Positive
    latency_s: Positive
    achieved_fraction: Fraction
    energy_per_byte_j: Positive | None = None
    sources: Mapping[str, str] = Field(default_factory=dict)
    note: str | None = None


class ProtocolProfile(FrozenModel):
    """One protocol of a fabric; see `accelsim.hardware.fabric.Protocol` for its defaults."""

    start_s: Positive
    hop_s: Positive | None = None
    bandwidth_fraction: Fraction | None = None


class FabricProfile(FrozenModel):
    """How a library drives a class of links; see `accelsim.hardware.fabric.Fabric`."""

    algorithms: Annotated[tuple[Name, ...], Field(strict=False)]
    protocols: Mapping[Name, ProtocolProfile]
    copy_ratio: Positive | None = None
    in_switch_fraction: Fraction | None = None
    log_sigma: Positive | None = None
    is_tree_chained: bool = False


class FabricsProfile(FrozenModel):
    """All fabrics: ``calibration/class/fabrics.yaml``."""

    kind: Literal["fabrics"]
    fabrics: Mapping[Name, FabricProfile]
    sources: Mapping[str, str] = Field(default_factory=dict)


class TierShape(FrozenModel):
    """Which links join devices, and how.

    `dimensions` are those of a torus, first axis fastest in rank order; an axis closes to a ring
    where its extent is a multiple of `closed_multiple`. `lane_counts` are the lanes between each
    two devices of a hybrid cube mesh. `latency_s` is that of the whole path where it crosses more
    than the link itself.
    """

    link: Name
    topology: Topology
    dimensions: Annotated[tuple[Count, ...], Field(strict=False)] = ()
    closed_multiple: PositiveCount | None = None
    lane_counts: Annotated[tuple[LaneRow, ...], Field(strict=False)] = ()
    latency_s: Positive | None = None

    @model_validator(mode="after")
    def _check_topology(self) -> TierShape:
        is_torus = self.topology == "torus"
        if is_torus != bool(self.dimensions):
            raise ValueError("dimensions: a torus has them, and nothing else")
        if is_torus != (self.closed_multiple is not None):
            raise ValueError("closed_multiple: a torus has it, and nothing else")
        if (self.topology == "hybrid_cube_mesh") != bool(self.lane_counts):
            raise ValueError(
                "lane_counts: a hybrid cube mesh needs them, other topologies have none"
            )
        columns = tuple(zip(*self.lane_counts, strict=False))
        if columns != self.lane_counts:
            raise ValueError("lane_counts: expected as many lanes from b to a as from a to b")
        return self


class TierProfile(TierShape):
    """One tier of a cluster above its nodes.

    `device_count` is that of one group of the tier. `links_per_device` is 1 unless given, for
    network cards those of a node over its devices. `oversubscription` is the bandwidth that enters
    the tier from below over what it carries on: 1 where every device gets all of its own.
    """

    name: Name
    device_count: PositiveCount
    links_per_device: Positive | None = None
    oversubscription: Ratio | None = None

    @model_validator(mode="after")
    def _check_oversubscription(self) -> TierProfile:
        if (self.topology == "fat_tree") != (self.oversubscription is not None):
            raise ValueError("oversubscription: a fat tree states it, and nothing else")
        return self


class NodeProfile(FrozenModel):
    """A server: host CPUs, devices, the tier of links among them, network cards and power."""

    kind: Literal["node"] = "node"
    name: Name
    title: str
    host: str  # device name of the CPU
    host_count: PositiveCount
    device: str
    device_count: PositiveCount
    device_tier: TierShape | None = None
    host_link: Name | None = None
    network_link: Name | None = None
    network_link_count: PositiveCount | None = None
    host_memory_bytes: Positive | None = None
    max_power_w: Positive | None = None
    host_load_w: Positive | None = None  # of all but the devices, as metered in training
    sources: Mapping[str, str] = Field(default_factory=dict)
    note: str | None = None

    @model_validator(mode="after")
    def _check_links(self) -> NodeProfile:
        if (self.device_count.value > 1) != (self.device_tier is not None):
            raise ValueError(
                "device_tier: a node of several devices needs one, a node of one device has none"
            )
        if (self.network_link is None) != (self.network_link_count is None):
            raise ValueError("network_link_count: give both network_link and its count")
        return self


class ClusterProfile(FrozenModel):
    """Equal nodes under ordered tiers, nearest first.

    A first tier over the nodes' own device link takes the place of their tier: the devices of many
    nodes share one scale-up domain.
    """

    kind: Literal["cluster"] = "cluster"
    name: Name
    title: str
    node: Name
    node_count: PositiveCount
    tiers: Annotated[tuple[TierProfile, ...], Field(strict=False, min_length=1)]
    sources: Mapping[str, str] = Field(default_factory=dict)
    note: str | None = None


_KINDS: dict[str, type[Link] | type[NodeProfile] | type[ClusterProfile]] = {
    "link": Link,
    "node": NodeProfile,
    "cluster": ClusterProfile,
}


def parse_interconnect(data: Values) -> Link | NodeProfile | ClusterProfile:
    """Validate one link, node or cluster file (its ``kind`` says which).

    Raises:
        pydantic.ValidationError: With the field of each problem.
        ValueError: If ``kind`` is missing or unknown.
    """
    kind = data.get("kind")
    if str(kind) not in _KINDS:
        raise ValueError(f"kind = {kind!r} is not allowed: expected one of {', '.join(_KINDS)}")
    return _KINDS[str(kind)].model_validate(with_citations(data))
