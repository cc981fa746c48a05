"""Cost model of GPUs: `cost_gpu` and its parameters."""

from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.gpu.model import GPU, cost_gpu

__all__ = ["GPU", "GpuMachine", "GpuParameters", "cost_gpu"]
