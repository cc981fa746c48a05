"""The measured table: what is left of the measurements when the analytic terms are taken out, ready
to interpolate.

For each kernel, ln(measured / terms) at the measured shapes becomes a Gaussian-process correction.
Length scales and noise are those with the best leave-one-out likelihood (Rasmussen and Williams,
2006, section 5.4.2); the correction is kept only where it predicts left-out shapes better than the
terms alone do.
"""

from __future__ import annotations

import numpy as np

from accelsim.cost.cpu.fitted_kernels import Correction, matern
from accelsim.workloads.graph import FloatArray

__all__ = ["fit_correction"]

_FEWEST_ROWS = 8
#: A correction must lower the mean squared left-out error by this share.
_LEAST_GAIN = 0.1


def fit_correction(places: FloatArray, residuals: FloatArray) -> Correction | None:
    """A correction fitted to ln(measured / terms); None where it would not help.

    Args:
        places: Coordinates of the measured shapes, shape (n, d).
        residuals: ln(measured / terms), shape (n,).
    """
    count = len(residuals)
    if count < _FEWEST_ROWS:
        return None
    bounded = np.clip(residuals, *_fences(residuals))
    variance = max(float((bounded**2).mean()), 1e-6)
    spread = places.std(axis=0)
    base = np.where(spread > 1e-9, 1.5 * spread, 1e6)
    scales, noise, score = _grid(places, bounded, base, variance)
    for place in np.flatnonzero(spread > 1e-9).tolist() * 2:
        for factor in (0.5, 2.0):
            other = scales.copy()
            other[place] *= factor
            candidate = _leave_one_out(places, bounded, other, noise, variance)[0]
            if candidate < score - 1e-3:
                scales, score = other, candidate
    _, errors, weights = _leave_one_out(places, bounded, scales, noise, variance)
    if float((errors**2).mean()) > (1.0 - _LEAST_GAIN) * float((bounded**2).mean()):
        return None
    return Correction(places, variance * weights, scales)


def _fences(values: FloatArray) -> tuple[float, float]:
    """Limits beyond which a residual is an outlier: five median deviations, at least 10 %."""
    middle = float(np.median(values))
    deviation = max(1.4826 * float(np.median(np.abs(values - middle))), 0.02)
    return middle - 5.0 * deviation, middle + 5.0 * deviation


def _grid(
    places: FloatArray, residuals: FloatArray, base: FloatArray, variance: float
) -> tuple[FloatArray, float, float]:
    best = (base, 0.3, np.inf)
    for factor in (0.5, 1.0, 2.0, 4.0):
        for noise in (0.03, 0.1, 0.3, 1.0):
            score = _leave_one_out(places, residuals, base * factor, noise, variance)[0]
            if score < best[2]:
                best = (base * factor, noise, score)
    return best


def _leave_one_out(
    places: FloatArray, residuals: FloatArray, scales: FloatArray, noise: float, variance: float
) -> tuple[float, FloatArray, FloatArray]:
    """Negative mean log likelihood of left-out rows, their errors, and the weights (per unit
    variance).
    """
    covariance = matern(places, places, scales) + noise * np.eye(len(residuals))
    inverse = np.linalg.inv(covariance)
    weights = inverse @ residuals
    spread = np.diag(inverse)
    errors: FloatArray = weights / spread
    score = float(
        np.mean(
            -0.5 * np.log(spread) + 0.5 * np.log(variance) + 0.5 * errors**2 * spread / variance
        )
    )
    return score, errors, weights / variance
