"""FPGA cost model: layers on an overlay processor, or one streaming design for the whole network.

On an overlay a layer takes the longer of its cycles and its traffic, plus a start. Cores work on
different images and share the board's memory; weights are read once per image, or once for all
cores of a batch engine, which also keeps feature maps on chip where they fit; elsewhere maps pass
through memory between layers. Batch normalisation is folded into weights and one-input activations
run in the convolution's output stage, at no cost; sums and pooling have their own engine of PP x
ICP lanes, depthwise windows likewise. Attention, softmax, norms and recurrent layers are refused
(the registry can send them to the host). Fully connected layers run as 1x1 convolutions, so a
transformer's projections can stay on the board. Boards with rates fitted to their overlay take the
layer model of whole networks instead (`accelsim.cost.fpga.fitted_overlay`).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import get_args

import numpy as np

from accelsim.cost.assemble import assemble_table, energy_rates
from accelsim.cost.contraction import contraction, window_volume
from accelsim.cost.fpga.dataflow import StreamingNode, fold_network
from accelsim.cost.fpga.fitted_overlay import NetworkTimes, network_times
from accelsim.cost.fpga.fpga_parameters import Flow, FpgaParameters, fpga_parameters
from accelsim.cost.fpga.overlay import OverlayMachine, overlay_machine
from accelsim.cost.table import (
    CostTable,
    Execution,
    Formulas,
    ParameterTier,
    RowCosts,
    Rows,
    refuse_rows,
)
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.hardware.profile import FpgaProfile
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase

_K = OperatorKind
FORMULAS: Formulas[OverlayMachine] = Formulas("fpga")
_SIGMA = 0.4
_TRAINING_PHASES = (Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER)
#: Kinds that only a general grid runs: a DPU multiplies weights with activations, never two
#: activations.
_GENERAL_KINDS = (_K.BATCHED_GEMM, _K.GROUPED_GEMM)
#: Costliest function an output stage applies, FLOP per element: SiLU, which the quantizer makes a
#: hard swish (AMD UG1414).
_OUTPUT_STAGE_FLOP = 5


def cost_fpga(
    graph: OperatorGraph,
    device: FpgaProfile,
    execution: Execution = Execution.EAGER,
    parameters: FpgaParameters | None = None,
) -> CostTable:
    """Cost every row of a graph on an FPGA.

    Parallelism PP x ICP x OCP: AMD PG338 (DPUCZDX8G); the roofline of Williams et al., CACM 52(4),
    2009.

    Args:
        graph: Operators.
        device: FPGA profile.
        execution: Makes no difference: programs and designs are compiled ahead of time.
        parameters: Class-wide parameters unless given; their `flow` chooses overlay or dataflow.

    Raises:
        UnsupportedOperatorError: Naming the first row whose kind, format or phase the board cannot
            run.
        DoesNotFitError: If a dataflow design lacks a resource.
        InvalidValueError: If there is no such flow.
    """
    values = parameters or fpga_parameters()
    if values.flow not in get_args(Flow):
        raise InvalidValueError("flow", values.flow, "one of " + ", ".join(get_args(Flow)))
    if values.flow == "dataflow":
        return cost_dataflow(graph, device, execution, values)
    machine = overlay_machine(device, values)
    refuse_rows(graph, machine.name, graph.name, _refusals(graph, machine))
    costs = FORMULAS.evaluate(graph, machine, device.name)
    times = None if values.board is None else network_times(graph, device, values.board)
    if times is not None:
        costs = _fitted(costs, graph, times)
    tier = ParameterTier.SPEC if times is None else ParameterTier.FITTED
    table = _assemble(graph, costs, device, values, ~_fused_rows(graph), tier)
    if times is not None:
        table.dispatch_s[0] = times.issue_s
    elif len(graph):
        alone = FORMULAS.evaluate(graph, replace(machine, is_alone=True), device.name)
        table.dispatch_s[0] = float((alone.time_s - costs.time_s).sum())
    return table


def _assemble(
    graph: OperatorGraph,
    costs: RowCosts,
    device: FpgaProfile,
    values: FpgaParameters,
    works: BoolArray,
    tier: ParameterTier = ParameterTier.SPEC,
) -> CostTable:
    """A table with the energy of arithmetic, on-chip and main memory, and of the clocks, which run
    as long as layers do.

    Clock networks' share: Shang, Kaviani and Bathala, FPGA 2002.

    Args:
        graph: Operators.
        costs: Their row costs.
        device: FPGA profile.
        values: Parameters.
        works: Rows that take energy, shape (n,).
        tier: Where the times come from.
    """
    rates = energy_rates(device, values.energy_overhead_ratio)
    active = values.active_power_fraction
    table = assemble_table(graph, costs, rates, active_fraction=active, tier=tier)
    return replace(table, energy_j=np.where(works, table.energy_j, 0.0))


def _fitted(costs: RowCosts, graph: OperatorGraph, times: NetworkTimes) -> RowCosts:
    """The costs with the times of layers from the fitted model; joined maps are written in
    place.
    """
    inside = _fused_rows(graph) | (graph.kind == _K.COPY)
    columns = []
    for name in ("time_s", "compute_s", "memory_s"):
        column = np.where(inside, 0.0, getattr(costs, name))
        column[times.rows] = getattr(times, name)
        columns.append(column)
    time, compute, memory = columns
    # The spread is that of whole networks: rows share it over all kinds, which otherwise count as
    # independent.
    share = np.bincount(graph.kind, weights=time) / max(float(time.sum()), 1e-30)
    sigma = times.log_sigma / float(np.linalg.norm(share))
    return RowCosts(time, compute, memory, costs.flop, costs.bytes, sigma)


def supported_rows_fpga(graph: OperatorGraph, device: FpgaProfile) -> BoolArray:
    """Which rows the board's overlay can run, shape (n,)."""
    machine = overlay_machine(device, fpga_parameters())
    refused = [rows for rows, *_ in _refusals(graph, machine)]
    supported: BoolArray = ~np.any(refused, axis=0)
    return supported


def _refusals(
    graph: OperatorGraph, machine: OverlayMachine
) -> tuple[tuple[BoolArray, str, str], ...]:
    """Rows the overlay cannot run, why, and what to do."""
    unknown = ~np.isin(graph.kind, list(FORMULAS.kinds))
    unknown |= machine.published & np.isin(graph.kind, _GENERAL_KINDS)
    unknown |= _has_one_input(graph) & (graph.dims[:, 2] > _OUTPUT_STAGE_FLOP)
    moves = np.isin(graph.kind, [_K.COPY, _K.HOST_TO_DEVICE, _K.DEVICE_TO_HOST])
    formats = ", ".join(d.label for d in Dtype if not np.isnan(machine.seconds_per_cycle[d]))
    return (
        (
            np.isin(graph.phase, _TRAINING_PHASES),
            "FPGA overlays run inference only",
            "Choose inference, or a device that trains.",
        ),
        (
            unknown,
            "its overlay has no such operator",
            "Allow host fallback, or choose another device.",
        ),
        (
            np.isnan(machine.seconds_per_cycle[graph.dtype]) & ~moves,
            f"its overlay computes in {formats}",
            "Choose one of these precisions, or allow host fallback.",
        ),
    )


def _has_one_input(graph: OperatorGraph) -> BoolArray:
    has_one: BoolArray = (graph.kind == _K.ELEMENTWISE) & (graph.dims[:, 1] <= 1)
    return has_one


def _fused_rows(graph: OperatorGraph) -> BoolArray:
    """Rows that run inside a convolution: batch normalisation and one-input activations, shape
    (n,).
    """
    fused: BoolArray = _has_one_input(graph) | (graph.kind == _K.BATCH_NORM)
    return fused


# -- overlay


def _layer(
    rows: Rows,
    machine: OverlayMachine,
    cycles_per_image: FloatArray,
    images: FloatArray,
    flop: FloatArray,
) -> RowCosts:
    """Row costs of a layer whose images go to different cores, which take the next batch's where
    they are done.

    Roofline (Williams et al., CACM 52(4), 2009), of the cores' port and of the board's memory.
    """
    rounds = machine.rounds(images)
    compute = rounds * cycles_per_image * machine.seconds_per_cycle[rows.column("dtype")]
    weights: FloatArray = rows.column("weight_bytes")
    per_image = (rows.bytes - weights) / np.maximum(images, 1.0)
    per_image = np.where(per_image <= machine.resident_bytes, 0.0, per_image)
    fetches = rounds if machine.shares_weights else images
    moved = per_image * images + weights * np.maximum(fetches, 1.0)
    port = np.maximum(rounds, 1.0) * (per_image + weights) / machine.port_bytes_per_s
    memory = np.maximum(port, moved / machine.memory_bytes_per_s)
    time = np.maximum(compute, memory) + machine.layer_overhead_s
    return RowCosts(time, compute, memory, flop, moved, _SIGMA)


@FORMULAS.register(_K.CONV, _K.CONV_TRANSPOSE)
def _conv(rows: Rows, machine: OverlayMachine) -> RowCosts:
    """A convolution on the array, or by channel on the engine of lanes.

    Cycles follow AMD PG338; groups side by side are an estimate.
    """
    shape = contraction(rows)
    images = rows["batch"]
    groups = np.maximum(rows["groups"], 1.0)
    grid = "in" if rows.kind == _K.CONV_TRANSPOSE else "out"
    high = rows[f"{grid}_d"] * rows[f"{grid}_h"]
    wide = rows[f"{grid}_w"]
    # A published core takes PP rows of one column at once, so that rows round up, not pixels.
    pixels = (
        np.ceil(high / machine.grids[0][0]) * machine.grids[0][0] * wide
        if machine.published
        else high * wide
    )
    volume = window_volume(rows)
    sides = (rows["channels_in"] / groups, rows["channels_out"] / groups)
    array = groups * machine.array_cycles(pixels, *sides, volume)
    # The depthwise engine has no output-channel parallelism: PP x ICP lanes, one channel each.
    lanes = machine.lane_cycles(pixels, rows["channels_out"], volume * sides[0])
    cycles = np.where(groups > 1, np.minimum(array, lanes), array)
    return _layer(rows, machine, cycles, images, shape.flop)


@FORMULAS.register(_K.GEMM, _K.BATCHED_GEMM, _K.GROUPED_GEMM)
def _gemm(rows: Rows, machine: OverlayMachine) -> RowCosts:
    """A 1x1 convolution of m pixels, shared by as many cores as help: each core reads the weights
    once more.

    Cycles follow AMD PG338.
    """
    shape = contraction(rows)

    def on_cores(count: float) -> RowCosts:
        busy_cores = np.minimum(np.maximum(shape.m, 0.0), count)
        each = np.ceil(shape.m / np.maximum(busy_cores, 1.0))
        cycles = shape.groups * machine.array_cycles(each, shape.k, shape.n, 1.0)
        return _layer(rows, machine, cycles, busy_cores, shape.flop)

    best = on_cores(1.0)
    for count in range(2, int(machine.cores) + 1):
        best = best.or_faster(on_cores(float(count)))
    return best


@FORMULAS.register(_K.POOLING)
def _pooling(rows: Rows, machine: OverlayMachine) -> RowCosts:
    cycles = machine.lane_cycles(rows["out_pixels"], rows["channels"], rows["kernel_volume"])
    return _layer(rows, machine, cycles, rows["batch"], rows.column("flop"))


def _images(graph: OperatorGraph) -> float:
    """Images of the run: the largest batch of its convolutions and poolings; 1 without them."""
    spatial = np.isin(graph.kind, [_K.CONV, _K.CONV_TRANSPOSE, _K.POOLING])
    return float(graph.dims[spatial, 0].max(initial=1))


@FORMULAS.register(_K.ELEMENTWISE, _K.BATCH_NORM, _K.REDUCTION)
def _elementwise(rows: Rows, machine: OverlayMachine) -> RowCosts:
    """Sums, products and reductions on the engine's PP x ICP lanes; rows fused into convolutions
    cost nothing.

    Lanes of AMD PG338.
    """
    flop: FloatArray = rows.column("flop")
    images = np.full(len(rows), _images(rows.graph))
    results = rows.column("write_bytes") / rows.element_bytes
    cycles = np.maximum(flop, results) / images / machine.lanes
    costs = _layer(rows, machine, cycles, images, flop)
    fused = _fused_rows(rows.graph)[rows.index]
    names = ("time_s", "compute_s", "memory_s", "flop", "bytes")
    return replace(costs, **{name: np.where(fused, 0.0, getattr(costs, name)) for name in names})


@FORMULAS.register(_K.COPY)
def _copy(rows: Rows, machine: OverlayMachine) -> RowCosts:
    ports = machine.port_bytes_per_s * machine.cores
    return _moved(rows, rows.bytes, min(ports, machine.memory_bytes_per_s), machine)


@FORMULAS.register(_K.HOST_TO_DEVICE, _K.DEVICE_TO_HOST)
def _transfer(rows: Rows, machine: OverlayMachine) -> RowCosts:
    return _moved(rows, rows["bytes"], machine.host_bytes_per_s, machine)


def _moved(rows: Rows, moved: FloatArray, bandwidth: float, machine: OverlayMachine) -> RowCosts:
    zero = np.zeros(len(rows))
    time = moved / bandwidth
    return RowCosts(time + machine.layer_overhead_s, zero, time, zero, moved, _SIGMA)


# -- streaming dataflow

_STREAMED = (_K.CONV, _K.GEMM)
_HIDDEN = (_K.ELEMENTWISE, _K.BATCH_NORM, _K.POOLING, _K.REDUCTION, _K.COPY)


def _streaming_nodes(
    graph: OperatorGraph, device: FpgaProfile
) -> tuple[IntArray, list[StreamingNode], int]:
    """Rows with weights, their nodes, and the images of the run."""
    is_streamable = np.isin(graph.kind, (*_STREAMED, *_HIDDEN))
    refused = np.flatnonzero(~is_streamable | np.isin(graph.phase, _TRAINING_PHASES))
    if refused.size:
        kind = OperatorKind(int(graph.kind[refused[0]]))
        name = graph.name[int(refused[0])]
        reason = (
            "a streaming design holds convolutions, fully connected layers, activations and pooling"
            " of inference"
        )
        raise UnsupportedOperatorError(device.name, f"{kind.label} {name!r}", reason)
    index = np.flatnonzero(np.isin(graph.kind, _STREAMED))
    dims = [graph.dimensions_of(row) for row in index.tolist()]
    batches = [d["batch"] for d in dims if "channels_in" in d] or [d["m"] for d in dims]
    images = gcd(*batches) or 1
    pairs = zip(dims, index.tolist(), strict=True)
    return index, [_node(d, images, graph, row) for d, row in pairs], images


def _node(dims: dict[str, int], images: int, graph: OperatorGraph, row: int) -> StreamingNode:
    """A row as a matrix-vector unit sees it.

    The unit's matrix is Umuroglu et al., FINN, FPGA 2017, section 4.
    """
    bits = max(1, round(8 * Dtype(int(graph.dtype[row])).bytes))
    name = graph.name[row]
    width = dims.get("k", 0)
    height = dims.get("n", 0)
    pixels = dims.get("m", 0)
    start = 1.0
    if "channels_in" in dims:
        window = dims["kernel_d"] * dims["kernel_h"] * dims["kernel_w"]
        pixels = dims["out_d"] * dims["out_h"] * dims["out_w"] * dims["batch"]
        width = dims["channels_in"] // max(dims["groups"], 1) * window
        height = dims["channels_out"]
        start = min(1.0, dims["kernel_h"] / max(dims["out_h"], 1))
    vectors = max(pixels / images, 1)
    return StreamingNode(name, max(width, 1), max(height, 1), vectors, bits, bits, start)


def cost_dataflow(
    graph: OperatorGraph,
    device: FpgaProfile,
    execution: Execution = Execution.EAGER,
    parameters: FpgaParameters | None = None,
) -> CostTable:
    """Cost every row of a graph in one streaming design.

    Blott et al., TRETS 11(3), 2018 (FINN-R).

    Each node's row takes the wait it adds to the first image; the slowest node's row takes the
    rest: its own pass and the images that follow, one per (slowest node's cycles). Weights stay on
    chip, so only inputs and outputs of the graph move.

    Args:
        graph: Inference rows.
        device: FPGA profile.
        execution: Makes no difference.
        parameters: Class-wide unless given.

    Raises:
        UnsupportedOperatorError: Naming a row that cannot stream.
        DoesNotFitError: Naming the resource that is short.
    """
    del execution
    values = parameters or fpga_parameters()
    index, nodes, images = _streaming_nodes(graph, device)
    design = fold_network(nodes, device, values, values.target_fps)
    waits = design.cycles * np.array([node.start_fraction for node in nodes])
    slowest = int(np.argmax(design.cycles))
    waits[slowest] = design.cycles[slowest] * images
    time, flop, zero = np.zeros((3, len(graph)))
    time[index] = waits / device.fabric_clock_hz.value
    flop[index] = graph.flop[index]
    costs = RowCosts(time, time, zero, flop, zero, _SIGMA)
    return _assemble(graph, costs, device, values, np.ones(len(graph), dtype=bool))
