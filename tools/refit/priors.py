"""Where class-wide fits of the GPU model start and what their priors hold them to, whatever set
ships.

A fit is a function of the measured rows and of these values alone: fitting twice gives the same
files. What no rows tell (energies of movement, static power, host links) keeps the value of
``calibration/class/gpu.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from accelsim.cost.gpu import GpuParameters

__all__ = ["CENTRES", "class_prior"]

#: Round values near which parameters of libraries and boards of 2016 to 2023 lie; fractions of
#: data-sheet rates, seconds, bytes. Ranges and firmness are the stages'. Times to issue an operator
#: are no priors: every cell's rows give their own.
CENTRES: Final[Mapping[str, float]] = {
    "kernel_latency_s": 2e-6,
    "gddr_efficiency": 0.75,
    "hbm_efficiency": 0.9,
    "early_memory_efficiency": 0.75,
    "other_memory_efficiency": 0.9,
    "trailing_dispatch_s": 1.5e-5,
    "softmax_efficiency": 0.8,
    "norm_efficiency": 0.65,
    "reduction_columns": 1.0,
    "special_efficiency": 0.3,
    "vector_efficiency": 1.0,
    "matrix_efficiency": 0.9,
    "other_matrix_efficiency": 0.6,
    "batched_ratio": 1.0,
    "operand_bytes_per_lane_clock": 0.4,
    "matrix_operand_bytes_per_clock": 160.0,
    "operand_exposed_fraction": 0.6,
    "prologue_k": 10.0,
    "lone_tile_loss": 0.6,
    "page_walk_loss": 1.0,
    "power_window_s": 1e-3,
    "burst_power_ratio": 1.1,
    "contraction_latency_s": 5e-6,
    "overlap_exponent": 2.0,
    "vector_energy_overhead": 14.0,
    "matrix_energy_overhead": 4.0,
    "convolution_efficiency": 0.85,
    "matrix_convolution_efficiency": 0.65,
    "winograd_efficiency": 0.8,
    "transformed_efficiency": 0.9,
    "direct_efficiency": 0.15,
    "backward_efficiency": 0.65,
    "recurrent_step_s": 2e-5,
    "attention_efficiency": 0.65,
    "gather_overhead_bytes": 64.0,
    "dispatch_contraction_s": 5e-5,
    "dispatch_batched_s": 4e-5,
    "dispatch_convolution_s": 1e-4,
    "plan_lookup_s": 2e-4,
    "dispatch_norm_s": 5e-5,
    "dispatch_softmax_s": 3.5e-5,
    "dispatch_scalar_s": 3e-5,
    "dispatch_activation_s": 3e-5,
    "dispatch_elementwise_s": 3e-5,
}


def class_prior() -> GpuParameters:
    """The set class-wide fits start from: `CENTRES`, and of the shipped set what no fit touches."""
    values: dict[str, Any] = dict(CENTRES)
    return replace(GpuParameters.class_wide(), families={}, **values)
