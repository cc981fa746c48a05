"""The programme finds what trying every fleet finds; conflicts it names are irreducible."""

import os
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.capacity.fleet import FleetProblem, _silent, irreducible_conflict, least_use, solve
from accelsim.economics.instances import cheapest_cover
from accelsim.errors import InvalidValueError

WAY = st.tuples(st.integers(0, 2), st.integers(1, 30), st.integers(1, 30), st.integers(0, 2))


def problem(ways, *, power=None, quota=None):
    """Ways of three parts: part, cost, watts, instances of a quota."""
    part, cost, watts, held = (np.array(column, float) for column in zip(*ways, strict=True))
    limits = {"power": power, "quota": quota}
    limits = {name: float(most) for name, most in limits.items() if most is not None}
    uses = {"power": watts, "quota": held}
    kept = {name: uses[name] for name in limits}
    return FleetProblem(part.astype(np.int64), 3, cost, kept, limits)


def least(asked):
    """Least cost over all choices of one way each."""
    each = [np.flatnonzero(asked.task == task) for task in range(asked.task_count)]
    costs = [
        asked.objective[list(chosen)].sum()
        for chosen in product(*each)
        if asked.keeps(np.array(chosen, dtype=np.int64))
    ]
    return min(costs, default=None)


@settings(max_examples=200, deadline=None)
@given(
    ways=st.lists(WAY, min_size=1, max_size=9),
    power=st.none() | st.integers(5, 80),
    quota=st.none() | st.integers(0, 4),
)
def test_equals_trying_every_fleet(ways, power, quota):
    asked = problem(ways, power=power, quota=quota)
    expected, found = least(asked), solve(asked)
    if expected is None:
        assert found is None
        return
    assert asked.task[found].tolist() == [0, 1, 2]
    assert asked.objective[found].sum() == pytest.approx(expected, rel=2e-4)
    assert asked.keeps(found)


@settings(max_examples=100, deadline=None)
@given(
    places=st.lists(st.integers(0, 8), min_size=1, max_size=3),
    costs=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    needed=st.integers(1, 20),
    spare=st.integers(0, 2),
)
def test_the_cheapest_instances_are_those_of_trying_all(places, costs, needed, spare):
    """Without the largest `spare` instances, places enough are left."""
    costs = costs[: len(places)]

    def is_enough(counts):
        held = [p for p, n in zip(places, counts, strict=True) for _ in range(n)]
        return sum(sorted(held)[: max(len(held) - spare, 0)]) >= needed

    found = cheapest_cover(places, costs, needed, spare)
    if not any(places):
        assert found is None
        return
    assert is_enough(found)
    cost = sum(n * each for n, each in zip(found, costs, strict=True))
    most = [min(cost // each, needed + spare) for each in costs]
    better = [
        counts
        for counts in product(*(range(n + 1) for n in most))
        if sum(n * each for n, each in zip(counts, costs, strict=True)) < cost
    ]
    assert not any(is_enough(counts) for counts in better)


@settings(max_examples=60, deadline=None)
@given(
    places=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    costs=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    needed=st.integers(80, 500),
)
def test_many_replicas_take_what_they_take_without_the_periodic_part(places, costs, needed):
    costs = costs[: len(places)]
    found = cheapest_cover(places, costs, needed)
    least_of = [0] + [10**9] * needed
    for wanted in range(1, needed + 1):
        least_of[wanted] = min(
            c + least_of[max(wanted - p, 0)] for p, c in zip(places, costs, strict=True)
        )
    assert sum(n * c for n, c in zip(found, costs, strict=True)) == least_of[needed]


def test_a_conflict_is_irreducible_and_its_near_miss_is_the_least_use():
    ways = [(0, 1, 50, 2), (1, 1, 5, 0), (2, 1, 5, 0)]
    asked = problem(ways, power=55, quota=1)
    assert solve(asked) is None
    conflict = irreducible_conflict(asked)
    assert len(conflict) == 1
    assert solve(asked, without=("power", "quota")) is not None
    assert least_use(problem(ways, power=55), "power")[0] == 60
    assert least_use(asked, "power") == (np.inf, None)  # the quota alone contradicts


def test_the_solver_is_silent(capfd):
    solve(problem([(0, 1, 9, 0), (0, 2, 3, 0), (1, 1, 9, 0), (1, 2, 3, 0), (2, 1, 1, 0)], power=14))
    with _silent():
        os.write(1, b"what a library prints")
    os.write(1, b"shown")
    assert capfd.readouterr() == ("shown", "")


def test_a_search_that_stopped_is_not_taken_for_no_fleet(monkeypatch):
    asked = problem(
        [(0, 1, 9, 0), (0, 2, 3, 0), (1, 1, 9, 0), (1, 2, 3, 0), (2, 1, 1, 0)], power=14
    )
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: SimpleNamespace(x=None, status=1))
    with pytest.raises(InvalidValueError, match="candidates"):
        solve(asked)
