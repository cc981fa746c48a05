"""Clusters as rows and tables: a list with their tiers, and one cluster number by number."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.hardware.cluster import Cluster
from accelsim.hardware.sourced import device_numbers
from accelsim.plain import Document, Rows, Values
from accelsim.quantity import amount, say, words
from accelsim.report.devices import numbers_view
from accelsim.report.listing import Listing, heading

#: Columns every row has, whatever the clusters.
CLUSTER_COLUMNS = (
    "name",
    "title",
    "device",
    "device_count",
    "node",
    "node_count",
    "tiers",
)


def cluster_row(cluster: Cluster) -> Document:
    """The figures of one cluster, SI units; its tiers in words."""
    return {
        "name": cluster.name,
        "title": cluster.title,
        "device": cluster.device_name,
        "device_count": cluster.device_count,
        "node": cluster.node.name,
        "node_count": cluster.node_count,
        "tiers": [
            f"{tier.name} {tier.device_count} "
            + amount(tier.bandwidth_bytes_per_s, "B/s", small=False)
            for tier in cluster.tiers
        ],
    }


def clusters_table(rows: Rows) -> RenderableType:
    """Rows of `cluster_row`, one line each."""
    columns = "name | device | >devices=device_count | >nodes=node_count | ~tiers"
    return Listing.of(columns, rows)


def cluster_document(cluster: Cluster, profiles: Mapping[str, BaseModel]) -> Document:
    """A cluster for JSON: its node, its tiers, and the numbers of its files with their sources.

    Args:
        cluster: The cluster.
        profiles: Files it is made from, by what they are called in the list of numbers.
    """
    node = cluster.node
    numbers = [
        {**row, "field": f"{name}.{row['field']}"}
        for name, profile in profiles.items()
        for row in device_numbers(profile)
    ]
    return {
        **cluster_row(cluster),
        "host": node.host_name,
        "host_count": node.host_count,
        "host_memory_bytes": node.host_memory_bytes,
        "network_link": node.network_link_name,
        "network_link_count": node.network_link_count,
        "max_power_w": node.max_power_w,
        "host_power_w": node.host_power_w,
        "host_load_w": node.host_load_w,
        "tiers": [
            {
                "name": tier.name,
                "link": tier.link_name,
                "topology": tier.topology,
                "dimensions": list(tier.dimensions),
                "device_count": tier.device_count,
                "bandwidth_bytes_per_s": tier.bandwidth_bytes_per_s,
                "achieved_fraction": tier.achieved_fraction,
                "latency_s": tier.latency_s,
                "oversubscription_ratio": tier.oversubscription,
                "energy_per_byte_j": tier.energy_per_byte_j,
            }
            for tier in cluster.tiers
        ],
        "note": getattr(profiles.get(cluster.name), "note", None),
        "numbers": numbers,
    }


#: What is said of a cluster, line by line.
_HEADING = """{node_count} x {node}, {device_count} devices of {device}
a node: {host_count} x {host}, {host_memory_bytes} of memory, {network_link_count} x {network_link}
power of a node at most {max_power_w}, of all but its devices {host_power_w}
[power of all but its devices in training {host_load_w}]"""
_TIERS = (
    "tier=name | link | topology=shape | >devices=device_count | >bandwidth=bandwidth_bytes_per_s "
    "| >attained=achieved_fraction | >latency=latency_s | >over={oversubscription_ratio}:1"
)


def cluster_view(document: Values) -> RenderableType:
    """A `cluster_document` as text: heading, tiers, and numbers with their sources."""
    tiers = [
        {**tier, "shape": " x ".join(map(str, tier["dimensions"])) or words(tier["topology"])}
        for tier in document["tiers"]
    ]
    note = [Text(document["note"], style="italic")] if document["note"] else []
    return Group(
        heading(document),
        Text(say(_HEADING, document)),
        *note,
        "",
        Listing.of(_TIERS, tiers),
        "",
        numbers_view(document["numbers"]),
    )
