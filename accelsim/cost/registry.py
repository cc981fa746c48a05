"""One entry to the four cost models, and the split of a graph between a device and its host.

A device class's module is imported when it is first needed. Rows a device cannot run (their kind,
format or phase) go to the host where one is given: they take the host's time plus the transfer of
their operands over the device's host link, both ways, unless neighbouring rows run on the host too.
Weights of such rows stay in host memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from accelsim.cost.fitted import FittedParameters, fitted_parameters
from accelsim.cost.power import dram_energy_per_byte_j
from accelsim.cost.roofline import main_memory_bandwidth_bytes_per_s
from accelsim.cost.stack import KernelMaker
from accelsim.cost.table import Bound, CostModel, CostTable, Execution, ParameterTier
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.hardware.profile import (
    AsicProfile,
    CpuProfile,
    DeviceClass,
    DeviceProfile,
    FpgaProfile,
    GpuProfile,
)
from accelsim.plain import Document
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph

if TYPE_CHECKING:
    from accelsim.cost.cpu.parameters import CpuParameters
    from accelsim.cost.fpga.fpga_parameters import FpgaParameters
    from accelsim.cost.gpu.gpu_parameters import GpuParameters
    from accelsim.cost.gpu.measured_boards import Board
    from accelsim.cost.systolic.machine import SystolicParameters

#: Parameters of a device class's cost model.
Parameters: TypeAlias = "CpuParameters | GpuParameters | FpgaParameters | SystolicParameters"
#: What a caller may ask for: the highest tier a device has, the class-wide parameters, the device's
#: own overlay, or one that interpolates the device's own measurements.
TIER_CHOICES = ("best", "spec", "fitted", "measured")
#: Whether the memory allocator of a calibrated CPU gives back what is freed, as it comes, or keeps
#: it.
HEAPS = ("default", "kept")
Mask = BoolArray


#: Rooms of the cost models: each has `cost_<room>`, and `supported_rows_<room>` where that is known
#: without costing rows.
_ROOMS = {
    DeviceClass.CPU: "cpu",
    DeviceClass.GPU: "gpu",
    DeviceClass.ASIC: "systolic",
    DeviceClass.FPGA: "fpga",
}


def _from_room(device: DeviceProfile, name: str) -> Any:
    room = _ROOMS[DeviceClass(device.device_class)]
    return getattr(import_module(f"accelsim.cost.{room}"), f"{name}_{room}", None)


def cost_model(device: DeviceProfile) -> CostModel:
    """The cost model of a device's class."""
    model: CostModel = _from_room(device, "cost")
    return model


def tier_parameters(
    device: DeviceProfile,
    tier: str = "best",
    *,
    sparse_weights: bool = False,
    heap: str = "default",
    threads: int | None = None,
    maker: KernelMaker | None = None,
) -> Parameters | None:
    """Parameters of a device at a tier, for its cost model; None where the model finds them itself.

    Args:
        device: Any profile.
        tier: One of `TIER_CHOICES`.
        sparse_weights: Whether weights have the structured sparsity of a matrix ASIC's sparse
            rates.
        heap: One of `HEAPS`.
        threads: Threads of a CPU; one for each core where None.
        maker: Stack whose own kernels a GPU runs, or that runs a CPU's.

    Raises:
        UnsupportedOperatorError: If a heap is to be kept on a device that is no CPU or has no
            calibration.
        InvalidValueError: If there is no such tier or heap, or the device has no overlay of the
            tier asked for; one of tier `measured` serves where "fitted" is asked for.
    """
    _check_choices(device, tier, heap)
    overlay = None if tier == "spec" else fitted_parameters(device.whole_name)
    board = _board_parameters(device, tier)
    if board is not None:
        return board
    _check_overlay(device, tier, overlay)
    if isinstance(device, GpuProfile):
        parameters = _gpu_parameters(device, overlay)
        return parameters if maker is None else _made_by(parameters, maker)
    if isinstance(device, CpuProfile):
        cpu = _cpu_parameters(device, tier, threads, keeps_heap=heap == "kept")
        return cpu if maker is None else cpu.of_stack(maker)
    if isinstance(device, AsicProfile) and sparse_weights:
        from accelsim.cost.systolic import sparse_parameters

        return sparse_parameters()
    return None


def _check_choices(device: DeviceProfile, tier: str, heap: str) -> None:
    if tier not in TIER_CHOICES:
        raise InvalidValueError("tier", tier, "one of " + ", ".join(TIER_CHOICES))
    if heap not in HEAPS:
        raise InvalidValueError("heap", heap, "one of " + ", ".join(HEAPS))
    if heap == "kept" and not isinstance(device, CpuProfile):
        raise _kept_heap_error(device)


def _board_parameters(device: DeviceProfile, tier: str) -> Parameters | None:
    """Those of an FPGA board; None where it has none of its own."""
    if not isinstance(device, FpgaProfile) or tier == "spec":
        return None
    from accelsim.cost.fpga import board_parameters

    return board_parameters(device.name)


def _check_overlay(device: DeviceProfile, tier: str, overlay: FittedParameters | None) -> None:
    """Refuse a tier whose overlay a device does not have."""
    if tier not in {ParameterTier.FITTED, ParameterTier.MEASURED}:
        return
    remedy = "Measure it with: accelsim calibrate, or leave --tier out."
    if overlay is None:
        available = f"best or spec: {device.name} has no {tier} overlay"
        raise InvalidValueError("tier", tier, available, remedy)
    if (
        tier == ParameterTier.MEASURED
        and device.device_class == "gpu"
        and overlay.tier is not ParameterTier.MEASURED
    ):
        available = f"best, spec or fitted: the overlay of {device.name} is of tier {overlay.tier}"
        raise InvalidValueError("tier", tier, available)


def _cpu_parameters(
    device: CpuProfile, tier: str, threads: int | None, *, keeps_heap: bool
) -> CpuParameters:
    from accelsim.cost.cpu.calibrated import parameters_for
    from accelsim.cost.cpu.parameters import cpu_parameters

    calibrated = None if tier == "spec" else parameters_for(device.name)
    if keeps_heap and calibrated is None:
        raise _kept_heap_error(device)
    return replace(calibrated or cpu_parameters(), thread_count=threads, keeps_heap=keeps_heap)


def _kept_heap_error(device: DeviceProfile) -> UnsupportedOperatorError:
    reason = "page faults are known of calibrated CPUs alone"
    remedy = "Measure this one with: accelsim calibrate, or leave heap out."
    return UnsupportedOperatorError(device.name, "a model with its heap kept", reason, remedy)


@lru_cache(maxsize=64)
def _made_by(parameters: GpuParameters, maker: KernelMaker) -> GpuParameters:
    return replace(parameters, maker=maker)


@lru_cache(maxsize=64)
def _overlaid(overlay: FittedParameters) -> GpuParameters:
    from accelsim.cost.gpu import GpuParameters

    return GpuParameters.class_wide().with_overlay(overlay)


def _gpu_parameters(device: GpuProfile, overlay: FittedParameters | None) -> GpuParameters:
    if overlay is not None:
        return _overlaid(overlay)
    from accelsim.cost.gpu.measured_boards import Board

    return _related_parameters(Board.of(device))


@lru_cache(maxsize=64)
def _related_parameters(board: Board) -> GpuParameters:
    """Class-wide parameters with the surfaces of a board's measured relatives."""
    from accelsim.cost.gpu import GpuParameters
    from accelsim.cost.gpu.relatives import with_relative_surfaces

    return with_relative_surfaces(GpuParameters.class_wide(), board)


def supported_rows(graph: OperatorGraph, device: DeviceProfile) -> Mask:
    """Which rows a device can run, shape (n,).

    Args:
        graph: Operators.
        device: Any profile.
    """
    mask: Callable[..., Mask] = _from_room(device, "supported_rows") or _tried_rows
    return mask(graph, device)


def _tried_rows(graph: OperatorGraph, device: DeviceProfile) -> Mask:
    """Support found by costing one row of each kind and format."""
    pairs = np.stack([graph.kind, graph.dtype], axis=1).astype(np.int64).reshape(-1, 2)
    _, sample_row, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    runs = np.array([_runs(graph.take(np.array([row])), device) for row in sample_row], dtype=bool)
    return runs[inverse.reshape(-1)] if len(graph) else np.zeros(0, dtype=bool)


def _runs(graph: OperatorGraph, device: DeviceProfile) -> bool:
    try:
        cost_model(device)(graph, device, Execution.EAGER)
    except UnsupportedOperatorError:
        return False
    return True


def operator_costs(
    graph: OperatorGraph,
    device: DeviceProfile,
    execution: Execution = Execution.EAGER,
    parameters: Parameters | None = None,
    host: CpuProfile | GpuProfile | None = None,
) -> CostTable:
    """Cost every row of a graph on a device, with the rows it cannot run on its host.

    Args:
        graph: Operators.
        device: Any profile; its class selects the cost model.
        execution: Eager, graph-captured or compiled.
        parameters: Parameters of the class; None takes the class-wide ones.
        host: Runs what the device cannot; None refuses such graphs.

    Returns:
        A table in graph order. Host rows' time includes their transfers.

    Raises:
        UnsupportedOperatorError: Naming the first row that the device (and the host) cannot run.
    """
    model = cost_model(device)
    if host is None:
        return model(graph, device, execution, parameters)
    on_device = supported_rows(graph, device)
    if on_device.all():
        return model(graph, device, execution, parameters)
    device_table = model(graph.take(on_device), device, execution, parameters)
    host_table = cost_model(host)(graph.take(~on_device), host, execution)
    return _joined(device_table, _with_transfers(host_table, graph, on_device, device), on_device)


def _with_transfers(
    table: CostTable, graph: OperatorGraph, on_device: Mask, device: DeviceProfile
) -> CostTable:
    """Host rows with the transfers of their operands added; the host's dispatch becomes part of
    their time.

    Latency and bytes over bandwidth: Hockney, Parallel Computing 20, 1994.
    """
    moved, crossings = (column[~on_device] for column in _crossing_bytes(graph, on_device))
    link_s = moved / _link_bytes_per_s(device) + crossings * _link_latency_s(device)
    technology = device.memory.technology
    waits = link_s > table.time_s + table.dispatch_s
    return replace(
        table,
        time_s=table.time_s + table.dispatch_s + link_s,
        memory_s=table.memory_s + link_s,
        dispatch_s=np.zeros(len(table)),
        energy_j=table.energy_j + moved * dram_energy_per_byte_j(technology),
        bytes=table.bytes + moved,
        bound=np.where(waits, np.int8(Bound.LINK), table.bound).astype(np.int8),
    )


def _crossing_bytes(graph: OperatorGraph, on_device: Mask) -> tuple[FloatArray, FloatArray]:
    """Bytes each row would move over the host link, and its number of crossings, shape (n,) each.

    Inputs cross where a row it waits for runs on the device, outputs where a row that waits for it
    does.
    """
    count = len(graph)
    reader = graph.reader
    reads, feeds = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    np.logical_or.at(reads, reader, on_device[graph.dependency])
    np.logical_or.at(feeds, graph.dependency, on_device[reader])
    moved = np.where(reads, graph.read_bytes, 0.0) + np.where(feeds, graph.write_bytes, 0.0)
    return moved, reads.astype(np.float64) + feeds


def _link_bytes_per_s(device: DeviceProfile) -> float:
    """Host link, or the memory that an embedded device shares with its host."""
    if device.host_link is None:
        return main_memory_bandwidth_bytes_per_s(device)
    return device.host_link.bandwidth_bytes_per_s.value


def _link_latency_s(device: DeviceProfile) -> float:
    latency = None if device.host_link is None else device.host_link.latency_s
    return 0.0 if latency is None else latency.value


def _joined(device_table: CostTable, host_table: CostTable, on_device: Mask) -> CostTable:
    """One table in graph order from the device's and the host's rows."""
    columns: Document = {}
    for name in (entry.name for entry in fields(CostTable) if entry.default is MISSING):
        device_column = getattr(device_table, name)
        merged = np.empty(len(on_device), dtype=device_column.dtype)
        merged[on_device], merged[~on_device] = device_column, getattr(host_table, name)
        columns[name] = merged
    return CostTable(**columns, tier=device_table.tier)
