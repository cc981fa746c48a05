"""From a run file to the files of its fit, of a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from accelsim.calibration import calibrate
from accelsim.calibration.check_report import report_markdown
from accelsim.calibration.check_run import write_origin
from accelsim.calibration.files import write_text
from accelsim.calibration.held_out import Fitted
from accelsim.calibration.noise import disturbed_fraction, refuse_errors
from accelsim.calibration.overlay import write_overlay
from accelsim.calibration.run_file import CalibrationRun, read_run
from accelsim.calibration.run_measurement import require_torch

#: Share of disturbed measurements worth a line.
_MENTIONED_FRACTION = 0.02
Tell = Callable[[str], None]


def fit_files(path: Path, folder: Path, name: str, tell: Tell, *, despite_noise: bool) -> Fitted:
    """Fit a run and write what it gave: overlay, origin and report.

    Args:
        path: The run.
        folder: Where the files go.
        name: Device that the run describes; this machine's where empty.
        tell: Called with what a reader should know.
        despite_noise: Fit even where the machine was too busy.

    Raises:
        InputError: If the run is another machine's, has too few rows, the machine was busy, or
            operators left out of the fit lie far from it.
    """
    require_torch()
    run = read_run(path)
    for count, share in disturbed_fraction(run).items():
        if share > _MENTIONED_FRACTION:
            disturbed = f"{100 * share:.0f} % of the measurements on {count} thread(s)"
            tell(f"{disturbed} were disturbed by other programs and take no part in the fit")
    for note in run.notes:
        if note.get("note") == "compiled":
            tell(f"compiled operators were not measured: {note['skipped']}")
    if run.is_of_gpu:
        fitted = _fit_gpu(run, folder, name, tell, despite_noise=despite_noise)
    else:
        if not name:
            calibrate.refuse_other_machine(run, path)
        fitted = _fit_cpu(run, folder, name or "local/cpu", despite_noise=despite_noise)
    report = folder / "report.md"
    origin = write_origin(folder / "frozen.json", run, fitted.device, fitted.errors)
    write_text(report, report_markdown(run.environment, fitted.errors, (), {}))
    return replace(fitted, files=(*fitted.files, origin, report))


def _fit_cpu(run: CalibrationRun, folder: Path, name: str, *, despite_noise: bool) -> Fitted:
    profile = calibrate.cpu_profile(name)
    fitted = calibrate.fit_run(run, profile.name, despite_noise=despite_noise)
    errors = calibrate.operator_errors(fitted)
    if not despite_noise:
        refuse_errors(errors)
    return Fitted(
        fitted.name,
        run,
        errors,
        calibrate.held_out(fitted),
        {"compiled_call_s": fitted.kernels.compiled_call_s},
        calibrate.write_calibration(fitted, folder / "fitted"),
    )


def _fit_gpu(
    run: CalibrationRun, folder: Path, name: str, tell: Tell, *, despite_noise: bool
) -> Fitted:
    from accelsim.calibration.gpu_fit import fit_gpu_run, gpu_profile

    profile = gpu_profile(run.environment, name)
    fitted = fit_gpu_run(run, profile, despite_noise=despite_noise)
    if not despite_noise:
        refuse_errors(fitted.errors)
    for stage in fitted.unconverged:
        tell(f"{stage}: the fit did not converge; its parameters stay as they were")
    overlay = write_overlay(fitted.overlay, folder / "fitted")
    figures = fitted.overlay.parameters
    return Fitted(profile.name, run, fitted.errors, fitted.held_out, figures, (overlay,))
