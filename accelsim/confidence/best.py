"""How sure the choice among alternatives is: predictions of one question are off together, so that
most of their errors cancel in a comparison.

ln(true / predicted) of alternative i is sigma_i (sqrt(1 - o) c + sqrt(o) e_i), where c is shared by
all of them, e_i is its own, both are standard normal, and o is the own share of the variance.
Alternatives of which one runs on a device of another class share nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from accelsim.confidence.quantiles import Z90
from accelsim.workloads.graph import FloatArray

#: Share of the variance that is an alternative's own: the median over 905 measured decisions about
#: devices, engines, formats, plans, layouts and batches (``python -m tools.scoreboard.decisions``,
#: which estimates it anew without the system that it scores).
OWN_SHARE = 0.13
#: What counts as good as the best.
NEAR = 0.05
#: Least figure: what costs nothing has a logarithm, too.
_LEAST = 1e-12
_DRAWS = 4000
#: Alternatives further from the best than so many standard deviations are never near it.
_FAR = 5.0


def difference_log_sigma(
    log_sigma: float, other_log_sigma: float, *, is_alike: bool = True
) -> float:
    """Standard deviation of the error of ln(time of one / time of another).

    Variance of a difference of correlated quantities (JCGM 100:2008, section 5.2). Estimate: what
    alternatives share is `1 - OWN_SHARE` of the variance.

    Args:
        log_sigma: Spread of ln(true / predicted) of one.
        other_log_sigma: Of the other.
        is_alike: Whether they share an error: they run on devices of one class.
    """
    shared = (1.0 - OWN_SHARE) * log_sigma * other_log_sigma if is_alike else 0.0
    return math.sqrt(max(log_sigma**2 + other_log_sigma**2 - 2 * shared, 0.0))


def is_tie(
    figure: tuple[float, float], other_figure: tuple[float, float], *, is_alike: bool = True
) -> bool:
    """Whether the 90 % interval of the difference of two alternatives holds zero.

    Args:
        figure: Predicted figure, 0 or more, and the spread of ln(true / predicted).
        other_figure: The same of the other.
        is_alike: As in `difference_log_sigma`.
    """
    spread = difference_log_sigma(figure[1], other_figure[1], is_alike=is_alike)
    return abs(math.log(max(figure[0], _LEAST) / max(other_figure[0], _LEAST))) <= Z90 * spread


def near_best_probability(
    predicted: FloatArray,
    log_sigma: FloatArray,
    groups: Sequence[str] | None = None,
    own_share: float = OWN_SHARE,
) -> FloatArray:
    """Probability that each of n alternatives is at most 5 % worse than the best of them.

    Distributions propagated by draws (JCGM 101:2008).

    Args:
        predicted: Times or costs, 0 or more, shape (n,); less is better.
        log_sigma: Spread of ln(true / predicted), shape (n,).
        groups: Class of device of each, length n; those of one class share an error. All are of one
            where None.
        own_share: Share of the variance that is each one's own.

    Returns:
        Shape (n,), by 4,000 draws of a fixed seed: half-width of 95 % at most 1.6 points.
    """
    log = np.log(np.maximum(predicted, _LEAST))
    reach = log - _FAR * log_sigma
    near_rows = np.flatnonzero(reach <= (log + _FAR * log_sigma).min() + math.log1p(NEAR))
    names = np.full(len(log), "") if groups is None else np.array(list(groups))
    _, group = np.unique(names[near_rows], return_inverse=True)
    generator = np.random.default_rng(0)
    common = generator.standard_normal((_DRAWS, int(group.max()) + 1))[:, group]
    individual = generator.standard_normal((_DRAWS, len(near_rows)))
    error = math.sqrt(1.0 - own_share) * common + math.sqrt(own_share) * individual
    drawn = log[near_rows] + log_sigma[near_rows] * error
    near = drawn <= drawn.min(axis=1, keepdims=True) + math.log1p(NEAR)
    chances = np.zeros(len(log))
    chances[near_rows] = near.mean(axis=0)
    return chances
