"""``accelsim offers``: dated prices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from accelsim.cli.result_writer import ResultWriter, with_output

if TYPE_CHECKING:
    from accelsim.economics.offer import Offer

__all__ = ["offers"]

offers = typer.Typer(name="offers", help="List prices.", no_args_is_help=True)


@offers.command("list")
@with_output
def list_offers(
    output: ResultWriter,
    device: str | None = None,
    provider: str | None = None,
    region: str | None = None,
    kind: str | None = None,
) -> None:
    """List offers: prices in USD per hour of an instance, and of one device (or vCPU) in it."""
    from accelsim import catalog
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
    note = f"{len(rows)} offers, USD per hour; per unit: one device, or one vCPU of a CPU instance"
    output.emit(rows, lambda: offers_table(rows), columns=OFFER_COLUMNS, note=note)
