"""Times to issue an operator, from what fits of eager cells found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows
from accelsim.cost.gpu.generation import generation_of
from accelsim.files.datafile import data_root, read_mapping
from accelsim.frozen import frozen
from accelsim.plain import Values

#: The sections `stages` and `issue_times` of ``calibration/class/gpu-fit.yaml``.
FIT: Values = read_mapping(data_root() / "calibration" / "class" / "gpu-fit.yaml")


@frozen(eq=False)
class IssuedCell:
    """An eager cell with the times fitted to it.

    Attributes:
        cell: Its rows.
        issue_s: Time to issue a row; of its shortest calls where calls wait.
        wait_s: Mean wait of a call beyond that; None but for convolutions.
    """

    cell: OperatorRows
    issue_s: float
    wait_s: float | None = None


def dispatch_times(issued: Sequence[IssuedCell]) -> dict[str, float]:
    """Time to issue an operator, by parameter: the median over boards and operators, NVIDIA's and
    other vendors' apart.

    Args:
        issued: Eager cells.
    """
    dispatch_times: dict[str, float] = {}
    waits_s = [entry.wait_s for entry in issued if entry.wait_s is not None]
    if waits_s:
        dispatch_times["dispatch.plan_lookup_s"] = float(np.median(waits_s))
    for name, operators in FIT["issue_times"].items():
        times: dict[str, list[float]] = {}
        for entry in issued:
            if entry.cell.operator in operators["tables"]:
                prefix = "" if generation_of(entry.cell.device).is_reference else "other_"
                times.setdefault(f"{prefix}{name}", []).append(entry.issue_s)
        dispatch_times |= {
            parameter: float(np.median(values)) for parameter, values in times.items()
        }
    return dispatch_times
