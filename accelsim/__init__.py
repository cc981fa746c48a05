"""accelsim: time, energy and cost of deep learning on CPUs, GPUs, FPGAs and ASICs, before any of
them is rented.

    >>> import accelsim
    >>> accelsim.estimate("resnet-50", "t4", batch=32, precision="fp16").latency_s  # doctest: +SKIP

Names load on first use, so that ``import accelsim`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelsim.catalog import device, device_names
    from accelsim.cluster_catalog import cluster, cluster_names
    from accelsim.cost.collective import collective_costs
    from accelsim.cost.table import CostTable
    from accelsim.economics.price import PriceBook
    from accelsim.hardware.cluster import Cluster, Fleet, Pool
    from accelsim.hardware.placement import RankGroup
    from accelsim.planning.capacity.answer import CapacityPlan
    from accelsim.planning.capacity.plan import plan
    from accelsim.planning.capacity.scenario import Scenario
    from accelsim.planning.compare import Comparison, compare
    from accelsim.planning.estimate import Estimate, estimate
    from accelsim.planning.estimate_many import EstimateColumns, estimate_many
    from accelsim.planning.operators import operator_costs
    from accelsim.planning.options import (
        ModelOptions,
        PriceChoice,
        RunOptions,
        RunShape,
        TrainingOptions,
    )
    from accelsim.planning.serving.options import ServingOptions, SloTargets
    from accelsim.planning.serving.result import ServingResult
    from accelsim.planning.serving.serve import serve
    from accelsim.planning.simulate import Simulation, simulate
    from accelsim.planning.training.estimate import TrainingEstimate, train
    from accelsim.planning.training.length import RunLength
    from accelsim.planning.training.plan import ParallelismPlan
    from accelsim.planning.training.setup import Conditions
    from accelsim.simulation.engine import Engine, TaskColumns
    from accelsim.simulation.randomness import RandomStreams
    from accelsim.simulation.serving.arrivals import Arrivals
    from accelsim.simulation.serving.step_times import StepTimes
    from accelsim.simulation.timeline import Timeline
    from accelsim.sweeps.run import SweepResult, sweep
    from accelsim.workload_catalog import workload, workload_names
    from accelsim.workloads.dtype import Precision
    from accelsim.workloads.lowering import ShapeColumns, lower
    from accelsim.workloads.sharding import Shard, Stage

__version__ = "0.1.0"
__all__ = [
    "Arrivals",
    "CapacityPlan",
    "Cluster",
    "Comparison",
    "Conditions",
    "CostTable",
    "Engine",
    "Estimate",
    "EstimateColumns",
    "Fleet",
    "ModelOptions",
    "ParallelismPlan",
    "Pool",
    "Precision",
    "PriceBook",
    "PriceChoice",
    "RandomStreams",
    "RankGroup",
    "RunLength",
    "RunOptions",
    "RunShape",
    "Scenario",
    "ServingOptions",
    "ServingResult",
    "ShapeColumns",
    "Shard",
    "Simulation",
    "SloTargets",
    "Stage",
    "StepTimes",
    "SweepResult",
    "TaskColumns",
    "Timeline",
    "TrainingEstimate",
    "TrainingOptions",
    "capture",
    "cluster",
    "cluster_names",
    "collective_costs",
    "compare",
    "device",
    "device_names",
    "errors",
    "estimate",
    "estimate_many",
    "lower",
    "operator_costs",
    "plan",
    "serve",
    "simulate",
    "sweep",
    "train",
    "workload",
    "workload_names",
]

_HOME = {
    "lower": "accelsim.workloads.lowering",
    "ShapeColumns": "accelsim.workloads.lowering",
    "RandomStreams": "accelsim.simulation.randomness",
    "TaskColumns": "accelsim.simulation.engine",
    "Engine": "accelsim.simulation.engine",
    "Shard": "accelsim.workloads.sharding",
    "Stage": "accelsim.workloads.sharding",
    "Arrivals": "accelsim.simulation.serving.arrivals",
    "ServingOptions": "accelsim.planning.serving.options",
    "ServingResult": "accelsim.planning.serving.result",
    "SloTargets": "accelsim.planning.serving.options",
    "StepTimes": "accelsim.simulation.serving.step_times",
    "serve": "accelsim.planning.serving.serve",
    "Cluster": "accelsim.hardware.cluster",
    "Comparison": "accelsim.planning.compare",
    "CostTable": "accelsim.cost.table",
    "Estimate": "accelsim.planning.estimate",
    "EstimateColumns": "accelsim.planning.estimate_many",
    "Fleet": "accelsim.hardware.cluster",
    "ModelOptions": "accelsim.planning.options",
    "Pool": "accelsim.hardware.cluster",
    "Precision": "accelsim.workloads.dtype",
    "PriceBook": "accelsim.economics.price",
    "PriceChoice": "accelsim.planning.options",
    "RankGroup": "accelsim.hardware.placement",
    "RunOptions": "accelsim.planning.options",
    "RunShape": "accelsim.planning.options",
    "Simulation": "accelsim.planning.simulate",
    "Timeline": "accelsim.simulation.timeline",
    "TrainingOptions": "accelsim.planning.options",
    "capture": "accelsim.workloads.capture.module",
    "cluster": "accelsim.cluster_catalog",
    "cluster_names": "accelsim.cluster_catalog",
    "collective_costs": "accelsim.cost.collective",
    "compare": "accelsim.planning.compare",
    "device": "accelsim.catalog",
    "device_names": "accelsim.catalog",
    "estimate": "accelsim.planning.estimate",
    "estimate_many": "accelsim.planning.estimate_many",
    "operator_costs": "accelsim.planning.operators",
    "simulate": "accelsim.planning.simulate",
    "sweep": "accelsim.sweeps.run",
    "SweepResult": "accelsim.sweeps.run",
    "plan": "accelsim.planning.capacity.plan",
    "CapacityPlan": "accelsim.planning.capacity.answer",
    "Scenario": "accelsim.planning.capacity.scenario",
    "train": "accelsim.planning.training.estimate",
    "TrainingEstimate": "accelsim.planning.training.estimate",
    "RunLength": "accelsim.planning.training.length",
    "ParallelismPlan": "accelsim.planning.training.plan",
    "Conditions": "accelsim.planning.training.setup",
    "workload": "accelsim.workload_catalog",
    "workload_names": "accelsim.workload_catalog",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "errors":
        return import_module("accelsim.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'accelsim' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
