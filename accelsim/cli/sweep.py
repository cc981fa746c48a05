"""``accelsim sweep``: many answers, kept on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from accelsim.cli.entry import KEPT, terminable
from accelsim.cli.options import with_help
from accelsim.cli.report_file import PageLimits, check_report, command_text
from accelsim.cli.result_writer import ResultWriter
from accelsim.errors import InvalidValueError
from accelsim.files.formats import OutputFormat
from accelsim.frozen import frozen
from accelsim.option import REQUIRED, argument, option
from accelsim.plain import Document

if TYPE_CHECKING:
    from rich.console import RenderableType

    from accelsim.cli.progress import Report
    from accelsim.exploration.sweeps.run import SweepResult


@frozen
class Workers:
    """Where points are answered."""

    workers: int | None = option("Number of processes. Default: one per CPU.")
    executor: str = option(
        "Where points run: local, or dask://HOST:PORT of a cluster.", "local", "WHERE"
    )


@with_help
def sweep(
    where: Annotated[Document, Workers, PageLimits],
    spec: Path = argument("Sweep (YAML or JSON).", "SPEC"),
    out: str = option(
        "Folder of the results; an unfinished sweep continues there.", REQUIRED, "DIR"
    ),
    report: Path | None = option("Also write a page of the points (HTML).", metavar="FILE"),
    output_format: OutputFormat = option(
        "Format of the summary: table, json, csv or md.", OutputFormat.TABLE, flags="--format"
    ),
    force: bool = option("Let --report replace a page.", False),
    quiet: bool = option("Print nothing but the result.", False, flags="--quiet -q"),
) -> None:
    """Answer all points of a sweep and keep them as Parquet; run again, it continues where it
    stopped.
    """
    from accelsim.cli.progress import progress_bar
    from accelsim.exploration.sweeps.run import sweep as run_sweep
    from accelsim.quantity import say

    check_report(report, force=force)
    limits = {f.name: where.pop(f.name) for f in fields(PageLimits) if f.name in where}
    if limits and report is None:
        name, value = next(iter(limits.items()))
        raise InvalidValueError(name.partition("_")[0], value, "no value without --report")
    KEPT.set(lambda: f"{out} keeps the points that are finished; the same command goes on")
    # workers are copies of this process, which has to have no thread then
    bar = progress_bar("sweep", unit="points", quiet=quiet, ticks=False)
    with terminable(), bar as progress:
        result = run_sweep(spec, out, report=_with_rate(progress), **where)
    if report is not None:
        from accelsim.exploration.saved import read_result
        from accelsim.report.page import write_page
        from accelsim.report.result_page import result_page

        with progress_bar("writing the page", quiet=quiet):
            page = result_page(read_result(Path(out)), command_text(), limits)
            write_page(page, report, force=force)
    summary = result.to_dict()
    note = say("in {wall_s}", summary)
    ResultWriter(output_format, quiet=quiet).emit(summary, lambda _: _view(result), note=note)


def _view(result: SweepResult) -> RenderableType:
    """How many points there are, and which have no figures and why."""
    from rich.console import Group
    from rich.text import Text

    from accelsim.exploration.sweeps.results import refusals
    from accelsim.quantity import say
    from accelsim.report.listing import Listing

    form = "{point_count} points in {folder}, {new_count} of them new"
    counts, rows = Text(say(form, result.to_dict())), refusals(result.folder)
    table = Listing.of(">no figures=points_count | ~the first=first | ~why=reason", rows)
    return Group(counts, "", table) if rows else counts


def _with_rate(report: Report) -> Callable[[int, int], None]:
    """A report that shows the points answered a second."""
    start: tuple[int, float] | None = None

    def progress(count: int, total: int) -> None:
        nonlocal start
        now = time.perf_counter()
        start = start or (count, now)
        seconds = now - start[1]
        rate = f"{(count - start[0]) / seconds:,.0f} points/s" if seconds else ""
        report(count, total, rate)

    return progress
