"""Offers of the price book as rows and a table."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from rich.console import RenderableType

from accelsim.economics.dates import STALE_DAYS, age_days, dated_words
from accelsim.economics.eligible import provider_class
from accelsim.economics.offer import PRICE_KINDS, Offer, PriceKind, Quote
from accelsim.economics.price import PriceBook
from accelsim.errors import UnknownNameError
from accelsim.plain import Document, Rows, Values
from accelsim.quantity import UNKNOWN, written
from accelsim.report.listing import Listing

_PRICES = tuple(f"{kind}_usd_per_hour" for kind in PRICE_KINDS)
#: Providers from which on a range is of interest.
_FEWEST_PROVIDERS = 2
#: Columns of an offer row.
OFFER_COLUMNS = (
    "offer",
    "provider",
    "provider_class",
    "region",
    "instance",
    "device",
    "accelerator",
    "device_reason",
    "device_count",
    "vcpu_count",
    *_PRICES,
    "kind",
    "usd_per_unit_hour",
    "basis",
    "currency",
    "host",
    "disk_gb",
    "minimum_billing_s",
    "as_of",
    "spot_as_of",
    "age_days",
    "is_stale",
    "source",
    "note",
)


def quote_of(offer: str | None, device: str | None = None) -> Quote | None:
    """The quote of an offer's id, sooner where its device is given; None where the price book has
    none.
    """
    with suppress(UnknownNameError):
        return None if offer is None else PriceBook.load(device=device).find(offer)
    return None


def offer_words(offer: str | None, device: str | None = None) -> str:
    """Where a price comes from: provider, region and instance, its kind, date and age, and what
    providers ask at least.

    Args:
        offer: Id of the offer; None for a price of the caller's.
        device: Its device, by which it is found sooner.
    """
    quote = quote_of(offer, device)
    if quote is None:
        return offer or "own price"
    kind = quote.kind.replace("_", " ")
    dated = dated_words(quote.offer.dated(quote.kind))
    return f"{quote.offer.offer_id}, {kind}{dated}{_range(quote)}"


def _range(quote: Quote) -> str:
    """What providers ask for one device of the kind; empty of a CPU, and where one sells it."""
    device = quote.offer.device
    if device is None or quote.offer.is_cpu:
        return ""
    least = PriceBook.load(device=device).eligible(device, quote.kind).by_provider()
    if len(least) < _FEWEST_PROVIDERS:
        return ""
    prices = least.values()
    low, high = (written("usd_per_hour", end(prices)) for end in (min, max))
    return f"; {len(least)} providers ask {low} to {high}"


def offer_rows(offers: Iterable[Offer], kind: PriceKind | None = None) -> list[Document]:
    """One mapping per offer; prices are of the whole instance, ``usd_per_unit_hour`` of one device
    or vCPU.

    Args:
        offers: The offers.
        kind: Price kind of ``usd_per_unit_hour``; the first that is known where None.
    """
    return [_offer_row(offer, kind or _known_kind(offer)) for offer in offers]


def _known_kind(offer: Offer) -> PriceKind:
    return next((kind for kind in PRICE_KINDS if offer.usd_per_hour(kind) is not None), "on_demand")


def _offer_row(offer: Offer, kind: PriceKind) -> Document:
    row = {name: getattr(offer, name, None) for name in OFFER_COLUMNS}
    age = age_days(offer.dated(kind), datetime.now(UTC).date())
    row |= {
        "offer": offer.offer_id,
        "kind": kind,
        "currency": "USD",
        "provider_class": provider_class(offer.provider, offer.instance),
        "usd_per_unit_hour": offer.usd_per_unit_hour(kind),
        "age_days": age,
        "is_stale": age is not None and age > STALE_DAYS,
    }
    return {name: None if value == "" else value for name, value in row.items()}


def offers_table(rows: Rows) -> RenderableType:
    """Rows of `offer_rows`; prices in USD per hour."""
    shown = [{**row, "count": _count(row), "device": _board(row)} for row in rows]
    device = "" if len({row["device"] for row in rows}) == 1 else " | device"
    columns = (
        f"~offer{device} | >count | >on demand=on_demand_usd_per_hour | >spot=spot_usd_per_hour | "
        ">per unit=usd_per_unit_hour:usd | as of=as_of?"
    )
    return Listing.of(columns, shown)


def _board(row: Values) -> str | None:
    """The device; the list's own name of the accelerator, in quotes, where it is none."""
    name = row["accelerator"]
    return row["device"] or (f"'{name}'" if name else None)


def _count(row: Values) -> str:
    if row["device_count"] is not None:
        return f"{row['device_count']:g}"
    return UNKNOWN if row["vcpu_count"] is None else f"{row['vcpu_count']:g} vCPU"
