"""Lookup of links, nodes and clusters, and files that do not validate."""

from __future__ import annotations

import copy

import pytest
import yaml

import accelsim
from accelsim.catalog import clusters as cluster_catalog
from accelsim.catalog.clusters import cluster, link, load_cluster_file, node
from accelsim.errors import ProfileError, UnknownNameError
from accelsim.files.datafile import data_root

CLUSTER = {
    "kind": "cluster",
    "name": "mine",
    "title": "my cluster",
    "node": "dgx-h100",
    "node_count": {"value": 4, "source": "spec"},
    "tiers": [
        {
            "name": "rail",
            "link": "roce-400g",
            "topology": "fat_tree",
            "device_count": {"value": 32, "source": "spec"},
            "links_per_device": {"value": 0.5, "source": "spec"},
            "oversubscription": {"value": 2, "source": "spec"},
        }
    ],
    "sources": {"spec": "my own"},
}


def test_what_files_refer_to_exists():
    assert len(cluster_catalog.link_names()) >= 40
    assert len(cluster_catalog.node_names()) >= 28
    assert len(cluster_catalog.cluster_names()) >= 29
    for name in cluster_catalog.node_names():
        profile = node(name)
        for wire in (profile.host_link, profile.network_link):
            assert wire is None or link(wire).name == wire


@pytest.mark.parametrize("folder", ["interconnects", "nodes", "clusters"])
def test_a_file_is_named_after_what_it_holds(folder):
    for path in (data_root() / "device_profiles" / folder).glob("*.yaml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["name"] == path.stem


@pytest.mark.parametrize("lookup", [link, node, cluster, cluster_catalog.cluster_profile])
def test_unknown_names_are_refused(lookup):
    with pytest.raises(UnknownNameError):
        lookup("nothing")


def test_clusters_are_public_and_names_are_forgiving():
    assert accelsim.cluster("DGX SuperPOD H100").name == "dgx-superpod-h100"
    assert accelsim.cluster_names() == cluster_catalog.cluster_names()
    assert accelsim.cluster("dgx-h100").node_count == 1


def written(tmp_path, entry):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(entry), encoding="utf-8")
    return path


def test_a_file_of_ones_own(tmp_path):
    mine = load_cluster_file(written(tmp_path, CLUSTER))
    inside, outside = mine.tiers
    assert inside.link_name == "nvlink4"
    assert outside.bandwidth_bytes_per_s == 50e9 * 0.5 / 2
    assert mine.device_count == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tiers": []}, "tiers"),
        ({"node_count": {"value": 5, "source": "spec"}}, "expected all 40 devices"),
        ({"kind": "node"}, "title|device"),
        ({"nodes": 3}, "nodes"),
    ],
)
def test_wrong_files_name_the_field(tmp_path, change, message):
    with pytest.raises(ProfileError, match=message):
        load_cluster_file(written(tmp_path, CLUSTER | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"oversubscription": None}, "a fat tree states it"),
        ({"oversubscription": {"value": 0.5, "source": "spec"}}, "greater than or equal to 1"),
        ({"device_count": {"value": 4, "source": "spec"}}, "at least the devices of node"),
        ({"topology": "torus"}, "a torus has them"),
        ({"dimensions": [4, 8]}, "a torus has them"),
        ({"topology": "hybrid_cube_mesh"}, "a hybrid cube mesh needs them"),
        ({"topology": "star"}, "topology"),
    ],
)
def test_wrong_tiers_name_the_field(tmp_path, change, message):
    entry = copy.deepcopy(CLUSTER)
    entry["tiers"][0] |= change
    with pytest.raises(ProfileError, match=message):
        load_cluster_file(written(tmp_path, entry))


def test_a_torus_is_as_large_as_the_product_of_its_dimensions(tmp_path):
    tier = CLUSTER["tiers"][0] | {
        "link": "nvlink4",
        "topology": "torus",
        "dimensions": [4, 4],
        "closed_multiple": {"value": 4, "source": "spec"},
    }
    del tier["oversubscription"]
    with pytest.raises(ProfileError, match="product of its dimensions"):
        load_cluster_file(written(tmp_path, CLUSTER | {"tiers": [tier]}))


def test_an_unknown_link_or_node_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match="dgx-h1000"):
        load_cluster_file(written(tmp_path, CLUSTER | {"node": "dgx-h1000"}))
