"""Offers a plan chooses among, and how each device answers each service."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from accelsim import catalog
from accelsim.capacity.hardware_asked import CandidateHardware, Owned
from accelsim.economics.carbon import grid_kgco2e_per_kwh, pue_ratio
from accelsim.economics.offer import Offer, Quote
from accelsim.economics.price import PriceBook, unused_own
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, DeviceProfile

#: Provider of hardware of one's own.
OWNED = "owned"
_CLASSES = ("cpu", "gpu", "fpga", "asic", "tpu")


@frozen
class Candidate:
    """An offer that may be rented.

    Attributes:
        quote: The offer at one of its prices.
        device: Name of one device, or of the slice of a CPU that it is.
        device_count: Devices of the instance, each a replica.
        pue_ratio: Overhead of its site.
        kgco2e_per_kwh: Of its grid; None where unknown.
        is_resident: Whether it is in a region where all must be.
    """

    quote: Quote
    device: str
    device_count: int
    pue_ratio: float
    kgco2e_per_kwh: float | None
    is_resident: bool = True

    @property
    def accelerator_count(self) -> int:
        """Accelerators of the instance; 0 of a CPU."""
        is_cpu = isinstance(catalog.device(self.device), CpuProfile)
        return 0 if is_cpu else self.device_count

    @property
    def choice(self) -> str:
        """What is left out to see what else would do: its device, or hardware of one's own."""
        return self.quote.quote_id if self.quote.offer.provider == OWNED else self.device


def candidates(
    asked: CandidateHardware, basis: Any, residency: Sequence[str] = (), keeps_kinds: bool = False
) -> tuple[list[Candidate], list[str]]:
    """Offers that match, and what is left out with its reason.

    Args:
        asked: Devices, providers, regions and price kinds.
        basis: Of carbon: location or market.
        residency: Patterns of regions where all must be; empty for any.
        keeps_kinds: Whether a dearer price kind stays beside a cheaper one, as it fails less or is
            not paid for when it is not used.

    Raises:
        InvalidValueError: If nothing matches; names the filter that leaves nothing.
        UnknownNameError: If there is no such device, provider or region.
    """
    book = PriceBook.load().with_discounts(asked.discounts)
    _check_patterns("provider", asked.providers, {offer.provider for offer in book})
    _check_patterns("region", asked.regions, {offer.region for offer in book})
    found: list[Candidate] = []
    left_out: list[str] = []
    unpriced: list[str] = []
    instances = _instances(asked.devices)
    for name in _device_names(asked.devices, book):
        quotes, notes = _quotes(asked, book, name)
        if bought := instances.get(name):
            quotes = [quote for quote in quotes if quote.offer.instance in bought]
        left_out += [f"{name}: {note}" for note in notes]
        fitting = [c for quote in quotes if (c := _candidate(quote, name, basis)) is not None]
        if not quotes:
            unpriced.append(name)
        elif len(fitting) < len(quotes):
            left_out.append(f"{name}: {len(quotes) - len(fitting)} offers of a part of a device")
        found += fitting
    if unpriced:
        kinds = " or ".join(asked.kinds)
        left_out.append(f"no {kinds} price is known there of {', '.join(unpriced)}")
    found += [_owned(one) for one in asked.owned]
    if not found:
        raise InvalidValueError(
            "candidates",
            f"{asked.devices} {asked.providers} {asked.regions} {asked.kinds}",
            "at least one offer with a price",
            "Widen devices, providers, regions or kinds; see: accelsim offers list",
        )
    found = [replace(c, is_resident=_is_in(c, residency)) for c in found]
    return _undominated(found, keeps_kinds), left_out


def _owned(asked: Owned) -> Candidate:
    """Hardware of one's own as an offer, at its cost per hour of work."""
    hardware = asked.hardware
    cost = hardware.cost(asked.used_fraction).usd_per_used_hour
    name = catalog.device(asked.device).name
    offer = Offer(
        provider=OWNED,
        region=asked.region,
        instance=asked.name,
        source="the scenario",
        device=name,
        device_count=asked.device_count,
        on_demand_usd_per_hour=cost,
    )
    return Candidate(
        Quote(offer), name, asked.device_count, hardware.pue_ratio, asked.kgco2e_per_kwh
    )


def _is_in(one: Candidate, residency: Sequence[str]) -> bool:
    region = one.quote.offer.region
    return not residency or any(fnmatchcase(region, pattern.lower()) for pattern in residency)


def _undominated(found: Iterable[Candidate], keeps_kinds: bool) -> list[Candidate]:
    """The cheapest of those that differ in price alone: same devices, site and carbon, in one
    provider.
    """
    best: dict[Any, Candidate] = {}
    for one in found:
        same = (
            one.device,
            one.device_count,
            one.pue_ratio,
            one.kgco2e_per_kwh,
            one.quote.offer.provider,
            one.is_resident,
            one.quote.kind if keeps_kinds else None,
        )
        known = best.setdefault(same, one)
        if one.quote.instance_usd_per_hour < known.quote.instance_usd_per_hour:
            best[same] = one
    return list(best.values())


def _check_patterns(field: str, patterns: Iterable[str], known: set[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern.lower()) for name in known):
            remedy = "List them with: accelsim offers list"
            raise UnknownNameError(field, pattern, sorted(known), remedy)


def _device_names(words: Iterable[str], book: PriceBook) -> Iterator[str]:
    """Names of devices, those of a class as far as they have prices; each once."""
    priced = {name: catalog.device(name) for name in book.devices}
    names: dict[str, None] = {}
    for word in words:
        lower = word.lower()
        if lower in _CLASSES:
            chosen = [
                name for name, profile in priced.items() if catalog.is_of_class(profile, lower)
            ]
        else:
            chosen = [_of_word(catalog.device(word))]
        names.update(dict.fromkeys(chosen))
    yield from names


def _of_word(profile: DeviceProfile) -> str:
    """Name of a device, whole where an instance was named, whose offers say their share."""
    return profile.name if profile.instance is None else profile.whole_name


def _instances(words: Iterable[str]) -> Mapping[str, set[str]]:
    """Cloud instances named, by their device, which then is bought in no other."""
    profiles = [catalog.device(word) for word in words if word.lower() not in _CLASSES]
    named: dict[str, set[str]] = {}
    for profile in profiles:
        if profile.instance is not None:
            named.setdefault(profile.whole_name, set()).add(profile.instance.name)
    whole = {profile.whole_name for profile in profiles if profile.instance is None}
    return {name: bought for name, bought in named.items() if name not in whole}


def _quotes(
    asked: CandidateHardware, book: PriceBook, name: str
) -> tuple[list[Quote], tuple[str, ...]]:
    """Prices of a device that may be chosen, one's own alone where there are any, and what is said
    of the others.
    """
    in_place = [offer for offer in book.offers(name) if _is_asked(asked, book, offer)]
    provider = asked.providers[0] if len(asked.providers) == 1 else None
    found: list[Quote] = []
    notes: list[str] = []
    for kind in asked.kinds:
        priced = [offer for offer in in_place if offer.usd_per_hour(kind) is not None]
        allowed, said = asked.rule.allowed(priced, kind, provider)
        own = [offer for offer in allowed if book.is_own(offer)]
        found += [Quote(offer, kind) for offer in own or allowed]
        notes += said
    most = asked.max_usd_per_hour or math.inf
    taken = [quote for quote in found if quote.instance_usd_per_hour <= most]
    return taken, (*notes, *unused_own(book, name, [quote.offer for quote in taken]))


def _is_asked(asked: CandidateHardware, book: PriceBook, offer: Offer) -> bool:
    """Whether an offer is of a provider and a region asked for."""
    is_wanted = any(fnmatchcase(offer.provider, p.lower()) for p in asked.providers)
    return is_wanted and any(book.is_in(offer, p.lower()) for p in asked.regions)


def _candidate(quote: Quote, name: str, basis: Any) -> Candidate | None:
    """None for a part of a device."""
    offer = quote.offer
    device, count = _devices_of(offer, catalog.device(name))
    if count < 1 or count != int(count):
        return None
    place = (offer.provider, offer.region)
    intensity = grid_kgco2e_per_kwh(*place, basis)
    return Candidate(quote, device, int(count), pue_ratio(*place), intensity)


def _devices_of(offer: Offer, device: DeviceProfile) -> tuple[str, float]:
    """Name and number of the devices of an instance: of a CPU, the sockets its cores fill."""
    if offer.device_count is not None:
        return device.name, offer.device_count
    if not isinstance(device, CpuProfile) or not offer.vcpu_count or not offer.vcpus_per_core:
        return device.name, 0.0
    cores, whole = offer.vcpu_count / offer.vcpus_per_core, device.core_count.value
    sockets = math.ceil(cores / whole)
    each = int(cores / sockets)
    return (device.name if each == whole else f"{device.name}@{each}core"), float(sockets)
