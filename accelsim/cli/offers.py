"""``accelsim offers``: dated prices."""

from __future__ import annotations

import typer

from accelsim.cli.result_writer import ResultWriter, with_output

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

    name = None if device is None else catalog.device(device).name
    found = PriceBook.load().offers(name, provider, region, kind)
    rows = offer_rows(found, None if kind is None else price_kind(kind))
    note = f"{len(rows)} offers, USD per hour; per unit: one device, or one vCPU of a CPU instance"
    output.emit(rows, lambda: offers_table(rows), columns=OFFER_COLUMNS, note=note)
