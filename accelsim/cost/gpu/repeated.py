"""Kernels measured in a loop: operands that fit in the last-level cache come from it.

Kernel tables time one layer again and again. Weights, keys and values that the cache holds are then read from it and not
from memory, which a model of many layers never sees. Fits to such tables and scores on them use this condition
(`GpuParameters.is_repeated`); estimates of whole models do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.gpu.machine import GpuMachine, join_times
from accelsim.cost.table import RowCosts
from accelsim.workloads.graph import FloatArray

if TYPE_CHECKING:
    from accelsim.cost.gpu.parameters import GpuParameters

__all__ = ["cached_share", "with_cached_operands"]

#: Bytes the cache gives one SM per clock, capacity that a cyclic access can use, and steepness of its edge: fit to the
#: expert layers of an L40S (96 MB of cache), whose times step fivefold where their weights stop fitting.
_BYTES_PER_SM_CLOCK, _USABLE_FRACTION, _STEEPNESS = 16.0, 0.7, 6.0


def cached_share(moved_bytes: FloatArray, cache_bytes: float) -> FloatArray:
    """Share of the traffic that the cache serves when the same operands come again, 0 to 1, shape (r,).

    A cyclic access over more than the cache's capacity finds nothing in a cache that drops the oldest line; hashing and
    partial reuse soften the edge.

    Args:
        moved_bytes: Bytes of one pass, shape (r,).
        cache_bytes: Capacity.
    """
    if cache_bytes <= 0:
        return np.zeros_like(moved_bytes)
    share: FloatArray = 1.0 / (1.0 + (moved_bytes / (_USABLE_FRACTION * cache_bytes)) ** _STEEPNESS)
    return share


def with_cached_operands(costs: RowCosts, machine: GpuMachine, parameters: GpuParameters) -> RowCosts:
    """Costs of the second and later passes over the same operands.

    Args:
        costs: Costs with all traffic to memory.
        machine: GPU.
        parameters: Class-wide or fitted.
    """
    share = cached_share(costs.bytes, machine.l2_bytes)
    cache_rate = max(machine.sm_count * machine.clock_hz * _BYTES_PER_SM_CLOCK, machine.stream_bytes_per_s)
    relief = 1.0 - machine.stream_bytes_per_s / cache_rate
    memory_s = costs.memory_s * (1.0 - share * relief)
    exponent = parameters.overlap_exponent
    gained = join_times(costs.compute_s, costs.memory_s, exponent) - join_times(costs.compute_s, memory_s, exponent)
    time_s = np.maximum(costs.time_s - gained, np.maximum(costs.compute_s, memory_s))
    return replace(costs, time_s=time_s, memory_s=memory_s)
