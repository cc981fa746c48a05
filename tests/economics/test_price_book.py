"""The project's own price file, look-ups in it, and a user's price files."""

from __future__ import annotations

import csv
import json
import math
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelsim.economics import PRICE_KINDS, Offer, PriceBook, Quote, price_kind
from accelsim.economics.eligible import OfferRule
from accelsim.economics.feeds.ingest import ingest
from accelsim.economics.feeds.price_lists import offers_csv, read_regions, read_rules
from accelsim.economics.price_file import COLUMNS, read_offers
from accelsim.errors import InputError, InvalidValueError, ProfileError, UnknownNameError
from accelsim.files.prices import prices_folder

BOOK = PriceBook.load()
OFFERS_FILE = prices_folder() / "offers.csv"
SMALL = Offer(
    provider="aws",
    region="us-east-1",
    instance="p4d.24xlarge",
    source="test",
    device="a100-sxm-40gb",
    device_count=8,
    vcpu_count=96,
    on_demand_usd_per_hour=24.0,
    spot_usd_per_hour=8.0,
)


# ---- the project's own file


def test_ids_are_unique_and_offers_sorted():
    ids = [offer.offer_id for offer in BOOK]
    assert len(ids) > 800
    assert ids == sorted(set(ids))
    assert len(read_offers(OFFERS_FILE)) == len(ids)


def test_every_offer_has_a_source_and_a_date():
    iso = re.compile(r"20\d\d(-\d\d){0,2}(/20\d\d)?\Z")
    assert all(len(offer.source) > 8 and iso.match(offer.as_of) for offer in BOOK)
    assert all(bool(offer.spot_as_of) == (offer.spot_usd_per_hour is not None) for offer in BOOK)


def test_own_file_passes_the_ingest_checks_unchanged():
    with OFFERS_FILE.open(newline="", encoding="utf-8") as stream:
        again = ingest(csv.DictReader(stream), (), read_regions(prices_folder() / "regions.csv"))
    assert again.refusals == ()
    assert again.corrections == ()
    assert again.offers == tuple(BOOK)


def test_every_refusal_has_a_reason_and_no_refused_price_is_offered():
    with (prices_folder() / "refused.csv").open(newline="", encoding="utf-8") as stream:
        findings = list(csv.DictReader(stream))
    assert {row["action"] for row in findings} == {"refused", "corrected"}
    assert all(row["reason"] and row["source"] and row["instance"] for row in findings)
    licensed = [row for row in findings if "licence" in row["reason"]]
    assert licensed
    for row in licensed:
        assert f"{row['provider']}/{row['region']}/{row['instance']}" not in {
            o.offer_id for o in BOOK
        }


def test_published_prices():
    """Figures as the providers' price lists have them (read 2026-07)."""
    assert BOOK.find("aws/us-east-1/g4dn.xlarge").instance_usd_per_hour == 0.526
    assert BOOK.find("aws/us-east-1/p4d.24xlarge").usd_per_hour() == pytest.approx(21.957642 / 8)
    assert BOOK.find("aws/us-east-1/f1.2xlarge").instance_usd_per_hour == 1.65
    assert BOOK.find("gcp/us-central2/tpu-v4-8").usd_per_hour() == pytest.approx(3.22)
    assert BOOK.find("gcp/us-central1/n1-standard-4+p4-x1").usd_per_hour() == pytest.approx(
        0.6 + 0.189999
    )


def test_device_prices_are_within_what_markets_ask():
    for device in BOOK.devices:
        quote = BOOK.cheapest(device, rule=OfferRule(("any",)))
        assert quote is not None, device
        unit = quote.offer.usd_per_unit_hour()
        assert (0.005 < unit < 0.1) if quote.offer.is_cpu else (0.1 < unit < 30)


def test_every_device_resolves_in_the_catalogue():
    folder = prices_folder().parents[1] / "device_profiles"
    names = {path.stem for path in folder.glob("*/*.yaml")}
    assert names
    rules = read_rules(prices_folder() / "device_rules.csv")
    assert {rule.device for rule in rules if rule.device} - names == set()
    assert set(BOOK.devices) - names == set()


def test_loading_takes_few_calls_of_functions_for_an_offer(calls_in):
    calls = calls_in(lambda: PriceBook(read_offers(OFFERS_FILE)))
    assert calls < 150 * len(BOOK)  # 96


# ---- look-ups


def test_load_is_cached():
    assert PriceBook.load() is PriceBook.load()


@pytest.mark.parametrize("device", ["t4", "a100-sxm-80gb", "tpu-v4", "epyc-9654"])
def test_cheapest_is_no_dearer_than_any_offer(device):
    quote = BOOK.cheapest(device)
    price = quote.usd_per_hour(core_count=1)
    others = [Quote(offer) for offer in BOOK.offers(device=device, kind="on_demand")]
    shares = [other.usd_per_hour(core_count=1) for other in others if other.offer.unit_count >= 1]
    assert price == pytest.approx(min(share for share in shares if share is not None))


def test_slices_of_a_device_do_not_stand_for_the_device():
    quote = BOOK.cheapest("a10", provider="azure")
    assert quote.offer.device_count >= 1
    assert min(offer.device_count for offer in BOOK.offers(device="a10", provider="azure")) < 1


def test_cheapest_holds_the_devices_asked_for():
    assert BOOK.cheapest("h100-sxm-80gb", device_count=8).offer.device_count >= 8
    assert BOOK.cheapest("h100-sxm-80gb", device_count=9) is None
    assert BOOK.cheapest("graviton3", core_count=64).offer.vcpu_count == 64


def test_cpu_larger_than_any_instance_is_priced_by_the_core():
    assert max(offer.vcpu_count for offer in BOOK.offers(device="epyc-7763")) < 128
    quote = BOOK.cheapest("epyc-7763", core_count=64)
    assert quote.usd_per_hour(core_count=64) == pytest.approx(64 * quote.usd_per_hour(core_count=1))


def test_device_without_an_offer_has_no_price():
    assert BOOK.cheapest("zcu104") is None
    assert BOOK.offers(device="zcu104") == ()


def test_filters_narrow():
    everything = BOOK.offers(device="t4")
    aws = BOOK.offers(device="t4", provider="AWS")
    east = BOOK.offers(device="t4", provider="aws", region="us-east-1", kind="spot")
    assert set(east) < set(aws) < set(everything)
    assert all(offer.spot_usd_per_hour for offer in east)


@pytest.mark.parametrize(
    ("suffix", "kind"), [("", "on_demand"), (":spot", "spot"), (":on-demand", "on_demand")]
)
def test_find_reads_the_price_kind(suffix, kind):
    quote = PriceBook([SMALL]).find("AWS/us-east-1/P4D.24xlarge" + suffix)
    assert (quote.offer, quote.kind) == (SMALL, kind)
    assert PriceBook([SMALL]).find(quote.quote_id) == quote


@pytest.mark.parametrize(
    "typo",
    ["aws/us-east-1/p4d.24xlarg", "aws/us-est-1/p4d.24xlarge", "aws/us-east1/p4d.24xlarge:spot"],
)
def test_unknown_offer_names_near_matches(typo):
    with pytest.raises(UnknownNameError, match=re.escape("aws/us-east-1/p4d.24xlarge")):
        BOOK.find(typo)


def test_unknown_kind_or_price_is_refused():
    with pytest.raises(InvalidValueError, match="on_demand, spot"):
        BOOK.find("aws/us-east-1/p4d.24xlarge:cheap")
    with pytest.raises(InvalidValueError, match="price kind known"):
        PriceBook([SMALL]).find("aws/us-east-1/p4d.24xlarge:committed-1y")


@given(st.text(max_size=40))
@settings(max_examples=40, deadline=None)
def test_any_unknown_id_gives_a_clear_error(text):
    with pytest.raises(InputError):
        PriceBook([SMALL]).find(text)


def test_own_offers_replace_and_add():
    mine = Offer(
        provider="lab",
        region="any",
        instance="box",
        source="invoice",
        device="t4",
        device_count=2,
        on_demand_usd_per_hour=0.2,
    )
    cheaper = Offer(
        provider="aws",
        region="us-east-1",
        instance="p4d.24xlarge",
        source="contract",
        device="a100-sxm-40gb",
        device_count=8,
        on_demand_usd_per_hour=12.0,
    )
    book = BOOK.with_offers([mine, cheaper])
    assert len(book) == len(BOOK) + 1
    assert book.cheapest("t4").offer == mine
    assert book.find("aws/us-east-1/p4d.24xlarge").instance_usd_per_hour == 12.0


# ---- shares of an instance


@given(count=st.floats(0.01, 1e4), price=st.floats(1e-3, 1e5), devices=st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_share_is_linear_in_devices_and_price(count, price, devices):
    offer = Offer(
        provider="p",
        region="r",
        instance="i",
        source="s",
        device="d",
        device_count=devices,
        on_demand_usd_per_hour=price,
    )
    quote = Quote(offer)
    assert quote.usd_per_hour(devices) == pytest.approx(price)
    assert quote.usd_per_hour(count) == pytest.approx(count * quote.usd_per_hour(1))


def test_cpu_share_is_by_core():
    cpu = {
        "provider": "p",
        "region": "r",
        "source": "s",
        "vcpu_count": 8,
        "on_demand_usd_per_hour": 0.4,
    }
    threads = Quote(Offer(instance="threads", vcpus_per_core=2, **cpu))
    cores = Quote(Offer(instance="cores", vcpus_per_core=1, **cpu))
    unknown = Quote(Offer(instance="unknown", **cpu))
    assert threads.usd_per_hour(core_count=4) == pytest.approx(0.4)
    assert cores.usd_per_hour(core_count=4) == pytest.approx(0.2)
    assert unknown.usd_per_hour(core_count=4) is None
    assert unknown.usd_per_hour() == pytest.approx(0.4)


@pytest.mark.parametrize("count", [0, -1, math.nan, math.inf])
def test_share_refuses_impossible_counts(count):
    with pytest.raises(InvalidValueError, match="device_count"):
        Quote(SMALL).usd_per_hour(count)


@pytest.mark.parametrize(
    "changes",
    [
        {"on_demand_usd_per_hour": 0.0},
        {"on_demand_usd_per_hour": -1.0},
        {"on_demand_usd_per_hour": math.nan},
        {"spot_usd_per_hour": 25.0},
        {"device_count": 0},
        {"vcpu_count": math.inf},
        {"provider": ""},
        {"instance": "a/b"},
        {"region": " us-east-1"},
        {"source": ""},
    ],
)
def test_offer_refuses_values_outside_their_range(changes):
    fields = {name: getattr(SMALL, name) for name in Offer.__dataclass_fields__}
    with pytest.raises(InvalidValueError, match=next(iter(changes))):
        Offer(**{**fields, **changes})


def test_price_kinds_have_one_spelling():
    assert [price_kind(kind.upper().replace("_", "-")) for kind in PRICE_KINDS] == list(PRICE_KINDS)


# ---- a user's own files


def test_yaml_needs_only_a_device_and_a_price(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("offers:\n  - device: zcu104\n    on_demand_usd_per_hour: 0.05\n")
    quote = PriceBook.load(path).cheapest("zcu104")
    assert quote.quote_id == "user/any/zcu104"
    assert quote.usd_per_hour() == 0.05
    assert quote.offer.source == "mine.yaml"


def test_json_and_csv_give_the_same_offers(tmp_path):
    (tmp_path / "mine.csv").write_text(offers_csv([SMALL]))
    fields = {name: getattr(SMALL, name) for name in COLUMNS if name != "host_memory_gib"}
    (tmp_path / "mine.json").write_text(json.dumps({"offers": [fields]}))
    assert read_offers(tmp_path / "mine.csv") == read_offers(tmp_path / "mine.json") == (SMALL,)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("device: t4\n    price: 1", "field = 'price'"),
        ("device: t4\n    spot_usd_per_hr: 1", "Did you mean spot_usd_per_hour"),
        ("device: t4\n    on_demand_usd_per_hour: 0", "Leave an unknown one empty"),
        ("device: t4\n    on_demand_usd_per_hour: -2", "finite number > 0"),
        ("device: t4\n    on_demand_usd_per_hour: cheap", "on_demand_usd_per_hour = 'cheap'"),
        ("device: t4\n    on_demand_usd_per_hour: true", "on_demand_usd_per_hour = True"),
        ("device: t4\n    on_demand_usd_per_hour: 1e99", "at most 1,000,000 USD"),
        ("device: t4", "at least one price"),
        ("on_demand_usd_per_hour: 1", "device"),
        (
            "device: t4\n    on_demand_usd_per_hour: 1\n    spot_usd_per_hour: 2",
            "at most the on-demand price",
        ),
        ("device: t4\n    on_demand_usd_per_hour: 1\n    vcpus_per_core: 3", "1 or 2"),
        ("device: [t4]\n    on_demand_usd_per_hour: 1", "device"),
        ("device: t4\n    on_demand_usd_per_hour: .nan", "not a finite number"),
        (
            (
                "device: t4\n    on_demand_usd_per_hour: 1\n  - device: t4\n    "
                "on_demand_usd_per_hour: 2"
            ),
            "already",
        ),
    ],
)
def test_bad_rows_are_named(tmp_path, body, message):
    path = tmp_path / "mine.yaml"
    path.write_text(f"offers:\n  - {body}\n")
    with pytest.raises(ProfileError, match=re.escape(message)) as raised:
        PriceBook.load(path)
    assert "mine.yaml" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "header"),
        ("device,device\nt4,t4\n", "distinct"),
        ("device,on_demand_usd_per_hour\nt4\n", "line 2: 1 fields"),
        ("device,on_demand_usd_per_hour\nt4,0.5\nt4,free\n", "line 3"),
        ('device,on_demand_usd_per_hour\n"t4,0.5\n', "not valid CSV"),
        ("device,on_demand_usd_per_hour\nt4,0.5\nt4,0.6\n", "already on line 2"),
    ],
)
def test_bad_csv_is_named_by_line(tmp_path, text, message):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ProfileError, match=message):
        read_offers(path)


@pytest.mark.parametrize("name", ["absent.csv", "absent.yaml", "."])
def test_unreadable_files_are_named(tmp_path, name):
    with pytest.raises(ProfileError, match="cannot be read"):
        read_offers(tmp_path / name)


def test_oversized_and_binary_files_are_refused(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(b"device\n" + b"x" * 5_000_001)
    with pytest.raises(ProfileError, match="larger than"):
        read_offers(path)
    path.write_bytes(b"device\n\xff\xfe\n")
    with pytest.raises(ProfileError, match="not UTF-8"):
        read_offers(path)


FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes_are_offers_or_a_clear_error(tmp_path, raw):
    for name in ("fuzz.csv", "fuzz.yaml", "fuzz.json"):
        path = tmp_path / name
        path.write_bytes(raw)
        try:
            read_offers(path)
        except ProfileError:
            continue


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 10), st.floats(), st.text(max_size=8))


@FUZZ
@given(
    st.lists(st.dictionaries(st.sampled_from([*COLUMNS, "junk"]), SCALARS, max_size=6), max_size=4)
)
def test_any_listed_values_are_offers_or_a_clear_error(tmp_path, rows):
    path = tmp_path / "fuzz.json"
    path.write_text(json.dumps({"offers": rows}))
    try:
        offers = read_offers(path)
    except ProfileError:
        return
    again = tmp_path / "again.csv"
    again.write_text(offers_csv(offers), encoding="utf-8", newline="")
    assert read_offers(again) == offers


def test_own_file_survives_writing_and_reading(tmp_path):
    path = tmp_path / "offers.csv"
    path.write_text(offers_csv(BOOK), encoding="utf-8", newline="")
    assert read_offers(path) == tuple(BOOK)
    assert path.read_bytes() == OFFERS_FILE.read_bytes()


@pytest.mark.parametrize(("wrong", "more"), [(20, ""), (21, "and 1 more"), (45, "and 25 more")])
def test_the_first_twenty_problems_are_shown_and_the_rest_counted(tmp_path, wrong, more):
    path = tmp_path / "mine.csv"
    path.write_text("device,on_demand_usd_per_hour\n" + "t4,free\n" * wrong)
    with pytest.raises(ProfileError) as raised:
        read_offers(path)
    text = str(raised.value)
    assert text.count("'free'") == min(wrong, 20)
    assert ("more" in text) is bool(more)
    assert more in text


def test_a_file_of_the_largest_size_is_read(tmp_path):
    path = tmp_path / "mine.csv"
    head = b"device,on_demand_usd_per_hour\nt4,1\n"
    path.write_bytes(head + b"\n" * (5_000_000 - len(head)))
    assert len(read_offers(path)) == 1
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ProfileError, match="larger than 5,000,000 bytes"):
        read_offers(path)


@pytest.mark.parametrize("device", ["epyc-7763", "epyc-9654", "graviton3", "xeon-platinum-8592+"])
def test_more_cores_never_cost_less(device):
    book = PriceBook.load()
    prices = [
        book.cheapest(device, core_count=n).usd_per_hour(core_count=n)
        for n in (1, 2, 4, 8, 16, 32, 48, 64)
    ]
    assert prices == sorted(prices)


def test_regions_and_providers_match_patterns():
    found = BOOK.offers(region="eu*")
    assert found
    assert all(offer.region.startswith("eu") for offer in found)
    quote = BOOK.cheapest("l4", region="eu*", provider="g*")
    assert quote is not None
    assert (quote.offer.provider, quote.offer.region[:2]) == ("gcp", "eu")
    with pytest.raises(UnknownNameError, match="moon"):
        BOOK.offers(region="moon-*")


@pytest.mark.parametrize("offers", [[1], iter([1]), {1}, range(2)])
def test_a_book_of_what_is_no_offer_is_refused_by_type(offers):
    with pytest.raises(InvalidValueError, match="offers"):
        PriceBook(offers)
