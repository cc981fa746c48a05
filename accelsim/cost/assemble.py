"""From formulas' row costs to a finished table: energy, and the power room that caps it.

Dynamic energy of a row is its executed FLOP times the arithmetic unit's energy and the class's
overhead for fetching, decoding and moving operands, plus its operands once through on-chip memory,
plus its main-memory bytes, plus what active units draw while they wait. It never exceeds what the
power limit leaves over idle power for the row's time.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.idle import idle_power_w
from accelsim.cost.power import (
    arithmetic_energy_table_j,
    dram_energy_per_byte_j,
    sram_energy_per_byte_j,
)
from accelsim.cost.table import CostTable, ParameterTier, RowCosts, bound_of
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.graph import FloatArray, OperatorGraph

#: Bank size whose access energy stands for on-chip traffic: the largest of the two published
#: tables.
_BANK_BYTES = 1e6


@frozen(eq=False)
class EnergyRates:
    """Dynamic energy per unit of work.

    Attributes:
        per_flop_j: By `Dtype` code, class overhead included.
        on_chip_per_byte_j: Operand bytes through on-chip memory.
        main_memory_per_byte_j: Bytes to and from main memory.
        room_w: Power limit less idle power; infinite where unknown.
    """

    per_flop_j: FloatArray
    on_chip_per_byte_j: float
    main_memory_per_byte_j: float
    room_w: float


def energy_rates(device: DeviceProfile, overhead_ratio: float) -> EnergyRates:
    """Energy rates of a profile.

    Action counts times energy per action: Wu et al., ICCAD 2019 (Accelergy).

    Args:
        device: Its node, main-memory technology and power.
        overhead_ratio: Energy of an executed operation over that of its adder and multiplier, >= 1.
    """
    node = None if device.process_nm is None else device.process_nm.value
    limit, idle = device.power.limit_w, idle_power_w(device)
    room = np.inf if limit is None or idle is None else max(limit.value - idle, 0.0)
    return EnergyRates(
        per_flop_j=arithmetic_energy_table_j(node) * overhead_ratio,
        on_chip_per_byte_j=float(sram_energy_per_byte_j(_BANK_BYTES, node)),
        main_memory_per_byte_j=dram_energy_per_byte_j(device.memory.technology),
        room_w=float(room) or np.inf,
    )


def assemble_table(
    graph: OperatorGraph,
    costs: RowCosts,
    rates: EnergyRates,
    *,
    active_fraction: float = 0.0,
    tier: ParameterTier = ParameterTier.SPEC,
) -> CostTable:
    """A finished table; the host issues nothing here (a CPU issues its own rows, compiled devices
    run alone).

    Action counts times energy per action: Wu et al., ICCAD 2019 (Accelergy).

    Args:
        graph: Operators.
        costs: Their row costs, in graph order.
        rates: Energy per unit of work.
        active_fraction: Share of the power room that active but stalled units draw, 0 to 1.
        tier: Where the parameters come from.
    """
    energy = _rated_energy_j(graph, costs, rates)
    if np.isfinite(rates.room_w):
        room_j = rates.room_w * costs.time_s
        energy = np.minimum(energy + active_fraction * room_j, room_j)
    overhead = costs.time_s - np.maximum(costs.compute_s, costs.memory_s)
    count = len(graph)
    return CostTable(
        time_s=costs.time_s,
        compute_s=costs.compute_s,
        memory_s=costs.memory_s,
        dispatch_s=np.zeros(count),
        energy_j=energy,
        flop=costs.flop,
        bytes=costs.bytes,
        bound=bound_of(costs.compute_s, costs.memory_s, overhead),
        log_sigma=np.broadcast_to(np.asarray(costs.log_sigma, dtype=np.float64), (count,)).copy(),
        tier=tier,
    )


def _rated_energy_j(graph: OperatorGraph, costs: RowCosts, rates: EnergyRates) -> FloatArray:
    """Dynamic energy: arithmetic, on-chip and main-memory traffic.

    Horowitz, ISSCC 2014, gives energies per operation and access; the overhead is the class's.
    """
    on_chip = np.where(costs.time_s > 0, graph.bytes, 0.0)
    energy: FloatArray = (
        rates.per_flop_j[graph.dtype] * costs.flop + rates.main_memory_per_byte_j * costs.bytes
    )
    return energy + rates.on_chip_per_byte_j * on_chip
