"""Rows that measured one run of a network each: batches of them by device.

Suites of whole networks differ in how a row says what was run; from there on they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accelsim.errors import UnknownNameError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.hardware.sourced import Sourced, SourceKind
from accelsim.scoreboard.suite import Batch, predict_each, refused_batch

#: End of a label, and name of its view: rows of one network over its batch sizes.
_SWEEP = "batch sweep"


@frozen
class MeasuredRun:
    """One row.

    Attributes:
        device: Name in the table.
        group: Model.
        label: Configuration.
        measured_s: Measured time.
        run: What was run, hashable, with a `setting` if it is of a model; None where it is
            refused.
        refusal: Why it is not asked; empty where it is.
        program_count: Programs side by side on the device, each of which fetches its weights; 0
            where they are not told apart.
    """

    device: str
    group: str
    label: str
    measured_s: float
    run: Any | None = None
    refusal: str = ""
    program_count: int = 0

    def refused(self, reason: str) -> MeasuredRun:
        """The row, not asked."""
        return replace(self, run=None, refusal=reason)


@frozen
class RunModel:
    """How runs are predicted on a device.

    Attributes:
        profile_of: Finds the profile of a device as the table names it.
        roofline_s: Plain roofline of a run.
        predicted: Time of a run with given parameters, s, and its log standard deviation.
    """

    profile_of: Callable[[str], DeviceProfile]
    roofline_s: Callable[[Any, Any], float]
    predicted: Callable[[Any, Any, Any | None], tuple[float, float]]


def run_batches(rows: Iterable[MeasuredRun], model: RunModel) -> list[Batch]:
    """One batch per device (and count of programs), and one per device and reason of refusal."""
    parts: dict[tuple[str, str, int], list[MeasuredRun]] = {}
    for row in rows:
        parts.setdefault((row.device, row.refusal, row.program_count), []).append(row)
    return [_batch(own, model) for own in parts.values()]


def _batch(rows: Sequence[MeasuredRun], model: RunModel) -> Batch:
    first = rows[0]
    group = np.array([row.group for row in rows], dtype=str)
    label = np.array([row.label for row in rows], dtype=str)
    columns = (group, label, np.array([row.measured_s for row in rows]))
    if first.refusal:
        return refused_batch(first.device, *columns, first.refusal)
    try:
        profile: Any = _programmed(model.profile_of(first.device), first.program_count)
    except UnknownNameError as error:
        return refused_batch(first.device, *columns, f"no GPU profile of {error.name}")
    runs = [row.run for row in rows if row.run is not None]
    line_s = np.array([model.roofline_s(run, profile) for run in runs])
    predict = predict_each(runs, lambda run, given: model.predicted(run, profile, given))
    is_swept = np.char.endswith(label, " sweep")
    views = ((_SWEEP, is_swept),) if is_swept.any() else ()
    setting = np.array([str(getattr(run, "setting", "")) for run in runs])
    return Batch(first.device, profile, *columns, line_s, predict, views=views, setting=setting)


def _programmed(profile: DeviceProfile, program_count: int) -> DeviceProfile:
    """The device with so many cores, one to a program."""
    if not program_count:
        return profile
    source = "programs of the published run"
    cores = Sourced(value=program_count, kind=SourceKind.DERIVED, source=source)
    return profile.model_copy(update={"core_count": cores})
