"""A price feed into offers: the checks that compare rows with each other.

After `accelsim.economics.feeds.rows` has cleaned each row alone, rows are compared: a price ten
times its neighbours' (a slipped decimal point), a CPU instance dearer per vCPU than its own family
(a licence in the price), an accelerator priced without its host instance, and two sources with two
prices for one instance. What cannot be corrected with certainty is refused, and every refusal and
correction is returned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

import numpy as np

from accelsim.economics.feeds.rows import PRICE_FIELDS, FeedRow, Finding, RefusedRowError, clean_row
from accelsim.economics.offer import Offer
from accelsim.errors import InvalidValueError
from accelsim.files.csvfile import csv_rows
from accelsim.files.prices import prices_folder
from accelsim.frozen import frozen
from accelsim.plain import grouped

_DECIMAL_SLIP = 10.0
_LICENCE_RATIO = 1.25
_FEWEST_PEERS = 3
_HOST_VCPUS_PER_DEVICE = 4
_GIB = 1024.0**3
_ON_DEMAND = "on_demand_usd_per_hour"
_SPOT = "spot_usd_per_hour"
#: Catalogue generations whose snapshots carry no date of their own -> the years they were published
#: in.
_UNDATED_SNAPSHOTS = (("skypilot v8", "2025/2026"),)


class Ingested(NamedTuple):
    """Outcome of `ingest`.

    Attributes:
        offers: Accepted offers, sorted by id.
        refusals: One finding per row refused.
        corrections: One finding per field corrected.
    """

    offers: tuple[Offer, ...]
    refusals: tuple[Finding, ...]
    corrections: tuple[Finding, ...]


@frozen
class DeviceRule:
    """Which catalogue device the instances of a provider have.

    Attributes:
        provider: Provider name or pattern.
        instance: Shell pattern of instance names.
        accelerator: The feed's accelerator name, or pattern; empty for CPU instances.
        device: Catalogue name; None where it has none, for the reason that the note gives.
        vcpus_per_core: 1 or 2 for CPU instances; None if unknown.
        rename: Name the instance gets; None keeps it.
        note: Reason or source of the rule.
    """

    provider: str
    instance: str
    accelerator: str
    device: str | None
    vcpus_per_core: int | None = None
    rename: str | None = None
    note: str = ""

    def matches(self, instance: str, accelerator: str) -> bool:
        """Whether the rule speaks about an instance of its provider."""
        return fnmatchcase(instance, self.instance) and fnmatchcase(accelerator, self.accelerator)


def ingest(
    rows: Iterable[Mapping[str, str | None]],
    rules: Sequence[DeviceRule] = (),
    regions: Mapping[str, Sequence[str]] | None = None,
) -> Ingested:
    """Turn rows of price feeds into offers.

    Args:
        rows: Rows with the columns of `Offer` or the feeds' own
            (`accelsim.economics.feeds.rows.FIELD_ALIASES`).
        rules: Device rules, the first that matches counts; rows without one get no device.
        regions: Region codes per provider; providers not listed are not checked.

    Returns:
        Offers, refusals and corrections.
    """
    kept: list[FeedRow] = []
    refusals: list[Finding] = []
    corrections: list[Finding] = []
    for raw in rows:
        provider = (raw.get("provider") or "").strip()
        try:
            kept.append(clean_row(raw, (regions or {}).get(provider, ())))
        except RefusedRowError as refusal:
            texts = {key: str(value or "") for key, value in raw.items() if isinstance(key, str)}
            texts.setdefault("instance", texts.get("instance_type", ""))
            refusals.append(FeedRow(texts).note("refused", "", _price_text(texts), str(refusal)))
    by_provider = {
        name: [rule for rule in rules if fnmatchcase(name, rule.provider)]
        for name in {row.text["provider"] for row in kept}
    }
    for row in kept:
        _assign_device(row, by_provider[row.text["provider"]])
    for check in (_check_decimal, _check_licence, _add_hosts, _settle_sources):
        kept = check(kept, refusals)
    offers: list[Offer] = []
    kept.reverse()
    while kept:
        row = kept.pop()  # a large feed's rows go as its offers come
        try:
            offers.append(_offer(row))
            corrections.extend(row.findings)
        except InvalidValueError as error:
            refusals.append(row.note("refused", error.field, error.value, str(error)))
    ordered = sorted(offers, key=lambda offer: offer.offer_id)
    return Ingested(tuple(ordered), tuple(refusals), tuple(corrections))


def _price_text(texts: Mapping[str, str]) -> str:
    return texts.get(_ON_DEMAND) or texts.get("price_usd_per_h", "")


def _assign_device(row: FeedRow, rules: Sequence[DeviceRule]) -> None:
    text = row.text
    if text.get("device"):
        return
    key = (text["instance"], text.get("accelerator", ""))
    rule = next((rule for rule in rules if rule.matches(*key)), None)
    if rule is None:
        if name := text.get("accelerator"):
            text.setdefault("device_reason", f"no rule says which device {name} is")
        return
    text["device"] = rule.device or ""
    text["vcpus_per_core"] = str(rule.vcpus_per_core or "")
    if rule.rename is not None:
        row.note(
            "corrected", "instance", text["instance"], f"renamed to {rule.rename}: {rule.note}"
        )
        text["instance"] = rule.rename
    elif rule.device is None and text.get("accelerator"):
        text["device_reason"] = rule.note
    elif rule.note:
        text["note"] = "; ".join(filter(None, (text.get("note", ""), rule.note)))


def _check_decimal(rows: list[FeedRow], refusals: list[Finding]) -> list[FeedRow]:
    """Refuse a price ten or more times above or below the median of its peers.

    Peers are the same instance type elsewhere, and all offers of the same accelerator, per
    accelerator.
    """
    refused: set[int] = set()
    for grouping in (_instance_group, _accelerator_group):
        for peers in _groups(rows, grouping):
            refused |= _slipped(peers, refusals, refused)
    return [row for row in rows if id(row) not in refused]


def _slipped(peers: list[FeedRow], refusals: list[Finding], already: set[int]) -> set[int]:
    prices = {id(row): _unit_price(row) for row in peers}
    known = [price for price in prices.values() if price is not None]
    if len(known) < _FEWEST_PEERS:
        return set()
    median = float(np.median(known))
    found: set[int] = set()
    for row in peers:
        price = prices[id(row)]
        if (
            price is None
            or id(row) in already
            or 1 / _DECIMAL_SLIP < price / median < _DECIMAL_SLIP
        ):
            continue
        ratio = price / median if price > median else median / price
        side = "above" if price > median else "below"
        reason = (
            f"{ratio:.0f} times {side} the median of {len(known)} prices of its kind "
            f"({median:.4g} USD per "
            "unit-hour): a slipped decimal point, or a price nobody else confirms"
        )
        refusals.append(row.note("refused", _ON_DEMAND, row.number[_ON_DEMAND], reason))
        found.add(id(row))
    return found


def _check_licence(rows: list[FeedRow], refusals: list[Finding]) -> list[FeedRow]:
    """Refuse CPU instances dearer per vCPU than the cheapest of their own family and region.

    A family's prices are proportional to its vCPUs; a feed that mixes price lists with and without
    an operating system's licence breaks that (Windows: 0.046 USD per vCPU-hour).
    """
    refused: set[int] = set()
    for peers in _groups(rows, _family_group):
        prices = {id(row): _unit_price(row) for row in peers}
        lowest = min((price for price in prices.values() if price is not None), default=math.inf)
        for row in peers:
            price = prices[id(row)]
            if price is not None and price > _LICENCE_RATIO * lowest:
                reason = (
                    f"{price - lowest:.4f} USD per vCPU-hour dearer than its family's lowest: "
                    "an operating system's licence is in the price"
                )
                refusals.append(row.note("refused", _ON_DEMAND, row.number[_ON_DEMAND], reason))
                refused.add(id(row))
    return [row for row in rows if id(row) not in refused]


def _add_hosts(rows: list[FeedRow], refusals: list[Finding]) -> list[FeedRow]:
    """Add the host instance to accelerators priced without one, or refuse them.

    The host is the region's general N1 instance with 4 vCPUs per accelerator, which every
    attachable accelerator admits.
    """
    hosts = {(row.text["region"], row.text["instance"]): row for row in rows}
    kept: list[FeedRow] = []
    for row in rows:
        if row.host_apart:
            count = row.number["device_count"]
            if not count:
                reason = (
                    "accelerator priced without its host instance, and how many there are is "
                    "not known"
                )
                refusals.append(row.note("refused", "device_count", row.number[_ON_DEMAND], reason))
                continue
            host = hosts.get(
                (row.text["region"], f"n1-standard-{_HOST_VCPUS_PER_DEVICE * count:.0f}")
            )
            if host is None or host.number[_ON_DEMAND] is None:
                reason = "accelerator priced without its host instance, and no host price is known"
                refusals.append(row.note("refused", "", row.number[_ON_DEMAND], reason))
                continue
            _join_host(row, host)
        kept.append(row)
    return kept


def _join_host(row: FeedRow, host: FeedRow) -> None:
    for name in PRICE_FIELDS:
        own = row.number[name]
        extra = host.number[name]
        row.number[name] = None if own is None or extra is None else round(own + extra, 6)
    for name in ("vcpu_count", "host_memory_gib"):
        row.number[name] = host.number[name]
    name = host.text["instance"]
    reason = (
        f"priced without its host; price of {name} added ({host.number[_ON_DEMAND]:g} on-demand)"
    )
    row.note("corrected", _ON_DEMAND, row.text[_ON_DEMAND], reason)
    device = row.text["instance"].removeprefix("attach-")
    row.text["instance"] = f"{name}+{device}"
    row.text["source"] += f" + {host.text['source']}"
    row.text["note"] = f"accelerator plus host {name} of {host.text.get('as_of', 'unknown date')}"


def _settle_sources(rows: list[FeedRow], refusals: list[Finding]) -> list[FeedRow]:
    """Keep the newest of several rows for one instance; it takes from the others what it does not
    know.
    """
    kept: list[FeedRow] = []
    for same in _groups(rows, _identity):
        newest, *others = sorted(same, key=lambda row: _age_key(row, "as_of"), reverse=True)
        for other in others:
            refusals.append(_superseded(other, newest))
            _fill_unknown(newest, other)
        kept.append(newest)
    return kept


def _superseded(other: FeedRow, newest: FeedRow) -> Finding:
    price = other.number[_ON_DEMAND]
    kept = newest.number[_ON_DEMAND]
    agree = price is not None and kept is not None and math.isclose(price, kept, rel_tol=1e-3)
    what = "the same on-demand price" if agree else "another on-demand price"
    reason = f"two sources for one instance: {what} as the newer {newest.text['source']} ({kept})"
    return other.note("refused", _ON_DEMAND, price, reason)


def _fill_unknown(newest: FeedRow, other: FeedRow) -> None:
    for name in ("vcpu_count", "host_memory_gib"):
        if newest.number[name] is None and other.number[name] is not None:
            newest.number[name] = other.number[name]
            newest.note("corrected", name, "", f"unknown here; taken from {other.text['source']}")
    spot = other.number[_SPOT]
    on_demand = newest.number[_ON_DEMAND]
    current = newest.number[_SPOT]
    newer = current is None or _age_key(other, "spot_as_of") > _age_key(newest, "spot_as_of")
    if newer and spot is not None and (on_demand is None or spot <= on_demand):
        newest.number[_SPOT] = spot
        newest.text["spot_as_of"] = other.text.get("spot_as_of") or other.text.get("as_of", "")
        reason = f"newer or only spot price, from {other.text['source']}"
        newest.note("corrected", _SPOT, "" if current is None else current, reason)
        newest.text["note"] = f"spot from {other.text['source']}"


def _offer(row: FeedRow) -> Offer:
    text = row.text
    number = row.number
    memory_gib = number["host_memory_gib"]
    devices = number["device_count"]
    spot_as_of = (
        "" if number[_SPOT] is None else _iso(text.get("spot_as_of") or text.get("as_of", ""))
    )
    return Offer(
        provider=text["provider"],
        region=text["region"],
        instance=text["instance"],
        device=text.get("device") or None,
        accelerator=text.get("accelerator", ""),
        device_count=devices or None,
        vcpu_count=number["vcpu_count"],
        vcpus_per_core=int(text["vcpus_per_core"]) if text.get("vcpus_per_core") else None,
        memory_bytes=None if memory_gib is None else memory_gib * _GIB,
        on_demand_usd_per_hour=number[_ON_DEMAND],
        spot_usd_per_hour=number[_SPOT],
        committed_1y_usd_per_hour=number["committed_1y_usd_per_hour"],
        committed_3y_usd_per_hour=number["committed_3y_usd_per_hour"],
        source=text["source"],
        as_of=_iso(text.get("as_of", "")),
        spot_as_of=spot_as_of,
        note=text.get("note", ""),
        disk_gb=number["disk_gb"] or None,
        minimum_billing_s=number["minimum_billing_s"] or _billing().get(text["provider"]),
        device_reason=text.get("device_reason", ""),
    )


@cache
def _billing() -> Mapping[str, float]:
    """Least time billed by provider, with its source in ``billing.csv``."""
    rows = csv_rows(prices_folder() / "billing.csv")
    return {row["provider"]: float(row["minimum_billing_s"]) for _, row in rows}


def _iso(as_of: str) -> str:
    """ISO 8601 date, month, year or interval of what a feed says; empty if it says none."""
    years = re.search(r"(20\d\d)-(\d\d) snapshot", as_of)
    if years:
        return f"{years[1]}/20{years[2]}"
    match = re.search(r"\d{4}-\d{2}-\d{2}|\d{4}/\d{4}|\d{4}-\d{2}|\d{4}", as_of)
    if match:
        return match[0]
    return next((years for prefix, years in _UNDATED_SNAPSHOTS if as_of.startswith(prefix)), "")


def _age_key(row: FeedRow, name: str) -> str:
    return _iso(row.text.get(name) or row.text.get("as_of", "")).split("/")[-1]


def _unit_price(row: FeedRow) -> float | None:
    price = row.number[_ON_DEMAND]
    units = row.number["device_count"] or row.number["vcpu_count"]
    return None if price is None or not units else price / units


def _instance_group(row: FeedRow) -> Hashable | None:
    return row.text["provider"], row.text["instance"]


def _accelerator_group(row: FeedRow) -> Hashable | None:
    return row.text.get("accelerator") if row.number["device_count"] else None


def _family_group(row: FeedRow) -> Hashable | None:
    if row.number["device_count"]:
        return None
    series, dot, _ = row.text["instance"].partition(".")
    aws = dot and row.text["provider"] == "aws"
    family = series if aws else re.sub(r"\d+(?=[a-z]*_v\d|$)", "#", row.text["instance"])
    return row.text["provider"], row.text["region"], family


def _identity(row: FeedRow) -> Hashable | None:
    return row.text["provider"], row.text["region"], row.text["instance"]


def _groups(
    rows: Iterable[FeedRow], key: Callable[[FeedRow], Hashable | None]
) -> list[list[FeedRow]]:
    return [own for name, own in grouped(rows, key).items() if name is not None]
