"""Tables of measured kernels completed on their own sizes: all for tier `measured`, the smallest
for overlays.

A table is completed twice: as departures from the model, and as departures from a power law in its
sizes, which serves better where the model has steps that the kernels lack. Which of the two holds,
or both by halves, a table tells itself: by the rows that a trial leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.calibration.surface_fit import fit_surface
from accelsim.cost.shape_surface import ShapeSurface, Surface
from accelsim.workloads.graph import FloatArray, IntArray
from tools.refit.aiconfigurator_sample import Sample
from tools.refit.kernel_table import KernelTable, tabulate
from tools.refit.layer_table import layer_surface

__all__ = ["compact_table", "completed_layers", "completed_table"]

#: Axes of the sparsest table that is still completed, and the part of it that must be measured.
_FEWEST_AXES = {"gemm": 3, "prefill": 4, "decode": 4}
_LEAST_FILLED = 0.1
#: Part of a compact table that has rows, and its most cells.
_LEAST_COMPACT, _MOST_COMPACT = 0.9, 4096
#: Shares of the power law against the model.
_SHARES = (0.0, 0.5, 1.0)
#: Part of a row's time that a fixed gap takes at most.
_MOST_GAP = 0.9
#: Most knots of each axis of a surface on a sparse table's sizes, and its curvature penalty: what
#: predicts held-out shapes of five boards best.
_MOST_KNOTS = {"gemm": (80, 24, 24), "prefill": (30, 20, 12, 4), "decode": (30, 20, 12, 4)}
_CURVATURE = {"gemm": 0.1, "prefill": 0.1, "decode": 0.05}


def completed_table(sample: Sample, cells: Sample) -> list[Surface]:
    """Surfaces through a table of single operators, one per share of the power law; one smooth one
    if most of it is open.

    Args:
        sample: Measured rows.
        cells: All rows of the table, in the time model's sizes; their measured times are not looked
            at.
    """
    ((place, _),) = sample.stages
    ((places, _),) = cells.stages
    table = _densest(_joined(place, places), _FEWEST_AXES[sample.operator])
    if table.filled_fraction() >= _LEAST_FILLED:
        return _through(table, sample, cells)
    knots = tuple(
        _own_knots(size, most)
        for size, most in zip(place, _MOST_KNOTS[sample.operator], strict=False)
    )
    return [fit_surface(knots, place, _residual(sample), _CURVATURE[sample.operator])]


def compact_table(sample: Sample, cells: Sample) -> list[Surface]:
    """The same of a table small enough for an overlay, of few sizes in all their combinations;
    empty where it is not.

    Args:
        sample: Measured rows.
        cells: All rows of the table.
    """
    if len(sample.stages) > 1:
        return []
    ((place, _),) = sample.stages
    ((places, _),) = cells.stages
    fewest = _FEWEST_AXES[sample.operator]
    table = tabulate(_joined(place[:fewest], places[:fewest]))
    is_whole = table.filled_fraction() >= _LEAST_COMPACT and table.cell_count == len(cells.measured)
    return (
        _through(table, sample, cells) if is_whole and np.prod(table.shape) <= _MOST_COMPACT else []
    )


def _through(table: KernelTable, sample: Sample, cells: Sample) -> list[Surface]:
    whole, departures = _departures(sample, cells, table)
    found = tuple(index[len(sample.measured) :] for index in table.index)
    axes = tuple(axis[:, 0] for axis in table.axes)
    return [ShapeSurface(axes, _with_cells(whole, found, departure)) for departure in departures]


def completed_layers(sample: Sample, cells: Sample, below: Surface) -> list[Surface]:
    """The same for a table of expert layers.

    Args:
        sample: Measured layers.
        cells: All layers of the table.
        below: Surface for layers unlike any of the table.
    """
    table = tabulate(_joined(sample.layers, cells.layers))
    _, departures = _departures(sample, cells, table)
    return [
        layer_surface(below, [place for place, _ in cells.stages], departure)
        for departure in departures
    ]


def _densest(columns: Sequence[FloatArray], fewest: int) -> KernelTable:
    """A table over the first few axes: as many as keep rows of different sizes apart and leave it
    filled well enough.
    """
    table = tabulate(columns[:fewest])
    for count in range(fewest + 1, len(columns) + 1):
        finer = tabulate(columns[:count])
        if finer.cell_count == table.cell_count or finer.filled_fraction() < _LEAST_FILLED:
            break
        table = finer
    return table


def _joined(rows: Sequence[FloatArray], others: Sequence[FloatArray]) -> list[FloatArray]:
    return [np.concatenate(pair) for pair in zip(rows, others, strict=True)]


def _residual(sample: Sample) -> FloatArray:
    """ln(measured / modelled) of what is corrected, shape (r,)."""
    residual: FloatArray = np.log((sample.measured - sample.fixed) / sample.modelled())
    return residual


def _departures(
    sample: Sample, cells: Sample, table: KernelTable
) -> tuple[FloatArray, list[FloatArray]]:
    """ln(time / modelled) of all places of a table, and of the cells for each share of the power
    law, shape (c,) each.
    """
    rows, unknown = len(sample.measured), np.full(len(cells.measured), np.nan)
    at_cells = tuple(place[rows:] for place in table.index)
    whole = table.completed(np.concatenate([_residual(sample), unknown]))
    sizes = np.column_stack(
        [axis[place] for axis, place in zip(table.axes, table.index, strict=True)]
    )
    design = np.column_stack([np.ones(len(sizes)), sizes])
    log_time = np.log(sample.measured)
    law = design @ np.linalg.lstsq(design[:rows], log_time, rcond=None)[0]
    off_law = table.completed(np.concatenate([log_time - law[:rows], unknown]))
    total = np.exp(law[rows:] + off_law[at_cells])
    fixed = np.minimum(cells.fixed, _MOST_GAP * total)
    ends = whole[at_cells], np.log((total - fixed) / cells.modelled())
    return whole, [(1.0 - share) * ends[0] + share * ends[1] for share in _SHARES]


def _with_cells(
    whole: FloatArray, found: tuple[IntArray, ...], departure: FloatArray
) -> FloatArray:
    """A table with the mean departure of the cells in their places."""
    flat = np.ravel_multi_index(found, whole.shape)
    count = np.bincount(flat, minlength=whole.size)
    mean = np.bincount(flat, weights=departure, minlength=whole.size) / np.maximum(count, 1)
    filled: FloatArray = np.where(count > 0, mean, whole.ravel()).reshape(whole.shape)
    return filled


def _own_knots(size: FloatArray, most: int) -> FloatArray:
    """The sizes there are, thinned evenly to at most `most`."""
    found = np.unique(np.round(size, 9))
    chosen: FloatArray = found[
        np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(np.int64))
    ]
    return chosen
