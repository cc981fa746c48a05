"""Offers a plan chooses among, and how each device answers each service."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

from accelsim import catalog
from accelsim.capacity.hardware_asked import CandidateHardware, Owned
from accelsim.economics.carbon import CarbonBasis, grid_kgco2e_per_kwh, pue_ratio
from accelsim.economics.offer import Offer, Quote
from accelsim.economics.price import PriceBook, unused_own
from accelsim.errors import InvalidValueError
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
    hardware: CandidateHardware,
    basis: CarbonBasis,
    residency: Sequence[str] = (),
    keeps_kinds: bool = False,
) -> tuple[list[Candidate], list[str]]:
    """Offers that match, and what is left out with its reason.

    Args:
        hardware: Devices, providers, regions and price kinds.
        basis: Of carbon: location or market.
        residency: Patterns of regions where all must be; empty for any.
        keeps_kinds: Whether a dearer price kind stays beside a cheaper one, as it fails less or is
            not paid for when it is not used.

    Raises:
        InvalidValueError: If nothing matches; names the filter that leaves nothing.
        UnknownNameError: If there is no such device, provider or region.
    """
    book = PriceBook.load().with_discounts(hardware.discounts)
    for provider in hardware.providers:
        book.check_pattern("provider", provider)
    for region in hardware.regions:
        book.check_pattern("region", region)
    matching: list[Candidate] = []
    left_out: list[str] = []
    unpriced: list[str] = []
    instances = _instances(hardware.devices)
    for name in _device_names(hardware.devices, book):
        quotes, notes = _quotes(hardware, book, name, instances.get(name))
        fitting = list(filter(None, (_candidate(quote, name, basis) for quote in quotes)))
        left_out += notes
        if not quotes:
            unpriced.append(name)
        elif len(fitting) < len(quotes):
            left_out.append(f"{name}: {len(quotes) - len(fitting)} offers of a part of a device")
        matching += fitting
    if unpriced:
        kinds = " or ".join(hardware.kinds)
        left_out.append(f"no {kinds} price is known there of {', '.join(unpriced)}")
    matching += [_owned(owned) for owned in hardware.owned]
    if not matching:
        raise InvalidValueError(
            "candidates",
            f"{hardware.devices} {hardware.providers} {hardware.regions} {hardware.kinds}",
            "at least one offer with a price",
            "Widen devices, providers, regions or kinds; see: accelsim offers list",
        )
    return _undominated(matching, residency, keeps_kinds), left_out


def _owned(owned: Owned) -> Candidate:
    """Hardware of one's own as an offer, at its cost per hour of work."""
    hardware = owned.hardware
    cost = hardware.cost(owned.used_fraction).usd_per_used_hour
    name = catalog.device(owned.device).name
    offer = Offer(
        provider=OWNED,
        region=owned.region,
        instance=owned.name,
        source="the scenario",
        device=name,
        device_count=owned.device_count,
        on_demand_usd_per_hour=cost,
    )
    return Candidate(
        Quote(offer), name, owned.device_count, hardware.pue_ratio, owned.kgco2e_per_kwh
    )


def _is_in(candidate: Candidate, residency: Sequence[str]) -> bool:
    region = candidate.quote.offer.region
    return not residency or any(fnmatchcase(region, pattern.lower()) for pattern in residency)


def _undominated(
    matching: Iterable[Candidate], residency: Sequence[str], keeps_kinds: bool
) -> list[Candidate]:
    """The cheapest of those that differ in price alone: same devices, site and carbon, in one
    provider, and all in regions where they must be or not.
    """
    best: dict[tuple[object, ...], Candidate] = {}
    for anywhere in matching:
        candidate = replace(anywhere, is_resident=_is_in(anywhere, residency))
        same = (
            candidate.device,
            candidate.device_count,
            candidate.pue_ratio,
            candidate.kgco2e_per_kwh,
            candidate.quote.offer.provider,
            candidate.is_resident,
            candidate.quote.kind if keeps_kinds else None,
        )
        cheapest = best.setdefault(same, candidate)
        if candidate.quote.instance_usd_per_hour < cheapest.quote.instance_usd_per_hour:
            best[same] = candidate
    return list(best.values())


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
    whole_devices = {profile.whole_name for profile in profiles if profile.instance is None}
    return {name: bought for name, bought in named.items() if name not in whole_devices}


def _quotes(
    hardware: CandidateHardware, book: PriceBook, name: str, instances: set[str] | None
) -> tuple[list[Quote], list[str]]:
    """Prices of a device that may be chosen, one's own alone where there are any and in some
    instances alone where they are named, and what is said of the others.
    """
    quotes, notes = _prices(hardware, book, name)
    most = hardware.max_usd_per_hour or math.inf
    affordable = [quote for quote in quotes if quote.instance_usd_per_hour <= most]
    notes += unused_own(book, name, [quote.offer for quote in affordable])
    if instances:
        affordable = [quote for quote in affordable if quote.offer.instance in instances]
    return affordable, [f"{name}: {note}" for note in notes]


def _prices(
    hardware: CandidateHardware, book: PriceBook, name: str
) -> tuple[list[Quote], list[str]]:
    """Prices of a device in the kinds asked for, whatever they are, and what is said of others."""
    offers = list(filter(partial(_is_asked, hardware, book), book.offers(name)))
    provider = hardware.providers[0] if len(hardware.providers) == 1 else None
    quotes: list[Quote] = []
    notes: list[str] = []
    for kind in hardware.kinds:
        priced = [offer for offer in offers if offer.usd_per_hour(kind) is not None]
        allowed, reasons = hardware.rule.allowed(priced, kind, provider)
        own = list(filter(book.is_own, allowed))
        quotes += [Quote(offer, kind) for offer in own or allowed]
        notes += reasons
    return quotes, notes


def _is_asked(hardware: CandidateHardware, book: PriceBook, offer: Offer) -> bool:
    """Whether an offer is of a provider and a region asked for."""
    is_wanted = any(fnmatchcase(offer.provider, p.lower()) for p in hardware.providers)
    return is_wanted and any(book.is_in(offer, p.lower()) for p in hardware.regions)


def _candidate(quote: Quote, name: str, basis: CarbonBasis) -> Candidate | None:
    """None for a part of a device."""
    offer = quote.offer
    device, count = _devices_of(offer, catalog.device(name))
    if count < 1 or count != int(count):
        return None
    site = (offer.provider, offer.region)
    intensity = grid_kgco2e_per_kwh(*site, basis)
    return Candidate(quote, device, int(count), pue_ratio(*site), intensity)


def _devices_of(offer: Offer, device: DeviceProfile) -> tuple[str, float]:
    """Name and number of the devices of an instance: of a CPU, the sockets its cores fill."""
    if offer.device_count is not None:
        return device.name, offer.device_count
    if not isinstance(device, CpuProfile) or not offer.vcpu_count or not offer.vcpus_per_core:
        return device.name, 0.0
    cores, socket_cores = offer.vcpu_count / offer.vcpus_per_core, device.core_count.value
    sockets = math.ceil(cores / socket_cores)
    cores_each = int(cores / sockets)
    name = device.name if cores_each == socket_cores else f"{device.name}@{cores_each}core"
    return name, float(sockets)
