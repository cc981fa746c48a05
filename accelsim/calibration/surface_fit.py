"""Fits a `ShapeSurface` to residuals of a model: robust, penalised least squares on the grid's points.

Minimises the Huber-weighted squares of ln(measured / modelled) less the surface, plus a penalty on its curvature along each
axis (a straight line in log sizes is free) and a weak pull to zero where there are no rows. The weights are iterated
(Holland and Welsch, 1977). The normal equations are sparse: a row touches only the corners of its cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from accelsim.cost.shape_surface import ShapeSurface
from accelsim.workloads.graph import FloatArray

__all__ = ["fit_surface", "fit_surface_to_sums", "knots_within"]

#: Weight of the curvature penalty and of the pull to zero, against one row.
_CURVATURE, _PULL = 0.1, 0.006
#: Huber's constant for 95 % efficiency under normal errors, and the MAD's consistency factor.
_HUBER, _MAD = 1.345, 1.4826
_REWEIGHTINGS, _SUM_STEPS = 4, 10
#: Where conjugate gradients stop: the values are kept to three digits.
_TOLERANCE, _ITERATIONS = 1e-4, 500
#: Longest Gauss-Newton step of a value: beyond it the linearised sum says little.
_LONGEST_STEP = 0.5


def knots_within(sizes: FloatArray, ladder: Sequence[float]) -> FloatArray:
    """log2 knots of a ladder of sizes, cut to the range of the rows.

    Args:
        sizes: log2 sizes of the rows, shape (r,).
        ladder: Rising sizes; the outermost knots become the rows' least and largest size.
    """
    low, high = float(sizes.min()), float(sizes.max())
    inner = [np.log2(size) for size in ladder if low + 0.25 < np.log2(size) < high - 0.25]
    edges = [low, *inner, high] if high > low else [low]
    return np.array(edges, dtype=np.float64)


def fit_surface(
    knots: Sequence[FloatArray],
    coordinates: Sequence[FloatArray],
    residual: FloatArray,
    curvature: float = _CURVATURE,
) -> ShapeSurface:
    """The surface nearest to residuals.

    Args:
        knots: log2 knots of each axis.
        coordinates: log2 sizes of the rows, one column per axis, shape (r,) each.
        residual: ln(measured / modelled), shape (r,).
        curvature: Weight of the penalty on curvature against one row.
    """
    surface = _empty(knots)
    design = _design(surface, coordinates)
    penalty = _penalty([len(axis) for axis in knots], curvature)
    weight, values = np.ones(len(residual)), np.zeros(surface.values.size)
    for _ in range(_REWEIGHTINGS):
        values = _solve(design, weight, residual, penalty, values)
        weight = _huber(residual - design @ values)
    return ShapeSurface(tuple(knots), values.reshape(surface.values.shape))


def fit_surface_to_sums(
    knots: Sequence[FloatArray],
    stages: Sequence[tuple[Sequence[FloatArray], FloatArray]],
    fixed: FloatArray,
    measured: FloatArray,
) -> ShapeSurface:
    """The surface that corrects each stage of rows whose sum was measured, by Gauss-Newton steps.

    Args:
        knots: log2 knots of each axis.
        stages: Coordinates and modelled times of each corrected stage, shape (r,) each.
        fixed: Modelled time of the other stages, shape (r,).
        measured: Measured sums, shape (r,).
    """
    surface = _empty(knots)
    designs = [_design(surface, coordinates) for coordinates, _ in stages]
    penalty = _penalty([len(axis) for axis in knots])
    values = np.zeros(surface.values.size)
    weight = np.ones(len(measured))
    for _ in range(_SUM_STEPS):
        parts = [time * np.exp(design @ values) for design, (_, time) in zip(designs, stages, strict=True)]
        total = fixed + np.sum(parts, axis=0)
        # d ln(total) / d values = sum of (share of a stage) x (its corners)
        design = sum((_times(part / total, d) for part, d in zip(parts, designs, strict=True)), start=0 * designs[0])
        residual = np.log(measured / total)
        wanted = _solve(design, weight, residual + design @ values, penalty, values)
        values = values + np.clip(wanted - values, -_LONGEST_STEP, _LONGEST_STEP)
        weight = _huber(residual)
    return ShapeSurface(tuple(knots), values.reshape(surface.values.shape))


def _empty(knots: Sequence[FloatArray]) -> ShapeSurface:
    return ShapeSurface(tuple(knots), np.zeros([len(axis) for axis in knots]))


def _design(surface: ShapeSurface, coordinates: Sequence[FloatArray]) -> Any:
    """Sparse matrix from the grid's values to the rows', shape (r, points)."""
    from scipy.sparse import csr_matrix

    index, weight = surface.corners(coordinates)
    rows = np.broadcast_to(np.arange(index.shape[1]), index.shape)
    return csr_matrix((weight.ravel(), (rows.ravel(), index.ravel())), shape=(index.shape[1], surface.values.size))


def _penalty(shape: Sequence[int], curvature: float = _CURVATURE) -> Any:
    """Squares of second differences along each axis, and of the values, as a sparse quadratic form."""
    from scipy.sparse import csr_matrix, identity

    points = np.arange(int(np.prod(shape))).reshape(shape)
    total = _PULL**2 * identity(points.size, format="csr")
    for axis, length in enumerate(shape):
        if length < 3:
            continue
        taken = [np.take(points, range(start, length - 2 + start), axis).ravel() for start in range(3)]
        rows = np.arange(len(taken[0]))
        ones = np.ones(len(rows))
        difference = csr_matrix(
            (np.concatenate([ones, -2 * ones, ones]), (np.tile(rows, 3), np.concatenate(taken))),
            shape=(len(rows), points.size),
        )
        total = total + curvature**2 * (difference.T @ difference)
    return total


def _solve(design: Any, weight: FloatArray, target: FloatArray, penalty: Any, start: FloatArray) -> FloatArray:
    """Minimiser of the penalised squares, by conjugate gradients from `start` with the diagonal as preconditioner."""
    from scipy.sparse import diags
    from scipy.sparse.linalg import cg

    weighted = _times(weight, design)
    normal = (design.T @ weighted + penalty).tocsr()
    solved, _ = cg(
        normal, weighted.T @ target, x0=start, rtol=_TOLERANCE, maxiter=_ITERATIONS, M=diags(1.0 / normal.diagonal())
    )
    return np.asarray(solved, dtype=np.float64)


def _times(factor: FloatArray, matrix: Any) -> Any:
    from scipy.sparse import diags

    return diags(factor) @ matrix


def _huber(residual: FloatArray) -> FloatArray:
    """Weights of rows: 1 near the surface, falling as 1 / distance beyond."""
    spread = _MAD * float(np.median(np.abs(residual))) + 1e-6
    weights: FloatArray = 1.0 / np.maximum(1.0, np.abs(residual) / (_HUBER * spread))
    return weights
