"""A GPU with round numbers, for times that are worked out by hand.

Ten SMs at 1 GHz, 1 TFLOP/s in every format, 100 GB/s, 1 MB of L2, operands delivered at once: what
is left is the formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from gpu_rows import gpu, graph

from accelsim.cost.gpu.generation import generation_of
from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.gpu.model import GPU
from accelsim.cost.table import RowCosts
from accelsim.dtype import Dtype
from accelsim.workloads.operator import Phase

IDEAL = {
    "gemm.vector_efficiency": 1.0,
    "gemm.batched_ratio": 1.0,
    "gemm.operand_exposed_fraction": 0.0,
    "gemm.prologue_k": 0.0,
    "gemm.lone_tile_loss": 0.0,
    "memory.kernel_latency_s": 1e-6,
    "gemm.latency_s": 2e-6,
    "memory.softmax_efficiency": 0.8,
    "memory.long_softmax_ratio": 0.5,
    "memory.norm_efficiency": 0.5,
    "memory.special_efficiency": 0.5,
    "attention.efficiency": 0.5,
    "attention.backward_efficiency": 0.8,
    "recurrent.step_s": 5e-6,
    "gemm.overlap_exponent": 1.0,
    "host.link_efficiency": 0.5,
    "host.copy_latency_s": 1e-5,
}
BENCH = {
    "sm_count": 10.0,
    "clock_hz": 1e9,
    "contraction_flop_per_s": np.full(len(Dtype), 1e12),
    "fed_flop_per_s": np.full(len(Dtype), 1e12),
    "uses_matrix_cores": np.zeros(len(Dtype), dtype=bool),
    "vector_flop_per_s": 1e12,
    "bandwidth_bytes_per_s": 1e11,
    "stream_bytes_per_s": 1e11,
    "l2_bytes": 1e6,
    "vector_operand_bytes_per_s": 1e30,
    "matrix_operand_bytes_per_s": 1e30,
    "product_efficiency": np.ones(len(Dtype)),
    "limit_w": None,
    "has_page_walks": False,
    "plain_tiles": ((128, 128),),
}
TRAITS = {"has_flash_attention": True, "batched_tiles": ((128, 128),)}
ONE_TILE = ((128, 128),)
#: One tile of 128 x 128 x 256 on one of ten SMs.
TILE_S = 2 * 128 * 128 * 256 / (1e12 / 10)


def parameters(changes: Mapping[str, float] | None = None) -> GpuParameters:
    return GpuParameters.class_wide().with_values(IDEAL | dict(changes or {}))


def bench(**changes) -> GpuMachine:
    machine = GpuMachine.of(gpu("v100-pcie-32gb"), GpuParameters.class_wide())
    traits = {name: changes.pop(name, value) for name, value in TRAITS.items()}
    generation = replace(generation_of(changes.get("profile", machine.profile)), **traits)
    used = {"parameters": parameters()}
    return replace(machine, **(BENCH | used | changes), generation=generation)


def costs(kind, dims, flop, moved, *, machine=None, used=None, phase=Phase.FORWARD) -> RowCosts:
    rows = graph([(kind, dims, flop, moved)], phase=phase)
    machine = machine or bench()
    if used is not None:
        machine = replace(machine, parameters=used)
    return GPU.evaluate(rows, machine, "bench")


def time_s(kind, dims, flop=0.0, moved=0.0, **options) -> float:
    return float(costs(kind, dims, flop, moved, **options).time_s[0])
