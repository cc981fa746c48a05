"""Queues on the engine against theory (Kleinrock 1975), and the closed forms against published
values and limits.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from tests.queues.intervals import batch_means_interval, control_variate_interval
from tests.queues.theory import erlang_c, mg1_waiting_s, mmc_waiting_s, simulate_queue


def exponential_queue(seed, rate, count, servers=1, fixed=False):
    generator = np.random.default_rng(seed)
    gaps = generator.exponential(1 / rate, count)
    service = np.ones(count) if fixed else generator.exponential(1.0, count)
    return gaps, service, simulate_queue(gaps, service, servers)


def assert_within_one_percent(interval, theory):
    assert interval.contains(theory)
    assert interval.half_width <= 0.01 * interval.mean


def test_m_m_1_sojourn_time_matches_theory_to_one_percent():
    gaps, service, result = exponential_queue(1, 0.5, 450_000)
    controls, means = [gaps, service], [2.0, 1.0]
    interval = control_variate_interval(result.sojourn_s, controls, means)
    assert_within_one_percent(interval, 1.0 + mmc_waiting_s(0.5, 1.0))


def test_m_m_c_sojourn_time_matches_erlang_c_to_one_percent():
    _, _, result = exponential_queue(2, 2.4, 450_000, servers=4)
    assert_within_one_percent(
        batch_means_interval(result.sojourn_s), 1.0 + mmc_waiting_s(2.4, 1.0, 4)
    )


def test_m_d_1_waiting_time_matches_pollaczek_khinchine_to_one_percent():
    gaps, _, result = exponential_queue(3, 0.4, 600_000, fixed=True)
    interval = control_variate_interval(result.waiting_s, [gaps], [2.5])
    assert_within_one_percent(interval, mg1_waiting_s(0.4, 1.0, 0.0))


def test_intervals_hold_the_truth_about_as_often_as_they_claim():
    """Of 60 runs at 95 %, fewer than 51 inside would happen once in 1,000 were the claim true."""
    theory = 1.0 + mmc_waiting_s(0.5, 1.0)
    inside = 0
    for seed in range(60):
        _, _, result = exponential_queue(1000 + seed, 0.5, 8_000)
        inside += batch_means_interval(result.sojourn_s[500:], batch_count=15).contains(theory)
    assert inside >= 51


def test_same_seed_same_bits():
    first, second = (exponential_queue(7, 1.5, 3_000, servers=2)[2] for _ in range(2))
    assert first.sojourn_s.tobytes() == second.sojourn_s.tobytes()


@pytest.mark.law
@given(st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 5)), min_size=1, max_size=60))
def test_one_server_follows_lindley_customer_by_customer(pairs):
    gaps, service = np.array(pairs).T
    result = simulate_queue(gaps, service)
    waiting, expected = 0.0, []
    for index in range(len(gaps)):
        waiting = max(0.0, waiting + service[index - 1] - gaps[index]) if index else 0.0
        expected.append(waiting)
    np.testing.assert_allclose(result.waiting_s, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.sojourn_s - result.waiting_s, service, atol=1e-9)


def test_little_law_holds_over_a_whole_run():
    """The time average of customers present equals their rate times their mean sojourn, exactly,
    from empty to empty (Little, Operations Research 9, 1961).
    """
    _, _, result = exponential_queue(5, 1.5, 5_000, servers=2)
    departures = result.arrival_s + result.sojourn_s
    span = departures.max()
    times = np.concatenate([result.arrival_s, departures])
    change = np.concatenate([np.ones(5_000), -np.ones(5_000)])[np.argsort(times, kind="stable")]
    present = np.cumsum(change)[:-1]
    average = (present * np.diff(np.sort(times))).sum() / span
    rate_per_s = 5_000 / span
    assert average == pytest.approx(rate_per_s * result.sojourn_s.mean(), rel=1e-9)


def test_erlang_c_published_values():
    """Two servers: C(2, a) = a^2 / (2 + a); one server: C(1, a) = a. Both are the textbook's closed
    forms.
    """
    for load in (0.1, 0.5, 0.9):
        assert erlang_c(1, load) == pytest.approx(load)
        assert erlang_c(2, 2 * load) == pytest.approx((2 * load) ** 2 / (2 + 2 * load))
    assert erlang_c(5, 0.0) == 0.0
    assert 0 < erlang_c(2_000, 1_950.0) < 1  # factorials of that size would overflow


@pytest.mark.law
@given(st.integers(1, 50), st.floats(0.01, 0.98))
def test_waiting_falls_with_servers_and_grows_with_load(servers, load):
    rate = load * servers
    assert mmc_waiting_s(rate, 1.0, servers) >= mmc_waiting_s(rate, 1.0, servers + 1)
    assert mmc_waiting_s(rate, 1.0, servers) >= mmc_waiting_s(0.9 * rate, 1.0, servers)


def test_exponential_service_is_the_mg1_case_of_unit_variance():
    assert mg1_waiting_s(0.7, 1.0, 1.0) == pytest.approx(mmc_waiting_s(0.7, 1.0))
    assert mg1_waiting_s(0.7, 1.0, 0.0) == pytest.approx(mmc_waiting_s(0.7, 1.0) / 2)


@pytest.mark.parametrize("unit", [1e-3, 60.0])
def test_waiting_does_not_depend_on_the_unit_of_time(unit):
    assert mg1_waiting_s(0.7 / unit, 0.9 * unit, 0.3 * unit**2) == pytest.approx(
        unit * mg1_waiting_s(0.7, 0.9, 0.3)
    )
    assert mmc_waiting_s(2.1 / unit, 0.8 / unit, 4) == pytest.approx(
        unit * mmc_waiting_s(2.1, 0.8, 4)
    )


def test_pollaczek_khinchine_by_hand():
    # Rate 0.25, service 2 s: load 0.5; uniform on [1, 3] has variance 1/3. W = 0.25 (4 + 1/3) / (2
    # x 0.5).
    assert mg1_waiting_s(0.25, 2.0, 1 / 3) == pytest.approx(0.25 * 13 / 3)


# Gross et al., Fundamentals of Queueing Theory, Erlang's C as a sum of factorials: three servers,
# load 2: 4/9.
def test_three_servers_with_a_load_of_two_wait_four_times_in_nine():
    assert erlang_c(3, 2.0) == pytest.approx(4 / 9)
    assert mmc_waiting_s(4.0, 2.0, 3) == pytest.approx(4 / 9 / (3 * 2 - 4))


def test_unstable_queues_and_uneven_columns_are_refused():
    with pytest.raises(InvalidValueError):
        erlang_c(2, 2.0)
    with pytest.raises(InvalidValueError):
        mg1_waiting_s(1.0, 1.0, 0.0)
    with pytest.raises(InvalidValueError):
        simulate_queue(np.ones(3), np.ones(2))
