"""One check of a calibration: predictions frozen beside the run, models measured against them, and
results kept for the next check to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsim.calibration.check import (
    CheckResult,
    MeasurementError,
    check_list,
    freeze,
    measure_model,
    predict,
    read_frozen,
)
from accelsim.calibration.environment import machine_name
from accelsim.calibration.files import write_json
from accelsim.calibration.noise import reference_s
from accelsim.cost.cpu import cpu_parameters
from accelsim.datafile import read_json
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.plain import Document

if TYPE_CHECKING:
    from accelsim.calibration.calibrate import Calibration
    from accelsim.hardware.profile import CpuProfile

__all__ = [
    "INTERRUPTED",
    "check_calibration",
    "freeze_predictions",
    "measure_model",
    "read_results",
    "results_document",
]

#: Reason of a result that was not measured because the user ended the check.
INTERRUPTED = "interrupted"
_MOST_BYTES = 16 * 2**20


def freeze_predictions(calibration: Calibration, profile: CpuProfile, path: Path) -> Path:
    """Predict the whole check list and write it with its hash, before any of it is measured."""
    threads = sorted({case.threads for case in calibration.rows.cases})
    dtypes = sorted({case.dtype for case in calibration.rows.cases}, reverse=True)
    cases = check_list(threads, dtypes)
    parameters = replace(cpu_parameters(), kernels=calibration.kernels)
    origin = {
        "machine": machine_name(calibration.run.environment),
        "run_hash": calibration.run.digest,
        "reference_s": reference_s(calibration.run),
    }
    write_json(path, freeze(predict(cases, profile, parameters), origin))
    return path


def check_calibration(
    frozen: Mapping[str, Any],
    path: str,
    budget_s: float = 1.5,
    report: Callable[[int, int, str], None] | None = None,
    measure: Callable[..., tuple[float, float, float | None, float | None]] = measure_model,
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
            time_s, noise, energy_j, reference = measure(prediction.case, budget_s)
            slowdown = reference / calibrated if reference and calibrated else None
            results.append(
                CheckResult(prediction, time_s, noise, energy_j=energy_j, slowdown_ratio=slowdown)
            )
        except MeasurementError as error:
            results.append(CheckResult(prediction, None, None, str(error)))
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
