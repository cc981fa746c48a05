"""Robust least squares of ln(measured / predicted) in the logarithms of positive parameters, with priors.

Each cell of rows weighs `sqrt(rows)`-independently of how many rows it has: a device measured often does not drown the
others. Rows far off count by their distance, not its square (pseudo-Huber loss). A prior holds every parameter near its
starting value, by a standard deviation of its logarithm: parameters the rows do not determine stay where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accelsim.workloads.graph import FloatArray

__all__ = ["Prior", "Solution", "robust", "solve"]

#: ln-residual beyond which a row counts by its distance.
_SCALE = 0.1
#: Rows one unit of prior stands against: a parameter one prior deviation away costs as much as 5 % on every row.
_PRIOR_WEIGHT = 0.05
_STEP = 3e-3


@dataclass(frozen=True, slots=True)
class Prior:
    """Range of a parameter and how firmly it stays at its starting value.

    Attributes:
        low: Least value, above 0.
        high: Largest value.
        log_sigma: Standard deviation of its logarithm around the starting value.
    """

    low: float
    high: float
    log_sigma: float = 1.0


@dataclass(frozen=True, slots=True)
class Solution:
    """What a fit found.

    Attributes:
        values: Parameter values by name.
        has_converged: Whether the solver met its tolerance before its limit of evaluations.
        cost: Half the sum of squares, priors included.
        evaluations: Evaluations of the residuals, derivatives not counted.
    """

    values: Mapping[str, float]
    has_converged: bool
    cost: float
    evaluations: int


def robust(log_residual: FloatArray, scale: float = _SCALE) -> FloatArray:
    """Residuals whose squares are the pseudo-Huber loss: quadratic up to `scale`, then linear; shape (n,)."""
    ratio = log_residual / scale
    transformed: FloatArray = np.sign(log_residual) * scale * np.sqrt(2.0 * (np.sqrt(1.0 + ratio**2) - 1.0))
    return transformed


def solve(
    residuals: Callable[[Mapping[str, float]], list[FloatArray]],
    start: Mapping[str, float],
    priors: Mapping[str, Prior],
    max_evaluations: int = 40,
) -> Solution:
    """Fit parameters to cells of residuals.

    Args:
        residuals: ln(measured / predicted) of every cell under given values, one array per cell.
        start: Starting values, which are also the prior's centre, by name.
        priors: Range and firmness of each.
        max_evaluations: Most evaluations, derivatives not counted.
    """
    from scipy.optimize import least_squares

    names = list(start)
    low = np.log([priors[n].low for n in names])
    high = np.log([priors[n].high for n in names])
    centre = np.clip(np.log([start[n] for n in names]), low + 1e-9, high - 1e-9)
    firmness = _PRIOR_WEIGHT / np.array([priors[n].log_sigma for n in names])

    def vector(x: FloatArray) -> FloatArray:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        parts = [robust(cell) / np.sqrt(max(len(cell), 1)) for cell in residuals(values)]
        return np.concatenate([*parts, firmness * (x - centre)])

    found = least_squares(
        vector, centre, bounds=(low, high), diff_step=_STEP, max_nfev=max_evaluations, x_scale=0.3, xtol=1e-4, ftol=1e-5
    )
    return Solution(
        dict(zip(names, np.exp(found.x).tolist(), strict=True)), found.status > 0, float(found.cost), int(found.nfev)
    )
