"""Fits a GPU's overlay to a calibration run: kernels from replayed graphs, issue times from eager
calls, copies, residuals.

A block of eager calls takes the longer of the host's pace and the kernels; a replayed graph takes
the kernels and the gaps between them. Parameters of kernels are therefore fitted to graphs, with
the stages that fit every other GPU, from the parameters that ship for the device. The time to issue
a call is that of eager calls whose kernel takes less than half of it. One shape in five is left out
of the fit; errors and spreads are of those.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby

import numpy as np

from accelsim import catalog
from accelsim.calibration.fit.cells import OperatorRows, TimedKernels, unchained
from accelsim.calibration.fit.dispatch import FIT
from accelsim.calibration.fit.gpu import log_residual
from accelsim.calibration.fit.parameter_fit import fit_parameters
from accelsim.calibration.fit.power import fit_power
from accelsim.calibration.fit.residuals import family_parts, family_residuals
from accelsim.calibration.held_out import ErrorGroup, HeldOut
from accelsim.calibration.least_squares import fit_nonnegative
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.noise import refuse_noise
from accelsim.calibration.run_file import CalibrationRun, Measurement, measured_graph
from accelsim.cost.fitted import FittedParameters, read_fitted
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.table import Execution
from accelsim.errors import InvalidValueError
from accelsim.files.datafile import data_root
from accelsim.frozen import frozen
from accelsim.hardware.profile import GpuProfile
from accelsim.plain import Document, Values

_FEWEST_ROWS = 100
#: A call whose kernel takes less than this part of its time is bound by the host.
_HOST_BOUND = 0.5
_BYTES_PER_ELEMENT = 4.0


@frozen(eq=False)
class GpuCalibration:
    """A fitted GPU.

    Attributes:
        overlay: What to write.
        errors: Held-out errors by family and format: rows as `calibrate.operator_errors` gives
            them.
        unconverged: Stages that keep their former values.
        run: The run.
        held_out: The rows that the errors are of.
    """

    overlay: FittedParameters
    errors: list[Document]
    unconverged: tuple[str, ...]
    run: CalibrationRun
    held_out: HeldOut


def gpu_profile(environment: Values, name: str = "") -> GpuProfile:
    """Profile of the GPU a run was measured on: the catalogue's or the user's.

    Args:
        environment: As the run recorded it.
        name: Catalogue name; by the product name the driver gave where empty.

    Raises:
        InvalidValueError: If there is no such GPU in the catalogue.
    """
    product = str(environment.get("device_name"))
    gpu_profile = catalog.device(name) if name else catalog.product_device(product)
    if not isinstance(gpu_profile, GpuProfile):
        remedy = (
            "Give its catalogue name with --name, or write a profile of it (see docs/devices.md)."
        )
        raise InvalidValueError(
            "name" if name else "device_name", name or product, "a GPU of the catalogue", remedy
        )
    return gpu_profile


def shipped_parameters(profile: GpuProfile) -> GpuParameters:
    """What accelsim ships for a GPU, whatever the user has fitted: a calibration starts there each
    time.
    """
    base = GpuParameters.class_wide()
    path = data_root() / "calibration" / "fitted" / f"{profile.name}.yaml"
    return base.with_overlay(read_fitted(path)) if path.is_file() else base


def fit_gpu_run(
    run: CalibrationRun, profile: GpuProfile, *, despite_noise: bool = False
) -> GpuCalibration:
    """Fit a GPU's parameters to a run.

    Args:
        run: A run on a GPU.
        profile: Its profile.
        despite_noise: Fit even where the GPU was busy.

    Raises:
        InvalidValueError: If the run is a CPU's, has too few rows, or the GPU was too busy.
    """
    rows = _kernel_rows(run, despite_noise=despite_noise)
    replayed = _replayed(rows)
    prior = replace(shipped_parameters(profile), families={})
    prior = prior.with_values(fit_power(run.rows, profile, prior))
    fitted_cells = _cells([row for row in replayed if row.case.fold], profile, run.source)
    fitted, unconverged = fit_parameters(fitted_cells, prior)
    parameters = fitted.with_values({**_issue_times(rows), **_copies(run, profile)})
    left_out = [row for row in replayed if not row.case.fold]
    held_out_cells = _cells(left_out, profile, run.source)
    parts = chain.from_iterable(family_parts(cell, parameters) for cell in held_out_cells)
    held_out = _held_out(left_out, held_out_cells, parameters)
    overlay = FittedParameters(
        device=profile.name,
        device_class="gpu",
        date=run.date,
        data=run.source,
        rows=len(rows),
        parameters=parameters.numbers(),
        families=family_residuals(parts),
        surfaces=parameters.surfaces,
        held_out=held_out.error(),
    )
    errors = held_out.error_rows(_error_groups)
    return GpuCalibration(overlay, errors, tuple(unconverged), run, held_out)


def _kernel_rows(run: CalibrationRun, *, despite_noise: bool) -> list[Measurement]:
    """The best rows of kernels, of a run that may be fitted."""
    if not run.is_of_gpu:
        raise InvalidValueError("device", run.settings.get("device"), "a run measured on a GPU")
    if not despite_noise:
        refuse_noise(run)
    return [row for row in run.best().values() if row.row is not None]


def _held_out(
    rows: Sequence[Measurement], cells: Sequence[OperatorRows], parameters: GpuParameters
) -> HeldOut:
    """Rows beside the predictions of their cells, which stand in the rows' order."""
    return HeldOut(
        [row.case for row in rows],
        np.concatenate([cell.measured_s for cell in cells]),
        np.concatenate([log_residual(cell, parameters) for cell in cells]),
    )


def _replayed(rows: Sequence[Measurement]) -> list[Measurement]:
    """Rows of replayed graphs, those of one operator and format together; compiled operators have
    names of their own.
    """
    replayed = [row for row in rows if row.case.execution in {"graph", "compiled"}]
    if len(replayed) < _FEWEST_ROWS:
        remedy = "Give a larger --budget. Cases that could not be captured say why in the run file."
        raise InvalidValueError(
            "rows", len(replayed), f"at least {_FEWEST_ROWS} kernels timed in graphs", remedy
        )
    return sorted(replayed, key=_group)


def _group(row: Measurement) -> tuple[str, str, str]:
    return row.case.family, row.case.operator, row.case.dtype


def _cells(rows: Sequence[Measurement], profile: GpuProfile, source: str) -> list[OperatorRows]:
    """Cells of rows that `_replayed` gave, in their order."""
    cells = []
    for (family, _, _), group in groupby(rows, _group):
        members = list(group)
        execution = Execution(members[0].case.execution)
        graph = unchained(measured_graph(members), slice(None))
        measured_s = np.array([row.time_s for row in members], dtype=np.float64)
        cells.append(
            OperatorRows(family, source, TimedKernels(graph, profile, execution), measured_s)
        )
    return cells


def _issue_times(rows: Sequence[Measurement]) -> dict[str, float]:
    """Median time of eager calls that the host's pace bounds, by parameter; those without such
    calls keep their value.
    """
    kernel = {_key(row.case): row.time_s or np.inf for row in rows if row.case.execution == "graph"}
    issue_times = {}
    for name, operators in FIT["issue_times"].items():
        eager = [
            row
            for row in rows
            if row.case.execution == "eager" and row.case.operator in operators["run"]
        ]
        times = [
            row.time_s
            for row in eager
            if row.time_s and kernel.get(_key(row.case), np.inf) < _HOST_BOUND * row.time_s
        ]
        if times:
            issue_times[name] = statistics.median(times)
    return issue_times


def _key(case: Case) -> tuple[str, str]:
    return case.label, case.dtype


def _copies(run: CalibrationRun, profile: GpuProfile) -> dict[str, float]:
    """Latency and rate of copies over the host link; unchanged where the link or the copies are
    unknown.

    Latency and rate of a line (Hockney, Parallel Computing 20, 1994).
    """
    rows = [row for row in run.best().values() if row.case.family == "transfer" and row.time_s]
    if len(rows) < 4 or profile.host_link is None:
        return {}
    moved = np.array([_BYTES_PER_ELEMENT * row.case.shape["elements"] for row in rows])
    times = np.array([row.time_s for row in rows], dtype=np.float64)
    latency, per_byte = fit_nonnegative(
        np.stack([np.ones(len(rows)), moved], axis=1), times
    ).tolist()
    if per_byte <= 0:
        return {}
    efficiency = 1.0 / (per_byte * profile.host_link.bandwidth_bytes_per_s.value)
    return {"host.copy_latency_s": latency, "host.link_efficiency": min(efficiency, 1.0)}


def _error_groups(case: Case) -> tuple[ErrorGroup, ...]:
    return (0, case.family, case.dtype), (0, "all", case.dtype), (0, "all", "all")
