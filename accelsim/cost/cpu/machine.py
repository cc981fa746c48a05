"""A CPU as its cost model sees it: rates per format, cache levels, threads, and where a run's
weights live.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from accelsim.cost.cpu.parameters import CpuParameters
from accelsim.cost.roofline import rate_table
from accelsim.cost.table import Execution, Rows
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, MemoryLevel
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase

#: Formats whose dot products and tiles are matrix units' work even where the vector units have
#: them.
_LIBRARY_FORMATS = (Dtype.FP32, Dtype.FP64, Dtype.TF32)

#: Kinds that, in a backward pass and without weights, write a gradient summed over the batch.
_SUM_OVER_A_BATCH = (
    OperatorKind.GEMM,
    OperatorKind.GROUPED_GEMM,
    OperatorKind.CONV_BACKWARD_WEIGHT,
    OperatorKind.SCATTER,
)


@frozen(eq=False)
class CpuMachine:
    """Sustained rates of one CPU under one execution mode.

    Attributes:
        name: Device name, for messages.
        execution: How operators are issued.
        threads: Threads that run, one per core.
        clock_hz: Clock of vector code.
        gemm_rate: Sustained FLOP/s of large GEMMs by `Dtype` code, all threads; NaN where none.
        unit_rate: The same for window and recurrent kernels.
        lane_rates: Vector FMA peak by `Dtype` code, all threads.
        lane_rate: Vector lanes x clock x threads: conversions per second.
        emulated: Whether a format is widened before it is computed, by `Dtype` code.
        level_capacity_bytes: Capacity of each cache level over the threads' cores, ascending, shape
            (levels,).
        level_bytes_per_s: Sustained bandwidth of each level, then of main memory, all threads,
            shape (levels + 1,).
        core_memory_bytes_per_s: Most that one core draws from main memory.
        last_level_bytes: Capacity of the last cache; 0 without caches.
        weights_cold: Whether weights come from main memory.
        splits_batches: Whether a batch that outgrows the caches runs in parts; see `part_count`.
        streams: Batches that run side by side, each on its share of the threads.
        dispatch_s: Start of a memory-bound operator; contraction_s and conv_s of the others.
        contraction_s: See dispatch_s.
        conv_s: See dispatch_s.
        values: Parameters.
    """

    name: str
    execution: Execution
    threads: float
    clock_hz: float
    gemm_rate: FloatArray
    unit_rate: FloatArray
    lane_rates: FloatArray
    lane_rate: float
    emulated: BoolArray
    level_capacity_bytes: FloatArray
    level_bytes_per_s: FloatArray
    core_memory_bytes_per_s: float
    last_level_bytes: float
    weights_cold: bool
    splits_batches: bool
    streams: float
    dispatch_s: float
    contraction_s: float
    conv_s: float
    values: CpuParameters

    def gemm_flop_per_s(self, rows: Rows) -> FloatArray:
        """Rate of products in each row's format, shape (k,).

        Raises:
            UnsupportedOperatorError: Naming the first row whose format has none.
        """
        return rows.by_dtype(self.gemm_rate, self.name)

    @property
    def unquantised(self) -> Dtype:
        """The format that a network in INT8 keeps elsewhere: BF16 where there are units (OpenVINO
        documentation, CPU device: inference_precision), else FP32.
        """
        slower = self.gemm_rate[Dtype.BF16] < self.gemm_rate[Dtype.FP32]
        return Dtype.FP32 if self.emulated[Dtype.BF16] or slower else Dtype.BF16

    def vector_rate(self, rows: Rows) -> FloatArray:
        """Vector FMA peak for each row's format (fp32's where the profile has none), shape (k,)."""
        rates: FloatArray = self.lane_rates[rows.column("dtype")]
        return rates

    def vector_s(self, rows: Rows, flop: FloatArray) -> FloatArray:
        """Time of vector arithmetic on all threads, shape (k,).

        Roofline (Williams et al., CACM 52(4), 2009), at the class's share of the lanes' peak.
        """
        return flop / (self.vector_rate(rows) * self.values.vector_efficiency_fraction)

    def resident_shares(self, working_set_bytes: FloatArray) -> FloatArray:
        """Share of a working set that each cache and all inside it hold, shape (levels, k).

        A set larger than a cache does not leave it at once: replacement that adapts to streams
        (re-reference interval prediction; Jaleel et al., ISCA 2010), as last-level caches have it,
        and random replacement keep a capacity's worth of it from one pass to the next, so that the
        share falls as capacity over size. Nor does a set as large as the cache stay whole, for its
        lines compete with others for the sets their addresses hash to: the two ends join as
        (1 + (size/capacity)^s)^(-1/s) with `cache_sharpness` s (estimate).
        """
        sizes = np.maximum(working_set_bytes, 1.0)
        log_size = np.log(sizes[None, :] / self.level_capacity_bytes[:, None])
        sharpness = self.values.cache_sharpness
        return np.exp(-np.logaddexp(0.0, sharpness * log_size) / sharpness)

    def level_bytes(self, working_set_bytes: FloatArray, moved_bytes: FloatArray) -> FloatArray:
        """Bytes of a working set that move from each cache, innermost first, and from main memory:
        each part from the innermost level that holds it, shape (levels + 1, k).
        """
        resident_shares = self.resident_shares(working_set_bytes)
        return moved_bytes * np.diff(resident_shares, axis=0, prepend=0.0, append=1.0)

    def level_s(self, level_bytes: FloatArray, threads: FloatArray) -> FloatArray:
        """Time to move bytes from each level, shape (k,).

        Caches scale with the threads that run; main memory is capped by what each core can draw.

        Estimate: levels one after the other, at the bandwidths sustained of each.
        """
        memory = np.minimum(self.level_bytes_per_s[-1], self.core_memory_bytes_per_s * threads)
        share = np.minimum(threads / self.threads, 1.0)
        cached = np.maximum(self.level_bytes_per_s[:-1, None] * share, memory)
        time: FloatArray = (level_bytes[:-1] / cached).sum(axis=0) + level_bytes[-1] / memory
        return time

    def _operands(self, rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Bytes of a row's weights, of the gradients it sums over its batch, and of all else."""
        weights: FloatArray = rows.column("weight_bytes")
        summed = np.zeros(len(rows))
        if rows.kind in _SUM_OVER_A_BATCH:
            is_gradient = (rows.column("phase") == Phase.BACKWARD) & (weights == 0)
            summed = np.where(is_gradient, rows.column("write_bytes"), 0.0)
        return weights, summed, rows.bytes - weights - summed

    def part_count(self, rows: Rows) -> FloatArray:
        """Parts that a row's batch runs in, one after the other, shape (k,); not whole.

        What serves large batches on a CPU splits them: the instances of
        `torch.backends.xeon.run_cpu`, MLPerf's submissions; training sums gradients over the parts.
        Streams run whole batches side by side instead.
        A part's operands take `part_cache_fraction` of the last cache, where the weights that each
        part reads again cost less traffic than that saves. Measured throughput levels off with the
        batch, it does not fall as memory's rate to the caches' (ResNets on two Xeons,
        arXiv:2602.16858). Estimate; a machine's own calibration describes one process, which does
        not split.
        """
        parts = np.ones(len(rows))
        if not self.splits_batches:
            return parts
        *_, other = self._operands(rows)
        wanted_parts = np.maximum(
            other / (self.values.part_cache_fraction * self.last_level_bytes), parts
        )
        wanted_parts[np.isin(rows.column("phase"), (Phase.GRADIENT, Phase.OPTIMIZER))] = 1.0
        if (wanted_parts <= 1.0).all():
            return parts
        fewer = self.main_memory_bytes(rows, wanted_parts) < self.main_memory_bytes(rows, parts)
        return np.where(fewer, wanted_parts, parts)

    def traffic_bytes(self, rows: Rows, parts: FloatArray) -> FloatArray:
        """Bytes of a row's operands from each level: activations at theirs, weights from memory
        where they are cold, once for each part, shape (levels + 1, k).

        Estimate: one after the other, parts read what they share again; levels hold
        `resident_shares`.
        """
        weights, summed, other = self._operands(rows)
        working_set_bytes = self._held_bytes(rows, parts)
        weight_set = np.full(len(rows), np.inf) if self.weights_cold else working_set_bytes
        return self.level_bytes(working_set_bytes, other + parts * summed) + self.level_bytes(
            weight_set, parts * weights
        )

    def _held_bytes(self, rows: Rows, parts: FloatArray) -> FloatArray:
        """Working set of a part of each row.

        Estimate: a part brings its share of the batch, and all weights; streams share the caches.
        """
        weights, summed, other = self._operands(rows)
        activation_bytes = other / parts + summed
        return activation_bytes * self.streams + (0.0 if self.weights_cold else weights)

    def main_memory_bytes(self, rows: Rows, parts: FloatArray) -> FloatArray:
        """Bytes that come from or go to main memory, shape (k,).

        Estimate: the share that `resident_shares` leaves to memory.
        """
        weights, summed, other = self._operands(rows)
        shares = self.resident_shares(self._held_bytes(rows, parts))
        missed = 1.0 - shares[-1] if len(shares) else np.ones(len(rows))
        weights_missed = 1.0 if self.weights_cold else missed
        return missed * (other + parts * summed) + weights_missed * parts * weights

    def page_fault_s(self, rows: Rows) -> FloatArray:
        """Page faults of fresh outputs above the allocator's mmap threshold on one thread, shape
        (k,); eager execution on a calibrated CPU only.

        Other CPUs are servers whose launcher keeps the heap (`torch.backends.xeon.run_cpu` loads
        tcmalloc or jemalloc where it finds them).
        """
        keeps_heap = self.values.keeps_heap or self.values.kernels is None
        if self.execution is not Execution.EAGER or keeps_heap:
            return np.zeros(len(rows))
        written = rows.column("write_bytes")
        fresh = written > self.values.page_fault_bytes
        return np.where(fresh, written * self.values.page_fault_s_per_byte, 0.0)

    def fork_join_s(self, threads: FloatArray) -> FloatArray:
        """Time to start and join a parallel region; none on one thread, shape (k,)."""
        values = self.values
        return np.where(
            threads > 1.0, values.fork_join_s + values.fork_join_per_thread_s * threads, 0.0
        )


def cpu_machine(
    graph: OperatorGraph, device: CpuProfile, execution: Execution, values: CpuParameters
) -> CpuMachine:
    """Sustained rates of a profile for one run.

    Args:
        graph: Operators; the sum of their weights decides whether weights stay in cache.
        device: CPU profile.
        execution: Eager, graph or compiled.
        values: Parameters.

    Raises:
        InvalidValueError: If the thread count is below 1, or the profile has no fp32 vector rate.
    """
    cores = device.core_count.value
    threads = cores if values.thread_count is None else min(values.thread_count, cores)
    if threads < 1:
        raise InvalidValueError("thread_count", values.thread_count, f"1 to {cores} threads")
    share = threads / cores
    vector = rate_table({d: r.value * share for d, r in device.vector_flop_per_s.items()})
    if np.isnan(vector[Dtype.FP32]):
        raise InvalidValueError(
            f"{device.name}: vector_flop_per_s.fp32", None, "a known rate", "Add it to the profile."
        )
    gemm, unit, emulated = _contraction_rates(device, vector, values, share)
    capacities, bandwidths = _levels(device, values, threads)
    last = float(capacities[-1]) if len(capacities) else 0.0
    cold = values.weights_cold
    if cold is None:
        cold = float(graph.weight_bytes.sum()) > last
    lanes = np.where(np.isnan(vector), vector[Dtype.FP32], vector)
    dispatch_s, contraction_s, conv_s = _issue_times_s(execution, values)
    return CpuMachine(
        name=device.name,
        execution=execution,
        threads=float(threads),
        clock_hz=_clock_hz(device),
        gemm_rate=gemm,
        unit_rate=unit,
        lane_rates=lanes,
        lane_rate=float(lanes[Dtype.FP32]) / (2.0 * device.fma_ports.value),
        emulated=emulated,
        level_capacity_bytes=capacities,
        level_bytes_per_s=bandwidths,
        core_memory_bytes_per_s=values.core_memory_bytes_per_s,
        last_level_bytes=last,
        weights_cold=cold,
        splits_batches=values.kernels is None and last > 0 and values.stream_thread_count is None,
        streams=max(1.0, threads / (values.stream_thread_count or threads)),
        dispatch_s=dispatch_s,
        contraction_s=contraction_s,
        conv_s=conv_s,
        values=values,
    )


def _issue_times_s(execution: Execution, values: CpuParameters) -> tuple[float, float, float]:
    """Start of a memory-bound operator, a contraction and a convolution."""
    if execution is not Execution.EAGER:
        return (values.graph_dispatch_s,) * 3
    return values.eager_dispatch_s, values.eager_contraction_s, values.eager_conv_s


def _clock_hz(device: CpuProfile) -> float:
    clock = device.vector_clock_hz or device.base_clock_hz
    return clock.value


def _contraction_rates(
    device: CpuProfile, vector: FloatArray, values: CpuParameters, share: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """GEMM and window-kernel rates by format, at the clock that all cores sustain, and which
    formats are widened first.

    Tiles' efficiency is an estimate: what L2 feeds them. Others are measured, see `cpu.yaml`.
    """
    if device.sustained_clock_hz is not None:
        sustained_fraction = min(device.sustained_clock_hz.value / _clock_hz(device), 1.0)
        share, vector = share * sustained_fraction, vector * sustained_fraction
    tiles = any(word in (device.matrix_unit or "").lower() for word in ("amx", "sme"))
    efficiency = values.tile_unit_efficiency_fraction if tiles else values.unit_efficiency_fraction
    rates = _unit_rates(device, share * values.unit_efficiency_fraction, share * efficiency)
    unit = rate_table(rates)
    amd = device.vendor.upper() == "AMD"
    width = (
        min(device.simd_width_bits.value, values.amd_gemm_simd_width_bits)
        if amd
        else device.simd_width_bits.value
    )
    library = values.gemm_efficiency_fraction * width / device.simd_width_bits.value
    rates |= {d: vector[d] * library for d in _LIBRARY_FORMATS if d in device.vector_flop_per_s}
    if values.is_llama_cpp:
        rates |= _llama_cpp_rates(device, vector, values, rates)
    emulated = np.array([dtype not in rates for dtype in Dtype])
    return rate_table(rates), unit, emulated


def _unit_rates(device: CpuProfile, vector: float, matrix: float) -> dict[Dtype, float]:
    """Rates by format, of so much of the vector and the matrix units' peaks."""
    rates = {dtype: rate.value * vector for dtype, rate in device.vector_flop_per_s.items()}
    for dtype, rate in device.matrix_flop_per_s.items():
        rates[dtype] = max(rates.get(dtype, 0.0), rate.value * matrix)
    return rates


def _llama_cpp_rates(
    device: CpuProfile, vector: FloatArray, values: CpuParameters, unit_rates: Mapping[Dtype, float]
) -> dict[Dtype, float]:
    """Rates of llama.cpp's products, FLOP/s: 16 bits in vectors of floats, BF16 two at a time where
    the CPU can, 8 bits with weights in blocks.

    Estimate: as many instructions a block of 32 as its kernels have, however wide the dot product,
    and they issue as fast as multiply-adds of a register's FP32 lanes.
    """
    issued_per_s = vector[Dtype.FP32] / (2.0 * device.simd_width_bits.value / 32)
    blocks_per_s = values.gemm_efficiency_fraction * issued_per_s / values.block_instruction_count
    rates = {Dtype.INT8: float(2.0 * 32.0 * blocks_per_s), Dtype.FP16: unit_rates[Dtype.FP32]}
    if Dtype.BF16 in unit_rates:
        rates[Dtype.BF16] = min(unit_rates[Dtype.BF16], 2.0 * unit_rates[Dtype.FP32])
    return rates


def _levels(
    device: CpuProfile, values: CpuParameters, threads: int
) -> tuple[FloatArray, FloatArray]:
    """Capacity and sustained bandwidth of the caches the threads use, innermost first; then main
    memory's bandwidth.

    Bytes per cycle of a last cache without a stated rate are an estimate (`cpu.yaml`).
    """
    cores = device.core_count.value
    defaults = (values.l1_bytes_per_cycle, values.l2_bytes_per_cycle, values.l3_bytes_per_cycle)
    capacities, bandwidths = [], []
    for position, level in enumerate(device.on_chip):
        per_cycle = defaults[min(position, len(defaults) - 1)]
        stated = level.bandwidth_bytes_per_s
        if stated is None:
            bandwidth = per_cycle * _clock_hz(device) * threads
        else:
            bandwidth = stated.value * values.cache_efficiency_fraction * threads / cores
        capacities.append(_capacity_bytes(level, threads))
        bandwidths.append(bandwidth)
    stated_memory = device.memory_bandwidth_bytes_per_s
    # A machine's own profile may not know its memory: what its cores can draw then bounds it.
    memory = values.core_memory_bytes_per_s * threads
    if stated_memory is not None:
        memory = stated_memory * values.main_memory_efficiency_fraction
    # Levels are listed from the core outwards; an outer one never holds less or moves faster than
    # an inner one.
    reach = np.maximum.accumulate(np.array(capacities, dtype=np.float64))
    return reach, np.append(np.minimum.accumulate(np.array(bandwidths, dtype=np.float64)), memory)


def _capacity_bytes(level: MemoryLevel, threads: int) -> float:
    """Capacity the running cores reach: one instance per sharing group, or the whole device's."""
    if level.shared_by_core_count is None:
        return level.capacity_bytes.value
    return level.capacity_bytes.value * max(1.0, threads / level.shared_by_core_count)
