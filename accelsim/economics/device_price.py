"""Hourly price of one device of a run: the user's own, a named offer's share, or the cheapest
on-demand offer's.

A slice of a device is priced at its share: cores of a CPU, the fraction of a GPU's multiprocessors.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TypedDict

from accelsim.arguments import checked
from accelsim.economics.carbon import site_kgco2e_per_kwh
from accelsim.economics.eligible import rule_of
from accelsim.economics.offer import Quote
from accelsim.economics.price import Eligible, PriceBook, parse_discounts, unused_own
from accelsim.errors import InvalidValueError, OverBudgetError
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, DeviceProfile, GpuProfile
from accelsim.option import option


@checked
@frozen
class PriceChoice:
    """Which price a device is paid at.

    Attributes:
        offer: Offer to use, ``provider/region/instance[:kind]``; the cheapest that matches the
            other fields where None.
    """

    offer: str | None = None
    usd_per_hour: float | None = option("Your own price of the device, instead of an offer's.")
    provider: str | None = option("Only offers of this provider.", metavar="NAME")
    region: str | None = option(
        "Only offers of this region, or of a pattern: eu-*.", metavar="NAME"
    )
    kind: str | None = option(
        "Price kind: on-demand, spot, committed-1y, committed-3y. Default: on-demand.",
        metavar="KIND",
    )
    discounts: str | None = option(
        "Discounts of providers on their list prices: aws=20%,gcp=10%.", metavar="P=X,..."
    )
    max_usd_per_hour: float | None = option("Most that one device may cost per hour.")
    provider_class: str | None = option(
        "Classes of providers: hyperscaler, specialised, marketplace, unlisted, "
        "any. Default: all but marketplaces.",
        metavar="CLASS,...",
    )
    spot_age_days: float | None = option(
        "Oldest spot price that may be chosen, in days. Default: 30.", metavar="DAYS"
    )


class PriceKeywords(TypedDict, total=False):
    """Fields of `PriceChoice`, as keywords."""

    offer: str | None
    usd_per_hour: float | None
    provider: str | None
    region: str | None
    kind: str | None
    discounts: str | None
    max_usd_per_hour: float | None
    provider_class: str | None
    spot_age_days: float | None


@frozen
class DevicePrice:
    """Price of one device; None where unknown.

    Attributes:
        usd_per_hour: USD per hour.
        offer: Offer it comes from, provider/region/instance[:kind]; None for a price of the user's.
        as_of: Date of the offer's price; empty where it has none.
        devices_per_instance: Devices of an instance of the offer, which may be part of one.
        kgco2e_per_kwh: Carbon of what the devices use in the offer's region, its site's overhead
            included.
        notes: What is said of prices that might have been expected and are not used.
    """

    usd_per_hour: float | None
    offer: str | None
    as_of: str = ""
    devices_per_instance: float | None = None
    kgco2e_per_kwh: float | None = None
    notes: tuple[str, ...] = ()

    def instances(self, devices: int) -> int | None:
        """Instances that have so many devices."""
        per_instance = self.devices_per_instance
        return None if per_instance is None else math.ceil(devices / per_instance - 1e-9)


def device_price(device: DeviceProfile, choice: PriceChoice | None = None) -> DevicePrice:
    """Price of a device (or of a slice's share of it).

    Args:
        device: Profile.
        choice: Which price; the cheapest on-demand offer where None.

    Raises:
        InvalidValueError: If the price is out of range or beside an offer, or the offer is of
            another device.
        OverBudgetError: If it is more than the most that the device may cost.
        UnknownNameError: If there is no such offer.
    """
    choice = PriceChoice() if choice is None else choice
    if choice.usd_per_hour is not None:
        return DevicePrice(_own_price(choice), None)
    whole_name, share_fraction = _share(device)
    cores = device.core_count.value if isinstance(device, CpuProfile) else None
    quote, notes = _quote(choice, device, whole_name, cores)
    if quote is None:
        return DevicePrice(None, None, notes=notes)
    offer = quote.offer
    if offer.device not in {None, whole_name}:  # the price list may not name it
        allowed = f"an offer of {whole_name}, not of {offer.device}"
        remedy = f"List offers of {whole_name} with: accelsim offers list --device {whole_name}"
        raise InvalidValueError("offer", quote.quote_id, allowed, remedy)
    price = quote.usd_per_hour(share_fraction, core_count=cores)
    if price is not None and choice.max_usd_per_hour is not None:
        _check_cap(device.name, price, quote.quote_id, choice.max_usd_per_hour)
    return DevicePrice(
        price,
        quote.quote_id,
        offer.dated(quote.kind),
        None if offer.device_count is None else offer.device_count / share_fraction,
        site_kgco2e_per_kwh(offer.provider, offer.region),
        notes,
    )


def _check_cap(device: str, price: float, offer: str, cap: float) -> None:
    if cap <= 0:
        raise InvalidValueError("max_usd_per_hour", cap, "a finite number > 0")
    if price > cap:
        allowed = f"at least {price:.4g}, the price of {device} at {offer}"
        remedy = "Choose another device, region or kind."
        raise OverBudgetError("max_usd_per_hour", cap, allowed, remedy)


def _own_price(choice: PriceChoice) -> float:
    """A price of the user's, which stands beside no offer."""
    price = choice.usd_per_hour
    others = asdict(choice) | {"usd_per_hour": None}
    beside = next((value for value in others.values() if value is not None), None)
    if beside is not None:
        allowed = f"no value beside the choice of an offer, {beside}"
        raise InvalidValueError("usd_per_hour", price, allowed, "Give one of them.")
    if price is None or price < 0:
        raise InvalidValueError("usd_per_hour", price, "a finite number >= 0")
    return float(price)


def device_quotes(device: DeviceProfile, choice: PriceChoice | None = None) -> list[Quote]:
    """Prices of whole instances that `device_price` chooses among, one's own alone where there are
    any; none of a price of the user's, of cores and of slices, which are shares of an instance.

    Args:
        device: Profile.
        choice: Which price; any on-demand offer where None.

    Raises:
        InputError: See `device_price`.
    """
    choice = PriceChoice() if choice is None else choice
    whole_name, share_fraction = _share(device)
    if choice.usd_per_hour is not None or isinstance(device, CpuProfile) or share_fraction != 1.0:
        return []
    most_usd = math.inf if choice.max_usd_per_hour is None else choice.max_usd_per_hour
    return [
        quote
        for quote in _quotes(choice, whole_name)
        if (quote.offer.device_count or 0) >= 1 and (quote.usd_per_hour() or 0.0) <= most_usd
    ]


def _quotes(choice: PriceChoice, device: str) -> list[Quote]:
    """The offer named, or those chosen among: one's own alone where there are any."""
    book = _book(choice, device)
    if choice.offer is not None:
        return [book.find(choice.offer)]
    eligible = _eligible(book, choice, device)
    own_offers = list(filter(book.is_own, eligible.offers))
    return [Quote(offer, eligible.kind) for offer in own_offers or eligible.offers]


def _book(choice: PriceChoice, device: str) -> PriceBook:
    """The prices chosen among, discounts taken off."""
    filters = {choice.offer, choice.provider, choice.region, choice.discounts}
    book = PriceBook.load(device=device if filters == {None} else None)
    discounts = choice.discounts
    return book if discounts is None else book.with_discounts(parse_discounts(discounts))


def _eligible(book: PriceBook, choice: PriceChoice, device: str) -> Eligible:
    """Offers that may be chosen."""
    return book.eligible(
        device,
        choice.kind or "on_demand",
        provider=choice.provider,
        region=choice.region,
        rule=rule_of(choice.provider_class, choice.spot_age_days),
    )


def _quote(
    choice: PriceChoice, profile: DeviceProfile, device: str, core_count: float | None
) -> tuple[Quote | None, tuple[str, ...]]:
    """The offer named, or the cheapest of those chosen among, and what is said of others."""
    book = _book(choice, device)
    if choice.offer is None:
        eligible, least_devices = _eligible(book, choice, device), 1.0
        if profile.instance is not None:
            eligible, least_devices = eligible.of_instance(profile.instance.name), 0.0
        quote = book.best(eligible, least_devices, core_count)
        unused = unused_own(book, device, [] if quote is None else [quote.offer])
        return quote, (*(eligible.notes if quote is None else ()), *unused)
    for name in ("provider", "region", "kind", "provider_class", "spot_age_days"):
        value = getattr(choice, name)
        if value is not None:
            allowed = f"no value beside the offer {choice.offer}"
            raise InvalidValueError(name, value, allowed, "The offer says it already.")
    return book.find(choice.offer), ()


def _share(device: DeviceProfile) -> tuple[str, float]:
    """Name of the whole device, and the fraction of a GPU's multiprocessors this one has; a CPU's
    cores say its own.
    """
    if not isinstance(device, CpuProfile | GpuProfile):
        return device.name, 1.0
    share_fraction = device.slice_fraction if isinstance(device, GpuProfile) else 1.0
    return device.slice_of or device.name, share_fraction
