"""The check list of a GPU and its predictions: whole models in the formats and execution modes a
GPU has, with energy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from accelsim.calibration.check import CheckCase, FrozenPrediction, model_graph
from accelsim.calibration.gpu_fit import gpu_profile
from accelsim.calibration.run_file import CalibrationRun
from accelsim.catalog import device_names
from accelsim.confidence.quantiles import Z90
from accelsim.cost.background import background_power_w
from accelsim.cost.fitted import FittedParameters
from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.cost.table import CostTable, Execution
from accelsim.files.datafile import data_root, read_mapping
from accelsim.hardware.profile import GpuProfile
from accelsim.simulation.device import simulate_device
from accelsim.simulation.device_settings import DeviceSettings
from accelsim.workloads.fusion import fuse_elementwise
from accelsim.workloads.graph import OperatorGraph

#: Spread of ln(true / predicted) that all operators of one model share and no operator measurement
#: shows, by execution: what the host takes between calls is of a model, not of its operators.
#: Whole models on an H100 (``calibration/runs/nvidia-h100-80gb``).
_CONTEXT_LOG_SIGMA = {
    Execution.GRAPH: 0.1,
    Execution.EAGER: 0.5,
    Execution.COMPILED: 0.75,
}
_EXECUTIONS = ("eager", "graph", "compiled")


def gpu_check_list(dtypes: Sequence[str]) -> list[CheckCase]:
    """The frozen set of a GPU: 14 models in inference, 8 in training.

    Args:
        dtypes: Formats of the calibration; the last one is the 16-bit one.
    """
    models = read_mapping(data_root() / "calibration" / "check-gpu.yaml")
    cases = []
    for model, (main_batch, *further_batches) in models["inference"].items():
        for dtype in dtypes[-1:] if model in models["large"] else dtypes:
            cases += [
                CheckCase(model, main_batch, dtype, 0, execution=mode) for mode in _EXECUTIONS
            ]
            cases += [
                CheckCase(model, batch, dtype, 0, execution="graph") for batch in further_batches
            ]
    for model, batch in models["training"].items():
        cases += [CheckCase(model, batch, dtype, 0, is_training=True) for dtype in dtypes]
    return cases


def predict_gpu(
    case: CheckCase, profile: GpuProfile, parameters: GpuParameters
) -> FrozenPrediction:
    """Time and energy per iteration of a case, back to back, with a 90 % interval of the time.

    Estimate: ln(true / predicted) is normal.

    Args:
        case: What will be measured.
        profile: The GPU.
        parameters: Its calibration.
    """
    execution = Execution(case.execution)
    graph = model_graph(case)
    if execution is Execution.COMPILED:
        graph = fuse_elementwise(graph)
    table = cost_gpu(graph, profile, execution, parameters)
    limit = profile.power.limit_w
    result = simulate_device(
        table,
        DeviceSettings(
            execution=execution,
            iterations=1,
            warmup_iterations=2,
            idle_w=background_power_w(profile),
            power_limit_w=None if limit is None else limit.value,
        ),
    )
    spread = math.exp(Z90 * _log_sigma(table, graph, execution))
    time_s = result.steady_state_s
    return FrozenPrediction(
        case, time_s, time_s / spread, time_s * spread, table.tier.value, result.energy_j
    )


def _log_sigma(table: CostTable, graph: OperatorGraph, execution: Execution) -> float:
    """Spread of a whole model: errors of half a kind's rows move together, of different kinds
    apart.

    A kernel's error has a part all its shapes share and a part of each shape's own; with both
    halves of equal variance the variance of a kind is (sum of squares + square of sum) / 2.
    Estimate: halves of equal variance.
    """
    weighted = table.time_s * table.log_sigma
    total = table.total_time_s
    together = np.bincount(graph.kind, weights=weighted) ** 2
    apart = np.bincount(graph.kind, weights=weighted**2)
    variance = float((0.5 * together + 0.5 * apart).sum()) / total**2 if total else 0.0
    return math.hypot(math.sqrt(variance), _CONTEXT_LOG_SIGMA[execution])


def predict_gpu_list(overlay: FittedParameters, run: CalibrationRun) -> list[FrozenPrediction]:
    """The whole check list, predicted from an overlay that was fitted to a run."""
    name = overlay.device if overlay.device in device_names() else ""
    profile = gpu_profile(run.environment, name)
    parameters = GpuParameters.class_wide().with_overlay(overlay)
    cases = gpu_check_list([str(dtype) for dtype in run.settings["dtypes"]])
    return [predict_gpu(case, profile, parameters) for case in cases]
