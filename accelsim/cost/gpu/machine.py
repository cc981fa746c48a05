"""A GPU profile resolved to the plain numbers its formulas use: rates by dtype, bandwidth, on-chip
traffic, energy.

Contractions run on matrix cores where the board has them for the dtype, else on vector lanes. FP32
is vector arithmetic on boards whose matrix cores take TF32 (TF32 off, as PyTorch's default for
matmul). Where FP16 has only vector lanes, libraries store 16 bits and multiply at the faster of the
two rates: a GTX 1080 has FP16 lanes at 1/64 of FP32's (NVIDIA GP104 whitepaper), and its
half-precision GEMMs run in FP32. Libraries sum FP16 and FP8 products in FP32, which the matrix
cores of GeForce boards do at half their listed rate (NVIDIA GA102 and Ada whitepapers).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from accelsim.cost.gpu.generation import (
    Generation,
    Tiles,
    generation_of,
    vendor_generation,
)
from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.power import (
    arithmetic_energy_table_j,
    dram_energy_per_byte_j,
    power_limited_clock_fraction,
)
from accelsim.cost.table import Rows
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.errors import UnsupportedOperatorError
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile
from accelsim.hardware.sourced import Sourced, value_of
from accelsim.workloads.graph import BoolArray, FloatArray

_FORMATS = len(DTYPE_BYTES)
#: Bytes the last-level cache gives one SM per clock: GEMM tables of an L40S and an RTX PRO 6000,
#: whose operands it holds.
_CACHE_BYTES_PER_SM_CLOCK = 8.0
#: Part of the rate of sums in FP32 that kernels reach where operands come twice as fast. Estimate.
_SUMMED_FRACTION = 0.95
#: Power limit from which on boards carry chips as large as are made (P100, V100, A100, H100).
_LARGEST_CHIP_W = 300.0
#: Power of GDDR chips and their interface at full clock without traffic, W per GB: estimate, least
#: squares of what boards with clocks up draw beyond boards with stacked memory: an A40 33 W of 48
#: GB and a Quadro RTX 6000 12 W of 24 GB (the least of any training run of Zeus, NSDI 2023), an
#: L40S 15 W of 48 GB (arXiv:2605.23918), an RTX 3070 10 W of 8 GB and an RTX A4000 5 W of 16 GB.
_GDDR_STATIC_W_PER_GB = 0.5
#: Node of the energies in `GpuParameters`.
_REFERENCE_NM = 12.0


@frozen(eq=False)
class GpuMachine:
    """One GPU under one set of parameters.

    Attributes:
        profile: Where the numbers come from.
        parameters: Class-wide or fitted.
        name: Device name.
        sm_count: SMs or compute units.
        clock_hz: Boost clock, which the peak rates assume.
        contraction_flop_per_s: Peak of matrix arithmetic by dtype code; NaN where there is none,
            shape (formats,).
        fed_flop_per_s: Rate at which operands are multiplied, likewise; more than that peak where
            products are summed at half the rate.
        uses_matrix_cores: Whether that peak is of matrix cores, shape (formats,).
        vector_flop_per_s: Peak of everything else: FP32 lanes.
        bandwidth_bytes_per_s: Data-sheet bandwidth of the main memory.
        stream_bytes_per_s: Bandwidth a streaming kernel reaches.
        l2_bytes: Last-level cache.
        product_efficiency: Best rate of plain products over the peak by dtype code, shape
            (formats,).
        vector_operand_bytes_per_s: Operand traffic the vector lanes of all SMs take from on-chip
            memory.
        matrix_operand_bytes_per_s: The same of the matrix cores.
        flop_energy_j: Energy per FLOP of contractions by dtype code, at the boost clock, shape
            (formats,).
        vector_energy_j: Energy per FLOP of FP32 lanes.
        byte_energy_j: Energy per byte moved between main memory and the lanes, as meters read it.
        clocked_byte_energy_j: The part of it that the clock answers to at the power limit.
        static_w: Power with clocks up and no work.
        limit_w: Board power limit; None where unknown.
        power_window_s: Length of an isolated kernel from which on the limit slows it; 0 in
            sustained work.
        plain_tiles: Output tiles (rows, columns) of plain vector kernels.
        scaled_tiles: The same of GEMMs with a scale per block of weights; none for those of other
            matrix-core kernels.
        has_page_walks: Whether plain GEMMs slow down with long rows.
        generation: Further traits.
    """

    profile: GpuProfile
    parameters: GpuParameters
    name: str
    sm_count: float
    clock_hz: float
    contraction_flop_per_s: FloatArray
    fed_flop_per_s: FloatArray
    uses_matrix_cores: BoolArray
    vector_flop_per_s: float
    bandwidth_bytes_per_s: float
    stream_bytes_per_s: float
    l2_bytes: float
    product_efficiency: FloatArray
    vector_operand_bytes_per_s: float
    matrix_operand_bytes_per_s: float
    flop_energy_j: FloatArray
    vector_energy_j: float
    byte_energy_j: float
    clocked_byte_energy_j: float
    static_w: float
    limit_w: float | None
    power_window_s: float
    plain_tiles: Tiles
    scaled_tiles: Tiles
    has_page_walks: bool
    generation: Generation

    @classmethod
    def of(cls, profile: GpuProfile, parameters: GpuParameters) -> GpuMachine:
        """Resolve a profile.

        Raises:
            UnsupportedOperatorError: If the profile knows no memory bandwidth or no vector rate.
        """
        rates, matrix = _contraction_rates(profile)
        bandwidth = profile.memory_bandwidth_bytes_per_s
        vector = _rate(profile.vector_flop_per_s, Dtype.FP32)
        if bandwidth is None or vector is None:
            raise UnsupportedOperatorError(
                profile.name, "any operator", "its bandwidth or FP32 rate is unknown"
            )
        node = value_of(profile.process_nm, None)
        energy, technology = _energies(node), profile.memory.technology
        scale = float(energy[Dtype.FP32] / _energies(_REFERENCE_NM)[Dtype.FP32])
        dram_j = dram_energy_per_byte_j(technology)
        wire_j = parameters.power.on_chip_energy_per_byte_j * _wire_length_fraction(profile)
        shrink = (
            (node or _REFERENCE_NM) / _REFERENCE_NM
        ) ** parameters.power.vector_overhead_node_exponent
        vector_overhead = parameters.power.vector_energy_overhead * shrink
        overhead = np.where(matrix, parameters.power.matrix_energy_overhead, vector_overhead)
        generation, usual = generation_of(profile), vendor_generation(profile.vendor)
        is_first = generation.has_page_walks and parameters.is_early_library
        sm_count, clock = float(profile.sm_count.value), float(profile.boost_clock_hz.value)
        return cls(
            profile=profile,
            parameters=parameters,
            name=profile.name,
            sm_count=sm_count,
            clock_hz=clock,
            contraction_flop_per_s=rates,
            fed_flop_per_s=_fed_rates(profile, rates),
            uses_matrix_cores=matrix,
            vector_flop_per_s=vector,
            bandwidth_bytes_per_s=bandwidth,
            stream_bytes_per_s=bandwidth * parameters.value(memory_efficiency_name(profile)),
            l2_bytes=float(value_of(profile.l2_bytes, 0.0)),
            product_efficiency=_product_efficiencies(matrix, parameters, generation),
            vector_operand_bytes_per_s=sm_count * clock * parameters.gemm.operand_bytes_per_clock,
            matrix_operand_bytes_per_s=sm_count
            * clock
            * parameters.gemm.matrix_operand_bytes_per_clock,
            flop_energy_j=np.where(matrix, _matrix_energies_j(energy, overhead), energy * overhead),
            vector_energy_j=float(energy[Dtype.FP32]) * vector_overhead,
            byte_energy_j=dram_j + wire_j,
            clocked_byte_energy_j=dram_j + wire_j * min(scale, 1.0),
            static_w=static_power_w(profile, parameters),
            limit_w=value_of(profile.power.limit_w, None),
            power_window_s=parameters.power.window_s if parameters.is_isolated else 0.0,
            plain_tiles=usual.plain_tiles if is_first else generation.plain_tiles,
            scaled_tiles=() if _is_stacked(profile) else generation.scaled_tiles,
            has_page_walks=generation.has_page_walks and not is_first,
            generation=generation,
        )

    def contraction_rate(self, rows: Rows) -> FloatArray:
        """Peak matrix arithmetic of each row's dtype, FLOP/s, shape (k,).

        Raises:
            UnsupportedOperatorError: Naming the first row whose dtype the board lacks.
        """
        return rows.by_dtype(self.contraction_flop_per_s, self.name)

    def product_rate(self, rows: Rows, relative_efficiency: float = 1.0) -> FloatArray:
        """Best rate of plain products in each row's dtype, FLOP/s, shape (k,).

        `relative_efficiency` is what kernels of another kind reach of it.
        """
        best = self.product_efficiency[rows.column("dtype")]
        fed = rows.by_dtype(self.fed_flop_per_s, self.name)
        return reached_flop_per_s(self.contraction_rate(rows), fed, best * relative_efficiency)

    def clock_fraction(self, energy_j: FloatArray, time_s: FloatArray) -> FloatArray:
        """Clock the power limit leaves to work that draws `energy_j` in `time_s` at the boost
        clock, shape (k,).

        The limit holds for the draw averaged over some time: an isolated kernel that is over before
        may draw `burst_ratio` times as much, a longer one `isolated_ratio` times.
        Estimate: from burst to sustained draw as exp(-t / window).
        """
        dynamic_w = energy_j / np.maximum(time_s, 1e-12)
        if self.limit_w is None:
            return np.ones_like(time_s)
        power = self.parameters.power
        lasting_w = self.limit_w * (power.isolated_ratio if self.power_window_s else 1.0)
        if self.static_w + float(dynamic_w.max(initial=0.0)) <= min(lasting_w, self.limit_w):
            return np.ones_like(time_s)
        sustained = power_limited_clock_fraction(dynamic_w, self.static_w, lasting_w)
        if not self.power_window_s:
            return sustained
        burst = power_limited_clock_fraction(
            dynamic_w, self.static_w, self.limit_w * power.burst_ratio
        )
        return sustained + (burst - sustained) * np.exp(-time_s / self.power_window_s)

    def contraction_energy_j(
        self, rows: Rows, flop: FloatArray, moved_bytes: FloatArray
    ) -> FloatArray:
        """Dynamic energy of contraction rows at the boost clock, as far as the clock answers to
        it, J, shape (k,).

        Estimate: boards of 7 nm and less stream all of their memory's bandwidth below their limit
        (an H200 4.3 TB/s below 700 W), so that of the energy that meters read per byte the part
        that shrinks with the node counts here.
        """
        per_flop: FloatArray = self.flop_energy_j[rows.column("dtype")]
        return flop * per_flop + moved_bytes * self.clocked_byte_energy_j


def _product_efficiencies(
    matrix: BoolArray, parameters: GpuParameters, generation: Generation
) -> FloatArray:
    """Best rate of plain products over the peak by dtype code, shape (formats,)."""
    on_matrix_cores = np.full(_FORMATS, parameters.gemm.matrix_efficiency)
    on_matrix_cores[Dtype.FP32] = parameters.gemm.fp32_matrix_efficiency
    on_lanes = min(parameters.gemm.vector_efficiency, generation.product_fraction)
    return np.where(matrix, on_matrix_cores, on_lanes)


@lru_cache(maxsize=64)
def _energies(node: float | None) -> FloatArray:
    return arithmetic_energy_table_j(node)


def _matrix_energies_j(arithmetic_j: FloatArray, overhead: FloatArray) -> FloatArray:
    """Energy per FLOP of matrix cores by dtype code: multipliers, and operands moved to them in
    proportion to their width.

    `overhead` is that of FP16 over its multipliers. Registers and shared memory deliver as many
    bytes per clock to an INT8 core as to an FP16 core, for twice the operations. Estimate: operands
    cost what their bytes do (data movement, Horowitz, ISSCC 2014).
    """
    movement_j = (overhead - 1.0) * arithmetic_j[Dtype.FP16] * DTYPE_BYTES / DTYPE_BYTES[Dtype.FP16]
    energy_j: FloatArray = arithmetic_j + movement_j
    return energy_j


def static_power_w(profile: GpuProfile, parameters: GpuParameters) -> float:
    """Power of a board with clocks up and no work, W.

    Estimate: regulators and fans of a board draw 20 W whatever its limit, leakage and clocks go
    with the limit, GDDR with its size (`_GDDR_STATIC_W_PER_GB`): 41 W of an RTX A4000 and 44 W of
    an RTX 3070, which draw 38 W and 48 to 51 W (issues of text-generation-inference and of
    nvidia-smi's users, in ``calibration/class/gpu.yaml``); a T4 draws 26 of 70 W so. A
    module or a chip with a limit below that of the smallest boards has less of all: at most
    `largest_static_fraction`.

    Args:
        profile: The board; 0 W from its limit where that is unknown.
        parameters: Class-wide or fitted.
    """
    power, limit = parameters.power, profile.power.limit_w
    fixed_w = power.active_static_w * profile.slice_fraction
    if "gddr" in (profile.memory.technology or "").lower():
        fixed_w += _GDDR_STATIC_W_PER_GB * profile.memory_bytes / 1e9
    if limit is None:
        return fixed_w
    share_w = power.active_static_fraction * limit.value
    return float(min(fixed_w + share_w, power.largest_static_fraction * limit.value))


def _wire_length_fraction(profile: GpuProfile) -> float:
    """Length of a chip's wires over that of the largest chips.

    The energy of a wire per bit and millimetre hardly falls with the node (Keckler et al., "GPUs
    and the Future of Parallel Computing", IEEE Micro 31(5), 2011), and wires go with the side of
    the chip. Estimate: area goes with the power limit, up to the largest chips at 300 W.
    """
    limit = profile.power.limit_w
    if limit is None:
        return 1.0
    whole_w = limit.value / profile.slice_fraction
    return float(np.sqrt(min(whole_w / _LARGEST_CHIP_W, 1.0)))


def memory_efficiency_name(profile: GpuProfile) -> str:
    """Parameter that gives a board's streaming bandwidth over the data sheet's.

    Controllers before Volta's reach less of either memory: 76 % of HBM2 on P100 against 95 % on
    V100 (NVIDIA Tesla V100 architecture whitepaper, "HBM2 memory architecture"). GDDR has no room
    for codes of error correction: boards of servers, which have it on by default, read them beside
    the data (an L40S reaches 67 % of its bandwidth where an RTX 6000 Ada, the same chip, reaches 80
    %: FluidX3D's README).
    """
    generation = generation_of(profile)
    if generation.is_early:
        return "memory.early_efficiency"
    if not _is_stacked(profile):
        return (
            "memory.gddr_efficiency"
            if profile.memory.inline_ecc
            else "memory.plain_gddr_efficiency"
        )
    return "memory.hbm_efficiency" if generation.is_reference else "memory.other_efficiency"


def _is_stacked(profile: GpuProfile) -> bool:
    return "hbm" in (profile.memory.technology or "").lower()


def _rate(rates: Mapping[Dtype, Sourced[float]], dtype: Dtype) -> float | None:
    return float(rates[dtype].value) if dtype in rates else None


def _contraction_rates(profile: GpuProfile) -> tuple[FloatArray, BoolArray]:
    rates, matrix = np.full(_FORMATS, np.nan), np.zeros(_FORMATS, dtype=bool)
    for dtype, rate in profile.vector_flop_per_s.items():
        rates[dtype] = rate.value
    if not np.isnan(rates[Dtype.FP32]):
        rates[Dtype.FP16] = np.fmax(rates[Dtype.FP16], rates[Dtype.FP32])
    reached = {**profile.matrix_flop_per_s, **profile.matrix_fp32_accumulate_flop_per_s}
    for dtype, rate in reached.items():
        if not rate.value < rates[dtype]:
            rates[dtype], matrix[dtype] = rate.value, True
    return rates, matrix


def reached_flop_per_s(
    peak_flop_per_s: FloatArray, fed_flop_per_s: FloatArray, efficiency: FloatArray
) -> FloatArray:
    """Rate of contractions that lose part of their time to operands, FLOP/s.

    Estimate: a board that sums at half the rate at which it multiplies has that time for its
    operands, and loses the more of the two: 3 to 5 % of the sums' rate, or what the kernel loses of
    the multipliers'.

    Args:
        peak_flop_per_s: Rate of multiplying and summing.
        fed_flop_per_s: Rate of multiplying.
        efficiency: Part of it that a kernel reaches.
    """
    is_slower = fed_flop_per_s > peak_flop_per_s
    fed = fed_flop_per_s * efficiency
    most = np.maximum(efficiency, _SUMMED_FRACTION) * peak_flop_per_s
    return np.where(is_slower, np.minimum(fed, most), fed)


def _fed_rates(profile: GpuProfile, rates: FloatArray) -> FloatArray:
    """Rates at which operands are multiplied, by dtype code: the listed ones; BF16 and TF32, which
    are summed in FP32 alone and listed so, as much more as FP16.
    """
    fed, listed = rates.copy(), profile.matrix_flop_per_s
    for dtype, summed in profile.matrix_fp32_accumulate_flop_per_s.items():
        fed[dtype] = np.fmax(fed[dtype], listed[dtype].value)
        if dtype == Dtype.FP16:
            fed[[Dtype.BF16, Dtype.TF32]] *= listed[dtype].value / summed.value
    return fed


def cache_bytes_per_s(machine: GpuMachine) -> float:
    """Rate at which all SMs together read the last-level cache.

    Estimate: 8 B per SM and clock, fitted to GEMM tables of an L40S and an RTX PRO 6000.
    """
    return machine.sm_count * machine.clock_hz * _CACHE_BYTES_PER_SM_CLOCK


def join_times(compute_s: FloatArray, memory_s: FloatArray, exponent: float) -> FloatArray:
    """Time of arithmetic and traffic that overlap imperfectly: (c^p + m^p)^(1/p), between max(c, m)
    and c + m.

    Estimate: an interpolation between no and perfect overlap; the latter is the roofline of
    Williams et al., CACM 52(4), 2009.

    Args:
        compute_s: Arithmetic alone, s.
        memory_s: Traffic alone, s.
        exponent: p >= 1; the larger, the better the overlap.
    """
    longer = np.maximum(compute_s, memory_s)
    ratio = np.minimum(compute_s, memory_s) / np.maximum(longer, 1e-30)
    return longer * (1.0 + ratio**exponent) ** (1.0 / exponent)
