"""The fleet with the least of an objective: one way of each service and job, within the limits.

A way is whole instances of one kind of replica or job, which the searches of `serving` and
`training` found. Services and jobs meet in the limits alone: where the best of each keep them
together, those are the best; else a programme of one choice each is solved by HiGHS (Huangfu &
Hall, Mathematical Programming Computation 10, 2018) through scipy:

    minimise  c·z    with  sum of z of a task = 1,  A·z <= limits,  z = 0 or 1
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.estimation.pareto import pareto_mask
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, IntArray

_TIME_LIMIT_S = 20.0
#: Relative gap that a search ends at.
GAP = 1e-4
TOLERANCE = 1e-6
#: `scipy.optimize.milp`: shown to have no solution.
_INFEASIBLE = 2


@frozen(eq=False)
class FleetProblem:
    """Ways of each service and job.

    Attributes:
        task: Service or job of each way, shape (ways,).
        task_count: How many there are; one without a way cannot be served or done.
        objective: What is least, shape (ways,).
        uses: What a way uses of what is limited, by name, shape (ways,) each.
        limits: Largest sums.
    """

    task: IntArray
    task_count: int
    objective: FloatArray
    uses: Mapping[str, FloatArray]
    limits: Mapping[str, float]

    def keeps(self, ways: IntArray, without: Collection[str] = ()) -> bool:
        """Whether ways keep all limits but some."""
        return all(
            self.uses[name][ways].sum() <= limit * (1 + TOLERANCE) + TOLERANCE
            for name, limit in self.limits.items()
            if name not in without
        )


def solve(problem: FleetProblem, without: Collection[str] = ()) -> IntArray | None:
    """The best way of each service and job, in order; None where limits contradict each other or
    one has no way.

    Args:
        problem: The problem.
        without: Names of limits left out.

    Raises:
        InvalidValueError: If the search stopped before it found a fleet or showed there is none.
    """
    ways_by_task = [np.flatnonzero(problem.task == task) for task in range(problem.task_count)]
    if not all(len(ways) for ways in ways_by_task):
        return None
    first = np.array(
        [ways[problem.objective[ways].argmin()] for ways in ways_by_task], dtype=np.int64
    )
    if problem.keeps(first, without):
        return first
    names = [name for name in problem.limits if name not in without]
    return _chosen(
        problem, names, np.concatenate([_worth(problem, ways, names) for ways in ways_by_task])
    )


def _worth(problem: FleetProblem, ways: IntArray, names: Collection[str]) -> IntArray:
    """Ways of a service or job that no other beats in the objective and all that is limited."""
    goals = np.stack([problem.objective[ways], *(problem.uses[name][ways] for name in names)], 1)
    _, first = np.unique(goals, axis=0, return_index=True)
    undominated: IntArray = ways[first][pareto_mask(goals[first])]
    return undominated


def _chosen(problem: FleetProblem, names: Collection[str], ways: IntArray) -> IntArray | None:
    from scipy.optimize import Bounds, LinearConstraint, milp

    scale = {name: max(problem.limits[name], TOLERANCE) for name in names}
    rows = [problem.uses[name][ways] / scale[name] for name in names]
    most = [problem.limits[name] / scale[name] for name in names]
    is_of_task = (problem.task[ways] == np.arange(problem.task_count)[:, None]).astype(float)
    objective = problem.objective[ways]
    with _silent():
        solution = milp(
            objective / max(objective.max(), TOLERANCE),
            integrality=np.ones(len(ways)),
            bounds=Bounds(0, 1),
            constraints=[
                LinearConstraint(np.array(rows), -np.inf, np.array(most)),
                LinearConstraint(is_of_task, 1.0, 1.0),
            ],
            options={"disp": False, "time_limit": _TIME_LIMIT_S, "mip_rel_gap": GAP},
        )
    if solution.x is None and solution.status != _INFEASIBLE:
        allowed = f"few enough to be searched in {_TIME_LIMIT_S:g} s"
        raise InvalidValueError("candidates", len(ways), allowed, "Name fewer devices or regions.")
    if solution.x is None:
        return None
    chosen: IntArray = ways[np.flatnonzero(np.asarray(solution.x) > 0.5)]
    return chosen[np.argsort(problem.task[chosen], kind="stable")]


def least_use(problem: FleetProblem, name: str) -> tuple[float, IntArray | None]:
    """The least that a limited amount can be while the other limits hold, and the ways; infinite
    where they contradict each other.

    Args:
        problem: A problem.
        name: The limit.
    """
    solution = solve(replace(problem, objective=problem.uses[name]), (name,))
    return (np.inf if solution is None else float(problem.uses[name][solution].sum())), solution


def irreducible_conflict(problem: FleetProblem) -> tuple[str, ...]:
    """Limits that no fleet keeps together, each of them needed for that: what is left of all when
    every limit is dropped whose removal leaves the problem infeasible (the deletion filter;
    Chinneck & Dravnieks, ORSA Journal on Computing 3, 1991).

    Args:
        problem: A problem without a fleet.
    """
    dropped: list[str] = []
    for name in problem.limits:
        if solve(problem, (*dropped, name)) is None:
            dropped.append(name)
    return tuple(name for name in problem.limits if name not in dropped)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing reaches standard output: HiGHS prints there where it loses a solution, whatever its
    options say.
    """
    with suppress(OSError, AttributeError, ValueError):
        sys.stdout.flush()
    flush = getattr(ctypes.CDLL(None), "fflush", None) if os.name == "posix" else None
    try:
        stdout_copy = os.dup(1)
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
            os.dup2(stdout_copy, 1)
            os.close(stdout_copy)
