"""A dated cloud price: what one instance costs per hour, and what share of it one device or vCPU
is.

An `Offer` is one row of a price list, with its source and date. A `Quote` is an offer at one of its
price kinds. Clouds sell instances, not devices: the price of a device is taken as the instance's
price divided by its devices, and that of a vCPU as the price divided by its vCPUs, so that host
memory and host CPUs of an accelerator instance are part of the device's price. An unknown price is
None, never 0.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import Literal, get_args

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen

PriceKind = Literal["on_demand", "spot", "committed_1y", "committed_3y"]
#: Price kinds in the order they are shown.
PRICE_KINDS: tuple[PriceKind, ...] = get_args(PriceKind)
#: Largest price accepted for one instance; a pod of 6,144 TPU chips costs 26,000 USD per hour.
LARGEST_USD_PER_HOUR = 1e6
#: In the name of an instance whose accelerators are billed beside their host.
_ATTACHED = "+"
#: Names that make an id: no blank at either end, no sign that a spreadsheet takes for a formula.
_NAME = re.compile(r"(?![=+@-])(?!\s)[^/:]+(?<!\s)")
_PRICES = tuple(f"{kind}_usd_per_hour" for kind in PRICE_KINDS)
_COUNTS = (
    *("device_count", "vcpu_count", "vcpus_per_core", "memory_bytes"),
    *("disk_gb", "minimum_billing_s"),
)
_OWN_PRICE = "Leave an unknown price empty."
_OWN_COUNT = "Leave an unknown one empty."


def price_kind(name: str) -> PriceKind:
    """Price kind of a name, with hyphens or underscores in any case.

    Raises:
        InvalidValueError: If there is no such kind.
    """
    key = name.strip().lower().replace("-", "_")
    for kind in PRICE_KINDS:
        if kind == key:
            return kind
    raise InvalidValueError("price kind", name, "one of " + ", ".join(PRICE_KINDS))


def first_day(as_of: str) -> date | None:
    """First day a date may stand for: of the month, the year or the interval; None where unknown.

    Args:
        as_of: ISO 8601 date, month, year, or interval of them.
    """
    parts = as_of.partition("/")[0].split("-")
    with suppress(ValueError):
        return date.fromisoformat("-".join([*parts, "01", "01"][:3]))
    return None


@frozen(kw_only=True)
class Offer:
    """One instance type of one provider in one region, with its prices.

    Attributes:
        provider: Seller, lower case (``aws``, ``gcp``, ``azure``, ...).
        region: The provider's region code.
        instance: The provider's name of the instance type.
        device: Catalogue name of the device (for a CPU instance: of the CPU); None where the price
            list does not say which variant it is.
        device_reason: Why there is no device though there is an accelerator.
        accelerator: The price list's own name of the accelerator; empty for a CPU instance.
        device_count: Accelerators in the instance, may be a fraction of one; None for a CPU
            instance.
        vcpu_count: vCPUs of the instance; None if unknown.
        vcpus_per_core: 1 where a vCPU is a core, 2 where it is a hardware thread; None if unknown.
        memory_bytes: Host memory; None if unknown.
        on_demand_usd_per_hour: Price without commitment; None if unknown.
        spot_usd_per_hour: Price of interruptible capacity; None if unknown.
        committed_1y_usd_per_hour: Price with a one-year commitment; None if unknown.
        committed_3y_usd_per_hour: Price with a three-year commitment; None if unknown.
        source: Where the price was read.
        as_of: ISO 8601 date, month, year or interval of the on-demand price.
        spot_as_of: The same for the spot price.
        note: What a reader should know.
        disk_gb: Disk in the price, 10⁹ bytes; None if unknown.
        minimum_billing_s: Least time billed; None if unknown.

    Raises:
        InvalidValueError: If a price or count is not a finite number > 0, or spot exceeds
            on-demand.
    """

    provider: str
    region: str
    instance: str
    source: str
    device: str | None = None
    accelerator: str = ""
    device_count: float | None = None
    vcpu_count: float | None = None
    vcpus_per_core: int | None = None
    memory_bytes: float | None = None
    on_demand_usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None
    committed_1y_usd_per_hour: float | None = None
    committed_3y_usd_per_hour: float | None = None
    as_of: str = ""
    spot_as_of: str = ""
    note: str = ""
    disk_gb: float | None = None
    minimum_billing_s: float | None = None
    device_reason: str = ""

    def __post_init__(self) -> None:
        self._check_prices()
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and not 0 < count < math.inf:
                raise InvalidValueError(name, count, "a finite number > 0", _OWN_COUNT)
        for name in ("provider", "region", "instance"):
            text = getattr(self, name)
            if not _NAME.fullmatch(text) or not text.isprintable():
                allowed = "text without '/' or ':', no blanks or sign of a formula before it"
                raise InvalidValueError(name, text, allowed)
        if not self.source.strip():
            allowed = "where the price was read"
            raise InvalidValueError("source", self.source, allowed, "Name a page or a file.")

    def _check_prices(self) -> None:
        spot, on_demand = self.spot_usd_per_hour, self.on_demand_usd_per_hour
        for name in _PRICES:
            price = getattr(self, name)
            if price is not None and not 0 < price <= LARGEST_USD_PER_HOUR:
                allowed = f"more than 0 and at most {LARGEST_USD_PER_HOUR:,.0f} USD per hour"
                raise InvalidValueError(name, price, allowed, _OWN_PRICE)
        if spot is not None and on_demand is not None and spot > on_demand:
            allowed = f"at most the on-demand price, {on_demand:g}"
            raise InvalidValueError("spot_usd_per_hour", spot, allowed, _OWN_PRICE)

    @property
    def offer_id(self) -> str:
        """``provider/region/instance``, unique in a price book."""
        return f"{self.provider}/{self.region}/{self.instance}"

    @property
    def is_cpu(self) -> bool:
        """Whether the instance has no accelerator, so that its unit is the vCPU."""
        return self.device_count is None

    @property
    def host(self) -> str | None:
        """Whether the host was priced with its accelerators (included) or beside them (attached);
        None of a CPU instance.
        """
        if self.is_cpu:
            return None
        return "attached" if _ATTACHED in self.instance else "included"

    @property
    def unit_count(self) -> float | None:
        """Accelerators, or vCPUs of a CPU instance; None if unknown."""
        return self.vcpu_count if self.device_count is None else self.device_count

    def dated(self, kind: PriceKind = "on_demand") -> str:
        """Date of the price of a kind; empty if unknown."""
        return self.spot_as_of if kind == "spot" else self.as_of

    def discounted(self, fraction: float) -> Offer:
        """The offer with a share of every price taken off.

        Args:
            fraction: The share, 0 to less than 1.
        """
        prices = {name: price for name in _PRICES if (price := getattr(self, name)) is not None}
        return replace(self, **{name: price * (1 - fraction) for name, price in prices.items()})

    def usd_per_hour(self, kind: PriceKind = "on_demand") -> float | None:
        """Price of the whole instance, USD per hour; None if unknown."""
        price: float | None = getattr(self, f"{kind}_usd_per_hour")
        return price

    def usd_per_unit_hour(self, kind: PriceKind = "on_demand") -> float | None:
        """Price of one accelerator, or of one vCPU of a CPU instance, USD per hour; None if
        unknown.
        """
        price = self.usd_per_hour(kind)
        count = self.unit_count
        return None if price is None or count is None else price / count


@frozen
class Quote:
    """An offer at one price kind whose price is known.

    Attributes:
        offer: The offer.
        kind: Which of its prices.

    Raises:
        InvalidValueError: If the offer has no price of that kind.
    """

    offer: Offer
    kind: PriceKind = "on_demand"

    def __post_init__(self) -> None:
        if self.offer.usd_per_hour(self.kind) is None:
            priced = [kind for kind in PRICE_KINDS if self.offer.usd_per_hour(kind) is not None]
            allowed = f"a price kind known for {self.offer.offer_id}: {', '.join(priced) or 'none'}"
            raise InvalidValueError("price kind", self.kind, allowed)

    @property
    def quote_id(self) -> str:
        """The offer's id; with ``:kind`` unless on-demand."""
        return self.offer.offer_id + ("" if self.kind == "on_demand" else f":{self.kind}")

    @property
    def instance_usd_per_hour(self) -> float:
        """Price of the whole instance, USD per hour."""
        price = self.offer.usd_per_hour(self.kind)
        return math.nan if price is None else price

    def usd_per_hour(
        self, device_count: float = 1, *, core_count: float | None = None
    ) -> float | None:
        """Price of a share of the instance (or of several instances), USD per hour.

        Estimate: each unit of an instance costs the same, host and memory included.

        Args:
            device_count: Accelerators used, > 0.
            core_count: Physical cores used of a CPU instance, > 0; None means ``device_count``
                whole instances, as a CPU instance does not say how much of a socket it is.

        Returns:
            Instance price × units used / units in the instance; None if the share is unknown.

        Raises:
            InvalidValueError: If a count is not > 0.
        """
        for field, count in (("device_count", device_count), ("core_count", core_count)):
            if count is not None and not (count > 0 and math.isfinite(count)):
                raise InvalidValueError(field, count, "a finite number > 0")
        offer = self.offer
        if offer.device_count is not None:
            return self.instance_usd_per_hour * device_count / offer.device_count
        if core_count is None:
            return self.instance_usd_per_hour * device_count
        if offer.vcpu_count is None or offer.vcpus_per_core is None:
            return None
        return self.instance_usd_per_hour * core_count * offer.vcpus_per_core / offer.vcpu_count
