"""Statistics of simulation output: confidence intervals.

Output of one run is autocorrelated, so its interval comes from batch means or from independent
replications, and may be narrowed by control variates: inputs whose true mean is known (Law,
Simulation Modeling and Analysis, 5th ed., 2015, sections 9.5 and 11.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import FloatArray


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A mean and how sure it is.

    Attributes:
        mean: Point estimate.
        half_width: Half the interval's width, same unit as the mean.
        level: Confidence level, as 0.95.
        sample_count: Independent samples (batches or replications) behind it.
    """

    mean: float
    half_width: float
    level: float
    sample_count: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half_width

    def contains(self, value: float) -> bool:
        """Whether `value` lies inside."""
        return self.low <= value <= self.high


def replication_interval(values: ArrayLike, level: float = 0.95) -> ConfidenceInterval:
    """Confidence interval of the mean of independent samples, as one figure per replication.

    Args:
        values: At least two samples, shape (k,).
        level: Confidence level, between 0 and 1.

    Raises:
        InvalidValueError: If there are fewer than two samples or the level is out of range.
    """
    samples = np.asarray(values, dtype=np.float64)
    if samples.ndim != 1 or len(samples) < 2:
        raise InvalidValueError("values", samples.shape, "a column of at least two samples")
    count = len(samples)
    mean, deviation = float(samples.mean()), float(samples.std(ddof=1))
    return _interval(mean, deviation, count, count - 1, level)


def batch_means_interval(
    values: ArrayLike, batch_count: int = 40, level: float = 0.95
) -> ConfidenceInterval:
    """Confidence interval of the mean of one autocorrelated run, by the means of consecutive
    batches.

    Args:
        values: Output in order, warm-up already cut off, shape (k,), at least 2 per batch.
        batch_count: Batches, >= 2; each must be long against the correlation of the output.
        level: Confidence level, between 0 and 1.

    Raises:
        InvalidValueError: If there are too few values.
    """
    return replication_interval(
        _batch_means(np.asarray(values, dtype=np.float64), batch_count), level
    )


def control_variate_interval(
    values: ArrayLike,
    controls: Sequence[ArrayLike],
    control_means: Sequence[float],
    batch_count: int = 40,
    level: float = 0.95,
) -> ConfidenceInterval:
    """Batch means narrowed by regression on inputs whose true means are known.

    Args:
        values: Output in order, shape (k,).
        controls: Inputs belonging to the same customers, each of shape (k,).
        control_means: True mean of each control.
        batch_count: Batches, more than the controls plus 2.
        level: Confidence level, between 0 and 1.

    Raises:
        InvalidValueError: If there are too few values or batches, or not one mean per control.
    """
    if len(controls) != len(control_means) or batch_count < len(controls) + 3:
        raise InvalidValueError(
            "control_means", control_means, "one per control, and more batches than controls + 2"
        )
    output = _batch_means(np.asarray(values, dtype=np.float64), batch_count)
    columns = [np.ones(batch_count)]
    for control, mean in zip(controls, control_means, strict=True):
        columns.append(_batch_means(np.asarray(control, dtype=np.float64), batch_count) - mean)
    design = np.stack(columns, axis=1)
    coefficients = np.linalg.lstsq(design, output, rcond=None)[0]
    residual = output - design @ coefficients
    freedom = batch_count - design.shape[1]
    residual_variance = float(residual @ residual) / freedom
    mean_variance = residual_variance * np.linalg.inv(design.T @ design)[0, 0]
    deviation = math.sqrt(mean_variance * batch_count)
    return _interval(float(coefficients[0]), deviation, batch_count, freedom, level)


def _batch_means(values: FloatArray, batch_count: int) -> FloatArray:
    if batch_count < 2 or values.ndim != 1 or len(values) < 2 * batch_count:
        raise InvalidValueError(
            "values",
            values.shape,
            f"a column of at least two values in each of {batch_count} batches",
        )
    size = len(values) // batch_count
    return np.asarray(
        values[len(values) - size * batch_count :].reshape(batch_count, size).mean(axis=1)
    )


def _interval(
    mean: float, deviation: float, count: int, freedom: int, level: float
) -> ConfidenceInterval:
    if not 0 < level < 1:
        raise InvalidValueError("level", level, "a number between 0 and 1")
    from scipy.special import stdtrit

    quantile = float(stdtrit(freedom, 0.5 + level / 2))  # of Student's t
    return ConfidenceInterval(mean, quantile * deviation / math.sqrt(count), level, count)
