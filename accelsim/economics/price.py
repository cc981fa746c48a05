"""The price book: dated offers to look up, filter and compare.

The project's own offers are the figures of public price lists (each row names its source and date)
that passed the checks of `accelsim.economics.feeds.ingest`; what was refused or corrected, and why,
is in ``refused.csv`` beside them. A user's own prices are read from files of theirs, which
`PRICE_PATH_VARIABLE` names.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from accelsim.arguments import checked
from accelsim.economics.eligible import OfferRule
from accelsim.economics.offer import PRICE_KINDS, Offer, PriceKind, Quote, first_day, price_kind
from accelsim.economics.price_file import offers_of, read_offers
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.files.csvfile import csv_rows
from accelsim.files.datafile import data_root, name_key, read_mapping
from accelsim.files.prices import public_price_files
from accelsim.plain import grouped

#: Environment variable with price files of the user's, separated like ``PATH``.
PRICE_PATH_VARIABLE = "ACCELSIM_PRICE_PATH"
#: Region of an own price that holds everywhere.
ANY_REGION = "any"
_USUAL = OfferRule()
_LIST_THEM = "List them with: accelsim offers list"
#: A price of an instance that is so much older than another price of it no longer stands for it.
_OUTDATED = timedelta(days=366)


class Eligible(NamedTuple):
    """Offers that may be chosen.

    Attributes:
        offers: The offers.
        notes: Sentences on those that may not, with the option that takes them.
        kind: Price kind that all have.
    """

    offers: tuple[Offer, ...]
    notes: tuple[str, ...]
    kind: PriceKind

    def of_instance(self, name: str) -> Eligible:
        """Those of one instance; without any, a note says so."""
        offers = tuple(offer for offer in self.offers if offer.instance.lower() == name.lower())
        missing = () if offers else (f"no price of {name} is of what is asked for",)
        return Eligible(offers, self.notes + missing, self.kind)

    def by_provider(self) -> dict[str, float]:
        """The least price of one accelerator (or vCPU) of each provider, USD per hour."""
        least: dict[str, float] = {}
        for offer in self.offers:
            price = offer.usd_per_unit_hour(self.kind)
            if price is not None and (offer.is_cpu or (offer.unit_count or 0) >= 1):
                least[offer.provider] = min(price, least.get(offer.provider, math.inf))
        return least


@checked
class PriceBook:
    """Offers, sorted by id.

    Args:
        offers: The offers; where two have one id, the first counts.
        own: The user's own, which replace offers of the same id and are chosen before all others.

    Raises:
        InvalidValueError: If one is no `Offer`.
    """

    __slots__ = ("_by_device", "_by_id", "_lower_ids", "_offers", "_own")

    def __init__(self, offers: Iterable[Offer], own: Iterable[Offer] = ()) -> None:
        own_by_id, by_id = _by_id(own), _by_id(offers)
        self._own = frozenset(own_by_id)
        self._by_id = dict(sorted((by_id | own_by_id).items()))
        self._offers = tuple(self._by_id.values())
        self._lower_ids = {offer_id.lower(): offer_id for offer_id in self._by_id}
        self._by_device = grouped(self._offers, lambda offer: offer.device)

    @classmethod
    def load(cls, path: str | Path | None = None, *, device: str | None = None) -> PriceBook:
        """Read a price book.

        Args:
            path: A price file (`accelsim.economics.price_file.read_offers`); None reads the
                project's own, what updates replace of them, and the user's own that
                ``ACCELSIM_PRICE_PATH`` names, once.
            device: Of the project's own, only offers of this device, and those that do not name
                theirs: a tenth of the time of reading all.

        Returns:
            The book.

        Raises:
            ProfileError: If the file cannot be read or a row is wrong.
        """
        if path is not None:
            return cls(read_offers(Path(path)))
        own_files = os.environ.get(PRICE_PATH_VARIABLE, "").split(os.pathsep)
        return _loaded(tuple(filter(None, own_files)), public_price_files(), device)

    def with_offers(self, offers: Iterable[Offer]) -> PriceBook:
        """A book with further offers of one's own, which replace offers of the same id and are
        chosen before all others.
        """
        return PriceBook(self._offers, (*offers, *filter(self.is_own, self._offers)))

    def is_own(self, offer: Offer) -> bool:
        """Whether an offer is the user's own."""
        return offer.offer_id in self._own

    def with_discounts(self, discounts: Mapping[str, float]) -> PriceBook:
        """A book with a share taken off the prices of some providers.

        Args:
            discounts: Share by provider, 0 to less than 1.

        Raises:
            UnknownNameError: If no offer is of such a provider.
        """
        providers = {offer.provider for offer in self._offers}
        for provider in discounts:
            if provider not in providers:
                raise UnknownNameError("provider", provider, sorted(providers), _LIST_THEM)
        offers = [
            offer.discounted(discounts[offer.provider]) if offer.provider in discounts else offer
            for offer in self._offers
        ]
        return PriceBook(offers, filter(self.is_own, offers))

    def __len__(self) -> int:
        return len(self._offers)

    def __repr__(self) -> str:
        return f"<PriceBook: {len(self)} offers of {len(self.devices)} devices>"

    def __iter__(self) -> Iterator[Offer]:
        return iter(self._offers)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices with at least one offer, sorted."""
        return tuple(sorted(device for device in self._by_device if device is not None))

    def offers(
        self,
        device: str | None = None,
        provider: str | None = None,
        region: str | None = None,
        kind: str | None = None,
    ) -> tuple[Offer, ...]:
        """Offers that match every filter given.

        Args:
            device: Catalogue name of the device.
            provider: Provider, or a pattern of the shell's.
            region: Region code, or a pattern: ``eu-*``; an own price of region ``any`` is of all.
            kind: A price kind whose price must be known.

        Returns:
            Offers sorted by id; empty where nothing matches.

        Raises:
            InvalidValueError: If there is no such price kind.
            UnknownNameError: If no offer at all is of that provider or region.
        """
        offers = self._offers if device is None else self._by_device.get(device.lower(), ())
        wanted = None if kind is None else price_kind(kind)
        if wanted is not None:
            offers = [offer for offer in offers if offer.usd_per_hour(wanted) is not None]
        if provider is not None:
            self.check_pattern("provider", provider)
            offers = [offer for offer in offers if fnmatchcase(offer.provider, provider.lower())]
        if region is not None:
            self.check_pattern("region", region)
            offers = [offer for offer in offers if self.is_in(offer, region.lower())]
        return tuple(offers)

    def check_pattern(self, field: Literal["provider", "region"], pattern: str) -> None:
        """Refuse a provider or region, or a pattern of them, that no offer is of.

        Raises:
            UnknownNameError: If none is.
        """
        names = {offer.provider if field == "provider" else offer.region for offer in self._offers}
        if not any(fnmatchcase(name, pattern.lower()) for name in names):
            raise UnknownNameError(field, pattern, sorted(names), _LIST_THEM)

    def is_in(self, offer: Offer, region: str) -> bool:
        """Whether an offer is of a region, or of a pattern of them; an own price of region ``any``
        is.
        """
        anywhere = offer.region == ANY_REGION and self.is_own(offer)
        return anywhere or fnmatchcase(offer.region, region)

    def eligible(
        self,
        device: str,
        kind: str = "on_demand",
        *,
        provider: str | None = None,
        region: str | None = None,
        rule: OfferRule = _USUAL,
    ) -> Eligible:
        """Offers that may be chosen for a device, and what is said of the others.

        Of an instance with prices of several dates, those more than a year older than the newest
        do not count.

        Args:
            device: Catalogue name of the device.
            kind: Price kind.
            provider: Only this provider, or a pattern.
            region: Only this region, or a pattern.
            rule: Classes of providers, and the age of a spot price.

        Raises:
            InvalidValueError: If there is no such price kind.
            UnknownNameError: If no offer at all is of that provider or region.
        """
        wanted = price_kind(kind)
        offers = self.offers(device, provider, region, wanted)
        allowed, notes = rule.allowed(offers, wanted, provider)
        return Eligible(tuple(_current(allowed, wanted)), notes, wanted)

    def cheapest(
        self,
        device: str,
        kind: str = "on_demand",
        *,
        device_count: float = 1,
        core_count: float | None = None,
        provider: str | None = None,
        region: str | None = None,
        rule: OfferRule = _USUAL,
    ) -> Quote | None:
        """The quote with the lowest price per unit that holds what is needed, of one's own offers
        where there are any that do.

        The price compared is per accelerator, or per core of a CPU instance, so that a share of a
        large instance competes with a whole small one; of equal prices the smaller instance wins,
        then the first id.

        Args:
            device: Catalogue name of the device.
            kind: Price kind.
            device_count: Accelerators the instance must have at least.
            core_count: Cores a CPU instance should have; where none has so many, the largest one's
                price per core is taken, so that more cores never cost less. None accepts any.
            provider: Only this provider.
            region: Only this region.
            rule: What may be chosen; see `eligible`.

        Returns:
            The quote, or None where no offer fits: the price is unknown.

        Raises:
            InvalidValueError: If there is no such price kind.
        """
        eligible = self.eligible(device, kind, provider=provider, region=region, rule=rule)
        return self.best(eligible, device_count, core_count)

    def best(
        self, eligible: Eligible, device_count: float = 1, core_count: float | None = None
    ) -> Quote | None:
        """The cheapest of some offers; see `cheapest`."""
        ranks = [
            (not self.is_own(offer), *rank)
            for offer in eligible.offers
            if (rank := _rank(offer, eligible.kind, device_count, core_count))
        ]
        return Quote(self._by_id[min(ranks)[-1]], eligible.kind) if ranks else None

    def find(self, offer_id: str) -> Quote:
        """The quote of an id such as ``aws/us-east-1/p4d.24xlarge`` or
        ``aws/us-east-1/p4d.24xlarge:spot``.

        Args:
            offer_id: ``provider/region/instance``, with ``:kind`` unless on-demand, in any case.

        Returns:
            The quote.

        Raises:
            UnknownNameError: If there is no such offer; near matches are named.
            InvalidValueError: If the price kind does not exist or its price is unknown.
        """
        if not isinstance(offer_id, str):
            raise InvalidValueError("offer", offer_id, "provider/region/instance[:kind]")
        name, colon, kind = offer_id.strip().partition(":")
        known_id = self._lower_ids.get(name.lower())
        if known_id is None:
            raise UnknownNameError("offer", offer_id, self._near(name.lower()), _LIST_THEM)
        offer = self._by_id[known_id]
        return Quote(offer, price_kind(kind) if colon else _first_kind(offer))

    def _near(self, name: str) -> list[str]:
        """Candidates for near matches: offers of the same instance first, as those are what a typo
        means.
        """
        instance = name.rpartition("/")[2]
        return [
            offer_id
            for lower_id, offer_id in self._lower_ids.items()
            if lower_id.rpartition("/")[2] == instance
        ] or list(self._by_id)


def _first_kind(offer: Offer) -> PriceKind:
    """On-demand; the first kind with a price where an offer has no on-demand price."""
    return next((kind for kind in PRICE_KINDS if offer.usd_per_hour(kind) is not None), "on_demand")


def unused_own(book: PriceBook, device: str, used: Sequence[Offer]) -> tuple[str, ...]:
    """That own prices of a device are not used, which would be chosen before others if they could.

    Args:
        book: The price book.
        device: Catalogue name.
        used: Offers that are used.
    """
    own_ids = [offer.offer_id for offer in book.offers(device) if book.is_own(offer)]
    if not own_ids or any(book.is_own(offer) for offer in used):
        return ()
    reason = "of another kind, region, provider, class or size than what is asked for"
    return (f"own prices not used, {reason}: {', '.join(own_ids)}",)


def parse_discounts(text: str) -> dict[str, float]:
    """Shares by provider of a text such as ``aws=20%,gcp=0.1``.

    Raises:
        InvalidValueError: If it is no such text, or a share is not from 0 to less than 1.
    """
    shares = {}
    for word in str(text).split(","):
        provider, _, share = word.partition("=")
        try:
            fraction = float(share.strip().removesuffix("%")) / (100 if "%" in share else 1)
        except ValueError:
            fraction = math.nan
        if not provider.strip() or not 0 <= fraction < 1:
            allowed = "shares from 0 to less than 1 by provider, such as aws=20%,gcp=0.1"
            raise InvalidValueError("discounts", text, allowed)
        shares[provider.strip().lower()] = fraction
    return shares


@cache
def _loaded(own_files: tuple[str, ...], files: tuple[Path, ...], device: str | None) -> PriceBook:
    """Public offers, or those of one device, and the user's own."""
    public = [offer for path in files for offer in _of_device(path, device)]
    own = (_named(offer) for path in own_files for offer in read_offers(Path(path)))
    return PriceBook(public, own)


def _named(offer: Offer) -> Offer:
    """An offer whose device, which may be an alias, is named as the catalogue does."""
    name = None if offer.device is None else name_key(offer.device)
    return replace(offer, device=None if name is None else _aliases().get(name, name))


@cache
def _aliases() -> Mapping[str, str]:
    return dict(read_mapping(data_root() / "device_profiles" / "aliases.yaml"))


def _of_device(path: Path, device: str | None) -> tuple[Offer, ...]:
    by_device = _rows_of(path)
    names = by_device if device is None else (device, "")
    return offers_of((row for name in names for row in by_device.get(name, ())), path)


@cache
def _rows_of(path: Path) -> Mapping[str, Sequence[tuple[str, Mapping[str, str]]]]:
    """Rows of a price file by device."""
    return grouped(csv_rows(path), lambda row: row[1]["device"])


def _by_id(offers: Iterable[Offer]) -> dict[str, Offer]:
    """Offers by id; the first of several with one."""
    by_id: dict[str, Offer] = {}
    for offer in offers:
        if not isinstance(offer, Offer):
            raise InvalidValueError("offers", offer, "objects of class Offer")
        by_id.setdefault(offer.offer_id, offer)
    return by_id


def _current(offers: Sequence[Offer], kind: PriceKind) -> list[Offer]:
    """Those whose price is not more than a year older than another price of the same instance."""
    dated = [(offer, first_day(offer.dated(kind))) for offer in offers]
    newest: dict[tuple[str, str], date] = {}
    for offer, day in dated:
        if day is not None:
            instance = offer.provider, offer.instance
            newest[instance] = max(newest.get(instance, day), day)
    return [
        offer
        for offer, day in dated
        if day is None or newest[offer.provider, offer.instance] - day <= _OUTDATED
    ]


def _rank(
    offer: Offer, kind: PriceKind, device_count: float, core_count: float | None
) -> tuple[float, float, float, str] | None:
    """Order of preference, the smallest first: cores it lacks, price per unit, size, id.

    Estimate: instances are divisible, so that the price of a unit decides.
    """
    price, units = offer.usd_per_unit_hour(kind), offer.unit_count
    if price is None or units is None:
        return None
    if not offer.is_cpu:
        return None if units < device_count else (0.0, price, units, offer.offer_id)
    if offer.vcpus_per_core is None:
        return None
    missing = max((core_count or 0.0) - units / offer.vcpus_per_core, 0.0)
    return missing, price * offer.vcpus_per_core, units, offer.offer_id
