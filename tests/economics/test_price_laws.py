"""Laws of prices: shares add up, costs are linear in the price, ownership falls with life and
use.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.economics.offer import PRICE_KINDS, Offer, Quote, first_day
from accelsim.economics.price import PriceBook
from accelsim.economics.result import electricity_usd_per_hour
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


def test_one_thing_has_one_current_price():
    """However its region and instance are spelt; the cheapest is no year older than another."""
    book = PriceBook.load()
    things = [
        re.sub("[^a-z0-9/.]", "", offer.offer_id.lower()) + f"/{offer.device_count}"
        for offer in book
    ]
    assert len(set(things)) == len(things)
    for device in book.devices:
        for kind in PRICE_KINDS:
            quote = book.cheapest(device, kind)
            alike = book.offers(device, quote.offer.provider, None, kind) if quote else ()
            days = [
                first_day(one.dated(kind)) for one in alike if one.instance == quote.offer.instance
            ]
            known = [day for day in days if day is not None]
            own = quote and first_day(quote.offer.dated(kind))
            assert not known or own is None or (max(known) - own).days <= 366
