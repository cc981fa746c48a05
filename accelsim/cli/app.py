"""The command tree."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Final

import typer

import accelsim

__all__ = ["COMMANDS", "command_tree"]

#: Commands in the order of the help text, and the module each is in under its own name.
COMMANDS: Final = {
    "estimate": "estimate",
    "compare": "compare",
    "breakeven": "breakeven",
    "devices": "devices",
    "clusters": "clusters",
    "calibrate": "calibrate",
    "workloads": "workloads",
    "capture": "capture",
    "arch": "arch",
    "offers": "offers",
    "validate": "validate",
    "accuracy": "validate",
    "demo": "demo",
}


def command_tree(first_argument: str | None = None) -> typer.Typer:
    """The commands; only the one that is called where the first argument names it, as all take a
    tenth of its time.
    """
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
    app.callback()(_root)
    for name in [first_argument] if first_argument in COMMANDS else COMMANDS:
        command = getattr(import_module(f"accelsim.cli.{COMMANDS[name]}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command()(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"accelsim {accelsim.__version__}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Time, energy and cost of deep learning on CPUs, GPUs, FPGAs and ASICs, before any of them is
    rented.
    """
