"""Cost model of GPUs: `cost_gpu` and its parameters."""

from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.gpu.model import GPU, cost_gpu
from accelsim.cost.gpu.parameters import GpuParameters

__all__ = ["GPU", "GpuMachine", "GpuParameters", "cost_gpu"]
