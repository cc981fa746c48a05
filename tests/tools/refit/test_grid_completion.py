"""Completion of kernel tables: steps that smoothness cannot see, scatter, outliers, open cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.refit.grid_completion import tabulate


@pytest.fixture
def stepped():
    """A table of 24 x 14 x 10 sizes whose departures step with each size in an order that sizes do
    not tell.
    """
    rng = np.random.default_rng(7)
    axes = [np.sort(rng.uniform(0, 12, count)) for count in (24, 14, 10)]
    place = [column.ravel() for column in np.meshgrid(*axes, indexing="ij")]
    kinds = [rng.integers(0, 3, len(axis)) for axis in axes]
    effect = rng.normal(0, 0.2, (3, 3, 3))
    index = np.meshgrid(*(np.arange(len(axis)) for axis in axes), indexing="ij")
    truth = effect[tuple(kind[i.ravel()] for kind, i in zip(kinds, index, strict=True))]
    residual = truth + rng.normal(0, 0.02, len(truth))
    return place, residual, truth, rng.random(len(truth)) < 0.25


def test_open_cells_follow_sizes_that_behave_alike_not_neighbours(stepped) -> None:
    place, residual, truth, is_open = stepped
    table = tabulate(place)
    completed = table.completed(np.where(is_open, np.nan, residual))[table.index]
    missed = np.abs(completed - truth)[is_open]
    assert np.median(missed) < 0.015
    # the nearest measured cell is off by a whole step wherever the kernel changes
    points = np.stack(place, axis=1)
    nearest = [
        np.argmin(((points[~is_open] - point) ** 2).sum(axis=1)) for point in points[is_open]
    ]
    assert np.mean(np.abs(residual[~is_open][nearest] - truth[is_open])) > 5 * np.mean(missed)


def test_scatter_of_measured_cells_is_taken_out(stepped) -> None:
    place, residual, truth, _ = stepped
    table = tabulate(place)
    completed = table.completed(residual)[table.index]
    assert np.std(completed - truth) < 0.5 * np.std(residual - truth)


def test_outliers_stay_where_they_are(stepped) -> None:
    place, residual, truth, is_open = stepped
    table = tabulate(place)
    known = np.where(is_open, np.nan, residual)
    known[np.flatnonzero(~is_open)[::25]] += 2.0
    missed = np.abs(table.completed(known)[table.index] - truth)[is_open]
    assert np.median(missed) < 0.03


def test_rows_of_one_cell_are_averaged_and_axes_of_one_size_are_carried_along() -> None:
    sizes = np.repeat(np.arange(8.0), 4)
    residual = 0.3 + 0.1 * sizes + np.tile([-0.05, 0.05, -0.02, 0.02], 8)
    table = tabulate([sizes, np.full(32, 3.0)])
    assert table.shape == (8, 1)
    assert table.cell_count == 8
    assert table.completed(residual)[:, 0] == pytest.approx(0.3 + 0.1 * np.arange(8.0), abs=0.03)


def test_an_axis_may_be_made_of_several_sizes() -> None:
    table = tabulate([np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]), np.array([0.0, 0.0, 1.0])])
    assert table.shape == (2, 2)
    assert table.filled_fraction() == pytest.approx(0.75)


@given(st.floats(-3, 3), st.integers(2, 6), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_a_table_of_one_departure_is_that_departure_everywhere(level, rows, columns) -> None:
    place = [
        column.ravel() for column in np.meshgrid(np.arange(float(rows)), np.arange(float(columns)))
    ]
    residual = np.full(rows * columns, level)
    residual[1:-1:3] = np.nan
    assert tabulate(place).completed(residual) == pytest.approx(
        np.full((rows, columns), level), abs=1e-4
    )
