"""Measured rows one by one, and batches of them by device and reason of refusal.

Suites differ in how a row says what was run; from there on they are the same. A row's run is
predicted with given parameters (`RunModel`), or its figure comes with the row where none enter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from accelsim.errors import AccelsimError, UnknownNameError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.hardware.sourced import Sourced, SourceKind
from accelsim.plain import grouped
from accelsim.scoreboard.names import device_of
from accelsim.scoreboard.suite import (
    MeasuredBatch,
    Prediction,
    fixed_prediction,
    predict_each,
    reason_of,
    refused_batch,
)
from accelsim.workloads.graph import BoolArray

_NAN = float("nan")


@frozen
class MeasuredRun:
    """One row.

    Attributes:
        device: Name in the table.
        group: Model or quantity.
        label: Configuration.
        measured_s: Measured time, or figure in the suite's unit.
        run: What was run, hashable, with a `setting` if it is of a model; None where it is
            refused, or its figure comes with the row.
        refusal: Why it is not asked; empty where it is.
        program_count: Programs side by side on the device, each of which fetches its weights; 0
            where they are not told apart.
        predicted_s: The prediction, where no parameters of a device enter it.
        log_sigma: Standard deviation of ln(true / predicted); NaN where nothing says it.
        roofline_s: Plain roofline; NaN where unknown.
        setting: What runs its figure is like; empty for none.
        origin: Model whose rows are left out together; the board where empty.
        profile: Catalogue name of the device, where it is not that of the name in the table.
        views: Names of subsets that it belongs to.
    """

    device: str
    group: str
    label: str
    measured_s: float
    run: Any | None = None
    refusal: str = ""
    program_count: int = 0
    predicted_s: float = _NAN
    log_sigma: float = _NAN
    roofline_s: float = _NAN
    setting: str = ""
    origin: str = ""
    profile: str = ""
    views: frozenset[str] = field(default_factory=frozenset)

    def refused(self, reason: str) -> MeasuredRun:
        """The row, not asked."""
        return replace(self, run=None, refusal=reason)

    def answered(self, figure: Callable[[MeasuredRun], MeasuredRun]) -> MeasuredRun:
        """The row with its figure, or why there is none.

        Args:
            figure: Gives the row its prediction and spread; `AccelsimError` where it cannot.
        """
        try:
            return figure(self)
        except AccelsimError as error:
            return self.refused(reason_of(error))


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


def run_batches(rows: Iterable[MeasuredRun], model: RunModel | None = None) -> list[MeasuredBatch]:
    """One batch per device (and count of programs), and one per device and reason of refusal.

    Rows that come with their figures are scored whether or not the catalogue has their device.

    Args:
        rows: Measured rows.
        model: Predicts their runs; None where rows come with their figures.
    """
    by_device = grouped(rows, attrgetter("device", "refusal", "program_count"))
    return [_batch(runs, model) for runs in by_device.values()]


def _batch(rows: Sequence[MeasuredRun], model: RunModel | None) -> MeasuredBatch:
    def column(name: str) -> Any:
        return np.array([getattr(row, name) for row in rows])

    first = rows[0]
    columns = (column("group"), column("label"), column("measured_s"))
    if first.refusal:
        return refused_batch(first.device, *columns, first.refusal)
    find = device_of if model is None else model.profile_of
    profile: Any = None
    try:
        profile = _programmed(find(first.profile or first.device), first.program_count)
    except UnknownNameError as error:
        if model is not None:
            return refused_batch(first.device, *columns, f"no GPU profile of {error.name}")
    batch = MeasuredBatch(
        first.device,
        profile,
        *columns,
        column("roofline_s"),
        fixed_prediction(Prediction(column("predicted_s"), column("log_sigma"))),
        views=_views(rows),
        setting=column("setting"),
        origin=np.array([_origin(row, profile) for row in rows]),
    )
    return batch if model is None else _predicted(batch, [row.run for row in rows], model)


def _predicted(batch: MeasuredBatch, runs: Sequence[Any], model: RunModel) -> MeasuredBatch:
    """Rows whose figures a model predicts."""
    profile = batch.profile
    return replace(
        batch,
        roofline_s=np.array([model.roofline_s(run, profile) for run in runs]),
        predict=predict_each(
            runs, lambda run, parameters: model.predicted(run, profile, parameters)
        ),
        setting=np.array([str(getattr(run, "setting", "")) for run in runs]),
    )


def _views(rows: Sequence[MeasuredRun]) -> tuple[tuple[str, BoolArray], ...]:
    """Which rows count in each view."""
    names = sorted({name for row in rows for name in row.views})
    return tuple((name, np.array([name in row.views for row in rows])) for name in names)


def _origin(row: MeasuredRun, profile: DeviceProfile | None) -> str:
    return row.origin or (row.device if profile is None else profile.whole_name)


def _programmed(profile: DeviceProfile, program_count: int) -> DeviceProfile:
    """The device with so many cores, one to a program."""
    if not program_count:
        return profile
    source = "programs of the published run"
    cores = Sourced(value=program_count, kind=SourceKind.DERIVED, source=source)
    return profile.model_copy(update={"core_count": cores})
