"""The command tree."""

from __future__ import annotations

from typing import Annotated

import typer

import accelsim
from accelsim.cli.arch import arch
from accelsim.cli.breakeven import breakeven
from accelsim.cli.calibrate import calibrate
from accelsim.cli.capture import capture
from accelsim.cli.compare import compare
from accelsim.cli.demo import demo
from accelsim.cli.devices import devices
from accelsim.cli.estimate import estimate
from accelsim.cli.offers import offers
from accelsim.cli.validate import accuracy, validate
from accelsim.cli.workloads import workloads

__all__ = ["app"]

app = typer.Typer(
    name="accelsim",
    help="Time, energy and cost of deep learning on CPUs, GPUs, FPGAs and ASICs, before any of them is rented.",
    epilog="Start with: accelsim demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help starts in half the time and stays readable in logs
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(estimate)
app.command()(compare)
app.command()(breakeven)
app.add_typer(devices)
app.add_typer(calibrate)
app.add_typer(workloads)
app.command()(capture)
app.add_typer(arch)
app.add_typer(offers)
app.command()(validate)
app.command()(accuracy)
app.command()(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"accelsim {accelsim.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Time, energy and cost of deep learning on CPUs, GPUs, FPGAs and ASICs, before any of them is rented."""
