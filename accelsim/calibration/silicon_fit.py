"""Fits a device's overlay to the measured kernels of the package aiconfigurator-core (extra `silicon`).

One surface per operator and number format, fitted to the four fifths of shapes that fits may see. Its spread comes from a
further split of those: the surface fitted to four fifths of them predicts the rest. The class-wide parameters the surfaces
correct are pinned in the overlay; after a change of the cost model's formulas, fit again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accelsim.calibration.overlay import write_overlay
from accelsim.calibration.silicon import BACKENDS, KINDS, SYSTEMS, SiliconRows, preferred_rows, read_silicon, versions
from accelsim.calibration.silicon_graph import KernelGraph, kernel_graphs
from accelsim.calibration.split import held_out_rows
from accelsim.calibration.surface_fit import fit_surface, fit_surface_to_sums, knots_within
from accelsim.calibration.validation.names import gpu_of
from accelsim.cost.fitted import FittedParameters, fitted_parameters
from accelsim.cost.gpu import cost_gpu
from accelsim.cost.gpu.parameters import GpuParameters, LoopConditions
from accelsim.cost.gpu.surface import coordinates, surface_rows
from accelsim.cost.shape_surface import Surface, SurfaceSum
from accelsim.cost.table import CostTable, Execution, Rows
from accelsim.errors import InputError, InvalidValueError, UnknownNameError, UnsupportedOperatorError
from accelsim.hardware.profile import GpuProfile
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.operator import OperatorKind

__all__ = ["LADDERS", "import_silicon", "silicon_overlay", "silicon_spec", "silicon_specs", "silicon_surfaces"]

_POWERS = tuple(2.0**step for step in range(18))
#: Sizes of the surfaces' knots, in the order of `accelsim.cost.gpu.surface.AXES`.
LADDERS: dict[str, tuple[Sequence[float], ...]] = {
    "gemm": (_POWERS, _POWERS, _POWERS),
    "grouped_gemm": (_POWERS, _POWERS[:10], (2, 4, 8, 16, 64, 256), _POWERS[6:], _POWERS[6:]),
    "prefill": (_POWERS[::2], _POWERS[5:], _POWERS[::2], (64, 128, 192, 256)),
    "decode": (_POWERS[::2], _POWERS[4::2], _POWERS[:7], (64, 128, 192, 256)),
}
#: Axes of each term of the surfaces that are sums, and their curvature penalty: the one that predicts the expert layers of
#: models left out of the fit best.
_TERMS = {"grouped_gemm": ((0, 1, 2), (0, 1, 3), (0, 1, 4), (0, 3, 4), (1, 3, 4), (2, 3, 4))}
_SUM_CURVATURE = 0.3
#: Most knots of each axis of a dense surface, and its curvature penalty: what predicts held-out shapes of five boards best.
_MOST_KNOTS = {"gemm": (80, 24, 24), "prefill": (30, 20, 12, 4), "decode": (30, 20, 12, 4)}
_DENSE_CURVATURE = {"gemm": 0.1, "prefill": 0.1, "decode": 0.05}
_FEWEST_ROWS = 40
#: Part of a row's time that a fixed gap between kernels may take at most, so that a residual stays finite.
_MOST_GAP = 0.9
#: The 90th percentile of a normal distribution's absolute value, in standard deviations.
_P90 = 1.645
_PREFIX, _SOURCE = "aiconfigurator", "aiconfigurator-core 0.12.0"


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """Rows of one surface: corrected stages, what comes beside them, and the measured time."""

    operator: str
    stages: list[tuple[list[FloatArray], FloatArray]]
    fixed: FloatArray
    measured: FloatArray
    shapes: list[FloatArray]

    def take(self, rows: NDArray[np.bool_]) -> _Sample:
        stages = [([column[rows] for column in place], time[rows]) for place, time in self.stages]
        return _Sample(
            self.operator, stages, self.fixed[rows], self.measured[rows], [column[rows] for column in self.shapes]
        )

    def join(self, other: _Sample) -> _Sample:
        stages = [
            ([np.concatenate(pair) for pair in zip(a[0], b[0], strict=True)], np.concatenate([a[1], b[1]]))
            for a, b in zip(self.stages, other.stages, strict=True)
        ]
        shapes = [np.concatenate(pair) for pair in zip(self.shapes, other.shapes, strict=True)]
        fixed, measured = np.concatenate([self.fixed, other.fixed]), np.concatenate([self.measured, other.measured])
        return _Sample(self.operator, stages, fixed, measured, shapes)

    def predict(self, surface: Surface) -> FloatArray:
        """Times with a surface, shape (r,)."""
        corrected = [time * np.exp(surface(place)) for place, time in self.stages]
        total: FloatArray = self.fixed + np.sum(corrected, axis=0)
        return total


def silicon_spec(spec: str) -> tuple[str, str | None, str | None]:
    """System, backend and version of ``aiconfigurator:SYSTEM[:BACKEND[:VERSION]]``.

    Raises:
        InvalidValueError: If the text has another form.
        UnknownNameError: If there is no such system or backend.
    """
    source, _, rest = spec.partition(":")
    parts = rest.split(":")
    if source != _PREFIX or not rest or len(parts) > 3:
        raise InvalidValueError("--import", spec, "aiconfigurator:SYSTEM[:BACKEND[:VERSION]]")
    for what, known, given in zip(("system", "backend"), (SYSTEMS, BACKENDS), parts, strict=False):
        if given not in known:
            raise UnknownNameError(what, given, known, f"Known: {', '.join(known)}.")
    backend, version = ([*parts[1:], None, None])[:2]
    return parts[0], backend, version


def silicon_specs(spec: str) -> list[str]:
    """The specs of one request: itself, or one per system with a GPU profile for ``aiconfigurator:all``."""
    if spec != f"{_PREFIX}:all":
        return [spec]
    return [f"{_PREFIX}:{system}" for system in SYSTEMS if _has_profile(system)]


def _has_profile(system: str) -> bool:
    try:
        gpu_of(system)
    except UnknownNameError:
        return False
    return True


def import_silicon(spec: str, out: Path | None = None, progress: Callable[[str], None] | None = None) -> Path:
    """Fit the overlay of a system's device and write it; other surfaces and parameters of its overlay are kept.

    Args:
        spec: ``aiconfigurator:SYSTEM[:BACKEND[:VERSION]]``; every format from the preferred backend that has it where none
            is named.
        out: Folder of overlays; the user's where None.
        progress: Called with a line of text for each table.

    Returns:
        The file.

    Raises:
        MissingDependencyError: If the package is not installed.
        InvalidValueError: If `spec` has another form.
        UnknownNameError: If there is no such system, backend or version, or the catalogue lacks the device.
        InputError: If the system has no rows that can be fitted.
    """
    overlay = silicon_overlay(*silicon_spec(spec), progress=progress)
    before = fitted_parameters(overlay.device)
    if before is not None:
        overlay = replace(
            overlay,
            parameters={**before.parameters, **overlay.parameters},
            families={**before.families, **overlay.families},
            surfaces={**before.surfaces, **overlay.surfaces},
        )
    return write_overlay(overlay, out)


def silicon_overlay(
    system: str,
    backend: str | None = None,
    version: str | None = None,
    progress: Callable[[str], None] | None = None,
    parameters: GpuParameters | None = None,
) -> FittedParameters:
    """The overlay fitted to a system's kernels; arguments and errors as of `import_silicon`."""
    profile = gpu_of(system)
    tables: dict[str, None] = {}

    def note(rows: SiliconRows) -> None:
        tables[f"{rows.backend} {rows.version}"] = None
        if progress is not None:
            progress(f"{system}: {rows.kind} of {rows.backend} {rows.version}, {len(rows):,} rows")

    surfaces = silicon_surfaces(system, backend, version, parameters=parameters, progress=note)
    if not surfaces:
        raise InputError(f"aiconfigurator-core has no kernels of {system} that {profile.name} can run.")
    return FittedParameters(
        device=profile.name,
        device_class="gpu",
        date=datetime.now(UTC).date().isoformat(),
        data=f"{_SOURCE}, kernels of {system}: {', '.join(tables)}; four fifths of the shapes",
        rows=sum(surface.rows for surface in surfaces.values()),
        parameters={},
        families={},
        surfaces=surfaces,
        pinned=_numbers(GpuParameters.class_wide() if parameters is None else parameters),
    )


def _numbers(parameters: GpuParameters) -> dict[str, float]:
    """Parameters a surface builds on: all numbers but the spreads."""
    values = {entry.name: getattr(parameters, entry.name) for entry in fields(parameters)}
    return {name: value for name, value in values.items() if type(value) is float and not name.startswith("sigma_")}


def silicon_surfaces(
    system: str,
    backend: str | None = None,
    version: str | None = None,
    *,
    parameters: GpuParameters | None = None,
    dense: bool = False,
    progress: Callable[[SiliconRows], None] | None = None,
) -> dict[str, Surface]:
    """Surfaces fitted to a system's kernels, by name.

    Args:
        system: One of `SYSTEMS`.
        backend: Backend; the preferred one of each format where None.
        version: Its version; the current one where None.
        parameters: What the surfaces correct; the class-wide ones where None.
        dense: Whether GEMM and attention surfaces have knots at the table's own sizes instead of `LADDERS`.
        progress: Called with each table before it is fitted.

    Raises:
        MissingDependencyError: If the package is not installed.
        UnknownNameError: If there is no such system, backend or version, or the catalogue lacks the device.
    """
    profile = gpu_of(system)
    base = GpuParameters.class_wide() if parameters is None else parameters
    samples: dict[str, _Sample] = {}
    for rows in _tables(system, backend, version):
        (progress or (lambda _rows: None))(rows)
        for kernels in kernel_graphs(rows.take(~rows.held_out)):
            for name, sample in _samples(kernels, profile, base):
                samples[name] = samples[name].join(sample) if name in samples else sample
    return {
        name: _surface(sample, dense=dense) for name, sample in samples.items() if len(sample.measured) >= _FEWEST_ROWS
    }


def _tables(system: str, backend: str | None, version: str | None) -> Iterator[SiliconRows]:
    if backend is None:
        for kind in KINDS:
            yield from preferred_rows(system, kind)
        return
    known = {kind: versions(system, kind, backend) for kind in KINDS}
    if version is not None and not any(version in names for names in known.values()):
        names = sorted({name for found in known.values() for name in found})
        raise UnknownNameError(
            f"{backend} version of {system}", version, names, f"Known: {', '.join(names) or 'none'}."
        )
    for kind, found in known.items():
        if found and (version is None or version in found):
            yield read_silicon(system, backend, version, kind)


def _samples(kernels: KernelGraph, profile: GpuProfile, base: GpuParameters) -> Iterable[tuple[str, _Sample]]:
    """Samples of a graph's rows by surface; none where the device lacks the format."""
    parameters = kernels.measured(replace(base, surfaces={}), profile)
    try:
        costs = cost_gpu(kernels.graph, profile, Execution.GRAPH, parameters)
    except UnsupportedOperatorError:
        return
    if kernels.stages > 1:
        yield _layer_sample(kernels, costs, parameters.conditions)
        return
    rows = Rows(kernels.graph, np.arange(len(kernels.rows)), OperatorKind(int(kernels.graph.kind[0])))
    measured, shapes = kernels.rows.time_s, list(kernels.rows.sizes.values())
    for name, (operator, index) in surface_rows(rows).items():
        place = [column[index] for column in coordinates(rows, operator)]
        fixed = np.minimum(costs.dispatch_s, _MOST_GAP * measured)[index]
        yield (
            name,
            _Sample(operator, [(place, costs.time_s[index])], fixed, measured[index], [size[index] for size in shapes]),
        )


def _layer_sample(kernels: KernelGraph, costs: CostTable, conditions: LoopConditions | None) -> tuple[str, _Sample]:
    """A row of several operators: its GEMMs are corrected, what lies beside them is not."""
    count = len(kernels.rows)
    kinds = kernels.graph.kind.reshape(kernels.stages, count)[:, 0]
    times = costs.time_s.reshape(kernels.stages, count)
    corrected = np.isin(kinds, [int(kind) for kind in (OperatorKind.GEMM, OperatorKind.GROUPED_GEMM)])
    stages, name, operator = [], "", ""
    for stage in np.flatnonzero(corrected).tolist():
        rows = Rows(kernels.graph, np.arange(stage * count, (stage + 1) * count), OperatorKind(int(kinds[stage])))
        name, (operator, _) = next(iter(surface_rows(rows).items()))
        stages.append((coordinates(rows, operator, conditions), times[stage]))
    beside = times[~corrected].sum(axis=0) + kernels.sum_stages(costs.dispatch_s)
    measured = kernels.rows.time_s
    fixed = np.minimum(beside, _MOST_GAP * measured)
    return name, _Sample(operator, stages, fixed, measured, list(kernels.rows.sizes.values()))


def _surface(sample: _Sample, *, dense: bool) -> Surface:
    """The surface of a sample, with the spread of rows it has not seen."""
    kept = held_out_rows([*sample.shapes, np.ones(len(sample.measured))])
    trial = _fitted(sample.take(~kept), dense=dense)
    unseen = sample.take(kept)
    missed = np.abs(np.log(unseen.measured / unseen.predict(trial)))
    spread = float(np.quantile(missed, 0.9)) / _P90 if len(missed) else 0.0
    return _fitted(sample, dense=dense).with_evidence(spread, len(sample.measured))


def _fitted(sample: _Sample, *, dense: bool) -> Surface:
    sizes = [np.concatenate(columns) for columns in zip(*(place for place, _ in sample.stages), strict=True)]
    if len(sample.stages) > 1:
        knots = [knots_within(size, ladder) for size, ladder in zip(sizes, LADDERS[sample.operator], strict=True)]
        empty = SurfaceSum.empty(knots, _TERMS[sample.operator])
        return fit_surface_to_sums(empty, sample.stages, sample.fixed, sample.measured, _SUM_CURVATURE)
    ((place, time),) = sample.stages
    residual = np.log((sample.measured - sample.fixed) / time)
    if dense:
        knots = [_own_knots(size, most) for size, most in zip(sizes, _MOST_KNOTS[sample.operator], strict=True)]
        return fit_surface(knots, place, residual, _DENSE_CURVATURE[sample.operator])
    knots = [knots_within(size, ladder) for size, ladder in zip(sizes, LADDERS[sample.operator], strict=True)]
    return fit_surface(knots, place, residual)


def _own_knots(size: FloatArray, most: int) -> FloatArray:
    """The sizes there are, thinned evenly to at most `most`."""
    found = np.unique(np.round(size, 9))
    chosen: FloatArray = found[
        np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(np.int64))
    ]
    return chosen
