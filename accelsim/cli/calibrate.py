"""``accelsim calibrate``: measure this machine, fit it, and check the fit on whole models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from accelsim.cli.entry import end_interrupted, tell
from accelsim.cli.options import with_help
from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import check_report, command_text
from accelsim.errors import InputError, InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import option
from accelsim.plain import Document
from accelsim.quantity import say

if TYPE_CHECKING:
    from accelsim.calibration.check import CheckResult
    from accelsim.report.page import Page

#: Seconds that `check` may spend on one model.
_MOST_SECONDS = 3600.0
_SUMMARY = (
    "{count} runs, MAPE {mape_fraction}, largest {max_fraction}, {coverage_fraction} in their "
    "interval"
)
_HELD_OUT = (
    "{rows} operators[ on {threads} thread(s)], held out: MAPE {mape_fraction}, "
    "median {median_fraction}"
)
calibrate = typer.Typer(
    name="calibrate",
    help="Measure this machine and fit its cost model.",
    invoke_without_command=True,
)


@frozen
class CalibrationOptions:
    """What is measured and fitted, and where it goes."""

    device: str = option("Device to measure: cpu or cuda:N.", "cpu", "NAME")
    threads: str = option("Thread counts to measure. Default: 1 and all.", "", "N,M")
    dtypes: str = option(
        "Formats to measure, such as fp32,bf16. Default: those that the machine runs fast.",
        "",
        "NAMES",
    )
    budget: str = option("Time to measure: 60s, 6m.", "6m", "TIME")
    out: Path | None = option(
        "Folder for the run and its overlays. Default: your configuration folder.", metavar="DIR"
    )
    resume: bool = option("Continue an interrupted run.", False)
    name: str = option(
        "Device that the run describes; needed for the run of another machine.", "", "DEVICE"
    )
    despite_noise: bool = option("Fit although the machine was busy.", False)
    report: Path | None = option("Also write a page (HTML): figures and data.", metavar="FILE")
    force: bool = option("Let --report replace a page.", False)


@calibrate.callback(invoke_without_command=True)
@with_help
def calibrate_run(
    context: typer.Context,
    options: CalibrationOptions,
    from_run: Path | None = option(
        "Fit this run file instead of measuring.", metavar="FILE", flags="--from"
    ),
) -> None:
    """Measure this machine's operators and fit its cost model; then: accelsim calibrate check."""
    if context.invoked_subcommand is not None:
        return
    from accelsim.calibration.run_measurement import (
        MeasureSettings,
        measure,
        parse_budget_s,
        parse_formats,
        parse_threads,
    )

    report, force = options.report, options.force
    check_report(report, force=force)
    folder = _folder(options.out)
    path = from_run or folder / "run.jsonl"
    if from_run is None:
        settings = MeasureSettings(
            options.device,
            parse_threads(options.threads),
            parse_formats(options.dtypes),
            parse_budget_s(options.budget),
            rounds=2,
            out=path,
            resume=options.resume,
        )
        with _interruptible(path), progress_bar("measuring") as told:
            measure(settings, lambda p: told(p.completed, p.total, p.label))
    with _interruptible(path, f"fit it with --from {path}"):
        from accelsim.calibration.written_fit import fit_files

        is_forced = options.despite_noise
        written = fit_files(path, folder, options.name, _tell, despite_noise=is_forced)
    _say_errors(written.errors)
    for file in written.files:
        typer.echo(f"wrote {file}")
    if report is not None:
        from accelsim.report.calibration_page import fit_page

        _write_page(fit_page(written, command_text()), report, force=force)


@contextmanager
def _interruptible(path: Path, remedy: str = "continue with --resume") -> Iterator[None]:
    """On Ctrl-C say what is kept, and end."""
    try:
        yield
    except KeyboardInterrupt:
        left_behind = f"{path} keeps what was measured; {remedy}"
        end_interrupted(left_behind if path.exists() else "nothing was measured")


def _tell(text: str) -> None:
    tell(text)


def _write_page(page: Page, path: Path, *, force: bool) -> None:
    from accelsim.report.page import write_page

    write_page(page, path, force=force)
    _tell(f"wrote {path}; open it in a browser")


def _say_errors(errors: list[Document]) -> None:
    from accelsim.calibration.noise import MOST_ERROR_FRACTION

    for row in errors:
        if row["family"] == "all" and row["dtype"] == "all":
            typer.echo(say(_HELD_OUT, row))
            if row["mape_fraction"] > MOST_ERROR_FRACTION:
                _tell(
                    "warning: operators left out of the fit are that far from it; measure again on "
                    "a machine at rest before you rely on it"
                )


@calibrate.command("check")
@with_help
def calibrate_check(
    out: Path | None = option(
        "Folder for the run and its overlays. Default: your configuration folder.", metavar="DIR"
    ),
    budget: float = option("Time to spend on each model.", 1.0, flags="--seconds"),
    heap: str = option("CPU: default, kept (the allocator keeps what is freed) or both.", "both"),
    report: Path | None = option("Also write a page (HTML): figures and data.", metavar="FILE"),
    force: bool = option("Let --report replace a page.", False),
) -> None:
    """Measure whole models against the frozen predictions; exits with 1 if the machine drifted."""
    from accelsim.calibration import check, check_run
    from accelsim.calibration.check_report import report_markdown
    from accelsim.calibration.environment import describe, differences
    from accelsim.calibration.files import write_json, write_text
    from accelsim.calibration.run_file import calibration_lock, read_run
    from accelsim.calibration.run_measurement import require_torch

    if not 0 < budget <= _MOST_SECONDS:
        raise InvalidValueError("seconds", budget, f"above 0 and at most {_MOST_SECONDS:g}")
    check_report(report, force=force)
    require_torch()
    folder = _calibrated_folder(out)
    run_data = read_run(folder / "run.jsonl")
    frozen = check_run.freeze_predictions(folder, run_data, _tell)
    before = check_run.read_results(folder / "results.json", str(frozen.get("hash")))
    for change in differences(run_data.environment, describe(run_data.device)):
        _tell(f"changed since the calibration: {change}")
    measured = partial(check.measure_model, device=run_data.device)
    with calibration_lock(), progress_bar("checking") as told:
        results = check_run.check_calibration(
            frozen, str(folder / "frozen.json"), budget, told, measured, heap
        )
    document = check_run.results_document(results, str(frozen["hash"]))
    is_whole = all(result.skipped != check_run.INTERRUPTED for result in results)
    if not before and is_whole:
        write_json(folder / "results.json", document)
    facts = {"predictions frozen": frozen["hash"]}
    errors = frozen["origin"]["operators"]
    text = report_markdown(run_data.environment, errors, results, facts)
    write_text(folder / "report.md", text)
    _say_summary(results)
    typer.echo(f"wrote {folder / 'report.md'}")
    if report is not None:
        from accelsim.report.calibration_page import check_page

        _write_page(check_page(document, command_text()), report, force=force)
    if not is_whole:
        end_interrupted(f"{folder / 'report.md'} has what was measured")
    if before:
        _say_drift(before, document["results"])


def _say_summary(results: list[CheckResult]) -> None:
    from accelsim.calibration.check import summary

    for mode in dict.fromkeys(r.prediction.case.mode for r in results):
        group = [r for r in results if r.prediction.case.mode == mode]
        total = summary(group)
        if total["count"]:
            typer.echo(f"{mode}: {say(_SUMMARY, total)}")
            same_speed = summary([r.at_calibrated_speed() for r in group])
            typer.echo(f"  at the calibration's speed: {say(_SUMMARY, same_speed)}")


def _say_drift(before: list[Document], now: list[Document]) -> None:
    from accelsim.calibration.check import drift

    change, drifted = drift(_times(before), _times(now))
    typer.echo(f"against the first check: {100 * change:+.1f} % (median)")
    if drifted:
        _tell("the machine has drifted: calibrate again")
        raise typer.Exit(1)


def _times(rows: list[Document]) -> dict[Any, float]:
    from accelsim.calibration.check import CheckCase

    return {
        tuple(row.get(name) for name in CheckCase.__dataclass_fields__): row["measured_s"]
        for row in rows
        if row["measured_s"] is not None
    }


def _folder(out: Path | None) -> Path:
    from accelsim.cost.fitted import calibration_folders

    return out if out is not None else calibration_folders()[0]


def _calibrated_folder(out: Path | None) -> Path:
    """Where the calibration is.

    Raises:
        InputError: If there is none.
    """
    folder = _folder(out)
    for name in ("run.jsonl", "frozen.json"):
        if not (folder / name).exists():
            raise InputError(
                f"{folder / name} does not exist: nothing is calibrated there. "
                "Run accelsim calibrate first."
            )
    return folder
