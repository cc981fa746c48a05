"""The command tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

import accelsim
from accelsim.cli.command_list import ABOUT, COMMANDS, EPILOG, WIDEST
from accelsim.plain import Document

if TYPE_CHECKING:
    from typer.core import TyperGroup


_SETTINGS: Final[Document] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": WIDEST,
}


def command_list() -> typer.Typer:
    """The program without what its commands do: for its version, and words that are no command, in
    a third of the time that all commands take.
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
        module = import_module(f"accelsim.{COMMANDS[name].module}")
        command = vars(module)[name.replace(" ", "_")]
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name)(command)
    return app


def single_command(name: str) -> Callable[..., object]:
    """A command as a program of its own; call it with `args` and `prog_name`."""
    group = cast("TyperGroup", typer.main.get_command(command_tree(name)))
    return partial(group.commands[name], **_SETTINGS)


def _nothing() -> None:
    """Stands for a command that is listed and not run."""


def _program() -> typer.Typer:
    app = typer.Typer(
        name="accelsim",
        help=ABOUT,
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help starts in half the time and stays readable in logs
        pretty_exceptions_enable=False,
        context_settings=_SETTINGS,
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
    """The program's own options."""
