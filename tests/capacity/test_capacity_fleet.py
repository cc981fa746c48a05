"""The programme finds what trying every fleet finds; conflicts it names are irreducible."""

import os
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.capacity import search
from accelsim.capacity.fleet import Amount, FleetModel, FleetProblem, _silent
from accelsim.capacity.search import irreducible_conflict, solve
from accelsim.errors import InvalidValueError

NONE = np.zeros((1, 3))
PRICES = st.lists(st.integers(1, 40), min_size=3, max_size=3)


def problem(rates, prices, watts, dynamic, *, redundancy=0, power=None, quota=None, goal="cost"):
    """One service over three offers."""
    cost = Amount(np.array(prices, float), NONE)
    use = Amount(np.array(watts, float), np.array([dynamic], float), power)
    limits = {} if power is None else {"power": use}
    if quota is not None:
        limits["quota"] = Amount(np.array([1.0, 0.0, 0.0]), NONE, quota)
    objective = cost if goal == "cost" else use
    return FleetProblem(np.array([10.0]), np.array([rates], float), objective, limits, redundancy)


def least(asked):
    """Least objective over all fleets, the load on the offers that use the least first."""
    rates = asked.rate_per_s[0]
    most = [int(np.ceil(10 / r)) + asked.redundancy if r else 0 for r in rates]
    found = [
        cost
        for counts in product(*(range(m + 1) for m in most))
        if (cost := _cost(asked, np.array(counts))) is not None
    ]
    return min(found, default=None)


def _cost(asked, counts):
    rates, demand = asked.rate_per_s[0], 10.0
    largest = rates[counts > 0].max(initial=0.0)
    if counts @ rates - asked.redundancy * largest < demand - 1e-9:
        return None
    uses = [asked.objective, *asked.limits.values()]
    by_load = max(uses, key=lambda use: use.per_load.sum()).per_load[0]
    load, rest = np.zeros(3), demand
    for place in np.argsort(by_load):
        load[place] = min(rest, counts[place] * rates[place])
        rest -= load[place]
    totals = [counts @ use.per_instance + load @ use.per_load[0] for use in uses]
    pairs = zip(totals[1:], asked.limits.values(), strict=True)
    return totals[0] if all(total <= use.limit + 1e-9 for total, use in pairs) else None


@settings(max_examples=200, deadline=None)
@given(
    rates=st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any),
    prices=PRICES,
    watts=PRICES,
    dynamic=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    redundancy=st.integers(0, 2),
    power=st.none() | st.integers(20, 200),
    quota=st.none() | st.integers(0, 2),
    goal=st.sampled_from(["cost", "power"]),
)
def test_equals_trying_every_fleet(rates, prices, watts, dynamic, redundancy, power, quota, goal):
    asked = problem(
        rates, prices, watts, dynamic, redundancy=redundancy, power=power, quota=quota, goal=goal
    )
    expected, fleet = least(asked), solve(asked)
    if expected is None:
        assert fleet is None
        return
    assert fleet.uses(asked.objective) == pytest.approx(expected, rel=2e-4)
    assert fleet.load_per_s.sum() == pytest.approx(10.0)
    assert (fleet.load_per_s <= fleet.count * asked.rate_per_s * (1 + 1e-6) + 1e-6).all()
    for use in asked.limits.values():
        assert fleet.uses(use) <= use.limit * (1 + 1e-6) + 1e-6


@settings(max_examples=60, deadline=None)
@given(
    rates=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    prices=PRICES,
    ways=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30), st.integers(1, 30)), max_size=5),
    budget=st.none() | st.integers(5, 80),
)
def test_jobs_take_the_way_that_trying_all_finds(rates, prices, ways, budget):
    """Two jobs beside a service; a limit that joins them."""
    base = problem(rates, prices, [0, 0, 0], [0, 0, 0])
    job = np.array([way[0] for way in ways], dtype=np.int64)
    cost = np.array([way[1] for way in ways], float)
    watts = np.array([way[2] for way in ways], float)
    objective = replace(base.objective, per_way=cost)
    limits = {} if budget is None else {"power": Amount(np.zeros(3), NONE, budget, watts)}
    asked = replace(base, objective=objective, limits=limits, job=job, job_count=2)
    pairs = [
        (cost[a] + cost[b], watts[a] + watts[b])
        for a in np.flatnonzero(job == 0)
        for b in np.flatnonzero(job == 1)
    ]
    fitting = [c for c, w in pairs if budget is None or w <= budget]
    found = solve(asked)
    if not fitting:
        assert found is None
        return
    assert found.uses(objective) == pytest.approx(least(base) + min(fitting), rel=2e-4)
    assert job[found.ways].tolist() == [0, 1]


@settings(max_examples=15, deadline=None)
@given(rates=st.lists(st.integers(1, 9), min_size=3, max_size=3), prices=PRICES, more=PRICES)
def test_dearer_offers_never_make_a_cheaper_fleet(rates, prices, more):
    before = problem(rates, prices, prices, [0, 0, 0])
    dearer = [price + extra for price, extra in zip(prices, more, strict=True)]
    after = problem(rates, dearer, prices, [0, 0, 0])
    cheap, dear = solve(before).uses(before.objective), solve(after).uses(after.objective)
    assert dear >= cheap * (1 - 2e-4)


def test_a_conflict_is_irreducible():
    asked = problem([5, 0, 0], [1, 1, 1], [50, 1, 1], [0, 0, 0], power=60, quota=1, redundancy=1)
    assert solve(asked) is None
    conflict = irreducible_conflict(asked)
    assert len(conflict) == 1  # two instances are needed, which any of the limits forbids
    others = {"power", "quota", "redundancy"} - set(conflict)
    assert solve(asked, without=conflict) is None  # the limits left still contradict the load
    assert solve(asked, without=("power", "quota")) is not None
    assert solve(asked, without=others) is None


def test_the_solver_is_silent(capfd):
    for goal in ("cost", "power"):
        solve(problem([3, 7, 1], [3, 8, 1], [9, 9, 2], [1, 3, 2], redundancy=1, goal=goal))
    with _silent():
        os.write(1, b"what a library prints")
    os.write(1, b"shown")
    assert capfd.readouterr() == ("shown", "")


@pytest.mark.parametrize("status", [1, 4])
def test_a_search_that_stopped_is_not_taken_for_no_fleet_or_the_best(monkeypatch, status):
    asked = problem([4, 3, 2], [5, 4, 3], [1, 1, 1], [0, 0, 0])
    whole = solve(asked)
    found = scipy.optimize.milp
    monkeypatch.setattr(
        scipy.optimize, "milp", lambda *a, **k: SimpleNamespace(x=found(*a, **k).x, status=status)
    )
    stopped = solve(asked)
    assert whole.gap_fraction == 0
    assert stopped.gap_fraction > 0
    monkeypatch.setattr(
        scipy.optimize, "milp", lambda *_, **__: SimpleNamespace(x=None, status=status)
    )
    with pytest.raises(InvalidValueError, match="candidates"):
        solve(asked)


def joined(services, offers, ratio, redundancy):
    """Many services whose power is limited to a share of the cheapest fleet's."""
    generator = np.random.default_rng(services)
    rate = generator.uniform(10, 1000, (services, offers))
    price = rate.max(axis=0) * generator.uniform(0.5, 2, offers) / 100
    demand = generator.uniform(100, 3000, services)
    per_load = generator.uniform(0, 1, (services, offers))
    power = Amount(generator.uniform(50, 500, offers), per_load)
    cost = Amount(price, np.zeros((services, offers)))
    free = FleetProblem(demand, rate, cost, {}, redundancy)
    limit = ratio * solve(free).uses(power)
    return replace(free, limits={"power": replace(power, limit=limit)})


@pytest.mark.parametrize("redundancy", [0, 1])
def test_many_services_under_a_limit_are_as_good_as_in_one_programme(monkeypatch, redundancy):
    asked = joined(4, 8, 0.9, redundancy)
    whole = solve(asked)
    monkeypatch.setattr(search, "_LARGE", 1)
    apart = solve(asked)
    assert apart.gap_fraction == 0
    assert apart.uses(asked.objective) <= whole.uses(asked.objective) * 1.01
    assert apart.uses(asked.limits["power"]) <= asked.limits["power"].limit * (1 + 1e-6)
    assert apart.load_per_s.sum(axis=1) == pytest.approx(asked.demand_per_s, rel=1e-6)
    limit = replace(asked.limits["power"], limit=1e-3)
    assert solve(replace(asked, limits={"power": limit})) is None


def test_offers_that_carry_the_same_are_asked_once_whatever_may_fail():
    asked = problem([5, 5, 6], [2, 1, 1], [1, 1, 1], [0, 0, 0], redundancy=5)
    model = FleetModel.of(asked, ())
    assert model.offer.tolist() == [1, 2]  # the dearer of two equals is out, the larger stays
    assert model.best() is not None
    assert solve(asked).count.sum() == least(asked)


def test_a_demand_far_below_an_instance_takes_one():
    asked = replace(
        problem([5, 6, 7], [2, 1, 3], [1, 1, 1], [0, 0, 0]), demand_per_s=np.array([1e-9])
    )
    assert solve(asked).count.tolist() == [[0.0, 1.0, 0.0]]
