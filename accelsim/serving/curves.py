"""Power and cache use of a fleet while it serves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.serving.replicas.fleet import ReplicaFleet
from accelsim.simulation.timeline import StepFunction
from accelsim.workloads.graph import FloatArray

#: Parts that a run's time is cut into.
_PARTS = 500


def load_curves(
    fleet: ReplicaFleet, start_s: float, idle_w: Sequence[float | None]
) -> dict[str, StepFunction]:
    """Mean power of all replicas, where it is known, and the share of all cache blocks in use.

    Estimate: the power is that of the steps, and of each replica that is paid and in no step its
    idle power. Its integral is the energy of the run.

    Args:
        fleet: A fleet that has run.
        start_s: Where the run begins.
        idle_w: Idle power of each replica; None where unknown.
    """
    edges_s = np.linspace(start_s, max(fleet.now_s, start_s + 1e-12), _PARTS + 1)
    part_s = edges_s[1] - edges_s[0]
    energy_j, block_s = np.zeros(_PARTS), np.zeros(_PARTS)
    for index, replica in enumerate(fleet.replicas):
        busy_s, joules, blocks = replica.tally.history.between(edges_s)
        waits_s = paid_s(fleet, index, edges_s) - busy_s
        energy_j += joules + (idle_w[index] or 0.0) * waits_s
        block_s += blocks
    curves = {}
    if None not in idle_w:
        curves["power_w"] = StepFunction(edges_s[:-1], energy_j / part_s)
    capacity = sum(replica.capacity_blocks for replica in fleet.replicas)
    if capacity:
        curves["cache_fraction"] = StepFunction(edges_s[:-1], block_s / part_s / capacity)
    return curves


def paid_s(fleet: ReplicaFleet, index: int, edges_s: FloatArray) -> FloatArray:
    """Seconds of each part of a run that a replica is paid for.

    Args:
        fleet: A fleet that has run.
        index: The replica.
        edges_s: Where n parts begin and end, ascending, shape (n + 1,).
    """
    span_s = np.zeros(len(edges_s) - 1)
    for begun_s, until_s in fleet.paid_s[index]:
        inside = np.clip(edges_s, begun_s, fleet.now_s if until_s is None else until_s)
        span_s += np.diff(inside)
    return span_s
