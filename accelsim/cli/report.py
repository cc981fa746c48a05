"""``accelsim report``: a page from saved results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from accelsim.cli.options import with_help
from accelsim.cli.progress import progress_bar
from accelsim.cli.report_file import check_report, command_text


@with_help
def report(
    results: list[Path],
    out: Path,
    force: bool = False,
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
