"""``accelsim report``: a page from saved results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import check_report, command_text

__all__ = ["report"]


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT...", help="Files of --format json, or folders of a sweep."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Page to write (HTML).")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write one page from saved results: JSON of any command, or the folder of a sweep."""
    from accelsim.report.page import write_page
    from accelsim.report.result_page import merged_page, result_page
    from accelsim.report.saved import read_result

    check_report(out, force=force)
    with progress_bar("writing the page"):
        found: list[tuple[str, Any]] = [(str(path), read_result(path)) for path in results]
        pages = [(name, result_page(document, "")) for name, document in found]
        write_page(merged_page(pages, command_text()), out, force=force)
    typer.secho(f"wrote {out}; open it in a browser", err=True, dim=True)
