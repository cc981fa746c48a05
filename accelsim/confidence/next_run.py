"""Which run to measure next: what a measurement of an alternative is worth to a choice.

ln(true / predicted) of the alternatives is jointly normal (`confidence.best`). A measured run says
one of them, but for its noise, and with it a part of the others. Its worth is what it lowers the
expected cost of the choice by: the expected value of sample information (Raiffa and Schlaifer,
Applied Statistical Decision Theory, 1961, chapter 4), here of a normal prior, whose posterior
spreads do not depend on what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np

from accelsim.confidence.best import OWN_SHARE
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray

#: Standard deviation of ln(measured / true) of a run, repeated and warm: estimate.
RUN_LOG_SIGMA = 0.03
_DRAWS = 2000


@frozen(eq=False)
class Alternatives:
    """What is known of the costs of n alternatives.

    Attributes:
        mean: Mean of the logarithm of each one's cost, shape (n,).
        covariance: Covariance of their errors, shape (n, n).
    """

    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(
        cls,
        cost: FloatArray,
        log_sigma: FloatArray,
        groups: Sequence[str],
        own_share: float = OWN_SHARE,
    ) -> Alternatives:
        """Alternatives of which nothing was measured. Estimate: errors on one class of device share
        all but `own_share` of their variance.

        Args:
            cost: Predicted costs, above 0, shape (n,).
            log_sigma: Spread of ln(true / predicted), shape (n,).
            groups: Class of device of each, length n; those of one class share an error.
            own_share: Share of the variance that is each one's own.
        """
        names = np.array(list(groups))
        shared = (1.0 - own_share) * (names[:, None] == names[None, :])
        return cls(
            np.log(cost), np.outer(log_sigma, log_sigma) * (shared + own_share * np.eye(len(names)))
        )

    @property
    def choice(self) -> int:
        """The alternative of the least expected cost."""
        return int((self.mean + np.diag(self.covariance) / 2).argmin())

    def after(self, index: int, cost: float, run_log_sigma: float = RUN_LOG_SIGMA) -> Alternatives:
        """The same once an alternative was measured: a normal distribution given one of its
        quantities (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, A.6).

        Args:
            index: The alternative.
            cost: Its measured cost.
            run_log_sigma: Noise of a run.
        """
        column = self.covariance[:, index]
        gain = column / (column[index] + run_log_sigma**2)
        mean = self.mean + gain * (np.log(cost) - self.mean[index])
        return Alternatives(mean, self.covariance - np.outer(gain, column))

    def saving(self, indices: Sequence[int], run_log_sigma: float = RUN_LOG_SIGMA) -> float:
        """What measured runs lower the expected cost of the choice by, in its unit: the expected
        value of sample information (Raiffa and Schlaifer, 1961, chapter 4).

        Args:
            indices: Alternatives that are measured.
            run_log_sigma: Noise of a run.
        """
        measured = list(indices)
        columns = self.covariance[:, measured]
        spread = columns[measured] + run_log_sigma**2 * np.eye(len(measured))
        return self._saving(columns @ np.linalg.inv(spread), spread)

    @property
    def regret(self) -> float:
        """Expected loss of the choice to the best: what it would save to know all."""
        return self._saving(np.eye(len(self.mean)), self.covariance)

    def _saving(self, gain: FloatArray, spread: FloatArray) -> float:
        """The expected saving where the means move by `gain` times a normal vector (Raiffa and
        Schlaifer, 1961, chapter 4), by antithetic draws.
        """
        values, vectors = np.linalg.eigh(spread)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        half = np.random.default_rng(0).standard_normal((_DRAWS // 2, len(spread)))
        moves = np.concatenate([half, -half]) @ (gain @ root).T
        left = np.diag(self.covariance) - ((gain @ root) ** 2).sum(axis=1)
        expected = np.exp(self.mean + moves + np.maximum(left, 0.0) / 2)
        saved = expected.mean(axis=0).min() - expected.min(axis=1).mean()
        return max(float(saved), 0.0)

    def best_runs(self, count: int, price: FloatArray) -> tuple[int, ...]:
        """The runs whose saving exceeds their price by the most; none where no runs are worth it.

        Two runs may be worth much where each alone is worth nothing: an error that both share says
        nothing of their difference. So all sets of runs are tried: n is to be small.

        Args:
            count: Most runs.
            price: Price of a run of each alternative, shape (n,), in the unit of the costs.
        """
        places = range(len(self.mean))
        sets = chain.from_iterable(combinations(places, k + 1) for k in range(count))
        gains = {runs: self.saving(runs) - float(price[list(runs)].sum()) for runs in sets}
        best = max(gains, key=lambda runs: gains[runs])
        return best if gains[best] > 0 else ()
