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
    from accelsim.capacity.answer import CapacityPlan
    from accelsim.capacity.plan import plan
    from accelsim.capacity.scenario import Scenario
    from accelsim.catalog import device, device_names
    from accelsim.catalog.clusters import cluster, cluster_names
    from accelsim.catalog.workloads import workload, workload_names
    from accelsim.cost.collective import collective_costs
    from accelsim.cost.table import CostTable
    from accelsim.dtype import Precision
    from accelsim.economics.price import PriceBook
    from accelsim.estimation.compare import Comparison, compare
    from accelsim.estimation.estimate import Estimate, estimate
    from accelsim.estimation.estimate_many import EstimateColumns, estimate_many
    from accelsim.estimation.operators import operator_costs
    from accelsim.estimation.options import (
        ModelOptions,
        PriceChoice,
        RunOptions,
        RunShape,
        TrainingOptions,
    )
    from accelsim.estimation.simulate import Simulation, simulate
    from accelsim.exploration.sweeps.run import SweepResult, sweep
    from accelsim.handover.fits import Fits, fits
    from accelsim.hardware.cluster import Cluster, Fleet, Pool
    from accelsim.hardware.placement import RankGroup
    from accelsim.learning.learn import LearnedFiles, learn
    from accelsim.serving.loads.arrivals import Arrivals
    from accelsim.serving.options import ServingOptions, SloTargets
    from accelsim.serving.result import ServingResult
    from accelsim.serving.serve import serve
    from accelsim.serving.steps.step_times import StepTimes
    from accelsim.simulation.engine import Engine, TaskColumns
    from accelsim.simulation.randomness import RandomStreams
    from accelsim.simulation.timeline import Timeline
    from accelsim.training.estimate import TrainingEstimate, train
    from accelsim.training.length import RunLength
    from accelsim.training.plan import ParallelismPlan
    from accelsim.training.setup import Conditions
    from accelsim.workloads.lowering import ShapeColumns, lower
    from accelsim.workloads.sharding import Shard, Stage

__version__ = "0.2.0"
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
    "Fits",
    "Fleet",
    "LearnedFiles",
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
    "fits",
    "learn",
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
    catalog.clusters cluster cluster_names
    cost.collective collective_costs
    cost.table CostTable
    economics.price PriceBook
    hardware.cluster Cluster Fleet Pool
    hardware.placement RankGroup
    capacity.answer CapacityPlan
    capacity.plan plan
    capacity.scenario Scenario
    estimation.compare Comparison compare
    estimation.estimate Estimate estimate
    estimation.estimate_many EstimateColumns estimate_many
    estimation.operators operator_costs
    estimation.options ModelOptions PriceChoice RunOptions RunShape TrainingOptions
    serving.options ServingOptions SloTargets
    serving.result ServingResult
    serving.serve serve
    estimation.simulate Simulation simulate
    training.estimate TrainingEstimate train
    training.length RunLength
    training.plan ParallelismPlan
    training.setup Conditions
    simulation.engine Engine TaskColumns
    simulation.randomness RandomStreams
    serving.loads.arrivals Arrivals
    serving.steps.step_times StepTimes
    simulation.timeline Timeline
    exploration.sweeps.run SweepResult sweep
    handover.fits Fits fits
    learning.learn LearnedFiles learn
    catalog.workloads workload workload_names
    workloads.capture.torch.module capture
    dtype Precision
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
