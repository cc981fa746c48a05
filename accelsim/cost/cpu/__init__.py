"""Cost model of CPUs: `cost_cpu` and its parameters."""

from accelsim.cost.cpu.machine import CpuMachine, cpu_machine
from accelsim.cost.cpu.model import cost_cpu, supported_rows_cpu
from accelsim.cost.cpu.parameters import CpuParameters, cpu_parameters

__all__ = [
    "CpuMachine",
    "CpuParameters",
    "cost_cpu",
    "cpu_machine",
    "cpu_parameters",
    "supported_rows_cpu",
]
