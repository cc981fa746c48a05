"""What a few measured runs say of other runs: a hierarchical normal model of ln(measured /
predicted).

A run's error is a sum of effects that it shares with runs like it (the same system, engine, format,
...) and of one of its own: y = sigma (sum_l sqrt(s_l) u_l + sqrt(s_0) e), where u are standard
normal, e follows Student's t, and sigma is the spread of runs like it before anything of it was
measured. The posterior of the effects is normal for given weights of the runs (Gelman et al.,
Bayesian Data Analysis, 3rd edition, section 15.4); weights of the t are found by expectation and
maximisation (Lange, Little and Taylor, Journal of the American Statistical Association 84, 1989),
so that a wrong unit or a stalled run does not draw the others along; a run that lies four standard
deviations from where the others expect it takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

#: Degrees of freedom of a run's own error: heavy tails, as Lange et al. advise where they are not
#: known.
_FREEDOM = 4.0
#: Runs that the spread before counts as, against what the runs say of their own spread: estimate.
_PRIOR_RUNS = 4.0
_STEPS = 50
_TOLERANCE = 1e-6
#: Weight below which a run is far from all like it: 4 standard deviations.
_FAR_WEIGHT = (_FREEDOM + 1) / (_FREEDOM + 16.0)


@frozen
class Correction:
    """What is known of a run's error.

    Attributes:
        shift: Mean of ln(true / predicted).
        log_sigma: Its standard deviation.
        run_count: Measured runs that share an effect with it.
    """

    shift: float
    log_sigma: float
    run_count: int


@frozen(eq=False)
class Hierarchy:
    """Effects known from n runs.

    Attributes:
        shares: Share of the variance of each level of effects; what is left is a run's own.
        place: Place of each effect.
        mean: Posterior means, shape (effects,).
        covariance: Posterior covariance, shape (effects, effects).
        own_ratio: Spread of a run's own error over that before, by its first effect, which runs of
            one system alone share.
        weight: Weight of each run, at most (f + 1) / f; small where it is far from others like it,
            shape (n,).
        runs_of: Runs that have each effect.
    """

    shares: tuple[float, ...]
    place: Mapping[str, int]
    mean: FloatArray
    covariance: FloatArray
    own_ratio: Mapping[str, float]
    weight: FloatArray
    runs_of: Mapping[str, frozenset[int]]

    @classmethod
    def of(
        cls,
        effects: Sequence[Sequence[str]],
        log_ratio: FloatArray,
        log_sigma: FloatArray,
        shares: tuple[float, ...],
    ) -> Hierarchy:
        """The posterior of runs.

        Args:
            effects: Names of the effects of each run, one for each level, length n.
            log_ratio: ln(measured / predicted), shape (n,).
            log_sigma: Spread of runs like each before, shape (n,), above 0.
            shares: Share of the variance of each level, below 1 in all.
        """
        names = sorted(set(chain.from_iterable(effects)))
        place = {name: index for index, name in enumerate(names)}
        columns = np.array([[place[name] for name in row] for row in effects], dtype=np.int64)
        known = len(log_ratio)
        parts = log_sigma[:, None] * np.sqrt(shares)
        fitted = _Fit(columns, parts, log_ratio, log_sigma**2 * (1.0 - sum(shares)))
        mean, covariance, weight, ratio = fitted.posterior(len(names), np.ones(known, dtype=bool))
        near = weight >= _FAR_WEIGHT
        if not near.all():
            mean, covariance, weight, ratio = fitted.posterior(len(names), near)
        runs_of: dict[str, set[int]] = {}
        for run, row in enumerate(effects):
            for name in row:
                runs_of.setdefault(name, set()).add(run)
        kept = {name: frozenset(runs) for name, runs in runs_of.items()}
        own = zip((row[0] for row in effects), np.sqrt(ratio).tolist(), strict=True)
        return cls(shares, place, mean, covariance, dict(own), weight, kept)

    def correction(self, effects: Sequence[str], log_sigma: float) -> Correction:
        """What is known of a run.

        Args:
            effects: Its effects, one for each level.
            log_sigma: Spread of runs like it before.
        """
        pairs = list(zip(effects, self.shares, strict=True))
        known = [
            (self.place[name], math.sqrt(share)) for name, share in pairs if name in self.place
        ]
        places = [place for place, _ in known]
        design = log_sigma * np.array([root for _, root in known])
        variance = float(design @ self.covariance[np.ix_(places, places)] @ design)
        unknown = sum(share for name, share in pairs if name not in self.place)
        runs = frozenset().union(*(self.runs_of[n] for n, _ in pairs if n in self.place))
        own = (1.0 - sum(self.shares)) * self.own_ratio.get(effects[0], 1.0) ** 2
        variance += log_sigma**2 * (unknown + own)
        return Correction(float(design @ self.mean[places]), math.sqrt(variance), len(runs))

    @property
    def far_runs(self) -> list[int]:
        """Runs so far from all like them that they say nothing: a wrong unit, a stalled run."""
        return [int(run) for run in np.flatnonzero(self.weight < _FAR_WEIGHT)]


@frozen(eq=False)
class _Fit:
    """Runs as a sparse design: each has one effect of each of k levels.

    Attributes:
        columns: Places of their effects, shape (n, k).
        parts: What each effect adds for one standard deviation of it, shape (n, k).
        log_ratio: What was measured, shape (n,).
        own: Variance of each run's own error, shape (n,).
    """

    columns: IntArray
    parts: FloatArray
    log_ratio: FloatArray
    own: FloatArray

    def posterior(
        self, count: int, used: BoolArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean and covariance of so many effects from the runs used, their weights, and the
        variance of each run's own error over that before, which runs of one system share.

        Gelman et al., Bayesian Data Analysis, 3rd edition, 2013, section 15.4.
        """
        system = self.columns[:, 0]
        runs = np.bincount(system, used, count)
        weight, ratio = used.astype(np.float64), np.ones(len(used))
        mean, covariance = np.zeros(count), np.eye(count)
        for _ in range(_STEPS if used.any() else 0):
            before = mean
            mean, covariance = self._effects(weight / (self.own * ratio), count)
            expected = (self.parts * mean[self.columns]).sum(axis=1)
            off = ((self.log_ratio - expected) ** 2 + self._spread(covariance)) / self.own
            weight = used * (_FREEDOM + 1) / (_FREEDOM + off / ratio)
            seen = np.bincount(system, weight * off, count)
            ratio = ((_PRIOR_RUNS + seen) / (_PRIOR_RUNS + runs))[system]
            if np.abs(mean - before).max() < _TOLERANCE:
                break
        return mean, covariance, weight, ratio

    def _effects(self, precision: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and covariance of the effects, for given precisions of the runs.

        Gelman et al., Bayesian Data Analysis, 3rd edition, 2013, section 15.4.
        """
        told = np.zeros(count)
        np.add.at(told, self.columns, self.parts * (precision * self.log_ratio)[:, None])
        joint = np.eye(count)
        for one, other in self._pairs():
            products = self.parts[:, one] * self.parts[:, other] * precision
            np.add.at(joint, (self.columns[:, one], self.columns[:, other]), products)
        covariance: FloatArray = np.asarray(np.linalg.inv(joint), dtype=np.float64)
        return covariance @ told, covariance

    def _spread(self, covariance: FloatArray) -> FloatArray:
        """Variance of what is expected of each run."""
        spread = np.zeros(len(self.log_ratio))
        for one, other in self._pairs():
            joint = covariance[self.columns[:, one], self.columns[:, other]]
            spread += self.parts[:, one] * self.parts[:, other] * joint
        return spread

    def _pairs(self) -> Iterator[tuple[int, int]]:
        levels = range(self.columns.shape[1])
        return ((one, other) for one in levels for other in levels)
