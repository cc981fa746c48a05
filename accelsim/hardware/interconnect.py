"""Links between devices, nodes that hold devices, and clusters of nodes.

A `Link` is an alpha-beta channel: latency plus size over bandwidth, per direction (Hockney 1994). A
node joins a host CPU, its devices, the links among them and its network cards; a cluster joins
equal nodes through a fabric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from accelsim.hardware.sourced import FrozenModel, Positive, PositiveCount
from accelsim.units import to_si

__all__ = ["Cluster", "Link", "Node", "Topology", "parse_interconnect"]

Topology = Literal[
    "all_to_all",
    "switch",
    "ring",
    "torus_2d",
    "torus_3d",
    "hybrid_cube_mesh",
    "pcie_tree",
    "point_to_point",
    "fat_tree",
]


class Link(FrozenModel):
    """A channel between two endpoints; bandwidth is per direction and per endpoint (all lanes
    together).
    """

    kind: Literal["link"] = "link"
    name: str
    title: str
    bandwidth_bytes_per_s: Positive
    latency_s: Positive | None = None
    energy_per_byte_j: Positive | None = None
    sources: Mapping[str, str] = Field(default_factory=dict)
    note: str | None = None


class Node(FrozenModel):
    """A server: host CPUs, accelerators, their links, network cards and overhead power."""

    kind: Literal["node"] = "node"
    name: str
    title: str
    host: str  # device name of the CPU
    host_count: PositiveCount
    device: str | None = None
    device_count: PositiveCount | None = None
    device_link: str | None = None  # link name between devices
    device_topology: Topology | None = None
    host_link: str | None = None
    network_link: str | None = None
    network_link_count: PositiveCount | None = None
    host_memory_bytes: Positive | None = None
    overhead_power_w: Positive | None = None  # fans, NICs, board
    max_power_w: Positive | None = None
    sources: Mapping[str, str] = Field(default_factory=dict)
    note: str | None = None


class Cluster(FrozenModel):
    """Equal nodes behind one fabric."""

    kind: Literal["cluster"] = "cluster"
    name: str
    title: str
    node: str
    node_count: PositiveCount
    fabric_link: str
    topology: Topology
    sources: Mapping[str, str] = Field(default_factory=dict)
    note: str | None = None


_KINDS: dict[str, type[Link] | type[Node] | type[Cluster]] = {
    "link": Link,
    "node": Node,
    "cluster": Cluster,
}


def parse_interconnect(data: Mapping[str, Any]) -> Link | Node | Cluster:
    """Validate one link, node or cluster file (its ``kind`` says which).

    Raises:
        pydantic.ValidationError: With the field of each problem.
        ValueError: If ``kind`` is missing or unknown.
    """
    kind = data.get("kind")
    if kind not in _KINDS:
        raise ValueError(f"kind = {kind!r} is not allowed: expected one of {', '.join(_KINDS)}")
    citations = data.get("sources", {})
    prepared = dict(to_si(data))
    return _KINDS[str(kind)].model_validate(_with_citations(prepared, citations))


def _with_citations(data: dict[str, Any], citations: Any) -> dict[str, Any]:
    if not isinstance(citations, Mapping):
        return data
    for key, item in data.items():
        if isinstance(item, Mapping) and isinstance(item.get("source"), str):
            data[key] = {**item, "source": citations.get(item["source"], item["source"])}
    return data
