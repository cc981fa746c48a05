"""``--report``: a page beside the result."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from accelsim.cli.result_writer import ResultWriter
    from accelsim.economics.offer import Quote
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.planning.estimate import Estimate
    from accelsim.report.page import Page

__all__ = ["check_report", "command_text", "offer_quote", "write_report"]

_NEEDED: Final = ("jinja2", "plotly")


def check_report(path: Path | None, output: ResultWriter) -> None:
    """Refuse a bad report path, or a missing library, before any work is done.

    Args:
        path: File of the report; None for none.
        output: Where the result goes.

    Raises:
        InvalidValueError: If the report and the result are one file.
        MissingDependencyError: If jinja2 or plotly is not installed.
        OutputError: If the file exists or cannot be written.
    """
    from accelsim.errors import InvalidValueError, MissingDependencyError
    from accelsim.report.output import check_output

    if path is None:
        return
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingDependencyError(package, "report")
    if output.out is not None and output.out.absolute() == path.absolute():
        raise InvalidValueError("report", str(path), "another file than that of --out")
    check_output(path, force=output.force)


def write_report(path: Path, page: Page, output: ResultWriter) -> None:
    """Write a page and say so."""
    from accelsim.report.page import write_page

    write_page(page, path, force=output.force)
    output.note(f"wrote {path}; open it in a browser")


def offer_quote(estimate: Estimate, profile: DeviceProfile | None = None) -> Quote | None:
    """The offer behind an estimate's cost, sooner where the device is given; None where there is
    none.
    """
    from accelsim.economics.price import PriceBook

    if estimate.offer is None:
        return None
    whole = None if profile is None else getattr(profile, "slice_of", None) or profile.name
    return PriceBook.load(device=whole).find(estimate.offer)


def command_text() -> str:
    """The command that runs, as a shell takes it; --force is the user's to add again."""
    from accelsim.cli.entry import ARGUMENTS

    words = [word for word in ARGUMENTS.get() if word != "--force"]
    return shlex.join(["accelsim", *words])
