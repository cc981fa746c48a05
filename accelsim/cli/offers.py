"""``accelsim offers``: dated prices."""

from __future__ import annotations

from typing import Annotated

import typer

from accelsim.cli import options as opt
from accelsim.cli.sink import Sink
from accelsim.report.formats import OutputFormat

__all__ = ["offers"]

offers = typer.Typer(name="offers", help="List prices.", no_args_is_help=True)


@offers.command("list")
def list_offers(
    device: Annotated[
        str | None, typer.Option("--device", "-d", metavar="NAME", help="Only this device's.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Only this provider's.")
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", metavar="CODE", help="Only this region's.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Only with a price of on-demand, spot, committed-1y, committed-3y.",
        ),
    ] = None,
    output_format: opt.FormatOption = OutputFormat.TABLE,
    out: opt.OutOption = None,
    force: opt.ForceOption = False,
    quiet: opt.QuietOption = False,
) -> None:
    """List offers: prices in USD per hour of an instance, and of one device (or vCPU) in it."""
    sink = Sink(output_format, out, force, quiet)
    sink.check()
    from accelsim import catalog
    from accelsim.economics.offer import price_kind
    from accelsim.economics.price import PriceBook
    from accelsim.report.offers import OFFER_COLUMNS, offer_rows, offers_table

    name = None if device is None else catalog.device(device).name
    found = PriceBook.load().offers(name, provider, region, kind)
    rows = offer_rows(found, None if kind is None else price_kind(kind))
    note = f"{len(rows)} offers, USD per hour; per unit: one device, or one vCPU of a CPU instance"
    sink.emit(rows, lambda: offers_table(rows), columns=OFFER_COLUMNS, note=note)
