"""Laws of prices: shares add up, costs are linear in the price, ownership falls with life and
use.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.economics.offer import PRICE_KINDS, Offer, Quote
from accelsim.economics.ownership import (
    HOURS_PER_YEAR,
    amortised_usd_per_hour,
    electricity_usd_per_hour,
)
from accelsim.economics.result import cost_report, electricity_usd
from accelsim.errors import InvalidValueError

PRICE = st.floats(0.01, 1e3)
COUNT = st.integers(1, 64)
POWER = st.floats(0, 1e4)
TARIFF = st.floats(0, 1)
PUE = st.floats(1, 3)
FACTOR = st.floats(1.01, 10)


def offer(**changes):
    fields = {
        "provider": "somebody",
        "region": "here",
        "instance": "large",
        "source": "a test",
        "as_of": "2026-01",
        "device": "t4",
        "device_count": 8,
        "on_demand_usd_per_hour": 16.0,
    }
    return Offer(**(fields | changes))


@given(price=PRICE, count=COUNT)
def test_units_add_up_to_the_instance(price, count):
    found = offer(device_count=count, on_demand_usd_per_hour=price)
    assert found.usd_per_unit_hour() * count == pytest.approx(price)
    assert Quote(found).usd_per_hour(count) == pytest.approx(price)


@given(price=PRICE, used=st.floats(0.1, 64), factor=FACTOR)
def test_a_quote_is_linear_in_what_is_used(price, used, factor):
    quote = Quote(offer(on_demand_usd_per_hour=price))
    whole = quote.usd_per_hour(factor * used)
    assert whole == pytest.approx(factor * quote.usd_per_hour(used))


@given(vcpus=st.integers(2, 256), threads=st.sampled_from([1, 2]), price=PRICE)
def test_all_cores_of_a_cpu_cost_the_instance(vcpus, threads, price):
    found = offer(
        device_count=None,
        vcpu_count=vcpus,
        vcpus_per_core=threads,
        on_demand_usd_per_hour=price,
    )
    cores = vcpus / threads
    assert Quote(found).usd_per_hour(core_count=cores) == pytest.approx(price)
    assert found.usd_per_unit_hour() * vcpus == pytest.approx(price)


@pytest.mark.parametrize("kind", PRICE_KINDS)
def test_a_price_that_is_unknown_makes_no_quote(kind):
    priced = offer(**{f"{kind}_usd_per_hour": 3.0})
    assert Quote(priced, kind).instance_usd_per_hour == 3.0
    if kind != "on_demand":
        with pytest.raises(InvalidValueError, match="price kind"):
            Quote(offer(), kind)


@given(power=POWER, tariff=TARIFF, pue=PUE, factor=FACTOR)
def test_electricity_is_linear_in_power_tariff_and_overhead(power, tariff, pue, factor):
    base = electricity_usd_per_hour(power, tariff, pue)
    assert electricity_usd_per_hour(factor * power, tariff, pue) == pytest.approx(factor * base)
    assert electricity_usd_per_hour(power, factor * tariff, pue) == pytest.approx(factor * base)
    assert electricity_usd_per_hour(power, tariff, factor * pue) == pytest.approx(factor * base)


@given(power=POWER, tariff=TARIFF, pue=PUE, hours=st.floats(0, 1000))
def test_power_times_time_is_energy(power, tariff, pue, hours):
    hourly = electricity_usd_per_hour(power, tariff, pue)
    assert electricity_usd(3600 * hours * power, tariff, pue) == pytest.approx(hours * hourly)


OWNED = st.fixed_dictionaries(
    {
        "purchase_usd": st.floats(1, 1e6),
        "life_years": st.floats(0.5, 10),
        "utilisation_fraction": st.floats(0.05, 1),
        "power_w": POWER,
        "electricity_usd_per_kwh": TARIFF,
    }
)


@given(owned=OWNED, factor=FACTOR)
def test_ownership_falls_with_life_and_rises_with_price_and_power(owned, factor):
    base = amortised_usd_per_hour(**owned)
    longer = owned | {"life_years": factor * owned["life_years"]}
    dearer = owned | {"purchase_usd": factor * owned["purchase_usd"]}
    hungrier = owned | {"power_w": factor * owned["power_w"]}
    assert amortised_usd_per_hour(**longer) < base
    assert amortised_usd_per_hour(**dearer) > base
    assert amortised_usd_per_hour(**hungrier) >= base


@given(owned=OWNED, idle=POWER)
def test_more_use_is_never_dearer_by_the_hour(owned, idle):
    idle_power = min(idle, owned["power_w"])
    full = owned | {"utilisation_fraction": 1.0}
    part = amortised_usd_per_hour(**owned, idle_power_w=idle_power)
    assert amortised_usd_per_hour(**full, idle_power_w=idle_power) <= part * (1 + 1e-12)


@given(owned=OWNED, residual=st.floats(0, 1))
def test_all_useful_hours_pay_for_the_purchase(owned, residual):
    still = owned | {"power_w": 0.0}
    hourly = amortised_usd_per_hour(**still, residual_fraction=residual)
    hours = owned["life_years"] * HOURS_PER_YEAR * owned["utilisation_fraction"]
    paid = owned["purchase_usd"] * (1 - residual)
    assert hourly * hours == pytest.approx(paid, abs=1e-6)


@given(price=PRICE, rate=st.floats(0.1, 1e5), factor=FACTOR)
def test_every_cost_of_a_report_is_linear_in_the_price(price, rate, factor):
    sizes = {"tokens_per_s": 10 * rate, "epoch_sample_count": 1e6, "run_sample_count": 1e8}
    base = cost_report(price, rate, **sizes)
    dear = cost_report(factor * price, rate, **sizes)
    for name in (
        "usd_per_1000",
        "usd_per_million_tokens",
        "usd_per_epoch",
        "usd_per_training_run",
    ):
        assert getattr(dear, name) == pytest.approx(factor * getattr(base, name))
    assert base.usd_per_training_run == pytest.approx(100 * base.usd_per_epoch)
