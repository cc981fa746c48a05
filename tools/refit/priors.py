"""Where class-wide fits of the GPU model start and what their priors hold them to, whatever set
ships.

A fit is a function of the measured rows and of these values alone: fitting twice gives the same
files. What no rows tell (energies of movement, static power, host links) keeps the value of
``calibration/class/gpu.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from accelsim.cost.gpu import GpuParameters

#: Round values near which parameters of libraries and boards of 2016 to 2023 lie; fractions of
#: data-sheet rates, seconds, bytes. Ranges and firmness are the stages'. Times to issue an operator
#: are no priors: every cell's rows give their own. Other vendors' kernels start from NVIDIA's. HBM
#: of AMD: 1,041 of an MI100's 1,229 GB/s (ROCm/rocm-amdgpu-bench, issue 4). FP32 on matrix cores:
#: estimate, between HPL of El Capitan (0.63 of the peak, network included; TOP500 of November 2024)
#: and 0.8 without a network.
CENTRES: Final[Mapping[str, float]] = {
    "memory.kernel_latency_s": 2e-6,
    "memory.gddr_efficiency": 0.75,
    "memory.hbm_efficiency": 0.9,
    "memory.early_efficiency": 0.75,
    "memory.other_efficiency": 0.85,
    "dispatch.trailing_s": 1.5e-5,
    "memory.softmax_efficiency": 0.8,
    "memory.long_softmax_ratio": 0.7,
    "memory.norm_efficiency": 0.65,
    "memory.special_efficiency": 0.3,
    "memory.other_softmax_efficiency": 0.8,
    "memory.other_norm_efficiency": 0.65,
    "memory.other_special_efficiency": 0.1,
    "gemm.vector_efficiency": 1.0,
    "gemm.matrix_efficiency": 0.9,
    "gemm.fp32_matrix_efficiency": 0.7,
    "gemm.batched_ratio": 1.0,
    "gemm.other_batched_ratio": 1.0,
    "gemm.operand_bytes_per_clock": 26.0,
    "gemm.matrix_operand_bytes_per_clock": 160.0,
    "gemm.operand_exposed_fraction": 0.6,
    "gemm.prologue_k": 10.0,
    "gemm.lone_tile_loss": 0.6,
    "gemm.page_walk_loss": 1.0,
    "power.window_s": 1e-3,
    "power.burst_ratio": 1.1,
    "gemm.latency_s": 5e-6,
    "gemm.overlap_exponent": 2.0,
    "power.vector_energy_overhead": 14.0,
    "convolution.vector_efficiency": 0.85,
    "convolution.matrix_efficiency": 0.65,
    "convolution.winograd_efficiency": 0.8,
    "convolution.transformed_efficiency": 0.9,
    "convolution.direct_efficiency": 0.15,
    "convolution.backward_efficiency": 0.65,
    "recurrent.step_s": 2e-5,
    "attention.efficiency": 0.65,
    "dispatch.contraction_s": 5e-5,
    "dispatch.batched_s": 4e-5,
    "dispatch.convolution_s": 1e-4,
    "dispatch.plan_lookup_s": 2e-4,
    "dispatch.norm_s": 5e-5,
    "dispatch.softmax_s": 3.5e-5,
    "dispatch.scalar_s": 3e-5,
    "dispatch.activation_s": 3e-5,
    "dispatch.elementwise_s": 3e-5,
}


def class_prior() -> GpuParameters:
    """The set class-wide fits start from: `CENTRES`, and of the shipped set what no fit touches."""
    return replace(GpuParameters.class_wide().with_values(CENTRES), families={})
