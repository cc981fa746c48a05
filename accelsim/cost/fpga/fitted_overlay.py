"""Graphs on boards whose overlay has fitted rates: the layer model of whole networks, row by row of
a graph.

Images of a batch go to the cores in rounds. A core that is done takes an image of the next batch,
so that batches follow each other without gaps, and the wait of a batch for its last, part-filled
round counts for its latency alone. So does the host's work of an iteration, which is issued before
its first row: one image is the one-thread time of published tables, batches of as many images as
cores their time with all threads.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from accelsim.cost.fpga.batch_engines import engine_boards
from accelsim.cost.fpga.host_tasks import HostTask
from accelsim.cost.fpga.network import gate_fractions, host_times_s, join_networks, layer_times_s
from accelsim.cost.fpga.network_layers import layer_columns, layer_rows
from accelsim.cost.fpga.network_rates import BoardRates, boards_of_device
from accelsim.frozen import frozen
from accelsim.hardware.profile import FpgaProfile
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import CONV_KINDS, DIMENSIONS, OperatorKind

_SPATIAL = (OperatorKind.CONV, OperatorKind.CONV_TRANSPOSE, OperatorKind.POOLING)
#: Columns of a convolution's depths.
_DEPTHS = [
    i
    for i, name in enumerate(DIMENSIONS[OperatorKind.CONV])
    if name in {"in_d", "out_d", "kernel_d"}
]
#: Share of the arithmetic in convolutions from which on a network is like those that were measured.
_CONVOLUTIONAL = 0.5


@frozen(eq=False)
class NetworkTimes:
    """Times of a graph's layers on an overlay.

    Attributes:
        rows: Rows of the graph that are layers, shape (n,).
        time_s: Of each, all images of the batch, shape (n,).
        compute_s: Its arithmetic.
        memory_s: Its traffic.
        issue_s: Host work of the batch and its wait for a part-filled round, as far as that holds
            up no batch that follows.
        log_sigma: Spread of ln(measured / predicted).
    """

    rows: IntArray
    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    issue_s: float
    log_sigma: float


def network_times(
    graph: OperatorGraph, device: FpgaProfile, board: BoardRates
) -> NetworkTimes | None:
    """Times of a graph's layers; None where it is unlike the measured networks: no images, volumes,
    other arithmetic.

    Roofline of layers (Williams et al., CACM 52(4), 2009); rounds of cores are an estimate.

    Args:
        graph: Inference of a batch of images.
        device: A board with an overlay.
        board: Its rates.
    """
    images = _images(graph)
    if images is None or device.overlay is None:
        return None
    count = float(device.overlay.core_count.value)
    active = count if board.has_engines else min(images, count)  # engines run a batch, whole or not
    where = boards_of_device(device, board.host_ratio, active)
    if board.has_engines:
        where = engine_boards(where.parallelism, where.clock_hz, where.core_count)
    networks = join_networks([layer_columns(graph, images)], [HostTask.NONE], where)
    compute, traffic = layer_times_s(
        networks, board.rates, is_shared=active > 1 and not board.has_engines
    )
    single_s, each_s = host_times_s(networks, board.rates)
    rounds = max(images / active, 1.0)
    time_s = rounds * (np.maximum(compute, traffic) + board.rates.layer_s * networks.starts)
    busy_s = float(time_s.sum())
    wait_s = busy_s * (ceil(rounds) / rounds - 1.0)
    host_s = max(float(single_s[0]), images * float(each_s[0]))
    return NetworkTimes(
        rows=layer_rows(graph),
        time_s=time_s,
        compute_s=rounds * compute,
        memory_s=rounds * traffic,
        issue_s=max(host_s, min(host_s + wait_s, busy_s)),
        log_sigma=board.log_sigma(
            float(gate_fractions(networks, board.rates)[0]), is_shared=images > 1
        ),
    )


def _images(graph: OperatorGraph) -> float | None:
    """Images of a batch; None where the graph is unlike measured networks or holds batches of
    several sizes.
    """
    spatial = np.isin(graph.kind, _SPATIAL)
    windows = np.isin(graph.kind, list(CONV_KINDS))
    batches = np.unique(graph.dims[spatial, 0])
    has_depth = (graph.dims[windows][:, _DEPTHS] > 1).any()
    share = float(graph.flop[windows].sum()) / max(float(graph.flop.sum()), 1.0)
    if len(batches) != 1 or batches[0] < 1 or has_depth or share < _CONVOLUTIONAL:
        return None
    return float(batches[0])
