"""Costs of a graph's operators on a device: the table behind every estimate."""

from __future__ import annotations

from accelsim.arguments import checked
from accelsim.cost import registry
from accelsim.cost.table import CostTable, Execution
from accelsim.dtype import Precision
from accelsim.dtype import precision as find_precision
from accelsim.errors import InvalidValueError
from accelsim.estimation.resolution import profile_of, resolve_host
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.retype import retype


@checked
def operator_costs(
    graph: OperatorGraph,
    device: str | DeviceProfile,
    precision: str | Precision | None = None,
    *,
    execution: str | Execution = Execution.EAGER,
    host: str | DeviceProfile | None = None,
    tier: str = "best",
    heap: str = "default",
) -> CostTable:
    """Cost every operator of a graph on a device, in one vectorised call.

    Args:
        graph: Operators, n rows.
        device: Name or profile.
        precision: Precision to run at; None keeps the graph's own dtypes.
        execution: How operators are issued.
        host: Device that runs what this one cannot; None refuses it.
        tier: "best" takes the device's fitted parameters where it has any, "fitted" insists on
            them, "spec" never does.
        heap: "default", or "kept" where the memory allocator keeps what is freed; for CPUs with a
            calibration.

    Returns:
        A table of n rows, in graph order.

    Raises:
        UnsupportedOperatorError: Naming the first operator the device cannot run, or that it cannot
            keep its heap.
        UnknownNameError: If the device or precision does not exist.
    """
    if execution not in list(Execution):
        raise InvalidValueError("execution", execution, "one of " + ", ".join(Execution))
    profile = profile_of(device)
    typed = graph if precision is None else retype(graph, find_precision(precision))
    parameters = registry.tier_parameters(profile, tier, heap=heap)
    return registry.operator_costs(
        typed, profile, Execution(execution), parameters, host=resolve_host(host)
    )
