"""Which of many candidates no other beats in every objective."""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import BoolArray, FloatArray


def pareto_mask(values: FloatArray) -> BoolArray:
    """Rows that no other row dominates, shape (n,); of equal rows all stay.

    Each row that is kept drops all that it beats (Kung et al., JACM 22(4), 1975, with numpy's
    columns in place of recursion).

    Args:
        values: Objectives to be small, none of them NaN, shape (n, objectives).
    """
    keep = np.zeros(len(values), dtype=bool)
    left = np.lexsort(values.T[::-1])
    while left.size:
        first = values[left[0]]
        keep[left[np.all(values[left] == first, axis=1)]] = True
        left = left[np.any(values[left] < first, axis=1)]
    return keep
