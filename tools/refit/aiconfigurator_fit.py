"""Fits a device's overlay to the measured kernels of the package aiconfigurator-core (extra
`silicon`).

One surface per operator and number format, fitted to the four fifths of shapes that fits may see.
Its spread comes from a further split of those: the surface fitted to four fifths of them predicts
the rest. The class-wide parameters the surfaces correct are pinned in the overlay; after a change
of the cost model's formulas, fit again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from accelsim.calibration.overlay import write_overlay
from accelsim.confidence.quantiles import Z90
from accelsim.cost.fitted import FittedParameters, fitted_parameters
from accelsim.cost.gpu.gpu_parameters import GpuParameters
from accelsim.cost.gpu.surface import maker_name
from accelsim.cost.shape_surface import Surface
from accelsim.cost.table import ParameterTier
from accelsim.errors import InputError, InvalidValueError, UnknownNameError
from accelsim.hardware.profile import GpuProfile
from accelsim.scoreboard.names import gpu_of
from accelsim.scoreboard.split import held_out_rows
from accelsim.workloads.graph import FloatArray
from tools.refit.aiconfigurator_sample import Sample, samples_by_surface
from tools.refit.small_grids import compact_surfaces
from tools.refit.surface_fit import (
    CURVATURE,
    curvature_penalty,
    design_matrix,
    fit_surface_to_sums,
    huber_weights,
    knots_within,
    solve,
)
from tools.scoreboard.aiconfigurator_rows import (
    BACKENDS,
    KINDS,
    SYSTEMS,
    KernelRows,
    own_rows,
    preferred_rows,
    read_kernels,
    versions,
)

_POWERS = tuple(2.0**step for step in range(18))
#: Sizes of the surfaces' knots, in the order of `accelsim.cost.gpu.surface.AXES`.
#: Rounds of reweighting, and where the conjugate gradients of each stop.
_REWEIGHTINGS, _TOLERANCE = 4, 1e-4
LADDERS: dict[str, tuple[Sequence[float], ...]] = {
    "gemm": (_POWERS, _POWERS, _POWERS),
    "grouped_gemm": (_POWERS, _POWERS[:10], (2, 4, 8, 16, 64, 256), _POWERS[6:], _POWERS[6:]),
    "prefill": (_POWERS[::2], _POWERS[5:], _POWERS[::2], (64, 128, 192, 256)),
    "decode": (_POWERS[::2], _POWERS[4::2], _POWERS[:7], (64, 128, 192, 256)),
}
#: Axes of each term of the surfaces that are sums, and their curvature penalty: the one that
#: predicts the expert layers of models left out of the fit best.
_TERMS = {"grouped_gemm": ((0, 1, 2), (0, 1, 3), (0, 1, 4), (0, 3, 4), (1, 3, 4), (2, 3, 4))}
_SUM_CURVATURE = 0.3
_FEWEST_ROWS = 40
#: Stacks by the backend whose tables are of their kernels.
_MAKERS = {"tensorrt-llm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
#: Largest spread of unseen rows of a stack's own surface: tables that scatter more hold cells whose
#: tuning failed (TensorRT-LLM's BF16 layers of an H200: 0.26; those without such cells 0.02 to
#: 0.13).
_MOST_SPREAD = 0.2
_PREFIX, _SOURCE = "aiconfigurator", "aiconfigurator-core 0.12.0"


def parsed_request(spec: str) -> tuple[str, str | None, str | None]:
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


def parsed_requests(spec: str) -> list[str]:
    """The specs of one request: itself, or one per system with a GPU profile for
    ``aiconfigurator:all``.
    """
    if spec != f"{_PREFIX}:all":
        return [spec]
    return [f"{_PREFIX}:{system}" for system in SYSTEMS if _has_profile(system)]


def _has_profile(system: str) -> bool:
    try:
        gpu_of(system)
    except UnknownNameError:
        return False
    return True


def import_kernels(
    spec: str, out: Path | None = None, progress: Callable[[str], None] | None = None
) -> Path:
    """Fit the overlay of a system's device and write it; other surfaces and parameters of its
    overlay are kept.

    Args:
        spec: ``aiconfigurator:SYSTEM[:BACKEND[:VERSION]]``; every format from the preferred backend
            that has it where none is named.
        out: Folder of overlays; the user's where None.
        progress: Called with a line of text for each table.

    Returns:
        The file.

    Raises:
        MissingDependencyError: If the package is not installed.
        InvalidValueError: If `spec` has another form.
        UnknownNameError: If there is no such system, backend or version, or the catalogue lacks the
            device.
        InputError: If the system has no rows that can be fitted.
    """
    overlay = kernel_overlay(*parsed_request(spec), progress=progress)
    before = fitted_parameters(overlay.device)
    if before is not None:
        overlay = replace(
            overlay,
            parameters={**before.parameters, **overlay.parameters},
            families={**before.families, **overlay.families},
            surfaces={**before.surfaces, **overlay.surfaces},
            tier=before.tier,
        )
    return write_overlay(overlay, out)


def kernel_overlay(
    system: str,
    backend: str | None = None,
    version: str | None = None,
    progress: Callable[[str], None] | None = None,
    parameters: GpuParameters | None = None,
) -> FittedParameters:
    """The overlay fitted to a system's kernels; arguments and errors as of `import_kernels`."""
    profile = gpu_of(system)
    tables: dict[str, None] = {}

    def note(rows: KernelRows) -> None:
        tables[f"{rows.backend} {rows.version}"] = None
        if progress is not None:
            progress(f"{system}: {rows.kind} of {rows.backend} {rows.version}, {len(rows):,} rows")

    surfaces = kernel_surfaces(system, backend, version, parameters=parameters, progress=note)
    if backend is None:
        surfaces |= stack_surfaces(system, parameters=parameters, progress=note)
    if not surfaces:
        raise InputError(
            f"aiconfigurator-core has no kernels of {system} that {profile.name} can run."
        )
    return FittedParameters(
        device=profile.name,
        device_class="gpu",
        date=datetime.now(UTC).date().isoformat(),
        data=f"{_SOURCE}, kernels of {system}: {', '.join(tables)}; four fifths of the shapes",
        rows=sum(surface.rows for surface in surfaces.values()),
        parameters={},
        families={},
        surfaces=surfaces,
        pinned=_pinned(GpuParameters.class_wide() if parameters is None else parameters),
        tier=ParameterTier.MEASURED,
    )


def _pinned(parameters: GpuParameters) -> dict[str, float]:
    """Parameters a surface builds on: all numbers but the spreads."""
    numbers = parameters.numbers()
    return {name: value for name, value in numbers.items() if not name.startswith("spread.")}


def kernel_surfaces(
    system: str,
    backend: str | None = None,
    version: str | None = None,
    *,
    parameters: GpuParameters | None = None,
    progress: Callable[[KernelRows], None] | None = None,
) -> dict[str, Surface]:
    """Surfaces fitted to a system's kernels, by name.

    Args:
        system: One of `SYSTEMS`.
        backend: Backend; the preferred one of each format where None.
        version: Its version; the current one where None.
        parameters: What the surfaces correct; the class-wide ones where None.
        progress: Called with each table before it is fitted.

    Raises:
        MissingDependencyError: If the package is not installed.
        UnknownNameError: If there is no such system, backend or version, or the catalogue lacks the
            device.
    """
    profile = gpu_of(system)
    base = GpuParameters.class_wide() if parameters is None else parameters
    tables: list[KernelRows] = []
    for rows in _tables(system, backend, version):
        (progress or (lambda _rows: None))(rows)
        tables.append(rows)
    return _fitted(tables, profile, base)


def stack_surfaces(
    system: str,
    *,
    parameters: GpuParameters | None = None,
    progress: Callable[[KernelRows], None] | None = None,
) -> dict[str, Surface]:
    """Surfaces of the kernels that each serving stack brings itself, where those of the system come
    from another one; by `accelsim.cost.gpu.surface.maker_name`.

    Args:
        system: One of `SYSTEMS`.
        parameters: What the surfaces correct; the class-wide ones where None.
        progress: Called with each table before it is fitted.
    """
    profile = gpu_of(system)
    base = GpuParameters.class_wide() if parameters is None else parameters
    stack_surfaces: dict[str, Surface] = {}
    for maker, backend in _MAKERS.items():
        tables = list(own_rows(system, backend))
        for rows in tables:
            (progress or (lambda _rows: None))(rows)
        fitted = _fitted(tables, profile, base)
        stack_surfaces |= {
            maker_name(name, maker): surface
            for name, surface in fitted.items()
            if surface.log_sigma <= _MOST_SPREAD
        }
    return stack_surfaces


def _fitted(
    tables: Sequence[KernelRows], profile: GpuProfile, base: GpuParameters
) -> dict[str, Surface]:
    surfaces = {}
    for name, cells in samples_by_surface(tables, profile, base).items():
        sample = cells.seen()
        if len(sample.measured) >= _FEWEST_ROWS:
            surfaces[name] = _surface(sample, partial(_compact_or_smooth, cells=cells))
    return surfaces


def _tables(system: str, backend: str | None, version: str | None) -> Iterator[KernelRows]:
    if backend is None:
        for kind in KINDS:
            yield from preferred_rows(system, kind)
        return
    known = {kind: versions(system, kind, backend) for kind in KINDS}
    if version is not None and not any(version in names for names in known.values()):
        names = sorted({name for found in known.values() for name in found})
        raise UnknownNameError(
            f"{backend} version of {system}",
            version,
            names,
            f"Known: {', '.join(names) or 'none'}.",
        )
    for kind, found in known.items():
        if found and (version is None or version in found):
            yield read_kernels(system, backend, version, kind)


def _surface(sample: Sample, fit: Callable[[Sample], Sequence[Surface]]) -> Surface:
    """The surface of a sample, with the spread of rows it has not seen; of several, the one that
    predicts those best.
    """
    kept = held_out_rows([*sample.shapes, np.ones(len(sample.measured))])
    unseen, count = sample.take(kept), len(sample.measured)
    trials = fit(sample.take(~kept))
    missed = [_missed(trial, unseen) for trial in trials]
    best = int(np.argmin([np.median(errors) if len(errors) else 0.0 for errors in missed]))
    return replace(fit(sample)[best], log_sigma=_spread(missed[best]), rows=count)


def _missed(surface: Surface, unseen: Sample) -> FloatArray:
    """|ln(measured / predicted)|, shape (r,)."""
    missed: FloatArray = np.abs(np.log(unseen.measured / unseen.predict(surface)))
    return missed


def _spread(missed: FloatArray) -> float:
    return float(np.quantile(missed, 0.9)) / Z90 if len(missed) else 0.0


def _compact_or_smooth(sample: Sample, cells: Sample) -> list[Surface]:
    """Small tables as they are, others smoothed on the sizes of `LADDERS`."""
    return compact_surfaces(sample, cells) or _smooth(sample)


def _smooth(sample: Sample) -> list[Surface]:
    ladders = LADDERS[sample.operator]
    stages = [(place[: len(ladders)], time) for place, time in sample.stages]
    sizes = [
        np.concatenate(columns) for columns in zip(*(place for place, _ in stages), strict=True)
    ]
    knots = [knots_within(size, ladder) for size, ladder in zip(sizes, ladders, strict=True)]
    if len(stages) > 1:
        empty = Surface.empty(knots, _TERMS[sample.operator])
        return [fit_surface_to_sums(empty, stages, sample.fixed, sample.measured, _SUM_CURVATURE)]
    ((place, time),) = stages
    return [fit_surface(knots, place, np.log((sample.measured - sample.fixed) / time))]


def fit_surface(
    knots: Sequence[FloatArray],
    coordinates: Sequence[FloatArray],
    residual: FloatArray,
    curvature: float = CURVATURE,
) -> Surface:
    """The surface nearest to residuals.

    Args:
        knots: log2 knots of each axis.
        coordinates: log2 sizes of the rows, one column per axis, shape (r,) each.
        residual: ln(measured / modelled), shape (r,).
        curvature: Weight of the penalty on curvature against one row.
    """
    surface = Surface.empty(knots)
    design = design_matrix(surface, coordinates)
    penalty = curvature_penalty(surface.grids[0][1].shape, curvature)
    weight, values = np.ones(len(residual)), np.zeros(surface.flat.size)
    for _ in range(_REWEIGHTINGS):
        values = solve(design, weight, residual, penalty, values, _TOLERANCE)
        weight = huber_weights(residual - design @ values)
    return surface.with_flat(values)
