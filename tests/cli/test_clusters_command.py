"""``accelsim clusters``."""

from __future__ import annotations

import pytest

from accelsim.catalog.clusters import cluster_names, node_names


@pytest.mark.parametrize(
    "command",
    [
        ("clusters", "list"),
        ("clusters", "list", "--nodes"),
        ("clusters", "show", "tpu-v5p-pod"),
        ("clusters", "show", "aws-g6-48xlarge"),
    ],
)
@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
@pytest.mark.parametrize("columns", ["80", "100"])
def test_every_listing_has_every_format(run, monkeypatch, command, output_format, columns):
    monkeypatch.setenv("COLUMNS", columns)
    ran = run(*command, "--format", output_format)
    assert ran.code == 0
    if output_format == "json":
        assert ran.json
    elif output_format == "csv":
        assert ran.rows
    else:
        assert max(map(len, ran.out.splitlines())) <= int(columns)


def test_all_clusters_are_listed(run):
    rows = run("clusters", "list", "--format", "json").json
    assert [row["name"] for row in rows] == list(cluster_names())
    with_nodes = run("clusters", "list", "--nodes", "--format", "json").json
    assert {row["name"] for row in with_nodes} == {*cluster_names(), *node_names()}


def test_clusters_of_one_device(run, refused):
    rows = run("clusters", "list", "--device", "h100", "--format", "json").json
    assert rows
    assert {row["device"] for row in rows} == {"h100-sxm-80gb"}
    assert "did you mean" in refused("clusters", "list", "--device", "h1000").lower()
    none = run("clusters", "list", "--device", "zcu104", "--format", "csv")
    assert none.out.startswith("name,title,device,device_count,")


def test_a_cluster_shows_its_tiers_and_each_number_with_its_source(run):
    document = run("clusters", "show", "DGX_SuperPOD_H100", "--format", "json").json
    tiers = {tier["name"]: tier for tier in document["tiers"]}
    assert list(tiers) == ["node", "rail", "spine"]
    assert tiers["node"]["bandwidth_bytes_per_s"] == 450e9
    assert tiers["rail"]["device_count"] == 256
    assert document["host_power_w"] == 10_200 - 8 * 700
    numbers = {row["field"]: row for row in document["numbers"]}
    assert numbers["dgx-superpod-h100.node_count"]["value"] == 127
    assert all(row["source"] and row["kind"] for row in numbers.values())
    text = run("clusters", "show", "dgx-superpod-h100").out
    assert "2.70 µs" in text
    assert "sources" in text


def test_an_unknown_cluster_is_refused_with_what_is_near(refused):
    assert "dgx-superpod-h100" in refused("clusters", "show", "dgx-superpod-h10")
