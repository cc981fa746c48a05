"""Tables of expert layers, completed: a layer of the table as it says, others by a surface.

An expert layer is measured as a whole, on its own sizes (model, parallelism, routing, tokens),
while its grouped GEMMs are costed one by one, by their rows, groups and sides. The table is
completed in the layer's own sizes; each grouped GEMM of each of its layers then marks a point, and
a GEMM nearby departs from the model as the nearest points do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accelsim.cost.residual import IN_MODEL_LOG_SIGMA
from accelsim.cost.shape_surface import Surface
from accelsim.workloads.graph import FloatArray

__all__ = ["LayerSurface", "layer_surface"]

#: Weight of a distance along each axis (rows, groups, share of the batch, n, k, skew): other sides
#: are another model.
_SCALES = np.array([1.0, 1.0, 1.0, 4.0, 4.0, 1.0])
#: Points a row takes its departure from, the distance below which one alone counts, and that at
#: which the share of the points against the surface has fallen to 1/e, in weighted doublings.
_NEAREST, _EXACT, _REACH = 3, 1e-3, 2.0
#: How much farther than the nearest ones the points found may lie, in parts of their distance; an
#: exact one is found.
_LOOSENESS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class LayerSurface(Surface):
    """ln(measured / modelled): a surface over the first axes, and points where it is known better.

    Attributes:
        surface: What holds between and beyond the points.
        tree: The points, a `scipy.spatial.cKDTree` of weighted coordinates.
        departures: ln(measured / modelled) at the points, shape (p,).
        log_sigma: Standard deviation of ln(measured / corrected) at the points.
        rows: Measured rows behind it.
        shared_log_sigma: Part of the spread that all rows share.
    """

    surface: Surface
    tree: Any
    departures: FloatArray
    log_sigma: float = 0.0
    rows: int = 0
    shared_log_sigma: float = IN_MODEL_LOG_SIGMA

    @property
    def knots(self) -> tuple[FloatArray, ...]:  # type: ignore[override]
        """Those of the surface."""
        return self.surface.knots

    def with_evidence(
        self, log_sigma: float, rows: int, shared_log_sigma: float = IN_MODEL_LOG_SIGMA
    ) -> LayerSurface:
        """The same values with another spread and number of rows."""
        return replace(self, log_sigma=log_sigma, rows=rows, shared_log_sigma=shared_log_sigma)

    def __call__(self, coordinates: Sequence[FloatArray]) -> FloatArray:
        """ln(measured / modelled) of each row, shape (r,)."""
        return self.evaluate(coordinates)[0]

    def spread(
        self, coordinates: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """As of `Surface`: near the points their own, far from them that of the surface."""
        return self.evaluate(coordinates)[1:]

    def evaluate(
        self, coordinates: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """What `__call__` and `spread` give, in one go; shape (r,) each."""
        distance, nearest = self._nearest(coordinates)
        near = np.exp(-((distance[:, 0] / _REACH) ** 2))
        weight = 1.0 / (_EXACT + distance)
        weight /= weight.sum(axis=1, keepdims=True)
        departure = (weight * self.departures[nearest]).sum(axis=1)
        smooth, sigma, shared, outside = self.surface.evaluate(coordinates)
        far = 1.0 - near
        return near * departure + far * smooth, near * self.log_sigma + far * sigma, shared, outside

    def _nearest(self, coordinates: Sequence[FloatArray]) -> tuple[FloatArray, Any]:
        """Distances and indices of the nearest points, nearest first, shape (r, points)."""
        count = min(_NEAREST, len(self.departures))
        distance, nearest = self.tree.query(
            _weighted(coordinates), k=np.arange(1, count + 1), eps=_LOOSENESS
        )
        return distance, nearest


def layer_surface(
    surface: Surface, places: Sequence[Sequence[FloatArray]], departure: FloatArray
) -> LayerSurface:
    """Mark the layers of a table.

    Args:
        surface: What holds far from the table's layers.
        places: Coordinates of the grouped GEMMs of the layers, for each of their stages, shape (c,)
            per axis.
        departure: ln(time / modelled) of the layers' grouped GEMMs together, shape (c,).
    """
    from scipy.spatial import cKDTree

    points = np.round(np.concatenate([_weighted(place) for place in places]), 9)
    points, index = np.unique(points, axis=0, return_inverse=True)
    index = index.reshape(-1)
    return LayerSurface(
        surface,
        cKDTree(points),
        np.bincount(index, np.tile(departure, len(places))) / np.bincount(index),
    )


def _weighted(coordinates: Sequence[FloatArray]) -> FloatArray:
    weighted: FloatArray = np.stack(coordinates, axis=1) * _SCALES
    return weighted
