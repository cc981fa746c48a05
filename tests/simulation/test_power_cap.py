"""Laws of the power limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from accelsim.simulation.power_cap import cap_power

rows = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 200), st.booleans()), min_size=1, max_size=40
)


@pytest.mark.law
@given(rows, st.floats(0, 50), st.floats(1, 300))
def test_no_row_draws_more_than_the_limit_and_none_gets_faster(triples, idle_w, above_w):
    time_s, energy_j, _ = (np.array(x, dtype=float) for x in zip(*triples, strict=True))
    capped = cap_power(time_s, energy_j, idle_w, idle_w + above_w)
    assert (capped >= time_s).all()
    assert (energy_j <= (above_w * capped) * (1 + 1e-9) + 1e-12).all()
    needed = np.maximum(time_s, energy_j / above_w)
    np.testing.assert_allclose(capped, needed, rtol=1e-9, atol=1e-300)


@pytest.mark.law
@given(rows, st.floats(0.01, 3))
def test_windows_average_power_and_ask_no_more_than_single_rows(triples, window_s):
    time_s, energy_j, stretchable = (np.array(x) for x in zip(*triples, strict=True))
    capped = cap_power(
        time_s, energy_j, 10.0, 60.0, window_s=window_s, is_stretchable=stretchable.astype(bool)
    )
    assert (capped >= time_s).all()
    assert capped.sum() <= cap_power(time_s, energy_j, 10.0, 60.0).sum() * (1 + 1e-9)
    assert energy_j.sum() <= 50.0 * capped.sum() * (1 + 1e-9) + 1e-12


def test_only_compute_bound_rows_slow_down_where_there_are_any():
    time_s, energy_j = np.array([1.0, 1.0, 1.0]), np.array([300.0, 0.0, 0.0])
    mask = np.array([False, True, False])
    capped = cap_power(time_s, energy_j, 0.0, 50.0, window_s=10.0, is_stretchable=mask)
    np.testing.assert_allclose(capped, [1.0, 4.0, 1.0])


def test_uncapped_rows_keep_their_bits():
    time_s = np.random.default_rng(0).random(50)
    assert cap_power(time_s, time_s * 20.0, 10.0, 31.0).tobytes() == time_s.tobytes()


def test_t4_example_by_hand():
    """70 W board idling at 10 W: 1 ms of work that switches 0.12 J needs 2 ms."""
    np.testing.assert_allclose(cap_power(np.array([1e-3]), np.array([0.12]), 10.0, 70.0), [2e-3])


def test_empty_and_bad_input():
    assert len(cap_power(np.zeros(0), np.zeros(0), 1.0, 2.0)) == 0
    for limit in (5.0, 4.0, float("nan")):
        with pytest.raises(InvalidValueError, match="limit_w"):
            cap_power(np.ones(1), np.ones(1), 5.0, limit)


@pytest.mark.parametrize(
    ("energy_j", "window_s", "expected"),
    [
        ((100, 0, 0, 100), 2.0, (1, 1, 1, 1)),  # 100 J in each window of two seconds
        ((100, 0, 0, 100), 0.0, (2, 1, 1, 2)),
        (
            (150, 0, 0, 0),
            2.0,
            (1.5, 1.5, 1, 1),
        ),  # a second more, shared by the two rows of the first window
        ((150, 0, 0, 0), 0.5, (3, 1, 1, 1)),
        ((0, 0, 90, 90), 3.0, (1, 1, 1, 1.8)),  # windows of three rows and of one
    ],
)
def test_windows_by_hand(energy_j, window_s, expected):
    """Four rows of a second on 50 W."""
    capped = cap_power(np.ones(4), np.array(energy_j, dtype=float), 0.0, 50.0, window_s=window_s)
    np.testing.assert_allclose(capped, expected)
