"""One check of a calibration: predictions frozen beside the run, models measured against them, and
results kept for the next check to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from accelsim.calibration.calibrate import cpu_profile
from accelsim.calibration.check import (
    CheckResult,
    FrozenPrediction,
    MeasurementError,
    check_list,
    freeze,
    measure_model,
    predict,
    read_frozen,
)
from accelsim.calibration.files import write_json
from accelsim.calibration.noise import reference_s
from accelsim.calibration.run_file import CalibrationRun
from accelsim.cost.cpu import cpu_parameters
from accelsim.cost.cpu.calibrated import read_kernels
from accelsim.cost.fitted import read_fitted
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.datafile import read_json
from accelsim.plain import Document, Values

#: Reason of a result that was not measured because the user ended the check.
INTERRUPTED = "interrupted"
_MOST_BYTES = 16 * 2**20


def write_origin(path: Path, run: CalibrationRun, device: str, operators: list[Document]) -> Path:
    """Write, with its hash, what the predictions will be made of; the first check adds them.

    Args:
        path: The file.
        run: The run that was fitted.
        device: Name of the device it was fitted for.
        operators: Errors of operators left out of the fit, as `calibrate.operator_errors`.
    """
    origin = {
        "machine": run.machine,
        "run_hash": run.digest,
        "reference_s": reference_s(run),
        "device": device,
        "operators": operators,
    }
    write_json(path, freeze((), origin))
    return path


def freeze_predictions(
    folder: Path, run: CalibrationRun, say: Callable[[str], object] = str
) -> Document:
    """What is frozen beside a run; the first time the whole check list is predicted from the fitted
    files and written with its hash, before any of it is measured.

    Args:
        folder: Of the calibration.
        run: The run it was fitted to.
        say: Told what takes a minute.

    Raises:
        ProfileError: If it is damaged, was changed, or is of another run.
    """
    path = folder / "frozen.json"
    frozen = read_json(path, max_bytes=_MOST_BYTES)
    predictions = read_frozen(frozen, str(path))
    origin = frozen["origin"]
    if not {"run_hash", "device", "operators"} <= set(origin):
        raise ProfileError(str(path), ["origin: made by another version of accelsim; fit it again"])
    if origin["run_hash"] != run.digest:
        problem = (
            f"run_hash: {origin['run_hash']!r}, but {folder / 'run.jsonl'} is run {run.digest!r}: "
            "the predictions are of another run. Fit this one with: "
            f"accelsim calibrate --from {folder / 'run.jsonl'} --out {folder}"
        )
        raise ProfileError(str(path), [problem])
    if not predictions:
        say("predicting the check list before any of it is measured")
        frozen = freeze(_predicted(folder / "fitted", origin["device"], run), origin)
        write_json(path, frozen)
    return frozen


def _predicted(folder: Path, device: str, run: CalibrationRun) -> list[FrozenPrediction]:
    """The check list, predicted from the fitted files of a device."""
    if run.is_of_gpu:
        from accelsim.calibration.gpu_check import predict_gpu_list

        return predict_gpu_list(read_fitted(folder / f"{device}.yaml"), run)
    kernels = read_kernels(folder / f"{device}.kernels.json")
    dtypes = sorted({dtype for _, dtype, _ in kernels.fits}, reverse=True)
    cases = check_list(kernels.thread_counts, dtypes)
    return predict(cases, cpu_profile(device), replace(cpu_parameters(), kernels=kernels))


Measure = Callable[..., tuple[float, float, float | None, float | None]]


def _measured(
    prediction: FrozenPrediction, measure: Measure, budget_s: float, calibrated_s: float | None
) -> CheckResult:
    """A prediction beside its measurement, or why there is none."""
    try:
        time_s, noise, energy_j, reference_s = measure(prediction.case, budget_s)
    except MeasurementError as error:
        return CheckResult(prediction, None, None, str(error))
    slowdown = reference_s / calibrated_s if reference_s and calibrated_s else None
    return CheckResult(prediction, time_s, noise, energy_j=energy_j, slowdown_ratio=slowdown)


def check_calibration(
    frozen: Values,
    path: str,
    budget_s: float = 1.5,
    report: Callable[[int, int, str], None] | None = None,
    measure: Measure = measure_model,
    heap: str = "both",
) -> list[CheckResult]:
    """Measure the models of a frozen document and join them to its predictions.

    Args:
        frozen: What `freeze_predictions` wrote.
        path: Its name, for messages.
        budget_s: Time to spend on each model's repeats.
        report: Called with done, total and label.
        measure: Measures one case; `check.measure_model` unless given.
        heap: Condition of memory to check, "default", "kept" or "both".

    Raises:
        InvalidValueError: If the condition is none of these.
        ProfileError: If the predictions were changed after they were frozen.

    Returns:
        One result per prediction; after Ctrl-C those left are skipped with the reason
        `INTERRUPTED`.
    """
    if heap not in {"default", "kept", "both"}:
        raise InvalidValueError("heap", heap, "default, kept or both")
    predictions = [p for p in read_frozen(frozen, path) if heap in {"both", p.case.heap}]
    calibrated = dict(frozen.get("origin") or {}).get("reference_s")
    results: list[CheckResult] = []
    for number, prediction in enumerate(predictions):
        try:
            results.append(_measured(prediction, measure, budget_s, calibrated))
        except KeyboardInterrupt:
            return results + [
                CheckResult(left, None, None, INTERRUPTED) for left in predictions[number:]
            ]
        if report is not None:
            report(number + 1, len(predictions), prediction.case.key)
    return results


def results_document(results: Sequence[CheckResult], frozen_hash: str) -> Document:
    """Results as plain values."""
    rows = [
        {
            **asdict(r.prediction.case),
            "predicted_s": r.prediction.time_s,
            "low_s": r.prediction.low_s,
            "high_s": r.prediction.high_s,
        }
        | {"measured_s": r.measured_s, "noise_fraction": r.noise_fraction, "skipped": r.skipped}
        | {"slowdown_ratio": r.slowdown_ratio}
        | {"predicted_j": r.prediction.energy_j, "measured_j": r.energy_j}
        for r in results
    ]
    return {"frozen_hash": frozen_hash, "results": rows}


def read_results(path: Path, frozen_hash: str) -> list[Document]:
    """Rows of a `results_document`; none where there is no such file, or it is of an earlier
    calibration.

    Args:
        path: The file.
        frozen_hash: Hash of the predictions that the rows must belong to.

    Raises:
        ProfileError: If the file is damaged.
    """
    if not path.is_file():
        return []
    document = read_json(path, max_bytes=_MOST_BYTES)
    rows = document.get("results")
    names = {"model", "batch", "dtype", "threads", "is_training", "measured_s"}
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and names <= set(row) for row in rows
    ):
        raise ProfileError(
            str(path),
            ["results: expected a list of measured models; delete the file to start anew"],
        )
    if document.get("frozen_hash") != frozen_hash:
        return []
    return [{"execution": "eager", "heap": "default", **row} for row in rows]
