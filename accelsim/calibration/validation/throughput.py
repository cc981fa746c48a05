"""Predicted steady-state throughput of a workload on one device: the best over batch sizes.

For results whose submitter feeds batches of its own choice as fast as they finish (MLPerf Inference, offline scenario): an
engine compiled for inference, its activations in the last-level cache where they fit, and batches in several streams, so
that one kernel starts while another ends and its launch latency is hidden. What an accelerator's host does is not in the
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from accelsim.calibration.validation.columns import correlated_log_sigma, roofline_s
from accelsim.calibration.validation.suite import Predict, Prediction
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.cache import cached_traffic
from accelsim.cost.memory import live_bytes
from accelsim.cost.registry import operator_costs
from accelsim.cost.table import CostTable, Execution
from accelsim.errors import UnsupportedOperatorError
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.workloads.concatenation import elide_copies
from accelsim.workloads.dtype import Precision
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.model import RunShape, Workload
from accelsim.workloads.operator import CONTRACTION_KINDS

__all__ = ["Throughput", "throughput_prediction", "throughput_roofline_s"]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Samples of a workload, as many at a time as is fastest.

    Attributes:
        workload: The model.
        shapes: Sizes of one batch, to choose from.
        samples: Samples in the batch of each shape; need not be whole.
        precision: Number formats.
    """

    workload: Workload
    shapes: tuple[RunShape, ...]
    samples: tuple[float, ...]
    precision: Precision


def throughput_prediction(runs: Sequence[Throughput], device: DeviceProfile) -> Predict:
    """Predicts the time per sample of each run on a device."""

    def predict(parameters: Any | None) -> Prediction:
        known: dict[Throughput, tuple[float, float]] = {}
        for run in runs:
            if run not in known:
                known[run] = _fastest(run, device, parameters)
        pairs = [known[run] for run in runs]
        return Prediction(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))

    return predict


def throughput_roofline_s(runs: Sequence[Throughput], device: DeviceProfile) -> FloatArray:
    """Sum of the operators' rooflines per sample, largest batch, s."""
    known = {
        run: float(roofline_s(_engine(run, run.shapes[-1])[0], device).sum()) / run.samples[-1] for run in set(runs)
    }
    return np.array([known[run] for run in runs])


def _fastest(run: Throughput, device: DeviceProfile, parameters: Any | None) -> tuple[float, float]:
    """Time per sample and its log standard deviation at the best batch that fits.

    Raises:
        UnsupportedOperatorError: If no batch fits in memory, or the device lacks an operator.
    """
    best: tuple[float, float] | None = None
    for shape, samples in zip(run.shapes, run.samples, strict=True):
        graph, memory_bytes = _engine(run, shape)
        if not _fits(memory_bytes, device):
            break
        costs = operator_costs(_on_device(graph, device), device, Execution.COMPILED, parameters)
        each_s = float(_busy_s(costs, graph, device, parameters).sum()) / samples
        if best is None or each_s < best[0]:
            best = (each_s, correlated_log_sigma(costs, graph))
    if best is None:
        raise UnsupportedOperatorError(device.name, run.workload.name, "the smallest batch does not fit in memory")
    return best


@lru_cache(maxsize=512)
def _engine(run: Throughput, shape: RunShape) -> tuple[OperatorGraph, float]:
    """Fused operators of one batch, and the memory it needs, bytes."""
    lowered = run.workload.lower(shape, run.precision)
    # Embedding tables are left out: a recommender keeps in the accelerator's memory the rows that are asked for often.
    memory_bytes = float(lowered.graph.weight_bytes.sum() + live_bytes(lowered.graph).max(initial=0.0))
    return elide_copies(fuse_elementwise(lowered.graph)), memory_bytes


def _fits(memory_bytes: float, device: DeviceProfile) -> bool:
    return memory_bytes <= float(device.memory.capacity_bytes.value)


def _on_device(graph: OperatorGraph, device: DeviceProfile) -> OperatorGraph:
    return cached_traffic(graph, device) if isinstance(device, GpuProfile) else graph


def _busy_s(costs: CostTable, graph: OperatorGraph, device: DeviceProfile, parameters: Any | None) -> FloatArray:
    """Time each row keeps a device with several streams busy: on a GPU without the latency of starting a kernel."""
    if not isinstance(device, GpuProfile):
        return costs.time_s
    used = parameters if isinstance(parameters, GpuParameters) else GpuParameters.class_wide()
    matrix = np.isin(graph.kind, [int(kind) for kind in CONTRACTION_KINDS])
    latency_s = np.where(matrix, used.contraction_latency_s, used.kernel_latency_s)
    busy: FloatArray = np.maximum(costs.time_s - latency_s, np.maximum(costs.compute_s, costs.memory_s))
    return busy
