"""Servers of devices that no node has: links of their own, hosts of their time, refusals."""

import pytest

import accelsim
from accelsim import catalog
from accelsim.catalog.clusters import cluster, joined, node, node_names, server
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.hardware.profile import AsicProfile, GpuProfile

LOOSE = ("apple-m1", "jetson-agx-orin-64gb", "cerebras-wse-3", "epyc-7763")


def boards():
    """Devices with a link to a host that are no whole node."""
    for name in catalog.device_names():
        profile = catalog.device(name)
        is_board = isinstance(profile, GpuProfile | AsicProfile) and profile.scope != "node"
        if is_board and profile.host_link is not None:
            yield profile


def test_each_board_has_a_server_of_its_own_links():
    for profile in boards():
        found = server(profile.name)
        own = [profile.host_link, profile.peer_link]
        rates = {link.bandwidth_bytes_per_s.value for link in own if link is not None}
        in_node = [tier for tier in found.tiers if tier.name != "network"]
        assert {tier.bandwidth_bytes_per_s for tier in in_node} <= rates, profile.name
        assert found.device_name == profile.name
        assert found.node.device_count == in_node[-1].device_count
        assert profile.name in found.note
        assert found.warnings == (found.note,)


@pytest.mark.parametrize(
    ("name", "tiers"),
    [
        ("rtx-4090", [("node", "pcie4-x16", 8)]),
        ("a40", [("bridge", "nvlink3-bridge-ga102", 2), ("node", "pcie4-x16", 8)]),
        ("h200-nvl-141gb", [("bridge", "nvlink4", 4), ("node", "pcie5-x16", 8)]),
        ("gh200-96gb", [("node", "nvlink4", 8)]),
        ("mi325x", [("node", "infinity-fabric-mi300x", 8)]),
        ("gaudi2", [("node", "gaudi2-roce", 8)]),
        ("trainium2", [("node", "neuronlink-v2", 16)]),
    ],
)
def test_bridges_join_pairs_and_boards_join_all(name, tiers):
    found = server(name).tiers
    assert [(tier.name, tier.link_name, tier.device_count) for tier in found[:-1]] == tiers
    assert found[-1].name == "network"


def test_a_catalogued_node_comes_first():
    assert joined(catalog.device("h100-sxm-80gb"), 8).node.name in node_names()
    assert joined(catalog.device("a10"), 3).node.name == "a10-server"
    assert cluster("a10-server") == server("a10")


def test_newer_boards_stand_in_newer_servers():
    def year(name):
        base = server(name).note.rsplit(" as ", 1)[1].split()[0]
        return catalog.device(node(base).device).year

    assert year("titan-x-pascal") < year("t4") + 1 <= year("rtx-5090")


@pytest.mark.parametrize("name", LOOSE)
def test_what_fits_no_slot_is_refused(name):
    with pytest.raises(InvalidValueError, match="slot"):
        server(name)


def test_a_server_of_nothing_is_unknown():
    with pytest.raises(UnknownNameError, match="cluster"):
        cluster("rtx-9999-server")


@pytest.mark.parametrize("name", ["rtx-4090", "a40", "a10", "a100-pcie-80gb", "h100-pcie-80gb"])
def test_boards_in_slots_train_and_say_so(name):
    asked = {"seq_len": 256, "plan": "lora_rank=8"}
    one, two = (accelsim.train("llama-3.2-1b", device=name, gpus=gpus, **asked) for gpus in (1, 2))
    assert two.cluster == f"{name}-server"
    assert two.node_count == 1
    assert any(f"no node of the catalogue has {name}" in words for words in two.warnings)
    assert two.samples_per_s > one.samples_per_s


def test_slower_links_take_longer():
    """Gradients of two cards cross a bridge of 56 GB/s or a slot of 32 GB/s."""
    asked = {"model": "gpt2", "seq_len": 512}
    times = {
        gpus: accelsim.train(asked["model"], device="rtx-3090", gpus=gpus, seq_len=512).time_s
        for gpus in (2, 4)
    }
    assert times[2]["data"] < times[4]["data"]
