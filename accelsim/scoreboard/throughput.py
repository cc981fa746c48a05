"""Predicted steady-state throughput of a workload on one device: the best over batch sizes.

For results whose submitter feeds batches of its own choice as fast as they finish (MLPerf
Inference, offline scenario): an engine compiled for inference, its activations in the last-level
cache where they fit, and batches in several streams, so that one kernel starts while another ends
and its launch latency is hidden. What an accelerator's host does is not in the time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.cache import cached_traffic
from accelsim.cost.memory import available_bytes, live_bytes
from accelsim.cost.registry import Parameters, operator_costs
from accelsim.cost.table import CostTable, Execution
from accelsim.dtype import Dtype, Precision
from accelsim.errors import UnsupportedOperatorError
from accelsim.estimation.likeness import Setting, setting_of
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.scoreboard.columns import correlated_log_sigma, graph_of_columns, roofline_s
from accelsim.workloads.concatenation import elide_copies
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.model import PassShape, Workload
from accelsim.workloads.operator import CONTRACTION_KINDS, OperatorKind
from accelsim.workloads.unread_pixels import skip_unread_pixels

#: Scores leave an engine at 16 bits: a sigmoid at 8 would tie most of them.
_SCORE_BYTES = 2.0


@frozen
class PipelineNetwork:
    """A network that runs for every batch.

    Attributes:
        workload: The network.
        shapes: Its sizes at each batch to choose from.
        repeats: Times it runs for one batch.
    """

    workload: Workload
    shapes: tuple[PassShape, ...]
    repeats: float = 1.0


@frozen
class Throughput:
    """Samples that pass through some networks, as many at a time as is fastest.

    Attributes:
        stages: The networks, one after the other.
        samples: Samples in each batch to choose from, smallest first; need not be whole.
        precision: Number formats.
        scores: Outputs of a sample that a selection reads (class scores of a detector's boxes).
    """

    stages: tuple[PipelineNetwork, ...]
    samples: tuple[float, ...]
    precision: Precision
    scores: float = 0.0

    @property
    def setting(self) -> Setting:
        """Mode, format and kind of the first network."""
        first = self.stages[0]
        graph, _ = _engine(first.workload, first.shapes[0], self.precision)
        return setting_of("inference", self.precision, graph)


def throughput_roofline_s(run: Throughput, device: DeviceProfile) -> float:
    """Sum of the operators' rooflines per sample, largest batch, s."""
    engines = (
        (stage, _engine(stage.workload, stage.shapes[-1], run.precision)[0]) for stage in run.stages
    )
    total_s = sum(
        stage.repeats * float(roofline_s(graph, device).sum()) for stage, graph in engines
    )
    return total_s / run.samples[-1]


def sample_time_s(
    run: Throughput, device: DeviceProfile, parameters: Parameters | None
) -> tuple[float, float]:
    """Time per sample and its log standard deviation at the best batch that fits.

    Raises:
        UnsupportedOperatorError: If no batch fits in memory, or the device lacks an operator.
    """
    batches = batch_times_s(run, device, parameters)
    return min((seconds / samples, sigma) for samples, seconds, sigma in batches)


def batch_times_s(
    run: Throughput, device: DeviceProfile, parameters: Parameters | None
) -> list[tuple[float, float, float]]:
    """Samples, time and its log standard deviation of each batch that fits.

    Raises:
        UnsupportedOperatorError: If no batch fits in memory, or the device lacks an operator.
    """
    batch_times_s = []
    for index, samples in enumerate(run.samples):
        times = [_stage_s(stage, index, run.precision, device, parameters) for stage in run.stages]
        if run.scores:
            times.append(_selection_s(run.scores * samples, run.precision, device, parameters))
        if any(time is None for time in times):
            break
        known_times = [time for time in times if time is not None]
        total_s = sum(seconds for seconds, _ in known_times)
        # Stages share their kinds of operators, and with them the bias: errors add up linearly.
        sigma = sum(seconds * sigma for seconds, sigma in known_times) / total_s
        batch_times_s.append((samples, total_s, sigma))
    if not batch_times_s:
        name = run.stages[0].workload.name
        raise UnsupportedOperatorError(
            device.name, name, "the smallest batch does not fit in memory"
        )
    return batch_times_s


def _stage_s(
    stage: PipelineNetwork,
    index: int,
    precision: Precision,
    device: DeviceProfile,
    parameters: Parameters | None,
) -> tuple[float, float] | None:
    """Time of all repeats of one stage and its log standard deviation; None where the batch does
    not fit.
    """
    graph, memory_bytes = _engine(stage.workload, stage.shapes[index], precision)
    if not _fits(memory_bytes, device):
        return None
    costs = operator_costs(_on_device(graph, device), device, Execution.COMPILED, parameters)
    busy_s = float(_busy_s(costs, graph, device, parameters).sum())
    return stage.repeats * busy_s, correlated_log_sigma(costs, graph)


def _selection_s(
    scores: float, precision: Precision, device: DeviceProfile, parameters: Parameters | None
) -> tuple[float, float]:
    """Time of writing scores at 16 bits, where the engine counts them at its own width, and of
    reading them once.
    """
    extra = max(_SCORE_BYTES - precision.activation.bytes, 0.0)
    kind = OperatorKind.ELEMENTWISE
    dtype = Dtype.FP16 if Dtype.FP16 in device.peak_flop_per_s else Dtype.FP32
    graph = graph_of_columns(
        kind,
        (scores, 1, 1),
        dtype,
        flop=scores,
        read=_SCORE_BYTES * scores,
        write=extra * scores,
    )
    costs = operator_costs(graph, device, Execution.COMPILED, parameters)
    return float(costs.time_s.sum()), float(costs.log_sigma[0])


@lru_cache(maxsize=512)
def _engine(
    workload: Workload, shape: PassShape, precision: Precision
) -> tuple[OperatorGraph, float]:
    """Fused operators of one batch, and the memory it needs, bytes."""
    lowered = workload.lower(shape, precision)
    # Embedding tables are left out: a recommender keeps in the accelerator's memory the rows that
    # are asked for often.
    memory_bytes = float(
        lowered.graph.weight_bytes.sum() + live_bytes(lowered.graph).max(initial=0.0)
    )
    return skip_unread_pixels(elide_copies(fuse_elementwise(lowered.graph))), memory_bytes


def _fits(memory_bytes: float, device: DeviceProfile) -> bool:
    return memory_bytes <= available_bytes(device)


def _on_device(graph: OperatorGraph, device: DeviceProfile) -> OperatorGraph:
    """The engine's graph on a device: what stays on the chip of a GPU taken off its traffic."""
    if not isinstance(device, GpuProfile):
        return graph
    return cached_traffic(graph, device)


def _busy_s(
    costs: CostTable, graph: OperatorGraph, device: DeviceProfile, parameters: Parameters | None
) -> FloatArray:
    """Time each row keeps a device with several streams busy: on a GPU without the latency of
    starting a kernel.
    """
    if not isinstance(device, GpuProfile):
        return costs.time_s
    used = parameters if isinstance(parameters, GpuParameters) else GpuParameters.class_wide()
    matrix = np.isin(graph.kind, list(CONTRACTION_KINDS))
    latency_s = np.where(matrix, used.gemm.latency_s, used.memory.kernel_latency_s)
    return np.maximum(costs.time_s - latency_s, np.maximum(costs.compute_s, costs.memory_s))
