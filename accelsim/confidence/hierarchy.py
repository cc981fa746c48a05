"""What a few measured runs say of other runs: a hierarchical normal model of ln(measured /
predicted).

A run's error, over the spread that runs like it had before anything of it was measured, is a sum:
effects that it shares with runs like it (the same system, engine, format, ...), one that runs of
its system share the more the nearer their sizes (batch, length, degrees of a plan), and its own:

    y / sigma = sum_l sqrt(s_l) u_l + sqrt(s_near) g(x) + sqrt(s_own) e

where u are standard normal, g is a Gaussian process with the covariance exp(-sum |ln x - ln x'| /
length), and e follows Student's t. The posterior is normal for given weights of the runs
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2; effects that
are shared: Gelman et al., Bayesian Data Analysis, 3rd edition, section 15.4). Weights of the t are
found by expectation and maximisation (Lange, Little and Taylor, Journal of the American Statistical
Association 84, 1989), so that a wrong unit or a stalled run does not draw the others along; a run
that lies four standard deviations from where the others expect it takes no part. How large the
errors of a system are in all is learned from its runs, too: its intervals narrow or widen with
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

#: Degrees of freedom of a run's own error: heavy tails, as Lange et al. advise where they are not
#: known.
_FREEDOM = 4.0
#: Runs that the spread before counts as, against what the runs of a system say of it: estimate.
_PRIOR_RUNS = 4.0
_STEPS = 50
_TOLERANCE = 1e-6
#: Weight below which a run is far from all like it: 4 standard deviations.
_FAR_WEIGHT = (_FREEDOM + 1) / (_FREEDOM + 16.0)
#: Sizes of a system that are told apart, the grid in ln(size) on which more of them are first
#: gathered, and the weight of a cell without runs.
_MOST_CELLS, _FIRST_STEP, _NO_WEIGHT = 64, 0.25, 1e-9


@frozen
class Components:
    """Shares of the variance of a run's error; what is left is its own.

    Attributes:
        shares: Of each level of effects, the first that of the system.
        near: Of what runs of a system share the more the nearer their sizes.
        length: Distance in ln(size), summed over sizes, over which that falls to 1 / e.
    """

    shares: tuple[float, ...]
    near: float
    length: float

    @property
    def own(self) -> float:
        """Share of a run's own."""
        return 1.0 - sum(self.shares) - self.near


@frozen
class Correction:
    """What is known of a run's error.

    Attributes:
        shift: Mean of ln(true / predicted).
        log_sigma: Its standard deviation.
    """

    shift: float
    log_sigma: float


@frozen(eq=False)
class Runs:
    """Measured runs; n of them.

    Attributes:
        effects: Names of the effects of each, one for each level, length n; the first decides the
            others.
        sizes: Sizes of each by name, above 0, length n; a size that is not named is 1.
        log_ratio: ln(measured / predicted), shape (n,).
        log_sigma: Spread of runs like each before, shape (n,), above 0.
    """

    effects: Sequence[Sequence[str]]
    sizes: Sequence[Mapping[str, float]]
    log_ratio: FloatArray
    log_sigma: FloatArray


@frozen(eq=False)
class Hierarchy:
    """What is known from runs of s systems, with at most c cells of sizes each.

    Attributes:
        components: Shares of the variance.
        systems: Place of each system, by its first effect.
        systems_of: Places of the systems that have each effect.
        weight: Weight of each run, at most (f + 1) / f; small where it is far from others like it,
            shape (n,).
        scale: Variance of all that is off in a system over that before, shape (s,).
    """

    components: Components
    systems: Mapping[str, int]
    systems_of: Mapping[str, IntArray]
    weight: FloatArray
    scale: FloatArray
    _cells: _Cells
    _posterior: _Posterior

    @classmethod
    def of(cls, runs: Runs, components: Components) -> Hierarchy:
        """The posterior of runs, at least one."""
        systems = {row[0]: row for row in runs.effects}
        places = {name: index for index, name in enumerate(sorted(systems))}
        indices_of: dict[str, list[int]] = {}
        for name, index in places.items():
            for effect in systems[name]:
                indices_of.setdefault(effect, []).append(index)
        system = np.array([places[row[0]] for row in runs.effects])
        systems_of = {name: np.array(indices) for name, indices in indices_of.items()}
        joint = np.stack(
            [_covariance(systems[name], components, systems_of, len(places)) for name in places]
        )
        cells = _Cells.of(system, runs.sizes, components.length)
        fit = _Fit(runs.log_ratio / runs.log_sigma, system, cells, joint, components)
        posterior, weight = fit.robust(np.ones(len(system), dtype=bool))
        near = weight >= _FAR_WEIGHT
        if not near.all():
            posterior, weight = fit.robust(near)
        scale = fit.scale(weight)
        return cls(components, places, systems_of, weight, scale, cells, posterior)

    def correction(
        self, effects: Sequence[str], sizes: Mapping[str, float], log_sigma: float
    ) -> Correction:
        """What is known of a run: the predictive mean and variance of a Gaussian process (Rasmussen
        and Williams, 2006, equations 2.25 and 2.26).

        Args:
            effects: Its effects, one for each level.
            sizes: Its sizes by name.
            log_sigma: Spread of runs like it before.
        """
        shares, posterior = self.components, self._posterior
        shared = _covariance(effects, shares, self.systems_of, len(self.systems))
        mean = float(shared @ posterior.pull)
        variance = sum(shares.shares) - float(shared @ posterior.precision @ shared)
        near, scale = shares.near, 1.0
        index = self.systems.get(effects[0])
        if index is not None:
            like = near * self._cells.like(index, sizes, shares.length)
            gain = like @ posterior.inverse[index]
            unexplained = 1.0 - float(gain.sum())
            mean = unexplained * mean + float(gain @ posterior.cell_mean[index])
            variance = unexplained**2 * variance
            near -= float(gain @ like)
            scale = float(self.scale[index])
        sigma = log_sigma * math.sqrt(scale * (variance + near + shares.own))
        return Correction(log_sigma * mean, sigma)

    @property
    def far_runs(self) -> list[int]:
        """Runs so far from all like them that they say nothing: a wrong unit, a stalled run."""
        return [int(run) for run in np.flatnonzero(self.weight < _FAR_WEIGHT)]


def _covariance(
    effects: Sequence[str], components: Components, systems_of: Mapping[str, IntArray], count: int
) -> FloatArray:
    """Covariance of what a run and each of so many systems have in common at all sizes."""
    shared = np.zeros(count)
    for name, share in zip(effects, components.shares, strict=True):
        if name in systems_of:
            shared[systems_of[name]] += share
    return shared


@frozen(eq=False)
class _Cells:
    """Sizes of the runs of s systems, at most c each.

    Attributes:
        names: Sizes.
        cell: Cell of each run in its system, shape (n,).
        points: ln(sizes) of the cells of each system, shape (cells, names).
        correlation: Correlation of the cells of each system, shape (s, c, c).
    """

    names: tuple[str, ...]
    cell: IntArray
    points: tuple[FloatArray, ...]
    correlation: FloatArray

    @classmethod
    def of(cls, system: IntArray, sizes: Sequence[Mapping[str, float]], length: float) -> _Cells:
        """Cells of runs, each of a system and of sizes."""
        names = tuple(sorted({name for row in sizes for name in row}))
        values = np.log([[row.get(name, 1.0) for name in names] for row in sizes])
        cell, points = np.zeros(len(system), dtype=np.int64), []
        for index in range(int(system.max()) + 1):
            rows = np.flatnonzero(system == index)
            gathered, cell[rows] = _gathered(values[rows])
            points.append(gathered)
        most = max(map(len, points))
        correlation = np.broadcast_to(np.eye(most), (len(points), most, most)).copy()
        for index, cell_points in enumerate(points):
            correlation[index, : len(cell_points), : len(cell_points)] = _correlation(
                cell_points, cell_points, length
            )
        return cls(names, cell, tuple(points), correlation)

    def like(self, index: int, sizes: Mapping[str, float], length: float) -> FloatArray:
        """Correlation of a run of some sizes with the cells of its system, shape (c,)."""
        point = np.log([[sizes.get(name, 1.0) for name in self.names]])
        unseen = math.fsum(abs(math.log(x)) for n, x in sizes.items() if n not in self.names)
        cell_points = self.points[index]
        like = np.zeros(self.correlation.shape[1])
        like[: len(cell_points)] = _correlation(point, cell_points, length)[0] * math.exp(
            -unseen / length
        )
        return like


def _gathered(values: FloatArray) -> tuple[FloatArray, IntArray]:
    """Distinct rows of ln(sizes), and which each run has; on a grid where there are too many."""
    distinct, cell = np.unique(values, axis=0, return_inverse=True)
    step = _FIRST_STEP
    while len(distinct) > _MOST_CELLS:
        distinct, cell = np.unique(np.round(values / step) * step, axis=0, return_inverse=True)
        step *= 2.0
    return distinct, cell.reshape(-1)


def _correlation(points: FloatArray, other_points: FloatArray, length: float) -> FloatArray:
    """Exponential correlation of points: Rasmussen and Williams, 2006, equation 4.18, a product
    over sizes.
    """
    apart = np.abs(points[:, None] - other_points[None]).sum(axis=2)
    return np.asarray(np.exp(-apart / length))


@frozen(eq=False)
class _Posterior:
    """What is known for given weights.

    Attributes:
        cell_mean: Mean of y / sigma of each cell, shape (s, c).
        inverse: Inverse covariance of the cells of each system but for what all have in common,
            shape (s, c, c).
        precision: Inverse covariance of the systems' means, shape (s, s).
        pull: That times the means, shape (s,).
        expected: Mean of y / sigma of a run in each cell, shape (s, c).
        variance: Variance of that, shape (s, c).
    """

    cell_mean: FloatArray
    inverse: FloatArray
    precision: FloatArray
    pull: FloatArray
    expected: FloatArray
    variance: FloatArray


@frozen(eq=False)
class _Fit:
    """Runs of s systems.

    Attributes:
        ratio: y / sigma of each, shape (n,).
        system: System of each, shape (n,).
        cells: Their sizes.
        joint: Covariance of what the systems have in common, shape (s, s).
        components: Shares of the variance.
    """

    ratio: FloatArray
    system: IntArray
    cells: _Cells
    joint: FloatArray
    components: Components

    def robust(self, used: BoolArray) -> tuple[_Posterior, FloatArray]:
        """The posterior from the runs used, and their weights, by expectation and maximisation
        (Lange et al., 1989).
        """
        weight = used.astype(np.float64)
        posterior = self._posterior(weight)
        for _ in range(_STEPS):
            before = posterior.expected
            mean = posterior.expected[self.system, self.cells.cell]
            variance = posterior.variance[self.system, self.cells.cell]
            off = ((self.ratio - mean) ** 2 + variance) / self.components.own
            weight = used * (_FREEDOM + 1) / (_FREEDOM + off)
            posterior = self._posterior(weight)
            if np.abs(posterior.expected - before).max() < _TOLERANCE:
                break
        return posterior, weight

    def _posterior(self, weight: FloatArray) -> _Posterior:
        """Rasmussen and Williams, 2006, equations 2.25 and 2.26, first for the cells of a system
        around what they have in common, then for that.
        """
        near = self.components.near * self.cells.correlation
        mean, noise = self._cell_means(weight)
        inverse = _inverse(near, noise)
        once = inverse.sum(axis=2)
        weights = once.sum(axis=1)
        precision: FloatArray = np.asarray(
            np.linalg.inv(self.joint + np.diag(1.0 / weights)), dtype=np.float64
        )
        pull = precision @ ((once * mean).sum(axis=1) / weights)
        common = self.joint @ pull
        variance = np.diag(self.joint - self.joint @ precision @ self.joint)
        gain = near @ inverse
        unexplained = 1.0 - gain.sum(axis=2)
        expected = unexplained * common[:, None] + (gain @ mean[:, :, None])[:, :, 0]
        spread = self.components.near - (gain * near).sum(axis=2)
        variance = unexplained**2 * variance[:, None] + spread
        return _Posterior(mean, inverse, precision, pull, expected, variance)

    def _cell_means(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean of y / sigma of each cell, and its variance before, shape (s, c)."""
        count, most = self.cells.correlation.shape[:2]
        flat = self.system * most + self.cells.cell
        total = np.bincount(flat, weight, count * most).reshape(count, most)
        sums = np.bincount(flat, weight * self.ratio, count * most).reshape(count, most)
        total = np.maximum(total, _NO_WEIGHT)
        return sums / total, self.components.own / total

    def scale(self, weight: FloatArray) -> FloatArray:
        """Variance of all that is off in a system over that before, shape (s,).

        The variance before counts as `_PRIOR_RUNS` runs (Gelman et al., 2013, section 3.3).
        """
        parts, count = self.components, len(self.joint)
        mean, noise = self._cell_means(weight)
        inverse = _inverse(parts.near * self.cells.correlation + sum(parts.shares), noise)
        between = (mean[:, None, :] @ inverse @ mean[:, :, None]).ravel()
        inside = (self.ratio - mean[self.system, self.cells.cell]) ** 2 / parts.own
        squares = between + np.bincount(self.system, weight * inside, count)
        runs = np.bincount(self.system, weight > 0, count)
        return np.asarray((_PRIOR_RUNS + squares) / (_PRIOR_RUNS + runs))


def _inverse(covariance: FloatArray, noise: FloatArray) -> FloatArray:
    """Inverse of each covariance with noise on its diagonal, shape (s, c, c)."""
    total = covariance + noise[:, :, None] * np.eye(noise.shape[1])
    return np.asarray(np.linalg.inv(total), dtype=np.float64)
