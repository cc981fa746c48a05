"""Hourly price of one device in a scenario: the user's own, a named offer's share, or the cheapest
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


def device_price(
    device: DeviceProfile, offer: str | None = None, usd_per_hour: float | None = None
) -> DevicePrice:
    """Price of a device (or of a slice's share of it).

    Args:
        device: Profile.
        offer: Offer to use; the cheapest on-demand offer where None.
        usd_per_hour: Own price, >= 0, instead of an offer.

    Raises:
        InvalidValueError: If the price is out of range or beside an offer, or the offer is of
            another device.
        UnknownNameError: If there is no such offer.
    """
    if usd_per_hour is not None:
        if offer is not None:
            raise InvalidValueError(
                "usd_per_hour",
                usd_per_hour,
                f"no value beside the offer {offer}",
                "Give one of them.",
            )
        if not isinstance(usd_per_hour, Real) or not 0 <= usd_per_hour < math.inf:
            raise InvalidValueError("usd_per_hour", usd_per_hour, "a finite number >= 0")
        return DevicePrice(float(usd_per_hour), None)
    whole, share = _share(device)
    cores = device.core_count.value if isinstance(device, CpuProfile) else None
    book = PriceBook.load()
    quote = book.find(offer) if offer is not None else book.cheapest(whole, core_count=cores)
    if quote is None:
        return DevicePrice(None, None)
    _check_offer(quote, whole)
    return DevicePrice(quote.usd_per_hour(share, core_count=cores), quote.quote_id)


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
