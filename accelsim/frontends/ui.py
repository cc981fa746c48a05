"""``accelsim ui``: live pages in a browser of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

from accelsim.cli.entry import terminable
from accelsim.cli.options import with_help
from accelsim.errors import InvalidValueError, MissingDependencyError
from accelsim.option import option

_HIGHEST_PORT = 65_535


def _files(_: str, text: str) -> Path:
    return Path(text)


@with_help
def ui(
    port: int = option("Port of 127.0.0.1; no other machine reaches it.", 8080),
    learned: tuple[Path, ...] = option(
        "File of learned runs that the pages may choose; may be repeated.",
        (),
        metavar="FILE",
        parse=_files,
        repeated=True,
    ),
    no_browser: bool = option("Open no browser.", False),
) -> None:
    """Show what-if pages in a browser: answers that follow as you move their options."""
    _check_port(port)
    for file in learned or ():
        if not file.is_file():
            raise InvalidValueError("learned", str(file), "a file of accelsim learn --out")
    try:
        from accelsim.frontends.pages import run
    except ImportError:
        raise MissingDependencyError("nicegui", "ui") from None
    with terminable():
        run(port, [file.resolve() for file in learned or ()], show=not no_browser)


def _check_port(port: int) -> None:
    """Refuse a port that is none, or that another program has.

    Raises:
        InvalidValueError: Naming it.
    """
    if not 1 <= port <= _HIGHEST_PORT:
        raise InvalidValueError("port", port, f"1 to {_HIGHEST_PORT:,}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            allowed = f"a port that is free ({error.strerror})"
            raise InvalidValueError(
                "port", port, allowed, f"Try --port {port % 60000 + 1}."
            ) from None
