"""Which of many candidates no other beats in every objective."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from accelsim.workloads.graph import BoolArray, FloatArray, IntArray


def pareto_mask(values: FloatArray) -> BoolArray:
    """Rows that no other row dominates, shape (n,); of equal rows all stay.

    Up to three objectives take n log n steps; of more, each row that is kept drops all that it
    beats (both: Kung et al., JACM 22(4), 1975, the second with numpy's columns in place of
    recursion).

    Args:
        values: Objectives to be small, none of them NaN, shape (n, objectives).
    """
    left = np.lexsort(values.T[::-1])
    if values.shape[1] <= 3:
        return _mask_of_three(np.pad(values, ((0, 0), (0, 3 - values.shape[1]))), left)
    keep = np.zeros(len(values), dtype=bool)
    while left.size:
        best = values[left[0]]
        keep[left[np.all(values[left] == best, axis=1)]] = True
        left = left[np.any(values[left] < best, axis=1)]
    return keep


def known_front(values: FloatArray) -> BoolArray:
    """Rows that no other row dominates, where objectives may be unknown, shape (n,).

    A row is beaten in the objectives that it knows, by a row that knows them, too.

    Args:
        values: Objectives to be small, NaN where unknown, shape (n, objectives).
    """
    is_known = ~np.isnan(values)
    front = np.zeros(len(values), dtype=bool)
    for has in np.unique(is_known, axis=0):
        rivals = np.flatnonzero(is_known[:, has].all(axis=1))
        undominated = rivals[pareto_mask(values[rivals][:, has])]
        front[undominated[(is_known[undominated] == has).all(axis=1)]] = True
    return front


def _mask_of_three(values: FloatArray, order: IntArray) -> BoolArray:
    """`pareto_mask` of three objectives: in the order of the first, a row is beaten where the
    front of the other two so far has a row that is no larger in both.
    """
    keep = np.zeros(len(values), dtype=bool)
    seconds, thirds = list[float](), list[float]()  # that front: rising, falling
    previous, is_kept = None, False
    for index, row in zip(order.tolist(), values[order].tolist(), strict=True):
        if row != previous:
            previous, (_, second, third) = row, row
            at = end = bisect_right(seconds, second)
            is_kept = at == 0 or thirds[at - 1] > third
            while is_kept and end < len(thirds) and thirds[end] >= third:
                end += 1
            if is_kept:
                seconds[at:end], thirds[at:end] = [second], [third]
        keep[index] = is_kept
    return keep
