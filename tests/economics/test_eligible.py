"""Which offers are chosen: ages of spot prices, classes of providers, one's own prices."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelsim
from accelsim.capacity.candidates import candidates
from accelsim.capacity.scenario import CandidateHardware, load_scenario
from accelsim.economics import Offer, PriceBook
from accelsim.economics.dates import today
from accelsim.economics.eligible import PROVIDER_CLASSES, OfferRule, provider_class, rule_of
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.files.prices import prices_folder

BOOK = PriceBook.load()


def offer(provider="aws", age_days=0, **changes):
    day = (today() - timedelta(days=age_days)).isoformat()
    fields = {
        "region": "us-east-1",
        "instance": "one",
        "source": "a list",
        "device": "t4",
        "device_count": 1,
        "on_demand_usd_per_hour": 2.0,
        "spot_usd_per_hour": 1.0,
        "as_of": day,
        "spot_as_of": day,
    }
    return Offer(provider=provider, **(fields | changes))


# ---- ages


@pytest.mark.parametrize(
    ("age", "limit", "is_chosen"), [(30, 30, True), (31, 30, False), (31, 31, True)]
)
def test_a_spot_price_is_chosen_up_to_its_age(age, limit, is_chosen):
    quote = PriceBook([offer(age_days=age)]).cheapest("t4", "spot", rule=OfferRule((), limit))
    assert (quote is not None) is is_chosen


@given(ages=st.lists(st.integers(0, 2000), min_size=1, max_size=6), limit=st.integers(0, 2000))
def test_no_chosen_spot_price_is_older_than_asked(ages, limit):
    book = PriceBook(offer(age_days=age, instance=f"i{age}") for age in set(ages))
    found = book.eligible("t4", "spot", rule=OfferRule((), limit))
    assert {one.instance for one in found.offers} == {f"i{age}" for age in ages if age <= limit}
    assert bool(found.notes) is any(age > limit for age in ages)


def test_an_old_on_demand_price_is_chosen_and_shows_its_date():
    assert PriceBook([offer(age_days=300)]).cheapest("t4") is not None


def test_the_message_names_the_option_that_takes_the_newest(monkeypatch):
    run = accelsim.estimate("lenet-5", "t4", kind="spot", provider="aws")
    assert run.usd_per_hour is None
    (said,) = [text for text in run.warnings if "spot price" in text]
    days = int(said.rpartition("--spot-age-days ")[2].split()[0])
    taken = accelsim.estimate("lenet-5", "t4", kind="spot", provider="aws", spot_age_days=days)
    assert taken.usd_per_hour is not None
    short = accelsim.estimate("lenet-5", "t4", kind="spot", provider="aws", spot_age_days=days - 1)
    assert short.usd_per_hour is None


def test_an_offer_named_is_taken_at_any_age():
    old = next(one for one in BOOK.offers("t4", kind="spot") if one.spot_as_of.startswith("2023"))
    run = accelsim.estimate("lenet-5", "t4", offer=f"{old.offer_id}:spot")
    assert run.usd_per_hour == pytest.approx(old.usd_per_unit_hour("spot"))
    with pytest.raises(InvalidValueError, match="spot_age_days"):
        accelsim.estimate("lenet-5", "t4", offer=old.offer_id, spot_age_days=9)


# ---- classes


def test_every_provider_of_the_book_has_a_class_with_its_source():
    with (prices_folder() / "providers.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert all(len(row["source"]) > 20 and row["class"] in PROVIDER_CLASSES for row in rows)
    found = {provider_class(one.provider, one.instance) for one in BOOK}
    assert found == set(PROVIDER_CLASSES)


def test_one_provider_may_sell_for_others_too():
    assert provider_class("runpod", "1x_A100-80GB_COMMUNITY") == "marketplace"
    assert provider_class("runpod", "1x_A100-80GB_SECURE") == "specialised"
    assert provider_class("nobody", "x") == "unlisted"


def test_marketplaces_are_chosen_where_they_are_asked_for():
    cheap = offer("vast", on_demand_usd_per_hour=0.1, spot_usd_per_hour=None, spot_as_of="")
    book = PriceBook([cheap, offer()])
    assert book.cheapest("t4").offer.provider == "aws"
    for asked in (
        {"provider": "vast"},
        {"rule": rule_of("marketplace", None)},
        {"rule": rule_of("any", None)},
    ):
        assert book.cheapest("t4", **asked).offer == cheap
    assert book.cheapest("t4", rule=rule_of("specialised", None)) is None


@pytest.mark.parametrize("word", PROVIDER_CLASSES)
def test_a_class_filters_everywhere(word):
    for device in ("a100-sxm-80gb", "h100-nvl-94gb", "rtx-3090"):
        run = accelsim.estimate("lenet-5", device, provider_class=word)
        if run.offer:
            place = run.offer.split("/")
            assert provider_class(place[0], place[2]) == word
    asked = CandidateHardware(devices=("gpu",), provider_classes=(word,))
    found, left_out = candidates(asked, "location")
    assert {provider_class(c.quote.offer.provider, c.quote.offer.instance) for c in found} == {word}
    assert left_out


@pytest.mark.parametrize("text", ["cheap", "", ",", "hyperscaler,cheap"])
def test_a_class_that_is_none_is_refused(text):
    with pytest.raises(InvalidValueError, match="provider_class"):
        accelsim.estimate("lenet-5", "t4", provider_class=text)


def test_a_plan_refuses_a_class_that_is_none():
    with pytest.raises(ProfileError, match="provider_classes"):
        load_scenario({"name": "x", "services": [], "candidates": {"provider_classes": ["cheap"]}})


@pytest.mark.parametrize("age", [-1.0, float("nan")])
def test_an_age_that_is_none_is_refused(age):
    with pytest.raises(InvalidValueError, match="spot_age_days"):
        accelsim.estimate("lenet-5", "t4", kind="spot", spot_age_days=age)


def test_providers_are_ranged_by_their_least_price_of_one_device():
    book = PriceBook(
        [
            offer("aws", instance="one"),
            offer("aws", instance="eight", device_count=8, on_demand_usd_per_hour=8.0),
            offer("gcp", on_demand_usd_per_hour=3.0),
            offer("azure", instance="part", device_count=0.5, on_demand_usd_per_hour=1.1),
        ]
    )
    assert book.eligible("t4").by_provider() == {"aws": 1.0, "gcp": 3.0}


# ---- accelerators without a device


def test_every_offer_of_an_accelerator_has_a_device_or_a_reason():
    without = [one for one in BOOK if one.accelerator and one.device is None]
    assert len(without) == 22
    assert all(len(one.device_reason) > 20 for one in without)
    assert not any(one.device_reason for one in BOOK if one.device is not None)


# ---- one's own prices


def test_an_own_price_is_chosen_before_a_cheaper_one():
    book = BOOK.with_offers([offer("lab", region="any", on_demand_usd_per_hour=99.0)])
    assert book.cheapest("t4").offer.provider == "lab"
    assert book.cheapest("t4", region="eu-*").offer.provider == "lab"
    assert book.cheapest("t4", provider="aws").offer.provider == "aws"
    assert book.with_discounts({"lab": 0.5}).cheapest("t4").instance_usd_per_hour == 49.5


def test_a_plan_takes_own_prices_alone_where_there_are_some(tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    path.write_text("device,on_demand_usd_per_hour\nt4,99\n")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(path))
    asked = CandidateHardware(devices=("t4", "l4"), regions=("us-*",))
    found, _ = candidates(asked, "location")
    of_t4 = {c.quote.offer.provider for c in found if c.quote.offer.device == "t4"}
    assert of_t4 == {"user"}
    assert any(c.quote.offer.device == "l4" for c in found)


def test_an_own_price_that_cannot_be_used_is_named(tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    path.write_text("device,on_demand_usd_per_hour\nt4,99\n")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(path))
    assert accelsim.estimate("lenet-5", "t4").usd_per_hour == 99.0
    run = accelsim.estimate("lenet-5", "t4", kind="committed-1y")
    assert any("user/any/t4" in text for text in run.warnings)
    _, left_out = candidates(CandidateHardware(devices=("t4",), providers=("aws",)), "location")
    assert any("user/any/t4" in text for text in left_out)


def test_own_offers_stay_own_when_more_are_added():
    mine = offer("lab", instance="mine")
    book = BOOK.with_offers([mine]).with_offers([replace(mine, instance="other", region="any")])
    assert sum(map(book.is_own, book)) == 2
