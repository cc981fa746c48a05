"""Host time to issue a step with prompts, where a serving engine's graphs hold decode steps alone.

The device waits for what is not issued yet, so that such a step takes no less than the host needs
for its operators, whatever the ranks: first tokens of small prompts on many devices are the host's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.gpu.model import issue_times_s
from accelsim.workloads.graph import OperatorGraph, is_kind
from accelsim.workloads.operator import OperatorKind

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun
    from accelsim.workloads.graph import IntArray

_EXPERTS = frozenset({OperatorKind.MOE_ROUTING})


def prompt_issue_s(
    run: ResolvedRun, graph: OperatorGraph, launches: IntArray | None = None
) -> float:
    """Least time of a step with prompts; 0 where the host is not in its way.

    Args:
        run: The run, on one rank.
        graph: Rows of the step; their number counts, not their sizes.
        launches: How often each row is launched, shape (n,); once where None.
    """
    engine = run.engine
    rule = None if engine is None else engine.issues_prompts
    if rule is None or run.device.device_class != "gpu":
        return 0.0
    parameters = GpuParameters.class_wide().of_vendor(run.device.vendor)
    count = np.ones(len(graph)) if launches is None else launches
    has_experts = bool(is_kind(graph.kind, _EXPERTS).any())
    ratio = rule.expert_ratio if has_experts else rule.dense_ratio
    return ratio * float(issue_times_s(graph, parameters) @ count)
