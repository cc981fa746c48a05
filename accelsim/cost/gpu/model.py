"""The GPU cost model: formulas by operator kind, energy, dispatch and bounds in one vectorised
call.

The device time of a row is what the device is busy for; the host time to issue it is `dispatch_s`
and overlaps with the device's work on earlier rows (asynchronous launch). Energy is dynamic:
arithmetic at the voltage of the clock the row runs at, plus main-memory traffic.
"""

from __future__ import annotations

import numpy as np

from accelsim.confidence.residual import RowSpread, row_spread
from accelsim.cost.gpu.attention import attention_costs
from accelsim.cost.gpu.condition import board_conditions
from accelsim.cost.gpu.convolution import convolution_costs
from accelsim.cost.gpu.gemm import gemm_costs, grouped_gemm_costs
from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.gpu.machine import GpuMachine
from accelsim.cost.gpu.memory_bound import (
    elementwise_costs,
    gather_costs,
    host_copy_costs,
    optimizer_costs,
    routing_costs,
    row_wise_costs,
    tree_costs,
)
from accelsim.cost.gpu.recurrent import recurrent_costs
from accelsim.cost.gpu.surface import with_surfaces
from accelsim.cost.table import Bound, CostTable, Execution, Formulas, RowCosts, bound_of
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.graph import FloatArray, IntArray, OperatorGraph
from accelsim.workloads.operator import (
    CONTRACTION_KINDS,
    CONV_KINDS,
    RECURRENT_KINDS,
    TRANSFER_KINDS,
    OperatorKind,
)

_K = OperatorKind
_NORM_KINDS = (_K.LAYER_NORM, _K.RMS_NORM, _K.BATCH_NORM, _K.GROUP_NORM, _K.SOFTMAX, _K.REDUCTION)
#: Formulas by operator kind; collectives belong to the links, not to the device.
GPU: Formulas[GpuMachine] = Formulas("gpu")
GPU.register(_K.GEMM, _K.BATCHED_GEMM)(with_surfaces(gemm_costs))
GPU.register(_K.GROUPED_GEMM)(with_surfaces(grouped_gemm_costs))
GPU.register(_K.ATTENTION, _K.ATTENTION_BACKWARD)(with_surfaces(attention_costs))
GPU.register(*sorted(CONV_KINDS))(with_surfaces(convolution_costs))
GPU.register(*sorted(RECURRENT_KINDS))(recurrent_costs)
GPU.register(*_NORM_KINDS)(with_surfaces(row_wise_costs))
GPU.register(_K.ELEMENTWISE)(with_surfaces(elementwise_costs))
GPU.register(_K.POOLING, _K.COPY)(elementwise_costs)
GPU.register(_K.EMBEDDING, _K.EMBEDDING_BAG, _K.SCATTER)(gather_costs)
GPU.register(_K.MOE_ROUTING)(routing_costs)
GPU.register(_K.OPTIMIZER)(optimizer_costs)
GPU.register(_K.TREE_ENSEMBLE, _K.TREE_HISTOGRAM)(tree_costs)
GPU.register(*sorted(TRANSFER_KINDS))(host_copy_costs)

#: Times to issue an operator by kind; `elementwise_s` for all others.
_ISSUED = {
    **dict.fromkeys(_NORM_KINDS, "norm_s"),
    **dict.fromkeys(CONTRACTION_KINDS, "contraction_s"),
    **dict.fromkeys(CONV_KINDS, "convolution_s"),
    _K.BATCHED_GEMM: "batched_s",
    _K.SOFTMAX: "softmax_s",
}
_KIND_COUNT = max(OperatorKind) + 1
#: FLOP per element of tanh and of a power by a number, as workloads count them.
_TANH_FLOP, _POWER_FLOP = 6, 20


def _mask(kinds: object) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask = np.zeros(_KIND_COUNT, dtype=bool)
    mask[[int(kind) for kind in kinds]] = True  # type: ignore[attr-defined]
    return mask


_IS_CONTRACTION = _mask(CONTRACTION_KINDS)
_IS_TRANSFER = _mask(TRANSFER_KINDS)
_IS_RECURRENT = _mask(RECURRENT_KINDS)


def cost_gpu(
    graph: OperatorGraph,
    device: GpuProfile,
    execution: Execution = Execution.EAGER,
    parameters: GpuParameters | None = None,
) -> CostTable:
    """Cost every row of a graph on a GPU.

    Each formula has its source; energy at the power limit as in `accelsim.cost.power`.

    Args:
        graph: Operators.
        device: GPU profile.
        execution: Eager (the framework issues each row), graph-captured or compiled (the device
            replays them); compiled calls are issued as eager ones, at most.
        parameters: Class-wide ones where None; the result is of their tier.

    Returns:
        One row per operator. `dispatch_s` is host time in eager mode and the gap between kernels
        otherwise.

    Raises:
        UnsupportedOperatorError: If a row's kind has no formula (collectives) or the GPU lacks its
            dtype.
    """
    used = GpuParameters.class_wide() if parameters is None else parameters
    used = used.of_vendor(device.vendor)
    machine = GpuMachine.of(device, used)
    costs = GPU.evaluate(graph, machine, device.name)
    of_formula = (costs.log_sigma, costs.shared_log_sigma, costs.outside_decades)
    formula = RowSpread(*(np.asarray(column) for column in of_formula))
    conditions, on_cores = board_conditions(device), machine.uses_matrix_cores
    spread = row_spread(graph, used.families, formula, costs.time_s, conditions, on_cores)
    serial_s = costs.time_s - np.maximum(
        costs.compute_s, costs.memory_s
    )  # steps of a recurrent layer wait for each other
    overhead_s = np.where(_IS_RECURRENT[graph.kind], serial_s, used.memory.kernel_latency_s)
    bound = bound_of(costs.compute_s, costs.memory_s, overhead_s)
    bound[_IS_TRANSFER[graph.kind]] = Bound.LINK
    return CostTable(
        time_s=costs.time_s,
        compute_s=costs.compute_s,
        memory_s=costs.memory_s,
        dispatch_s=_dispatch_s(graph, execution, used),
        energy_j=_energy_j(graph, costs, machine),
        flop=costs.flop,
        bytes=costs.bytes,
        bound=bound,
        log_sigma=spread.log_sigma,
        shared_log_sigma=spread.shared_log_sigma,
        extrapolation_decades=spread.extrapolation_decades if used.families else None,
        tier=used.tier,
    )


def _dispatch_s(
    graph: OperatorGraph, execution: Execution, parameters: GpuParameters
) -> FloatArray:
    """Time to issue each row, or the gap of a replayed graph."""
    if execution not in {Execution.EAGER, Execution.COMPILED_CALLS}:
        return np.full(len(graph), parameters.dispatch.graph_gap_s)
    return issue_times_s(graph, parameters)


def issue_times_s(graph: OperatorGraph, parameters: GpuParameters) -> FloatArray:
    """Time to issue each row from an eager framework, by class of operator, shape (n,)."""
    by_kind = np.full(_KIND_COUNT, parameters.dispatch.elementwise_s)
    for kind, name in _ISSUED.items():
        by_kind[kind] = getattr(parameters.dispatch, name)
    issued: FloatArray = by_kind[graph.kind]
    single = (graph.kind == _K.ELEMENTWISE) & (graph.dims[:, 1] == 1)
    if single.any():
        issued[single] = _single_input_dispatch_s(graph.dims[single, 2], parameters)
    return issued


def _single_input_dispatch_s(flop_per_element: IntArray, parameters: GpuParameters) -> FloatArray:
    """Time to issue elementwise operators of one tensor: their arithmetic tells the function.

    A function of tensors alone (tanh) is as quick to issue as one of two tensors.
    """
    activation = (flop_per_element > _TANH_FLOP) & (flop_per_element < _POWER_FLOP)
    issued = np.where(activation, parameters.dispatch.activation_s, parameters.dispatch.scalar_s)
    return np.where(flop_per_element == _TANH_FLOP, parameters.dispatch.elementwise_s, issued)


def _energy_j(graph: OperatorGraph, costs: RowCosts, machine: GpuMachine) -> FloatArray:
    """Energy of each row: at the boost clock's voltage where the power limit does not bind, else
    what the limit allows.

    A board at its limit draws static plus (limit - static), so the dynamic energy is that room
    times the time. Energies after Horowitz, ISSCC 2014, and O'Connor et al., MICRO 2017.
    """
    per_flop = np.where(
        _IS_CONTRACTION[graph.kind], machine.flop_energy_j[graph.dtype], machine.vector_energy_j
    )
    energy_j: FloatArray = costs.flop * per_flop + costs.bytes * machine.byte_energy_j
    if machine.limit_w is not None:
        np.minimum(
            energy_j, max(machine.limit_w - machine.static_w, 0.0) * costs.time_s, out=energy_j
        )
    return energy_j
