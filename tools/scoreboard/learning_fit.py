"""How the variance of ln(measured / predicted) is shared: components estimated from scored rows.

By maximum likelihood (Searle, Casella and McCulloch, Variance Components, 1992, chapter 6; no mean
is estimated, so that it is the restricted one, too), of residuals over their spread. Their scale is
estimated beside the shares and not kept: intervals have theirs. Residuals are clipped at three
robust standard deviations, and a system's rows beyond `_MOST_ROWS` are left out at random, so that
neither a slip nor a large table decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from accelsim.confidence.hierarchy import Components, Runs
from accelsim.workloads.graph import FloatArray, IntArray

_MOST_ROWS = 12
_CLIP = 3.0
#: Median absolute deviation of the normal, inverted.
_ROBUST = 1.4826
#: Weight of a normal prior on the logarithms of the shares, and added variance: no share is 0.
_PRIOR, _JITTER = 0.01, 1e-4
_BOUNDS, _LENGTHS = (-6.0, 6.0), (-1.5, 3.5)
_SEED = 0


def sampled(systems: Sequence[str]) -> IntArray:
    """Rows that are kept, at most `_MOST_ROWS` of each system."""
    generator = np.random.default_rng(_SEED)
    names = np.array(systems)
    kept = [
        generator.permutation(np.flatnonzero(names == name))[:_MOST_ROWS]
        for name in sorted(set(systems))
    ]
    return np.asarray(np.sort(np.concatenate(kept)))


def fitted_components(runs: Runs) -> Components:
    """Shares of the variance of runs of one phase.

    Args:
        runs: Scored rows, n of them.
    """
    kept = sampled([row[0] for row in runs.effects])
    effects = [runs.effects[row] for row in kept]
    ratio = (runs.log_ratio / runs.log_sigma)[kept]
    most = _CLIP * _ROBUST * np.median(np.abs(ratio))
    likelihood = _Likelihood(
        [_same([row[level] for row in effects]) for level in range(len(effects[0]))],
        _distance([runs.sizes[row] for row in kept]),
        np.clip(ratio, -most, most),
    )
    return likelihood.best()


def _same(names: Sequence[str]) -> FloatArray:
    """1 where two rows have an effect in common, shape (n, n)."""
    codes = np.unique(names, return_inverse=True)[1]
    return np.asarray(codes[:, None] == codes[None], dtype=np.float64)


def _distance(sizes: Sequence[Mapping[str, float]]) -> FloatArray:
    """Distances in ln(size), summed over sizes, shape (n, n)."""
    total: FloatArray = np.zeros((len(sizes), len(sizes)))
    for name in {name for row in sizes for name in row}:
        values = np.log(np.array([row.get(name, 1.0) for row in sizes]))
        total += np.abs(values[:, None] - values[None])
    return np.asarray(total)


class _Likelihood:
    """Of n residuals, given shares of their variance and a length.

    Args:
        same: Which rows share each level, shape (n, n) each.
        distance: Of their sizes, shape (n, n).
        ratio: Residuals over their spread, shape (n,).
    """

    def __init__(self, same: list[FloatArray], distance: FloatArray, ratio: FloatArray) -> None:
        self.same, self.distance, self.ratio = same, distance, ratio
        self.has_sizes = bool(distance.any())

    def best(self) -> Components:
        """The components of the greatest likelihood; no near share without sizes."""
        count = len(self.same) + 1 + self.has_sizes
        start = np.append(np.zeros(count), np.log(2.0))
        bounds = [_BOUNDS] * count + [_LENGTHS]
        found = minimize(self._loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        shares, length = _shares(found.x[:-1]), float(np.exp(found.x[-1]))
        near = float(shares[len(self.same)]) if self.has_sizes else 0.0
        return Components(tuple(shares[: len(self.same)].tolist()), near, length)

    def _loss(self, logs: FloatArray) -> tuple[float, FloatArray]:
        """Negative logarithm of the likelihood, its scale profiled out, and its gradient.

        Searle, Casella and McCulloch, 1992, section 6.2.
        """
        count, shares = len(self.ratio), _shares(logs[:-1])
        near = self.same[0] * np.exp(-self.distance / np.exp(logs[-1]))
        terms = [*self.same, *([near] if self.has_sizes else []), np.eye(count)]
        covariance = sum(share * term for share, term in zip(shares, terms, strict=True))
        try:
            factor = cho_factor(covariance + _JITTER * np.eye(count), lower=True)
        except LinAlgError:
            return 1e9, np.zeros(len(logs))
        inverse = cho_solve(factor, np.eye(count))
        pull = inverse @ self.ratio
        square = float(self.ratio @ pull)
        loss = 0.5 * count * np.log(square) + np.log(np.diag(factor[0])).sum()
        weight = 0.5 * inverse - 0.5 * count / square * np.outer(pull, pull)
        slopes = np.array([(weight * term).sum() for term in terms])
        change = near * self.distance / np.exp(logs[-1])
        slope = shares[-2] * (weight * change).sum() if self.has_sizes else 0.0
        to_logs = shares * (slopes - shares @ slopes) + _PRIOR * logs[:-1]
        return float(loss + 0.5 * _PRIOR * (logs[:-1] ** 2).sum()), np.append(to_logs, slope)


def _shares(logs: FloatArray) -> FloatArray:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
