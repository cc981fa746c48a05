"""Times to issue an operator, from what fits of eager cells found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from accelsim.calibration.fit.cells import Cell

__all__ = ["DISPATCH", "dispatch_times"]

#: Operators whose eager rows tell the time to issue an operator, by parameter.
DISPATCH: Mapping[str, tuple[str, ...]] = {
    "dispatch.contraction_s": ("linear",),
    "dispatch.batched_s": ("bmm",),
    "dispatch.convolution_s": ("conv",),
    "dispatch.norm_s": ("ln",),
    "dispatch.softmax_s": ("softmax",),
    "dispatch.scalar_s": ("addu", "mulu", "divu", "powu", "relu"),
    "dispatch.activation_s": ("gelu",),
    "dispatch.elementwise_s": ("add", "mul", "div", "pow", "tanh"),
}


def dispatch_times(
    issued: Sequence[tuple[Cell, float]], waited: Sequence[tuple[Cell, float]]
) -> dict[str, float]:
    """Time to issue an operator, by parameter: the median over boards and operators, NVIDIA's where
    there are any.

    Args:
        issued: Eager cells with the time fitted to them.
        waited: Eager cells of convolutions with the mean wait beyond that.
    """
    found: dict[str, float] = {}
    if waited:
        found["dispatch.plan_lookup_s"] = float(np.median([value for _, value in waited]))
    for name, operators in DISPATCH.items():
        own = [(cell.device.vendor, value) for cell, value in issued if cell.operator in operators]
        nvidia = [value for vendor, value in own if vendor == "NVIDIA"]
        times = nvidia or [value for _, value in own]
        if times:
            found[name] = float(np.median(times))
    return found
