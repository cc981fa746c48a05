"""Kernels measured in a loop: operands that stay in the last-level cache come from it.

Kernel tables time one operator again and again, on one set of operands or a few in turn. What the
cache holds between two uses is then read from it and not from memory, which a model of many layers
never sees. Fits to such tables and scores on them use this condition (`LoopConditions`); estimates
of whole models do not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.gpu.machine import GpuMachine, cache_bytes_per_s, join_times
from accelsim.cost.table import RowCosts
from accelsim.workloads.graph import FloatArray

#: Where and how steeply the cache's hits end, against its capacity: GEMM tables of an L40S and an
#: RTX PRO 6000 (96 and 128 MiB of cache), whose times step where five copies of the weights stop
#: fitting.
_EDGE, _STEEPNESS = 1.02, 40.0


def cached_share(cycle_bytes: FloatArray, cache_bytes: float) -> FloatArray:
    """Share of the traffic that the cache serves when the same operands come again, 0 to 1, shape
    (r,).

    A cyclic access over more than the cache's capacity finds nothing in a cache that drops the
    oldest line.

    Least-recently-used caches thrash under cyclic access (Mattson et al., IBM Systems Journal 9(2),
    1970: stack distances). Estimate: edge and steepness are fitted to two boards.

    Args:
        cycle_bytes: Bytes touched from one use of the operands to the next, shape (r,).
        cache_bytes: Capacity.
    """
    if cache_bytes <= 0:
        return np.zeros_like(cycle_bytes)
    over = np.minimum(cycle_bytes / (_EDGE * cache_bytes), 1e3)
    return 1.0 / (1.0 + over**_STEEPNESS)


def with_cached_operands(costs: RowCosts, cycle_bytes: FloatArray, machine: GpuMachine) -> RowCosts:
    """Costs of the second and later passes over the same operands.

    Estimate: hits move at the cache's rate, `cache_bytes_per_s`.

    Args:
        costs: Costs with all traffic to memory, r rows.
        cycle_bytes: Bytes touched from one use of a row's operands to the next, shape (r,).
        machine: GPU.
    """
    share = cached_share(cycle_bytes, machine.l2_bytes)
    cache_rate = max(cache_bytes_per_s(machine), machine.stream_bytes_per_s)
    relief = 1.0 - machine.stream_bytes_per_s / cache_rate
    memory_s = costs.memory_s * (1.0 - share * relief)
    exponent = machine.parameters.gemm.overlap_exponent
    gained = join_times(costs.compute_s, costs.memory_s, exponent) - join_times(
        costs.compute_s, memory_s, exponent
    )
    time_s = np.maximum(costs.time_s - gained, np.maximum(costs.compute_s, memory_s))
    return replace(costs, time_s=time_s, memory_s=memory_s)
