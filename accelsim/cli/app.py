"""The command tree."""

from __future__ import annotations

import csv
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import accelsim


class Command(NamedTuple):
    """Where a command is, and what the list of commands says of it.

    Attributes:
        module: Module of `accelsim.cli` that has it under its own name.
        summary: First paragraph of its help text, so that the list imports no command.
    """

    module: str
    summary: str


def _commands() -> dict[str, Command]:
    """Rows of ``commands.csv`` by name."""
    with Path(__file__).with_name("commands.csv").open(encoding="utf-8", newline="") as file:
        return {name: Command(*words) for name, *words in list(csv.reader(file))[1:]}


#: Commands in the order of the help text.
COMMANDS = _commands()


def command_list() -> typer.Typer:
    """The program without what its commands do: for its help text, its version, and words that are
    no command, in a third of the time that all commands take.
    """
    app = _program()
    for name, command in COMMANDS.items():
        app.command(name, help=command.summary)(_nothing)
    return app


def command_tree(first_argument: str | None = None) -> typer.Typer:
    """The commands; only the one that is called where the first argument names it, as all take a
    tenth of its time.
    """
    app = _program()
    for name in [first_argument] if first_argument in COMMANDS else COMMANDS:
        module = import_module(f"accelsim.cli.{COMMANDS[name].module}")
        command = getattr(module, name.replace(" ", "_"))
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name)(command)
    return app


def _nothing() -> None:
    """Stands for a command that is listed and not run."""


def _program() -> typer.Typer:
    app = typer.Typer(
        name="accelsim",
        help="Time, energy and cost of deep learning on CPUs, GPUs, FPGAs and ASICs, "
        "before any of them is rented.",
        epilog="Start with: accelsim demo",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help starts in half the time and stays readable in logs
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
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
