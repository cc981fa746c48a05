"""Ways to compute in parallel as a tree: devices whose lanes share a memory, and ways to part a
model over devices that share none. Each has a scenario that runs.
"""

from __future__ import annotations

from accelsim.frozen import frozen
from accelsim.plain import Values

#: Branches of the tree.
SHARED = "shared memory"
DISTRIBUTED = "distributed memory"


@frozen
class ParallelWay:
    """A leaf of the tree.

    Attributes:
        branch: Whether its lanes share a memory.
        name: The device class, or what is parted.
        what: What works in parallel.
        scenario: A run of it, as `accelsim.estimate` or `accelsim.train` takes it.
    """

    branch: str
    name: str
    what: str
    scenario: Values


def _alone(name: str, description: str, device: str) -> ParallelWay:
    scenario = {"figure": "latency_s", "model": "resnet-50", "device": device}
    return ParallelWay(SHARED, name, description, scenario)


def _parted(name: str, description: str, plan: str) -> ParallelWay:
    run = {"model": "gpt2-medium", "cluster": "dgx-2", "gpus": 4, "global_batch": 64}
    return ParallelWay(
        DISTRIBUTED, name, description, {"figure": "iteration_s", **run, "plan": plan}
    )


#: Leaves of the tree, branch by branch.
TAXONOMY = (
    _alone("CPU", "cores, and SIMD lanes in each", "xeon-platinum-8480+"),
    _alone("GPU", "thousands of lanes in multiprocessors, in step by warps", "h100-sxm-80gb"),
    _alone("FPGA", "engines laid out for the model's layers", "alveo-u280"),
    _alone("ASIC", "arrays of multiply-adders", "tpu-v4"),
    _parted("data", "whole models, each on its part of the batch", "dp=4,microbatch=8"),
    _parted("model", "parts of every layer", "tp=4,microbatch=8"),
    _parted("pipeline", "stages of layers, a microbatch in each", "pp=4,microbatch=8"),
)
