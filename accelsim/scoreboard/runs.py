"""Predicted time of one run of a catalogued workload, for suites whose rows are whole models.

A pass is lowered once per configuration and costed per device. In eager execution the host issues
operators one after the other and the device runs them in order; replayed graphs pay the gap between
kernels instead.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from accelsim.cost.registry import Parameters, operator_costs
from accelsim.cost.table import CostTable, Execution
from accelsim.dtype import Precision
from accelsim.estimation.likeness import Setting, setting_of
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.scoreboard.columns import correlated_log_sigma, issued_time_s, roofline_s
from accelsim.scoreboard.parameters import parameters as handed_in
from accelsim.workloads.fusion import Fuses, fuse_elementwise
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.model import PassShape, Workload
from accelsim.workloads.operator import CONTRACTION_KINDS, OperatorKind, Phase
from accelsim.workloads.training import OPTIMIZERS, training_graph

_IS_CONTRACTION = np.isin(np.arange(max(OperatorKind) + 1), list(CONTRACTION_KINDS))
#: A step with its weight update.
TRAINING_STEP = (Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER)


@frozen
class ModelRun:
    """One configuration of a workload.

    Attributes:
        workload: The model.
        shape: Sizes.
        precision: Number formats.
        execution: How operators are issued.
        phases: Phases that are timed; only FORWARD for inference.
        optimizer: Update rule, where the optimizer's phase is timed.
        is_autocast: Whether weights are kept in FP32 and cast by each operator that uses them
            (eager mixed precision).
        stack: Software of another time, whose kernels and framework are slower than the model's by
            a known factor.
        fuses: What the framework joins elementwise operators with (`StackPath.fuses`).
        host: Time of the framework to issue an operator over the class's.
        spread: Of ln(true / predicted) of networks of the framework.
    """

    workload: Workload
    shape: PassShape
    precision: Precision
    execution: Execution = Execution.EAGER
    phases: tuple[Phase, ...] = (Phase.FORWARD,)
    optimizer: str = "momentum"
    is_autocast: bool = False
    stack: str = ""
    fuses: Fuses | Literal["nothing"] = "nothing"
    host: float = 1.0
    spread: float = 0.0

    def graph(self) -> OperatorGraph:
        """Operators that are timed, in launch order."""
        return _graph(self)

    @property
    def setting(self) -> Setting:
        """Mode, format and kind of model."""
        mode = "inference" if self.phases == (Phase.FORWARD,) else "training"
        return setting_of(mode, self.precision, self.graph())


@lru_cache(maxsize=512)
def _graph(run: ModelRun) -> OperatorGraph:
    lowered = run.workload.lower(run.shape, run.precision)
    if run.phases == (Phase.FORWARD,):
        graph = lowered.graph
    else:
        counts = (lowered.parameter_count, lowered.parameter_tensor_count)
        step = training_graph(lowered.graph, *counts, run.precision, OPTIMIZERS[run.optimizer])
        graph = step.take(np.isin(step.phase, [int(phase) for phase in run.phases]))
    if run.fuses == "nothing":
        return graph
    return fuse_elementwise(graph, run.fuses)


def run_time_s(
    run: ModelRun, device: DeviceProfile, parameters: Parameters | None
) -> tuple[float, float]:
    """Predicted time of a run on a device, s, and its log standard deviation."""
    graph = run.graph()
    costs = operator_costs(graph, device, run.execution, parameters)
    issued_s = run.host * costs.dispatch_s + _casts_s(run, graph, costs)
    older = handed_in().older_stack_ratio(run.stack, device.name)
    total_s = issued_time_s(costs.time_s, issued_s) * older
    return total_s, float(np.hypot(correlated_log_sigma(costs, graph), run.spread))


def _casts_s(run: ModelRun, graph: OperatorGraph, costs: CostTable) -> FloatArray | float:
    """Time to issue the cast of each weight: one more elementwise operator, the cheapest the
    framework issues.
    """
    if not run.is_autocast or run.execution is not Execution.EAGER:
        return 0.0
    return np.where(
        (graph.weight_bytes > 0) & _IS_CONTRACTION[graph.kind], costs.dispatch_s.min(), 0.0
    )


def run_roofline_s(run: ModelRun, device: DeviceProfile) -> float:
    """Sum of the operators' rooflines of a run, s."""
    return float(roofline_s(run.graph(), device).sum())
