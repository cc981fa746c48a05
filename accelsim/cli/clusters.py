"""``accelsim clusters``: list and show clusters and the nodes they repeat."""

from __future__ import annotations

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.option import argument, option

clusters = typer.Typer(
    name="clusters", help="List and show clusters of devices.", no_args_is_help=True
)


@clusters.command("list")
@with_output
def list_clusters(
    output: ResultWriter,
    device: str | None = option("Only of this device.", metavar="NAME"),
    nodes: bool = option("Also single nodes, which are clusters of one.", False),
) -> None:
    """List all clusters with their tiers of links."""
    from accelsim.catalog.clusters import cluster, cluster_names, node_names
    from accelsim.report.clusters import CLUSTER_COLUMNS, cluster_row, clusters_table

    names = (*cluster_names(), *node_names()) if nodes else cluster_names()
    rows = [cluster_row(cluster(name)) for name in names]
    if device is not None:
        from accelsim.catalog import DEVICE_GROUPS, is_of_class
        from accelsim.catalog import device as find_device

        if (word := device.lower()) in DEVICE_GROUPS:
            rows = [row for row in rows if is_of_class(find_device(row["device"]), word)]
        else:
            wanted = find_device(device).name
            rows = [row for row in rows if row["device"] == wanted]
    note = f"{len(rows)} clusters; of each tier the devices below it and a device's bandwidth"
    output.emit(rows, clusters_table, columns=CLUSTER_COLUMNS, note=note)


@clusters.command("show")
@with_output
def show_cluster(
    output: ResultWriter,
    name: str = argument("Cluster or node."),
) -> None:
    """Show one cluster: its node, its tiers, and every number with its kind and source."""
    from accelsim.catalog.clusters import cluster, cluster_sources
    from accelsim.report.clusters import cluster_document, cluster_view

    shown = cluster(name)
    document = cluster_document(shown, cluster_sources(shown))
    output.emit(document, cluster_view, rows=document["tiers"])
