"""Overlays whose cores are engines of one batch: on Alveo cards, each with a memory port of its
own, and Versal.

All engines take a layer of their image at once (AMD PG367, DPUCAHX8H; PG389, DPUCVDX8G), so that an
image takes its layers' time over the engines. A port's bandwidth is stated against 64 bytes per
cycle; what of it weights and maps reach is fitted (`tools.scoreboard.dpu_engines`), as is what
the host adds.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.fpga.network import DpuBoards, DpuNetworks, DpuRates, core_times_s, host_times_s
from accelsim.workloads.graph import FloatArray

#: Width of a port that fitted fractions refer to.
PORT_BYTES_PER_CYCLE = 64.0


def engine_boards(
    parallelism: FloatArray, clock_hz: FloatArray, engine_count: FloatArray
) -> DpuBoards:
    """Boards of batch engines, shape (k,).

    Args:
        parallelism: (PP, ICP, OCP) of an engine, shape (k, 3).
        clock_hz: Clock of the engines.
        engine_count: Engines.
    """
    return DpuBoards(
        parallelism=parallelism,
        clock_hz=clock_hz,
        core_count=engine_count,
        memory_bytes_per_s=PORT_BYTES_PER_CYCLE * clock_hz,
        host_ratio=np.ones(len(clock_hz)),
    )


def engine_times_s(networks: DpuNetworks, rates: DpuRates) -> tuple[FloatArray, FloatArray]:
    """Time per image of one thread, which feeds all engines, and with all threads busy; s, shape
    (k,) each.

    Estimate: its form is chosen to fit the throughput AMD publishes for its boards.

    Args:
        networks: Network runs.
        rates: Of the overlay.
    """
    engines = core_times_s(networks, rates) / networks.boards.core_count
    single_s, all_threads = host_times_s(networks, rates)
    return engines + single_s, np.maximum(engines, all_threads)
