"""What a board's rows take under a power limit set below its own (``nvidia-smi -pl``).

The board slows the clock of its cores until its power meets the limit, with a dynamic power of
f V(f)^2 (`accelsim.cost.power.power_limited_clock_fraction`); memory keeps its own clock. It is the
model that suite `power-cap` scores on metered sweeps, row by row in place of run by run, and with
nothing fitted: on the ResNet-50 and BERT runs of that sweep (V100 and P100, You et al., NSDI 2023)
the time under a limit over that without is 2 to 6 % off in the median, the power 2 to 9 %.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.power import power_limited_clock_fraction
from accelsim.cost.table import CostTable
from accelsim.frozen import frozen


@frozen
class PowerLimit:
    """A limit set on a board.

    Attributes:
        limit_w: The limit, W, > static_w.
        own_w: The board's own, W, >= limit_w.
        static_w: Power of the board without work, W.
    """

    limit_w: float
    own_w: float
    static_w: float


def under_limit(table: CostTable, limit: PowerLimit) -> CostTable:
    """Rows of a board under a limit.

    Clock: Chandrakasan et al., JSSC 27(4), 1992. Estimate: arithmetic and a kernel's own latency go
    with the clock, traffic to memory does not.

    Args:
        table: Rows without the limit.
        limit: The limit.

    Returns:
        The rows, none of them faster, none of them above the limit.
    """
    free_s = np.maximum(table.time_s, table.energy_j / (limit.own_w - limit.static_w))
    dynamic_w = table.energy_j / np.maximum(free_s, 1e-15)
    clock = power_limited_clock_fraction(dynamic_w, limit.static_w, limit.limit_w)
    busy_s = np.maximum(table.compute_s, table.memory_s)
    latency_s = np.maximum(table.time_s - busy_s, 0.0)
    compute_s = table.compute_s / clock
    slowed_s = np.maximum(compute_s, table.memory_s) + latency_s / clock
    slowed_s = np.maximum(slowed_s, free_s)
    energy_j = np.minimum(table.energy_j, (limit.limit_w - limit.static_w) * slowed_s)
    return replace(table, time_s=slowed_s, compute_s=compute_s, energy_j=energy_j)
