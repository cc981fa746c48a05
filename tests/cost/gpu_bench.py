"""A GPU with round numbers, for times that are worked out by hand.

Ten SMs at 1 GHz, 1 TFLOP/s in every format, 100 GB/s, 1 MB of L2, operands delivered at once: what
is left is the formula.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gpu_rows import gpu, graph

from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.gpu.model import GPU
from accelsim.cost.gpu.parameters import GpuParameters
from accelsim.cost.table import RowCosts
from accelsim.workloads.dtype import Dtype
from accelsim.workloads.operator import Phase

IDEAL = {
    "vector_efficiency": 1.0,
    "batched_ratio": 1.0,
    "operand_exposed_fraction": 0.0,
    "prologue_k": 0.0,
    "lone_tile_loss": 0.0,
    "kernel_latency_s": 1e-6,
    "contraction_latency_s": 2e-6,
    "softmax_efficiency": 0.8,
    "norm_efficiency": 0.5,
    "reduction_columns": 64.0,
    "gather_overhead_bytes": 32.0,
    "special_efficiency": 0.5,
    "attention_efficiency": 0.5,
    "attention_backward_efficiency": 0.8,
    "recurrent_step_s": 5e-6,
    "overlap_exponent": 1.0,
    "host_link_efficiency": 0.5,
    "host_copy_latency_s": 1e-5,
}
BENCH = {
    "sm_count": 10.0,
    "clock_hz": 1e9,
    "contraction_flop_per_s": np.full(len(Dtype), 1e12),
    "uses_matrix_cores": np.zeros(len(Dtype), dtype=bool),
    "vector_flop_per_s": 1e12,
    "bandwidth_bytes_per_s": 1e11,
    "stream_bytes_per_s": 1e11,
    "l2_bytes": 1e6,
    "vector_operand_bytes_per_s": 1e30,
    "matrix_operand_bytes_per_s": 1e30,
    "matrix_efficiency": 1.0,
    "limit_w": None,
    "has_page_walks": False,
    "plain_tiles": ((128, 128),),
    "batched_tiles": ((128, 128),),
}
ONE_TILE = ((128, 128),)


def parameters(**changes) -> GpuParameters:
    return replace(GpuParameters.class_wide(), **(IDEAL | changes))


def bench(**changes) -> GpuMachine:
    machine = GpuMachine.of(gpu("v100-pcie-32gb"), GpuParameters.class_wide())
    return replace(machine, **(BENCH | changes))


def costs(kind, dims, flop, moved, *, machine=None, used=None, phase=Phase.FORWARD) -> RowCosts:
    rows = graph([(kind, dims, flop, moved)], phase=phase)
    return GPU.evaluate(rows, machine or bench(), used or parameters(), "bench")


def time_s(kind, dims, flop=0.0, moved=0.0, **options) -> float:
    return float(costs(kind, dims, flop, moved, **options).time_s[0])
