"""Energy and bounds of a finished table, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from operator_cases import row

from accelsim import catalog
from accelsim.cost.assemble import EnergyRates, assemble_table, energy_rates
from accelsim.cost.power import arithmetic_energy_per_flop_j, dram_energy_per_byte_j
from accelsim.cost.table import Bound, RowCosts
from accelsim.dtype import Dtype
from accelsim.hardware.sourced import Sourced
from accelsim.workloads.operator import OperatorKind as K

#: 2 pJ a FLOP, 10 pJ a byte on chip, 100 pJ a byte of main memory, 50 W of room.
RATES = EnergyRates(np.full(len(Dtype), 2e-12), 1e-11, 1e-10, 50.0)
GRAPH = row(K.ELEMENTWISE, (1, 1, 1), read=3e9, write=1e9)


def costs(time_s=2.0, compute_s=1.0, memory_s=0.5, flop=1e12, moved=2e9) -> RowCosts:
    return RowCosts(
        *(np.array([value]) for value in (time_s, compute_s, memory_s, flop, moved)), log_sigma=0.3
    )


def energy(found=None, rates=RATES, **options) -> float:
    return float(assemble_table(GRAPH, found or costs(), rates, **options).energy_j[0])


def test_energy_is_arithmetic_operands_on_chip_and_main_memory():
    assert energy() == pytest.approx(1e12 * 2e-12 + 4e9 * 1e-11 + 2e9 * 1e-10)


def test_rows_without_time_move_nothing_on_chip():
    assert energy(costs(time_s=0.0, compute_s=0.0, memory_s=0.0, flop=0.0, moved=0.0)) == 0.0


def test_units_that_wait_draw_their_share_of_the_room():
    assert energy(active_fraction=0.2) == pytest.approx(2.24 + 0.2 * 50 * 2)


@pytest.mark.parametrize(("flop", "expected"), [(1e13, 20.24), (1e14, 100.0), (1e16, 100.0)])
def test_no_row_draws_more_than_its_room(flop, expected):
    assert energy(costs(flop=flop)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("compute_s", "memory_s", "bound"),
    [(1.2, 0.5, Bound.COMPUTE), (0.5, 1.2, Bound.MEMORY), (0.5, 0.6, Bound.OVERHEAD)],
)
def test_a_bound_is_the_longest_of_arithmetic_traffic_and_what_is_left(compute_s, memory_s, bound):
    table = assemble_table(GRAPH, costs(compute_s=compute_s, memory_s=memory_s), RATES)
    assert table.bound[0] == bound
    assert table.dispatch_s[0] == 0
    assert table.log_sigma.tolist() == [0.3]


def test_rates_are_those_of_node_memory_and_limit():
    device = catalog.device("zcu102")
    limited = device.model_copy(
        update={
            "power": device.power.model_copy(
                update={
                    "limit_w": Sourced(value=60.0, source="test"),
                    "idle_w": Sourced(value=20.0, source="test"),
                }
            )
        }
    )
    rates = energy_rates(limited, 3.0)
    assert rates.room_w == 40.0
    assert rates.per_flop_j[Dtype.INT8] == pytest.approx(
        3 * arithmetic_energy_per_flop_j(Dtype.INT8, device.process_nm.value)
    )
    assert rates.main_memory_per_byte_j == dram_energy_per_byte_j(device.memory.technology)
    unlimited = device.model_copy(
        update={"power": device.power.model_copy(update={"limit_w": None})}
    )
    assert energy_rates(unlimited, 3.0).room_w == np.inf
