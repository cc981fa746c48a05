"""The commands, and the page that lists them: known without a parser, which takes three quarters of
the time to import.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import get_terminal_size
from textwrap import shorten, wrap
from typing import NamedTuple

ABOUT = (
    "Time, energy and cost of deep learning on CPUs, GPUs, FPGAs and ASICs, before any of them is "
    "rented."
)
EPILOG = "Start with: accelsim demo"
WIDEST = 100
_NARROWEST = 50
_OPTIONS = {
    "--version": "Show the version and exit.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the "
    "installation.",
    "-h, --help": "Show this message and exit.",
}


class Command(NamedTuple):
    """Where a command is, and what the list of commands says of it.

    Attributes:
        module: Module of `accelsim` that has it under its own name.
        summary: First paragraph of its help text, so that the list imports no command.
    """

    module: str
    summary: str


def _commands() -> dict[str, Command]:
    """Rows of ``commands.csv`` by name."""
    with Path(__file__).with_name("commands.csv").open(encoding="utf-8", newline="") as file:
        return {name: Command(*fields) for name, *fields in list(csv.reader(file))[1:]}


#: Commands in the order of the help text.
COMMANDS = _commands()


def help_page() -> str:
    """What the program says of itself, laid out as its commands' pages are."""
    width = max(min(get_terminal_size().columns, WIDEST) - 2, _NARROWEST)
    room = width - 6 - max(map(len, COMMANDS))
    commands = {
        name: shorten(command.summary, room, placeholder="...")
        for name, command in COMMANDS.items()
    }
    lines = [
        "Usage: accelsim [OPTIONS] COMMAND [ARGS]...",
        *("", *wrap(ABOUT, width, initial_indent="  ", subsequent_indent="  ")),
        *("", "Options:", *_listed(_OPTIONS, width)),
        *("", "Commands:", *_listed(commands, width)),
        *("", f"  {EPILOG}"),
    ]
    return "\n".join(lines)


def _listed(texts: Mapping[str, str], width: int) -> Iterator[str]:
    """Names beside texts."""
    column = max(map(len, texts)) + 4
    for name, text in texts.items():
        first = f"  {name}".ljust(column)
        yield from wrap(text, width, initial_indent=first, subsequent_indent=" " * column)
