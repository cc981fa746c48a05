"""Costs of owned hardware to the cent against cases worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.economics.bill import billed_usd
from accelsim.economics.ownership import OwnedHardware, rent_or_buy_fraction
from accelsim.errors import InvalidValueError

NODE = OwnedHardware(
    price_usd=300_000.0,
    life_years=3.0,
    busy_power_w=10_200.0,
    idle_power_w=2_000.0,
    electricity_usd_per_kwh=0.10,
    pue_ratio=1.3,
    residual_fraction=0.30,
    space_usd_per_kw_month=200.0,
    staff_usd_per_year=10_000.0,
)


def test_a_node_for_three_years_by_hand():
    """8.56 kW x 1.3 x 26,298 h x 0.10; 10.2 kW x 200 x 36 months; 21,038.4 h at work."""
    cost = NODE.cost(0.8)
    assert round(cost.depreciation_usd, 2) == 210_000.00
    assert round(cost.electricity_usd, 2) == 29_264.41
    assert round(cost.space_usd, 2) == 73_440.00
    assert round(cost.staff_usd, 2) == 30_000.00
    assert round(cost.total_usd, 2) == 342_704.41
    assert round(cost.usd_per_used_hour, 2) == 16.29
    assert NODE.cost(0.0).usd_per_used_hour is None


def test_rent_or_buy_by_hand():
    """Fixed: 313,440 + 2 kW idle, 6,837.48; each share: 8.2 kW, 28,033.668; rent of 8 x 2.50."""
    fixed, by_share, rent = 320_277.48, 28_033.668, 20.0 * 26_298
    assert rent_or_buy_fraction(NODE, 20.0) == pytest.approx(fixed / (rent - by_share))
    assert rent_or_buy_fraction(NODE, 5.0) is None


@given(rent=st.floats(14.0, 200.0))
def test_at_the_break_even_both_cost_the_same(rent):
    share = rent_or_buy_fraction(NODE, rent)
    if share is not None:
        assert NODE.cost(share).usd_per_used_hour == pytest.approx(rent)


@pytest.mark.parametrize(
    ("used_s", "granularity_s", "minimum_s", "expected"),
    [
        (0, 3600, 60, 0.0),
        (1, 1, 60, 0.06),
        (61, 1, 60, 0.061),
        (61, 60, 0, 0.12),
        (3601, 3600, 0, 7.20),
    ],
)
def test_billing_by_hand(used_s, granularity_s, minimum_s, expected):
    assert billed_usd(3.60, used_s, granularity_s, minimum_s) == pytest.approx(expected)


def test_what_is_wrong_is_named():
    with pytest.raises(InvalidValueError, match="residual_fraction"):
        replace(NODE, residual_fraction=1.1)
    with pytest.raises(InvalidValueError, match="idle_power_w"):
        replace(NODE, idle_power_w=11_000.0)
    with pytest.raises(InvalidValueError, match="used_fraction"):
        NODE.cost(1.5)
    with pytest.raises(InvalidValueError, match="granularity_s"):
        billed_usd(1.0, 1.0, 0.0)
    with pytest.raises(InvalidValueError, match="rent_usd_per_hour"):
        rent_or_buy_fraction(NODE, 0.0)
