"""Systolic-array cost model: folds of the matrix arrays, the vector unit beside them, and physical
memory stalls.

A contraction takes the longer of its array cycles and its main-memory traffic, plus the load of the
first stationary tile and the drain of the last output tile, plus a fixed time per operator. Chips
with several arrays split a product's groups, pixels or filters, whichever ends first. Activations
that fit in half of the scratchpad stay there between operators, and larger ones where running the
batch in parts is faster; weights come from main memory where no weight cache keeps them, more than
once where the scratchpad is too small for the best loop order, or where cores have scratchpads of
their own. Structured sparse weights take the chip's sparse rate. Softmax, norms, pooling and
elementwise code run on the vector unit. The program is compiled ahead of time in every execution
mode.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from accelsim.cost.assemble import assemble_table, energy_rates
from accelsim.cost.contraction import (
    Contraction,
    attention_products,
    contraction,
    recurrence,
    window_volume,
)
from accelsim.cost.systolic.cycles import (
    pipelined_cycles,
    row_stationary_active_pes,
    row_stationary_product_pes,
    systolic_cycles,
)
from accelsim.cost.systolic.machine import (
    TRAINING_PHASES,
    AsicMachine,
    SystolicParameters,
    asic_machine,
    systolic_parameters,
)
from accelsim.cost.systolic.traffic import (
    batch_parts,
    contraction_bytes,
    in_parts,
    parts_bytes,
    stored_weight_bytes,
    weight_density,
)
from accelsim.cost.table import CostTable, Execution, Formulas, RowCosts, Rows, refuse_rows
from accelsim.dtype import DTYPE_BYTES
from accelsim.errors import DoesNotFitError
from accelsim.hardware.profile import AsicProfile, Dataflow
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph
from accelsim.workloads.operator import CONTRACTION_KINDS, CONV_KINDS, OperatorKind

_K = OperatorKind
FORMULAS: Formulas[AsicMachine] = Formulas("asic")
#: Spread of ln(measured over predicted) of networks on one chip about what they share there, 0.03
#: to 0.28 on four chips (suite asic-networks); how far chips lie apart is the spread of their
#: stacks.
_SIGMA = 0.2
#: Cuts tried where sums stay in the array: of the contraction, and of each array's rows into blocks
#: on parts of a product of their own. Gaudi 2's compiler halves its engines where a product's last
#: rows fill no more (Intel, Gaudi graph compiler sources, adff76c: gaudi2_geo_attr.cpp); quarters,
#: and that other chips do so, are an estimate.
_CUTS = ((1.0, 1), (2.0, 1), (8.0, 1), (1.0, 4), (8.0, 4))
#: Kinds of which each sample has products of its own.
_OF_SAMPLES = frozenset({_K.BATCHED_GEMM, _K.ATTENTION})
_TRAINING_KINDS = (
    _K.ATTENTION_BACKWARD,
    _K.CONV_BACKWARD_DATA,
    _K.CONV_BACKWARD_WEIGHT,
    _K.OPTIMIZER,
)


def cost_systolic(
    graph: OperatorGraph,
    device: AsicProfile,
    execution: Execution = Execution.EAGER,
    parameters: SystolicParameters | None = None,
) -> CostTable:
    """Cost every row of a graph on a matrix ASIC.

    Williams et al., CACM 52(4), 2009, with cycles as Samajdar et al., ISPASS 2020 (SCALE-Sim).

    Args:
        graph: Operators.
        device: ASIC profile.
        execution: Makes no difference: programs are compiled ahead of time.
        parameters: Class-wide parameters unless given.

    Raises:
        UnsupportedOperatorError: Naming the first row whose kind, format or phase the chip cannot
            run.
    """
    del execution
    values = parameters or systolic_parameters()
    labels = [path or name for path, name in zip(graph.path, graph.name, strict=True)]
    refuse_rows(graph, device.name, labels, _refusals(graph, device))
    machine = asic_machine(device, values).running(graph, device, values.samples)
    costs = FORMULAS.evaluate(graph, machine, device.name)
    rates = energy_rates(device, values.energy_overhead_ratio)
    return assemble_table(graph, costs, rates)


def supported_rows_systolic(graph: OperatorGraph, device: AsicProfile) -> BoolArray:
    """Which rows the chip can run: its kinds, formats of its arrays, and training where it trains,
    shape (n,).
    """
    refused = [rows for rows, *_ in _refusals(graph, device)]
    supported: BoolArray = ~np.any(refused, axis=0)
    return supported


def _refusals(graph: OperatorGraph, device: AsicProfile) -> tuple[tuple[BoolArray, str, str], ...]:
    """Rows the chip cannot run, why, and what to do."""
    formats = ", ".join(d.label for d in device.matrix_flop_per_s)
    why = f"its arrays compute in {formats}"
    remedy = "Choose one of these precisions, or allow host fallback."
    if not formats:
        why, remedy = "no rate of its arrays was published", "Choose another device."
    trains = np.isin(graph.kind, _TRAINING_KINDS) | np.isin(graph.phase, TRAINING_PHASES)
    refused = {label.lower() for label in device.unsupported_operators}
    supported_kinds = [kind for kind in FORMULAS.kinds if kind.label not in refused]
    in_format = np.isin(graph.dtype, list(device.matrix_flop_per_s))
    return (
        (
            trains & (not device.training),
            "it runs inference only",
            "Choose inference, or a device that trains.",
        ),
        (
            ~np.isin(graph.kind, supported_kinds),
            "its compiler has no such operator",
            "Allow host fallback, or choose another device.",
        ),
        (np.isin(graph.kind, list(CONTRACTION_KINDS)) & ~in_format, why, remedy),
    )


# -- matrix arrays


def _cycles(m: FloatArray, n: FloatArray, k: FloatArray, machine: AsicMachine) -> FloatArray:
    """Cycles of one product on one array.

    SCALE-Sim (Samajdar et al., ISPASS 2020); row-stationary: Chen et al., JSSC 52(1), 2017.
    """
    if machine.dataflow is Dataflow.ROW_STATIONARY:
        active = row_stationary_product_pes(m, machine.rows, machine.columns)
        return m * n * k / (active * machine.values.row_stationary_efficiency_fraction)
    form = pipelined_cycles if machine.values.pipelined else systolic_cycles
    return form(m, n, k, machine.rows, machine.columns, machine.dataflow)


def split_cycles(shape: Contraction, machine: AsicMachine) -> FloatArray:
    """Cycles until the last array ends, under the best split of groups, pixels and filters over the
    arrays.

    Estimate: the best static split; Samajdar et al., ISPASS 2020 (SCALE-Sim) for the cycles of each
    part.

    Groups go to different arrays first, or not at all; the arrays left to each group split its
    pixels, its filters, or both. Where sums stay in the array, a group's contraction may be cut,
    too, its partial sums added a column at a time, either operand may come from either side, and
    blocks of rows may work apart: a few rows more start no second wave of all arrays.

    Args:
        shape: Products, shape (r,).
        machine: Arrays.

    Returns:
        Cycles, shape (r,).
    """
    if machine.count == 1:
        return shape.groups * _cycles(shape.m, shape.n, shape.k, machine)
    best = _shared_cycles(shape, np.ones_like(shape.groups), machine)
    if machine.dataflow is not Dataflow.OUTPUT_STATIONARY:
        used = np.clip(shape.groups, 1.0, machine.count)
        return np.minimum(best, _shared_cycles(shape, used, machine))
    for (cut, blocks), (m, n) in product(_CUTS, ((shape.m, shape.n), (shape.n, shape.m))):
        arrays = machine.in_row_blocks(blocks)
        cut_shape = replace(shape, groups=shape.groups * cut, m=m, n=n, k=np.ceil(shape.k / cut))
        added = (cut - 1) * shape.groups * m * n / (machine.count * machine.columns)
        used = np.clip(cut_shape.groups, 1.0, arrays.count)
        best = np.minimum(best, _shared_cycles(cut_shape, used, arrays) + added)
    return best


def _shared_cycles(shape: Contraction, used: FloatArray, machine: AsicMachine) -> FloatArray:
    """Cycles where so many groups run side by side, each on its share of the arrays.

    Folds of Samajdar et al., SCALE-Sim, ISPASS 2020; equal shares are an estimate.
    """
    rounds, left = np.ceil(shape.groups / used), np.floor(machine.count / used)
    best = np.full(shape.m.shape, np.inf)
    for pixels, filters in _splits(shape, left, machine):
        m, n = np.ceil(shape.m / pixels), np.ceil(shape.n / filters)
        best = np.minimum(best, rounds * _cycles(m, n, shape.k, machine))
    return best


def _splits(
    shape: Contraction, arrays: FloatArray, machine: AsicMachine
) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Ways to cut a product's pixels and filters over so many arrays.

    Estimate: even cuts, and those along whole folds.
    """
    filter_folds = np.clip(np.ceil(shape.n / machine.columns), 1.0, arrays)
    pixel_folds = np.clip(np.ceil(shape.m / machine.rows), 1.0, arrays)
    powers = 4.0 ** np.arange(machine.count.bit_length() // 2 + 1)
    even = tuple(
        (np.minimum(parts, arrays), np.maximum(np.floor(arrays / parts), 1.0)) for parts in powers
    )
    return (
        *even,
        (np.floor(arrays / filter_folds), filter_folds),
        (pixel_folds, np.floor(arrays / pixel_folds)),
        (arrays, np.ones_like(arrays)),
    )


def _on_all_cores(shape: Contraction, kind: OperatorKind, machine: AsicMachine) -> Contraction:
    """Products as if every core had a sample, which takes as long as where some have none."""
    if machine.idle_ratio == 1.0:
        return shape
    if kind in _OF_SAMPLES:
        return replace(shape, groups=shape.groups * machine.idle_ratio)
    return replace(shape, m=shape.m * machine.idle_ratio)


def _array_costs(
    rows: Rows,
    shape: Contraction,
    compute: FloatArray,
    flop: FloatArray,
    moved: FloatArray,
    machine: AsicMachine,
) -> RowCosts:
    """Row costs of array work: the longer of cycles and traffic, plus first fill, last drain and
    the operator's start.

    Roofline (Williams et al., CACM 52(4), 2009). Maps of a row-stationary array do not overlap its
    work, as filters do (Chen et al., JSSC 52(1), 2017, table V: total and processing latency).
    """
    width = rows.element_bytes
    maps = machine.serial_map_ratio * (rows.column("read_bytes") + rows.column("write_bytes"))
    serial = maps / machine.memory_bytes_per_s
    across = np.minimum(shape.n, machine.columns)
    fill = np.minimum(shape.k, machine.rows) * across * width
    written = rows.column("read_bytes") + rows.column("write_bytes") > machine.resident_bytes
    drain = np.where(written, np.minimum(shape.m, machine.rows) * across * width, 0.0)
    edges = np.where(moved > 0, np.minimum(fill + drain, moved), 0.0) / machine.memory_bytes_per_s
    memory = moved / machine.memory_bytes_per_s
    return RowCosts(
        time_s=np.maximum(compute, memory - serial) + serial + edges + machine.operator_start_s,
        compute_s=compute,
        memory_s=memory,
        flop=flop,
        bytes=moved,
        log_sigma=_SIGMA,
    )


def _refuse_small_scratchpad(rows: Rows, shape: Contraction, machine: AsicMachine) -> None:
    """Raise for the first product of which not even one vector of inputs and one of results fits,
    each twice.
    """
    width = rows.element_bytes
    vectors = np.minimum(shape.k, machine.rows) + np.minimum(shape.n, machine.columns)
    needed = 2.0 * width * vectors
    short = np.flatnonzero(needed > machine.sram_bytes)
    if short.size:
        row = int(rows.index[short[0]])
        label = f"{machine.name}, layer {(rows.graph.path[row] or rows.graph.name[row])!r},"
        remedy = "Enlarge sram_bytes of the profile, or take a smaller array."
        raise DoesNotFitError(
            label, "scratchpad bytes", float(needed[short[0]]), machine.sram_bytes, remedy
        )


def _compute_s(rows: Rows, shape: Contraction, machine: AsicMachine) -> FloatArray:
    """Array time of products; depthwise windows may be faster on the vector unit.

    Where an array contracts over the partitions of its memory, a window is a sum of products, one
    for each tap, that contract the input channels alone (AWS Neuron documentation,
    nki.isa.nc_matmul and NKI's convolution kernels): few channels leave most of its rows idle.
    Row-stationary arrays are Chen et al., Eyeriss, JSSC 52(1), 2017.
    """
    codes = rows.column("dtype")
    cycle_s: FloatArray = weight_density(rows, machine) * machine.seconds_per_cycle[codes]
    on_vector: FloatArray = shape.flop / machine.vector_flop_per_s[codes]
    shape = _on_all_cores(shape, rows.kind, machine)
    if machine.dataflow is Dataflow.ROW_STATIONARY and rows.kind is _K.CONV:
        heights = rows["kernel_h"], rows["out_h"]
        active = row_stationary_active_pes(*heights, machine.rows, machine.columns)
        rate = machine.count * active * machine.values.row_stationary_efficiency_fraction
        return cycle_s * shape.flop / 2.0 / rate
    if rows.kind not in CONV_KINDS:
        return cycle_s * split_cycles(shape, machine)
    is_sum = machine.convolves_taps and rows.kind is _K.CONV
    taps = window_volume(rows) if is_sum else np.ones(len(rows))
    tap = replace(shape, k=shape.k / taps)
    return np.minimum(taps * cycle_s * split_cycles(tap, machine), on_vector)


@FORMULAS.register(_K.GEMM, _K.BATCHED_GEMM, _K.GROUPED_GEMM, *sorted(CONV_KINDS))
def _product(rows: Rows, machine: AsicMachine) -> RowCosts:
    """A product run whole, or in parts of its batch whose activations stay on chip.

    Elementwise operators fused behind it run on the vector unit as results leave the array: the
    slower of the two sets the pace.

    Parts of a batch, each to the end: Alwani et al., MICRO 2016.
    """
    shape = contraction(rows)
    _refuse_small_scratchpad(rows, shape, machine)
    epilogue_s = rows.epilogue_flop / machine.vector_flop_per_s[rows.column("dtype")]
    flop = weight_density(rows, machine) * shape.flop
    moved = contraction_bytes(rows, shape, machine)
    compute = np.maximum(_compute_s(rows, shape, machine), epilogue_s)
    unsplit = _array_costs(rows, shape, compute, flop, moved, machine)
    parts = batch_parts(rows, machine)
    index = np.flatnonzero((parts > 1) & np.isfinite(parts))
    if not index.size:
        return unsplit
    split_rows, count = Rows(rows.graph, rows.index[index], rows.kind), parts[index]
    part_shape = in_parts(split_rows, contraction(split_rows), count)
    compute = np.maximum(count * _compute_s(split_rows, part_shape, machine), epilogue_s[index])
    moved = parts_bytes(split_rows, machine, count)
    split = _array_costs(split_rows, part_shape, compute, flop[index], moved, machine)
    late = (count - 1.0) * machine.operator_start_s
    return unsplit.or_faster(replace(split, time_s=split.time_s + late), index)


@FORMULAS.register(_K.ATTENTION, _K.ATTENTION_BACKWARD)
def _attention(rows: Rows, machine: AsicMachine) -> RowCosts:
    """Two products on the arrays and softmax of their scores on the vector unit, a pipeline over
    the heads.

    A head's softmax waits for its scores, its context for the softmax; other heads fill the wait.
    The vector unit's work grows with the passes over the scores as the products' does. Estimate:
    six operations per score for the softmax, as `operator` counts them.

    Text is inferred in kernels that take a sequence and its keys' head in one step, in blocks of
    keys (vLLM's paged attention on TPUs; Kwon et al., SOSP 2023): its products stay on one array of
    a core, and reductions across lanes set the pace of its scores.
    """
    is_text = (rows["causal"] > 0) & bool((machine.part_limit > 0).any())
    parts = attention_products(rows)
    codes = rows.column("dtype")
    scores, context = (
        _on_all_cores(product_shape, rows.kind, machine)
        for product_shape in (parts.scores, parts.context)
    )
    cycles = split_cycles(scores, machine) + split_cycles(context, machine)
    steps = np.maximum(scores.groups / machine.core_count, 1.0)
    cycles = np.where(is_text, steps * _key_cycles(scores, machine), cycles)
    forward = parts.scores.flop + parts.context.flop
    passes = np.divide(parts.flop, forward, out=np.zeros(len(rows)), where=forward > 0)
    operations = np.where(is_text, machine.values.causal_score_operations, 6.0)
    softmax = operations * passes * parts.pairs / machine.vector_flop_per_s[codes]
    products = cycles * passes * machine.seconds_per_cycle[codes]
    wait_s = np.minimum(products, softmax) / np.maximum(scores.groups, 1.0)
    starts = np.where(is_text, steps * machine.values.attention_step_s, 0.0)
    compute = np.maximum(products, softmax) + wait_s + starts
    # Keys and values of earlier tokens come from the cache in main memory.
    is_cached = rows["kv_len"] > rows["q_len"]
    stays = np.isfinite(batch_parts(rows, machine)) & ~is_cached
    moved = np.where(stays, 0.0, rows.bytes)
    return _array_costs(rows, parts.scores, compute, parts.flop, moved, machine)


def _key_cycles(scores: Contraction, machine: AsicMachine) -> FloatArray:
    """Cycles of scores and context of one sequence and head of keys on one array, shape (r,).

    Estimate: each key and each value enters the array as a row of weights in a cycle, while
    queries stream past those that are in it; fills of one sequence hide behind another.
    """
    passed = np.maximum(scores.m / machine.rows, 1.0) * np.ceil(scores.k / machine.columns)
    cycles: FloatArray = 2.0 * scores.n * passed
    return cycles


@FORMULAS.register(_K.RNN, _K.LSTM, _K.GRU)
def _recurrent(rows: Rows, machine: AsicMachine) -> RowCosts:
    """All inputs in one product, then one dependent product per step; weights stay on chip between
    steps if they fit.

    Appleyard et al., arXiv:1604.01946, join the products of all inputs so.
    """
    parts = recurrence(rows)
    codes = rows.column("dtype")
    input_cycles, step_cycles = (
        split_cycles(_on_all_cores(product_shape, rows.kind, machine), machine)
        for product_shape in (parts.inputs, parts.step)
    )
    density = weight_density(rows, machine)
    cycles = parts.passes * (input_cycles + parts.steps * step_cycles)
    compute = density * cycles * machine.seconds_per_cycle[codes]
    weights: FloatArray = rows.column("weight_bytes")
    stored = stored_weight_bytes(rows, machine)
    stored_ratio = np.divide(stored, weights, out=np.ones(len(rows)), where=weights > 0)
    recurrent = stored_ratio * parts.step.n * parts.step.k * DTYPE_BYTES[codes]
    later_steps = np.maximum(parts.steps - 1.0, 0.0)
    reread = np.where(recurrent > machine.resident_bytes, recurrent * later_steps, 0.0)
    activation_bytes = rows.bytes - weights
    moved = stored + reread + np.where(batch_parts(rows, machine) == 1, 0.0, activation_bytes)
    costs = _array_costs(rows, parts.inputs, compute, density * rows.column("flop"), moved, machine)
    start = later_steps * machine.operator_start_s
    return replace(costs, time_s=costs.time_s + start)


# -- vector unit


def _vector_costs(
    rows: Rows, machine: AsicMachine, moved: FloatArray, late: FloatArray | float = 0.0
) -> RowCosts:
    """Row costs of the vector unit; a copy takes a lane per element, too.

    Roofline (Williams et al., CACM 52(4), 2009).
    """
    codes, flop = rows.column("dtype"), rows.column("flop")
    passed = rows.column("write_bytes") / DTYPE_BYTES[codes]
    compute = np.maximum(flop, passed) / machine.vector_flop_per_s[codes]
    memory = moved / machine.memory_bytes_per_s
    time = np.maximum(compute, memory) + machine.operator_start_s + late
    return RowCosts(time, compute, memory, flop, moved, _SIGMA)


@FORMULAS.register(
    _K.LAYER_NORM,
    _K.RMS_NORM,
    _K.BATCH_NORM,
    _K.GROUP_NORM,
    _K.SOFTMAX,
    _K.ELEMENTWISE,
    _K.REDUCTION,
    _K.POOLING,
    _K.MOE_ROUTING,
    _K.COPY,
)
def _vector(rows: Rows, machine: AsicMachine) -> RowCosts:
    """Passes of the vector unit. Roofline (Williams et al., CACM 52(4), 2009)."""
    weights: FloatArray = rows.column("weight_bytes")
    parts = batch_parts(rows, machine)
    on_chip = np.isfinite(parts)
    activations = np.where(on_chip, 0.0, rows.bytes - weights)
    late = np.where(on_chip, parts - 1.0, 0.0) * machine.operator_start_s
    moved = weights * machine.streamed_weight_fraction + activations
    return _vector_costs(rows, machine, moved, late)


@FORMULAS.register(_K.OPTIMIZER, _K.EMBEDDING, _K.EMBEDDING_BAG, _K.SCATTER)
def _from_memory(rows: Rows, machine: AsicMachine) -> RowCosts:
    """Updates, and rows of a table: all operands are in main memory."""
    return _vector_costs(rows, machine, rows.bytes)


@FORMULAS.register(_K.HOST_TO_DEVICE, _K.DEVICE_TO_HOST)
def _transfer(rows: Rows, machine: AsicMachine) -> RowCosts:
    moved = rows["bytes"]
    time = moved / machine.host_bytes_per_s
    zero = np.zeros(len(rows))
    return RowCosts(time + machine.operator_start_s, zero, time, zero, moved, _SIGMA)
