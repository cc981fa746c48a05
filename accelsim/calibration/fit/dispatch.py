"""Times to issue an operator, from what fits of eager cells found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.cost.gpu.generation import generation_of
from accelsim.files.datafile import data_root, read_mapping
from accelsim.plain import Values

#: The sections `stages` and `issue_times` of ``calibration/class/gpu-fit.yaml``.
FIT: Values = read_mapping(data_root() / "calibration" / "class" / "gpu-fit.yaml")


def dispatch_times(
    issued: Sequence[tuple[OperatorRows, float]], waited: Sequence[tuple[OperatorRows, float]]
) -> dict[str, float]:
    """Time to issue an operator, by parameter: the median over boards and operators, NVIDIA's and
    other vendors' apart.

    Args:
        issued: Eager cells with the time fitted to them.
        waited: Eager cells of convolutions with the mean wait beyond that.
    """
    dispatch_times: dict[str, float] = {}
    if waited:
        dispatch_times["dispatch.plan_lookup_s"] = float(np.median([value for _, value in waited]))
    for name, operators in FIT["issue_times"].items():
        times: dict[str, list[float]] = {}
        for cell, value in issued:
            if cell.operator in operators["tables"]:
                prefix = "" if generation_of(cell.device).is_reference else "other_"
                times.setdefault(f"{prefix}{name}", []).append(value)
        dispatch_times |= {own: float(np.median(values)) for own, values in times.items()}
    return dispatch_times
