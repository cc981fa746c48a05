"""A calibrated CPU: finds the kernel times measured on it and puts them in place of the formulas' times.

Kernel files lie beside the fitted overlays, ``fitted/<device>.kernels.json`` in the user's configuration folder, then in the
``calibration`` folder that ships with accelsim. A run's context, which the operator suite has hot or cold, is decided for
the whole graph: weights that together exceed the last-level cache are cold, those that exceed the second-level caches are in
between, at the share of the penalty that the last-level cache's bandwidth has of main memory's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from accelsim.cost.cpu.fitted_kernels import Correction, FittedKernels, KernelFit
from accelsim.cost.cpu.kernel_terms import TERMS, Context
from accelsim.cost.cpu.machine import CpuMachine
from accelsim.cost.cpu.parameters import CpuParameters, cpu_parameters
from accelsim.cost.fitted import calibration_folders
from accelsim.cost.table import Execution, RowCosts, Tier
from accelsim.datafile import read_json
from accelsim.errors import ProfileError
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind, Phase

__all__ = ["KERNEL_SCHEMA", "kernels_document", "measured_costs", "parameters_for", "read_kernels"]

KERNEL_SCHEMA: Final = "accelsim-cpu-kernels"
_VERSION: Final = 1
_MOST_BYTES: Final = 64 * 2**20
#: Part of the cold penalty of weights that the last-level cache holds and the second-level caches do not. Estimate: the
#: difference of reciprocal bandwidths of both caches over that of second-level cache and main memory on server CPUs.
_WARM_SHARE: Final = 0.25
#: glibc returns memory at the heap's top to the system beyond this many of the largest block freed so far (mallopt(3),
#: M_TRIM_THRESHOLD: twice the dynamic mmap threshold, which is that block, at most 32 MiB).
_TRIM_BLOCKS: Final = 2.0


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
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        return replace(cpu_parameters(), kernels=_cached(path, status.st_mtime_ns, status.st_size))
    return None


@lru_cache(maxsize=8)
def _cached(path: Path, _modified_ns: int, _size: int) -> FittedKernels:
    return read_kernels(path)


def read_kernels(path: Path) -> FittedKernels:
    """Read a kernel file.

    Raises:
        ProfileError: If it is no kernel file, of another version, or an entry is missing or no number.
    """
    data = read_json(path, max_bytes=_MOST_BYTES)
    if data.get("schema") != KERNEL_SCHEMA or data.get("version") != _VERSION or data.get("terms") != list(TERMS):
        raise ProfileError(
            str(path), ["schema, version or terms: made by another version of accelsim; calibrate again"]
        )
    try:
        fits = {_key(entry): _fit(entry) for entry in data["kernels"]}
        return FittedKernels(
            fits,
            float(data["l2_bytes"]),
            float(data["l3_bytes"]),
            float(data["call_s"]),
            float(data["gradient_s"]),
            Tier(data["tier"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(str(path), [f"kernels: {error}"]) from None


def _key(entry: Mapping[str, Any]) -> tuple[str, str, int]:
    return str(entry["kernel"]), str(entry["dtype"]), int(entry["threads"])


def _fit(entry: Mapping[str, Any]) -> KernelFit:
    stored = entry.get("correction")
    correction = None
    if stored is not None:
        arrays = (np.array(stored[name], dtype=np.float64) for name in ("points", "weights", "length_scales"))
        correction = Correction(*arrays)
        if correction.points.shape != (len(correction.weights), len(correction.length_scales)):
            raise ValueError(f"{entry['kernel']}: points, weights and length_scales differ in length")
    coefficients = np.array(entry["coefficients"], dtype=np.float64)
    if not np.isfinite(coefficients).all() or (coefficients < 0).any():
        raise ValueError(f"{entry['kernel']}: coefficients must be numbers >= 0")
    return KernelFit(coefficients, float(entry["log_sigma"]), int(entry["rows"]), correction)


def kernels_document(kernels: FittedKernels, origin: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel file's content.

    Args:
        kernels: What was fitted.
        origin: Where the measurements come from: machine, date, run's hash.
    """
    return {
        "schema": KERNEL_SCHEMA,
        "version": _VERSION,
        "origin": dict(origin),
        "tier": kernels.tier.value,
        "l2_bytes": kernels.l2_bytes,
        "l3_bytes": kernels.l3_bytes,
        "call_s": _short(kernels.call_s),
        "gradient_s": _short(kernels.gradient_s),
        "terms": list(TERMS),
        "kernels": [_entry(key, fit) for key, fit in sorted(kernels.fits.items(), key=lambda item: item[0])],
    }


def _entry(key: tuple[str, str, int], fit: KernelFit) -> dict[str, Any]:
    kernel, dtype, threads = key
    entry: dict[str, Any] = {"kernel": kernel, "dtype": dtype, "threads": threads, "rows": fit.rows}
    entry |= {"log_sigma": _short(fit.log_sigma), "coefficients": [_short(x) for x in fit.coefficients.tolist()]}
    if fit.correction is not None:
        c = fit.correction
        entry["correction"] = {
            "points": [[round(x, 3) for x in row] for row in c.points.tolist()],
            "weights": [_short(x) for x in c.weights.tolist()],
            "length_scales": [_short(x) for x in c.length_scales.tolist()],
        }
    return entry


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def cold_fraction(graph: OperatorGraph, machine: CpuMachine, kernels: FittedKernels) -> float:
    """Share of the cold penalty that weights pay, from their total against the caches, 0 to 1."""
    chosen = machine.values.weights_cold
    if chosen is not None:
        return float(chosen)
    trained = graph.phase != int(Phase.OPTIMIZER)
    lookups = np.isin(graph.kind, [int(OperatorKind.EMBEDDING), int(OperatorKind.EMBEDDING_BAG)])
    backward = graph.phase == int(Phase.BACKWARD)
    total = float(graph.weight_bytes[trained & ~lookups & ~backward].sum())
    if total <= 0:
        return 0.0
    beyond_l2 = np.clip(np.log2(total / kernels.l2_bytes) / 2.0, 0.0, 1.0)
    beyond_l3 = np.clip(np.log2(2.0 * total / kernels.l3_bytes) / 2.0, 0.0, 1.0)
    return float(_WARM_SHARE * beyond_l2 + (1.0 - _WARM_SHARE) * beyond_l3)


def _context(graph: OperatorGraph, machine: CpuMachine, kernels: FittedKernels) -> Context:
    is_training = bool((graph.phase == int(Phase.BACKWARD)).any())
    eager = machine.execution is Execution.EAGER
    fresh = _fresh_fraction(graph, machine.values.page_fault_bytes) if is_training and eager else 0.0
    return Context(
        kernels.l2_bytes,
        kernels.l3_bytes,
        cold_fraction(graph, machine, kernels),
        is_training,
        machine.values.page_fault_bytes if eager else np.inf,
        fresh,
    )


def _fresh_fraction(graph: OperatorGraph, page_fault_bytes: float) -> FloatArray:
    """Share of each row's output that is fresh memory in a training step, shape (n,).

    Activations are kept until the backward pass frees them; what then exceeds the trim threshold goes back to the system and
    faults in again in the next forward pass.
    """
    forward = (graph.phase != int(Phase.BACKWARD)) & (graph.phase != int(Phase.OPTIMIZER))
    written, saved = float(graph.write_bytes[forward].sum()), float(graph.saved_bytes.sum())
    block = min(float(graph.write_bytes[forward].max(initial=0.0)), page_fault_bytes)
    share = np.clip((saved - _TRIM_BLOCKS * block) / max(written, 1.0), 0.0, 1.0)
    fraction: FloatArray = np.where(forward, share, 0.0)
    return fraction


def _framework_s(graph: OperatorGraph, machine: CpuMachine, kernels: FittedKernels, is_training: bool) -> FloatArray:
    """Time of modules and of the backward graph around each row, shape (n,); eager execution only."""
    if machine.execution is not Execution.EAGER:
        return np.zeros(len(graph))
    entered = np.array([a != b for a, b in zip(graph.path, ("", *graph.path[:-1]), strict=True)], dtype=bool)
    stepped = graph.phase != int(Phase.OPTIMIZER)
    forward = stepped & (graph.phase != int(Phase.BACKWARD))
    time: FloatArray = kernels.call_s * (entered & forward) + kernels.gradient_s * (is_training & stepped)
    return time


def measured_costs(graph: OperatorGraph, costs: RowCosts, machine: CpuMachine, kernels: FittedKernels) -> RowCosts:
    """The formulas' costs with measured kernel times in place of their own.

    Args:
        graph: Operators, n rows.
        costs: What the formulas say; kept for kernels that were not measured.
        machine: Threads, execution and parameters of the run.
        kernels: Measured kernels.
    """
    context = _context(graph, machine, kernels)
    times = kernels.times(graph, context, max(1, round(machine.threads)))
    known = ~np.isnan(times.time_s)
    framework = _framework_s(graph, machine, kernels, context.is_training)
    return RowCosts(
        np.where(known, times.time_s, costs.time_s) + framework,
        np.where(known, times.compute_s, costs.compute_s),
        np.where(known, times.memory_s, costs.memory_s),
        costs.flop,
        costs.bytes,
        np.where(known, times.log_sigma, costs.log_sigma),
    )
