"""Robust least squares of ln(measured / predicted) in the logarithms of positive parameters, with
priors.

Each cell of rows weighs `sqrt(rows)`-independently of how many rows it has: a device measured often
does not drown the others. Rows far off count by their distance, not its square (pseudo-Huber loss).
A prior holds every parameter near its centre, by a standard deviation of its logarithm: parameters
the rows do not determine stay there. Where a fit starts decides nothing but which minimum it finds:
of several starts the cheapest solution counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray

#: ln-residual beyond which a row counts by its distance.
_SCALE = 0.1
#: Rows one unit of prior stands against: a parameter one prior deviation away costs as much as 5 %
#: on every row.
_PRIOR_WEIGHT = 0.05
_STEP = 3e-3


@frozen
class Prior:
    """Range of a parameter and how firmly it stays at its centre.

    Attributes:
        low: Least value, above 0.
        high: Largest value.
        log_sigma: Standard deviation of its logarithm around the centre.
        needs: What rows must show for it to be fitted at all.
    """

    low: float
    high: float
    log_sigma: float = 1.0
    needs: Sequence[str] = ()


@frozen
class Solution:
    """What a fit found.

    Attributes:
        values: Parameter values by name.
        has_converged: Whether the solver met its tolerance before its limit of evaluations.
        cost: Half the sum of squares, priors included.
    """

    values: Mapping[str, float]
    has_converged: bool
    cost: float


def robust(log_residual: FloatArray, scale: float = _SCALE) -> FloatArray:
    """Residuals whose squares are the pseudo-Huber loss: quadratic up to `scale`, then linear;
    shape (n,).

    Hartley and Zisserman, Multiple View Geometry, 2004.
    """
    ratio = log_residual / scale
    return np.sign(log_residual) * scale * np.sqrt(2.0 * (np.sqrt(1.0 + ratio**2) - 1.0))


def solve(
    residuals: Callable[[Mapping[str, float]], list[FloatArray]],
    centre: Mapping[str, float],
    priors: Mapping[str, Prior],
    starts: Sequence[Mapping[str, float]] = ({},),
    max_evaluations: int = 40,
) -> Solution:
    """Fit parameters to cells of residuals.

    Pseudo-Huber loss (Hartley and Zisserman, 2004), priors as further residuals.

    Args:
        residuals: ln(measured / predicted) of every cell under given values, one array per cell.
        centre: Where the priors hold each parameter, by name.
        priors: Range and firmness of each.
        starts: Where to start from, one solution each; a parameter that a start does not name
            starts at its centre.
        max_evaluations: Most evaluations per start, derivatives not counted.

    Returns:
        The cheapest of the solutions that converged, of all where none did.
    """
    from scipy.optimize import least_squares

    names = list(centre)
    low, high = np.log([(priors[n].low, priors[n].high) for n in names]).T
    firmness = _PRIOR_WEIGHT / np.array([priors[n].log_sigma for n in names])

    def inside(values: Mapping[str, float]) -> FloatArray:
        return np.clip(np.log([values[n] for n in names]), low + 1e-9, high - 1e-9)

    middle = inside(centre)

    def values_of(x: FloatArray) -> dict[str, float]:
        return dict(zip(names, np.exp(x).tolist(), strict=True))

    def vector(x: FloatArray) -> FloatArray:
        """Residuals of cells (pseudo-Huber, Hartley and Zisserman, 2004) and of the priors."""
        cells = residuals(values_of(x))
        parts = [robust(cell) / np.sqrt(max(len(cell), 1)) for cell in cells]
        return np.concatenate([*parts, firmness * (x - middle)])

    solutions = [
        least_squares(
            vector,
            inside({**centre, **start}),
            bounds=(low, high),
            diff_step=_STEP,
            max_nfev=max_evaluations,
            x_scale=0.3,
            xtol=1e-4,
            ftol=1e-5,
        )
        for start in starts
    ]
    best = min(solutions, key=lambda solution: (solution.status <= 0, solution.cost))
    return Solution(values_of(best.x), best.status > 0, float(best.cost))
