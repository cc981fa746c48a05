"""Batches of rows that measure several quantities at once: cycles and accesses, latency, traffic
and power.

The scoring compares one number per row, so each quantity of a row becomes a row of its own, in a
group named after the quantity. Errors are relative, so that units do not matter; a quantity
measured as 0 or left empty is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from accelsim.hardware.profile import DeviceProfile
from accelsim.scoreboard.suite import MeasuredBatch, Prediction, fixed_prediction
from accelsim.workloads.graph import FloatArray, TextArray

#: What the axes of a plot show where a suite has several quantities.
QUANTITY = "value, each quantity in its unit"


def quantity_batch(
    profile: DeviceProfile,
    device: str,
    label: TextArray,
    measured: Mapping[str, FloatArray],
    predicted: Mapping[str, FloatArray],
    log_sigma: float | None,
) -> MeasuredBatch:
    """One batch of all quantities of n rows.

    Args:
        profile: Profile of the device.
        device: Its name in the table.
        label: Configuration of each row, shape (n,).
        measured: By quantity, shape (n,) each; NaN or 0 where there is none.
        predicted: By quantity, shape (n,) each.
        log_sigma: Standard deviation of ln(true / predicted); None where nothing says it.
    """
    parts = []
    for name, values in measured.items():
        rows = np.isfinite(values) & (values > 0) & np.isfinite(predicted[name])
        group = np.full(int(rows.sum()), name)
        parts.append((group, label[rows], values[rows], predicted[name][rows]))
    group, labels, truth, guess = map(np.concatenate, zip(*parts, strict=True))
    sigma = np.full(len(guess), np.nan if log_sigma is None else log_sigma)
    predict = fixed_prediction(Prediction(guess, sigma))
    return MeasuredBatch(
        device, profile, group, labels, truth, np.full(len(truth), np.nan), predict
    )
