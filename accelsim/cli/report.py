"""``accelsim report``: a page from saved results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.cli.entry import tell
from accelsim.cli.options import with_help
from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import check_report, command_text
from accelsim.errors import InputError
from accelsim.option import REQUIRED, argument, option

if TYPE_CHECKING:
    from accelsim.report.page import Page


@with_help
def report(
    results: list[Path] = argument("Files of --format json, or folders of a sweep.", "RESULT"),
    out: Path = option("Page to write (HTML).", REQUIRED, "FILE"),
    force: bool = option("Replace an existing file.", False),
) -> None:
    """Write one page from saved results: JSON of any command, or the folder of a sweep."""
    from accelsim.exploration.saved import read_result
    from accelsim.report.page import write_page
    from accelsim.report.result_page import merged_page

    check_report(out, force=force)
    with progress_bar("writing the page"):
        documents: list[tuple[str, object]] = [(str(path), read_result(path)) for path in results]
        pages = [(name, _page(name, document)) for name, document in documents]
        write_page(merged_page(pages, command_text()), out, force=force)
    tell(f"wrote {out}; open it in a browser", dim=True)


def _page(name: str, document: object) -> Page:
    """The page of one result.

    Raises:
        InputError: If it is none; with its name, as there may be several.
    """
    from accelsim.report.result_page import result_page

    try:
        return result_page(document, "")
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
