"""Price feeds as rows: a CSV file, or SkyPilot's catalogue (``catalogs/v8``, one folder per cloud
with a ``vms.csv``; https://github.com/skypilot-org/skypilot-catalog), whole or one table of it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from accelsim.economics.feeds.ingest import Ingested, ingest
from accelsim.economics.feeds.price_lists import read_regions, read_rules
from accelsim.errors import ProfileError
from accelsim.files.plainfile import text_lines
from accelsim.files.prices import prices_folder

_SKYPILOT = "skypilot:"
#: A cloud's table in SkyPilot's catalogue, in a folder of the cloud's name.
_TABLE = "vms.csv"
#: Most bytes and cells of a feed.
_MOST_BYTES, _MOST_CELLS = 128_000_000, 4_000_000
#: Columns of SkyPilot's catalogue -> a feed's.
_COLUMNS = {
    "InstanceType": "instance_type",
    "vCPUs": "vcpus",
    "MemoryGiB": "memory_gib",
    "AcceleratorName": "accelerator_name",
    "AcceleratorCount": "accelerator_count",
    "Price": "price_usd_per_h",
    "SpotPrice": "spot_price_usd_per_h",
    "Region": "region",
}


def import_offers(source: str, as_of: str = "") -> Ingested:
    """Read a feed, clean it, and refuse what is wrong.

    Args:
        source: A CSV file with a feed's columns, or a folder or table of SkyPilot's catalogue, also
            as ``skypilot:FOLDER``.
        as_of: Date of rows that have none.

    Raises:
        ProfileError: If it cannot be read, or has no row.
    """
    folder = prices_folder()
    path = Path(source.removeprefix(_SKYPILOT))
    is_catalogue = source.startswith(_SKYPILOT) or path.is_dir() or path.name == _TABLE
    rows = _skypilot(path) if is_catalogue else _rows(path)
    dated = ({**row, "as_of": row.get("as_of") or as_of} for row in rows)
    rules = read_rules(folder / "device_rules.csv")
    ingested = ingest(dated, rules, read_regions(folder / "regions.csv"))
    if not ingested.offers and not ingested.refusals:
        raise ProfileError(source, ["no price in it"])
    return ingested


def _rows(path: Path) -> Iterator[Mapping[str, str | None]]:
    reader = csv.DictReader(text_lines(path, _MOST_BYTES), strict=True)
    try:
        width = len(reader.fieldnames or ())
        for number, row in enumerate(reader, 1):
            if number * width > _MOST_CELLS:
                raise ProfileError(str(path), [f"more than {_MOST_CELLS:,} cells"])
            yield row
    except csv.Error as error:
        raise ProfileError(str(path), [f"cannot be read: {error}"]) from None


def _skypilot(source: Path) -> Iterator[Mapping[str, str | None]]:
    """A row for each instance of a region: on-demand of its first zone, spot of its cheapest."""
    for path in sorted(source.glob(f"**/{_TABLE}")) if source.is_dir() else [source.resolve()]:
        instances: dict[tuple[str, str, str], dict[str, str | None]] = {}
        for raw in _rows(path):
            row = {ours: raw.get(theirs) or "" for theirs, ours in _COLUMNS.items()}
            row |= {
                "provider": path.parent.name,
                "source": f"skypilot-catalog:{path.parent.name}/{path.name}",
            }
            key = (row["region"], row["instance_type"], row["accelerator_name"])
            instance = instances.setdefault(key, {**row, "note": "spot = cheapest zone"})
            spots = (instance["spot_price_usd_per_h"], row["spot_price_usd_per_h"])
            instance["spot_price_usd_per_h"] = _cheaper(*spots)
        yield from instances.values()


def _cheaper(spot: str | None, other_spot: str) -> str:
    prices = [text for text in (spot, other_spot) if text]
    try:
        return min(prices, key=float, default="")
    except ValueError:
        return prices[0]
