"""Rent, buy, colocate or call: hosted prices, street prices, and the table of a service."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim import catalog
from accelsim.capacity.breakeven import DeploymentOption, breakeven, rented
from accelsim.capacity.rent_or_buy import Terms, board_price, ways_to_serve
from accelsim.catalog.workloads import workload
from accelsim.economics import PriceBook
from accelsim.economics.hosted import HostedPrice, hosted_prices, street_price
from accelsim.economics.result import HOURS_PER_YEAR
from accelsim.errors import InvalidValueError
from accelsim.files.datafile import read_mapping
from accelsim.files.prices import prices_folder
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import ServingOptions, SloTargets

PRICE = HostedPrice(
    model="m",
    provider="p",
    served_as="m",
    input_usd_per_million=2.0,
    output_usd_per_million=10.0,
    cached_usd_per_million=0.5,
    as_of="2026-11",
    source="a page",
)
LOAD = Arrivals(rate_per_s=4.0, prompt="500", output="100")
OPTIONS = ServingOptions(slo=SloTargets(ttft_s=2.0, tpot_s=0.1))


# ---- data


def test_every_hosted_price_is_of_a_model_of_the_catalogue_with_source_and_date():
    data = read_mapping(prices_folder() / "hosted.yaml")
    names = {row["model"] for row in data["prices"]}
    assert len(names) > 10
    for name in names:
        workload(name)
        for one in hosted_prices([name]):
            assert one.source.startswith("https://")
            assert one.as_of.startswith("20")
            assert 0 < one.input_usd_per_million <= one.output_usd_per_million < 20


def test_every_street_price_is_of_a_board_with_source_and_date():
    with (prices_folder() / "street.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    for row in rows:
        assert catalog.device(row["device"]).name == row["device"]
        assert row["as_of"]
        assert len(row["source"]) > 10
    assert street_price("zcu104") is None


# ---- by hand


def test_tokens_by_hand():
    """A million in and half a million out: 2 and 5 USD; a half of the input cached saves 0.75."""
    assert PRICE.cost_usd(1e6, 5e5) == pytest.approx(7.0)
    assert PRICE.cost_usd(1e6, 5e5, cached=0.5) == pytest.approx(6.25)
    assert replace(PRICE, cached_usd_per_million=None).cost_usd(1e6, 0, 1.0) == pytest.approx(2.0)


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0, 1), st.floats(0, 1))
def test_more_cached_never_costs_more(prompt, output, one, other):
    low, high = sorted((one, other))
    assert PRICE.cost_usd(prompt, output, high) <= PRICE.cost_usd(prompt, output, low) * (1 + 1e-9)


@pytest.mark.parametrize("cached", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(cached):
    with pytest.raises(InvalidValueError, match="cached_fraction"):
        PRICE.cost_usd(1.0, 1.0, cached)


def test_a_price_below_zero_is_refused():
    with pytest.raises(InvalidValueError, match="output_usd_per_million"):
        replace(PRICE, output_usd_per_million=-1.0)


def test_rent_replaces_price_and_electricity():
    bought = DeploymentOption("gpu", 0.0, 2000.0, 1000.0, 70.0)
    chip = DeploymentOption("chip", 1e6, 100.0, 1000.0, 0.0)
    (point,) = breakeven(rented(bought, 0.5), [chip], life_years=2.0)
    rent = 0.5 * 2 * HOURS_PER_YEAR
    assert point.reference_usd_per_demand == pytest.approx(rent)
    assert point.volume == pytest.approx(1e6 / (rent - 100.0))


def test_a_board_costs_what_is_given_then_the_street_then_its_launch():
    h100, rtx = catalog.device("h100-sxm-80gb"), catalog.device("rtx-4090")
    assert board_price(h100, 1.0)[0] == 1.0
    assert board_price(h100)[0] == street_price("h100-sxm-80gb").usd
    assert board_price(rtx)[0] == rtx.launch_price_usd.value
    assert board_price(catalog.device("tpu-v4"))[0] is None


# ---- the table


@pytest.fixture(scope="module")
def table():
    return ways_to_serve("llama-3.1-8b", "h100-sxm-80gb", LOAD, OPTIONS)


def test_all_four_ways_are_in_one_table_cheapest_first(table):
    ways, served, lacks = table
    assert {way.way for way in ways} == {"rent", "buy", "colocate", "call"}
    assert lacks == ()
    assert [way.usd_per_month for way in ways] == sorted(way.usd_per_month for way in ways)
    assert all(way.as_of and way.source for way in ways)
    rented_whole = next(way for way in ways if way.way == "rent" and "on demand" in way.of)
    assert rented_whole.usd_per_month >= 0.99 * served.cost_usd_per_month
    count, offer = rented_whole.of.partition(",")[0].split(" x ")
    quote = PriceBook.load().find(offer)
    assert int(count) * quote.offer.device_count >= served.devices
    month = int(count) * quote.instance_usd_per_hour * HOURS_PER_YEAR / 12
    assert rented_whole.usd_per_month == pytest.approx(month)


def test_a_call_by_hand(table):
    seconds = HOURS_PER_YEAR / 12 * 3600
    (price,) = [one for one in hosted_prices(["llama-3.1-8b"]) if one.provider == "aws"]
    (way,) = [way for way in table[0] if way.of.startswith("aws")]
    tokens = 4.0 * seconds
    assert way.usd_per_month == pytest.approx(price.cost_usd(500 * tokens, 100 * tokens))
    assert way.usd_per_million_tokens == pytest.approx(1e6 * way.usd_per_month / (100 * tokens))


def test_a_colocated_rack_costs_its_room_more(table):
    buy, colocate = (
        next(way for way in table[0] if way.way == name).usd_per_month
        for name in ("buy", "colocate")
    )
    power_kw = table[1].average_power_w * 1.4 / 1e3
    assert colocate - buy == pytest.approx(184.06 * power_kw)


def test_what_has_no_price_is_named():
    terms = Terms(board_usd=None)
    _, _, lacks = ways_to_serve("qwen3-4b", "l4", LOAD, OPTIONS, terms=terms)
    assert any("hosted price" in text for text in lacks)
    assert any("board of l4" in text for text in lacks)


# ---- the command


def test_the_volume_of_a_profile_of_ones_own(tmp_path):
    from typer.testing import CliRunner

    from accelsim.cli.app import command_tree

    path = tmp_path / "mine.yaml"
    shipped = (prices_folder().parents[1] / "device_profiles/asic/tpu-v4i.yaml").read_text("utf-8")
    path.write_text(shipped.replace("name: tpu-v4i", "name: my-chip", 1), encoding="utf-8")
    words = ["breakeven", "resnet-50", "--asic", str(path), "--asic-usd", "300", "--quiet"]
    ran = CliRunner().invoke(command_tree(), [*words, "--asic-nre-usd", "1e6", "--reference", "t4"])
    assert ran.exit_code == 0, ran.output
    assert "my-chip" in ran.output
