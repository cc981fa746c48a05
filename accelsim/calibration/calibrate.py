"""From a run file to a calibrated CPU: fit, errors of operators left out, overlay and kernel table.

Everything is written beside the run or into the user's configuration folder; catalogue profiles
stay as they are.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from accelsim.calibration.cpu_fit import (
    MeasuredKernels,
    compiled_call_s,
    cross_validate,
    fit_kernels,
    kernel_rows,
)
from accelsim.calibration.environment import describe, differences, machine_name
from accelsim.calibration.files import write_json
from accelsim.calibration.held_out import HeldOut
from accelsim.calibration.noise import refuse_noise
from accelsim.calibration.overlay import write_overlay
from accelsim.calibration.run_file import CalibrationRun
from accelsim.confidence.residual import FamilyResidual
from accelsim.cost.cpu import cpu_parameters
from accelsim.cost.cpu.calibrated import kernels_document
from accelsim.cost.cpu.fitted_kernels import FittedKernels
from accelsim.cost.fitted import FittedParameters
from accelsim.errors import InvalidValueError, OutputError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.units import to_si
from accelsim.workloads.graph import FloatArray

if TYPE_CHECKING:
    from accelsim.hardware.profile import CpuProfile

__all__ = [
    "Calibration",
    "cpu_profile",
    "fit_run",
    "framework_times",
    "held_out",
    "operator_errors",
    "refuse_noise",
    "refuse_other_machine",
    "write_calibration",
]

_DEFAULT_CACHES = (32.0 * 2**10, 2.0**20, 32.0 * 2**20)


@frozen(eq=False)
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
    rows: MeasuredKernels
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
    errors = cross_validate(rows)
    fitted = fit_kernels(rows, errors=errors)
    kernels = replace(fitted, compiled_call_s=compiled_call_s(run))
    return Calibration(name, kernels, errors, rows, run)


def caches(environment: Values) -> tuple[float, float, float]:
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


def held_out(calibration: Calibration) -> HeldOut:
    """Every row by the fit of the cross-validation that has not seen its shape."""
    rows = calibration.rows
    return HeldOut(
        [case.key for case in rows.cases],
        [case.family for case in rows.cases],
        rows.times_s,
        calibration.errors,
    )


def framework_times(calibration: Calibration) -> dict[str, float]:
    """What the fit says of the framework, in seconds by name."""
    return {"compiled_call_s": calibration.kernels.compiled_call_s}


def operator_errors(calibration: Calibration) -> list[Document]:
    """Held-out errors by family and thread count, then over everything.

    Returns:
        Rows with family, threads, dtype ("all"), rows, mape_fraction, median_fraction,
        p90_fraction.
    """
    errors = np.abs(np.expm1(-calibration.errors))
    cases = calibration.rows.cases
    groups: dict[tuple[str, int, str], list[int]] = {}
    for index, case in enumerate(cases):
        state = f"{case.dtype} {'cold' if case.cold else 'hot'}"
        for key in (
            (case.family, case.threads, "all"),
            ("all", case.threads, state),
            ("all", case.threads, "all"),
        ):
            groups.setdefault(key, []).append(index)
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


def _overlay(calibration: Calibration, origin: Values) -> FittedParameters:
    date = str(calibration.run.environment.get("measured_at") or "")[:10] or "unknown"
    return FittedParameters(
        device=calibration.name,
        device_class="cpu",
        date=date,
        data=f"operators measured on {origin['machine']}, run {origin['run_hash']}",
        rows=int(origin["rows"]),
        parameters=to_si(_starts(calibration.kernels)),
        families=_families(calibration),
        held_out=held_out(calibration).error(),
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
    starts = {"eager_dispatch_s": statistics.median(light) if light else None}
    for name, kernel in (("eager_contraction_s", "linear_thin"), ("eager_conv_s", "conv")):
        starts[name] = one[kernel].coefficients[0] if kernel in one else None
    default = cpu_parameters()
    return {
        name: float(value) if value else getattr(default, name) for name, value in starts.items()
    }


def _families(calibration: Calibration) -> dict[str, FamilyResidual]:
    """Held-out residuals by operator kind and format, as the intervals take them."""
    from accelsim.confidence.residual import family_rows

    graph = calibration.rows.graph
    errors = calibration.errors
    families = {}
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
        families[name] = FamilyResidual(
            len(own),
            sigma,
            sigma,
            shared,
            float(np.median(ape)),
            float(np.quantile(ape, 0.9)),
            flop,
            size,
        )
    return families


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


def refuse_other_machine(run: CalibrationRun, path: Path) -> None:
    """Refuse a run that says nothing about this machine.

    Raises:
        InvalidValueError: If machine or software differ; names the differences.
    """
    differing = differences(run.environment, describe(str(run.settings.get("device", "cpu"))))
    if differing:
        remedy = (
            "Fit it there, or name the device it describes with --name. "
            f"Different: {'; '.join(differing)}."
        )
        raise InvalidValueError("from", str(path), "a run of this machine and software", remedy)
