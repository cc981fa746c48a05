"""Fits a `Surface` to residuals of a model: robust, penalised least squares on the grid's points.

Minimises the Huber-weighted squares of ln(measured / modelled) less the surface, plus a penalty on
its curvature along each axis (a straight line in log sizes is free) and a weak pull to zero where
there are no rows. The weights are iterated (Holland and Welsch, 1977). The normal equations are
sparse: a row touches only the corners of its cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from accelsim.cost.shape_surface import Surface
from accelsim.workloads.graph import FloatArray

#: Weight of the curvature penalty and of the pull to zero, against one row.
CURVATURE, _PULL = 0.1, 0.006
#: Huber's constant for 95 % efficiency under normal errors, and the MAD's consistency factor.
_HUBER, _MAD = 1.345, 1.4826
_SUM_STEPS = 20
#: Where conjugate gradients stop: the values are kept to three digits.
_STEP_TOLERANCE, _ITERATIONS = 1e-3, 500
#: Lengths tried for a Gauss-Newton step, and the change of a value that ends them.
_STEP_LENGTHS, _CONVERGED = (1.0, 0.5, 0.25, 0.125), 2e-3
Stage = tuple[Sequence[FloatArray], FloatArray]


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


def fit_surface_to_sums(
    surface: Surface,
    stages: Sequence[Stage],
    fixed: FloatArray,
    measured: FloatArray,
    curvature: float = CURVATURE,
) -> Surface:
    """The surface that corrects each stage of rows whose sum was measured, by Gauss-Newton steps.

    The first step corrects all stages of a row alike; the others are halved until the robust loss
    falls.

    Args:
        surface: Its grids; the values are not looked at.
        stages: Coordinates and modelled times of each corrected stage, shape (r,) each.
        fixed: Modelled time of the other stages, shape (r,).
        measured: Measured sums, shape (r,).
        curvature: Weight of the penalty on curvature against one row.
    """
    designs = [design_matrix(surface, coordinates) for coordinates, _ in stages]
    penalty = _penalties(surface, curvature)

    def totals(values: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        parts = [
            time * np.exp(design @ values)
            for design, (_, time) in zip(designs, stages, strict=True)
        ]
        return parts, fixed + np.sum(parts, axis=0)

    def weighed(parts: Sequence[FloatArray], total: FloatArray) -> Any:
        """d ln(total) / d values: sum of (share of a stage) x (its corners)."""
        return sum(
            (_times(part / total, d) for part, d in zip(parts, designs, strict=True)),
            start=0 * designs[0],
        )

    modelled = [time for _, time in stages]
    together = np.sum(modelled, axis=0)
    target = np.log((measured - fixed) / together)
    values = solve(
        weighed(modelled, together),
        np.ones(len(measured)),
        target,
        penalty,
        np.zeros(surface.flat.size),
    )
    for _ in range(_SUM_STEPS):
        parts, total = totals(values)
        residual = np.log(measured / total)
        design = weighed(parts, total)
        step = (
            solve(design, huber_weights(residual), residual + design @ values, penalty, values)
            - values
        )

        def loss(
            length: float,
            values: FloatArray = values,
            step: FloatArray = step,
            r: FloatArray = residual,
        ) -> float:
            moved = values + length * step
            misfit = np.log(measured / totals(moved)[1])
            return _robust_loss(misfit, _spread(r)) + 0.5 * float(moved @ (penalty @ moved))

        before = loss(0.0)
        length = next((length for length in _STEP_LENGTHS if loss(length) < before), 0.0)
        values = values + length * step
        if length * np.abs(step).max(initial=0.0) < _CONVERGED:
            break
    return surface.with_flat(values)


def design_matrix(surface: Surface, coordinates: Sequence[FloatArray]) -> Any:
    """Sparse matrix from the grid's values to the rows', shape (r, points)."""
    from scipy.sparse import csr_matrix

    index, weight = surface.corners(coordinates)
    rows = np.broadcast_to(np.arange(index.shape[1]), index.shape)
    return csr_matrix(
        (weight.ravel(), (rows.ravel(), index.ravel())), shape=(index.shape[1], surface.flat.size)
    )


def _penalties(surface: Surface, curvature: float) -> Any:
    """Quadratic form of the penalties of all grids."""
    from scipy.sparse import block_diag

    return block_diag(
        [curvature_penalty(values.shape, curvature) for _, values in surface.grids], format="csr"
    )


def curvature_penalty(shape: Sequence[int], curvature: float) -> Any:
    """Squares of second differences along each axis, and of the values: a sparse quadratic form."""
    from scipy.sparse import csr_matrix, identity

    points = np.arange(int(np.prod(shape))).reshape(shape)
    total = _PULL**2 * identity(points.size, format="csr")
    for axis, length in enumerate(shape):
        if length < 3:
            continue
        taken = [
            np.take(points, range(start, length - 2 + start), axis).ravel() for start in range(3)
        ]
        rows = np.arange(len(taken[0]))
        ones = np.ones(len(rows))
        difference = csr_matrix(
            (np.concatenate([ones, -2 * ones, ones]), (np.tile(rows, 3), np.concatenate(taken))),
            shape=(len(rows), points.size),
        )
        total = total + curvature**2 * (difference.T @ difference)
    return total


def solve(
    design: Any,
    weight: FloatArray,
    target: FloatArray,
    penalty: Any,
    start: FloatArray,
    tolerance: float = _STEP_TOLERANCE,
) -> FloatArray:
    """Minimiser of the penalised squares, by conjugate gradients from `start` with the diagonal as
    preconditioner.
    """
    from scipy.sparse import diags
    from scipy.sparse.linalg import cg

    weighted = _times(weight, design)
    normal = (design.T @ weighted + penalty).tocsr()
    solved, _ = cg(
        normal,
        weighted.T @ target,
        x0=start,
        rtol=tolerance,
        maxiter=_ITERATIONS,
        M=diags(1.0 / normal.diagonal()),
    )
    return np.asarray(solved, dtype=np.float64)


def _times(factor: FloatArray, matrix: Any) -> Any:
    from scipy.sparse import diags

    return diags(factor) @ matrix


def _spread(residual: FloatArray) -> float:
    """Standard deviation of the bulk."""
    return _MAD * float(np.median(np.abs(residual))) + 1e-6


def huber_weights(residual: FloatArray) -> FloatArray:
    """Weights of rows: 1 near the surface, falling as 1 / distance beyond."""
    return 1.0 / np.maximum(1.0, np.abs(residual) / (_HUBER * _spread(residual)))


def _robust_loss(residual: FloatArray, spread: float) -> float:
    """Sum of Huber's loss: half the square near 0, linear beyond."""
    edge, size = _HUBER * spread, np.abs(residual)
    return float(np.where(size < edge, 0.5 * size**2, edge * (size - 0.5 * edge)).sum())
