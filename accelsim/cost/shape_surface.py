"""ln(measured / modelled) as a smooth surface over the shape of an operator.

What measurements say beyond a model is kept on a coarse grid of log2 sizes and interpolated multilinearly; outside its
grid a surface keeps its edge. Kernel times span decades in every size, so the logarithm of their ratio to a model changes
slowly with the logarithm of each size, but for the steps where a library changes its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelsim.cost.residual import IN_MODEL_LOG_SIGMA, SIGMA_PER_DECADE
from accelsim.workloads.graph import FloatArray, IntArray

__all__ = ["ShapeSurface"]

#: Rows worked on at once: their corners stay in a core's cache.
_BLOCK = 8192
#: Values are written as whole numbers of this size: 0.1 %.
_STEP = 1e-3
_DECADES_PER_DOUBLING = 0.30103


@dataclass(frozen=True, slots=True, eq=False)
class ShapeSurface:
    """ln(measured / modelled) on a grid.

    Attributes:
        knots: Rising log2 sizes of each axis, one or more per axis.
        values: ln(measured / modelled) at the grid's points, shape (knots of axis 0, knots of axis 1, ...).
        log_sigma: Standard deviation of ln(measured / corrected) inside the grid.
        rows: Measured rows behind it.
        shared_log_sigma: Part of the spread that all rows share: inside a model where it is the device's own, and what
            carrying it over to another device adds.
    """

    knots: tuple[FloatArray, ...]
    values: FloatArray
    log_sigma: float = 0.0
    rows: int = 0
    shared_log_sigma: float = IN_MODEL_LOG_SIGMA

    def corners(self, coordinates: Sequence[FloatArray]) -> tuple[IntArray, FloatArray]:
        """Flat indices and weights of the grid points around each row.

        Args:
            coordinates: log2 sizes, one column per axis, shape (r,) each.

        Returns:
            Indices and weights, shape (corners, r) each; the weights of a row sum to 1.
        """
        index = np.zeros((1, len(coordinates[0])), dtype=np.int64)
        weight = np.ones((1, len(coordinates[0])))
        for column, knots in zip(coordinates, self.knots, strict=True):
            if len(knots) == 1:
                continue
            place = np.interp(column, knots, np.arange(len(knots), dtype=np.float64))
            low = np.minimum(place.astype(np.int64), len(knots) - 2)
            part = place - low
            start = index * len(knots) + low
            index = np.concatenate([start, start + 1])
            weight = np.concatenate([weight * (1.0 - part), weight * part])
        return index, weight

    def __call__(self, coordinates: Sequence[FloatArray]) -> FloatArray:
        """ln(measured / modelled) of each row, shape (r,)."""
        flat, out = self.values.ravel(), np.empty(len(coordinates[0]))
        for start in range(0, len(out), _BLOCK):
            block = slice(start, start + _BLOCK)
            index, weight = self.corners([column[block] for column in coordinates])
            out[block] = np.einsum("cr,cr->r", flat[index], weight)
        return out

    def spread(self, coordinates: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Standard deviation of ln(measured / corrected) of each row, its shared part, and the distance to the grid.

        Both spreads grow with the distance, in decades summed over the axes; shape (r,) each.
        """
        outside = np.zeros(len(coordinates[0]))
        for column, knots in zip(coordinates, self.knots, strict=True):
            outside += np.maximum(np.maximum(knots[0] - column, column - knots[-1]), 0.0)
        decades = _DECADES_PER_DOUBLING * outside
        grown = SIGMA_PER_DECADE * decades
        shared = min(self.shared_log_sigma, self.log_sigma)
        return np.hypot(self.log_sigma, grown), np.hypot(shared, grown), decades

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> ShapeSurface:
        """Read an entry of an overlay: `rows`, `log_sigma`, `knots` in sizes, `values` as text of thousandths.

        The last axis runs fastest.

        Raises:
            KeyError: If a field is missing.
            TypeError: If a field has the wrong type.
            ValueError: If knots do not rise or the number of values does not fit them.
        """
        return cls.from_thousandths(data, np.array(str(data["values"]).split(), dtype=np.float64))

    @classmethod
    def from_thousandths(cls, data: Mapping[str, Any], thousandths: FloatArray | IntArray) -> ShapeSurface:
        """The same with the values as numbers, shape (points,).

        Raises:
            KeyError: If a field is missing.
            TypeError: If a field has the wrong type.
            ValueError: If knots do not rise or the number of values does not fit them.
        """
        sizes = [np.array(axis, dtype=np.float64) for axis in data["knots"]]
        if any((axis <= 0).any() for axis in sizes):
            raise ValueError("knots must be rising sizes above 0")
        knots = tuple(np.log2(axis) for axis in sizes)
        values = np.asarray(thousandths, dtype=np.float64) * _STEP
        if not knots or not all(len(axis) and np.isfinite(axis).all() and (np.diff(axis) > 0).all() for axis in knots):
            raise ValueError("knots must be rising sizes above 0")
        shape = tuple(len(axis) for axis in knots)
        if values.size != np.prod(shape) or not np.isfinite(values).all():
            raise ValueError(f"values must be {int(np.prod(shape))} whole numbers")
        log_sigma, rows = float(data["log_sigma"]), int(data["rows"])
        if not (np.isfinite(log_sigma) and log_sigma >= 0 and rows >= 0):
            raise ValueError("log_sigma and rows must be >= 0")
        return cls(knots, values.reshape(shape), log_sigma, rows)

    def to_mapping(self) -> dict[str, Any]:
        """The entry of an overlay; `from_mapping` reads it back, to 0.1 %."""
        knots = [[float(f"{2.0**knot:.6g}") for knot in axis.tolist()] for axis in self.knots]
        values = " ".join(str(round(value / _STEP)) for value in self.values.ravel().tolist())
        return {"rows": self.rows, "log_sigma": self.log_sigma, "knots": knots, "values": values}
