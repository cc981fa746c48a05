"""From a run file to a calibrated CPU: fit, errors of operators left out, overlay and kernel table.

Everything is written beside the run or into the user's configuration folder; catalogue profiles
stay as they are.
"""

from __future__ import annotations

import re
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
from accelsim.calibration.environment import describe, differences
from accelsim.calibration.files import write_json
from accelsim.calibration.held_out import ErrorGroup, HeldOut
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.noise import refuse_noise
from accelsim.calibration.overlay import write_overlay
from accelsim.calibration.run_file import CalibrationRun
from accelsim.confidence.residual import FamilyResidual, family_rows, size_range
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

#: Kernels whose start measures a class parameter: their median.
_STARTED_KERNELS = {
    "eager_dispatch_s": ("relu", "add", "mul", "sub", "mul_scalar", "neg"),
    "eager_contraction_s": ("linear_thin",),
    "eager_conv_s": ("conv",),
}
_UNIT_BYTES = {"K": 1024.0, "M": 1024.0**2}
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
    if run.is_of_gpu:
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
        if size := re.fullmatch(r"(\d+)([KM])", str(text).upper()):
            sizes[level] = float(size[1]) * _UNIT_BYTES[size[2]]
    default_l1, default_l2, default_l3 = _DEFAULT_CACHES
    l2 = sizes.get("L2", default_l2)
    return sizes.get("L1", default_l1), l2, sizes.get("L3", max(l2, default_l3))


def held_out(calibration: Calibration) -> HeldOut:
    """Every row by the fit of the cross-validation that has not seen its shape."""
    return HeldOut(calibration.rows.cases, calibration.rows.times_s, calibration.errors)


def operator_errors(calibration: Calibration) -> list[Document]:
    """Held-out errors by thread count: of each family, of each format and state of the weights,
    and of all; rows as `HeldOut.error_rows` gives them.
    """
    return held_out(calibration).error_rows(_error_groups)


def _error_groups(case: Case) -> tuple[ErrorGroup, ...]:
    state = f"{case.dtype} {'cold' if case.cold else 'hot'}"
    return (
        (case.threads, case.family, "all"),
        (case.threads, "all", state),
        (case.threads, "all", "all"),
    )


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
        "machine": run.machine,
        "environment": {
            k: run.environment.get(k)
            for k in ("device_name", "torch_version", "onednn_version", "measured_at")
        },
        "run_hash": run.digest,
        "rows": len(calibration.rows.cases),
    }
    try:
        overlay = write_overlay(_overlay(calibration), folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror}.") from None
    path = folder / f"{calibration.name}.kernels.json"
    write_json(path, kernels_document(calibration.kernels, origin))
    return overlay, path


def _overlay(calibration: Calibration) -> FittedParameters:
    run = calibration.run
    return FittedParameters(
        device=calibration.name,
        device_class="cpu",
        date=run.date,
        data=run.source,
        rows=len(calibration.rows.cases),
        parameters=to_si(_starts(calibration.kernels)),
        families=_families(calibration),
        held_out=held_out(calibration).error(),
        note="Kernel times of the same run are in the file .kernels.json beside this one.",
    )


def _starts(kernels: FittedKernels) -> dict[str, float]:
    """Class parameters that the kernels' coefficients measure directly: what it costs to start an
    operator.
    """
    starts = {}
    for name, kernel_names in _STARTED_KERNELS.items():
        keys = [(kernel, "fp32", 1) for kernel in kernel_names]
        times = [kernels.fits[key].coefficients[0] for key in keys if key in kernels.fits]
        measured_s = float(statistics.median(times)) if times else 0.0
        starts[name] = measured_s or float(getattr(cpu_parameters(), name))
    return starts


def _families(calibration: Calibration) -> dict[str, FamilyResidual]:
    """Held-out residuals by operator kind and format, as the intervals take them."""
    graph = calibration.rows.graph
    errors = calibration.errors
    families = {}
    for name, family_indices in family_rows(graph).items():
        rows = family_indices[np.isfinite(errors[family_indices])]
        if len(rows) < 8:
            continue
        log_ratio = errors[rows]
        ape = np.abs(np.expm1(-log_ratio))
        sigma = float(np.quantile(np.abs(log_ratio), 0.9) / 1.645)
        families[name] = FamilyResidual(
            rows=len(rows),
            log_sigma=sigma,
            long_log_sigma=sigma,
            shared_log_sigma=min(sigma, abs(float(np.median(log_ratio)))),
            median_ape_fraction=float(np.median(ape)),
            p90_ape_fraction=float(np.quantile(ape, 0.9)),
            flop=size_range(graph.flop[rows]),
            bytes=size_range(graph.bytes[rows]),
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
    differing = differences(run.environment, describe(run.device))
    if differing:
        remedy = (
            "Fit it there, or name the device it describes with --name. "
            f"Different: {'; '.join(differing)}."
        )
        raise InvalidValueError("from", str(path), "a run of this machine and software", remedy)
