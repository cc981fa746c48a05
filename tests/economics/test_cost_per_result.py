"""Laws and closed forms of the cost formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.economics import (
    electricity_usd_per_hour,
    usd_per_1000_inferences,
    usd_per_epoch,
    usd_per_million_tokens,
)
from accelsim.errors import InvalidValueError

PRICE = st.floats(1e-3, 1e5)
RATE = st.floats(1e-3, 1e8)
FACTOR = st.floats(1.001, 1e3)
FORMULAS = [
    usd_per_1000_inferences,
    usd_per_million_tokens,
    lambda price, rate: usd_per_epoch(price, rate, 1_281_167),
]


def test_closed_form_values():
    assert usd_per_1000_inferences(3.6, 1.0) == pytest.approx(1.0)
    assert usd_per_million_tokens(3.6, 1000.0) == pytest.approx(1.0)
    assert usd_per_epoch(0.526, 1000.0, 1_281_167) == pytest.approx(0.526 * 1281.167 / 3600)


@pytest.mark.parametrize("formula", FORMULAS)
@settings(max_examples=40, deadline=None)
@given(price=PRICE, rate=RATE, factor=FACTOR)
def test_linear_in_price_and_inverse_in_rate(formula, price, rate, factor):
    cost = formula(price, rate)
    assert formula(price * factor, rate) == pytest.approx(cost * factor, rel=1e-9)
    assert formula(price, rate * factor) == pytest.approx(cost / factor, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(price=PRICE, rate=RATE)
def test_formulas_agree_with_each_other(price, rate):
    thousand = usd_per_1000_inferences(price, rate)
    assert usd_per_million_tokens(price, rate) == pytest.approx(1000 * thousand)
    assert usd_per_epoch(price, rate, 1000) == pytest.approx(thousand)


def test_arrays_give_the_same_as_scalars():
    prices, rates = np.array([0.5, 1.0, 30.0]), np.array([10.0, 200.0, 5.0])
    whole = usd_per_1000_inferences(prices, rates)
    assert whole == pytest.approx(
        [usd_per_1000_inferences(float(p), float(r)) for p, r in zip(prices, rates, strict=True)]
    )


@pytest.mark.parametrize(
    ("price", "rate"), [(-1.0, 1.0), (1.0, 0.0), (1.0, -2.0), (np.nan, 1.0), (1.0, np.inf)]
)
@pytest.mark.parametrize("formula", [usd_per_1000_inferences, usd_per_million_tokens])
def test_values_outside_their_range_are_refused(formula, price, rate):
    with pytest.raises(InvalidValueError, match="finite number"):
        formula(price, rate)


def test_one_value_outside_its_range_refuses_the_whole_column():
    with pytest.raises(InvalidValueError, match="throughput_per_s"):
        usd_per_1000_inferences(np.array([1.0, 1.0]), np.array([10.0, 0.0]))


def test_a_site_without_overhead_pays_for_its_equipment_alone():
    assert electricity_usd_per_hour(1_000.0, 0.10) == pytest.approx(0.10)
    assert electricity_usd_per_hour(1_000.0, 0.10, 1.5) == pytest.approx(0.15)


@pytest.mark.parametrize("pue", [0.9, np.nan, np.inf])
def test_no_site_uses_less_than_its_equipment(pue):
    with pytest.raises(InvalidValueError, match="pue_ratio"):
        electricity_usd_per_hour(1.0, 0.10, pue)
