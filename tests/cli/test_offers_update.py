"""``accelsim offers import`` and ``update``: price files of one's own, newer public prices."""

from __future__ import annotations

import pytest

from accelsim.economics import PriceBook
from accelsim.economics.feeds.sources import import_offers
from accelsim.files.prices import updates_folder

HEAD = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,SpotPrice\n"
AWS = (
    "g4dn.xlarge,T4,1.0,4.0,16.0,0.40,us-east-1,0.1\n"
    "p5.48xlarge,H100,8.0,192.0,2048.0,40.0,us-east-1,\n"
    "p4d.24xlarge,A100,8.0,96.0,1152.0,0.0,us-east-1,\n"
    "c7i.large,,,2.0,4.0,0.09,us-east-1,\n"
)
LAMBDA = "gpu_8x_h100_sxm5,H100,8.0,208.0,1800.0,8.0,us-east-1,\n"
VAST = "1x-T4-8-16,T4,1.0,8.0,16.0,0.01,us-east-1,\n"


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for cloud, rows in (("aws", AWS), ("lambda", LAMBDA), ("vast", VAST)):
        folder = tmp_path / "v8" / cloud
        folder.mkdir(parents=True)
        (folder / "vms.csv").write_text(HEAD + rows, encoding="utf-8")
    return tmp_path / "v8"


def test_a_newer_catalogue_replaces_and_adds_prices(run, catalogue):
    shipped = PriceBook.load()
    done = run("offers", "update", "--from", str(catalogue), "--as-of", "2026-11-20")
    assert done.code == 0
    assert "delete it to go back" in done.err
    book = PriceBook.load()
    assert len(book) > len(shipped)
    assert book.find("aws/us-east-1/p5.48xlarge").instance_usd_per_hour == 40.0
    assert book.cheapest("h100-sxm-80gb").offer.as_of == "2026-11-20"
    assert book.cheapest("t4").offer.provider == "aws"  # not of the marketplace
    assert not any(map(book.is_own, book))


def test_the_cheapest_is_never_dearer_than_the_catalogue_it_was_updated_from(run, catalogue):
    assert run("offers", "update", "--from", str(catalogue), "--as-of", "2026-11-20").code == 0
    book = PriceBook.load()
    for offer in import_offers(str(catalogue), "2026-11-20").offers:
        if offer.device is None or offer.is_cpu:
            continue
        quote = book.cheapest(offer.device, provider=offer.provider)
        assert quote.usd_per_hour() <= offer.usd_per_unit_hour()


def test_one_table_of_a_catalogue_is_enough(run, catalogue):
    table = catalogue / "lambda" / "vms.csv"
    assert run("offers", "update", "--from", str(table), "--as-of", "2026-11-20").code == 0
    assert PriceBook.load().cheapest("h100-sxm-80gb").offer.provider == "lambda"


def test_a_catalogue_without_a_date_is_refused(refused, catalogue):
    said = refused("offers", "update", "--from", str(catalogue))
    assert "as_of is missing" in said
    assert "--as-of DATE" in said
    assert not updates_folder().exists()


def test_a_catalogue_without_accelerators_is_refused_by_its_name(refused, catalogue):
    table = catalogue / "aws" / "vms.csv"
    table.write_text(f"{HEAD}x9.large,,,2.0,4.0,0.09,us-east-1,\n", encoding="utf-8")
    said = refused("offers", "update", "--from", str(table), "--as-of", "2026-11-20")
    assert f"from = '{str(table)[:20]}" in said  # a long path is cut
    assert not updates_folder().exists()


@pytest.mark.parametrize("source", ["none", "none.csv"])
def test_a_catalogue_that_is_not_there_is_refused(refused, catalogue, source):
    refused("offers", "update", "--from", str(catalogue / source), "--as-of", "2026-11-20")


def test_a_file_that_an_import_writes_is_a_price_file(run, catalogue, tmp_path, monkeypatch):
    path, log = tmp_path / "mine.csv", tmp_path / "refused.csv"
    done = run(
        *("offers", "import", str(catalogue), "--as-of", "2026-11-20"),
        *("--out", str(path), "--refused", str(log)),
    )
    assert done.code == 0
    assert len(PriceBook.load(path)) == 5
    assert "p4d.24xlarge" in log.read_text(encoding="utf-8")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(path))
    assert PriceBook.load().is_own(PriceBook.load().find("aws/us-east-1/p5.48xlarge").offer)


def test_a_price_that_names_no_count_is_refused_by_name(refused, tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    path.write_text("provider,device,vcpu_count,on_demand_usd_per_hour\nlab,t4,8,1\n")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(path))
    said = refused("estimate", "lenet-5", "-d", "t4")
    assert "line 2" in said
    assert "device_count" in said


@pytest.mark.parametrize("name", ["h100", "H100", "h100-sxm-80gb"])
def test_a_price_may_name_its_device_by_an_alias(run, tmp_path, monkeypatch, name):
    path = tmp_path / "mine.csv"
    path.write_text(f"provider,device,on_demand_usd_per_hour\nlab,{name},1.25\n")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(path))
    found = run("estimate", "lenet-5", "-d", "h100-sxm-80gb", "--format", "json").json
    assert found["usd_per_hour"] == 1.25


def test_a_price_of_no_device_is_a_problem(run, tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    path.write_text("device,on_demand_usd_per_hour\nh1000,1\n")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(path))
    problems = run("doctor", "--format", "json").json["problems"]
    assert any("h1000" in text for text in problems)
