"""Class-wide parameters of the GPU cost model.

One set serves every GPU at tier `spec`; a fitted overlay replaces single fields for one device. The
values live in ``calibration/class/gpu.yaml`` with their provenance; fields here give unit, range
and meaning. None of them was fitted to an end-to-end run: they come from single-operator
measurements and from published figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.cost.residual import FamilyResidual, read_families
from accelsim.cost.shape_surface import Surface
from accelsim.datafile import data_root, read_mapping
from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import FloatArray

__all__ = ["GpuParameters", "read_parameters"]


@dataclass(frozen=True, slots=True, eq=False)
class LoopConditions:
    """What a loop around single kernels does to them; columns over all rows of the graph, shape
    (n,) each.

    Attributes:
        cycle_bytes: Bytes touched from one use of a row's operands to the next, which the cache may
            hold; infinite where nothing comes again.
        batch_rows: Rows that the whole batch routes to experts of all devices; of grouped GEMMs
            alone, 0 elsewhere.
        routing_exponent: Power law by which experts differ in popularity; 0 (even) where None.
        is_m_contiguous: GEMMs whose left operand has m contiguous in memory, else the contraction;
            None where the library is not of the first for matrix cores.
    """

    cycle_bytes: FloatArray
    batch_rows: FloatArray
    routing_exponent: FloatArray | None = None
    is_m_contiguous: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class GpuParameters:
    """What a GPU data sheet does not say. Fractions are of the data-sheet rate, in (0, 1].

    Attributes:
        vector_efficiency: Best GEMM rate on vector (SIMT) lanes over their peak.
        matrix_efficiency: Best GEMM rate on NVIDIA matrix (tensor) cores over their peak.
        other_matrix_efficiency: The same on other vendors' matrix cores.
        batched_ratio: Rate of batched activation GEMMs over plain GEMMs of the same tiles; 0.5 to
            1.5.
        operand_bytes_per_lane_clock: Operand bytes one vector lane takes from L2 and shared memory
            per clock; 0.1 to 4 B.
        matrix_operand_bytes_per_clock: Operand bytes the matrix cores of one SM take per clock; 32
            to 1024 B.
        operand_exposed_fraction: Part of operand loading that arithmetic does not hide, 0 to 1.
        prologue_k: Extra steps of k a tile pays to fill and drain its pipeline; 0 to 256 elements
            (32-bit).
        lone_tile_loss: Loss of a tile of 64 threads that has an SM to itself; 0 (none) to 1 (as
            long as four tiles).
        m_contiguous_ratio: Memory rate of the first matrix-core GEMMs (libraries to 2018) whose
            left operand has m contiguous, over a stream's; 0.3 to 2.
        k_contiguous_ratio: The same where the contraction is contiguous. Both hold how well
            arithmetic hides behind the traffic, too: they may exceed what is left to the data
            sheet's rate.
        page_walk_loss: Slow-down of plain GEMMs with very long rows on early boards, less 1; 0 to
            4.
        kernel_latency_s: Start, drain and memory latency of a streaming kernel on the device; 1 to
            10 us.
        contraction_latency_s: The same of a matrix kernel, with its set-up and epilogue; 1 to 20
            us.
        gddr_efficiency: Streaming bandwidth over the data sheet's, GDDR boards with error
            correction beside the data.
        plain_gddr_efficiency: The same, other boards with GDDR or LPDDR.
        hbm_efficiency: The same, HBM boards.
        early_memory_efficiency: The same, boards before Volta, whose memory controllers reach less
            whatever the memory.
        other_memory_efficiency: The same, HBM boards of other vendors.
        softmax_efficiency: Softmax bandwidth over streaming bandwidth, long rows.
        norm_efficiency: Layer, group, RMS and batch normalisation bandwidth over streaming
            bandwidth.
        reduction_columns: Row length at which a row-wise kernel reaches half its efficiency; 0 to
            512 elements.
        gather_overhead_bytes: Row size at which random gathers reach half the bandwidth; 8 to 256
            B.
        special_efficiency: Vector peak reached by elementwise and reduction arithmetic.
        convolution_efficiency: Implicit-GEMM convolution over the vector peak, edges of tiles
            apart.
        matrix_convolution_efficiency: Implicit-GEMM convolution over GEMM of the same shape, matrix
            cores.
        winograd_efficiency: Multiply rate of fused Winograd F(2x2, 3x3) over the vector peak.
        transformed_efficiency: Product between the transforms of unfused Winograd F(4x4, 3x3) over
            GEMM of the same shape.
        direct_efficiency: Vector peak reached by direct (depthwise, grouped) convolution kernels.
        backward_efficiency: Convolution gradients over the forward convolution.
        attention_efficiency: Fused attention arithmetic over GEMM's rate.
        attention_backward_efficiency: Its backward pass over the forward pass.
        recurrent_step_s: Serial latency of one recurrent step; 2 to 30 us.
        overlap_exponent: p of the p-norm that joins compute and memory time; 1 (no overlap) to
            infinity (perfect).
        vector_energy_overhead: Energy of a vector instruction over its arithmetic (fetch,
            registers, caches) at 12 nm, >= 1.
        vector_overhead_node_exponent: Power of the node by which that overhead shrinks faster than
            the arithmetic; 0 to 2.
        matrix_energy_overhead: The same for matrix cores, >= 1.
        on_chip_energy_per_byte_j: Energy of moving one byte between main memory and the lanes (L2,
            network, load and store instructions) at 12 nm; other nodes scale as FP32 arithmetic; 20
            to 400 pJ.
        power_window_s: Length of a kernel that runs alone from which on the power limit holds; 0.1
            to 100 ms.
        burst_power_ratio: Draw that such a short kernel may reach over the power limit; 1 to 3.
        isolated_power_ratio: Draw over the power limit of longer kernels that run alone, again and
            again: a hot chip leaks and leaves them less; a measurement's, not a model's; 0.6 to
            1.2.
        active_static_w: Power of a board with clocks up and no work, part that does not scale; W.
        active_static_fraction: The same, part proportional to the power limit.
        host_link_efficiency: Copy rate over the host link's rate.
        host_copy_latency_s: Latency of one host-device copy; s.
        dispatch_contraction_s: Host time to issue one matrix operator in an eager framework; s.
        dispatch_batched_s: The same for batched GEMMs; s.
        dispatch_convolution_s: The same for convolutions; s.
        plan_lookup_s: Mean wait of a convolution between its call and its kernels, beyond that, in
            a process that has run thousands of other shapes; s. Calls wait anything between none
            and twice as long, whatever their shape. A model's own few shapes do not wait.
        dispatch_norm_s: Host time to issue a normalisation or reduction; s.
        dispatch_softmax_s: The same for softmax; s.
        dispatch_scalar_s: The same for elementwise operators of one tensor, whose number is wrapped
            as a tensor first, and simple activations; s.
        dispatch_activation_s: The same for GELU and other activations of more arithmetic; s.
        dispatch_elementwise_s: The same for all other operators; s.
        trailing_dispatch_s: Part of that host time that follows the kernel's launch (the way back
            to the caller, the closing event): in calls timed one by one it hides kernels that are
            shorter; 0 to 50 us.
        graph_gap_s: Gap between two kernels of a replayed graph beyond the kernels' own latency; s,
            >= 0.
        sigma_gemm: Standard deviation of ln(measured / predicted), GEMMs.
        sigma_convolution: The same, convolutions.
        sigma_attention: The same, attention.
        sigma_memory: The same, memory-bound operators.
        sigma_recurrent: The same, recurrent layers.
        surfaces: Corrections of one device's matrix kernels over their shape, by name (fitted
            overlays alone have them).
        families: Residuals of measured rows by operator family, where they are known.
        relatives: Boards whose surfaces stand for the device's own.
        is_fitted: Whether an overlay of one device is part of it.
        is_isolated: Whether kernels are measured one by one, with pauses: short ones then keep the
            boost clock.
        conditions: How a graph's kernels were measured, where they were measured in a loop; None in
            sustained work.
        is_measured: Whether surfaces interpolate the device's own tables (tier `measured`).
        is_early_library: Whether the board's first libraries run it (to 2018), with tiles of their
            own for plain GEMMs.
    """

    vector_efficiency: float
    matrix_efficiency: float
    other_matrix_efficiency: float
    batched_ratio: float
    operand_bytes_per_lane_clock: float
    matrix_operand_bytes_per_clock: float
    operand_exposed_fraction: float
    prologue_k: float
    lone_tile_loss: float
    m_contiguous_ratio: float
    k_contiguous_ratio: float
    page_walk_loss: float
    kernel_latency_s: float
    contraction_latency_s: float
    gddr_efficiency: float
    plain_gddr_efficiency: float
    hbm_efficiency: float
    early_memory_efficiency: float
    other_memory_efficiency: float
    softmax_efficiency: float
    norm_efficiency: float
    reduction_columns: float
    gather_overhead_bytes: float
    special_efficiency: float
    convolution_efficiency: float
    matrix_convolution_efficiency: float
    winograd_efficiency: float
    transformed_efficiency: float
    direct_efficiency: float
    backward_efficiency: float
    attention_efficiency: float
    attention_backward_efficiency: float
    recurrent_step_s: float
    overlap_exponent: float
    vector_energy_overhead: float
    vector_overhead_node_exponent: float
    matrix_energy_overhead: float
    on_chip_energy_per_byte_j: float
    power_window_s: float
    burst_power_ratio: float
    isolated_power_ratio: float
    active_static_w: float
    active_static_fraction: float
    host_link_efficiency: float
    host_copy_latency_s: float
    dispatch_contraction_s: float
    dispatch_batched_s: float
    dispatch_convolution_s: float
    plan_lookup_s: float
    dispatch_norm_s: float
    dispatch_softmax_s: float
    dispatch_scalar_s: float
    dispatch_activation_s: float
    dispatch_elementwise_s: float
    trailing_dispatch_s: float
    graph_gap_s: float
    sigma_gemm: float
    sigma_convolution: float
    sigma_attention: float
    sigma_memory: float
    sigma_recurrent: float
    surfaces: Mapping[str, Surface] = field(default_factory=dict, hash=False)
    families: Mapping[str, FamilyResidual] = field(default_factory=dict, hash=False)
    relatives: tuple[str, ...] = ()
    is_fitted: bool = False
    is_isolated: bool = False
    is_early_library: bool = False
    conditions: LoopConditions | None = field(default=None, hash=False, compare=False)
    is_measured: bool = False

    def __post_init__(self) -> None:
        for name in _number_names(type(self)):
            value = getattr(self, name)
            limit = 1.0 if name.endswith(("_efficiency", "_fraction")) else 1e6
            if not 0 <= value <= limit or (
                limit == 1.0 and value == 0 and name.endswith("_efficiency")
            ):
                raise InvalidValueError(f"gpu parameter {name}", value, f"a number up to {limit:g}")

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> GpuParameters:
        """Read the ``parameters`` table of a parameter file: ``name: {value: ..., source: ...}``.

        Raises:
            InvalidValueError: If a parameter is missing, unknown, or has no source.
        """
        names = _number_names(cls)
        for name, entry in data.items():
            if name not in names:
                raise InvalidValueError("gpu parameter", name, f"one of {', '.join(sorted(names))}")
            if (
                not isinstance(entry, Mapping)
                or not isinstance(entry.get("value"), int | float)
                or "source" not in entry
            ):
                raise InvalidValueError(
                    f"gpu parameter {name}", entry, "a mapping with a number `value` and a `source`"
                )
        if missing := sorted(names - set(data)):
            raise InvalidValueError("gpu parameters", missing, "all fields of GpuParameters")
        numbers: dict[str, Any] = {name: float(entry["value"]) for name, entry in data.items()}
        return cls(**numbers)

    @classmethod
    def class_wide(cls) -> GpuParameters:
        """The parameters that serve every GPU, from ``calibration/class/gpu.yaml``."""
        return _class_wide()


#: Fields that are no numbers: fitted surfaces, residuals, and the conditions of a measurement.
_CONDITIONS = frozenset(
    {
        "surfaces",
        "families",
        "relatives",
        "is_fitted",
        "is_isolated",
        "is_early_library",
        "conditions",
        "is_measured",
    }
)


def _number_names(cls: type[GpuParameters]) -> frozenset[str]:
    """Fields that are numbers."""
    return frozenset(entry.name for entry in fields(cls) if entry.name not in _CONDITIONS)


@lru_cache(maxsize=1)
def _class_wide() -> GpuParameters:
    return read_parameters(data_root() / "calibration" / "class" / "gpu.yaml")


def read_parameters(path: Path) -> GpuParameters:
    """A whole set from a file with ``parameters`` and, where known, ``families``.

    Raises:
        ProfileError: If the file is not well formed.
        InvalidValueError: If a parameter is missing, unknown, or has no source.
    """
    data = read_mapping(path)
    return replace(
        GpuParameters.from_mapping(data["parameters"]),
        families=read_families(path, data.get("families")),
    )
