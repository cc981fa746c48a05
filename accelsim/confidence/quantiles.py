"""Quantiles that intervals are made with, as figures: `scipy.stats` takes longer to load than an
estimate does to run.
"""

from __future__ import annotations

import numpy as np

from accelsim.workloads.graph import FloatArray

#: Half width of a 90 % interval in standard deviations: the 95 % quantile of the normal
#: distribution.
Z90 = 1.6448536269514722
#: The same of a 95 % interval.
Z95 = 1.959963984540054


def small_sample_ratio(origin_count: int) -> float:
    """Spread that holds 90 % of one more board's runs, over that of the boards measured.

    Runs of one board, or of one trained model, share an error. The spread is taken about 0, so that
    n boards are n degrees of freedom: the 95 % quantile of Student's t over the normal's (JCGM
    100:2008, annex G), by its expansion (Abramowitz and Stegun, 26.7.5), 1 % low at n = 2.

    Args:
        origin_count: Boards or models n, >= 2.
    """
    terms = (
        Z90,
        (Z90**3 + Z90) / 4,
        (5 * Z90**5 + 16 * Z90**3 + 3 * Z90) / 96,
        (3 * Z90**7 + 19 * Z90**5 + 17 * Z90**3 - 15 * Z90) / 384,
    )
    quantile: float = sum(term / origin_count**power for power, term in enumerate(terms))
    return quantile / Z90


def residual_figures(log_ratio: FloatArray, log_sigma: FloatArray) -> tuple[float, float, float]:
    """Median error over the measured, share inside the 90 % interval, and median width of that
    over the prediction.

    Args:
        log_ratio: ln(measured / predicted), shape (n,).
        log_sigma: Its spread, shape (n,).
    """
    error = np.abs(np.expm1(-log_ratio))
    inside = np.abs(log_ratio) <= Z90 * log_sigma
    width = 2 * np.sinh(Z90 * log_sigma)
    return float(np.median(error)), float(inside.mean()), float(np.median(width))
