"""Feeds as files: SkyPilot's catalogue and tables; ages of prices."""

import tracemalloc
from datetime import date
from pathlib import Path

import pytest

from accelsim.economics.dates import age_days, is_mixed
from accelsim.economics.feeds.price_lists import offers_csv
from accelsim.economics.feeds.sources import import_offers
from accelsim.economics.price import PriceBook
from accelsim.errors import ProfileError

VMS = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,SpotPrice
g4dn.xlarge,T4,1.0,4.0,16.0,0.526,us-east-1,0.2
g4dn.xlarge,T4,1.0,4.0,16.0,0.526,us-east-1,0.15
p3.2xlarge,V100,1.0,8.0,61.0,3.06,us-east-1,3.5
p3.8xlarge,V100,4.0,32.0,244.0,,us-east-1,
"""


def test_a_catalogue_becomes_offers_and_names_what_it_refuses(tmp_path):
    folder = tmp_path / "catalogs" / "aws"
    folder.mkdir(parents=True)
    (folder / "vms.csv").write_text(VMS, encoding="utf-8")
    found = import_offers(f"skypilot:{tmp_path}", "2026-05-01")
    offers = {offer.instance: offer for offer in found.offers}
    assert offers["g4dn.xlarge"].spot_usd_per_hour == 0.15
    assert offers["g4dn.xlarge"].device == "t4"
    assert offers["g4dn.xlarge"].as_of == "2026-05-01"
    assert offers["p3.2xlarge"].spot_usd_per_hour is None  # spot above on-demand
    assert [finding.instance for finding in found.refusals] == ["p3.8xlarge"]
    path = tmp_path / "mine.csv"
    path.write_text(offers_csv(found.offers), encoding="utf-8")
    assert len(PriceBook.load(path)) == 2


def test_the_whole_public_catalogue_is_taken_or_refused_by_name():
    table = Path(__file__).resolve().parents[3] / "shared/reference/economics/price_catalogue.csv"
    if not table.is_file():
        pytest.skip("the catalogue is not beside the project")
    found = import_offers(str(table))
    rows = len(table.read_text(encoding="utf-8").splitlines()) - 1
    assert rows == 868
    assert len(found.offers) + len(found.refusals) >= rows  # hosts of accelerators are joined
    assert all(finding.reason for finding in (*found.refusals, *found.corrections))


def test_what_cannot_be_read_is_refused(tmp_path):
    for source in (f"skypilot:{tmp_path}", str(tmp_path / "none.csv")):
        with pytest.raises(ProfileError):
            import_offers(source)


def test_prices_have_an_age():
    today = date(2026, 7, 1)
    assert age_days("2026-06-01", today) == 30
    assert age_days("2025/2026", today) == 546
    assert age_days("", today) is None
    assert is_mixed(["2023-11-16", "2026-07-20"])
    assert not is_mixed(["2026-06-01", "2026-07-20", ""])


def test_a_large_feed_takes_little_memory(tmp_path):
    columns = "provider,region,instance_type,vcpus,memory_gib,price_usd_per_h,source,as_of"
    lines = [f"own,here,m{n},{n % 64 + 1},16,,a feed,2026-01-01" for n in range(600)]
    lines += [f"own,here,n{n},8,16,1,a feed,2026-01-01" for n in range(3400)]
    feed = tmp_path / "feed.csv"
    feed.write_text("\n".join([columns, *lines]), encoding="utf-8")
    one = tmp_path / "one.csv"
    one.write_text("\n".join([columns, lines[0], lines[-1]]), encoding="utf-8")
    import_offers(str(one))  # what is read once
    tracemalloc.start()
    found = import_offers(str(feed))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(found.offers), len(found.refusals)) == (3400, 600)
    assert peak < 1500 * 4000  # 300,000 rows: 0.45 GB
