"""``accelsim offers``: dated prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.errors import InputError, UnknownNameError
from accelsim.option import argument, option
from accelsim.plain import Document

if TYPE_CHECKING:
    from accelsim.economics.offer import Offer

offers = typer.Typer(name="offers", help="List and import prices.", no_args_is_help=True)
#: Findings of an import that its table lists at most; CSV and JSON have all.
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
        "Only with a price of on-demand, spot, committed-1y, committed-3y.", metavar="KIND"
    ),
    sort: str | None = option("Column to sort by, such as usd_per_device_hour.", metavar="COLUMN"),
) -> None:
    """List offers: prices in USD per hour of an instance, and of one device (or vCPU) in it."""
    from accelsim import catalog
    from accelsim.economics.dates import STALE_DAYS
    from accelsim.economics.offer import price_kind
    from accelsim.economics.price import PriceBook
    from accelsim.report.offers import OFFER_COLUMNS, offer_rows, offers_table

    book = PriceBook.load()
    found: Iterable[Offer] = book.offers(None, provider, region, kind)
    if device is not None:
        if device.lower() in {*catalog.DEVICE_GROUPS, "all"}:
            word = device.lower()
            priced = {name: catalog.device(name) for name in book.devices}
            names = {n for n, p in priced.items() if word == "all" or catalog.is_of_class(p, word)}
        else:
            names = {catalog.device(device).name}
        found = [offer for offer in found if offer.device in names]
    rows = offer_rows(found, None if kind is None else price_kind(kind))
    if sort is not None:
        rows = _sorted(rows, sort.replace(*_PER_DEVICE), OFFER_COLUMNS)
    stale = sum(row["is_stale"] for row in rows)
    note = f"{len(rows)} offers, USD per hour; per unit: one device, or one vCPU of a CPU instance"
    note += f"; {stale} prices are older than {STALE_DAYS} days" if stale else ""
    output.emit(rows, lambda: offers_table(rows), columns=OFFER_COLUMNS, note=note)


def _sorted(rows: Sequence[Document], column: str, columns: Sequence[str]) -> list[Document]:
    """Rows by a column, unknown values last.

    Raises:
        UnknownNameError: If there is no such column.
    """
    if column not in columns:
        raise UnknownNameError("column", column, columns, f"Sort by one of: {', '.join(columns)}.")
    known = [row for row in rows if row[column] is not None]
    return sorted(known, key=lambda row: row[column]) + [r for r in rows if r[column] is None]


@offers.command("import")
@with_output
def import_offers(
    output: ResultWriter,
    source: str = argument("CSV file of a price feed, or skypilot:DIR of its catalogue.", "SOURCE"),
    prices: Path | None = option("Price file to write.", metavar="FILE"),
    as_of: str = option("Date of prices that the feed gives none of.", "", "DATE"),
) -> None:
    """Clean a price feed into a price file of yours, and show what was refused or corrected."""
    from dataclasses import asdict

    from accelsim.economics.feeds.price_lists import offers_csv
    from accelsim.economics.feeds.sources import import_offers as read_feed
    from accelsim.economics.price import PRICE_PATH_VARIABLE
    from accelsim.files.output import write_text
    from accelsim.report.listing import Listing

    found = read_feed(source, as_of)
    if prices is not None and not found.offers:
        remedy = f"{prices} is not written; without --prices each row says why."
        raise InputError(f"{source}: none of its rows is a price that can be used. {remedy}")
    if prices is not None:
        write_text(prices, offers_csv(found.offers), force=output.force)
        output.wrote(prices, f"; to use it: export {PRICE_PATH_VARIABLE}={prices}")
    rows = [asdict(finding) for finding in (*found.refusals, *found.corrections)]
    shown = rows[:_MOST_SHOWN]
    if more := len(rows) - len(shown):
        blank = dict.fromkeys(_FINDING, "")
        shown.append(blank | {"reason": f"{more:,} more: add --format csv"})
    note = f"{len(found.offers)} offers, {len(found.refusals)} rows refused"
    output.emit(
        rows,
        lambda: Listing.of(f"{' | '.join(_FINDING[:-1])} | ~reason", shown),
        columns=_FINDING,
        note=f"{note}, {len(found.corrections)} figures corrected",
    )
