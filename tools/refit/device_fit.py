"""The overlay of one GPU: parameters, surfaces over the shape, dispatch times and residuals, from
its own operator rows.

Parameters come first (`accelsim.calibration.fit.parameter_fit`). What is left over the shape
becomes a surface per operator: the kernel's time is corrected, the time to issue it is not.
Residuals by family are of rows the surfaces have not seen: a fifth of the fit's own rows is kept
back for them, then the surfaces are fitted to all. An overlay holds the whole parameter set, so
that a later class-wide fit leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from accelsim.calibration.fit.cells import OperatorRows, limited
from accelsim.calibration.fit.gpu import log_residual
from accelsim.calibration.fit.parameter_fit import fit_parameters, is_throttled
from accelsim.calibration.fit.residuals import family_parts, family_residuals
from accelsim.confidence.quantiles import Z90
from accelsim.confidence.residual import FamilyResidual
from accelsim.cost.fitted import FittedParameters
from accelsim.cost.gpu import GpuParameters
from accelsim.cost.gpu.surface import coordinates, surface_rows
from accelsim.cost.shape_surface import Surface
from accelsim.cost.table import CostTable, Rows
from accelsim.errors import InputError
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.operator import OperatorKind
from tools.refit.surface_fit import fit_surface_to_sums, knots_within

_POWERS = tuple(2.0**step for step in range(32))
#: Sizes of the surfaces' knots, in the order of `accelsim.cost.gpu.surface.AXES`.
LADDERS: Mapping[str, tuple[Sequence[float], ...]] = {
    "gemm": (_POWERS[4:], _POWERS[4:], _POWERS[4:]),
    "batched_gemm": (_POWERS[::3], _POWERS[4:], _POWERS[4:], _POWERS[4:]),
    "conv": (_POWERS[::2], _POWERS[::2], _POWERS[::2], _POWERS[2:]),
    "rows": (_POWERS[::2], _POWERS),
    "stream": (_POWERS[::2],),
}
#: Rows per axis that a surface needs.
_FEWEST_ROWS = 100
#: Rows of a cell that parameters are fitted to; surfaces are fitted to all.
_PARAMETER_ROWS = 1500
#: Part of a row's time that issuing it may take at most, so that the rest stays above 0.
_MOST_ISSUE = 0.9
#: Length over the time to issue it from which on a call shows its kernel.
_VISIBLE = 1.5
_KEPT_BACK = 0.2
#: Points of a surface's grid per row from which on it is coarsened.
_MOST_POINTS_PER_ROW = 1.5


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """A fitted overlay.

    Attributes:
        overlay: What to write; the previous overlay is better kept where a stage did not converge.
        unconverged: Stages whose fit did not converge.
    """

    overlay: FittedParameters
    unconverged: tuple[str, ...]


def fit_device(
    device: str,
    cells: Sequence[OperatorRows],
    prior: GpuParameters | None = None,
    progress: Callable[[str], None] | None = None,
) -> DeviceFit:
    """Fit the overlay of one device.

    Args:
        device: Catalogue name.
        cells: Measured rows; those of other devices are left out.
        prior: Class-wide parameters; the shipped ones where None.
        progress: Called with a line of text before each stage.

    Raises:
        InputError: If there are no rows of the device.
    """
    own = [cell for cell in cells if cell.device.name == device]
    if not own:
        raise InputError(f"No rows of {device} that a fit may use.")
    start = GpuParameters.class_wide() if prior is None else prior
    drawn = limited(own, _PARAMETER_ROWS, np.random.default_rng(0))
    parameters, unconverged = fit_parameters(drawn, replace(start, families={}), progress)
    families, useful = unseen_residuals(own, parameters)
    surfaces = {
        name: surface for name, surface in _surfaces(own, parameters).items() if name in useful
    }
    overlay = FittedParameters(
        device=device,
        device_class="gpu",
        date=datetime.now(UTC).date().isoformat(),
        data="; ".join(dict.fromkeys(cell.source for cell in own)),
        rows=sum(map(len, own)),
        parameters=parameters.numbers(),
        families=families,
        surfaces=surfaces,
    )
    return DeviceFit(overlay, tuple(unconverged))


def unseen_residuals(
    cells: Sequence[OperatorRows], parameters: GpuParameters
) -> tuple[dict[str, FamilyResidual], frozenset[str]]:
    """Residuals by family of a fifth of the rows under surfaces fitted to the rest, and the
    surfaces that help there.

    Args:
        cells: Measured rows of one device.
        parameters: Its parameters, without surfaces.
    """
    random = np.random.default_rng(0)
    kept = [random.random(len(cell)) < _KEPT_BACK for cell in cells]
    seen = [cell.take(~mask) for cell, mask in zip(cells, kept, strict=True)]
    unseen = [cell.take(mask) for cell, mask in zip(cells, kept, strict=True)]
    trial = replace(parameters, surfaces=_useful(_surfaces(seen, parameters), unseen, parameters))
    parts = [part for cell in unseen if len(cell) for part in family_parts(cell, trial)]
    return family_residuals(parts), frozenset(trial.surfaces)


def _surfaces(cells: Iterable[OperatorRows], parameters: GpuParameters) -> dict[str, Surface]:
    """One surface per operator that has enough rows timed one by one."""
    samples: dict[str, list[_Sample]] = {}
    for cell in cells:
        if not (len(cell) and cell.is_eager):
            continue
        if cell.graph.kind[0] == OperatorKind.GEMM and is_throttled(cell, parameters):
            continue
        costs, trailing_s = _timed(cell, parameters)
        fixed = np.minimum(costs.dispatch_s - trailing_s, _MOST_ISSUE * cell.measured_s)
        rows = _rows(cell)
        for name, operator, index in _visible(cell, parameters):
            place = [column[index] for column in coordinates(rows, operator)]
            columns = (costs.time_s[index], fixed[index], cell.measured_s[index])
            samples.setdefault(name, []).append((place, np.stack(columns)))
    return {
        name: _surface(name, parts)
        for name, parts in samples.items()
        if sum(columns.shape[1] for _, columns in parts) >= _FEWEST_ROWS * len(parts[0][0])
    }


def _rows(cell: OperatorRows) -> Rows:
    return Rows(cell.graph, np.arange(len(cell)), OperatorKind(int(cell.graph.kind[0])))


def _timed(cell: OperatorRows, parameters: GpuParameters) -> tuple[CostTable, FloatArray]:
    """Costs of a cell, and what of the time to issue its rows lies after the launch."""
    costs = cell.kernels.costs(parameters)
    return costs, np.minimum(cell.kernels.trailing_s(parameters), costs.dispatch_s)


def _visible(cell: OperatorRows, parameters: GpuParameters) -> Iterator[tuple[str, str, IntArray]]:
    """Name and operator of each surface, and its rows whose time says something of the kernel, not
    of the call alone.
    """
    costs, trailing_s = _timed(cell, parameters)
    is_longer = costs.time_s > trailing_s
    shows_kernel = is_longer | (cell.measured_s > _VISIBLE * costs.dispatch_s)
    for name, (operator, every) in surface_rows(_rows(cell)).items():
        yield name, operator, every[shows_kernel[every]]


def _useful(
    surfaces: Mapping[str, Surface], unseen: Iterable[OperatorRows], parameters: GpuParameters
) -> dict[str, Surface]:
    """Surfaces that bring rows they have not seen closer."""
    missed: dict[str, list[FloatArray]] = {}
    corrected = replace(parameters, surfaces=surfaces)
    for cell in unseen:
        if len(cell) and cell.is_eager:
            both = [np.abs(log_residual(cell, given)) for given in (parameters, corrected)]
            for name, _, index in _visible(cell, parameters):
                missed.setdefault(name, []).append(np.stack(both)[:, index])
    useful = {}
    for name, parts in missed.items():
        before, after = np.median(np.concatenate(parts, axis=1), axis=1)
        if name in surfaces and after < before:
            useful[name] = surfaces[name]
    return useful


#: Coordinates of rows, and their kernels' times, the rest of the model's and the measured ones.
_Sample = tuple[list[FloatArray], FloatArray]


def _surface(name: str, parts: Sequence[_Sample]) -> Surface:
    place = [np.concatenate(columns) for columns in zip(*(part[0] for part in parts), strict=True)]
    time_s, fixed, measured = np.concatenate([part[1] for part in parts], axis=1)
    empty = Surface.empty(_knots(place, LADDERS[name.partition(" ")[0]]))
    surface = fit_surface_to_sums(empty, [(place, time_s)], fixed, measured)
    missed = np.abs(np.log(measured / (fixed + time_s * np.exp(surface(place)))))
    return replace(surface, log_sigma=float(np.quantile(missed, 0.9)) / Z90, rows=len(measured))


def _knots(place: Sequence[FloatArray], ladders: Sequence[Sequence[float]]) -> list[FloatArray]:
    """Knots of each axis; every second one where rows are too few for all."""
    full = [knots_within(column, ladder) for column, ladder in zip(place, ladders, strict=True)]
    if np.prod([len(axis) for axis in full]) <= _MOST_POINTS_PER_ROW * len(place[0]):
        return full
    return [
        knots_within(column, ladder[::2]) for column, ladder in zip(place, ladders, strict=True)
    ]
