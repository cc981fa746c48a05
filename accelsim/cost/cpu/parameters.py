"""Parameters of the CPU cost model; class-wide values and their sources stand in
``calibration/class/cpu.yaml``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from accelsim.cost.class_parameters import class_parameters
from accelsim.frozen import frozen

if TYPE_CHECKING:
    from accelsim.cost.cpu.fitted_kernels import FittedKernels
    from accelsim.cost.stack import KernelMaker


@frozen
class CpuParameters:
    """What the class adds to a CPU's datasheet.

    Attributes:
        gemm_efficiency_fraction: Share of vector peak a large GEMM reaches, 0 to 1.
        amd_gemm_simd_width_bits: Widest vectors the GEMM library uses on AMD processors, in fp32
            and fp64.
        unit_efficiency_fraction: Share of peak of oneDNN kernels (windows, bf16, int8) on vector
            units, 0 to 1.
        tile_unit_efficiency_fraction: The same on a tile unit (AMX, SME), 0 to 1.
        m_half_count: Rows at which a GEMM reaches half its rate; n_half_count, k_half_count
            likewise.
        n_half_count: See m_half_count.
        k_half_count: See m_half_count.
        gemv_efficiency_fraction: Share of GEMM rate of a matrix-vector product in cache, 0 to 1.
        depthwise_efficiency_fraction: Share of vector peak of depthwise convolutions, 0 to 1.
        vector_efficiency_fraction: Share of FMA peak of elementwise and norm kernels, 0 to 1.
        softmax_efficiency_fraction: The same for softmax.
        requantise_operation_count: Vector operations that bring a sum of 8-bit products into its
            output's format.
        pooling_cycles_per_tap: Cycles per window tap of the eager (scalar) pooling kernel.
        fused_pooling_cycles_per_tap: Cycles per tap of a vectorised one.
        eager_dispatch_s: Framework time per operator; contraction and convolution kernels have
            their own.
        eager_contraction_s: See eager_dispatch_s.
        eager_conv_s: See eager_dispatch_s.
        graph_dispatch_s: Time per operator of a captured or compiled graph.
        fork_join_s: Time to start and join a parallel region.
        fork_join_per_thread_s: More per thread.
        parallel_grain_count: Elements per thread of memory-bound kernels.
        gemm_block_count: Outputs per thread of a GEMM.
        main_memory_efficiency_fraction: Sustained over theoretical bandwidth, 0 to 1.
        core_memory_bytes_per_s: What one core can draw from main memory.
        cache_efficiency_fraction: Sustained over stated cache bandwidth, 0 to 1.
        cache_sharpness: How sharply the share of a set that a cache holds falls where the set
            outgrows it.
        part_cache_fraction: Share of the last cache that the operands of a part of a large batch
            take, 0 to 1.
        l1_bytes_per_cycle: Per core, where a profile does not state a bandwidth; l2 and l3
            likewise.
        l2_bytes_per_cycle: See l1_bytes_per_cycle.
        l3_bytes_per_cycle: See l1_bytes_per_cycle.
        page_fault_s_per_byte: Time to fault in and clear fresh memory, one thread.
        page_fault_bytes: Block size above which an allocation is always fresh.
        heap_threshold_bytes: mmap threshold of a process that has imported the framework;
            calibrated CPUs follow the heap from there.
        block_instruction_count: Vector instructions of a matrix product for 32 products with
            weights in llama.cpp's blocks.
        block_dot_instruction_count: The same of a matrix-vector product.
        block_chunk_count: Outputs of such a product that a thread takes at a time.
        page_fault_parallel_count: Threads that fault side by side.
        memory_latency_s: Idle latency of main memory.
        outstanding_line_count: Cache lines one core waits for at a time.
        recurrent_step_s: Overhead of one step of a recurrent layer.
        optimizer_pass_ratio: Traffic of an eager optimizer over one pass.
        tree_cycles_per_node: Cycles per visited tree node.
        histogram_cycles_per_update: Cycles per histogram update.
        energy_overhead_ratio: Energy of an executed operation over its adder and multiplier's.
        active_power_fraction: Share of limit less idle power that running, stalled cores draw, 0 to
            1.
        thread_count: Threads that run; None takes one per core.
        weights_cold: Whether weights come from main memory; None decides by the model's weights
            against the last cache.
        keeps_heap: Whether the allocator keeps freed memory (jemalloc, tcmalloc, glibc with raised
            thresholds): nothing then page-faults after the first passes.
        stream_thread_count: Threads of each of the streams that run batches side by side; None
            where a batch has all.
        is_llama_cpp: Whether products are those of llama.cpp's kernels.
        kernels: Kernel times measured on this CPU; where a row's kernel is among them they replace
            the formulas.
    """

    gemm_efficiency_fraction: float
    amd_gemm_simd_width_bits: float
    unit_efficiency_fraction: float
    tile_unit_efficiency_fraction: float
    m_half_count: float
    n_half_count: float
    k_half_count: float
    gemv_efficiency_fraction: float
    depthwise_efficiency_fraction: float
    vector_efficiency_fraction: float
    softmax_efficiency_fraction: float
    requantise_operation_count: float
    pooling_cycles_per_tap: float
    fused_pooling_cycles_per_tap: float
    eager_dispatch_s: float
    eager_contraction_s: float
    eager_conv_s: float
    graph_dispatch_s: float
    fork_join_s: float
    fork_join_per_thread_s: float
    parallel_grain_count: float
    gemm_block_count: float
    main_memory_efficiency_fraction: float
    core_memory_bytes_per_s: float
    cache_efficiency_fraction: float
    cache_sharpness: float
    part_cache_fraction: float
    l1_bytes_per_cycle: float
    l2_bytes_per_cycle: float
    l3_bytes_per_cycle: float
    page_fault_s_per_byte: float
    page_fault_bytes: float
    heap_threshold_bytes: float
    block_instruction_count: float
    block_dot_instruction_count: float
    block_chunk_count: float
    page_fault_parallel_count: float
    memory_latency_s: float
    outstanding_line_count: float
    recurrent_step_s: float
    optimizer_pass_ratio: float
    tree_cycles_per_node: float
    histogram_cycles_per_update: float
    energy_overhead_ratio: float
    active_power_fraction: float
    thread_count: int | None = None
    weights_cold: bool | None = None
    keeps_heap: bool = False
    stream_thread_count: int | None = None
    is_llama_cpp: bool = False
    kernels: FittedKernels | None = None

    def of_stack(self, stack: KernelMaker) -> CpuParameters:
        """Those of a stack's kernels and streams."""
        streamed = replace(self, stream_thread_count=stack.stream_thread_count)
        return streamed.of_llama_cpp() if stack.is_llama_cpp else streamed

    def of_llama_cpp(self) -> CpuParameters:
        """Those of llama.cpp's kernels, which no calibration measures."""
        return replace(
            self,
            is_llama_cpp=True,
            gemv_efficiency_fraction=self.block_instruction_count
            / self.block_dot_instruction_count,
            gemm_block_count=self.block_chunk_count,
            kernels=None,
        )


def cpu_parameters() -> CpuParameters:
    """The class-wide parameters.

    Raises:
        ProfileError: If their file is missing or malformed.
    """
    parameters: CpuParameters = class_parameters("cpu", CpuParameters)
    return parameters
