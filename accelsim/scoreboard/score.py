"""Runs suites over a data folder and scores every row.

The rows of a batch are predicted in one call; a batch the cost model refuses (an operator or format
the device lacks) becomes refused rows with that reason, never an error of the run. Where a device's
parameters were fitted to its operators, only shapes kept from every fit are scored; the others
count as used in the fit. Whole-model rows are never fitted and always scored.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from accelsim.errors import (
    AccelsimError,
    InputError,
    InvalidValueError,
    MissingDependencyError,
    UnknownNameError,
)
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.plain import grouped
from accelsim.scoreboard.data_folder import DataFolder, data_folder
from accelsim.scoreboard.metrics import Figures, figures, interval_s, ranking_tau
from accelsim.scoreboard.names import device_of
from accelsim.scoreboard.scored_rows import TIMES, ScoredRows, ScoringStep, SuiteRows
from accelsim.scoreboard.scores import GroupScore, Scoreboard, SuiteScore
from accelsim.scoreboard.split import held_out_mask
from accelsim.scoreboard.suite import MeasuredBatch, Prediction, Suite, reason_of, suites
from accelsim.scoreboard.suite import suite as find_suite
from accelsim.scoreboard.tiers import Choice, TierName, choose
from accelsim.workloads.graph import BoolArray, FloatArray

__all__ = ["GroupScore", "Scoreboard", "ScoredRows", "SuiteScore", "validate"]

#: How a folder is read.
_LAYOUT = "Tables are looked for by these names below the folder that --data names."

Progress = Callable[[ScoringStep], None]


class Fits(Protocol):
    """Fits to the operator rows of a folder, for GPUs without parameters fitted to such rows."""

    def choice(self, device: DeviceProfile, progress: Callable[[str], None]) -> Choice | None:
        """Parameters fitted to a device's rows in the folder; None where it has too few."""


def validate(
    names: Sequence[str] = (),
    data: Path | None = None,
    tier: TierName = "best",
    progress: Progress | None = None,
    fits_of: Callable[[DataFolder], Fits] | None = None,
) -> Scoreboard:
    """Score suites on the tables of a folder.

    Args:
        names: Suites; all that have their tables where empty.
        data: Folder of the tables; the published tables that ship with accelsim where None.
        tier: Parameters to predict with.
        progress: Called before each step.
        fits_of: Fits a folder's operator rows, for tier `fitted`; none are made where None.

    Raises:
        UnknownNameError: If there is no such suite.
        InvalidValueError: If a suite that is named does not have the tier.
        MissingDependencyError: If a suite named needs an extra that is not installed.
        InputError: If `data` is not a folder, has no table at all, or none of a suite that is
            named.
    """
    folder = _folder(data)
    wanted = [find_suite(name) for name in dict.fromkeys(names)] if names else list(suites())
    _check_tier(wanted, tier, is_named=bool(names))
    _check_folder(wanted, folder, is_named=bool(names))
    fits = fits_of(folder) if fits_of else None
    scores: list[SuiteScore] = []
    skipped: dict[str, str] = {}
    for number, suite in enumerate(wanted, 1):
        if reason := _not_scored(suite, folder, tier):
            skipped[suite.name] = reason
            continue
        step = ScoringStep(suite.name, number, len(wanted), "reading")
        try:
            scored = _predicted(suite, folder, tier, step, progress, fits)
        except MissingDependencyError as error:
            if names:
                raise
            skipped[suite.name] = str(error)
            continue
        if scored.rows or scored.bad:
            scores.append(_suite_score(suite, scored.rows, scored.bad))
        else:
            skipped[suite.name] = "no usable rows"
    return Scoreboard(tuple(scores), skipped, tuple(folder.problems))


def _folder(data: Path | None) -> DataFolder:
    from accelsim.files.datafile import data_root

    return data_folder(data_root() / "calibration" / "published" if data is None else data)


def _not_scored(suite: Suite, folder: DataFolder, tier: TierName) -> str:
    """Why a suite is left out; empty where it is scored."""
    if missing := _missing_files(suite, folder):
        return f"no {missing}"
    return f"no tier {tier}: best alone" if suite.has_best_alone and tier != "best" else ""


def _check_tier(wanted: Sequence[Suite], tier: TierName, *, is_named: bool) -> None:
    """Refuse a tier that a suite named does not have."""
    for suite in wanted if is_named and tier != "best" else ():
        if suite.has_best_alone:
            raise InvalidValueError("tier", tier, f"best with suite {suite.name}", "Leave it out.")


def _check_folder(wanted: Sequence[Suite], folder: DataFolder, *, is_named: bool) -> None:
    """Refuse a folder without a table of each suite named, or of any where none is named.

    Raises:
        InputError: With how a folder is read.
    """
    for suite in wanted if is_named else ():
        if missing := _missing_files(suite, folder):
            needed = f"suite {suite.name} needs {missing} in {str(folder.root)!r}"
            raise InputError(f"{needed}, which has no such file. {_LAYOUT}")
    schemas = [schema for suite in wanted for schema in suite.tables]
    if schemas and not any(folder.has(schema) for schema in schemas):
        text = f"data = {str(folder.root)!r} has no table of any suite, such as {schemas[0].file}."
        raise InputError(f"{text} {_LAYOUT}")


def _missing_files(suite: Suite, folder: DataFolder) -> str:
    """What a suite lacks: each file it needs, or any of those it could use; empty where
    it can run.
    """
    needed = [schema.file for schema in suite.files if not folder.has(schema)]
    if needed or suite.files or any(folder.has(schema) for schema in suite.optional_files):
        return ", ".join(needed)
    return " or ".join(schema.file for schema in suite.optional_files)


# a figure of 0 makes ratios that are no numbers: they are refused, or reported as unknown
@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _predicted(
    suite: Suite,
    folder: DataFolder,
    tier: TierName,
    step: ScoringStep,
    progress: Progress | None,
    fits: Fits | None,
) -> SuiteRows:
    """What was predicted of a suite."""
    report = progress or (lambda _step: None)
    report(step)
    batches = [batch for batch in suite.load(folder) if len(batch)]
    total, rows_done = sum(map(len, batches)), 0
    rows: list[ScoredRows] = []
    for batch in batches:
        now = replace(step, doing=batch.device, rows_done=rows_done, rows_total=total)
        report(now)

        def say(line: str, now: ScoringStep = now) -> None:
            report(replace(now, doing=f"fitting {line}"))

        of_operators = suite.is_of_operators
        choice = _choice(batch, tier, fits, say) if of_operators else _plain_choice(batch, tier)
        rows.append(_score_batch(batch, choice))
        rows_done += len(batch)
    bad: Counter[str] = Counter()
    for schema in suite.tables:
        if not schema.whole:  # rows of a list of operators are not asked themselves
            bad.update(folder.bad_rows(schema))
    return SuiteRows(rows, bad)


def _choice(
    batch: MeasuredBatch, tier: TierName, fits: Fits | None, say: Callable[[str], None]
) -> Choice | None:
    """Parameters of a batch of operators; None where nothing can be predicted.

    Parameters that never saw operators like its rows (kernel tables of other formats) give way: at
    tier `fitted` to a fit of the folder's rows where one is made, at tier `best` to class-wide
    parameters, and at tier `measured` to a refusal.
    """
    device, choice = batch.profile, _plain_choice(batch, tier)
    if choice is None or choice.saw_operators or choice.tier == "spec":
        return choice
    if not isinstance(device, GpuProfile):
        return choice
    if tier == "fitted":
        return choice if fits is None else fits.choice(device, say) or choice
    if tier == "best":
        return choose(device, "spec")
    reason = f"no measured table of {device.name} with such operators"
    return choice if choice.refusal else replace(choice, parameters=None, refusal=reason)


def _plain_choice(batch: MeasuredBatch, tier: TierName) -> Choice | None:
    if batch.predict is None:
        return None
    return Choice("spec", None) if batch.profile is None else choose(batch.profile, tier)


def _score_batch(batch: MeasuredBatch, choice: Choice | None) -> ScoredRows:
    if choice is None or batch.predict is None or choice.refusal:
        refusal = batch.refusal if choice is None else choice.refusal
        return _rows(batch, refusal or "no prediction")
    try:
        prediction = batch.predict(choice.parameters)
    except AccelsimError as error:
        return _rows(batch, reason_of(error))
    keep = np.ones(len(batch), dtype=bool)
    if choice.saw_operators and batch.fit_source:
        keep = held_out_mask(batch.label.tolist(), batch.held_out_share)
    return _rows(batch, "", choice, prediction, keep)


def _rows(
    batch: MeasuredBatch,
    refusal: str,
    choice: Choice | None = None,
    prediction: Prediction | None = None,
    keep: Any = slice(None),
) -> ScoredRows:
    """Rows of a batch that are kept, with their prediction or why there is none."""
    time_s = sigma = np.full(len(batch), np.nan)
    if prediction is not None:
        time_s, sigma = prediction.time_s, prediction.log_sigma
    low, high = interval_s(time_s, sigma)
    setting = np.full(len(batch), "") if batch.setting is None else batch.setting
    profile = _profile_name(batch)
    board = np.full(len(batch), profile.partition("@")[0])
    return ScoredRows(
        device=batch.device,
        profile=profile,
        tier=choice.tier if choice else "",
        note=choice.note if choice else "",
        group=batch.group[keep],
        label=batch.label[keep],
        setting=setting[keep],
        origin=(board if batch.origin is None else batch.origin)[keep],
        measured_s=batch.measured_s[keep],
        predicted_s=time_s[keep],
        low_s=low[keep],
        high_s=high[keep],
        roofline_s=batch.roofline_s[keep],
        refusal=refusal,
        used_in_fit=len(batch) - len(batch.measured_s[keep]),
        views=tuple((name, mask[keep]) for name, mask in batch.views) if choice else (),
    )


def _profile_name(batch: MeasuredBatch) -> str:
    """Catalogue name of a batch's device; empty where it has none."""
    with contextlib.suppress(UnknownNameError):
        return (batch.profile or device_of(batch.device)).name
    return ""


def _suite_score(suite: Suite, rows: Sequence[ScoredRows], bad: Mapping[str, int]) -> SuiteScore:
    answered = [batch for batch in rows if not batch.refusal]
    tiers = [*{batch.tier for batch in answered}] or ["none"]
    merged = _joined(answered)
    return SuiteScore(
        suite=suite,
        tier=tiers[0] if len(tiers) == 1 else "mixed",
        rows_asked=sum(map(len, rows)) + sum(bad.values()),
        rows_used_in_fit=sum(batch.used_in_fit for batch in rows),
        refused=_refused(rows, bad),
        figures=_figures(merged),
        ranking_tau=_ranking(answered, merged) if suite.is_ranked and answered else None,
        groups=tuple(_groups(rows)),
        notes={batch.profile: batch.note for batch in answered if batch.note},
        rows=tuple(rows),
    )


def _refused(rows: Sequence[ScoredRows], bad: Mapping[str, int]) -> dict[str, int]:
    """Rows without an answer, by reason."""
    refused: Counter[str] = Counter(bad)
    for batch in rows:
        if batch.refusal:
            refused[batch.refusal] += len(batch)
    return dict(refused)


def _ranking(rows: Sequence[ScoredRows], columns: Mapping[str, FloatArray]) -> float | None:
    """Kendall's tau of devices that ran the same."""
    labels = np.concatenate([batch.label for batch in rows])
    return ranking_tau(columns["predicted_s"], columns["measured_s"], labels)


def _joined(rows: Sequence[ScoredRows]) -> dict[str, FloatArray]:
    return {
        name: np.concatenate([getattr(batch, name) for batch in rows] or [np.zeros(0)])
        for name in TIMES
    }


def _figures(columns: Mapping[str, FloatArray], mask: Any = slice(None)) -> Figures:
    return figures(**{name: columns[name][mask] for name in TIMES})


def _groups(rows: Sequence[ScoredRows]) -> Iterable[GroupScore]:
    """Scores by device and operator or model, then the views; batches of one device and tier come
    together.
    """
    for (device, tier), batches in grouped(rows, lambda batch: (batch.device, batch.tier)).items():
        refusal = np.concatenate([np.full(len(batch), batch.refusal) for batch in batches])
        columns, profile = _joined(batches), max(batch.profile for batch in batches)
        for name, mask, is_view in _subsets(batches):
            refused = Counter(reason for reason in refusal[mask].tolist() if reason)
            group_figures = _figures(columns, mask & (refusal == ""))
            counts = (int(mask.sum()), dict(refused))
            yield GroupScore(device, profile, name, tier, *counts, group_figures, is_view)


def _subsets(batches: Sequence[ScoredRows]) -> Iterable[tuple[str, BoolArray, bool]]:
    """Name and rows of what is scored together, and whether its rows count elsewhere, too."""
    group = np.concatenate([batch.group for batch in batches])
    names = np.unique(group).tolist()
    if len(names) > 1:
        yield "all", np.ones(len(group), dtype=bool), True
    for name in names:
        yield name, group == name, False
    for name in dict.fromkeys(name for batch in batches for name, _ in batch.views):
        masks = [dict(batch.views).get(name, np.zeros(len(batch), dtype=bool)) for batch in batches]
        mask = np.concatenate(masks)
        if mask.any():
            yield name, mask, True
