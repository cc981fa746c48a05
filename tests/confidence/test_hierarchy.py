"""What measured runs say of others: laws of the hierarchical model."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.confidence.hierarchy import Components, Hierarchy, Runs

#: Nothing depends on sizes, or much does.
ALIKE = Components((0.3, 0.2, 0.2), 0.0, 1.0)
BY_SIZE = Components((0.1, 0.1, 0.1), 0.5, 1.0)
SIGMA = 0.3


def effects(system: str, board: str = "board", engine: str = "engine") -> tuple[str, ...]:
    return (f"{system} on {board} by {engine}", f"on {board}", f"by {engine}")


def learned(log_ratios, systems=None, components=ALIKE, batches=None, names=None):
    count = len(log_ratios)
    names = names or [effects(system) for system in systems or ["model"] * count]
    sizes = [{"batch": batch} for batch in batches or [1.0] * count]
    ratios = np.array(log_ratios, dtype=float)
    return Hierarchy.of(Runs(names, sizes, ratios, np.full(count, SIGMA)), components)


def told_of(hierarchy, names=None, batch=1.0):
    return hierarchy.correction(names or effects("model"), {"batch": batch}, SIGMA)


def test_one_run_moves_a_mean_by_the_share_of_the_variance_that_is_common():
    """With weights of one: shift = y (s / (s + own)), s = sigma^2 0.7, own = sigma^2 0.3."""
    found = learned([1e-9])
    told = told_of(found, effects("model"))
    assert told.shift == pytest.approx(1e-9 * 0.7, rel=0.2)


@pytest.mark.parametrize("count", [1, 3, 5, 10])
def test_runs_as_predicted_change_no_mean_and_narrow(count):
    before = SIGMA
    for more in range(1, count + 1):
        told = told_of(learned([0.0] * more))
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
        a, b = (told_of(h, effects(system)) for h in (one, other))
        assert (a.shift, a.log_sigma) == pytest.approx((b.shift, b.log_sigma), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("slip", [math.log(10), -math.log(10), math.log(1000)])
def test_a_run_ten_times_off_says_next_to_nothing_and_is_named(slip):
    good = [0.2, 0.22, 0.18, 0.21]
    alone = told_of(learned(good), effects("model"))
    found = learned([*good, slip])
    told = told_of(found, effects("model"))
    assert abs(math.expm1(told.shift - 0.2)) <= max(1.2 * abs(math.expm1(alone.shift - 0.2)), 0.02)
    assert found.far_runs == [4]


def test_unrelated_runs_change_nothing():
    found = learned([0.8, 0.9, 0.7])
    told = told_of(found, effects("other", "another board", "another engine"))
    assert told.shift == 0.0
    assert told.log_sigma == pytest.approx(SIGMA)


def test_noise_of_unrelated_runs_changes_nothing_of_others():
    """Nor do runs that agree better than usual make others surer."""
    own = [0.2, 0.25, 0.18]
    alone = told_of(learned(own), effects("model"))
    others = [effects("other", "another board", "another engine")] * 6
    for noise in ([-1.0, 1.0] * 3, [0.0] * 6):
        names = [effects("model")] * 3 + others
        beside = learned([*own, *noise], names=names)
        told = told_of(beside, effects("model"))
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
    told = [told_of(found, name) for name in names]
    shifts = [one.shift for one in told]
    assert shifts == sorted(shifts, reverse=True)
    widths = [one.log_sigma for one in told]
    assert widths == sorted(widths)


def test_errors_larger_than_before_widen_and_smaller_ones_narrow():
    widths = [
        told_of(learned([factor * ratio for ratio in (0.1, -0.1, 0.12, -0.12)])).log_sigma
        for factor in (0.1, 1.0, 3.0)
    ]
    assert widths == sorted(widths)
    assert widths[2] > 1.2 * widths[1] > 1.3 * widths[0]


def test_intervals_hold_what_they_promise():
    """Systems drawn from the model itself: nine of ten further runs lie in their interval."""
    generator = np.random.default_rng(3)
    inside = []
    for _ in range(400):
        common = SIGMA * math.sqrt(0.7) * generator.standard_normal()
        runs = common + SIGMA * math.sqrt(0.3) * generator.standard_normal(6)
        told = told_of(learned(runs[:5]), effects("model"))
        inside.append(abs(runs[5] - told.shift) <= 1.645 * told.log_sigma)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.05)


def test_thousands_of_runs_take_no_matrix_over_them_all():
    generator = np.random.default_rng(5)
    systems = [f"model-{place % 50}" for place in range(10_000)]
    batches = [1.0 + place // 50 for place in range(10_000)]
    ratios = 0.1 * generator.standard_normal(10_000)
    tracemalloc.start()
    found = learned(ratios, systems, BY_SIZE, batches)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(told_of(found, effects("model-7")).shift) < 0.1
    assert peak_bytes < 0.05 * 8 * 10_000**2


def test_runs_of_near_sizes_are_corrected_more():
    found = learned([0.4, 0.42], components=BY_SIZE, batches=[8.0, 8.0])
    told = [told_of(found, batch=batch) for batch in (8.0, 16.0, 64.0, 4096.0)]
    shifts, widths = [one.shift for one in told], [one.log_sigma for one in told]
    assert shifts == sorted(shifts, reverse=True)
    assert widths == sorted(widths)
    assert shifts[0] > 1.5 * shifts[-1] > 0.0


def test_a_size_that_no_run_named_is_a_distance():
    found = learned([0.4, 0.42], components=BY_SIZE)
    same = found.correction(effects("model"), {"batch": 1.0, "tp": 1.0}, SIGMA)
    other = found.correction(effects("model"), {"batch": 1.0, "tp": 8.0}, SIGMA)
    assert same.shift == told_of(found).shift
    assert other.shift < 0.8 * same.shift


def test_the_posterior_is_that_of_the_joint_normal():
    """Against the covariance of all runs written out, with the weights that were found."""
    batches, systems = [1.0, 2.0, 4.0, 2.0], ["a", "a", "a", "b"]
    ratios = np.array([0.1, 0.2, 0.15, -0.1])
    found = learned(ratios, systems, BY_SIZE, batches)
    names, logs = [effects(s) for s in systems], np.log(batches)

    def covariance(one, other, x, y):
        shared = sum(0.1 for a, b in zip(one, other, strict=True) if a == b)
        return shared + 0.5 * math.exp(-abs(x - y)) * (one[0] == other[0])

    joint = np.array(
        [
            [covariance(a, b, x, y) for b, y in zip(names, logs, strict=True)]
            for a, x in zip(names, logs, strict=True)
        ]
    )
    noise = BY_SIZE.own / found.weight
    like = np.array(
        [covariance(effects("b"), n, math.log(3), x) for n, x in zip(names, logs, strict=True)]
    )
    gain = np.linalg.solve(joint + np.diag(noise), like)
    told = told_of(found, effects("b"), 3.0)
    assert told.shift == pytest.approx(gain @ ratios, rel=1e-3)
    scale = float(found.scale[found.systems[effects("b")[0]]])
    variance = scale * (0.8 - gain @ like + BY_SIZE.own)
    assert told.log_sigma == pytest.approx(SIGMA * math.sqrt(variance), rel=1e-3)


def test_sizes_beyond_what_is_told_apart_are_gathered():
    generator = np.random.default_rng(2)
    batches = list(np.exp(generator.uniform(0, 8, 500)))
    found = learned(
        0.3 + 0.02 * generator.standard_normal(500), components=BY_SIZE, batches=batches
    )
    assert told_of(found, batch=20.0).shift == pytest.approx(0.3, abs=0.03)
