"""Class-wide parameters of GPUs from the rows of many boards, and the sets fitted with one chip left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from accelsim.calibration.fit.gpu import STAGES, fit_stage, page_walk_loss, stage_cells, with_values
from accelsim.calibration.fit.rows import Cell
from accelsim.cost.gpu import GpuParameters

__all__ = ["DISPATCH", "ClassFit", "dispatch_times", "fit_class"]

#: Operators whose eager rows tell the time to issue an operator, by parameter.
DISPATCH: Mapping[str, tuple[str, ...]] = {
    "dispatch_contraction_s": ("linear",),
    "dispatch_batched_s": ("bmm",),
    "dispatch_convolution_s": ("conv",),
    "dispatch_norm_s": ("ln",),
    "dispatch_softmax_s": ("softmax",),
    "dispatch_scalar_s": ("addu", "mulu", "divu", "powu", "relu"),
    "dispatch_activation_s": ("gelu",),
    "dispatch_elementwise_s": ("add", "mul", "div", "pow", "tanh"),
}


@dataclass(frozen=True, slots=True)
class ClassFit:
    """A fitted class set.

    Attributes:
        parameters: All of them.
        changed: Values that differ from the prior's, by name.
        unconverged: Stages that kept the prior.
        rows: Rows used.
    """

    parameters: GpuParameters
    changed: Mapping[str, float]
    unconverged: tuple[str, ...]
    rows: int


def fit_class(
    cells: Sequence[Cell], prior: GpuParameters | None = None, progress: Callable[[str], None] | None = None
) -> ClassFit:
    """Fit the class-wide parameters of GPUs.

    Args:
        cells: Measured rows of several boards.
        prior: Starting values; the shipped ones where None.
        progress: Called with a line of text before each stage.
    """
    start = GpuParameters.class_wide() if prior is None else prior
    parameters, unconverged, issued = start, [], list[tuple[Cell, float]]()
    loss = page_walk_loss(cells, parameters)
    if loss is not None:
        parameters = with_values(parameters, {"page_walk_loss": loss})
    for stage in STAGES:
        own = stage_cells(stage, cells, class_wide=True)
        if not own:
            continue
        if progress:
            progress(f"fitting {stage.name}: {sum(map(len, own)):,} rows of {len(own)} cells")
        fit = fit_stage(stage, own, parameters)
        parameters = fit.parameters
        unconverged += [] if fit.solution.has_converged else [stage.name]
        issued += [(own[index], value) for index, value in fit.issue_s.items()]
    parameters = with_values(parameters, dispatch_times(issued))
    return ClassFit(parameters, changed_values(start, parameters), tuple(unconverged), sum(map(len, cells)))


def dispatch_times(issued: Sequence[tuple[Cell, float]]) -> dict[str, float]:
    """Time to issue an operator, by parameter: the median over boards and operators, NVIDIA's where there are any.

    Args:
        issued: Eager cells with the time fitted to them.
    """
    found = {}
    for name, operators in DISPATCH.items():
        own = [(cell.device.vendor, value) for cell, value in issued if cell.operator in operators]
        times = [value for vendor, value in own if vendor == "NVIDIA"] or [value for _, value in own]
        if times:
            found[name] = float(np.median(times))
    return found


def changed_values(before: GpuParameters, after: GpuParameters) -> dict[str, float]:
    """Numbers that differ, by name."""
    numbers = [f.name for f in fields(before) if isinstance(getattr(before, f.name), float)]
    return {name: getattr(after, name) for name in numbers if getattr(after, name) != getattr(before, name)}


def as_prior(parameters: GpuParameters) -> GpuParameters:
    """The same without what belongs to one device."""
    return replace(parameters, surfaces={})
