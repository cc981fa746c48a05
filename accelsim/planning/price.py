"""Hourly price of one device of a run: the user's own, a named offer's share, or the cheapest
on-demand offer's.

A slice of a device is priced at its share: cores of a CPU, the fraction of a GPU's multiprocessors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from accelsim.economics.offer import Quote
from accelsim.economics.price import PriceBook
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import CpuProfile, DeviceProfile, GpuProfile
from accelsim.planning.options import PriceChoice

__all__ = ["DevicePrice", "device_price"]


@dataclass(frozen=True, slots=True)
class DevicePrice:
    """Price of one device; None where unknown.

    Attributes:
        usd_per_hour: USD per hour.
        offer: Offer it comes from, provider/region/instance[:kind]; None for a price of the user's.
    """

    usd_per_hour: float | None
    offer: str | None


def device_price(device: DeviceProfile, choice: PriceChoice | None = None) -> DevicePrice:
    """Price of a device (or of a slice's share of it).

    Args:
        device: Profile.
        choice: Which price; the cheapest on-demand offer where None.

    Raises:
        InvalidValueError: If the price is out of range or beside an offer, or the offer is of
            another device.
        UnknownNameError: If there is no such offer.
    """
    wanted = PriceChoice() if choice is None else choice
    if wanted.usd_per_hour is not None:
        return DevicePrice(_own_price(wanted), None)
    whole, share = _share(device)
    cores = device.core_count.value if isinstance(device, CpuProfile) else None
    quote = _quote(wanted, whole, cores)
    if quote is None:
        return DevicePrice(None, None)
    _check_offer(quote, whole)
    return DevicePrice(quote.usd_per_hour(share, core_count=cores), quote.quote_id)


def _own_price(choice: PriceChoice) -> float:
    """A price of the user's, which stands beside no offer."""
    price = choice.usd_per_hour
    beside = choice.offer or choice.provider or choice.region or choice.kind
    if beside is not None:
        allowed = f"no value beside the offer {beside}"
        raise InvalidValueError("usd_per_hour", price, allowed, "Give one of them.")
    if not isinstance(price, Real) or not 0 <= price < math.inf:
        raise InvalidValueError("usd_per_hour", price, "a finite number >= 0")
    return float(price)


def _quote(choice: PriceChoice, device: str, core_count: float | None) -> Quote | None:
    """The offer named, or the cheapest of those chosen among."""
    is_plain = choice.offer is None and choice.provider is None and choice.region is None
    book = PriceBook.load(device=device if is_plain else None)
    if choice.offer is None:
        return book.cheapest(
            device,
            choice.kind or "on_demand",
            core_count=core_count,
            provider=choice.provider,
            region=choice.region,
        )
    for name in ("provider", "region", "kind"):
        value = getattr(choice, name)
        if value is not None:
            allowed = f"no value beside the offer {choice.offer}"
            raise InvalidValueError(name, value, allowed, "The offer says it already.")
    return book.find(choice.offer)


def _share(device: DeviceProfile) -> tuple[str, float]:
    """Name of the whole device, and the fraction of a GPU's multiprocessors this one has; a CPU's
    cores say its own.
    """
    whole = getattr(device, "slice_of", None) or device.name
    return whole, device.slice_fraction if isinstance(device, GpuProfile) else 1.0


def _check_offer(quote: Quote, device: str) -> None:
    """A named offer must be for this device (or for one the price list does not name)."""
    if quote.offer.device not in {None, device}:
        remedy = f"List offers of {device} with: accelsim offers list --device {device}"
        raise InvalidValueError(
            "offer", quote.quote_id, f"an offer of {device}, not of {quote.offer.device}", remedy
        )
