"""Tables of measured kernels small enough to be kept whole, completed on their own sizes.

A table is completed twice: as departures from the model, and as departures from a power law in its
sizes, which serves better where the model has steps that the kernels lack. Which of the two holds,
or both by halves, a table tells itself: by the rows that a trial leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accelsim.cost.shape_surface import Surface
from accelsim.workloads.graph import FloatArray, IntArray
from tools.refit.aiconfigurator_sample import Sample
from tools.refit.grid_completion import KernelGrid, tabulate

#: Axes of a table of each operator.
_AXES = {"gemm": 3, "prefill": 4, "decode": 4}
#: Part of a compact table that has rows, and its most cells.
_LEAST_COMPACT, _MOST_COMPACT = 0.9, 4096
#: Shares of the power law against the model.
_SHARES = (0.0, 0.5, 1.0)
#: Part of a row's time that a fixed gap takes at most.
_MOST_GAP = 0.9


def compact_surfaces(sample: Sample, cells: Sample) -> list[Surface]:
    """Surfaces through a table of few sizes in all their combinations, one per share of the power
    law; empty where the table is none.

    Args:
        sample: Measured rows.
        cells: All rows of the table, in the time model's sizes; their measured times are not looked
            at.
    """
    if len(sample.stages) > 1:
        return []
    ((place, _),) = sample.stages
    ((places, _),) = cells.stages
    count = _AXES[sample.operator]
    table = tabulate(_joined(place[:count], places[:count]))
    is_dense = table.filled_fraction() >= _LEAST_COMPACT
    is_apart = table.cell_count == len(cells.measured)
    if not (is_dense and is_apart and np.prod(table.shape) <= _MOST_COMPACT):
        return []
    return _through(table, sample, cells)


def _through(table: KernelGrid, sample: Sample, cells: Sample) -> list[Surface]:
    whole, departures = _departures(sample, cells, table)
    places = tuple(index[len(sample.measured) :] for index in table.index)
    axes = tuple(axis[:, 0] for axis in table.axes)
    return [
        Surface.of_values(axes, _with_cells(whole, places, departure)) for departure in departures
    ]


def _joined(rows: Sequence[FloatArray], others: Sequence[FloatArray]) -> list[FloatArray]:
    return [np.concatenate(pair) for pair in zip(rows, others, strict=True)]


def _residual(sample: Sample) -> FloatArray:
    """ln(measured / modelled) of what is corrected, shape (r,)."""
    residual: FloatArray = np.log((sample.measured - sample.fixed) / sample.modelled())
    return residual


def _departures(
    sample: Sample, cells: Sample, table: KernelGrid
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
