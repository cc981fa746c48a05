"""``accelsim validate`` and ``accelsim accuracy``: how far predictions are from measurements."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from accelsim.cli.entry import tell
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InputError, InvalidValueError, OutputError, UnknownNameError
from accelsim.frozen import frozen
from accelsim.option import argument, option
from accelsim.plain import Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accelsim.scoreboard import DataProblem, Scoreboard, TierName

#: File name of a report, without its suffix.
_REPORT_NAME = "ACCURACY"
_SHOWN_PROBLEMS = 20
_NOTE = (
    "percent of the measured time; cover: rows inside their 90 % interval; "
    "roofl.: MAPE of the plain roofline"
)


@frozen
class ScoreOptions:
    """What is scored, and what is written beside the result."""

    data: Path | None = option(
        "Folder of measured tables. Default: those that ship with accelsim.", metavar="DIR"
    )
    tier: str = option(
        "Parameters to predict with: best, spec, fitted or measured.", "best", "TIER"
    )
    rows: Path | None = option("Also write every row to this new CSV file.", metavar="FILE")
    groups: bool = option("Show every device and operator or model.", False)
    publish: Path | None = option(
        "Also write ACCURACY.md, ACCURACY.json and EVIDENCE.json to this folder.", metavar="DIR"
    )
    runs: Path | None = option(
        "Score your own runs, each corrected by the others. Files are those that "
        "accelsim learn reads or writes.",
        metavar="FILE",
    )
    check: bool = option(
        "Exit with 1 if a figure is worse than the report that ships with accelsim.", False
    )


@with_output
def validate(
    output: ResultWriter,
    options: ScoreOptions,
    suites: list[str] | None = argument(
        "Suites to score; all that find their tables if none.", "SUITE", None
    ),
) -> None:
    """Score predictions on measured tables: errors, ranking, intervals, and the plain roofline
    beside them.

    Exit code 1: data was refused as bad, or --check found a figure worse than the shipped report.
    """
    if options.runs is not None:
        _score_own(output, options, suites)
        return
    from accelsim.report.accuracy import accuracy_view
    from accelsim.report.score_page import score_page
    from accelsim.scoreboard import scoreboard_dict, suite, tier_name
    from accelsim.scoreboard.score_rows import SCORE_COLUMNS, score_rows

    wanted, data = tier_name(options.tier), options.data
    for name in suites or ():
        suite(name)  # before a folder is made
    _check_files(options, force=output.force)
    board = _scored(suites or (), data, wanted, output)
    scores = scoreboard_dict(board)
    output.emit(
        scores,
        partial(accuracy_view, groups=options.groups),
        rows=score_rows(scores),
        columns=SCORE_COLUMNS,
        note=_NOTE,
        page=partial(score_page, board=board),
    )
    _write_files(options, board, scores, force=output.force)
    worse = _worse(scores, output, is_shipped_data=data is None) if options.check else []
    _say_problems(board.problems, worse)
    if board.problems or worse:
        raise typer.Exit(1)


def _check_files(options: ScoreOptions, *, force: bool) -> None:
    """Refuse what cannot be written before anything is scored.

    Raises:
        OutputError: If a folder cannot be made or a file exists.
    """
    from accelsim.files.output import check_output

    if options.rows is not None:
        check_output(options.rows, force=force)
    if options.publish is not None:
        try:
            options.publish.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"cannot be made a folder: {error.strerror}"
            raise OutputError(f"{str(options.publish)!r} {reason}. Give another.") from None
        for name in _report_names():
            check_output(options.publish / name, force=force)


def _write_files(options: ScoreOptions, board: Scoreboard, scores: Values, *, force: bool) -> None:
    """Write every row, and the report, where they are asked for."""
    from accelsim.files.datafile import data_root
    from accelsim.files.formats import csv_blocks
    from accelsim.files.output import write_text
    from accelsim.scoreboard import evidence_dict, markdown, row_columns, row_names
    from accelsim.scoreboard.accuracy_file import accuracy_text, evidence_text
    from accelsim.scoreboard.parameters import parameters

    if options.rows is not None:
        lines = csv_blocks(row_names(board), row_columns(board))
        write_text(options.rows, lines, force=force)
    if options.publish is not None:
        texts = accuracy_text(scores), markdown(scores), evidence_text(evidence_dict(board))
        for name, text in zip(_report_names(), texts, strict=True):
            write_text(options.publish / name, text, force=force)
        if options.publish.resolve() == data_root() / "calibration":
            parameters().publish(board)


def _report_names() -> tuple[str, ...]:
    from accelsim.estimation.evidence import EVIDENCE_NAME

    return f"{_REPORT_NAME}.json", f"{_REPORT_NAME}.md", EVIDENCE_NAME


def _score_own(output: ResultWriter, options: ScoreOptions, suites: list[str] | None) -> None:
    """Score runs of the user's own."""
    from accelsim.learning.leave_one_out import score_runs
    from accelsim.report.learning import scored_page, scored_view

    alone = replace(ScoreOptions(), runs=options.runs)
    if suites or options != alone:
        raise InvalidValueError("runs", str(options.runs), "no suite and no option beside it")
    scored = score_runs(str(options.runs))
    summary, rows = scored.summary(), list(scored.rows)
    output.emit(
        {"summary": summary, "runs": rows},
        lambda _: scored_view(summary, rows),
        rows=rows,
        page=lambda _, command: scored_page(summary, rows, command),
    )


@with_output
def accuracy(
    output: ResultWriter,
    device: str | None = option("Only this device.", metavar="NAME", flags="--device -d"),
) -> None:
    """Show how accurate this version of accelsim is, per suite or for one device."""
    from accelsim import catalog
    from accelsim.report.accuracy import accuracy_view
    from accelsim.report.score_page import score_page
    from accelsim.scoreboard.score_rows import SCORE_COLUMNS, score_rows

    shipped = _shipped_report(is_shipped_data=False)
    name = device
    if device is not None:
        with suppress(UnknownNameError):
            name = catalog.device(device).name
    rows = score_rows(shipped, name)
    if name is not None and not rows:
        _refuse_device(name, shipped)
    output.emit(
        rows,
        lambda _: accuracy_view(shipped, name),
        columns=SCORE_COLUMNS,
        note=_NOTE,
        page=lambda _, command: score_page(shipped, command, device=name),
    )


def _refuse_device(name: str, shipped: Values) -> NoReturn:
    """Say of which devices there are measurements.

    Raises:
        InputError: If the device has none.
        UnknownNameError: If there is no such device.
    """
    from accelsim import catalog

    groups = (group for suite in shipped["suites"].values() for group in suite["groups"])
    scored = sorted({group["profile"] for group in groups if group["profile"]})
    known = ", ".join(profile for profile in scored if not profile.startswith("scalesim"))
    remedy = f"Measured devices: {known}."
    if name == "local/cpu":
        check = "accelsim calibrate check measures this machine"
        raise InputError(f"the report has no rows of {name}: {check}. {remedy}")
    if name in catalog.device_names():
        raise InputError(f"the report has no measured rows of {name}. {remedy}")
    raise UnknownNameError("measured device", name, scored, remedy)


def _scored(
    names: Sequence[str], data: Path | None, tier: TierName, output: ResultWriter
) -> Scoreboard:
    """Run the suites beside a progress bar."""
    from accelsim.scoreboard import ScoringStep
    from accelsim.scoreboard import validate as score

    with output.progress("validating", "rows") as report:

        def show(step: ScoringStep) -> None:
            title = f"{step.suite} ({step.place}/{step.suite_count})"
            report(step.rows_done, step.rows_total, step.doing, title)

        return score(names, data, tier, show)


def _report_path(*, is_shipped_data: bool) -> Path:
    """The report on the published tables that ship with accelsim, or on the bulk tables."""
    from accelsim.files.datafile import data_root

    folder = data_root() / "calibration"
    return (folder / "published" if is_shipped_data else folder) / f"{_REPORT_NAME}.json"


def _shipped_report(*, is_shipped_data: bool) -> Values:
    from accelsim.scoreboard.accuracy_file import read_accuracy

    return read_accuracy(_report_path(is_shipped_data=is_shipped_data))


def _worse(scores: Values, output: ResultWriter, *, is_shipped_data: bool) -> list[str]:
    from accelsim.scoreboard import suites, uncompared_suites, worse_figures

    shipped = _shipped_report(is_shipped_data=is_shipped_data)
    # suites of installed packages read no folder; the report on the bulk tables has their figures
    if is_shipped_data:
        bulk = _shipped_report(is_shipped_data=False)["suites"]
        installed = (suite.name for suite in suites() if not (suite.files or suite.optional_files))
        of_packages = {name: bulk[name] for name in installed if name in bulk}
        shipped = {**shipped, "suites": of_packages | shipped["suites"]}
    for line in uncompared_suites(scores, shipped):
        output.note(f"not compared: {line}")
    return worse_figures(scores, shipped)


def _say_problems(problems: Sequence[DataProblem], worse: Sequence[str]) -> None:
    lines = [f"bad data: {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"bad data: and {len(problems) - _SHOWN_PROBLEMS} more")
    for line in (*lines, *(f"worse: {figure}" for figure in worse)):
        tell(line, fg="red")
