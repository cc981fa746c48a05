"""Laws and closed forms of the cost formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.economics import (
    CostReport,
    amortised_usd_per_hour,
    cost_report,
    electricity_usd,
    electricity_usd_per_hour,
    usd_per_1000_inferences,
    usd_per_epoch,
    usd_per_million_tokens,
    usd_per_training_run,
)
from accelsim.errors import InvalidValueError

PRICE = st.floats(1e-3, 1e5)
RATE = st.floats(1e-3, 1e8)
FACTOR = st.floats(1.001, 1e3)
FORMULAS = [
    usd_per_1000_inferences,
    usd_per_million_tokens,
    lambda price, rate: usd_per_epoch(price, rate, 1_281_167),
    lambda price, rate: usd_per_training_run(price, 1 / rate, 500),
]


def test_closed_form_values():
    assert usd_per_1000_inferences(3.6, 1.0) == pytest.approx(1.0)
    assert usd_per_million_tokens(3.6, 1000.0) == pytest.approx(1.0)
    assert usd_per_epoch(0.526, 1000.0, 1_281_167) == pytest.approx(0.526 * 1281.167 / 3600)
    assert usd_per_training_run(32.77, 0.5, 7200) == pytest.approx(32.77)
    assert electricity_usd(3.6e6, 0.10, 1.5) == pytest.approx(0.15)


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
    assert usd_per_training_run(price, 1 / rate, 1000) == pytest.approx(thousand)


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


@pytest.mark.parametrize("steps", [0, -1, np.nan])
def test_a_training_run_has_steps(steps):
    with pytest.raises(InvalidValueError, match="step_count"):
        usd_per_training_run(1.0, 0.5, steps)


def test_one_value_outside_its_range_refuses_the_whole_column():
    with pytest.raises(InvalidValueError, match="throughput_per_s"):
        usd_per_1000_inferences(np.array([1.0, 1.0]), np.array([10.0, 0.0]))


def test_a_site_without_overhead_pays_for_its_equipment_alone():
    assert electricity_usd(3.6e6, 0.10) == electricity_usd(3.6e6, 0.10, 1.0) == pytest.approx(0.10)
    report = cost_report(1.0, 10.0, energy_per_item_j=3600.0, electricity_usd_per_kwh=0.10)
    assert report.electricity_usd_per_1000 == pytest.approx(0.10)
    assert amortised_usd_per_hour(8766, 1, 1.0, 1000, 0.10) == pytest.approx(1.10)
    assert electricity_usd_per_hour(1000, 0.10) == pytest.approx(0.10)


@pytest.mark.parametrize("pue", [0.99, np.inf, np.nan])
def test_no_site_uses_less_than_its_equipment(pue):
    with pytest.raises(InvalidValueError, match="pue_ratio"):
        electricity_usd(1.0, 0.1, pue)


def test_unknown_price_does_not_hide_an_impossible_rate():
    with pytest.raises(InvalidValueError, match="throughput_per_s"):
        cost_report(None, 0.0)


def test_unknown_price_gives_unknown_costs():
    report = cost_report(None, 100.0, tokens_per_s=5.0, epoch_sample_count=10, run_sample_count=100)
    assert report == CostReport()


def test_report_has_what_its_inputs_allow():
    report = cost_report(
        0.526,
        1000.0,
        offer="aws/us-east-1/g4dn.xlarge",
        tokens_per_s=2000.0,
        epoch_sample_count=1e6,
        run_sample_count=9e7,
        energy_per_item_j=0.07,
        electricity_usd_per_kwh=0.1,
        pue_ratio=1.2,
    )
    assert report.usd_per_1000 == pytest.approx(0.526 / 3600)
    assert report.usd_per_million_tokens == pytest.approx(0.526 / 7.2)
    assert report.usd_per_epoch == pytest.approx(1000 * report.usd_per_1000)
    assert report.usd_per_training_run == pytest.approx(90 * report.usd_per_epoch)
    assert report.electricity_usd_per_1000 == pytest.approx(70 / 3.6e6 * 0.12)
    assert cost_report(0.526, 1000.0).usd_per_epoch is None


def test_hardware_got_for_nothing_costs_its_electricity():
    assert amortised_usd_per_hour(0, 3, 0.5, 1000, 0.10) == pytest.approx(0.10)
    assert amortised_usd_per_hour(500, 3, 0.5, 1000, 0.10, residual_fraction=1.0) == pytest.approx(
        0.10
    )


def test_amortised_price_of_a_busy_board():
    # 8,766 USD over one year of full use, 1 kW at 0.10 USD/kWh and a PUE of 1.5
    assert amortised_usd_per_hour(8766, 1, 1.0, 1000, 0.10, 1.5) == pytest.approx(1.15)


@settings(max_examples=40, deadline=None)
@given(
    purchase=st.floats(1, 1e6),
    years=st.floats(0.5, 10),
    use=st.floats(0.01, 1),
    power=st.floats(0, 1e4),
    tariff=st.floats(0, 1),
)
def test_ownership_laws(purchase, years, use, power, tariff):
    price = amortised_usd_per_hour(purchase, years, use, power, tariff, 1.3)
    energy = electricity_usd_per_hour(power, tariff, 1.3)
    assert price >= energy
    assert amortised_usd_per_hour(purchase, years, use / 2, power, tariff, 1.3) >= price
    assert amortised_usd_per_hour(2 * purchase, years, use, power, tariff, 1.3) == pytest.approx(
        2 * price - energy
    )
    idle = amortised_usd_per_hour(purchase, years, use, power, tariff, 1.3, idle_power_w=power)
    assert idle == pytest.approx(price - energy + energy / use)
    assert amortised_usd_per_hour(
        purchase, years, use, power, tariff, 1.3, residual_fraction=1.0
    ) == pytest.approx(energy)


@pytest.mark.parametrize(
    "changes",
    [
        {"life_years": 0},
        {"utilisation_fraction": 0},
        {"utilisation_fraction": 1.1},
        {"pue_ratio": 0.9},
        {"power_w": -1},
        {"residual_fraction": 1.01},
        {"residual_fraction": -0.01},
        {"electricity_usd_per_kwh": -0.1},
        {"idle_power_w": -1},
        {"life_years": float("inf")},
        {"purchase_usd": float("nan")},
    ],
)
def test_ownership_refuses_values_outside_their_range(changes):
    arguments = {
        "purchase_usd": 9000,
        "life_years": 4,
        "utilisation_fraction": 0.5,
        "power_w": 215,
        "electricity_usd_per_kwh": 0.1,
        "pue_ratio": 1.2,
    }
    with pytest.raises(InvalidValueError, match=f"^{next(iter(changes))} "):
        amortised_usd_per_hour(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("field", "allowed"), [("residual_fraction", ">= 0 and <= 1"), ("purchase_usd", ">= 0")]
)
def test_ownership_names_the_range(field, allowed):
    arguments = {
        "life_years": 4,
        "utilisation_fraction": 0.5,
        "power_w": 215,
        "electricity_usd_per_kwh": 0.1,
    }
    with pytest.raises(InvalidValueError) as raised:
        amortised_usd_per_hour(**{"purchase_usd": 9000, **arguments, field: -1})
    assert raised.value.allowed == f"a finite number {allowed}"
