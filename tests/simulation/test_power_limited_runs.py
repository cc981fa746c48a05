"""Laws of the power limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InvalidValueError
from accelsim.simulation.device_settings import power_limited_s

rows = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 200)), min_size=1, max_size=40)


@pytest.mark.law
@given(rows, st.floats(0, 50), st.floats(1, 300))
def test_no_row_draws_more_than_the_limit_and_none_gets_faster(pairs, idle_w, above_w):
    time_s, energy_j = (np.array(x, dtype=float) for x in zip(*pairs, strict=True))
    capped = power_limited_s(time_s, energy_j, idle_w, idle_w + above_w)
    assert (capped >= time_s).all()
    assert (energy_j <= (above_w * capped) * (1 + 1e-9) + 1e-12).all()
    needed = np.maximum(time_s, energy_j / above_w)
    np.testing.assert_allclose(capped, needed, rtol=1e-9, atol=1e-300)


def test_uncapped_rows_keep_their_bits():
    time_s = np.random.default_rng(0).random(50)
    assert power_limited_s(time_s, time_s * 20.0, 10.0, 31.0).tobytes() == time_s.tobytes()


def test_t4_example_by_hand():
    """70 W board idling at 10 W: 1 ms of work that switches 0.12 J needs 2 ms."""
    np.testing.assert_allclose(
        power_limited_s(np.array([1e-3]), np.array([0.12]), 10.0, 70.0), [2e-3]
    )


def test_bad_limits_are_refused():
    for limit in (5.0, 4.0, float("nan")):
        with pytest.raises(InvalidValueError, match="limit_w"):
            power_limited_s(np.ones(1), np.ones(1), 5.0, limit)
