"""``accelsim offers``: dated prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InputError, InvalidValueError, UnknownNameError
from accelsim.option import REQUIRED, argument, option
from accelsim.plain import Document, grouped

if TYPE_CHECKING:
    from accelsim.economics.feeds.ingest import Ingested
    from accelsim.economics.offer import Offer
    from accelsim.economics.price import PriceBook
    from accelsim.report.listing import Listing

offers = typer.Typer(name="offers", help="List, import and update prices.", no_args_is_help=True)
#: Findings of an import that its table lists at most.
_MOST_SHOWN = 1000
#: What a finding of an import says.
_FINDING = ("action", "provider", "region", "instance", "field", "value", "reason")
_PER_DEVICE = ("usd_per_device_hour", "usd_per_unit_hour")


@offers.command("list")
@with_output
def list_offers(
    output: ResultWriter,
    device: str | None = option("Only this device's.", metavar="NAME", flags="--device -d"),
    provider: str | None = option("Only this provider's.", metavar="NAME"),
    region: str | None = option("Only this region's.", metavar="CODE"),
    kind: str | None = option(
        "Only offers with a price of this kind: on-demand, spot, committed-1y, committed-3y.",
        metavar="KIND",
    ),
    provider_class: str | None = option(
        "Only of these classes of providers: hyperscaler, specialised, marketplace, unlisted.",
        metavar="CLASS,...",
    ),
    sort: str | None = option("Column to sort by, such as usd_per_device_hour.", metavar="COLUMN"),
) -> None:
    """List offers: prices in USD per hour of an instance, and of one device (or vCPU) in it."""
    from accelsim.economics.dates import STALE_DAYS
    from accelsim.economics.offer import price_kind
    from accelsim.economics.price import PriceBook
    from accelsim.report.offers import OFFER_COLUMNS, offer_rows, offers_table

    book = PriceBook.load()
    matching = _of_class(book.offers(None, provider, region, kind), provider_class)
    unsure = [offer for offer in matching if offer.accelerator and offer.device is None]
    if device is not None:
        names = _named(device, book)
        matching = [offer for offer in matching if offer.device in names]
        unsure = [offer for offer in unsure if _may_be(offer, names)]
    rows = offer_rows(matching, None if kind is None else price_kind(kind))
    if sort is not None:
        rows = _sorted(rows, sort.replace(*_PER_DEVICE), OFFER_COLUMNS)
    stale = sum(row["is_stale"] for row in rows)
    note = f"{len(rows)} offers, USD per hour; per unit: one device, or one vCPU of a CPU instance"
    if stale:
        note += f"; {stale} prices are older than {STALE_DAYS} days"
    note = "\n".join([note, *_unsure_lines(unsure)])
    output.emit(rows, offers_table, columns=OFFER_COLUMNS, note=note)


def _of_class(offers: Sequence[Offer], provider_class: str | None) -> Sequence[Offer]:
    """Offers of some classes of providers."""
    from accelsim.economics.eligible import provider_class as class_of
    from accelsim.economics.eligible import rule_of

    if provider_class is None:
        return offers
    classes = rule_of(provider_class, None).provider_classes
    return [
        offer
        for offer in offers
        if "any" in classes or class_of(offer.provider, offer.instance) in classes
    ]


def _named(device: str, book: PriceBook) -> set[str]:
    """Devices that a name or the word of a class stands for."""
    from accelsim import catalog

    word = device.lower()
    if word not in {*catalog.DEVICE_GROUPS, "all"}:
        return {catalog.device(device).name}
    priced = {name: catalog.device(name) for name in book.devices}
    return {n for n, p in priced.items() if word == "all" or catalog.is_of_class(p, word)}


def _may_be(offer: Offer, names: set[str]) -> bool:
    """Whether an offer's accelerator may be one of some devices, by the name it has there."""
    from accelsim import catalog

    known = catalog.product_device(offer.accelerator)
    return known is not None and known.name in names


def _unsure_lines(offers: Sequence[Offer]) -> list[str]:
    """Offers that are never chosen since their accelerator is no device, by reason."""
    return [
        f"never chosen: {alike[0].offer_id}"
        f"{f' and {len(alike) - 1} more' if len(alike) > 1 else ''} ({reason})"
        for reason, alike in grouped(offers, lambda offer: offer.device_reason).items()
    ]


def _sorted(rows: Sequence[Document], column: str, columns: Sequence[str]) -> list[Document]:
    """Rows by a column, unknown values last.

    Raises:
        UnknownNameError: If there is no such column.
    """
    if column not in columns:
        raise UnknownNameError("column", column, columns, f"Sort by one of: {', '.join(columns)}.")
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]
    return sorted(known, key=itemgetter(column)) + unknown


@offers.command("import")
@with_output
def import_offers(
    output: ResultWriter,
    source: str = argument(
        "CSV file of a price feed, or a folder of SkyPilot's catalogue.", "SOURCE"
    ),
    as_of: str = option("Date of prices to which the feed gives no date.", "", "DATE"),
    refused: Path | None = option("Write what was refused or corrected (CSV).", metavar="FILE"),
) -> None:
    """Clean a price feed: --out FILE.csv is a price file of yours, and the table shows what was
    refused or corrected.
    """
    from accelsim.economics.feeds.price_lists import price_rows
    from accelsim.economics.price import PRICE_PATH_VARIABLE
    from accelsim.economics.price_file import COLUMNS

    cleaned = _cleaned(output, source, as_of, refused)
    if output.out is not None:
        output.note(f"to use its prices: export {PRICE_PATH_VARIABLE}={output.out}")
    rows = price_rows(cleaned.offers)
    output.emit(rows, lambda _: _findings_table(cleaned), columns=COLUMNS, note=_counts(cleaned))


@offers.command("update")
@with_output
def update_offers(
    output: ResultWriter,
    source: str = option(
        "Public catalogue: a folder of SkyPilot's tables, or a price list (CSV).",
        REQUIRED,
        "PATH",
        "--from",
    ),
    as_of: str = option("Date of prices to which the catalogue gives no date.", "", "DATE"),
    refused: Path | None = option("Write what was refused or corrected (CSV).", metavar="FILE"),
) -> None:
    """Bring the price book up to date from a public catalogue: its prices replace those of the same
    instance and stand beside the others, in all commands.
    """
    from accelsim.economics.feeds.price_lists import offers_csv
    from accelsim.files.output import write_text
    from accelsim.files.prices import updates_folder

    cleaned = _cleaned(output, source, as_of, refused)
    of_devices = [offer for offer in cleaned.offers if offer.accelerator or offer.device]
    if not of_devices:
        remedy = "Give another catalogue with --from."
        raise InvalidValueError("from", source, "prices of accelerators", remedy)
    undated = next((offer.offer_id for offer in of_devices if not offer.as_of), None)
    if undated is not None:
        allowed = f"the day on which {undated} was read"
        raise InvalidValueError("as_of", None, allowed, "Add --as-of DATE.")
    path = updates_folder() / f"{Path(source).resolve().stem}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, offers_csv(of_devices), force=True)
    output.wrote(path, "; delete it to go back to the prices that ship")
    left_out = len(cleaned.offers) - len(of_devices)
    note = f"{_counts(cleaned)}; {left_out} of no device left out"
    rows = _findings(cleaned)
    output.emit(rows, lambda _: _findings_table(cleaned), columns=_FINDING, note=note)


def _cleaned(output: ResultWriter, source: str, as_of: str, refused: Path | None) -> Ingested:
    """The offers of a feed, its findings written where that is asked for.

    Raises:
        InputError: If none of its rows is a price that can be used.
    """
    from accelsim.economics.feeds.sources import import_offers as read_feed
    from accelsim.files.formats import csv_text
    from accelsim.files.output import write_text

    cleaned = read_feed(source, as_of)
    if refused is not None:
        write_text(refused, csv_text(_findings(cleaned), _FINDING), force=output.force)
        output.wrote(refused)
    if not cleaned.offers:
        refusal = cleaned.refusals[0]
        instance = f"{refusal.provider}/{refusal.region}/{refusal.instance}"
        more = f", and {len(cleaned.refusals) - 1} more" if len(cleaned.refusals) > 1 else ""
        raise InputError(
            f"{source}: none of its rows is a price that can be used: {instance}: "
            f"{refusal.reason}{more}. --refused FILE says why of each."
        )
    return cleaned


def _counts(cleaned: Ingested) -> str:
    return (
        f"{len(cleaned.offers)} offers, {len(cleaned.refusals)} rows refused, "
        f"{len(cleaned.corrections)} figures corrected"
    )


def _findings(cleaned: Ingested) -> list[Document]:
    """What was refused and corrected."""
    return [asdict(finding) for finding in (*cleaned.refusals, *cleaned.corrections)]


def _findings_table(cleaned: Ingested) -> Listing:
    """What was refused and corrected, up to a number of rows."""
    from accelsim.report.listing import Listing

    rows = _findings(cleaned)
    shown = rows[:_MOST_SHOWN]
    if more := len(rows) - len(shown):
        blank = dict.fromkeys(_FINDING, "")
        shown.append(blank | {"reason": f"{more:,} more: add --refused FILE"})
    return Listing.of(f"{' | '.join(_FINDING[:-1])} | ~reason", shown)
