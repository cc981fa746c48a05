"""Operators that move bytes: elementwise, reductions, normalisation, gathers, copies, optimizers,
trees.

Time is bytes over the bandwidth a streaming kernel reaches, times what the access pattern leaves of
it, or the arithmetic where that is longer, plus the kernel's latency: with the latency, short
transfers follow Little's law (bandwidth grows as bytes / (bytes + bandwidth x latency)).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.table import RowCosts, Rows
from accelsim.errors import UnsupportedOperatorError
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind, Phase

_K = OperatorKind
#: Tensors one launch of a multi-tensor optimizer kernel covers at least (PyTorch ForeachUtils,
#: depth 4 metadata limit).
_TENSORS_PER_LAUNCH = 36.0
#: Kernels of softmax, top-k, sort and permutation in expert routing.
_ROUTING_KERNELS = 6.0
#: Dependent passes of a serving stack's own kernel for it: scores, then the choice. What permutes
#: the rows is part of its expert layers.
_OWN_ROUTING_PASSES = 2.0
#: A row is reduced before its first result is written: two dependent passes.
_ROW_PASSES = 2.0
#: Columns of a softmax that a warp keeps in registers; longer rows are read for their maximum,
#: their sum and their results (PyTorch, PersistentSoftmax.cuh and SoftMax.cu).
_KEPT_COLUMNS = 1024.0
#: DRAM and L2 move whole sectors (CUDA C++ Programming Guide, device memory accesses).
_SECTOR_BYTES = 32.0


def _streamed(
    rows: Rows,
    machine: GpuMachine,
    *,
    efficiency: FloatArray | float = 1.0,
    traffic_bytes: FloatArray | None = None,
    latency_s: FloatArray | float | None = None,
) -> RowCosts:
    """Costs of rows that stream their bytes at `efficiency` of the streaming bandwidth.

    Roofline (Williams et al., CACM 52(4), 2009).
    """
    moved = rows.bytes if traffic_bytes is None else traffic_bytes
    flop = rows.column("flop")
    memory_s = moved / (machine.stream_bytes_per_s * efficiency)
    compute_s = flop / (machine.vector_flop_per_s * machine.parameters.memory.special_efficiency)
    latency = machine.parameters.memory.kernel_latency_s if latency_s is None else latency_s
    time_s = np.maximum(compute_s, memory_s) + latency
    return RowCosts(time_s, compute_s, memory_s, flop, moved, machine.parameters.spread.memory)


def elementwise_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Elementwise operators, copies and pooling: streaming.

    Bytes over bandwidth, plus a latency, is Little's law (Little, Operations Research 9(3), 1961)
    for one kernel. Estimate: efficiencies are fitted to NeuSight's rows.
    """
    return _streamed(rows, machine)


def row_wise_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Softmax, normalisations and reductions: rows are read, reduced, and (but for reductions) read
    again.

    Two passes over a row: estimate, after the online softmax of Milakov and Gimelshein
    (arXiv:1805.02867, 2018) and its like; efficiencies are fitted to NeuSight's rows.
    """
    memory = machine.parameters.memory
    efficiency: FloatArray | float = memory.norm_efficiency
    if rows.kind == _K.SOFTMAX:
        ratio = np.where(rows["columns"] > _KEPT_COLUMNS, memory.long_softmax_ratio, 1.0)
        efficiency = memory.softmax_efficiency * ratio
    elif rows.kind == _K.REDUCTION or _is_folded_norm(rows):
        efficiency = 1.0
    latency_s = _ROW_PASSES * memory.kernel_latency_s
    return _streamed(rows, machine, efficiency=efficiency, latency_s=latency_s)


def _is_folded_norm(rows: Rows) -> bool:
    """Whether batch norms use stored statistics: a graph without a backward pass is inference, and
    they only stream.
    """
    return rows.kind == _K.BATCH_NORM and not bool((rows.graph.phase == int(Phase.BACKWARD)).any())


def gather_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Embedding gathers, bags and scatter-adds: rows at random addresses.

    Each row is whole sectors of 32 bytes (CUDA C++ Programming Guide, device memory accesses). A
    scatter-add reads before it writes.
    """
    row_bytes = np.maximum(rows["width"] * rows.element_bytes, 1.0)
    sectors = np.ceil(row_bytes / _SECTOR_BYTES) * _SECTOR_BYTES
    moved = rows.bytes
    if rows.kind == _K.SCATTER:
        moved = moved + rows["lookups"] * row_bytes
    return _streamed(rows, machine, efficiency=row_bytes / sectors, traffic_bytes=moved)


def routing_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Expert routing: small data, several dependent kernels.

    Estimate: six kernels of softmax, top-k, sort and permutation, none of them measured alone; one
    of a serving stack's own (vLLM, csrc/moe/grouped_topk_kernels.cu; SGLang, sgl-kernel
    moe_fused_gate; TensorRT-LLM, noAuxTcKernels.cu).
    """
    passes = _ROUTING_KERNELS if machine.parameters.maker is None else _OWN_ROUTING_PASSES
    latency_s = passes * machine.parameters.memory.kernel_latency_s
    return _streamed(rows, machine, latency_s=latency_s)


def optimizer_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Multi-tensor optimizer update: streams parameters, gradients and states; one launch per group
    of tensors.

    Tensors per launch: PyTorch, ForeachUtils and MultiTensorApply.cuh. Estimate: the update
    streams.
    """
    launches = np.maximum(np.ceil(rows["tensors"] / _TENSORS_PER_LAUNCH), 1.0)
    return _streamed(rows, machine, latency_s=launches * machine.parameters.memory.kernel_latency_s)


def tree_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Boosted trees: prediction walks nodes held in cache, histograms add atomically; each touches
    one 32-byte sector.

    Sectors come at the on-chip operand rate.

    Estimate: one sector per visited node at the rate of operands; no measurement of trees was
    fitted.
    """
    visits = rows["rows"] * rows["trees"] * (rows["depth"] + 1.0)
    if rows.kind == _K.TREE_HISTOGRAM:
        visits = visits * rows["features"]
    base = _streamed(rows, machine)
    on_chip_s = visits * _SECTOR_BYTES / machine.vector_operand_bytes_per_s
    compute_s = np.maximum(base.compute_s, on_chip_s)
    time_s = np.maximum(compute_s, base.memory_s) + machine.parameters.memory.kernel_latency_s
    return replace(base, time_s=time_s, compute_s=compute_s)


def host_copy_costs(rows: Rows, machine: GpuMachine) -> RowCosts:
    """Copies between host and device over the host link.

    Latency plus bytes over bandwidth (Hockney, Parallel Computing 20, 1994). Estimate: both
    parameters, unless a calibration measured them.

    Raises:
        UnsupportedOperatorError: If the profile does not know its host link.
    """
    link = machine.profile.host_link
    if link is None:
        raise UnsupportedOperatorError(
            machine.name, rows.kind.label, "its host link is unknown", "Add host_link."
        )
    moved = rows["bytes"]
    memory_s = moved / (
        float(link.bandwidth_bytes_per_s.value) * machine.parameters.host.link_efficiency
    )
    nothing = np.zeros(len(rows))
    time_s = memory_s + machine.parameters.host.copy_latency_s
    return RowCosts(time_s, nothing, memory_s, nothing, moved, machine.parameters.spread.memory)
