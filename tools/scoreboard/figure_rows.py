"""Measured rows with figures predicted one by one, as batches by device and reason of refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

import numpy as np

from accelsim.errors import AccelsimError
from accelsim.frozen import frozen
from accelsim.scoreboard.names import device_of
from accelsim.scoreboard.suite import Batch, Prediction, fixed_prediction, refused_batch


@frozen
class FigureRow:
    """One measured row.

    Attributes:
        device: Name in the table.
        group: Model or quantity.
        label: Configuration.
        measured: What was measured, in the suite's unit.
        predicted: The prediction; NaN where it is refused.
        log_sigma: Standard deviation of ln(true / predicted); NaN where nothing says it.
        refusal: Why it is not asked; empty where it is.
        views: Names of subsets that it belongs to.
        setting: What runs it is like; empty for none.
        origin: Model whose rows are left out together.
    """

    device: str
    group: str
    label: str
    measured: float
    predicted: float = float("nan")
    log_sigma: float = float("nan")
    refusal: str = ""
    views: frozenset[str] = field(default_factory=frozenset)
    setting: str = ""
    origin: str = ""


def answered(row: FigureRow, predict: Callable[[], tuple[float, float]]) -> FigureRow:
    """A row with its prediction and spread, or why there is none.

    Args:
        row: The row.
        predict: The figure and its log standard deviation.
    """
    try:
        predicted, log_sigma = predict()
    except AccelsimError as error:
        return replace(row, refusal=str(error).split(". ")[0].rstrip("."))
    return replace(row, predicted=predicted, log_sigma=log_sigma)


def figure_batches(rows: Iterable[FigureRow]) -> list[Batch]:
    """One batch per device and reason of refusal."""
    parts: dict[tuple[str, str], list[FigureRow]] = {}
    for row in rows:
        parts.setdefault((row.device, row.refusal), []).append(row)
    return [_batch(own) for own in parts.values()]


def _batch(rows: Sequence[FigureRow]) -> Batch:
    device, refusal = rows[0].device, rows[0].refusal
    group, label = (np.array([getattr(row, name) for row in rows]) for name in ("group", "label"))
    measured = np.array([row.measured for row in rows])
    if refusal:
        return refused_batch(device, group, label, measured, refusal)
    names = sorted({name for row in rows for name in row.views})
    predicted, sigma = np.array([(row.predicted, row.log_sigma) for row in rows]).T
    return Batch(
        device,
        device_of(device),
        group,
        label,
        measured,
        roofline_s=np.full(len(rows), np.nan),
        predict=fixed_prediction(Prediction(predicted, sigma)),
        views=tuple((name, np.array([name in row.views for row in rows])) for name in names),
        setting=np.array([row.setting for row in rows]),
        origin=np.array([row.origin for row in rows]),
    )
