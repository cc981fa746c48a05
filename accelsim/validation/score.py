"""Runs suites over a data folder and scores every row.

The rows of a batch are predicted in one call; a batch the cost model refuses (an operator or format
the device lacks) becomes refused rows with that reason, never an error of the run. Where a device's
parameters were fitted to its operators, only shapes kept from every fit are scored; the others
count as used in the fit. Whole-model rows are never fitted and always scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.errors import AccelsimError, InputError, MissingDependencyError, UnknownNameError
from accelsim.validation.data_folder import DataFolder, DataProblem, Schema, data_folder
from accelsim.validation.finished_suites import FinishedSuites
from accelsim.validation.folder_hints import misplaced_hint, unread_notes
from accelsim.validation.metrics import Figures, figures, interval_s, ranking_tau
from accelsim.validation.names import device_of
from accelsim.validation.scored_rows import ScoredRows, Step, SuiteRows
from accelsim.validation.split import held_out_mask
from accelsim.validation.suite import Batch, Suite, suites
from accelsim.validation.suite import suite as find_suite
from accelsim.validation.tiers import Choice, TierName, choose
from accelsim.workloads.graph import FloatArray

if TYPE_CHECKING:
    from accelsim.validation.folder_fit import FolderFits

__all__ = ["GroupScore", "Scoreboard", "ScoredRows", "SuiteScore", "validate"]

Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True, eq=False)
class GroupScore:
    """Accuracy of one operator or model on one device."""

    device: str
    profile: str
    group: str
    tier: str
    rows_asked: int
    refused: Mapping[str, int]
    figures: Figures
    is_view: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SuiteScore:
    """Accuracy of one suite.

    Attributes:
        suite: The suite.
        tier: Tier of all answered rows, or "mixed".
        rows_asked: Rows scored or refused.
        rows_used_in_fit: Rows not asked because a fit may have used them.
        refused: Rows by reason.
        figures: Over all answered rows.
        ranking_tau: Mean tau of choosing a device for each configuration; None where the suite
            ranks none.
        groups: One per device and operator or model.
        notes: What a reader should know, by device.
        rows: The scored rows.
    """

    suite: Suite
    tier: str
    rows_asked: int
    rows_used_in_fit: int
    refused: Mapping[str, int]
    figures: Figures
    ranking_tau: float | None
    groups: tuple[GroupScore, ...]
    notes: Mapping[str, str]
    rows: tuple[ScoredRows, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scoreboard:
    """Everything one validation found.

    Attributes:
        suites: Scored suites.
        skipped: Suites not scored, with the reason.
        problems: Bad data, in file order.
        notes: Files of the folder that look like tables but are not read.
    """

    suites: tuple[SuiteScore, ...]
    skipped: Mapping[str, str]
    problems: tuple[DataProblem, ...]
    notes: tuple[str, ...] = ()


def validate(
    names: Sequence[str] = (),
    data: Path | None = None,
    tier: TierName = "best",
    progress: Progress | None = None,
    finished: FinishedSuites | None = None,
) -> Scoreboard:
    """Score suites on the tables of a folder.

    Args:
        names: Suites; all that have their tables where empty.
        data: Folder of the tables; the published tables that ship with accelsim where None.
        tier: Parameters to predict with.
        progress: Called before each step.
        finished: Where finished suites are kept until the caller clears it, and taken from where
            the run continues another.

    Raises:
        UnknownNameError: If there is no such suite.
        MissingDependencyError: If a suite named needs an extra that is not installed.
        InputError: If `data` is not a folder, has no table at all, or none of a suite that is
            named.
    """
    from accelsim.datafile import data_root

    folder = data_folder(data_root() / "calibration" / "published" if data is None else data)
    wanted = [find_suite(name) for name in dict.fromkeys(names)] if names else list(suites())
    _check_folder(wanted, folder, is_named=bool(names))
    scores: list[SuiteScore] = []
    skipped: dict[str, str] = {}
    for place, suite in enumerate(wanted, 1):
        if missing := _missing_files(suite, folder):
            skipped[suite.name] = f"no {missing}"
            continue
        try:
            step = Step(suite.name, place, len(wanted), "reading")
            # a figure of 0 in a table makes ratios that are no numbers: they are refused, or
            # reported as unknown
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                found = _finished_or_scored(
                    suite, folder, tier, step, progress or (lambda _step: None), finished
                )
        except MissingDependencyError as error:
            if names:
                raise
            skipped[suite.name] = str(error)
            continue
        if found.rows or found.bad:
            scores.append(_suite_score(suite, found.rows, found.bad))
        else:
            skipped[suite.name] = "no usable rows"
    notes = unread_notes(folder, _schemas(suites()))
    return Scoreboard(tuple(scores), skipped, tuple(folder.problems), tuple(notes))


def _schemas(chosen: Sequence[Suite]) -> list[Schema]:
    return list(
        dict.fromkeys(
            schema for suite in chosen for schema in (*suite.files, *suite.optional_files)
        )
    )


def _check_folder(wanted: Sequence[Suite], folder: DataFolder, *, is_named: bool) -> None:
    """Refuse a folder without a table of each suite named, or of any where none is named.

    Raises:
        InputError: With where the tables may be instead.
    """
    hint = partial(misplaced_hint, folder)
    for suite in wanted if is_named else ():
        if missing := _missing_files(suite, folder):
            text = (
                f"suite {suite.name} needs {missing} in {str(folder.root)!r}, which has "
                "no such file."
            )
            raise InputError(f"{text} {hint(_schemas([suite]))}".rstrip())
    schemas = _schemas(wanted)
    if schemas and not any(folder.has(schema) for schema in schemas):
        text = f"data = {str(folder.root)!r} has no table of any suite, such as {schemas[0].file}."
        raise InputError(f"{text} {hint(schemas)}".rstrip())


def _finished_or_scored(
    suite: Suite,
    folder: DataFolder,
    tier: TierName,
    step: Step,
    progress: Progress,
    finished: FinishedSuites | None,
) -> SuiteRows:
    """Rows of a suite, from an earlier run where it left them."""
    found = None if finished is None else finished.read(suite, folder, tier)
    if found is not None:
        folder.problems += [problem for problem in found.problems if problem not in folder.problems]
        return found
    found = _predicted(suite, folder, tier, step, progress)
    if finished is not None:
        finished.write(suite, folder, tier, found)
    return found


def _missing_files(suite: Suite, folder: DataFolder) -> str:
    """What a suite lacks: each file it needs, or any of those it could use; empty where
    it can run.
    """
    needed = [schema.file for schema in suite.files if not folder.has(schema)]
    if needed or suite.files or any(folder.has(schema) for schema in suite.optional_files):
        return ", ".join(needed)
    return " or ".join(schema.file for schema in suite.optional_files)


def _predicted(
    suite: Suite, folder: DataFolder, tier: TierName, step: Step, progress: Progress
) -> SuiteRows:
    progress(step)
    batches = [batch for batch in suite.load(folder) if len(batch)]
    total, done = sum(map(len, batches)), 0
    rows: list[ScoredRows] = []
    fits = _folder_fits(folder) if suite.fits_folder else None
    for batch in batches:
        now = replace(step, doing=batch.device, rows_done=done, rows_total=total)
        progress(now)
        say = partial(_say, progress, now)
        rows.append(_score_batch(batch, _choice(batch, tier, fits, say)))
        done += len(batch)
    schemas = (*suite.files, *suite.optional_files)
    bad: Counter[str] = Counter()
    for schema in schemas:
        if not schema.whole:  # rows of a list of operators are not asked themselves
            bad.update(folder.bad_rows(schema))
    files = {
        path.relative_to(folder.root).as_posix()
        for schema in schemas
        if (path := folder.path(schema))
    }
    return SuiteRows(tuple(rows), dict(bad), tuple(p for p in folder.problems if p.file in files))


def _say(progress: Progress, step: Step, line: str) -> None:
    progress(replace(step, doing=f"fitting {line}"))


def _folder_fits(folder: DataFolder) -> FolderFits:
    """Fits to the folder's rows, which suites of the folder share."""
    from accelsim.validation.folder_fit import FolderFits

    if folder.fits is None:
        folder.fits = FolderFits(folder)
    return folder.fits  # type: ignore[no-any-return]


def _choice(
    batch: Batch, tier: TierName, fits: FolderFits | None, say: Callable[[str], None]
) -> Choice | None:
    """Parameters of a batch; None where nothing can be predicted.

    Where a suite fits its folder, parameters that never saw operators like its rows (kernel tables
    of other formats) give way: at tier `fitted` to a fit to the folder's rows, if it has enough of
    them, at tier `best` to class-wide parameters, and at tier `measured` to a refusal.
    """
    if batch.predict is None or batch.profile is None:
        return None
    choice = choose(batch.profile, tier)
    if (
        fits is None
        or choice.saw_operators
        or choice.tier == "spec"
        or batch.profile.device_class != "gpu"
    ):
        return choice
    if tier == "fitted":
        return fits.choice(batch.profile, say) or choice
    if tier == "best":
        return choose(batch.profile, "spec")
    reason = f"no measured table of {batch.profile.name} with such operators"
    return choice if choice.refusal else replace(choice, parameters=None, refusal=reason)


def _score_batch(batch: Batch, choice: Choice | None) -> ScoredRows:
    if choice is None or batch.predict is None or batch.profile is None:
        return _unanswered(batch, batch.refusal or "no prediction")
    if choice.refusal:
        return _unanswered(batch, choice.refusal)
    try:
        prediction = batch.predict(choice.parameters)
    except AccelsimError as error:
        return _unanswered(batch, _short(error))
    keep = np.ones(len(batch), dtype=np.bool_)
    if choice.saw_operators and batch.fit_source:
        keep = held_out_mask(batch.label.tolist(), batch.held_out_share)
    low, high = interval_s(prediction.time_s, prediction.log_sigma)
    return ScoredRows(
        device=batch.device,
        profile=batch.profile.name,
        tier=choice.tier,
        note=choice.note,
        group=batch.group[keep],
        label=batch.label[keep],
        measured_s=batch.measured_s[keep],
        predicted_s=prediction.time_s[keep],
        low_s=low[keep],
        high_s=high[keep],
        roofline_s=batch.roofline_s[keep],
        refusal="",
        used_in_fit=int((~keep).sum()),
        views=tuple((name, mask[keep]) for name, mask in batch.views),
    )


def _unanswered(batch: Batch, refusal: str) -> ScoredRows:
    nothing = np.full(len(batch), np.nan)
    profile = _profile_name(batch)
    columns = (
        batch.group,
        batch.label,
        batch.measured_s,
        nothing,
        nothing,
        nothing,
        batch.roofline_s,
    )
    return ScoredRows(batch.device, profile, "", "", *columns, refusal, 0, ())


def _profile_name(batch: Batch) -> str:
    """Catalogue name of a batch's device; empty where it has none."""
    if batch.profile is not None:
        return batch.profile.name
    try:
        return device_of(batch.device).name
    except UnknownNameError:
        return ""


def _short(error: AccelsimError) -> str:
    """The first sentence: the reason without the remedy."""
    return str(error).split(". ")[0].rstrip(".")


def _suite_score(suite: Suite, rows: Sequence[ScoredRows], bad: Mapping[str, int]) -> SuiteScore:
    answered = [part for part in rows if not part.refusal]
    refused: Counter[str] = Counter(bad)
    for part in rows:
        if part.refusal:
            refused[part.refusal] += len(part)
    tiers = sorted({part.tier for part in answered})
    merged = _joined(answered)
    tau = None
    if suite.is_ranked and answered:
        labels = np.concatenate([part.label for part in answered])
        tau = ranking_tau(merged["predicted_s"], merged["measured_s"], labels)
    return SuiteScore(
        suite=suite,
        tier=tiers[0] if len(tiers) == 1 else "mixed" if tiers else "none",
        rows_asked=sum(len(part) for part in rows) + sum(bad.values()),
        rows_used_in_fit=sum(part.used_in_fit for part in rows),
        refused=dict(refused),
        figures=_figures(merged),
        ranking_tau=tau,
        groups=tuple(_groups(rows)),
        notes={part.profile: part.note for part in answered if part.note},
        rows=tuple(rows),
    )


_COLUMNS = ("predicted_s", "measured_s", "low_s", "high_s", "roofline_s")


def _joined(rows: Sequence[ScoredRows]) -> dict[str, FloatArray]:
    return {
        name: np.concatenate([getattr(part, name) for part in rows] or [np.zeros(0)])
        for name in _COLUMNS
    }


def _figures(columns: Mapping[str, FloatArray], mask: Any = slice(None)) -> Figures:
    return figures(*(columns[name][mask] for name in _COLUMNS))


def _groups(rows: Sequence[ScoredRows]) -> Iterable[GroupScore]:
    """Scores by device and operator or model, then the views; batches of one device and tier come
    together.
    """
    devices: dict[tuple[str, str], list[ScoredRows]] = {}
    for part in rows:
        devices.setdefault((part.device, part.tier), []).append(part)
    for (device, tier), parts in devices.items():
        group = np.concatenate([part.group for part in parts])
        refusal = np.concatenate([np.full(len(part), part.refusal, dtype=object) for part in parts])
        columns = _joined(parts)
        profile = max(part.profile for part in parts)
        if len(np.unique(group)) > 1:
            total = Counter(str(reason) for reason in refusal if reason)
            everything = _figures(columns, refusal == "")
            yield GroupScore(
                device, profile, "all", tier, len(group), dict(total), everything, is_view=True
            )
        for name in np.unique(group).tolist():
            mask = group == name
            own = Counter(str(reason) for reason in refusal[mask] if reason)
            answered = mask & (refusal == "")
            yield GroupScore(
                device, profile, name, tier, int(mask.sum()), dict(own), _figures(columns, answered)
            )
        yield from _views(device, profile, tier, parts)


def _views(
    device: str, profile: str, tier: str, parts: Sequence[ScoredRows]
) -> Iterable[GroupScore]:
    for name in dict.fromkeys(name for part in parts for name, _ in part.views):
        masks = [dict(part.views).get(name, np.zeros(len(part), dtype=np.bool_)) for part in parts]
        mask = np.concatenate(masks)
        if mask.any():
            yield GroupScore(
                device,
                profile,
                name,
                tier,
                int(mask.sum()),
                {},
                _figures(_joined(parts), mask),
                is_view=True,
            )
