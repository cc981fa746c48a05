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

#: Public names behind the module that has them.
_MODULES = """
    catalog device device_names
    cluster_catalog cluster cluster_names
    cost.collective collective_costs
    cost.table CostTable
    economics.price PriceBook
    hardware.cluster Cluster Fleet Pool
    hardware.placement RankGroup
    planning.capacity.answer CapacityPlan
    planning.capacity.plan plan
    planning.capacity.scenario Scenario
    planning.compare Comparison compare
    planning.estimate Estimate estimate
    planning.estimate_many EstimateColumns estimate_many
    planning.operators operator_costs
    planning.options ModelOptions PriceChoice RunOptions RunShape TrainingOptions
    planning.serving.options ServingOptions SloTargets
    planning.serving.result ServingResult
    planning.serving.serve serve
    planning.simulate Simulation simulate
    planning.training.estimate TrainingEstimate train
    planning.training.length RunLength
    planning.training.plan ParallelismPlan
    planning.training.setup Conditions
    simulation.engine Engine TaskColumns
    simulation.randomness RandomStreams
    simulation.serving.arrivals Arrivals
    simulation.serving.step_times StepTimes
    simulation.timeline Timeline
    sweeps.run SweepResult sweep
    workload_catalog workload workload_names
    workloads.capture.module capture
    workloads.dtype Precision
    workloads.lowering ShapeColumns lower
    workloads.sharding Shard Stage
"""
_HOME = {
    name: f"accelsim.{module}"
    for module, *names in map(str.split, _MODULES.strip().splitlines())
    for name in names
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
