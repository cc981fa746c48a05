"""Which of many candidates no other beats in every objective."""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import BoolArray, FloatArray


def pareto_mask(values: FloatArray) -> BoolArray:
    """Rows that no other row dominates, shape (n,); of equal rows all stay.

    Args:
        values: Objectives to be small, shape (n, objectives).
    """
    keep = np.ones(len(values), dtype=bool)
    for index in np.lexsort(values.T[::-1]).tolist():
        if not keep[index]:
            continue
        beaten = np.all(values >= values[index], axis=1) & np.any(values > values[index], axis=1)
        keep[beaten] = False
    return keep
