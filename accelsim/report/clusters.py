"""Clusters as rows and tables: a list with their tiers, and one cluster number by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.hardware.cluster import Cluster, Tier
from accelsim.plain import Document, Values
from accelsim.report.devices import device_numbers, numbers_view
from accelsim.report.listing import Listing
from accelsim.report.quantity import amount, decimal, duration, percent, whole

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
        "tiers": [_tier_words(tier) for tier in cluster.tiers],
    }


def _tier_words(tier: Tier) -> str:
    bandwidth = amount(tier.bandwidth_bytes_per_s, "B/s", small=False)
    return f"{tier.name} {tier.device_count} {bandwidth}"


def clusters_table(rows: Sequence[Values]) -> RenderableType:
    """Rows of `cluster_row`, one line each."""
    cells = [
        (
            row["name"],
            row["device"],
            whole(row["device_count"]),
            whole(row["node_count"]),
            ", ".join(row["tiers"]),
        )
        for row in rows
    ]
    return Listing.of("name | device | >devices | >nodes | ~tiers", cells, "nodes")


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
        "tiers": [_tier_row(tier) for tier in cluster.tiers],
        "note": getattr(profiles.get(cluster.name), "note", None),
        "numbers": numbers,
    }


def _tier_row(tier: Tier) -> Document:
    return {
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


def cluster_view(document: Values) -> RenderableType:
    """A `cluster_document` as text: heading, tiers, and numbers with their sources."""
    return Group(
        *_heading(document),
        _tiers_table(document["tiers"]),
        Text(""),
        numbers_view(document["numbers"]),
    )


def _heading(document: Values) -> list[Text]:
    size = f"{document['node_count']:,} x {document['node']}, {document['device_count']:,} devices"
    host = f"{document['host_count']} x {document['host']}"
    memory = amount(document["host_memory_bytes"], "B", small=False)
    cards = f"{document['network_link_count']} x {document['network_link']}"
    power = amount(document["max_power_w"], "W")
    host_power = amount(document["host_power_w"], "W")
    lines = [
        Text(f"{document['title']} ({document['name']})", style="bold cyan"),
        Text(f"{size} of {document['device']}"),
        Text(f"a node: {host}, {memory} of memory, {cards}"),
        Text(f"power of a node at most {power}, of all but its devices {host_power}"),
    ]
    if document["note"]:
        lines.append(Text(document["note"], style="italic"))
    return [*lines, Text("")]


def _tiers_table(tiers: Sequence[Values]) -> RenderableType:
    titles = "tier | link | topology | >devices | >bandwidth | >attained | >latency | >over"
    return Listing.of(titles, [_tier_cells(tier) for tier in tiers], "over | attained")


def _tier_cells(tier: Values) -> list[str]:
    shape = " x ".join(str(extent) for extent in tier["dimensions"])
    return [
        tier["name"],
        tier["link"],
        shape or tier["topology"].replace("_", " "),
        whole(tier["device_count"]),
        amount(tier["bandwidth_bytes_per_s"], "B/s", small=False),
        percent(tier["achieved_fraction"]),
        duration(tier["latency_s"]),
        f"{decimal(tier['oversubscription_ratio'])}:1",
    ]
