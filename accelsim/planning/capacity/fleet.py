"""The fleet with the least cost, energy or carbon that carries a load: a mixed-integer programme.

Whole instances x and the load q each kind of instance carries for each service:

    minimise  f·x + v·q
    with      sum q = demand            for each service
              q <= rate·x               for each pair of service and offer
              sum rate·x - k·rate·y >= demand, x <= M·y    for each pair, where k instances may fail
              amounts of x and q        within their limits

solved by HiGHS (Huangfu & Hall, Mathematical Programming Computation 10, 2018) through scipy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.workloads.graph import FloatArray

__all__ = ["Amount", "Fleet", "FleetProblem", "irreducible_conflict", "solve"]

_GAP: Final = 1e-4
_TIME_LIMIT_S: Final = 20.0
_TOLERANCE: Final = 1e-6
#: `scipy.optimize.milp`: solved, and shown to have no solution; all else is a search that stopped.
_SOLVED: Final = 0
_INFEASIBLE: Final = 2


@dataclass(frozen=True, slots=True)
class Amount:
    """Something a fleet uses, linear in instances and in load; a limit of it, or an objective.

    Attributes:
        per_instance: Used by one instance, idle, shape (offers,).
        per_load: Used by one request per second on top, shape (services, offers).
        limit: Largest sum; None sets none.
    """

    per_instance: FloatArray
    per_load: FloatArray
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class FleetProblem:
    """What is to be carried, and by what.

    Attributes:
        demand_per_s: Requests per second, shape (services,), > 0.
        rate_per_s: Rate an instance carries within the service's latency, shape (services,
            offers); 0 where it cannot.
        objective: What is least.
        limits: Amounts with limits, by the name of the constraint.
        redundancy: Instances of the largest kind of a service that may fail.
    """

    demand_per_s: FloatArray
    rate_per_s: FloatArray
    objective: Amount
    limits: Mapping[str, Amount]
    redundancy: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Instances and the load each kind carries.

    Attributes:
        count: Instances, shape (services, offers).
        load_per_s: Requests per second, the same shape.
        is_proven: Whether no other is better by more than the search's tolerance; False where the
            search stopped at its time limit.
    """

    count: FloatArray
    load_per_s: FloatArray
    is_proven: bool = True

    def uses(self, amount: Amount) -> float:
        """How much of an amount it uses."""
        idle = self.count.sum(axis=0) @ amount.per_instance
        return float(idle + (self.load_per_s * amount.per_load).sum())


def solve(problem: FleetProblem, without: Collection[str] = ()) -> Fleet | None:
    """The best fleet, its load spread as evenly as the limits allow; None where there is none.

    Args:
        problem: The problem.
        without: Names of limits left out; "redundancy" is one.

    Raises:
        InvalidValueError: If the search stopped before it found a fleet or showed there is none.
    """
    model = _Model.of(problem, without)
    if (problem.rate_per_s > 0).any(axis=1).all():
        found = model.best()
        if found is not None:
            return model.fleet(found)
    return None


def irreducible_conflict(problem: FleetProblem) -> tuple[str, ...]:
    """Limits that no fleet keeps together, each of them needed for that: what is left of all when
    every limit is dropped whose removal leaves the problem infeasible (the deletion filter;
    Chinneck & Dravnieks, ORSA Journal on Computing 3, 1991).

    Args:
        problem: A problem without a fleet.
    """
    names = [*problem.limits, *(["redundancy"] if problem.redundancy else [])]
    dropped: list[str] = []
    for name in names:
        if solve(problem, (*dropped, name)) is None:
            dropped.append(name)
    return tuple(name for name in names if name not in dropped)


class _Model:
    """Matrices of a problem: columns are x, q and y of the pairs that can serve; loads and rates
    are in shares of the service's demand, so that all coefficients are near 1.
    """

    def __init__(self, problem: FleetProblem, redundancy: int) -> None:
        self.problem, self.redundancy = problem, redundancy
        self.service, self.offer = np.nonzero(problem.rate_per_s > 0)
        self.demand = problem.demand_per_s[self.service]
        self.rate = problem.rate_per_s[self.service, self.offer] / self.demand
        self.size = len(self.rate)
        self.most = np.ceil(1 / self.rate - _TOLERANCE) + redundancy
        self.rows: list[FloatArray] = []
        self.low: list[float] = []
        self.is_proven = True
        self.high: list[float] = []

    @classmethod
    def of(cls, problem: FleetProblem, without: Collection[str]) -> _Model:
        model = cls(problem, 0 if "redundancy" in without else problem.redundancy)
        model._carry()
        if model.redundancy:
            model._survive()
        for name, amount in problem.limits.items():
            if name not in without and amount.limit is not None:
                scale = max(amount.limit, _TOLERANCE)
                model._add(model.coefficients(amount) / scale, -math.inf, amount.limit / scale)
        return model

    def coefficients(self, amount: Amount) -> FloatArray:
        """Of an amount in the columns of the model."""
        idle = amount.per_instance[self.offer]
        load = amount.per_load[self.service, self.offer] * self.demand
        return np.concatenate([idle, load, 0 * idle])

    def best(self) -> FloatArray | None:
        from scipy.optimize import Bounds, LinearConstraint, milp

        size = self.size
        objective = self.coefficients(self.problem.objective)
        done = milp(
            objective / max(objective.max(), _TOLERANCE),
            integrality=np.repeat([1, 0, 1], size),
            bounds=Bounds(0, np.concatenate([self.most, np.full(size, np.inf), np.ones(size)])),
            constraints=LinearConstraint(np.array(self.rows), self.low, self.high),
            options={"disp": False, "mip_rel_gap": _GAP, "time_limit": _TIME_LIMIT_S},
        )
        if done.x is None and done.status != _INFEASIBLE:
            allowed = f"few enough to be searched in {_TIME_LIMIT_S:g} s"
            raise InvalidValueError("candidates", size, allowed, "Name fewer devices or regions.")
        self.is_proven = done.status in {_SOLVED, _INFEASIBLE}
        return None if done.x is None else np.asarray(done.x)

    def fleet(self, found: FloatArray) -> Fleet:
        """Whole instances of a solution, their load spread evenly."""
        whole = np.round(found[: self.size])
        shape = self.problem.rate_per_s.shape
        count, load = np.zeros(shape), np.zeros(shape)
        count[self.service, self.offer] = whole
        load[self.service, self.offer] = self._even_load(whole, found) * self.demand
        return Fleet(count, load, self.is_proven)

    def _even_load(self, whole: FloatArray, found: FloatArray) -> FloatArray:
        """Load in proportion to what the instances carry; the solution's own where that would
        break a limit or cost more.
        """
        carried = self.rate * whole
        by_service = np.bincount(self.service, carried)[self.service]
        load = carried / by_service
        even = np.concatenate([whole, load, found[2 * self.size :]])
        rows = np.array(self.rows) @ even
        keeps = (rows <= np.array(self.high) * (1 + _TOLERANCE) + _TOLERANCE).all()
        objective = self.coefficients(self.problem.objective)
        is_best = objective @ even <= objective @ found * (1 + _TOLERANCE)
        return load if keeps and is_best else found[self.size : 2 * self.size]

    def _carry(self) -> None:
        for place in range(len(self.problem.demand_per_s)):
            row = np.zeros(3 * self.size)
            row[self.size : 2 * self.size] = self.service == place
            self._add(row, 1.0, 1.0)
        for pair in range(self.size):
            row = np.zeros(3 * self.size)
            row[pair], row[self.size + pair] = self.rate[pair], -1.0
            self._add(row, 0.0, math.inf)

    def _survive(self) -> None:
        for pair in range(self.size):
            row = np.zeros(3 * self.size)
            row[: self.size] = np.where(self.service == self.service[pair], self.rate, 0.0)
            row[2 * self.size + pair] = -self.redundancy * self.rate[pair]
            self._add(row, 1.0, math.inf)
            used = np.zeros(3 * self.size)
            used[pair], used[2 * self.size + pair] = -1.0, self.most[pair]
            self._add(used, 0.0, math.inf)

    def _add(self, row: FloatArray, low: float, high: float) -> None:
        self.rows.append(row)
        self.low.append(low)
        self.high.append(high)
