"""Kernel tables completed: what was not measured, from what each axis of the table says about the
others.

Libraries change their kernel from one measured size to the next, so smoothness over sizes says
little; but sizes that run the same kernels depart from a model alike wherever they occur (257 rows
as 513, whatever the other sizes). The departures ln(measured / modelled) of a table are taken as
one draw of a Gaussian process whose covariance is a product of one matrix per axis. The matrices
are learned from the table by flip-flop (Dutilleul, Journal of Statistical Computation and
Simulation 64, 1999), drawn towards the exponential covariance nearest to them; missing cells are
filled by expectation maximisation (Dempster, Laird and Rubin, 1977), with residuals clipped as in
Huber's estimator so that outliers do not spread. A product of covariances is diagonal in the
product of its axes' eigenvectors: a step takes a few small matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accelsim.workloads.graph import FloatArray, IntArray

#: Lengths over which the exponential covariances of an axis fall, in doublings, and the part that
#: never falls (main effects and interactions of fewer axes). These and the numbers below: best on
#: nine GEMM and attention tables of four boards, a fifth of the rows that fits may see left out.
_LENGTHS, _CONSTANT = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), 0.5
#: Pull of learned covariances towards an exponential one, and the residual that is clipped, in
#: standard deviations of noise.
_SHRINKAGE, _CLIP = 0.25, 1.5
#: Steps, how many of them share a covariance, and how many at the end keep it.
_STEPS, _LEARN_EVERY, _LAST = 90, 3, 6
_FIRST_NOISE, _LEAST_EIGENVALUE, _LEAST_VARIANCE = 0.02, 1e-6, 1e-10
#: Fewest sizes of an axis whose covariance is learned.
_FEWEST_SIZES = 3


@dataclass(frozen=True, slots=True, eq=False)
class KernelGrid:
    """Rows sorted into a table.

    Attributes:
        axes: Coordinates of the sizes along each axis, shape (sizes of axis a, coordinates of axis
            a).
        index: Place of each row along each axis, shape (r,) per axis.
    """

    axes: tuple[FloatArray, ...]
    index: tuple[IntArray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def cell_count(self) -> int:
        """Cells with a row."""
        return len(np.unique(np.ravel_multi_index(self.index, self.shape)))

    def filled_fraction(self) -> float:
        """Cells with a row over all cells."""
        return self.cell_count / float(np.prod(self.shape))

    def completed(self, residual: FloatArray) -> FloatArray:
        """Departures of all cells, measured ones with their scatter taken out; shape of the table.

        Args:
            residual: ln(measured / modelled) of each row; NaN leaves a cell open. Several rows of a
                cell are averaged.
        """
        known = np.isfinite(residual)
        flat = np.ravel_multi_index(tuple(place[known] for place in self.index), self.shape)
        size = int(np.prod(self.shape))
        count = np.bincount(flat, minlength=size)
        total = np.bincount(flat, weights=residual[known], minlength=size)
        cells = np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(self.shape)
        middle = float(np.nanmedian(cells))
        return middle + _completed(cells - middle, [_covariances(axis) for axis in self.axes])


def tabulate(columns: Sequence[FloatArray]) -> KernelGrid:
    """Sort rows into a table.

    Args:
        columns: Coordinates of the rows along each axis, shape (r,) or (r, d): several make one
            axis of combinations.
    """
    axes, index = [], []
    for column in columns:
        sizes = np.round(column.reshape(len(column), -1), 9)
        if sizes.shape[1] == 1:
            found, place = np.unique(sizes[:, 0], return_inverse=True)
        else:
            found, place = np.unique(sizes, axis=0, return_inverse=True)
        axes.append(found.reshape(len(found), -1))
        index.append(place.reshape(-1))
    return KernelGrid(tuple(axes), tuple(index))


def _covariances(axis: FloatArray) -> FloatArray:
    """Exponential covariances of an axis, shape (lengths, sizes, sizes)."""
    apart = np.abs(axis[:, None, :] - axis[None, :, :]).sum(axis=2)
    lengths = np.array(_LENGTHS)[:, None, None]
    falling: FloatArray = _CONSTANT + (1.0 - _CONSTANT) * np.exp(-apart / lengths)
    return falling


def _completed(cells: FloatArray, candidates: Sequence[FloatArray]) -> FloatArray:
    """Posterior mean of all cells."""
    known = np.isfinite(cells)
    variance = max(float(np.nanvar(cells)), _LEAST_VARIANCE)
    noise = _FIRST_NOISE * variance
    filled = np.where(known, cells, 0.0)
    covariances = [options[len(options) // 2] for options in candidates]
    basis, prior = _eigenvectors(covariances)
    mean = filled
    for step in range(_STEPS):
        gain = variance * prior / (variance * prior + noise)
        scores = _rotated(filled, [vectors.T for _, vectors in basis]) * gain
        mean = _rotated(scores, [vectors for _, vectors in basis])
        clip = _CLIP * np.sqrt(noise)
        filled = mean + np.where(known, np.clip(cells - mean, -clip, clip), 0.0)
        if step % _LEARN_EVERY == _LEARN_EVERY - 1 and step < _STEPS - _LAST:
            uncertain = noise * gain
            noise = float(((filled - mean) ** 2).sum() / known.sum() + uncertain.mean())
            noise = max(noise, _LEAST_VARIANCE)
            variance = max(float(((scores**2 + uncertain) / prior).mean()), _LEAST_VARIANCE)
            second = scores**2 + uncertain
            covariances = [
                _learned(
                    axis,
                    scores,
                    second,
                    prior * variance,
                    basis,
                    covariances[axis],
                    candidates[axis],
                )
                for axis in range(cells.ndim)
            ]
            basis, prior = _eigenvectors(covariances)
    return mean


def _eigenvectors(
    covariances: Sequence[FloatArray],
) -> tuple[list[tuple[FloatArray, FloatArray]], FloatArray]:
    """Eigenvalues and vectors by axis, and the eigenvalues of the product, shape of the table."""
    basis = []
    product = np.ones([1] * len(covariances))
    for axis, covariance in enumerate(covariances):
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, _LEAST_EIGENVALUE)
        basis.append((values, vectors))
        product = product * _along(axis, values, len(covariances))
    return basis, product


def _along(axis: int, values: FloatArray, count: int) -> FloatArray:
    """A column laid along one of `count` axes."""
    return values.reshape([-1 if place == axis else 1 for place in range(count)])


def _rotated(cells: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """A matrix applied along each axis."""
    shape, after = cells.shape, cells.size
    for axis, matrix in enumerate(matrices):
        after //= shape[axis]
        cells = np.matmul(matrix, cells.reshape(-1, shape[axis], after))
    return cells.reshape(shape)


def _learned(
    axis: int,
    scores: FloatArray,
    second: FloatArray,
    prior: FloatArray,
    basis: Sequence[tuple[FloatArray, FloatArray]],
    covariance: FloatArray,
    candidates: FloatArray,
) -> FloatArray:
    """Covariance of an axis without the others, drawn towards the nearest exponential one."""
    size = scores.shape[axis]
    if size < _FEWEST_SIZES:
        return covariance
    values, vectors = basis[axis]
    others = prior / _along(axis, values, scores.ndim)

    def flat(cells: FloatArray) -> FloatArray:
        return np.moveaxis(cells, axis, 0).reshape(size, -1)

    whitened = flat(scores / np.sqrt(others))
    spread = np.diag((flat((second - scores**2) / others)).sum(axis=1))
    scaled = _scaled(vectors @ (whitened @ whitened.T + spread) @ vectors.T)
    nearest = int(np.argmin(((candidates - scaled) ** 2).sum(axis=(1, 2))))
    return _scaled((1.0 - _SHRINKAGE) * scaled + _SHRINKAGE * candidates[nearest])


def _scaled(covariance: FloatArray) -> FloatArray:
    """A covariance of mean variance 1."""
    unit: FloatArray = covariance / np.diag(covariance).mean()
    return unit
