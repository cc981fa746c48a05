"""ln(measured / modelled) as a smooth surface over the shape of an operator.

What measurements say beyond a model is kept on a coarse grid of log2 sizes and interpolated
multilinearly; outside its grid a surface keeps its edge. Over many axes a grid is large and mostly
empty: a sum of grids over a few axes each (an analysis of variance, cut after its low orders) holds
the same in fewer numbers. Kernel times span decades in every size, so the logarithm of their ratio
to a model changes slowly with the logarithm of each size, but for the steps where a library changes
its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from accelsim.confidence.residual import IN_MODEL_LOG_SIGMA, SIGMA_PER_DECADE
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.graph import FloatArray, IntArray

#: Rows worked on at once: their corners stay in a core's cache.
_BLOCK = 8192
#: Values are written as whole numbers of this size: 0.1 %.
_STEP = 1e-3
_DECADES_PER_DOUBLING = 0.30103


@frozen(eq=False)
class Surface:
    """ln(measured / modelled) over log2 sizes: a grid over all axes, or a sum of grids over some of
    them each.

    Attributes:
        knots: Rising log2 sizes of each axis, one or more per axis.
        grids: Axes and values of each term, the values of shape (knots of its first axis, knots of
            its second, ...).
        log_sigma: Standard deviation of ln(measured / corrected) inside the grid.
        rows: Measured rows behind it.
        shared_log_sigma: Part of the spread that all rows share: inside a model where it is the
            device's own, and what carrying it over to another device adds.
    """

    knots: tuple[FloatArray, ...]
    grids: tuple[tuple[tuple[int, ...], FloatArray], ...]
    log_sigma: float = 0.0
    rows: int = 0
    shared_log_sigma: float = IN_MODEL_LOG_SIGMA

    @classmethod
    def empty(
        cls, knots: Sequence[FloatArray], terms: Sequence[tuple[int, ...]] | None = None
    ) -> Surface:
        """Grids of zeros.

        Args:
            knots: log2 knots of each axis.
            terms: Axes of each grid; one grid over all axes where None.
        """
        terms = [tuple(range(len(knots)))] if terms is None else terms
        grids = [(axes, np.zeros([len(knots[axis]) for axis in axes])) for axes in terms]
        return cls(tuple(knots), tuple(grids))

    @classmethod
    def of_values(
        cls, knots: Sequence[FloatArray], values: FloatArray, log_sigma: float = 0.0, rows: int = 0
    ) -> Surface:
        """One grid over all axes.

        Args:
            knots: log2 knots of each axis.
            values: ln(measured / modelled) at the grid's points.
            log_sigma: Standard deviation of ln(measured / corrected) inside the grid.
            rows: Measured rows behind it.
        """
        return cls(tuple(knots), ((tuple(range(len(knots))), values),), log_sigma, rows)

    @property
    def flat(self) -> FloatArray:
        """All values in one column, term after term, shape (points,)."""
        return np.concatenate([values.ravel() for _, values in self.grids])

    def with_flat(self, flat: FloatArray) -> Surface:
        """The same grids with other values.

        Args:
            flat: Values in one column, shape (points,).
        """
        ends = np.cumsum([values.size for _, values in self.grids])[:-1]
        grids = [
            (axes, new_values.reshape(old.shape))
            for (axes, old), new_values in zip(self.grids, np.split(flat, ends), strict=True)
        ]
        return replace(self, grids=tuple(grids))

    def corners(self, coordinates: Sequence[FloatArray]) -> tuple[IntArray, FloatArray]:
        """Indices into `flat` and weights of the grid points around each row; a row's weights sum
        to the number of grids.

        Args:
            coordinates: log2 sizes, one column per axis, shape (r,) each; columns after those are
                not looked at.

        Returns:
            Indices and weights, shape (corners, r) each.
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

    def __call__(self, coordinates: Sequence[FloatArray]) -> FloatArray:
        """ln(measured / modelled) of each row, shape (r,)."""
        flat, out = self.flat, np.empty(len(coordinates[0]))
        for start in range(0, len(out), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows, offset = [column[block] for column in coordinates], 0
            total = np.zeros(len(rows[0]))
            for axes, values in self.grids:
                index, fractions = _cells(
                    [self.knots[axis] for axis in axes], [rows[axis] for axis in axes]
                )
                around = flat[index + offset]
                for fraction in reversed(fractions):
                    low, high = np.split(around, 2)
                    around = low + fraction * (high - low)
                total += around[0]
                offset += values.size
            out[block] = total
        return out

    def spread(
        self, coordinates: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Standard deviation of ln(measured / corrected) of each row, its shared part, and the
        distance to the grid.

        Both spreads grow with the distance, in decades summed over the axes; shape (r,) each.

        Estimate: growth by `SIGMA_PER_DECADE`.
        """
        decades = self.outside_decades(coordinates)
        grown = SIGMA_PER_DECADE * decades
        return np.hypot(self.log_sigma, grown), np.hypot(self.shared_log_sigma, grown), decades

    def outside_decades(self, coordinates: Sequence[FloatArray]) -> FloatArray:
        """Distance of each row to the grid, in decades summed over the axes, shape (r,)."""
        outside = np.zeros(len(coordinates[0]))
        for column, knots in zip(coordinates[: len(self.knots)], self.knots, strict=True):
            outside += np.maximum(np.maximum(knots[0] - column, column - knots[-1]), 0.0)
        return _DECADES_PER_DOUBLING * outside

    @property
    def thousandths(self) -> IntArray:
        """All values in one column, in whole thousandths, shape (points,)."""
        return np.rint(self.flat / _STEP).astype(np.int64)

    @property
    def differences(self) -> IntArray:
        """All values in one column as files have them: `thousandths`, each less its neighbour along
        every axis of its grid, shape (points,). They are small where the surface is smooth.
        """
        rounded = self.with_flat(self.thousandths.astype(np.float64))
        return rounded.along_axes(partial(np.diff, prepend=0.0)).flat.astype(np.int64)

    def along_axes(self, change: Callable[..., FloatArray]) -> Surface:
        """The same grids with a function applied along each of their axes."""
        grids = []
        for axes, values in self.grids:
            changed = values
            for axis in range(values.ndim):
                changed = change(changed, axis=axis)
            grids.append((axes, changed))
        return replace(self, grids=tuple(grids))

    def header(self) -> Document:
        """Everything but the values; `surface_from_differences` puts the two together."""
        knots = [[float(f"{2.0**knot:.6g}") for knot in axis.tolist()] for axis in self.knots]
        axes = [list(own) for own, _ in self.grids]
        terms = {} if axes == [[*range(len(knots))]] else {"axes": axes}
        sigma = float(f"{self.log_sigma:.4g}")
        return {"rows": self.rows, "log_sigma": sigma, "knots": knots, **terms}


class LazySurfaces(Mapping[str, Surface]):
    """Surfaces by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._surfaces: dict[str, Surface] = {}

    def names(self) -> Collection[str]:
        """All names."""
        raise NotImplementedError

    def make(self, name: str) -> Surface:
        """One of the surfaces."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Surface:
        if name not in self._surfaces:
            if name not in self.names():
                raise KeyError(name)
            self._surfaces[name] = self.make(name)
        return self._surfaces[name]

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())


def _terms(axes: Any, count: int) -> list[tuple[int, ...]] | None:
    """Axes of each term of a sum, of so many; None of a plain surface."""
    if axes is None:
        return None
    terms = [tuple(int(axis) for axis in term) for term in axes]
    if not terms or not all(term and set(range(count)).issuperset(term) for term in terms):
        raise ValueError(f"terms must have axes of 0 to {count - 1}")
    return terms


def surface_from_differences(header: Values, differences: IntArray) -> Surface:
    """Put a surface together.

    Args:
        header: As `Surface.header` gives it.
        differences: `Surface.differences`, and possibly more after them.

    Raises:
        KeyError: If a field is missing.
        TypeError: If a field has the wrong type.
        ValueError: If the header is not well formed or there are too few values.
    """
    knots = _knots(header["knots"])
    terms = _terms(header.get("axes"), len(knots))
    log_sigma, rows = float(header["log_sigma"]), int(header["rows"])
    if not (0 <= log_sigma < np.inf and rows >= 0):
        raise ValueError("log_sigma and rows must be >= 0")
    empty = Surface.empty(knots, terms)
    count = empty.flat.size
    if len(differences) < count:
        raise ValueError(f"values must be {count} whole numbers")
    thousandths = empty.with_flat(differences[:count].astype(np.float64)).along_axes(np.cumsum)
    return replace(thousandths.with_flat(thousandths.flat * _STEP), log_sigma=log_sigma, rows=rows)


def _knots(sizes: Any) -> tuple[FloatArray, ...]:
    axes = [np.array(axis, dtype=np.float64) for axis in sizes]
    rising = [len(a) and a[0] > 0 and np.isfinite(a).all() and (np.diff(a) > 0).all() for a in axes]
    if not axes or not all(rising):
        raise ValueError("knots must be rising sizes above 0")
    return tuple(np.log2(axis) for axis in axes)


def _corners(
    axes: Sequence[FloatArray], coordinates: Sequence[FloatArray]
) -> tuple[IntArray, FloatArray]:
    """Corners of the cell around each point, and their weights."""
    index, fractions = _cells(axes, coordinates)
    weight = np.ones((1, len(coordinates[0])))
    for fraction in fractions:
        above = weight * fraction
        weight = np.concatenate([weight - above, above])
    return index, weight


def _cells(
    axes: Sequence[FloatArray], coordinates: Sequence[FloatArray]
) -> tuple[IntArray, list[FloatArray]]:
    """Corners of the cell around each point, and how far it lies along each of the cell's edges;
    each edge has the corners at its end after those at its start.

    Multilinear interpolation (Press et al., Numerical Recipes, 2007).
    """
    index, fractions = np.zeros((1, len(coordinates[0])), dtype=np.int64), []
    for column, knots in zip(coordinates[: len(axes)], axes, strict=True):
        if len(knots) == 1:
            continue
        position = np.interp(column, knots, np.arange(len(knots), dtype=np.float64))
        low = np.minimum(position.astype(np.int64), len(knots) - 2)
        fraction = position - low
        index = index * len(knots) + low
        if not fraction.any():  # all rows lie on knots, as heads and widths of one model do
            continue
        fractions.append(fraction)
        index = np.concatenate([index, index + 1])
    return index, fractions
