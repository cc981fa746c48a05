"""How far predictions are from measurements: error quantiles, bias, ranking, and what intervals
cover.

The absolute percentage error |p/m - 1| is relative to the measurement. MAPE is its mean, bias the
mean of p/m - 1 (above 0: predicted too slow). Ranking is Kendall's tau-b (Kendall, Biometrika 33,
1945), which counts pairs put in the right order and corrects for ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.confidence.quantiles import Z90, Z95
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray

#: Share of rows a prediction interval should cover.
INTERVAL_LEVEL = 0.9
_MIN_RANKED = 3
_KNEE = 0.9
#: Weight of a miss in the score of an interval: 2 over the share of rows that may lie outside.
_MISS_WEIGHT = 2 / (1 - INTERVAL_LEVEL)


@frozen
class Figures:
    """Accuracy of one group of rows; fractions of the measured time, None where there are no rows.

    Attributes:
        rows_answered: Rows with a prediction.
        mape_fraction: Mean absolute error.
        mape_noise_fraction: Half width of its 95 % confidence interval: 1.96 standard errors.
        median_ape_fraction: Median absolute error.
        median_noise_fraction: Half width of its 95 % confidence interval, from order statistics.
        p90_ape_fraction: 90th percentile.
        p90_noise_fraction: The same for it.
        max_ape_fraction: Largest.
        bias_fraction: Mean signed error; above 0 where predictions are too slow.
        kendall_tau: Rank correlation of predicted and measured times over the rows; None under
            three rows.
        interval_coverage_fraction: Rows inside their 90 % interval, of those that have one; None
            where none has.
        interval_width_fraction: Median of (high - low) / predicted.
        interval_score_fraction: Mean of (high - low + 20 x what a row lies outside) / predicted;
            smaller is better (Gneiting and Raftery, Journal of the American Statistical
            Association 102, 2007, equation 43).
        roofline_mape_fraction: MAPE of the plain roofline on the same rows.
    """

    rows_answered: int
    mape_fraction: float | None
    mape_noise_fraction: float | None
    median_ape_fraction: float | None
    median_noise_fraction: float | None
    p90_ape_fraction: float | None
    p90_noise_fraction: float | None
    max_ape_fraction: float | None
    bias_fraction: float | None
    kendall_tau: float | None
    interval_coverage_fraction: float | None
    interval_width_fraction: float | None
    interval_score_fraction: float | None
    roofline_mape_fraction: float | None


def absolute_errors(predicted_s: FloatArray, measured_s: FloatArray) -> FloatArray:
    """|predicted / measured - 1|, shape (n,)."""
    return np.abs(predicted_s / measured_s - 1.0)


def interval_s(predicted_s: FloatArray, log_sigma: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Low and high end of the 90 % interval of a log-normal error, shape (n,) each.

    Args:
        predicted_s: Median of the prediction, s.
        log_sigma: Standard deviation of ln(true / predicted).
    """
    spread = np.exp(Z90 * log_sigma)
    return predicted_s / spread, predicted_s * spread


def kendall_tau(predicted: FloatArray, measured: FloatArray) -> float | None:
    """Kendall's tau-b; None under three rows or where one side is constant."""
    if len(measured) < _MIN_RANKED:
        return None
    from scipy.stats import kendalltau

    tau = float(kendalltau(predicted, measured).statistic)
    return None if np.isnan(tau) else tau


def ranking_tau(
    predicted: FloatArray, measured: FloatArray, choice: Sequence[str] | NDArray[Any]
) -> float | None:
    """Mean tau over the questions "which of these is fastest": rows of one `choice` are the
    candidates.

    Args:
        predicted: Predicted times.
        measured: Measured times.
        choice: Names the question each row is a candidate of, length n.

    Returns:
        Mean over the questions with three candidates or more; None where there are none.
    """
    names, inverse = np.unique(np.asarray(choice, dtype=str), return_inverse=True)
    groups = [np.flatnonzero(inverse == index) for index in range(len(names))]
    taus = [kendall_tau(predicted[rows], measured[rows]) for rows in groups]
    known_taus = [tau for tau in taus if tau is not None]
    return float(np.mean(known_taus)) if known_taus else None


def quantile_noise(values: FloatArray, share: float) -> float | None:
    """Half the width of a quantile's 95 % confidence interval; None for one value.

    The number of values below a quantile is binomial, so its standard deviation in ranks is sqrt(n
    q (1 - q)) (Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2).

    Args:
        values: Sample, shape (n,).
        share: The quantile, 0 to 1.
    """
    count = len(values)
    if count < 2:
        return None
    reach = Z95 * np.sqrt(share * (1.0 - share) / count)
    low, high = np.quantile(values, np.clip([share - reach, share + reach], 0.0, 1.0))
    return float(high - low) / 2.0


def knee_batch(batch: FloatArray, time_s: FloatArray) -> int:
    """Smallest batch of a sweep that reaches 90 % of the sweep's best throughput: from there on
    more hardly helps.

    Args:
        batch: Batch sizes, rising.
        time_s: Time of one batch at each.
    """
    rate = batch / time_s
    return int(batch[int(np.argmax(rate >= _KNEE * rate.max()))])


def _ratios(above: FloatArray, below: FloatArray) -> FloatArray:
    """A ratio of the rows that have one."""
    is_known = below > 0
    return above[is_known] / below[is_known]


def figures(
    predicted_s: FloatArray,
    measured_s: FloatArray,
    low_s: FloatArray,
    high_s: FloatArray,
    roofline_s: FloatArray,
) -> Figures:
    """Accuracy of rows that were answered.

    Args:
        predicted_s: Predicted times, shape (n,), above 0.
        measured_s: Measured times.
        low_s: Low ends of the intervals; NaN where a prediction has none.
        high_s: High ends.
        roofline_s: Roofline times; NaN where the device has no roofline for the row.
    """
    count = len(measured_s)
    if count == 0:
        return Figures(0, *(None,) * (len(fields(Figures)) - 1))
    error = absolute_errors(predicted_s, measured_s)
    is_known = ~np.isnan(low_s)
    low_s = low_s[is_known]
    high_s = high_s[is_known]
    asked_s, mean_s = measured_s[is_known], predicted_s[is_known]
    inside = (low_s <= asked_s) & (asked_s <= high_s)
    missed_s = np.maximum(low_s - asked_s, 0.0) + np.maximum(asked_s - high_s, 0.0)
    widths = _ratios(high_s - low_s, mean_s)
    scored = _ratios(high_s - low_s + _MISS_WEIGHT * missed_s, mean_s)
    has_line = ~np.isnan(roofline_s)
    line = absolute_errors(roofline_s[has_line], measured_s[has_line])
    return Figures(
        rows_answered=count,
        mape_fraction=float(error.mean()),
        mape_noise_fraction=float(Z95 * error.std(ddof=1) / np.sqrt(count)) if count > 1 else None,
        median_ape_fraction=float(np.median(error)),
        median_noise_fraction=quantile_noise(error, 0.5),
        p90_ape_fraction=float(np.quantile(error, 0.9)),
        p90_noise_fraction=quantile_noise(error, 0.9),
        max_ape_fraction=float(error.max()),
        bias_fraction=float((predicted_s / measured_s - 1.0).mean()),
        kendall_tau=kendall_tau(predicted_s, measured_s),
        interval_coverage_fraction=float(inside.mean()) if inside.size else None,
        interval_width_fraction=float(np.median(widths)) if widths.size else None,
        interval_score_fraction=float(scored.mean()) if scored.size else None,
        roofline_mape_fraction=float(line.mean()) if line.size else None,
    )
