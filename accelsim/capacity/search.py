"""The best fleet of a problem, and what contradicts where there is none.

Services and jobs meet in the limits alone. Where the best of each, found one by one, keep all
limits together, they are the best together. Where they do not, small problems are solved as one
programme, large ones by column generation (Dantzig & Wolfe, Operations Research 8, 1960): a linear
programme mixes the fleets found of each service and the ways of each job and prices the limits
(at first one of fractions of instances does); each service is searched again at those prices; a
bound of all fleets comes from the same searches (Geoffrion, Mathematical Programming Study 2,
1974). At last one fleet of each service is chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accelsim.capacity.fleet import (
    GAP,
    TOLERANCE,
    Amount,
    FleetModel,
    FleetProblem,
    InstanceFleet,
)
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray

#: Pairs of service and offer from which services are searched apart, the gap asked for then, and
#: that of the search of each.
_LARGE = 500
_LARGE_GAP = 1e-2
_PART_GAP = 3e-3
_ROUNDS = 12
#: Price of an excess over a limit, in objectives of the fleets found apart.
_PENALTY = 100.0


def solve(problem: FleetProblem, without: Collection[str] = ()) -> InstanceFleet | None:
    """The best fleet, its load spread as evenly as the limits allow; None where there is none.

    Args:
        problem: The problem.
        without: Names of limits left out; "redundancy" is one.

    Raises:
        InvalidValueError: If the search stopped before it found a fleet or showed there is none.
    """
    if not problem.can_be_done:
        return None
    is_large = problem.rate_per_s.size + len(problem.job) > _LARGE
    apart = _Apart(problem, without, _PART_GAP if is_large else GAP)
    parts = apart.best(np.zeros(len(apart.limits)))
    if parts is None or apart.keeps(fleet := apart.together(parts)):
        return None if parts is None else fleet
    chosen = None
    if is_large:
        is_shown, chosen = _Columns(apart, parts).solve()
        if is_shown:
            return chosen
    model = FleetModel.of(problem, without)
    found = model.best()
    whole = None if found is None else model.fleet(found)
    return whole if chosen is None or whole is None else _better(chosen, whole, problem.objective)


def _better(one: InstanceFleet, two: InstanceFleet, objective: Amount) -> InstanceFleet:
    best = min((one, two), key=lambda fleet: fleet.uses(objective))
    return replace(best, gap_fraction=min(one.gap_fraction, two.gap_fraction))


class _Apart:
    """Services and jobs, each searched by itself at prices of the limits.

    Args:
        problem: The problem.
        without: Names of limits left out.
        gap: Relative gap of each search.
    """

    def __init__(self, problem: FleetProblem, without: Collection[str], gap: float) -> None:
        self.problem, self.without, self.gap = problem, without, gap
        self.limits = [
            amount
            for name, amount in problem.limits.items()
            if amount.limit is not None and name not in without
        ]
        self.most = np.array([amount.limit for amount in self.limits], dtype=float)

    @property
    def parts(self) -> int:
        """Services and jobs."""
        return len(self.problem.demand_per_s) + self.problem.job_count

    def best(self, price: FloatArray) -> list[InstanceFleet] | None:
        """The best of each part, limits priced; None where one has none."""
        found = [self.part(place, price) for place in range(self.parts)]
        fleets = [fleet for fleet in found if fleet is not None]
        return None if len(fleets) < len(found) else fleets

    def part(self, place: int, price: FloatArray) -> InstanceFleet | None:
        """The best of one service, or the best way of one job."""
        objective = _sum([self.problem.objective, *self.limits], np.append(1.0, price))
        services = len(self.problem.demand_per_s)
        if place >= services:
            ways = np.flatnonzero(self.problem.job == place - services)
            way = ways[objective.per_way[ways].argmin()]
            empty = np.zeros((0, self.problem.rate_per_s.shape[1]))
            return InstanceFleet(empty, empty, np.array([way], dtype=np.int64))
        asked = replace(self.problem, objective=objective)
        model = FleetModel.of(asked.service(place, self.without), ())
        found = model.best(self.gap)
        return None if found is None else model.fleet(found)

    def together(self, fleets: Sequence[InstanceFleet]) -> InstanceFleet:
        """Fleets of all parts, in order, as one."""
        return InstanceFleet(
            np.concatenate([fleet.count for fleet in fleets]),
            np.concatenate([fleet.load_per_s for fleet in fleets]),
            np.concatenate([fleet.ways for fleet in fleets]),
            max((fleet.gap_fraction for fleet in fleets), default=0.0),
        )

    def uses(self, place: int, fleet: InstanceFleet) -> FloatArray:
        """Objective and limited amounts of one part, shape (1 + limits,)."""
        amounts = [self.problem.objective, *self.limits]
        if place < len(self.problem.demand_per_s):
            amounts = [amount.of_service(place) for amount in amounts]
        return np.array([fleet.uses(amount) for amount in amounts])

    def keeps(self, fleet: InstanceFleet) -> bool:
        """Whether a fleet keeps all limits."""
        uses = np.array([fleet.uses(amount) for amount in self.limits])
        return bool((uses <= self.most * (1 + TOLERANCE) + TOLERANCE).all())


def _sum(amounts: Sequence[Amount], factors: FloatArray) -> Amount:
    """Amounts times factors."""
    pairs = list(zip(amounts, factors.tolist(), strict=True))
    ways = [amount.per_way * factor for amount, factor in pairs if len(amount.per_way)]
    return Amount(
        np.sum([amount.per_instance * factor for amount, factor in pairs], axis=0),
        np.sum([amount.per_load * factor for amount, factor in pairs], axis=0),
        per_way=np.sum(ways, axis=0) if ways else np.zeros(0),
    )


@frozen(eq=False)
class _Mix:
    """What a linear programme of columns found.

    Attributes:
        value: Its objective.
        excess: Sum of excesses over limits, each in the limit.
        price: Of the limits, >= 0.
    """

    value: float
    excess: float
    price: FloatArray


class _Columns:
    """Fleets found of each part.

    Args:
        apart: The parts.
        first: The best fleets without limits.
    """

    def __init__(self, apart: _Apart, first: Sequence[InstanceFleet]) -> None:
        self.apart = apart
        self.fleets: list[InstanceFleet] = []
        self.part: list[int] = []
        self.uses: list[FloatArray] = []
        self.scale = np.maximum(apart.most, TOLERANCE)
        for place, fleet in enumerate(first):
            self._note(place, fleet)
        self.objective = max(sum(float(uses[0]) for uses in self.uses), TOLERANCE)

    def solve(self) -> tuple[bool, InstanceFleet | None]:
        """Whether the answer is shown to be within the gap asked for, and the answer."""
        model = FleetModel.of(self.apart.problem, self.apart.without)
        price = model.prices(len(self.scale))
        if price is None:
            return True, None
        bound = self._add(price / self.scale)
        for _ in range(_ROUNDS):
            mix = self._mixed()
            if mix.value - bound > _LARGE_GAP / 2 * abs(mix.value):
                bound = max(bound, self._add(mix.price))
                mix = self._mixed()
            if mix.value - bound <= _LARGE_GAP / 2 * abs(mix.value):
                break
        if mix.excess > TOLERANCE:
            return bound > mix.value * (1 - TOLERANCE), None
        fleet = self._chosen()
        if fleet is None:
            return False, None
        value = fleet.uses(self.apart.problem.objective)
        gap = 1 - bound / value if value else 0.0
        shown = replace(fleet, gap_fraction=0.0 if gap <= _LARGE_GAP else gap)
        return gap <= _LARGE_GAP, shown

    def _add(self, price: FloatArray) -> float:
        """Search each part at a price; a bound of all fleets."""
        least = -float(price @ self.apart.most)
        for place in range(self.apart.parts):
            fleet = self.apart.part(place, price)
            if fleet is None:
                return np.inf
            uses = self._note(place, fleet)
            least += float(uses[0] + price @ uses[1:]) * (1 - self.apart.gap)
        return least

    def _note(self, place: int, fleet: InstanceFleet) -> FloatArray:
        """A fleet of a part; what it uses."""
        uses = self.apart.uses(place, fleet)
        self.fleets.append(fleet)
        self.part.append(place)
        self.uses.append(uses)
        return uses

    def _mixed(self) -> _Mix:
        """The best mixture of the fleets found, excesses over limits penalised."""
        from scipy.optimize import linprog

        uses = np.array(self.uses)
        limits, columns = len(self.scale), len(uses)
        rows = np.concatenate([uses[:, 1:].T / self.scale[:, None], -np.eye(limits)], axis=1)
        penalty = _PENALTY * self.objective
        cost = np.append(uses[:, 0], np.full(limits, penalty))
        one = np.append(self._of_part(), np.zeros((self.apart.parts, limits)), axis=1)
        done = linprog(cost, rows, np.ones(limits), one, np.ones(self.apart.parts), method="highs")
        price = np.maximum(-done.ineqlin.marginals, 0.0) / self.scale
        return _Mix(float(done.fun), float(done.x[columns:].sum()), price)

    def _of_part(self) -> Any:
        return (np.arange(self.apart.parts)[:, None] == np.array(self.part)).astype(float)

    def _chosen(self) -> InstanceFleet | None:
        """One fleet of each part, limits kept; None where no choice keeps them."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        uses, one = np.array(self.uses), np.ones(self.apart.parts)
        kept = LinearConstraint(uses[:, 1:].T / self.scale[:, None], -np.inf, 1.0)
        done = milp(
            uses[:, 0] / self.objective,
            integrality=np.ones(len(uses)),
            bounds=Bounds(0, 1),
            constraints=[kept, LinearConstraint(self._of_part(), one, one)],
            options={"disp": False, "time_limit": 2.0, "mip_rel_gap": _LARGE_GAP / 4},
        )
        if done.x is None:
            return None
        taken: IntArray = np.flatnonzero(done.x > 0.5)
        in_order = sorted(taken.tolist(), key=lambda column: self.part[column])
        return self.apart.together([self.fleets[column] for column in in_order])


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
