"""Price lists as text: offers written, device rules and region codes read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from accelsim.economics.feeds.ingest import DeviceRule
from accelsim.economics.offer import Offer
from accelsim.economics.price_file import COLUMNS
from accelsim.errors import ProfileError
from accelsim.files.csvfile import csv_rows
from accelsim.files.formats import csv_text

_GIB = 1024.0**3


def read_rules(path: Path) -> tuple[DeviceRule, ...]:
    """Read device rules, a CSV with the fields of `DeviceRule`.

    Raises:
        ProfileError: If the file cannot be read or a row is wrong.
    """
    rules = []
    for line, row in csv_rows(Path(path)):
        per_core = row.get("vcpus_per_core", "")
        if not row.get("provider") or not row.get("instance") or per_core not in ("", "1", "2"):
            problem = (
                "a rule has provider, instance, accelerator, device and vcpus_per_core of "
                "1, 2 or empty"
            )
            raise ProfileError(str(path), [f"{line}: {problem}"])
        rule = DeviceRule(
            row["provider"],
            row["instance"],
            row.get("accelerator", ""),
            row.get("device") or None,
            int(per_core) if per_core else None,
            row.get("rename") or None,
            row.get("note", ""),
        )
        rules.append(rule)
    return tuple(rules)


def read_regions(path: Path) -> dict[str, tuple[str, ...]]:
    """Read region codes per provider, a CSV with columns provider and region.

    Raises:
        ProfileError: If the file cannot be read.
    """
    regions: dict[str, tuple[str, ...]] = {}
    for _, row in csv_rows(Path(path)):
        provider = row.get("provider", "")
        regions[provider] = (*regions.get(provider, ()), row.get("region", ""))
    return regions


def offers_csv(offers: Iterable[Offer]) -> str:
    """Text of the price file with these offers; `accelsim.economics.price_file.read_offers`
    gives them back.

    Args:
        offers: The offers.

    Returns:
        CSV with a header line.
    """
    return csv_text(price_rows(offers), COLUMNS)


def price_rows(offers: Iterable[Offer]) -> list[dict[str, str]]:
    """Offers as rows of a price file, texts by column."""
    return [{column: _cell(offer, column) for column in COLUMNS} for offer in offers]


def _cell(offer: Offer, column: str) -> str:
    if column == "host_memory_gib":
        value: object = None if offer.memory_bytes is None else offer.memory_bytes / _GIB
    else:
        value = getattr(offer, column)
    if value is None:
        return ""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
