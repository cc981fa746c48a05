"""Cost model of systolic arrays and other matrix ASICs: `cost_systolic`, its pure cycle functions
and parameters.
"""

from accelsim.cost.systolic.cycles import (
    memory_traffic_bytes,
    pipelined_cycles,
    row_stationary_active_pes,
    systolic_cycles,
)
from accelsim.cost.systolic.machine import (
    AsicMachine,
    SystolicParameters,
    asic_machine,
    sparse_parameters,
    systolic_parameters,
)
from accelsim.cost.systolic.model import cost_systolic, supported_rows_systolic

__all__ = [
    "AsicMachine",
    "SystolicParameters",
    "asic_machine",
    "cost_systolic",
    "memory_traffic_bytes",
    "pipelined_cycles",
    "row_stationary_active_pes",
    "sparse_parameters",
    "supported_rows_systolic",
    "systolic_cycles",
    "systolic_parameters",
]
