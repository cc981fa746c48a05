"""Sizes of a model by name, whatever its family."""

from __future__ import annotations

from accelsim.workloads.model import Workload


def model_size(workload: Workload, name: str) -> int:
    """A size of a model, such as "layers"; 0 where its family has none of the name.

    Args:
        workload: The model.
        name: Field of its family's parameters.
    """
    return int(getattr(workload.parameters, name, 0) or 0)
