"""``accelsim calibrate``: measure this machine, fit it, and check the fit on whole models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from accelsim.cli.progress import progress_bar

__all__ = ["calibrate"]

calibrate = typer.Typer(
    name="calibrate", help="Measure this machine and fit its cost model.", invoke_without_command=True
)

_OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for run and overlays; your configuration if left out."),
]


@calibrate.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="cpu or cuda:N.")] = "cpu",
    threads: Annotated[
        str, typer.Option("--threads", metavar="N,M", help="Thread counts; 1 and all if left out.")
    ] = "",
    dtypes: Annotated[
        str, typer.Option("--dtypes", metavar="NAMES", help="As fp32,bf16; the fast ones if left out.")
    ] = "",
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time to measure: 60s, 5m.")] = "5m",
    out: _OutOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    from_run: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Fit this run file instead of measuring.")
    ] = None,
    despite_noise: Annotated[bool, typer.Option("--despite-noise", help="Fit although the machine was busy.")] = False,
    imported: Annotated[
        str | None,
        typer.Option(
            "--import",
            metavar="SOURCE",
            help="Fit a GPU to published kernels instead: aiconfigurator:SYSTEM[:BACKEND[:VERSION]], or aiconfigurator:all.",
        ),
    ] = None,
) -> None:
    """Measure this machine's operators and fit its cost model; then: accelsim calibrate check."""
    if context.invoked_subcommand is not None:
        return
    if imported is not None:
        _import(imported, _folder(out) / "fitted")
        return
    from accelsim.calibration.measure import MeasureSettings, measure, parse_budget_s

    folder = _folder(out)
    path = from_run or folder / "run.jsonl"
    if from_run is None:
        counts = tuple(_count(part) for part in threads.split(",") if part.strip())
        formats = tuple(part.strip() for part in dtypes.split(",") if part.strip())
        settings = MeasureSettings(device, counts, formats, parse_budget_s(budget), 2, path, resume)
        try:
            with progress_bar("measuring") as report:
                measure(settings, lambda p: report(p.rows_written, p.total, p.label))
        except KeyboardInterrupt:
            typer.echo(f"interrupted: {path} keeps what was measured; continue with --resume", err=True)
            raise typer.Exit(0) from None
    _fit(path, folder, device, despite_noise)


def _import(spec: str, folder: Path) -> None:
    from accelsim.calibration.silicon_fit import import_silicon, silicon_specs

    for one in silicon_specs(spec):
        typer.echo(f"wrote {import_silicon(one, folder, lambda line: typer.echo(line, err=True))}")


def _fit(path: Path, folder: Path, device: str, despite_noise: bool) -> None:
    from accelsim import catalog
    from accelsim.calibration.calibrate import fit_run, freeze_predictions, operator_errors, write_calibration
    from accelsim.calibration.check_report import report_markdown
    from accelsim.calibration.run_file import read_run

    run_data = read_run(path)
    if str(run_data.settings.get("device", device)).startswith("cuda"):
        typer.echo(f"measured: {path}. Fit it with the GPU fit (see docs/calibration.md).")
        return
    fitted = fit_run(run_data, despite_noise=despite_noise)
    overlay, table = write_calibration(fitted, folder / "fitted")
    profile = catalog.device("local/cpu")
    frozen = freeze_predictions(fitted, profile, folder / "frozen.json")  # type: ignore[arg-type]
    errors = operator_errors(fitted)
    (folder / "report.md").write_text(report_markdown(run_data.environment, errors, (), {}), encoding="utf-8")
    for row in errors:
        if row["family"] == "all" and row["dtype"] == "all":
            typer.echo(
                f"{row['rows']} operators on {row['threads']} thread(s), held out: "
                f"MAPE {100 * row['mape_fraction']:.1f} %, median {100 * row['median_fraction']:.1f} %"
            )
    for written in (overlay, table, frozen, folder / "report.md"):
        typer.echo(f"wrote {written}")


@calibrate.command("check")
def check(
    out: _OutOption = None,
    budget: Annotated[float, typer.Option("--seconds", help="Time to spend on each model.")] = 1.5,
) -> None:
    """Measure whole models against the frozen predictions; exits with 1 if the machine has drifted."""
    from accelsim.calibration.calibrate import check_calibration, fit_run, operator_errors, results_document, write_json
    from accelsim.calibration.check import drift, summary
    from accelsim.calibration.check_report import report_markdown
    from accelsim.calibration.run_file import calibration_lock, read_run
    from accelsim.datafile import read_json

    folder = _folder(out)
    frozen = read_json(folder / "frozen.json", max_bytes=16 * 2**20)
    with calibration_lock(), progress_bar("checking") as report:
        results = check_calibration(frozen, str(folder / "frozen.json"), budget, report)
    previous = folder / "results.json"
    before = read_json(previous, max_bytes=16 * 2**20)["results"] if previous.is_file() else []
    document = results_document(results, str(frozen["hash"]))
    if not before:
        write_json(previous, document)
    fitted = fit_run(read_run(folder / "run.jsonl"), despite_noise=True)
    text = report_markdown(
        fitted.run.environment, operator_errors(fitted), results, {"predictions frozen": frozen["hash"]}
    )
    (folder / "report.md").write_text(text, encoding="utf-8")
    for is_training in (False, True):
        total = summary([r for r in results if r.prediction.case.is_training is is_training])
        if total["count"]:
            typer.echo(
                f"{'training' if is_training else 'inference'}: {total['count']} runs, "
                f"MAPE {100 * total['mape_fraction']:.1f} %, largest {100 * total['max_fraction']:.1f} %, "
                f"{100 * total['coverage_fraction']:.0f} % in their interval"
            )
    typer.echo(f"wrote {folder / 'report.md'}")
    if before:
        change, drifted = drift(_times(before), _times(document["results"]))
        typer.echo(f"against the first check: {100 * change:+.1f} % (median)")
        if drifted:
            typer.echo("the machine has drifted: calibrate again", err=True)
            raise typer.Exit(1)


def _times(rows: list[dict[str, Any]]) -> dict[str, float]:
    names = ("model", "batch", "dtype", "threads", "is_training")
    return {json.dumps([row[n] for n in names]): row["measured_s"] for row in rows if row["measured_s"] is not None}


def _count(text: str) -> int:
    from accelsim.errors import InvalidValueError

    if not text.strip().isdigit():
        raise InvalidValueError("threads", text, "counts such as 1,2")
    return int(text)


def _folder(out: Path | None) -> Path:
    from accelsim.cost.fitted import calibration_folders

    return out if out is not None else calibration_folders()[0]
