"""From a run file to a calibrated device: fit, check the machine's noise, write overlay and kernels,
report.

Everything is written beside the run or into the user's configuration folder; catalogue profiles
stay as they are.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from accelsim.calibration.check import (
    CheckResult,
    MeasurementError,
    check_list,
    freeze,
    measure_model,
    predict,
    read_frozen,
)
from accelsim.calibration.cpu_fit import (
    KernelRows,
    compiled_call_s,
    cross_validate,
    fit_kernels,
    kernel_rows,
    recurrent_call_s,
)
from accelsim.calibration.environment import describe, differences, machine_name
from accelsim.calibration.overlay import write_overlay
from accelsim.calibration.run_file import CalibrationRun, Measurement
from accelsim.cost.cpu import cpu_parameters
from accelsim.cost.cpu.calibrated import kernels_document
from accelsim.cost.cpu.fitted_kernels import FittedKernels
from accelsim.cost.fitted import FittedParameters
from accelsim.cost.residual import FamilyResidual
from accelsim.datafile import read_json
from accelsim.errors import InvalidValueError, OutputError, ProfileError
from accelsim.units import to_si
from accelsim.workloads.graph import FloatArray

if TYPE_CHECKING:
    from accelsim.hardware.profile import CpuProfile

__all__ = [
    "BUSIEST_FRACTION",
    "INTERRUPTED",
    "MOST_DISTURBED_FRACTION",
    "Calibration",
    "check_calibration",
    "cpu_profile",
    "disturbed_fraction",
    "fit_run",
    "freeze_predictions",
    "measure_model",
    "operator_errors",
    "read_results",
    "refuse_noise",
    "refuse_other_machine",
    "write_calibration",
    "write_json",
    "write_text",
]

#: Spread of the reference operator above which a machine is too busy to fit: its noise would exceed
#: the model's error.
BUSIEST_FRACTION: Final = 0.25
#: Share of disturbed rows above which too little is left to fit.
MOST_DISTURBED_FRACTION: Final = 0.5
#: Reason of a result that was not measured because the user ended the check.
INTERRUPTED: Final = "interrupted"
_MOST_BYTES: Final = 16 * 2**20
_DEFAULT_CACHES: Final = (32.0 * 2**10, 2.0**20, 32.0 * 2**20)


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A fitted CPU.

    Attributes:
        name: Device name the files are for ("local/cpu", or the machine's).
        kernels: Kernel times.
        errors: ln(measured / predicted) of every row by cross-validation, shape (n,).
        rows: The rows.
        run: The run they come from.
    """

    name: str
    kernels: FittedKernels
    errors: FloatArray
    rows: KernelRows
    run: CalibrationRun


def fit_run(
    run: CalibrationRun, name: str = "local/cpu", *, despite_noise: bool = False
) -> Calibration:
    """Fit a CPU's kernels to a run.

    Args:
        run: A run on a CPU.
        name: Device name of the result.
        despite_noise: Fit even where the machine was too busy.

    Raises:
        InvalidValueError: If the run is a GPU's, has too few rows, or the machine was too busy.
    """
    if not str(run.settings.get("device", "cpu")).startswith("cpu"):
        raise InvalidValueError("device", run.settings.get("device"), "a run measured on a CPU")
    if not despite_noise:
        refuse_noise(run)
    rows = kernel_rows(run, caches(run.environment))
    if len(rows.cases) < 100:
        raise InvalidValueError(
            "rows", len(rows.cases), "at least 100 measured rows", "Give a larger --budget."
        )
    call_s, gradient_s = framework_s(run)
    errors = cross_validate(rows)
    kernels = replace(
        fit_kernels(rows, errors=errors),
        call_s=call_s,
        gradient_s=gradient_s,
        compiled_call_s=compiled_call_s(run),
        recurrent_call_s=recurrent_call_s(run),
    )
    return Calibration(name, kernels, errors, rows, run)


def refuse_noise(run: CalibrationRun) -> None:
    """Refuse a run on a machine that did other things.

    Raises:
        InvalidValueError: If the reference operator's times spread too much, or too few rows were
            left alone.
    """
    remedy = "The measurements are kept; end other programs and continue with --resume, or fit with --despite-noise."
    spread = machine_noise(run)
    if spread is not None and spread > BUSIEST_FRACTION:
        allowed = f"at most {100 * BUSIEST_FRACTION:.0f} % of spread of one operator timed again and again"
        raise InvalidValueError("machine noise", f"{100 * spread:.0f} %", allowed, remedy)
    for threads, share in disturbed_fraction(run).items():
        if share > MOST_DISTURBED_FRACTION:
            allowed = f"at most {100 * MOST_DISTURBED_FRACTION:.0f} % that other programs took a core from"
            raise InvalidValueError(
                f"measurements on {threads} threads", f"{100 * share:.0f} %", allowed, remedy
            )


def disturbed_fraction(run: CalibrationRun) -> dict[int, float]:
    """Share of the measured rows of each thread count from which other programs took a core; fits
    leave these out.
    """
    calm: dict[int, list[bool]] = {}
    for row in run.rows:
        if row.time_s is not None:
            calm.setdefault(row.case.threads, []).append(bool(row.details.get("undisturbed", True)))
    return {threads: 1.0 - sum(flags) / len(flags) for threads, flags in sorted(calm.items())}


def machine_noise(run: CalibrationRun) -> float | None:
    """Spread of the reference operator: median over best, less 1; the worst of the run's sessions,
    None where not known.
    """
    spreads = [float(note["spread_fraction"]) for note in run.notes if note.get("note") == "noise"]
    seen = _reference_times(run)
    if (
        len(seen) > len(_noted_times(run)) + 1
    ):  # a session that was killed left no note, but its rows have the times
        spreads.append(statistics.median(seen) / min(seen) - 1.0)
    return max(spreads) if spreads else None


def reference_s(run: CalibrationRun) -> float | None:
    """Median time of the reference operator; None where it was not timed."""
    times = max(_noted_times(run), _reference_times(run), key=len)
    return statistics.median(times) if times else None


def _noted_times(run: CalibrationRun) -> list[float]:
    return [
        float(x)
        for note in run.notes
        if note.get("note") == "noise"
        for x in note.get("reference_s", ())
    ]


def _reference_times(run: CalibrationRun) -> list[float]:
    """Times of the reference operator that rows were measured beside, each once."""
    return list(
        dict.fromkeys(float(x) for row in run.rows if (x := row.details.get("reference_s")))
    )


def caches(environment: Mapping[str, Any]) -> tuple[float, float, float]:
    """Bytes of the first-level, second-level and last-level cache the environment names; common
    sizes where it names none.
    """
    sizes = {}
    for level, text in dict(environment.get("cpu_caches") or {}).items():
        digits, unit = str(text)[:-1], str(text)[-1:].upper()
        if digits.isdigit() and unit in {"K", "M"}:
            sizes[level] = float(digits) * (1024.0 if unit == "K" else 1024.0**2)
    first, second, last = _DEFAULT_CACHES
    l2 = sizes.get("L2", second)
    return sizes.get("L1", first), l2, sizes.get("L3", max(l2, last))


def framework_s(run: CalibrationRun) -> tuple[float, float]:
    """Time of a module's call, and of the backward graph per operator; 0 where they were not
    measured.
    """
    found: dict[str, Measurement] = {
        row.case.operator: row for row in run.best().values() if row.case.family == "framework"
    }

    def each(operator: str) -> float:
        row = found.get(operator)
        return 0.0 if row is None or row.time_s is None else row.time_s / row.case.shape["count"]

    gradient = (each("gradient_chain") - 2.0 * each("plain_chain")) / 2.0
    return each("module_call"), max(0.0, gradient) if "gradient_chain" in found else 0.0


def operator_errors(calibration: Calibration) -> list[dict[str, Any]]:
    """Held-out errors by family and thread count, then over everything.

    Returns:
        Rows with family, threads, dtype ("all"), rows, mape_fraction, median_fraction,
        p90_fraction.
    """
    errors = np.abs(np.expm1(-calibration.errors))
    cases = calibration.rows.cases
    groups: dict[tuple[str, int, str], list[int]] = {}
    for place, case in enumerate(cases):
        state = f"{case.dtype} {'cold' if case.cold else 'hot'}"
        for key in (
            (case.family, case.threads, "all"),
            ("all", case.threads, state),
            ("all", case.threads, "all"),
        ):
            groups.setdefault(key, []).append(place)
    table = []
    for (family, threads, dtype), places in sorted(
        groups.items(), key=lambda item: (item[0][1], item[0][0], item[0][2])
    ):
        known = errors[places][np.isfinite(errors[places])]
        if len(known):
            figures = (float(known.mean()), float(np.median(known)), float(np.quantile(known, 0.9)))
            names = ("mape_fraction", "median_fraction", "p90_fraction")
            table.append(
                {
                    "family": family,
                    "threads": threads,
                    "dtype": dtype,
                    "rows": len(known),
                    **dict(zip(names, figures, strict=True)),
                }
            )
    return table


def write_calibration(calibration: Calibration, folder: Path) -> tuple[Path, Path]:
    """Write the overlay and the kernels.

    Args:
        calibration: What was fitted.
        folder: A ``fitted`` folder.

    Returns:
        The YAML overlay and the JSON kernels.

    Raises:
        OutputError: If they cannot be written.
    """
    run = calibration.run
    origin = {
        "machine": machine_name(run.environment),
        "environment": {
            k: run.environment.get(k)
            for k in ("device_name", "torch_version", "onednn_version", "measured_at")
        },
        "run_hash": run.digest,
        "rows": len(calibration.rows.cases),
    }
    try:
        overlay = write_overlay(_overlay(calibration, origin), folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror}.") from None
    path = folder / f"{calibration.name}.kernels.json"
    write_json(path, kernels_document(calibration.kernels, origin))
    return overlay, path


def _overlay(calibration: Calibration, origin: Mapping[str, Any]) -> FittedParameters:
    date = str(calibration.run.environment.get("measured_at") or "")[:10] or "unknown"
    return FittedParameters(
        device=calibration.name,
        device_class="cpu",
        date=date,
        data=f"operators measured on {origin['machine']}, run {origin['run_hash']}",
        rows=int(origin["rows"]),
        parameters=to_si(_starts(calibration.kernels)),
        families=_families(calibration),
        note="Kernel times of the same run are in the file .kernels.json beside this one.",
    )


def _starts(kernels: FittedKernels) -> dict[str, float]:
    """Class parameters that the kernels' coefficients measure directly: what it costs to start an
    operator.
    """
    one = {
        kernel: fit
        for (kernel, dtype, threads), fit in kernels.fits.items()
        if dtype == "fp32" and threads == 1
    }
    light = [
        one[name].coefficients[0]
        for name in ("relu", "add", "mul", "sub", "mul_scalar", "neg")
        if name in one
    ]
    found = {"eager_dispatch_s": statistics.median(light) if light else None}
    for name, kernel in (("eager_contraction_s", "linear_thin"), ("eager_conv_s", "conv")):
        found[name] = one[kernel].coefficients[0] if kernel in one else None
    default = cpu_parameters()
    return {
        name: float(value) if value else getattr(default, name) for name, value in found.items()
    }


def _families(calibration: Calibration) -> dict[str, FamilyResidual]:
    """Held-out residuals by operator kind and format, as the intervals take them."""
    from accelsim.calibration.case_rows import case_graph
    from accelsim.cost.residual import family_rows

    graph = case_graph(calibration.rows.cases)
    errors = calibration.errors
    found = {}
    for name, places in family_rows(graph).items():
        own = places[np.isfinite(errors[places])]
        if len(own) < 8:
            continue
        ape = np.abs(np.expm1(-errors[own]))
        sigma = float(np.quantile(np.abs(errors[own]), 0.9) / 1.645)
        shared = min(sigma, abs(float(np.median(errors[own]))))
        flop, size = (
            tuple(np.quantile(x[own], (0.01, 0.99)).tolist()) for x in (graph.flop, graph.bytes)
        )
        found[name] = FamilyResidual(
            len(own),
            sigma,
            sigma,
            shared,
            float(np.median(ape)),
            float(np.quantile(ape, 0.9)),
            flop,
            size,
        )
    return found


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document, whole or not at all.

    Raises:
        OutputError: If it cannot be written.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    write_text(path, text.replace('],["', '],\n["').replace('{"model":', '\n{"model":') + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        OutputError: If it cannot be written.
    """
    unfinished = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)  # noqa: PTH105  (atomic)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None


def freeze_predictions(calibration: Calibration, profile: CpuProfile, path: Path) -> Path:
    """Predict the whole check list and write it with its hash, before anything of it is measured."""
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


def results_document(results: Sequence[CheckResult], frozen_hash: str) -> dict[str, Any]:
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


def cpu_profile(name: str) -> CpuProfile:
    """The profile of a CPU.

    Raises:
        InvalidValueError: If the name is another device's.
    """
    from accelsim import catalog
    from accelsim.hardware.profile import CpuProfile

    profile = catalog.device(name)
    if not isinstance(profile, CpuProfile):
        raise InvalidValueError("name", name, "a CPU, which the run was measured on")
    return profile


def read_results(path: Path, frozen_hash: str) -> list[dict[str, Any]]:
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


def refuse_other_machine(run: CalibrationRun, path: Path) -> None:
    """Refuse a run that says nothing about this machine.

    Raises:
        InvalidValueError: If machine or software differ; names the differences.
    """
    found = differences(run.environment, describe(str(run.settings.get("device", "cpu"))))
    if found:
        remedy = f"Fit it there, or name the device it describes with --name. Different: {'; '.join(found)}."
        raise InvalidValueError("from", str(path), "a run of this machine and software", remedy)
