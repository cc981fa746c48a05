"""Answered rows of a suite by device as columns of numbers, and a sample where they are too
many to tell apart.

A sample keeps the rows farthest from the measurement, so that what is left out is never the worst;
the rest is drawn at random with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accelsim.frozen import frozen
from accelsim.plain import Document, grouped
from accelsim.workloads.graph import IntArray, TextArray

if TYPE_CHECKING:
    from accelsim.scoreboard.scored_rows import ScoredRows
    from accelsim.scoreboard.scores import SuiteScore
    from accelsim.workloads.graph import FloatArray

#: Rows of a sample that are the farthest off.
_WORST = 20
_SEED = 0


@frozen(eq=False)
class DeviceRows:
    """Answered rows of one device; n rows.

    Attributes:
        device: Name in the table.
        group: Operator or model, shape (n,).
        label: Configuration.
        tier: Tier of the parameters.
        measured: Measured values above 0, shape (n,).
        predicted: Predicted values above 0.
        low: Low ends of the 90 % intervals.
        high: High ends.
    """

    device: str
    group: TextArray
    label: TextArray
    tier: TextArray
    measured: FloatArray
    predicted: FloatArray
    low: FloatArray
    high: FloatArray

    def __len__(self) -> int:
        return len(self.measured)

    @classmethod
    def of(cls, device: str, group: Sequence[str], *times: FloatArray) -> DeviceRows:
        """Rows of one kind.

        Args:
            device: What they ran on.
            group: What each is of, n names.
            times: Measured, predicted, low and high, shape (n,) each.
        """
        none = np.full(len(group), "")
        return cls(device, np.array(group), none, none, *times)

    @property
    def error(self) -> FloatArray:
        """Predicted / measured - 1, shape (n,)."""
        return self.predicted / self.measured - 1.0

    def row(self, index: int) -> Document:
        """A row's figures by name."""
        numbers = {
            "measured": self.measured,
            "predicted": self.predicted,
            "low": self.low,
            "high": self.high,
            "error_fraction": self.error,
        }
        texts = {"device": self.device, "group": self.group[index], "label": self.label[index]}
        texts |= {"tier": self.tier[index]}
        return texts | {name: float(column[index]) for name, column in numbers.items()}

    def sample(self, most: int) -> IntArray:
        """At most `most` rows: those farthest off and others at random; ascending indices.

        Args:
            most: Rows to draw, at least 1.
        """
        if len(self) <= most:
            return np.arange(len(self))
        order = np.argsort(-np.abs(np.log(self.predicted / self.measured)), kind="stable")
        worst, others = order[: min(_WORST, most)], order[min(_WORST, most) :]
        drawn = np.random.default_rng(_SEED).choice(others, most - len(worst), replace=False)
        return np.sort(np.concatenate([worst, drawn]))


def rows_by_device(score: SuiteScore) -> list[DeviceRows]:
    """Answered rows of a suite by device, in the order of the suite."""
    answered = [batch for batch in score.rows if not batch.refusal and len(batch)]
    by_device = grouped(answered, lambda batch: batch.device)
    series = [_joined(device, batches) for device, batches in by_device.items()]
    return [device_rows for device_rows in series if len(device_rows)]


def _joined(device: str, batches: Sequence[ScoredRows]) -> DeviceRows:
    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(batch, name) for batch in batches])

    tier = np.concatenate([np.full(len(batch), batch.tier) for batch in batches])
    times = [column(name) for name in ("measured_s", "predicted_s", "low_s", "high_s")]
    shown = (times[0] > 0) & (times[1] > 0)  # a logarithmic axis has no place for others
    columns = (column("group"), column("label"), tier, *times)
    return DeviceRows(device, *(values[shown] for values in columns))


def farthest(series: Sequence[DeviceRows]) -> list[Document]:
    """Rows of a suite by their error, the farthest first."""
    rows = [
        (device_rows, row_index, abs(math.log(ratio)))
        for device_rows in series
        for row_index, ratio in enumerate((device_rows.predicted / device_rows.measured).tolist())
    ]
    rows.sort(key=lambda row: -row[2])
    return [device_rows.row(index) for device_rows, index, _ in rows]


def sampling_note(series: Sequence[DeviceRows], most: int) -> str:
    """What a plot with at most `most` rows per series leaves out; empty where it leaves out
    nothing.
    """
    drawn, total = sum(min(len(device_rows), most) for device_rows in series), sum(map(len, series))
    if drawn == total:
        return ""
    return (
        f"{drawn:,} of {total:,} rows drawn: of each device the {min(_WORST, most)} "
        "farthest off, others at random"
    )
