"""The fleet with the least of an objective that carries a load: a mixed-integer programme.

Whole instances x and the load q each kind of instance carries for each service; of each job one of
the ways z it can be done:

    minimise  f·x + v·q + w·z
    with      sum q = demand            for each service
              q <= rate·x               for each pair of service and offer
              sum rate·x - k·rate·y >= demand, x <= M·y    for each pair, where k instances may fail
              sum z = 1                 for each job
              amounts of x, q and z     within their limits

solved by HiGHS (Huangfu & Hall, Mathematical Programming Computation 10, 2018) through scipy.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Any

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

#: Gap that a search ends at.
GAP = 1e-4
_TIME_LIMIT_S = 20.0
_OPTIONS = {"disp": False, "time_limit": _TIME_LIMIT_S}
TOLERANCE = 1e-6
#: Largest rate in demands: beyond it, less than the tolerance of an instance would carry all.
_MOST_RATE = 1e4
#: `scipy.optimize.milp`: solved, and shown to have no solution; all else is a search that stopped.
_SOLVED = 0
_INFEASIBLE = 2


@frozen
class Amount:
    """Something a fleet uses, linear in instances, load and ways; a limit of it, or an objective.

    Attributes:
        per_instance: Used by one instance, idle, shape (offers,).
        per_load: Used by one request per second on top, shape (services, offers).
        limit: Largest sum; None sets none.
        per_way: Used by a way of doing a job, shape (ways,).
    """

    per_instance: FloatArray
    per_load: FloatArray
    limit: float | None = None
    per_way: FloatArray = field(default_factory=lambda: np.zeros(0))

    def of_service(self, place: int) -> Amount:
        """What one service uses alone, without a limit."""
        return Amount(self.per_instance, self.per_load[place : place + 1])


@frozen
class FleetProblem:
    """What is to be carried, and by what.

    Attributes:
        demand_per_s: Requests per second, shape (services,), > 0.
        rate_per_s: Rate an instance carries within the service's latency, shape (services,
            offers); 0 where it cannot.
        objective: What is least.
        limits: Amounts with limits, by the name of the constraint.
        redundancy: Instances of the largest kind of a service that may fail.
        job: Job that each way does, shape (ways,).
        job_count: Jobs; one without a way cannot be done.
    """

    demand_per_s: FloatArray
    rate_per_s: FloatArray
    objective: Amount
    limits: Mapping[str, Amount]
    redundancy: int = 0
    job: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    job_count: int = 0

    def service(self, place: int, without: Collection[str]) -> FleetProblem:
        """One service alone, without limits."""
        return FleetProblem(
            self.demand_per_s[place : place + 1],
            self.rate_per_s[place : place + 1],
            self.objective.of_service(place),
            {},
            0 if "redundancy" in without else self.redundancy,
        )

    @property
    def can_be_done(self) -> bool:
        """Whether something carries each service, and each job has a way."""
        carried = (self.rate_per_s > 0).any(axis=1).all()
        return bool(carried and np.isin(np.arange(self.job_count), self.job).all())


@frozen
class InstanceFleet:
    """Instances and the load each kind carries.

    Attributes:
        count: Instances, shape (services, offers).
        load_per_s: Requests per second, the same shape.
        ways: Ways taken, one for each job, shape (jobs,).
        gap_fraction: By how much another could be better at most, beyond the search's tolerance,
            where it stopped at its time limit.
    """

    count: FloatArray
    load_per_s: FloatArray
    ways: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gap_fraction: float = 0.0

    def uses(self, amount: Amount) -> float:
        """How much of an amount it uses."""
        idle = self.count.sum(axis=0) @ amount.per_instance
        of_ways = amount.per_way[self.ways].sum() if len(self.ways) else 0.0
        return float(idle + (self.load_per_s * amount.per_load).sum() + of_ways)


def _worth_asking(problem: FleetProblem) -> BoolArray:
    """Pairs that no other of their service replaces: one that carries as much and uses as little
    of all amounts, one instance for one; shape (services, offers). Where two and more may fail, a
    larger instance is no replacement, one that carries the same is.
    """
    worth: BoolArray = problem.rate_per_s > 0
    amounts = [problem.objective, *problem.limits.values()]
    for place, rates in enumerate(problem.rate_per_s):
        uses = [rates * -1.0, rates] if problem.redundancy > 1 else [rates * -1.0]
        for amount in amounts:
            uses += [amount.per_instance, amount.per_load[place]]
        columns = np.stack(uses, axis=1)
        for offer in np.flatnonzero(worth[place]):
            as_good = (columns <= columns[offer]).all(axis=1) & worth[place]
            as_good[offer] = False
            worth[place, offer] = not as_good.any()
    return worth


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing reaches standard output: HiGHS prints there where it loses a solution, whatever its
    options say.
    """
    with suppress(OSError, AttributeError, ValueError):
        sys.stdout.flush()
    flush = getattr(ctypes.CDLL(None), "fflush", None) if os.name == "posix" else None
    try:
        kept = os.dup(1)
    except OSError:  # standard output is closed
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 1)
        try:
            yield
        finally:
            if flush is not None:
                flush(None)
            os.dup2(kept, 1)
            os.close(kept)


def _gap(done: Any) -> float:
    """Gap of a search that stopped; 1 where it says none."""
    gap = getattr(done, "mip_gap", None)
    return 1.0 if gap is None or not math.isfinite(gap) else max(float(gap), GAP)


class FleetModel:
    """Matrices of a problem: columns are x, q and y of the pairs that can serve, then z; loads and
    rates are in shares of the service's demand, so that all coefficients are near 1.
    """

    def __init__(self, problem: FleetProblem, redundancy: int) -> None:
        self.problem, self.redundancy = problem, redundancy
        self.service, self.offer = np.nonzero(_worth_asking(problem))
        self.demand = problem.demand_per_s[self.service]
        rate = problem.rate_per_s[self.service, self.offer] / self.demand
        self.rate = np.minimum(rate, _MOST_RATE)
        self.size = len(self.rate)
        self.width = 3 * self.size + len(problem.job)
        self.most = np.ceil(1 / self.rate - TOLERANCE) + redundancy
        self.rows: list[Any] = []
        self.low: list[FloatArray] = []
        self.high: list[FloatArray] = []
        self.gap_fraction = 0.0

    @classmethod
    def of(cls, problem: FleetProblem, without: Collection[str]) -> FleetModel:
        """The model of a problem.

        Args:
            problem: The problem.
            without: Names of limits left out; "redundancy" is one.
        """
        model = cls(problem, 0 if "redundancy" in without else problem.redundancy)
        model._carry()
        if model.redundancy:
            model._survive()
        if problem.job_count:
            rows = (np.arange(problem.job_count)[:, None] == problem.job).astype(float)
            model._add([None, None, None, rows], 1.0, 1.0)
        for name, amount in problem.limits.items():
            if name not in without and amount.limit is not None:
                scale = max(amount.limit, TOLERANCE)
                row = model.coefficients(amount)[None] / scale
                model._add(np.split(row, model._edges, axis=1), -math.inf, amount.limit / scale)
        return model

    @property
    def _edges(self) -> list[int]:
        return [self.size, 2 * self.size, 3 * self.size]

    def coefficients(self, amount: Amount) -> FloatArray:
        """Of an amount in the columns of the model."""
        idle = amount.per_instance[self.offer]
        load = amount.per_load[self.service, self.offer] * self.demand
        of_ways = amount.per_way if len(amount.per_way) else np.zeros(len(self.problem.job))
        return np.concatenate([idle, load, 0 * idle, of_ways])

    def best(self, gap: float = GAP) -> FloatArray | None:
        """The columns of the best fleet; None where there is none.

        Args:
            gap: Relative gap that the search ends at.

        Raises:
            InvalidValueError: If it stopped before it found one or showed there is none.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        size, ways = self.size, len(self.problem.job)
        objective = self.coefficients(self.problem.objective)
        most = [self.most, np.full(size, np.inf), np.ones(size + ways)]
        matrix, low, high = self._constraints()
        with _silent():
            done = milp(
                objective / max(objective.max(initial=0.0), TOLERANCE),
                integrality=np.repeat([1, 0, 1, 1], [size, size, size, ways]),
                bounds=Bounds(0, np.concatenate(most)),
                constraints=LinearConstraint(matrix, low, high),
                options={**_OPTIONS, "mip_rel_gap": gap},
            )
        if done.x is None and done.status != _INFEASIBLE:
            allowed = f"few enough to be searched in {_TIME_LIMIT_S:g} s"
            raise InvalidValueError("candidates", size, allowed, "Name fewer devices or regions.")
        self.gap_fraction = 0.0 if done.status in {_SOLVED, _INFEASIBLE} else _gap(done)
        return None if done.x is None else np.asarray(done.x)

    def prices(self, limits: int) -> FloatArray | None:
        """Prices of the last so many rows, in the objective for one more of each, where instances
        may be fractions; None where even those keep no limits.

        Args:
            limits: Rows.
        """
        from scipy.optimize import linprog

        matrix, low, high = self._constraints()
        is_equal, is_most = low == high, np.isneginf(low)
        signs = np.where(is_most, 1.0, -1.0)[~is_equal]
        most = np.where(is_most, high, -low)[~is_equal]
        done = linprog(
            self.coefficients(self.problem.objective),
            matrix[~is_equal] * signs[:, None],
            most,
            matrix[is_equal],
            high[is_equal],
            method="highs",
        )
        return np.maximum(-done.ineqlin.marginals[-limits:], 0.0) if done.success else None

    def fleet(self, found: FloatArray) -> InstanceFleet:
        """Whole instances of a solution, their load spread evenly."""
        whole = np.round(found[: self.size])
        shape = self.problem.rate_per_s.shape
        count, load = np.zeros(shape), np.zeros(shape)
        count[self.service, self.offer] = whole
        load[self.service, self.offer] = self._even_load(whole, found) * self.demand
        taken = np.flatnonzero(found[3 * self.size :] > 0.5)
        ways = taken[np.argsort(self.problem.job[taken])]
        return InstanceFleet(count, load, ways, self.gap_fraction)

    def _even_load(self, whole: FloatArray, found: FloatArray) -> FloatArray:
        """Load in proportion to what the instances carry; the solution's own where that would
        break a limit or cost more.
        """
        carried = self.rate * whole
        by_service = np.bincount(self.service, carried)[self.service]
        load = carried / by_service
        even = np.concatenate([whole, load, found[2 * self.size :]])
        matrix, _, high = self._constraints()
        keeps = (matrix @ even <= high * (1 + TOLERANCE) + TOLERANCE).all()
        objective = self.coefficients(self.problem.objective)
        is_best = objective @ even <= objective @ found * (1 + TOLERANCE)
        return load if keeps and is_best else found[self.size : 2 * self.size]

    def _constraints(self) -> tuple[Any, FloatArray, FloatArray]:
        from scipy.sparse import csr_array, vstack

        empty = csr_array((0, self.width))
        rows = vstack([empty, *self.rows], format="csr")
        none = np.zeros(0)
        return rows, np.concatenate([none, *self.low]), np.concatenate([none, *self.high])

    def _carry(self) -> None:
        from scipy.sparse import diags

        services = np.arange(len(self.problem.demand_per_s))[:, None]
        self._add([None, (self.service == services).astype(float), None, None], 1.0, 1.0)
        one = diags(np.ones(self.size))
        self._add([diags(self.rate), -one, None, None], 0.0, math.inf)

    def _survive(self) -> None:
        from scipy.sparse import diags

        same = self.service[:, None] == self.service
        lost = diags(-self.redundancy * self.rate)
        self._add([np.where(same, self.rate, 0.0), None, lost, None], 1.0, math.inf)
        one = diags(np.ones(self.size))
        self._add([-one, None, diags(self.most), None], 0.0, math.inf)

    def _add(self, blocks: list[Any], low: float, high: float) -> None:
        """Rows of blocks of x, q, y and z, all with the same ends; None is a block of zeros."""
        from scipy.sparse import csr_array, hstack

        count = next(block.shape[0] for block in blocks if block is not None)
        widths = [self.size, self.size, self.size, len(self.problem.job)]
        parts = [
            csr_array((count, width)) if block is None else csr_array(block)
            for block, width in zip(blocks, widths, strict=True)
        ]
        self.rows.append(hstack(parts, format="csr"))
        self.low.append(np.full(count, low))
        self.high.append(np.full(count, high))
