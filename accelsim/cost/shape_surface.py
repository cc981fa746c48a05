"""ln(measured / modelled) as a smooth surface over the shape of an operator.

What measurements say beyond a model is kept on a coarse grid of log2 sizes and interpolated
multilinearly; outside its grid a surface keeps its edge. Over many axes a grid is large and mostly
empty: a sum of grids over a few axes each (an analysis of variance, cut after its low orders) holds
the same in fewer numbers. Kernel times span decades in every size, so the logarithm of their ratio
to a model changes slowly with the logarithm of each size, but for the steps where a library changes
its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from accelsim.cost.residual import IN_MODEL_LOG_SIGMA, SIGMA_PER_DECADE
from accelsim.workloads.graph import FloatArray, IntArray

__all__ = [
    "ShapeSurface",
    "Surface",
    "SurfaceSum",
    "surface_from_thousandths",
]

#: Rows worked on at once: their corners stay in a core's cache.
_BLOCK = 8192
#: Values are written as whole numbers of this size: 0.1 %.
_STEP = 1e-3
_DECADES_PER_DOUBLING = 0.30103


class Surface:
    """ln(measured / modelled) over log2 sizes: a `ShapeSurface` or a `SurfaceSum`.

    Attributes:
        knots: Rising log2 sizes of each axis, one or more per axis.
        log_sigma: Standard deviation of ln(measured / corrected) inside the grid.
        rows: Measured rows behind it.
        shared_log_sigma: Part of the spread that all rows share: inside a model where it is the
            device's own, and what carrying it over to another device adds.
    """

    __slots__ = ()
    knots: tuple[FloatArray, ...]
    log_sigma: float
    rows: int
    shared_log_sigma: float

    @property
    def flat(self) -> FloatArray:
        """All values in one column, shape (points,)."""
        raise NotImplementedError

    def with_flat(self, flat: FloatArray) -> Self:
        """The same grid with other values.

        Args:
            flat: Values in one column, shape (points,).
        """
        raise NotImplementedError

    def with_evidence(
        self, log_sigma: float, rows: int, shared_log_sigma: float = IN_MODEL_LOG_SIGMA
    ) -> Self:
        """The same values with another spread and number of rows.

        Args:
            log_sigma: Standard deviation of ln(measured / corrected) inside the grid.
            rows: Measured rows behind it.
            shared_log_sigma: Part of the spread that all rows share.
        """
        raise NotImplementedError

    def corners(self, coordinates: Sequence[FloatArray]) -> tuple[IntArray, FloatArray]:
        """Indices into `flat` and weights of the grid points around each row.

        Args:
            coordinates: log2 sizes, one column per axis, shape (r,) each; columns after those are
                not looked at.

        Returns:
            Indices and weights, shape (corners, r) each.
        """
        raise NotImplementedError

    def terms(self) -> list[tuple[tuple[int, ...], FloatArray]]:
        """Axes and values of each grid of the sum."""
        raise NotImplementedError

    def __call__(self, coordinates: Sequence[FloatArray]) -> FloatArray:
        """ln(measured / modelled) of each row, shape (r,)."""
        flat, out = self.flat, np.empty(len(coordinates[0]))
        for start in range(0, len(out), _BLOCK):
            block = slice(start, start + _BLOCK)
            index, weight = self.corners([column[block] for column in coordinates])
            out[block] = np.einsum("cr,cr->r", flat[index], weight)
        return out

    def spread(
        self, coordinates: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Standard deviation of ln(measured / corrected) of each row, its shared part, and the
        distance to the grid.

        Both spreads grow with the distance, in decades summed over the axes; shape (r,) each.

        Estimate: growth by `SIGMA_PER_DECADE`.
        """
        outside = np.zeros(len(coordinates[0]))
        for column, knots in zip(coordinates[: len(self.knots)], self.knots, strict=True):
            outside += np.maximum(np.maximum(knots[0] - column, column - knots[-1]), 0.0)
        decades = _DECADES_PER_DOUBLING * outside
        grown = SIGMA_PER_DECADE * decades
        return np.hypot(self.log_sigma, grown), np.hypot(self.shared_log_sigma, grown), decades

    def evaluate(
        self, coordinates: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """What `__call__` and `spread` give, in one go; shape (r,) each."""
        return self(coordinates), *self.spread(coordinates)

    @property
    def thousandths(self) -> IntArray:
        """All values in one column as files have them: whole thousandths, shape (points,)."""
        whole: IntArray = np.rint(self.flat / _STEP).astype(np.int64)
        return whole

    def header(self) -> dict[str, Any]:
        """Everything but the values; `surface_from_thousandths` puts the two together."""
        knots = [[float(f"{2.0**knot:.6g}") for knot in axis.tolist()] for axis in self.knots]
        return {"rows": self.rows, "log_sigma": float(f"{self.log_sigma:.4g}"), "knots": knots}


@dataclass(frozen=True, slots=True, eq=False)
class ShapeSurface(Surface):
    """ln(measured / modelled) on one grid over all axes.

    Attributes:
        knots: Rising log2 sizes of each axis, one or more per axis.
        values: ln(measured / modelled) at the grid's points, shape (knots of axis 0, knots of axis
            1, ...).
        log_sigma: Standard deviation of ln(measured / corrected) inside the grid.
        rows: Measured rows behind it.
        shared_log_sigma: Part of the spread that all rows share.
    """

    knots: tuple[FloatArray, ...]
    values: FloatArray
    log_sigma: float = 0.0
    rows: int = 0
    shared_log_sigma: float = IN_MODEL_LOG_SIGMA

    @property
    def flat(self) -> FloatArray:
        """All values in one column, shape (points,)."""
        return self.values.ravel()

    def with_flat(self, flat: FloatArray) -> Self:
        """The same grid with other values."""
        return replace(self, values=flat.reshape(self.values.shape))

    def with_evidence(
        self, log_sigma: float, rows: int, shared_log_sigma: float = IN_MODEL_LOG_SIGMA
    ) -> Self:
        """The same values with another spread and number of rows."""
        return replace(self, log_sigma=log_sigma, rows=rows, shared_log_sigma=shared_log_sigma)

    def corners(self, coordinates: Sequence[FloatArray]) -> tuple[IntArray, FloatArray]:
        """Indices and weights of the grid points around each row, shape (corners, r) each; a row's
        weights sum to 1.
        """
        return _corners(self.knots, coordinates)

    def terms(self) -> list[tuple[tuple[int, ...], FloatArray]]:
        """The one grid."""
        return [(tuple(range(len(self.knots))), self.values)]

    @classmethod
    def empty(cls, knots: Sequence[FloatArray]) -> ShapeSurface:
        """A grid of zeros.

        Args:
            knots: log2 knots of each axis.
        """
        return cls(tuple(knots), np.zeros([len(axis) for axis in knots]))


@dataclass(frozen=True, slots=True, eq=False)
class SurfaceSum(Surface):
    """ln(measured / modelled) as a sum of grids over some of the axes each.

    Attributes:
        knots: Rising log2 sizes of each axis, one or more per axis.
        grids: Axes and values of each term, the values of shape (knots of its first axis, knots of
            its second, ...).
        log_sigma: Standard deviation of ln(measured / corrected) inside the grid.
        rows: Measured rows behind it.
        shared_log_sigma: Part of the spread that all rows share.
    """

    knots: tuple[FloatArray, ...]
    grids: tuple[tuple[tuple[int, ...], FloatArray], ...]
    log_sigma: float = 0.0
    rows: int = 0
    shared_log_sigma: float = IN_MODEL_LOG_SIGMA

    @property
    def flat(self) -> FloatArray:
        """All values in one column, term after term, shape (points,)."""
        return np.concatenate([values.ravel() for _, values in self.grids])

    def with_flat(self, flat: FloatArray) -> Self:
        """The same grids with other values."""
        ends = np.cumsum([values.size for _, values in self.grids])[:-1]
        parts = np.split(flat, ends)
        grids = [
            (axes, part.reshape(old.shape))
            for (axes, old), part in zip(self.grids, parts, strict=True)
        ]
        return replace(self, grids=tuple(grids))

    def with_evidence(
        self, log_sigma: float, rows: int, shared_log_sigma: float = IN_MODEL_LOG_SIGMA
    ) -> Self:
        """The same values with another spread and number of rows."""
        return replace(self, log_sigma=log_sigma, rows=rows, shared_log_sigma=shared_log_sigma)

    def corners(self, coordinates: Sequence[FloatArray]) -> tuple[IntArray, FloatArray]:
        """Indices and weights of the points around each row, shape (corners, r) each; weights sum
        to the number of terms.
        """
        indices, weights, start = [], [], 0
        for axes, values in self.grids:
            index, weight = _corners(
                [self.knots[axis] for axis in axes], [coordinates[axis] for axis in axes]
            )
            indices.append(index + start)
            weights.append(weight)
            start += values.size
        return np.concatenate(indices), np.concatenate(weights)

    def terms(self) -> list[tuple[tuple[int, ...], FloatArray]]:
        """The grids."""
        return list(self.grids)

    @classmethod
    def empty(cls, knots: Sequence[FloatArray], terms: Sequence[tuple[int, ...]]) -> SurfaceSum:
        """Grids of zeros.

        Args:
            knots: log2 knots of each axis.
            terms: Axes of each grid.
        """
        return cls(
            tuple(knots),
            tuple((axes, np.zeros([len(knots[axis]) for axis in axes])) for axes in terms),
        )

    def header(self) -> dict[str, Any]:
        """Everything but the values: the axes of the terms, too."""
        return {**Surface.header(self), "axes": [list(axes) for axes, _ in self.grids]}


def surface_from_thousandths(header: Mapping[str, Any], thousandths: IntArray) -> Surface:
    """Put a surface together.

    Args:
        header: As `Surface.header` gives it.
        thousandths: Its values in one column, and possibly more after them.

    Raises:
        KeyError: If a field is missing.
        TypeError: If a field has the wrong type.
        ValueError: If the header is not well formed or there are too few values.
    """
    knots = _knots(header)
    empty: Surface = (
        SurfaceSum.empty(knots, _terms(header["axes"], knots))
        if "axes" in header
        else ShapeSurface.empty(knots)
    )
    count = empty.flat.size
    if len(thousandths) < count:
        raise ValueError(f"values must be {count} whole numbers")
    log_sigma, rows = _evidence(header)
    return empty.with_flat(thousandths[:count].astype(np.float64) * _STEP).with_evidence(
        log_sigma, rows
    )


def _terms(axes: Any, knots: Sequence[FloatArray]) -> list[tuple[int, ...]]:
    terms = [tuple(int(axis) for axis in term) for term in axes]
    if not terms or any(
        not term or any(not 0 <= axis < len(knots) for axis in term) for term in terms
    ):
        raise ValueError(f"terms must have axes of 0 to {len(knots) - 1}")
    return terms


def _corners(
    axes: Sequence[FloatArray], coordinates: Sequence[FloatArray]
) -> tuple[IntArray, FloatArray]:
    index = np.zeros((1, len(coordinates[0])), dtype=np.int64)
    weight = np.ones((1, len(coordinates[0])))
    for column, knots in zip(coordinates[: len(axes)], axes, strict=True):
        if len(knots) == 1:
            continue
        place = np.interp(column, knots, np.arange(len(knots), dtype=np.float64))
        low = np.minimum(place.astype(np.int64), len(knots) - 2)
        part = place - low
        start = index * len(knots) + low
        index = np.concatenate([start, start + 1])
        weight = np.concatenate([weight * (1.0 - part), weight * part])
    return index, weight


def _knots(data: Mapping[str, Any]) -> tuple[FloatArray, ...]:
    sizes = [np.array(axis, dtype=np.float64) for axis in data["knots"]]
    if any((axis <= 0).any() for axis in sizes):
        raise ValueError("knots must be rising sizes above 0")
    knots = tuple(np.log2(axis) for axis in sizes)
    if not knots or not all(
        len(axis) and np.isfinite(axis).all() and (np.diff(axis) > 0).all() for axis in knots
    ):
        raise ValueError("knots must be rising sizes above 0")
    return knots


def _evidence(data: Mapping[str, Any]) -> tuple[float, int]:
    log_sigma, rows = float(data["log_sigma"]), int(data["rows"])
    if not (np.isfinite(log_sigma) and log_sigma >= 0 and rows >= 0):
        raise ValueError("log_sigma and rows must be >= 0")
    return log_sigma, rows
