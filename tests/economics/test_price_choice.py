"""Which price a run is paid at: discounts, caps, dates, and where it is."""

import dataclasses

import pytest

import accelsim
from accelsim.capacity.candidates import candidates
from accelsim.capacity.hardware_asked import CandidateHardware
from accelsim.economics import Offer, PriceBook
from accelsim.economics.eligible import OfferRule
from accelsim.economics.offer import first_day
from accelsim.economics.price import parse_discounts
from accelsim.errors import InvalidValueError, OverBudgetError, UnknownNameError

OFFER = Offer(
    provider="p",
    region="here",
    instance="big",
    source="s",
    device="t4",
    device_count=1,
    on_demand_usd_per_hour=2.0,
    spot_usd_per_hour=1.0,
    as_of="2026-07-20",
    spot_as_of="2023-11-16",
)


def estimate(**price):
    return accelsim.estimate("lenet-5", "h100-sxm-80gb", **price)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-07-20", "2026-07-20"),
        ("2026-07", "2026-07-01"),
        ("2024", "2024-01-01"),
        ("2025/2026", "2025-01-01"),
        ("", None),
        ("soon", None),
        ("2025-1", None),
        ("99999999", None),
    ],
)
def test_first_day_of_a_date(text, day):
    found = first_day(text)
    assert (None if found is None else found.isoformat()) == day


def test_a_discount_can_make_another_provider_the_cheapest():
    usual, aws = estimate(), estimate(provider="aws")
    assert not usual.offer.startswith("aws/")
    cheap = estimate(discounts="aws=99%")
    assert cheap.offer == aws.offer
    assert cheap.usd_per_hour == pytest.approx(0.01 * aws.usd_per_hour)
    assert cheap.cost_usd_per_1000 == pytest.approx(0.01 * aws.cost_usd_per_1000)


def test_every_price_of_a_discounted_offer_falls_alike():
    book = PriceBook([OFFER]).with_discounts({"p": 0.25})
    (offer,) = book
    assert (offer.on_demand_usd_per_hour, offer.spot_usd_per_hour) == (1.5, 0.75)
    assert offer.offer_id == OFFER.offer_id


@pytest.mark.parametrize("text", ["aws", "aws=", "aws=1", "aws=-0.1", "aws=nan", "=0.1", "aws=x%"])
def test_discounts_that_are_none_are_refused(text):
    with pytest.raises(InvalidValueError, match="discounts"):
        parse_discounts(text)


def test_discounts_are_read():
    assert parse_discounts("AWS=20%, gcp=0.1") == {"aws": 0.2, "gcp": 0.1}
    with pytest.raises(UnknownNameError, match="provider"):
        estimate(discounts="nobody=10%")


def test_a_cap_refuses_what_is_dearer_and_a_comparison_says_so():
    price = estimate().usd_per_hour
    assert estimate(max_usd_per_hour=price).usd_per_hour == price
    with pytest.raises(OverBudgetError, match="max_usd_per_hour"):
        estimate(max_usd_per_hour=0.99 * price)
    rows = accelsim.compare("lenet-5", ["t4", "h100-sxm-80gb"], max_usd_per_hour=0.99 * price).rows
    assert [row.reason is None for row in rows] == [True, False]
    with pytest.raises(InvalidValueError, match="finite number"):
        estimate(max_usd_per_hour=-1)


def test_an_own_price_stands_beside_no_choice_of_an_offer():
    with pytest.raises(InvalidValueError, match="usd_per_hour"):
        estimate(usd_per_hour=1.0, discounts="aws=10%")


@pytest.mark.parametrize("kind", ["spot", "on-demand", "committed-1y"])
def test_a_price_has_its_kind_and_its_date(kind):
    run = estimate(kind=kind, spot_age_days=1e5)
    quote = PriceBook.load().find(run.offer)
    assert quote.kind == kind.replace("-", "_")
    assert run.price_as_of == quote.offer.dated(quote.kind)
    assert first_day(run.price_as_of)


def test_a_price_more_than_a_year_older_than_another_of_its_instance_does_not_count():
    fresh = dataclasses.replace(
        OFFER, region="there", spot_usd_per_hour=1.5, spot_as_of="2026-07-01"
    )
    near = dataclasses.replace(OFFER, spot_as_of="2026-01-01")
    of_any_age = OfferRule((), 1e5)
    for offers, place in (((OFFER, fresh), "there"), ((OFFER,), "here"), ((near, fresh), "here")):
        quote = PriceBook(offers).cheapest("t4", "spot", rule=of_any_age)
        assert quote.quote_id == f"p/{place}/big:spot"


def test_the_default_is_the_cheapest_of_the_region_asked_for():
    assert estimate(region="eu-*").offer.split("/")[1].startswith("eu-")
    assert estimate(region="eu-*").usd_per_hour >= estimate().usd_per_hour


def instance_prices(asked):
    found, _ = candidates(asked, "location")
    return {c.quote.offer.offer_id: c.quote.instance_usd_per_hour for c in found}


def test_plans_know_discounts_and_caps():
    of_aws = {"devices": ("t4",), "providers": ("aws",)}
    usual = instance_prices(CandidateHardware(**of_aws))
    halved = instance_prices(CandidateHardware(**of_aws, discounts={"aws": 0.5}))
    assert halved == pytest.approx({name: price / 2 for name, price in usual.items()})
    least = min(usual.values())
    capped = instance_prices(CandidateHardware(**of_aws, max_usd_per_hour=least))
    assert set(capped.values()) == {least}
