"""``--report``: a page beside the result."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

from accelsim.errors import InvalidValueError, MissingDependencyError
from accelsim.frozen import frozen
from accelsim.option import option, seconds

#: Endings of a page's name; one without an ending, as a device's, is none of another format.
_ENDINGS = {".html", ".htm", ""}


@frozen
class PageLimits:
    """What the page of a comparison draws as lines."""

    slo_s: float | None = option(
        "Longest time of a batch, such as 50ms. The page draws it and says who keeps it.",
        metavar="TIME",
        flags="--slo",
        parse=seconds,
    )
    budget_usd: float | None = option(
        "Most USD per 1,000 samples. The page draws it and says who keeps it.",
        metavar="USD",
        flags="--budget",
    )


def check_report(path: Path | None, out: Path | None = None, *, force: bool = False) -> None:
    """Refuse a bad path of a page, or a missing library, before any work is done.

    Args:
        path: File of the page; None for none.
        out: File of the result.
        force: Whether an existing file may be replaced.

    Raises:
        InvalidValueError: If the page and the result are one file, or the page's name ends in
            another format's.
        MissingDependencyError: If plotly is not installed.
        OutputError: If the file exists or cannot be written.
    """
    if path is None:
        return
    from accelsim.files.output import check_output

    if path.suffix.lower() not in _ENDINGS:
        allowed = "a name ending in .html: the page is HTML"
        raise InvalidValueError("report", str(path), allowed)
    if find_spec("plotly") is None:
        raise MissingDependencyError("plotly", "report")
    if out is not None and out.absolute() == path.absolute():
        raise InvalidValueError("report", str(path), "another file than that of --out")
    check_output(path, force=force)


def command_text() -> str:
    """The command that runs, as a shell takes it; --force is the user's to add again."""
    from accelsim.cli.entry import ARGUMENTS

    return shlex.join(word for word in ARGUMENTS.get() if word != "--force")
