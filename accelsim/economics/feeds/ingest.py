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
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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
_NO_HOST = "accelerator priced without its host instance, and"
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
    refusals: list[Finding] = []
    accepted = _cleaned(rows, regions or {}, refusals)
    _assign_devices(accepted, rules)
    for check in (_check_decimal, _check_licence, _add_hosts, _settle_sources):
        accepted = check(accepted, refusals)
    offers: list[Offer] = []
    corrections: list[Finding] = []
    accepted.reverse()
    while accepted:
        row = accepted.pop()  # a large feed's rows go as its offers come
        try:
            offers.append(_offer(row))
            corrections.extend(row.findings)
        except InvalidValueError as error:
            refusals.append(row.note("refused", error.field, error.value, str(error)))
    ordered = sorted(offers, key=lambda offer: offer.offer_id)
    return Ingested(tuple(ordered), tuple(refusals), tuple(corrections))


def _cleaned(
    rows: Iterable[Mapping[str, str | None]],
    regions: Mapping[str, Sequence[str]],
    refusals: list[Finding],
) -> list[FeedRow]:
    """Rows that pass the checks of each alone."""
    accepted: list[FeedRow] = []
    for raw in rows:
        provider = (raw.get("provider") or "").strip()
        try:
            accepted.append(clean_row(raw, regions.get(provider, ())))
        except RefusedRowError as refusal:
            texts = {key: str(value or "") for key, value in raw.items() if isinstance(key, str)}
            texts.setdefault("instance", texts.get("instance_type", ""))
            price = texts.get(_ON_DEMAND) or texts.get("price_usd_per_h", "")
            refusals.append(FeedRow(texts).note("refused", "", price, str(refusal)))
    return accepted


def _assign_devices(rows: Iterable[FeedRow], rules: Sequence[DeviceRule]) -> None:
    """Give rows without a device that of the first rule that matches."""
    by_provider: dict[str, list[DeviceRule]] = {}
    for row in rows:
        text = row.text
        provider, accelerator = text["provider"], text.get("accelerator", "")
        if provider not in by_provider:
            by_provider[provider] = [r for r in rules if fnmatchcase(provider, r.provider)]
        if text.get("device"):
            continue
        matching = (r for r in by_provider[provider] if r.matches(text["instance"], accelerator))
        if rule := next(matching, None):
            _apply(rule, row)
        elif accelerator:
            text.setdefault("device_reason", f"no rule says which device {accelerator} is")


def _apply(rule: DeviceRule, row: FeedRow) -> None:
    text = row.text
    text["device"] = rule.device or ""
    text["vcpus_per_core"] = str(rule.vcpus_per_core or "")
    if rule.rename is not None:
        reason = f"renamed to {rule.rename}: {rule.note}"
        row.note("corrected", "instance", text["instance"], reason)
        text["instance"] = rule.rename
    elif rule.device is None and text.get("accelerator"):
        text["device_reason"] = rule.note
    elif rule.note:
        text["note"] = "; ".join(filter(None, (text.get("note", ""), rule.note)))


def _refusal(row: FeedRow, reason: str, field: str = _ON_DEMAND) -> Finding:
    return row.note("refused", field, row.number[_ON_DEMAND], reason)


def _check_decimal(rows: list[FeedRow], refusals: list[Finding]) -> list[FeedRow]:
    """Refuse a price ten or more times above or below the median of its peers.

    Peers are the same instance type elsewhere, and all offers of the same accelerator, per
    accelerator.
    """
    refused: set[int] = set()
    for group_of in (_instance_group, _accelerator_group):
        for peers in _groups(rows, group_of):
            for row, reason in _slipped(peers):
                if id(row) not in refused:
                    refusals.append(_refusal(row, reason))
                    refused.add(id(row))
    return [row for row in rows if id(row) not in refused]


def _slipped(peers: list[FeedRow]) -> Iterator[tuple[FeedRow, str]]:
    """Rows far from the median of their peers, and by how much."""
    prices = _unit_prices(peers)
    if len(prices) < _FEWEST_PEERS:
        return
    median = float(np.median([price for _, price in prices]))
    for row, price in prices:
        ratio = max(price / median, median / price)
        if ratio >= _DECIMAL_SLIP:
            side = "above" if price > median else "below"
            reason = (
                f"{ratio:.0f} times {side} the median of {len(prices)} prices of its kind "
                f"({median:.4g} USD per unit-hour): a slipped decimal point, or a price nobody "
                "else confirms"
            )
            yield row, reason


def _check_licence(rows: list[FeedRow], refusals: list[Finding]) -> list[FeedRow]:
    """Refuse CPU instances dearer per vCPU than the cheapest of their own family and region.

    A family's prices are proportional to its vCPUs; a feed that mixes price lists with and without
    an operating system's licence breaks that (Windows: 0.046 USD per vCPU-hour).
    """
    refused: set[int] = set()
    for peers in _groups(rows, _family_group):
        prices = _unit_prices(peers)
        lowest = min((price for _, price in prices), default=math.inf)
        for row, price in prices:
            if price > _LICENCE_RATIO * lowest:
                reason = (
                    f"{price - lowest:.4f} USD per vCPU-hour dearer than its family's lowest: "
                    "an operating system's licence is in the price"
                )
                refusals.append(_refusal(row, reason))
                refused.add(id(row))
    return [row for row in rows if id(row) not in refused]


def _add_hosts(rows: list[FeedRow], refusals: list[Finding]) -> list[FeedRow]:
    """Add the host instance to accelerators priced without one, or refuse them.

    The host is the region's general N1 instance with 4 vCPUs per accelerator, which every
    attachable accelerator admits.
    """
    hosts = {(row.text["region"], row.text["instance"]): row for row in rows}
    accepted: list[FeedRow] = []
    for row in rows:
        if row.host_apart:
            count = row.number["device_count"]
            if not count:
                reason = f"{_NO_HOST} how many there are is not known"
                refusals.append(_refusal(row, reason, "device_count"))
                continue
            host_name = f"n1-standard-{_HOST_VCPUS_PER_DEVICE * count:.0f}"
            host = hosts.get((row.text["region"], host_name))
            if host is None or host.number[_ON_DEMAND] is None:
                refusals.append(_refusal(row, f"{_NO_HOST} no host price is known", ""))
                continue
            _join_host(row, host)
        accepted.append(row)
    return accepted


def _join_host(row: FeedRow, host: FeedRow) -> None:
    for name in PRICE_FIELDS:
        price, host_price = row.number[name], host.number[name]
        row.number[name] = (
            None if price is None or host_price is None else round(price + host_price, 6)
        )
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
    settled: list[FeedRow] = []
    for same in _groups(rows, _identity):
        newest, *older_rows = sorted(same, key=lambda row: _age_key(row, "as_of"), reverse=True)
        for older in older_rows:
            refusals.append(_superseded(older, newest))
            _fill_counts(newest, older)
            _take_spot(newest, older)
        settled.append(newest)
    return settled


def _superseded(older: FeedRow, newest: FeedRow) -> Finding:
    old_price, price = older.number[_ON_DEMAND], newest.number[_ON_DEMAND]
    is_same = old_price and price and math.isclose(old_price, price, rel_tol=1e-3)
    relation = "the same on-demand price" if is_same else "another on-demand price"
    source = newest.text["source"]
    return _refusal(
        older, f"two sources for one instance: {relation} as the newer {source} ({price})"
    )


def _fill_counts(newest: FeedRow, older: FeedRow) -> None:
    for name in ("vcpu_count", "host_memory_gib"):
        if newest.number[name] is None and older.number[name] is not None:
            newest.number[name] = older.number[name]
            newest.note("corrected", name, "", f"unknown here; taken from {older.text['source']}")


def _take_spot(newest: FeedRow, older: FeedRow) -> None:
    """The spot price of an older row, where it is the newer one, or the only one."""
    spot, on_demand = older.number[_SPOT], newest.number[_ON_DEMAND]
    current = newest.number[_SPOT]
    newer = current is None or _age_key(older, "spot_as_of") > _age_key(newest, "spot_as_of")
    if newer and spot is not None and (on_demand is None or spot <= on_demand):
        newest.number[_SPOT] = spot
        newest.text["spot_as_of"] = older.text.get("spot_as_of") or older.text.get("as_of", "")
        reason = f"newer or only spot price, from {older.text['source']}"
        newest.note("corrected", _SPOT, "" if current is None else current, reason)
        newest.text["note"] = f"spot from {older.text['source']}"


def _offer(row: FeedRow) -> Offer:
    text = row.text
    number = row.number
    memory_gib = number["host_memory_gib"]
    spot_as_of = text.get("spot_as_of") or text.get("as_of", "")
    return Offer(
        provider=text["provider"],
        region=text["region"],
        instance=text["instance"],
        device=text.get("device") or None,
        accelerator=text.get("accelerator", ""),
        device_count=number["device_count"] or None,
        vcpu_count=number["vcpu_count"],
        vcpus_per_core=int(text["vcpus_per_core"]) if text.get("vcpus_per_core") else None,
        memory_bytes=None if memory_gib is None else memory_gib * _GIB,
        on_demand_usd_per_hour=number[_ON_DEMAND],
        spot_usd_per_hour=number[_SPOT],
        committed_1y_usd_per_hour=number["committed_1y_usd_per_hour"],
        committed_3y_usd_per_hour=number["committed_3y_usd_per_hour"],
        source=text["source"],
        as_of=_iso(text.get("as_of", "")),
        spot_as_of="" if number[_SPOT] is None else _iso(spot_as_of),
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


def _unit_prices(rows: Iterable[FeedRow]) -> list[tuple[FeedRow, float]]:
    """Rows whose price of an accelerator (or a vCPU) is known, with it."""
    prices = []
    for row in rows:
        price = row.number[_ON_DEMAND]
        units = row.number["device_count"] or row.number["vcpu_count"]
        if price is not None and units:
            prices.append((row, price / units))
    return prices


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
    return [group for name, group in grouped(rows, key).items() if name is not None]
