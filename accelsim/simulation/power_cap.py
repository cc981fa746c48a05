"""Power limits: how much longer rows take on a board that may not draw more than its limit.

A board at its limit lowers its clock. To first order the switched energy of a piece of work stays
what it was and only its duration grows, until dynamic energy over time plus idle power meets the
limit. (Lower voltage at a lower clock would save some energy too; that is left to fitted
parameters.) Memory-bound rows are stretched only where stretching the compute-bound ones alone
cannot be meant: when there are none in the window.
"""

from __future__ import annotations

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray


def cap_power(
    time_s: FloatArray,
    energy_j: FloatArray,
    idle_w: float,
    limit_w: float,
    *,
    window_s: float = 0.0,
    is_stretchable: BoolArray | None = None,
) -> FloatArray:
    """Durations under a power limit: energy is conserved, and over each window time >= energy /
    (limit - idle).

    Args:
        time_s: Uncapped duration of each row, shape (n,), in seconds, >= 0.
        energy_j: Dynamic energy of each row, shape (n,), in joules, >= 0.
        idle_w: Idle power, in watts, >= 0.
        limit_w: Power limit, in watts, > idle_w.
        window_s: Time the controller averages over; consecutive rows are grouped into windows about
            that long. 0: each row for itself.
        is_stretchable: Rows whose time follows the clock (compute-bound), shape (n,); all where
            None.

    Returns:
        Seconds, shape (n,), nowhere less than `time_s`.

    Raises:
        InvalidValueError: If the limit does not exceed idle power.
    """
    if not 0 <= idle_w < limit_w:
        raise InvalidValueError("limit_w", limit_w, f"a number above idle_w = {idle_w}")
    if not len(time_s):
        return time_s.copy()
    window = _windows(time_s, window_s)
    count = int(window[-1]) + 1
    needed = np.bincount(window, energy_j, count) / (limit_w - idle_w)
    missing = np.maximum(needed - np.bincount(window, time_s, count), 0.0)
    weight = _stretch_weight(time_s, energy_j, window, count, is_stretchable)
    return np.asarray(time_s + missing[window] * weight)


def _windows(time_s: FloatArray, window_s: float) -> IntArray:
    """Window of each row, ascending from 0 without holes."""
    if window_s <= 0:
        return np.arange(len(time_s))
    slot = np.floor((np.cumsum(time_s) - time_s) / window_s).astype(np.int64)
    return np.concatenate([[0], np.cumsum(slot[1:] != slot[:-1])])


def _stretch_weight(
    time_s: FloatArray,
    energy_j: FloatArray,
    window: IntArray,
    count: int,
    is_stretchable: BoolArray | None,
) -> FloatArray:
    """Share of its window's missing time that each row takes: by time, among the stretchable rows
    if there are any.
    """
    weight = time_s if is_stretchable is None else time_s * is_stretchable
    total = np.bincount(window, weight, count)
    for fallback in (time_s, energy_j):  # rows without time take it by energy
        weight = np.where(total[window] > 0, weight, fallback)
        total = np.bincount(window, weight, count)
    return np.asarray(weight / np.where(total > 0, total, 1.0)[window])
