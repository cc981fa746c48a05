"""Rows of a public price feed, one at a time: clean what is unambiguous, refuse the rest, and say
which.

Public feeds carry known defects: a key with a trailing blank, an empty price, 0.00 for unknown,
700.0 as the price of a TPU nobody sells, spot above on-demand, a spot price that is a tenth of
on-demand to the last digit, a misspelt region. Each has one check here; checks that need other rows
are in `accelsim.economics.feeds.ingest`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from sys import intern

from accelsim.frozen import frozen

#: Column names of public feeds -> ours.
FIELD_ALIASES: Mapping[str, str] = {
    "instance_type": "instance",
    "vcpus": "vcpu_count",
    "memory_gib": "host_memory_gib",
    "accelerator_name": "accelerator",
    "accelerator_count": "device_count",
    "price_usd_per_h": "on_demand_usd_per_hour",
    "spot_price_usd_per_h": "spot_usd_per_hour",
}
PRICE_FIELDS = (
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "committed_1y_usd_per_hour",
    "committed_3y_usd_per_hour",
)
_COUNT_FIELDS = (
    *("device_count", "vcpu_count", "host_memory_gib"),
    *("disk_gb", "minimum_billing_s"),
)
_TPU_SENTINEL_USD = 700.0
_COMMITTED = re.compile(r"1y=([0-9.]+) 3y=([0-9.]+) USD/h \(month/730\)")
_AZURE_SIZE = re.compile(r"Standard_[A-Z]+(\d+)[a-z]*_v\d+")
_HOST_APART = "billed separately"


class RefusedRowError(Exception):
    """A row that cannot become an offer; caught by `accelsim.economics.feeds.ingest.ingest`."""


@frozen
class Finding:
    """A row that was refused, or one field of it that was corrected.

    Attributes:
        action: ``refused`` or ``corrected``.
        provider: Provider of the row.
        region: Region as the feed spells it.
        instance: Instance type as the feed spells it.
        field: Field concerned; empty for the whole row.
        value: The feed's value.
        reason: What is wrong with it, and what was done.
        source: The feed.
        as_of: Date of the feed.
    """

    action: str
    provider: str
    region: str
    instance: str
    field: str
    value: str
    reason: str
    source: str
    as_of: str


@dataclass(slots=True)
class FeedRow:
    """A row being cleaned: its texts, its numbers (None is unknown), and what was corrected."""

    text: dict[str, str]
    number: dict[str, float | None] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def note(self, action: str, name: str, value: object, reason: str) -> Finding:
        """Record a finding about one field (or, with an empty name, about the row)."""
        text = self.text
        finding = Finding(
            action,
            text.get("provider", ""),
            text.get("region", ""),
            text.get("instance", ""),
            name,
            str(value),
            reason,
            text.get("source", ""),
            text.get("as_of", ""),
        )
        self.findings.append(finding)
        return finding

    @property
    def host_apart(self) -> bool:
        """Whether the price is that of an accelerator alone, its host instance billed apart."""
        return _HOST_APART in self.text.get("note", "")


def clean_row(raw: Mapping[str, str | None], known_regions: Collection[str] = ()) -> FeedRow:
    """Apply every check that needs one row alone.

    Args:
        raw: A row as `csv.DictReader` gives it.
        known_regions: Region codes of the row's provider; empty switches the spelling check off.

    Returns:
        The cleaned row with its corrections.

    Raises:
        RefusedRowError: If the row has no usable price, or is malformed.
    """
    row = FeedRow(_stripped_keys(raw))
    for name, value in row.text.items():
        if value != value.strip():
            row.text[name] = value.strip()
            row.note("corrected", name, repr(value), "blanks around the value removed")
    for name in ("provider", "region", "instance", "source"):
        if not row.text.get(name):
            raise RefusedRowError(f"{name} is empty")
    _read_committed(row)
    for name in (*PRICE_FIELDS, *_COUNT_FIELDS):
        row.number[name] = _number(row, name)
    _name_vcpus(row)
    _drop_unknown_prices(row)
    _drop_impossible_spot(row)
    _spell_region(row, known_regions)
    if all(row.number[name] is None for name in PRICE_FIELDS):
        raise RefusedRowError("no price is known")
    numbers = row.number.keys() - {"on_demand_usd_per_hour"}
    row.text = {name: value for name, value in row.text.items() if value and name not in numbers}
    return row


def _stripped_keys(raw: Mapping[str, str | None]) -> dict[str, str]:
    text: dict[str, str] = {}
    for key, value in raw.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, str)):
            raise RefusedRowError("has more fields than the header")
        name = FIELD_ALIASES.get(key.strip(), key.strip())
        if name in text:
            raise RefusedRowError(f"column {name} occurs twice")
        text[name] = intern(value or "")  # a feed says the same things many times
    return text


def _read_committed(row: FeedRow) -> None:
    """Feeds that have no column for committed prices put them into the note."""
    note = row.text.get("note", "")
    if match := _COMMITTED.search(note):
        row.text["committed_1y_usd_per_hour"] = match[1]
        row.text["committed_3y_usd_per_hour"] = match[2]
        row.text["note"] = note.replace(match[0], "").strip("; ")


def _number(row: FeedRow, name: str) -> float | None:
    text = row.text.get(name, "")
    if not text:
        return None
    try:
        value = float(text.replace("_", "?"))
    except ValueError:
        raise RefusedRowError(f"{name} = {text[:40]!r} is not a number") from None
    if not math.isfinite(value) or value < 0:
        raise RefusedRowError(f"{name} = {text[:40]} is not a finite number >= 0")
    return _exact_fraction(value) if name == "device_count" and 0 < value < 1 else value


def _exact_fraction(count: float) -> float:
    """0.167 and 0.333 of a device are a sixth and a third, rounded by the feed.

    Estimate: feeds round to three digits.
    """
    exact = 1 / round(1 / count)
    return exact if abs(exact - count) < 5e-4 else count


def _name_vcpus(row: FeedRow) -> None:
    """Azure size names carry the vCPU count (Microsoft Learn, "Azure VM sizes naming
    conventions").
    """
    size = _AZURE_SIZE.fullmatch(row.text["instance"])
    if size and row.text["provider"] == "azure" and row.number["vcpu_count"] is None:
        row.number["vcpu_count"] = float(size[1])
        reason = f"empty; {size[1]} by the provider's naming convention"
        row.note("corrected", "vcpu_count", "", reason)


def _drop_unknown_prices(row: FeedRow) -> None:
    for name in PRICE_FIELDS:
        value = row.number[name]
        if value == 0:
            row.number[name] = None
            row.note("corrected", name, row.text[name], "0.00 means unknown in feeds; left unknown")
    is_tpu = "tpu" in (row.text.get("accelerator", "") + row.text["instance"]).lower()
    if is_tpu and row.number["on_demand_usd_per_hour"] == _TPU_SENTINEL_USD:
        raise RefusedRowError("700.0 is a placeholder for TPUs without a price")


def _drop_impossible_spot(row: FeedRow) -> None:
    spot = row.number["spot_usd_per_hour"]
    on_demand = row.number["on_demand_usd_per_hour"]
    if spot is None or on_demand is None:
        return
    reason = ""
    if spot > on_demand:
        reason = f"spot above on-demand ({on_demand:g}); left unknown"
    elif math.isclose(spot, on_demand / 10, rel_tol=1e-3):
        reason = (
            f"spot is exactly a tenth of on-demand ({on_demand:g}), a placeholder; left unknown"
        )
    if reason:
        row.number["spot_usd_per_hour"] = None
        row.note("corrected", "spot_usd_per_hour", row.text["spot_usd_per_hour"], reason)


def _spell_region(row: FeedRow, known_regions: Collection[str]) -> None:
    region = row.text["region"]
    slug = re.sub(r"[^a-z0-9-]+", "-", region.lower()).strip("-")
    if not slug:
        raise RefusedRowError(f"region {region!r} has no letter and no digit")
    if known_regions and slug not in known_regions:
        # Another number is another region, not a misspelling.
        same_number = [name for name in known_regions if _digits(name) == _digits(slug)]
        near = difflib.get_close_matches(slug, same_number, n=2, cutoff=0.85)
        if not near:
            raise RefusedRowError(f"region {region!r} is not one of {row.text['provider']}'s")
        if len(near) > 1 and _similarity(slug, near[0]) - _similarity(slug, near[1]) < 0.02:
            raise RefusedRowError(f"region {region!r} is misspelt: {near[0]} or {near[1]}?")
        row.note("corrected", "region", region, f"misspelt region; read as {near[0]}")
        slug = near[0]
    row.text["region"] = slug


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _similarity(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
