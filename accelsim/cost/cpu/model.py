"""CPU cost model: vector and matrix units, cache levels, threads, and what the framework adds to
each operator.

A row takes the longer of its arithmetic and its traffic, plus the time to start it. Arithmetic runs
at SIMD width x FMA ports x cores x clock (or the matrix unit's rate), times the library's
efficiency on the shape; formats without units run at a wider format's rate after conversion.
Traffic runs at each cache's bandwidth for the part of the working set it holds; weights come from
main memory where the model's weights together exceed the last-level cache. A fresh output above the
allocator's mmap threshold pays its page faults. Starting costs are part of a row's time, since the
same cores pay them: the table's host dispatch is 0. References for each parameter stand in
``calibration/class/cpu.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from accelsim.cost.assemble import assemble_table, energy_rates
from accelsim.cost.contraction import (
    Contraction,
    attention_products,
    contraction,
    recurrence,
    window_volume,
)
from accelsim.cost.cpu.calibrated import measured_costs, parameters_for
from accelsim.cost.cpu.machine import CpuMachine, cpu_machine
from accelsim.cost.cpu.parameters import CpuParameters, cpu_parameters
from accelsim.cost.cpu.quantised import quantised
from accelsim.cost.table import CostTable, Execution, Formulas, ParameterTier, RowCosts, Rows
from accelsim.dtype import DTYPE_BYTES, Dtype
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import (
    ATTENTION_KINDS,
    CONTRACTION_KINDS,
    PRODUCT_KINDS,
    RECURRENT_KINDS,
    OperatorKind,
)

__all__ = ["CpuParameters", "cost_cpu", "cpu_parameters", "supported_rows_cpu"]

_K = OperatorKind
FORMULAS: Formulas[CpuMachine] = Formulas("cpu")
#: Spread of ln(true / predicted) of an operator: in FP32 twice the 0.1 by which networks on two
#: systems lie off (suite published); in other formats networks lie off by up to 0.5 (suite
#: mlperf-inference).
_FP32_SIGMA, _SIGMA = 0.2, 0.4
#: Steps of the search for the number of threads, to one of 512, and what each keeps of its
#: interval.
_SEARCH_STEPS = 17
_GOLDEN = (5.0**0.5 - 1.0) / 2.0


def cost_cpu(
    graph: OperatorGraph,
    device: CpuProfile,
    execution: Execution = Execution.EAGER,
    parameters: CpuParameters | None = None,
) -> CostTable:
    """Cost every row of a graph on a CPU.

    Collective rows belong to the links, not to the device.

    Args:
        graph: Operators.
        device: CPU profile; `core_count` cores run unless the parameters name a thread count.
        execution: EAGER pays framework dispatch and page faults of fresh buffers; GRAPH and
            COMPILED reuse memory.
        parameters: Those of this CPU's calibration unless given, else the class-wide ones.

    Raises:
        UnsupportedOperatorError: If a row is a collective, or a contraction's format has no rate
            and no wider one.
    """
    values = parameters or parameters_for(device.name) or cpu_parameters()
    machine = cpu_machine(graph, device, execution, values)
    rates = energy_rates(device, values.energy_overhead_ratio)
    active = values.active_power_fraction * machine.threads / device.core_count.value
    least_sigma = np.where(graph.dtype == Dtype.FP32, _FP32_SIGMA, _SIGMA)
    graph = quantised(graph, machine)
    if values.kernels is None:
        costs = FORMULAS.evaluate(graph, machine, device.name)
        # what a network in INT8 runs in floats is as uncertain as the rest of it
        costs = replace(costs, log_sigma=np.maximum(costs.log_sigma, least_sigma))
        return assemble_table(graph, costs, rates, active_fraction=active)
    formulas = partial(_costs_beside_kernels, graph, machine)
    costs, context_log_sigma = measured_costs(graph, formulas, machine, values.kernels)
    table = assemble_table(graph, costs, rates, active_fraction=active, tier=ParameterTier.FITTED)
    shared = np.asarray(costs.shared_log_sigma, dtype=np.float64)
    return replace(table, shared_log_sigma=shared, context_log_sigma=context_log_sigma)


def _costs_beside_kernels(
    graph: OperatorGraph, machine: CpuMachine, measured: BoolArray
) -> RowCosts:
    """The formulas' costs; of measured rows, which take their kernels' time, FLOP and bytes."""
    costs = FORMULAS.evaluate(graph, machine, machine.name, ~measured)
    for kind, every in graph.rows_by_kind():
        index = every[measured[every]]
        rows = Rows(graph, index, kind)
        costs.flop[index] = _executed_flop(rows, machine)
        costs.bytes[index] = machine.main_memory_bytes(rows, machine.part_count(rows))
    return costs


def _executed_flop(rows: Rows, machine: CpuMachine) -> FloatArray:
    """FLOP that measured kernels execute, shape (k,)."""
    if rows.kind in CONTRACTION_KINDS:
        machine.gemm_flop_per_s(rows)
    if rows.kind in ATTENTION_KINDS:
        return attention_products(rows).flop
    if rows.kind in PRODUCT_KINDS - RECURRENT_KINDS:
        return contraction(rows).flop
    flop: FloatArray = rows.column("flop")
    return flop


def supported_rows_cpu(graph: OperatorGraph, device: CpuProfile) -> BoolArray:
    """Which rows the CPU can run: every kind but collectives, in any format with a rate or a wider
    one, shape (n,).
    """
    machine = cpu_machine(graph, device, Execution.EAGER, cpu_parameters())
    has_formula = np.isin(graph.kind, [int(kind) for kind in FORMULAS.kinds])
    return has_formula & ~np.isnan(machine.gemm_rate[graph.dtype])


# -- matrix operators
# ------------------------------------------------------------------------------------------------


def blocking_efficiency(shape: Contraction, values: CpuParameters) -> FloatArray:
    """Share of full rate a blocked GEMM reaches on its shape: m/(m+m_half) n/(n+n_half)
    k/(k+k_half), shape (r,).

    A half-performance length for each side (Hockney and Jesshope, Parallel Computers 2, 1988).
    A product with one row or column is a matrix-vector product with its own kernel; one with a few
    rows is never slower than as many of those.
    """
    m, n, k = (np.maximum(side, 1e-9) for side in (shape.m, shape.n, shape.k))
    rows = np.maximum(m / (m + values.m_half_count), values.gemv_efficiency_fraction)
    blocked = rows * n / (n + values.n_half_count) * k / (k + values.k_half_count)
    vector = (shape.m <= 1) | (shape.n <= 1)
    return np.where(vector, np.maximum(values.gemv_efficiency_fraction, blocked), blocked)


def _threads(elements: FloatArray, machine: CpuMachine) -> FloatArray:
    """Threads that get at least one grain of elements, 1 to all."""
    grain = machine.values.parallel_grain_count
    return np.clip(elements / grain, 1.0, machine.threads)


def _block_threads(outputs: FloatArray, machine: CpuMachine) -> FloatArray:
    """Threads that get at least one block of a product's outputs, 1 to all."""
    return np.clip(outputs / machine.values.gemm_block_count, 1.0, machine.threads)


def _moving_threads(moved_bytes: FloatArray, machine: CpuMachine) -> FloatArray:
    """Threads that get at least one grain of operands of 4 bytes, 1 to all."""
    return _threads(moved_bytes / 4.0, machine)


def _gemm_threads(shape: Contraction, machine: CpuMachine) -> FloatArray:
    """Threads a product feeds: one per block of outputs, part-filled edges counted, so that time
    grows with every side.
    """
    values = machine.values
    outputs = shape.groups * (shape.m + values.m_half_count) * (shape.n + values.n_half_count)
    return _block_threads(outputs, machine)


def _product_s(shape: Contraction, rate: FloatArray, machine: CpuMachine) -> FloatArray:
    """Time of the products on the threads their outputs can feed; `rate` is of all threads.

    Estimate: threads share the blocks of the outputs evenly, at the library's efficiency on the
    shape.
    """
    share = _gemm_threads(shape, machine) / machine.threads
    return shape.flop / (rate * share * blocking_efficiency(shape, machine.values))


def _best_threads(
    time_s: Callable[[FloatArray], FloatArray], most: FloatArray, machine: CpuMachine
) -> FloatArray:
    """Threads a library starts: where one more costs more to start than it saves, 1 to `most`.

    Time falls as work over threads, memory saturates and start-up grows with each: convex, so that
    a golden-section search in the logarithm finds its least (Kiefer, Proc. AMS 4(3), 1953), and the
    best whole number of threads lies beside it.
    """
    if machine.threads <= 1 or machine.values.fork_join_per_thread_s <= 0:
        return most
    low, high = np.zeros_like(most), np.log(most)
    inner, outer = (1.0 - _GOLDEN) * high, _GOLDEN * high
    inner_s, outer_s = time_s(np.exp(inner)), time_s(np.exp(outer))
    for _ in range(_SEARCH_STEPS):
        falls = inner_s > outer_s
        low, high = np.where(falls, inner, low), np.where(falls, high, outer)
        inner_point, inner_point_s = np.where(falls, (outer, outer_s), (inner, inner_s))
        new = low + high - inner_point  # what is kept divides the rest in the golden ratio too
        new_s = time_s(np.exp(new))
        inner, outer = np.where(falls, (inner_point, new), (new, inner_point))
        inner_s, outer_s = np.where(falls, (inner_point_s, new_s), (new_s, inner_point_s))
    below = np.floor(np.exp(0.5 * (low + high)))
    best, least_s = np.ones_like(most), time_s(np.ones_like(most))
    for count in (*np.clip((below, below + 1.0), 1.0, most), most):
        taken_s = time_s(count)
        best = np.where(taken_s < least_s, count, best)
        least_s = np.minimum(taken_s, least_s)
    return best


@frozen(eq=False)
class _Work:
    """Arithmetic of operators; every column has shape (r,).

    Attributes:
        compute_s: Its time on the threads it feeds, which share it evenly.
        flop: Executed operations.
        threads: Most threads that have work.
        fed: Threads that have arithmetic, where others only move operands.
    """

    compute_s: FloatArray
    flop: FloatArray
    threads: FloatArray
    fed: FloatArray | None = None


def _started(
    rows: Rows,
    machine: CpuMachine,
    work: _Work,
    start_s: float,
    memory_s: Callable[[FloatArray], FloatArray] | None = None,
) -> RowCosts:
    """Row costs from arithmetic time: adds traffic, page faults and start-up; rows without bytes
    cost only the latter.

    Roofline (Williams et al., CACM 52(4), 2009).

    Args:
        rows: The rows.
        machine: The CPU.
        work: Their arithmetic.
        start_s: Start of the operator.
        memory_s: Time of the operands on so many threads, where it is not the rows' traffic.
    """
    parts = machine.part_count(rows)
    moved_s = memory_s or partial(machine.level_s, machine.traffic_bytes(rows, parts))
    fault_s, faulting = machine.page_fault_s(rows), machine.values.page_fault_parallel_count
    sharing = work.threads if work.fed is None else work.fed
    each_s = work.compute_s * sharing

    def compute_s(count: FloatArray) -> FloatArray:
        return each_s / np.minimum(count, sharing)

    def traffic_s(count: FloatArray) -> FloatArray:
        return moved_s(count) + fault_s / np.minimum(count, faulting)

    def time_s(count: FloatArray) -> FloatArray:
        longest: FloatArray = np.maximum(compute_s(count), traffic_s(count))
        return longest + parts * machine.fork_join_s(count)

    used = _best_threads(time_s, work.threads, machine)
    compute, traffic = compute_s(used), traffic_s(used)
    return RowCosts(
        time_s=np.maximum(compute, traffic) + parts * (start_s + machine.fork_join_s(used)),
        compute_s=compute,
        memory_s=traffic,
        flop=work.flop,
        bytes=machine.main_memory_bytes(rows, parts),
        log_sigma=_log_sigma(rows),
    )


def _log_sigma(rows: Rows) -> FloatArray:
    """Spread of each row by its format, shape (k,)."""
    return np.where(rows.column("dtype") == Dtype.FP32, _FP32_SIGMA, _SIGMA)


def _conversion_s(rows: Rows, machine: CpuMachine) -> FloatArray:
    """Time to widen and narrow operands of a format without units: one lane-operation per
    element.
    """
    codes = rows.column("dtype")
    elements = rows.bytes / DTYPE_BYTES[codes]
    return np.where(machine.emulated[codes], elements / machine.lane_rate, 0.0)


def _epilogue_s(rows: Rows, outputs: FloatArray, machine: CpuMachine) -> FloatArray:
    """Time of what a matrix kernel does to its results, on all threads.

    Arithmetic joined to it runs at the rate of vector kernels. Sums of 8-bit products, still in
    registers, become floats, are scaled, shifted, rounded, clipped and packed:
    `requantise_operation_count` operations of each lane, where a multiply-add counts as two (oneDNN
    developer guide, Quantization: scales, zero points and post-operations are applied in fp32).
    """
    sums = np.where(rows.column("dtype") == Dtype.INT8, outputs, 0.0)
    requantised = sums * machine.values.requantise_operation_count * 2.0
    return machine.vector_s(rows, rows.epilogue_flop) + requantised / machine.vector_rate(rows)


@FORMULAS.register(_K.GEMM, _K.BATCHED_GEMM, _K.GROUPED_GEMM)
def _gemm(rows: Rows, machine: CpuMachine) -> RowCosts:
    """A product. Roofline (Williams et al., CACM 52(4), 2009)."""
    shape = contraction(rows)
    rate = machine.gemm_flop_per_s(rows)
    fed = _gemm_threads(shape, machine)
    outputs = shape.groups * shape.m * shape.n
    epilogue = _epilogue_s(rows, outputs, machine) * machine.threads / fed
    compute = _product_s(shape, rate, machine) + _conversion_s(rows, machine) + epilogue
    threads = np.maximum(fed, _moving_threads(rows.bytes, machine))
    work = _Work(compute, shape.flop, threads, fed)
    return _started(rows, machine, work, machine.contraction_s)


@FORMULAS.register(_K.CONV, _K.CONV_TRANSPOSE, _K.CONV_BACKWARD_DATA, _K.CONV_BACKWARD_WEIGHT)
def _conv(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Convolutions, by channel on vector lanes. Roofline (Williams et al., CACM 52(4), 2009)."""
    shape = contraction(rows)
    values, unit = machine.values, rows.by_dtype(machine.unit_rate, machine.name)
    # 1x1 windows go to the GEMM library
    pointwise = np.minimum(unit, machine.gemm_flop_per_s(rows))
    rate = np.where(window_volume(rows) > 1, unit, pointwise)
    depthwise = (rows["groups"] > 1) & (rows["groups"] >= rows["channels_in"])
    outputs = shape.groups * shape.m * shape.n
    depthwise_rate = unit * values.depthwise_efficiency_fraction / values.unit_efficiency_fraction
    channelwise = _block_threads(outputs, machine)
    slow = shape.flop / depthwise_rate * (machine.threads / channelwise)
    compute = np.where(depthwise, slow, _product_s(shape, rate, machine))
    compute += _conversion_s(rows, machine)
    threads = np.where(depthwise, channelwise, _gemm_threads(shape, machine))
    compute += _epilogue_s(rows, outputs, machine) * machine.threads / threads
    return _started(rows, machine, _Work(compute, shape.flop, threads), machine.conv_s)


@FORMULAS.register(_K.ATTENTION, _K.ATTENTION_BACKWARD)
def _attention(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Scores, softmax and context. Roofline (Williams et al., CACM 52(4), 2009)."""
    parts = attention_products(rows)
    rate = machine.gemm_flop_per_s(rows)
    products = _product_s(parts.scores, rate, machine) + _product_s(parts.context, rate, machine)
    forward = parts.scores.flop + parts.context.flop
    passes = np.divide(parts.flop, forward, out=np.zeros(len(rows)), where=forward > 0)
    threads = _block_threads(parts.pairs, machine)
    efficiency = machine.values.softmax_efficiency_fraction
    softmax = 6.0 * parts.pairs / (machine.vector_rate(rows) * efficiency)
    compute = products * passes + softmax * machine.threads / threads + _conversion_s(rows, machine)
    work = _Work(compute, parts.flop, threads)
    return _started(rows, machine, work, machine.contraction_s)


@FORMULAS.register(_K.RNN, _K.LSTM, _K.GRU)
def _recurrent(rows: Rows, machine: CpuMachine) -> RowCosts:
    """One product over all inputs, then one a step, as Appleyard et al., arXiv:1604.01946."""
    parts = recurrence(rows)
    rate = rows.by_dtype(machine.unit_rate, machine.name)
    inputs_s = _product_s(parts.inputs, rate, machine)
    one_step_s = _product_s(parts.step, rate, machine)
    most = _gemm_threads(parts.step, machine)
    weights = parts.step.n * parts.step.k * rows.element_bytes
    work = one_step_s * most
    # a state of few rows feeds few threads, but more of them read its weights sooner
    most = np.maximum(most, _moving_threads(weights, machine))
    reread = machine.level_bytes(weights, weights)

    def step_s(count: FloatArray) -> FloatArray:
        longest: FloatArray = np.maximum(work / count, machine.level_s(reread, count))
        return longest + machine.fork_join_s(count)

    threads = _best_threads(step_s, most, machine)
    steps = parts.passes * parts.steps
    fed = _gemm_threads(parts.inputs, machine)
    moving = np.maximum(fed, _moving_threads(rows.bytes, machine))
    inputs = _Work(parts.passes * inputs_s, rows.column("flop"), moving, fed)
    costs = _started(rows, machine, inputs, machine.contraction_s)
    time = costs.time_s + steps * (step_s(threads) + machine.values.recurrent_step_s)
    compute = costs.compute_s + steps * work / threads
    return RowCosts(time, compute, costs.memory_s, costs.flop, costs.bytes, _log_sigma(rows))


# -- memory-bound operators
# ------------------------------------------------------------------------------------------


def _vector(
    rows: Rows,
    machine: CpuMachine,
    lane_s: FloatArray,
    elements: FloatArray,
    memory_s: Callable[[FloatArray], FloatArray] | None = None,
) -> RowCosts:
    """A vector kernel: `lane_s` is its time on all threads; `memory_s` as of `_started`."""
    threads = _threads(elements, machine)
    work = _Work(lane_s * machine.threads / threads, rows.column("flop"), threads)
    return _started(rows, machine, work, machine.dispatch_s, memory_s)


@FORMULAS.register(_K.ELEMENTWISE, _K.MOE_ROUTING, _K.REDUCTION, _K.BATCH_NORM)
def _elementwise(rows: Rows, machine: CpuMachine) -> RowCosts:
    """One pass over the elements. Roofline (Williams et al., CACM 52(4), 2009)."""
    longer = np.maximum(rows.column("read_bytes"), rows.column("write_bytes"))
    elements = longer / rows.element_bytes
    return _vector(rows, machine, machine.vector_s(rows, rows.column("flop")), elements)


@FORMULAS.register(_K.LAYER_NORM, _K.RMS_NORM, _K.GROUP_NORM, _K.SOFTMAX)
def _row_kernels(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Norms and softmax. Roofline (Williams et al., CACM 52(4), 2009)."""
    values = machine.values
    efficiency = values.vector_efficiency_fraction
    if rows.kind == _K.SOFTMAX:
        efficiency = values.softmax_efficiency_fraction
    lane = rows.column("flop") / (machine.vector_rate(rows) * efficiency)
    return _vector(rows, machine, lane, rows["rows"] * rows["columns"])


@FORMULAS.register(_K.POOLING)
def _pooling(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Windows tap by tap. Roofline (Williams et al., CACM 52(4), 2009)."""
    taps = rows["batch"] * rows["channels"] * rows["out_pixels"] * rows["kernel_volume"]
    # a global mean is a vector reduction
    scalar = (machine.execution is Execution.EAGER) & (rows["out_pixels"] > 1)
    values = machine.values
    cycles = np.where(scalar, values.pooling_cycles_per_tap, values.fused_pooling_cycles_per_tap)
    floor = rows.column("flop") / machine.vector_rate(rows)
    lane = np.maximum(taps * cycles / (machine.clock_hz * machine.threads), floor)
    return _vector(rows, machine, lane, taps)


@FORMULAS.register(_K.OPTIMIZER)
def _optimizer(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Updates tensor by tensor. Roofline (Williams et al., CACM 52(4), 2009)."""
    eager = machine.execution is Execution.EAGER
    passes = machine.values.optimizer_pass_ratio if eager else 1.0
    moved = passes * machine.traffic_bytes(rows, np.ones(len(rows)))
    lane = machine.vector_s(rows, rows.column("flop"))
    costs = _vector(rows, machine, lane, rows["parameters"], partial(machine.level_s, moved))
    later_starts = np.maximum(rows["tensors"] if eager else 1.0, 1.0) - 1.0
    return replace(costs, time_s=costs.time_s + machine.dispatch_s * later_starts)


@FORMULAS.register(_K.COPY, _K.HOST_TO_DEVICE, _K.DEVICE_TO_HOST)
def _copy(rows: Rows, machine: CpuMachine) -> RowCosts:
    return _vector(rows, machine, np.zeros(len(rows)), rows.bytes / 8.0)


@FORMULAS.register(_K.EMBEDDING, _K.EMBEDDING_BAG, _K.SCATTER)
def _gather(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Random rows of a table: each line waits for memory, `outstanding_line_count` at a time per
    core.

    Lines in flight over their latency: Little's law (Little, Operations Research 9(3), 1961).
    """
    width = rows.element_bytes
    row_bytes = rows["width"] * width
    lines = np.ceil(row_bytes / 64.0) * rows["lookups"] * (2.0 if rows.kind == _K.SCATTER else 1.0)
    elements = rows["lookups"] * rows["width"]
    if rows.kind == _K.EMBEDDING:  # a loop joined to it runs over what it writes
        elements = np.maximum(elements, rows.column("write_bytes") / width)
    cold = row_bytes * rows["table_rows"] > machine.last_level_bytes
    moved = machine.traffic_bytes(rows, machine.part_count(rows))
    line_s = machine.values.memory_latency_s / machine.values.outstanding_line_count
    waiting = np.where(cold, lines * line_s, 0.0)

    def memory_s(count: FloatArray) -> FloatArray:
        return machine.level_s(moved, count) + waiting / count

    return _vector(rows, machine, machine.vector_s(rows, rows.column("flop")), elements, memory_s)


@FORMULAS.register(_K.TREE_ENSEMBLE)
def _trees(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Visited nodes. Estimate: a node is an L2 hit and half a missed branch (`cpu.yaml`)."""
    visits = rows["rows"] * rows["trees"] * rows["depth"]
    return _tree_work(rows, machine, visits, machine.values.tree_cycles_per_node)


@FORMULAS.register(_K.TREE_HISTOGRAM)
def _histogram(rows: Rows, machine: CpuMachine) -> RowCosts:
    """Updates of bins. Ke et al., LightGBM, NeurIPS 2017; cycles are an estimate."""
    updates = rows["rows"] * rows["features"] * rows["trees"] * np.maximum(rows["depth"], 1.0)
    return _tree_work(rows, machine, updates, machine.values.histogram_cycles_per_update)


def _tree_work(
    rows: Rows, machine: CpuMachine, steps: FloatArray, cycles_per_step: float
) -> RowCosts:
    """Steps of integers and branches, which count as no FLOP."""
    lane = steps * cycles_per_step / (machine.clock_hz * machine.threads)
    costs = _vector(rows, machine, lane, steps)
    return replace(costs, flop=np.zeros(len(rows)), log_sigma=0.6)
