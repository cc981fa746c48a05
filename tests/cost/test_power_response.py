"""Runs under a power limit: by hand, and monotone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from tools.scoreboard.cap_response import CapResponse, capped_run

EVEN = CapResponse(1.0, 40.0, 1.0, 240.0, 0.0, 0.8)


def test_by_hand():
    """200 W of which 160 go with the clock, to 40 + 20: an eighth of the dynamic power, below the
    floor of voltage, where power goes with the clock: 0.125 / 0.64.
    """
    time, power = capped_run(np.array([200.0]), np.array([60.0]), EVEN)
    assert time[0] == pytest.approx(0.64 / 0.125)
    assert power[0] == pytest.approx(60.0)


def test_a_run_that_waits_half_the_time_is_slowed_half_as_much():
    half = CapResponse(1.0, 40.0, 1.0, 240.0, 1.0, 0.8)
    time, power = capped_run(np.array([140.0]), np.array([240.0 * 0.5]), half)
    clock = (80.0 / 200.0) / 0.64
    clock = clock if clock < 0.8 else (80.0 / 200.0) ** (1 / 3)
    assert time[0] == pytest.approx(0.5 / clock + 0.5)
    assert power[0] == pytest.approx((0.5 / clock * 120 + 0.5 * 40) / time[0])


@given(
    power=st.floats(45, 300),
    limits=st.lists(st.floats(50, 400), min_size=2, max_size=8),
    bound=st.floats(0, 1),
    burst=st.floats(0, 1),
)
def test_a_lower_limit_is_never_faster_and_never_draws_more(power, limits, bound, burst):
    response = CapResponse(1.0, 40.0, bound, 250.0, burst, 0.8)
    ordered = np.sort(np.array(limits))
    time, drawn = capped_run(np.full(len(ordered), power), ordered, response)
    assert (np.diff(time) <= 1e-9).all()
    assert (np.diff(drawn) >= -1e-6).all()
    assert (time >= 1 - 1e-12).all()
    assert (drawn <= power * (1 + 1e-12)).all()


def test_what_is_no_power_is_refused():
    with pytest.raises(InvalidValueError, match="limit_w"):
        capped_run(np.array([100.0]), np.array([0.0]), EVEN)
