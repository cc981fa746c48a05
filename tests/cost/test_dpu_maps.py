"""Traffic of a network's maps on a DPU: joined maps in short pieces, activations of two layers,
published networks.
"""

import numpy as np
import pytest

from accelsim.catalog.workloads import workload
from accelsim.cost.fpga.host_tasks import HostTask, host_work
from accelsim.cost.fpga.network import (
    DpuBoards,
    DpuRates,
    gate_fractions,
    join_networks,
    thread_times_s,
)
from accelsim.cost.fpga.network_layers import DEPTHWISE, GATE, layer_columns, network_flop
from accelsim.dtype import PRECISIONS
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.model import PassShape
from tools.scoreboard.dpu_networks import known_network


def joined_maps(*channels, side=32, activation="relu"):
    """Convolutions of one map, joined along their channels, with a pooling of the first and a
    convolution of all.
    """
    b = GraphBuilder(PRECISIONS["int8"])
    x = b.conv(b.input(1, 3, side, side), 64, 3)
    parts = [b.activation(b.batch_norm(b.conv(x, count, 3)), activation) for count in channels]
    b.pool(parts[0], 2)
    b.conv(b.concat(parts), 64, 1)
    return b.build()


def columns_of(graph):
    return layer_columns(graph)


def boards(count=1):
    ones = np.ones(count)
    return DpuBoards(
        np.tile([8.0, 16.0, 16.0], (count, 1)),
        300e6 * ones,
        ones,
        19.2e9 * ones,
        ones,
    )


def test_maps_that_are_not_joined_move_their_own_bytes():
    b = GraphBuilder(PRECISIONS["int8"])
    b.conv(b.conv(b.input(1, 3, 32, 32), 16, 3), 16, 3)
    c = columns_of(b.build())
    assert c.write_bytes.tolist() == [16 * 1024, 16 * 1024]


def test_maps_of_different_sizes_are_joined_end_to_end():
    b = GraphBuilder(PRECISIONS["int8"])
    x = b.conv(b.input(1, 3, 32, 32), 8, 3)
    y = b.conv(x, 8, 3, stride=2)
    b.copy(x, y, shape=(1, 8 * (1024 + 256)), name="concat")
    assert columns_of(b.build()).write_bytes[:2].tolist() == [8 * 1024, 8 * 256]


def test_a_self_gated_activation_is_two_layers_of_three_reads_and_two_writes():
    graph = joined_maps(64, 64, activation="silu")
    c = columns_of(graph)
    gate = int(np.flatnonzero(c.kind == GATE)[0])
    elements = 64 * 1024
    assert (c.starts[gate], c.rows[gate]) == (2, 2 * elements)
    assert (c.write_bytes[gate], c.map_bytes[gate]) == (2 * elements, 5 * elements)
    assert (c.starts[c.kind <= DEPTHWISE] == 1).all()


def test_a_hard_swish_is_one_layer():
    c = columns_of(joined_maps(64, 64, activation="hardswish"))
    assert (c.starts == 1).all()
    assert (c.kind == GATE).sum() == 2


def test_each_start_takes_its_time():
    c = columns_of(joined_maps(64, 64, activation="silu"))
    slow, fast = DpuRates(layer_s=1.0), DpuRates(layer_s=1e-9)
    run = join_networks([c], [HostTask.NONE], boards())
    assert thread_times_s(run, slow)[0] - thread_times_s(run, fast)[0] == pytest.approx(
        c.starts.sum()
    )


def test_share_of_gates():
    names = ("resnet-50", "efficientnet-b0", "mobilenet-v3-small")
    graphs = [
        workload(name).lower(PassShape(image_size=224), PRECISIONS["int8"]).graph for name in names
    ]
    runs = join_networks([layer_columns(g) for g in graphs], [HostTask.NONE] * 3, boards(3))
    plain, gated, small = gate_fractions(runs, DpuRates())
    assert plain == 0
    assert 0.3 < gated < 0.7
    assert 0.05 < small < gated


# Vitis AI model zoo 1.3, networks' sources: operations in the names; the second raises to half of
# each level's channels.
@pytest.mark.parametrize(
    ("name", "side", "gop"),
    [
        ("pt_unet_chaos-CT_512_512_23.3G", 512, 23.3),
        ("tf2_2d-unet_nuclei_128_128_5.31G", 128, 5.31),
    ],
)
def test_both_u_nets_have_their_published_operations_unpruned(name, side, gop):
    known = known_network(name, side, side, gop * 1e9)
    assert network_flop(known.layers) / 1e9 == pytest.approx(gop, rel=0.045)


def test_the_host_writes_three_bytes_per_pixel_beside_the_scores():
    known = known_network("pt_unet_chaos-CT_512_512_23.3G", 512, 512, 23.3e9)
    assert host_work(known.layers, known.task).amount[0] == 512 * 512 * (2 + 3)
