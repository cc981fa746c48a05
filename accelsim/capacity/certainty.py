"""How sure a fleet is: the probability that limits of time hold over the error of the model.

All times of a device are off by one common factor, so that a fleet holds up to some factor and not
beyond it: P = Phi(z), z the largest quantile of the error at which the fleet, simulated with its
steps so much slower, still keeps the limits. A few simulations bracket it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

from accelsim.capacity.replica_answers import ReplicaLoad, ServiceAnswer
from accelsim.frozen import frozen

#: Widest bracket of a probability: 5 points to either side of its middle.
_WIDEST = 0.1
#: Probability that the largest quantile tried stands for.
_MOST = 0.999


@frozen
class Held:
    """A bracket of a probability.

    Attributes:
        low: It is no less.
        high: It is no more.
    """

    low: float
    high: float = 1.0

    @property
    def middle(self) -> float:
        """The middle of it."""
        return (self.low + self.high) / 2

    @property
    def half_width(self) -> float:
        """To either side."""
        return (self.high - self.low) / 2

    def both(self, other: Held) -> Held:
        """That of both of two things that are independent."""
        return Held(self.low * other.low, self.high * other.high)

    def either(self, other: Held) -> Held:
        """That of both of two things that one error decides."""
        return Held(min(self.low, other.low), min(self.high, other.high))


def held(answer: ServiceAnswer, replicas: int, planned: ReplicaLoad) -> Held:
    """Probability that replicas keep the limits of a service.

    Args:
        answer: How they answer.
        replicas: How many there are.
        planned: What they were found for, where they keep the limits.
    """
    if not answer.log_sigma:
        return Held(1.0)
    normal = NormalDist()
    bracket = Held(normal.cdf(planned.z))
    while bracket.high - bracket.low > _WIDEST:
        level = min(bracket.middle, _MOST)
        load = replace(planned, z=normal.inv_cdf(level))
        if answer.holds(replicas, load, planned):
            bracket = replace(bracket, low=level)
        else:
            bracket = replace(bracket, high=level)
    return bracket


def slack_fraction(odds: Held, log_sigma: float) -> float:
    """How much slower everything may be than predicted while the limits still hold.

    Args:
        odds: Probability that they do.
        log_sigma: Spread of the model's error.
    """
    level = min(max(odds.low, 1 - _MOST), _MOST)
    return math.expm1(NormalDist().inv_cdf(level) * log_sigma)


def together(by_device: Mapping[str, Sequence[Held]]) -> Held:
    """Probability that all hold: errors of one device are one, those of several independent."""
    odds = Held(1.0)
    for brackets in by_device.values():
        least = brackets[0]
        for bracket in brackets[1:]:
            least = least.either(bracket)
        odds = odds.both(least)
    return odds
