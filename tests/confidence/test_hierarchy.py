"""What measured runs say of others: laws of the hierarchical model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.confidence.hierarchy import Hierarchy

SHARES = (0.3, 0.2, 0.2)
SIGMA = 0.3


def effects(system: str, board: str = "board", engine: str = "engine") -> tuple[str, ...]:
    return (f"{system} on {board} by {engine}", f"on {board}", f"by {engine}")


def learned(log_ratios, systems=None, sigma=SIGMA):
    systems = systems or ["model"] * len(log_ratios)
    names = [effects(system) for system in systems]
    spread = np.full(len(log_ratios), sigma)
    return Hierarchy.of(names, np.array(log_ratios, dtype=float), spread, SHARES)


def test_one_run_moves_a_mean_by_the_share_of_the_variance_that_is_common():
    """With weights of one: shift = y (s / (s + own)), s = sigma^2 0.7, own = sigma^2 0.3."""
    found = learned([1e-9])
    told = found.correction(effects("model"), SIGMA)
    assert told.shift == pytest.approx(1e-9 * 0.7, rel=0.2)
    assert told.run_count == 1


@pytest.mark.parametrize("count", [1, 3, 5, 10])
def test_runs_as_predicted_change_no_mean_and_narrow(count):
    before = SIGMA
    for more in range(1, count + 1):
        told = learned([0.0] * more).correction(effects("model"), SIGMA)
        assert told.shift == 0.0
        assert told.log_sigma < before
        before = told.log_sigma


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(ratios, random):
    systems = [f"model-{place % 3}" for place in range(len(ratios))]
    order = list(range(len(ratios)))
    random.shuffle(order)
    one = learned(ratios, systems)
    other = learned([ratios[i] for i in order], [systems[i] for i in order])
    for system in ("model-0", "model-1", "unseen"):
        a, b = (h.correction(effects(system), SIGMA) for h in (one, other))
        assert (a.shift, a.log_sigma) == pytest.approx((b.shift, b.log_sigma), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("slip", [math.log(10), -math.log(10), math.log(1000)])
def test_a_run_ten_times_off_says_next_to_nothing_and_is_named(slip):
    good = [0.2, 0.22, 0.18, 0.21]
    alone = learned(good).correction(effects("model"), SIGMA)
    found = learned([*good, slip])
    told = found.correction(effects("model"), SIGMA)
    assert abs(math.expm1(told.shift - 0.2)) <= max(1.2 * abs(math.expm1(alone.shift - 0.2)), 0.02)
    assert found.far_runs == [4]


def test_unrelated_runs_change_nothing():
    found = learned([0.8, 0.9, 0.7])
    told = found.correction(effects("other", "another board", "another engine"), SIGMA)
    assert (told.shift, told.run_count) == (0.0, 0)
    assert told.log_sigma == pytest.approx(SIGMA)


def test_noise_of_unrelated_runs_changes_nothing_of_others():
    """Nor do runs that agree better than usual make others surer."""
    own = [0.2, 0.25, 0.18]
    alone = learned(own).correction(effects("model"), SIGMA)
    others = [effects("other", "another board", "another engine")] * 6
    for noise in ([-1.0, 1.0] * 3, [0.0] * 6):
        names = [effects("model")] * 3 + others
        spread = np.full(9, SIGMA)
        beside = Hierarchy.of(names, np.array([*own, *noise]), spread, SHARES)
        told = beside.correction(effects("model"), SIGMA)
        assert (told.shift, told.log_sigma) == pytest.approx(
            (alone.shift, alone.log_sigma), rel=1e-4
        )


def test_the_nearer_the_more_it_is_corrected():
    found = learned([0.4, 0.41, 0.39])
    names = [
        effects("model"),
        effects("other"),
        effects("other", "another board"),
        effects("other", "another board", "another engine"),
    ]
    told = [found.correction(name, SIGMA) for name in names]
    shifts = [one.shift for one in told]
    assert shifts == sorted(shifts, reverse=True)
    widths = [one.log_sigma for one in told]
    assert widths == sorted(widths)


def test_intervals_hold_what_they_promise():
    """Systems drawn from the model itself: nine of ten further runs lie in their interval."""
    generator = np.random.default_rng(3)
    inside = []
    for _ in range(400):
        common = SIGMA * math.sqrt(0.7) * generator.standard_normal()
        runs = common + SIGMA * math.sqrt(0.3) * generator.standard_normal(6)
        told = learned(runs[:5]).correction(effects("model"), SIGMA)
        inside.append(abs(runs[5] - told.shift) <= 1.645 * told.log_sigma)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.05)


def test_thousands_of_runs_are_learned_from_at_once():
    generator = np.random.default_rng(5)
    systems = [f"model-{place % 50}" for place in range(10_000)]
    found = learned(0.1 * generator.standard_normal(10_000), systems)
    assert found.correction(effects("model-7"), SIGMA).run_count == 10_000
