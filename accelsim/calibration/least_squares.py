"""Fits sums of non-negative terms to times, by relative error.

Minimises the sum over rows of ((prediction - time) / time)^2 under coefficients >= 0 (Lawson and
Hanson, 1974), with a small ridge that draws each coefficient towards a prior value: terms that the
rows cannot tell apart, or do not show at all, keep what other rows say of them. The problem is
convex: the same rows give the same coefficients.
"""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import FloatArray


def fit_nonnegative(
    terms: FloatArray,
    times_s: FloatArray,
    prior: FloatArray | float = 0.0,
    *,
    ridge: float = 1e-3,
    passes: int = 4,
    least_scale: FloatArray | float = 0.0,
    most: FloatArray | float = np.inf,
) -> FloatArray:
    """Coefficients of non-negative terms.

    Lawson and Hanson, Solving Least Squares Problems, 1974.

    Args:
        terms: Quantities, shape (n, p), >= 0.
        times_s: Times, shape (n,), > 0.
        prior: Coefficients to fall back to, shape (p,).
        ridge: Weight of the penalty against one row's error.
        passes: Repeats with rows that lie far off weighted down (Huber's weights at twice the
            median deviation).
        least_scale: Root mean square of quantity over time below which a term counts as hardly
            shown, shape (p,): its coefficient then stays with the prior. Without it a quantity that
            is next to nothing in all rows would explain their residuals with a coefficient that is
            absurd where there is more of it.
        most: Largest coefficients, shape (p,), >= 0.

    Returns:
        Coefficients >= 0, shape (p,); in the terms' own units.
    """
    relative = terms / times_s[:, None]
    scale = np.sqrt((relative**2).mean(axis=0))
    shown = scale > 0
    scale = np.where(shown, np.maximum(scale, least_scale), 1.0)
    scaled = relative / scale
    start, limits = prior * scale, most * scale
    penalty = np.sqrt(ridge * len(times_s)) * np.eye(terms.shape[1])
    weights = np.ones(len(times_s))
    solution = start
    for _ in range(passes):
        rows = np.vstack([scaled * weights[:, None], penalty])
        wanted = np.concatenate([weights, penalty @ start])
        solution = _bounded(rows, wanted, limits)
        off = np.abs(scaled @ solution - 1.0)
        limit = max(2.0 * float(np.median(off)), 0.02)
        weights = np.sqrt(np.minimum(1.0, limit / np.maximum(off, 1e-12)))
    coefficients: FloatArray = np.maximum(np.where(shown, solution, start), 0.0) / scale
    return coefficients


def _bounded(rows: FloatArray, wanted: FloatArray, limits: FloatArray) -> FloatArray:
    """Least squares under bounds: what exceeds its largest value stays there, and the others are
    solved again.

    Each solution is Lawson and Hanson's, 1974.
    """
    from scipy.optimize import nnls

    solution = np.zeros(len(limits))
    free = np.ones(len(limits), dtype=bool)
    while free.any():
        solution[free] = nnls(rows[:, free], wanted - rows @ np.where(free, 0.0, solution))[0]
        over = free & (solution > limits)
        if not over.any():
            break
        solution[over] = limits[over]
        free &= ~over
    return solution
