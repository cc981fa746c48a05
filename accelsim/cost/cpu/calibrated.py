"""A calibrated CPU: finds the kernel times measured on it and puts them in place of the formulas'
times.

Kernel files lie beside the fitted overlays, ``fitted/<device>.kernels.json`` in the user's
configuration folder, then in the ``calibration`` folder that ships with accelsim. A run's context,
which the operator suite has hot or cold, is decided for the whole graph: between two uses of a
weight everything else of the pass goes through the caches, and what it exceeds of them decides
where the weight is read from. Which buffers are fresh memory follows from the heap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from accelsim.cost.cpu.fitted_kernels import FittedKernels, KernelFit, Key
from accelsim.cost.cpu.heap import PassMemory, pass_memory
from accelsim.cost.cpu.kernel_terms import LOOKUP_KINDS, TERMS, Context, share_beyond
from accelsim.cost.cpu.machine import CpuMachine
from accelsim.cost.cpu.parameters import CpuParameters, cpu_parameters
from accelsim.cost.cpu.threads import THREAD_TERMS
from accelsim.cost.fitted import calibration_folders
from accelsim.cost.table import Execution, RowCosts
from accelsim.dtype import DTYPE_BYTES
from accelsim.errors import ProfileError
from accelsim.files.datafile import FileStamp, file_stamp, read_json
from accelsim.plain import Document, Values
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, is_kind
from accelsim.workloads.operator import OperatorKind, Phase

KERNEL_SCHEMA = "accelsim-cpu-kernels"
_VERSION = 13
#: Of each kernel; coefficients of `TERMS` on one thread, of `THREAD_TERMS` on several, follow.
_COLUMNS = ["kernel", "dtype", "threads", "rows", "log_sigma", "serial_s"]
_MOST_BYTES = 2**20
#: Spread of ln(true / predicted) that all operators of a model share and no operator measurement
#: shows, in inference and in training. Chosen so that nine of ten lie inside on 262 runs of 28
#: networks that took no part in the fit: 93 and 89 % of inference with the heap as it comes and
#: kept, 92 and 92 % of training (docs/calibration.md).
_CONTEXT_LOG_SIGMA = 0.05
_CONTEXT_LOG_SIGMA_TRAINING = 0.14
#: That of the time of page faults: no two processes fault alike.
_HEAP_LOG_SIGMA = 0.5
#: Lookups in activations; others are in tables of parameters, of which a pass touches rows alone.
_GATHERS = frozenset(
    {
        "_unsafe_index",
        "gather",
        "grid_sampler_2d",
        "index",
        "index_select",
        "take",
        "take_along_dim",
    }
)
#: Part of the variance of a kernel's error that all its shapes share.
_SHARED_VARIANCE = 0.5


def parameters_for(device: str) -> CpuParameters | None:
    """Parameters with the kernel times of a device's calibration; None where it has none.

    Args:
        device: Device name, with or without a slice.

    Raises:
        ProfileError: If its kernel file does not validate.
    """
    base = device.partition("@")[0]
    for folder in calibration_folders():
        path = folder / "fitted" / f"{base}.kernels.json"
        stamp = file_stamp(path)
        if stamp is not None:
            return replace(cpu_parameters(), kernels=_cached_kernels(path, stamp))
    return None


@lru_cache(maxsize=8)
def _cached_kernels(path: Path, _stamp: FileStamp) -> FittedKernels:
    return read_kernels(path)


def read_kernels(path: Path) -> FittedKernels:
    """Read a kernel file.

    Raises:
        ProfileError: If it is no kernel file, of another version, or an entry is missing or no
            number.
    """
    data = read_json(path, max_bytes=_MOST_BYTES)
    if data.get("schema") != KERNEL_SCHEMA or data.get("version") != _VERSION:
        raise ProfileError(
            str(path), ["schema or version: made by another version of accelsim; calibrate again"]
        )
    try:
        fits = {_key(entry): _fit(entry) for entry in data["kernels"]}
        return FittedKernels(
            fits,
            float(data["l1_bytes"]),
            float(data["l2_bytes"]),
            float(data["l3_bytes"]),
            float(data.get("compiled_call_s", 0.0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(str(path), [f"kernels: {error}"]) from None


def _key(entry: Sequence[Any]) -> Key:
    kernel, dtype, threads = entry[:3]
    return str(kernel), str(dtype), int(threads)


def _fit(entry: Sequence[Any]) -> KernelFit:
    kernel, _, threads, rows, log_sigma, serial_s, *values = entry
    coefficients = np.array(values, dtype=np.float64)
    if not np.isfinite(coefficients).all() or (coefficients < 0).any():
        raise ValueError(f"{kernel}: coefficients must be numbers >= 0")
    if len(coefficients) != len(TERMS if threads == 1 else THREAD_TERMS):
        raise ValueError(f"{kernel}: {len(coefficients)} coefficients")
    return KernelFit(coefficients, float(log_sigma), int(rows), float(serial_s))


def kernels_document(kernels: FittedKernels, origin: Values) -> Document:
    """A kernel file's content.

    Args:
        kernels: What was fitted.
        origin: Where the measurements come from: machine, date, run's hash.
    """
    return {
        "schema": KERNEL_SCHEMA,
        "version": _VERSION,
        "origin": dict(origin),
        "l1_bytes": kernels.l1_bytes,
        "l2_bytes": kernels.l2_bytes,
        "l3_bytes": kernels.l3_bytes,
        "compiled_call_s": _short(kernels.compiled_call_s),
        "columns": _COLUMNS,
        "kernels": [
            _entry(key, fit) for key, fit in sorted(kernels.fits.items(), key=lambda item: item[0])
        ],
    }


def _entry(key: Key, fit: KernelFit) -> list[str | float]:
    numbers = (fit.log_sigma, fit.serial_s, *fit.coefficients.tolist())
    return [*key, fit.rows, *(_short(x) for x in numbers)]


def _short(value: float) -> float:
    """Three digits: a hundredth of what a coefficient is known to."""
    return float(f"{value:.3g}") if value else 0


def _context(graph: OperatorGraph, machine: CpuMachine, kernels: FittedKernels) -> Context:
    is_training = bool((graph.phase == Phase.BACKWARD).any())
    can_fault = machine.execution is not Execution.GRAPH and not machine.values.keeps_heap
    memory = _memory(graph, machine.values.heap_threshold_bytes)
    reuse = _reuse_bytes(graph, machine, memory)
    return Context(
        kernels.l1_bytes,
        kernels.l2_bytes,
        kernels.l3_bytes,
        reuse,
        is_training,
        page_fault_bytes=np.inf,
        fresh_bytes=memory.fresh_bytes if can_fault else None,
        evicted=share_beyond(reuse, kernels.l2_bytes),
        memory_bytes=_memory_bytes(graph, memory, reuse, kernels.l3_bytes, can_fault=can_fault),
    )


@lru_cache(maxsize=2)
def _memory(graph: OperatorGraph, threshold_bytes: float) -> PassMemory:
    """What a pass takes from the heap; the same graph again (the heap kept, other weights cold) is
    looked up.
    """
    return pass_memory(graph, threshold_bytes)


def _memory_bytes(
    graph: OperatorGraph,
    memory: PassMemory,
    reuse_bytes: FloatArray,
    l3_bytes: float,
    *,
    can_fault: bool,
) -> FloatArray:
    """What each row reads and writes that the last-level cache does not hold any more, shape (n,).

    An operand has left it as far as what the rows in between touched exceeds it; what no row of the
    pass wrote, an optimizer's state included, was used a pass before. So were the buffers of
    results. Fresh pages come with their lines. Estimate: reuse distances (Mattson et al., IBM
    Systems Journal 9(2), 1970), and `share_beyond`'s rise.
    """
    rows = graph.reader
    touched = np.cumsum(memory.taken_bytes + graph.weight_bytes)
    written = graph.write_bytes[graph.dependency]
    between = touched[np.maximum(rows - 1, 0)] - touched[graph.dependency]
    produced_bytes = np.bincount(rows, weights=written, minlength=len(graph))
    evicted_bytes = np.bincount(
        rows, weights=written * share_beyond(between, l3_bytes), minlength=len(graph)
    )
    stale_bytes = np.maximum(graph.read_bytes - produced_bytes, 0.0)
    fresh = memory.fresh_bytes if can_fault else 0.0
    reused_bytes = stale_bytes + np.maximum(graph.write_bytes - fresh, 0.0)
    memory_bytes: FloatArray = (
        np.minimum(evicted_bytes, graph.read_bytes)
        + share_beyond(reuse_bytes, l3_bytes) * reused_bytes
    )
    return memory_bytes


def _reuse_bytes(graph: OperatorGraph, machine: CpuMachine, memory: PassMemory) -> FloatArray:
    """What is touched between two uses of each row's weights, shape (n,).

    Of a pass: its weights, the rows of tables it names, its heap (in training with what is saved),
    and the optimizer's state. A reuse distance (Mattson et al., IBM Systems Journal 9(2), 1970).
    """
    chosen = machine.values.weights_cold
    if chosen is not None:
        return np.full(len(graph), np.inf if chosen else 0.0)
    optimizer = graph.phase == Phase.OPTIMIZER
    lookups = is_kind(graph.kind, LOOKUP_KINDS)
    backward = graph.phase == Phase.BACKWARD
    weights = float(graph.weight_bytes[~optimizer & ~lookups & ~backward].sum())
    state = float(graph.read_bytes[optimizer].sum())
    saved = float(graph.saved_bytes.sum()) * bool(backward.any())
    tables = ~graph.is_operation(_GATHERS) & lookups & ~backward
    pass_bytes = (
        weights + memory.extent_bytes + state + saved + float(graph.read_bytes[tables].sum())
    )
    return np.full(len(graph), pass_bytes)


def _epilogue_s(
    graph: OperatorGraph, context: Context, kernels: FittedKernels, threads: int
) -> FloatArray:
    """Time of loops that the graph has inside its products, shape (n,): the compiler's run after
    the library's kernel.

    Where no compiled loop was measured the framework's own elementwise kernel stands for it.
    """
    flop = np.zeros(len(graph)) if graph.epilogue_flop is None else graph.epilogue_flop
    rows = np.flatnonzero(flop > 0)
    time = np.zeros(len(graph))
    if len(rows):
        picked = graph.take(rows)
        written = picked.write_bytes
        dims = np.zeros_like(picked.dims)
        dims[:, 0], dims[:, 1] = written / DTYPE_BYTES[picked.dtype], 1
        loops = replace(
            picked,
            kind=np.full(len(rows), OperatorKind.ELEMENTWISE, dtype=picked.kind.dtype),
            dims=dims,
            flop=flop[rows],
            read_bytes=written,
            weight_bytes=np.zeros(len(rows)),
            epilogue_flop=None,
        )
        loop_context = replace(
            context,
            reuse_bytes=0.0,
            fresh_bytes=np.zeros(len(rows)),
            memory_bytes=0.0,
            evicted=np.broadcast_to(context.evicted, (len(graph),))[rows],
        )
        priced = kernels.times(loops, loop_context, threads, is_compiled=True).time_s
        # a run may have no elementwise kernel at all
        time[rows] = np.where(np.isnan(priced), 0.0, priced)
    return time


def measured_costs(
    graph: OperatorGraph,
    formulas: Callable[[BoolArray], RowCosts],
    machine: CpuMachine,
    kernels: FittedKernels,
) -> tuple[RowCosts, float]:
    """The formulas' costs with measured kernel times in place of their own, and the spread that all
    rows share.

    Estimate: half of a row's variance is shared, and errors of a run add in quadrature.

    Args:
        graph: Operators, n rows.
        formulas: What the formulas say, given which rows were measured; kept for the others.
        machine: Threads, execution and parameters of the run.
        kernels: Measured kernels.
    """
    context = _context(graph, machine, kernels)
    threads = max(1, round(machine.threads))
    is_compiled = machine.execution is Execution.COMPILED
    times = kernels.times(graph, context, threads, is_compiled=is_compiled)
    is_measured = ~np.isnan(times.time_s)
    costs = formulas(is_measured)
    time = np.where(is_measured, times.time_s, costs.time_s)
    if is_compiled:
        time += _epilogue_s(graph, context, kernels, threads)
        time[:1] += kernels.compiled_call_s
    sigma = np.where(is_measured, times.log_sigma, costs.log_sigma)
    faults = float(times.fresh_s[is_measured].sum()) / max(float(time.sum()), 1e-12)
    rows = RowCosts(
        time,
        np.where(is_measured, times.compute_s, costs.compute_s),
        np.where(is_measured, times.memory_s, costs.memory_s),
        costs.flop,
        costs.bytes,
        sigma,
        sigma * np.sqrt(_SHARED_VARIANCE),
    )
    context_sigma = _CONTEXT_LOG_SIGMA_TRAINING if context.is_training else _CONTEXT_LOG_SIGMA
    return rows, float(np.hypot(context_sigma, _HEAP_LOG_SIGMA * faults))
