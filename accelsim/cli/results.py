"""``accelsim results``: what to read from a sweep's points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.option import REQUIRED, argument, option
from accelsim.plain import Document
from accelsim.quantity import written

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from accelsim.report.listing import Listing
    from accelsim.report.page import Page

results = typer.Typer(name="results", help="Read the points of sweeps.", no_args_is_help=True)


@results.command("top")
@with_output
def top_results(
    output: ResultWriter,
    folder: Path = argument("Folder of a sweep.", "DIR"),
    by: str = option("Figure to minimise; COLUMN:max maximises.", REQUIRED, "COLUMN"),
    count: int = option("Number of points.", 10, "N", "--count -n"),
    where: str = option("Only points with these values.", "", "COLUMN=VALUE,..."),
) -> None:
    """The best points by one figure."""
    from accelsim.exploration.sweeps.results import points, points_at, top

    best = top(points(folder, where, [by]), by, count).index.tolist()
    _emit(output, points_at(folder, best), [by])


@results.command("pareto")
@with_output
def pareto_results(
    output: ResultWriter,
    folder: Path = argument("Folder of a sweep.", "DIR"),
    objectives: str = option(
        "Two or more figures to minimise; COLUMN:max maximises.", REQUIRED, "COLUMN,..."
    ),
    where: str = option("Only points with these values.", "", "COLUMN=VALUE,..."),
) -> None:
    """The points that no other beats in all objectives at once."""
    from accelsim.exploration.sweeps.results import pareto, points, points_at
    from accelsim.report.sweep_page import drawn_places, pareto_page

    figures = objectives.split(",")
    frame = points(folder, where, figures)
    front = points_at(folder, pareto(frame, figures).index.tolist())

    def page(_: object, command: str) -> Page:
        drawn = points_at(folder, drawn_places(frame))
        return pareto_page(drawn, front, figures, command, len(frame))

    _emit(output, front, figures, page=page)


@results.command("pivot")
@with_output
def pivot_results(
    output: ResultWriter,
    folder: Path = argument("Folder of a sweep.", "DIR"),
    rows: str = option("Field of the rows.", REQUIRED, "COLUMN"),
    columns: str = option("Field of the columns.", REQUIRED, "COLUMN"),
    values: str = option("Figure to show.", REQUIRED, "COLUMN"),
    how: str = option(
        "How several points of a cell become one: min, max, mean, median, count.", "min", "WAY"
    ),
    where: str = option("Only points with these values.", "", "COLUMN=VALUE,..."),
) -> None:
    """A table of one figure by two fields."""
    from accelsim.exploration.sweeps.results import pivot, points

    frame = points(folder, where, [rows, columns, values])
    table = pivot(frame, rows, columns, values, how).reset_index()
    table.columns = table.columns.map(str)
    _emit(output, table, list(table.columns), unit=values)


@results.command("diff")
@with_output
def diff_results(
    output: ResultWriter,
    before: Path = argument("Folder of a sweep.", "DIR"),
    after: Path = argument("Folder of another.", "DIR"),
    tolerance: float = option("Relative change up to which figures are equal.", 1e-9, "R"),
) -> None:
    """Figures that two sweeps have different at the same points."""
    from accelsim.exploration.sweeps.results import diff, points

    table = diff(points(before), points(after), tolerance)
    counts = table.attrs
    note = (
        f"{counts['shared']:,} points in both, {counts['only_before']:,} only in {before}, "
        f"{counts['only_after']:,} only in {after}"
    )
    _emit(output, table, list(table.columns), note)


def _emit(
    output: ResultWriter,
    frame: pd.DataFrame,
    shown: list[str],
    note: str = "",
    unit: str = "",
    page: Callable[[object, str], Page] | None = None,
) -> None:
    """JSON and CSV have every column, a table those asked for and what names the point."""
    from accelsim.exploration.sweeps.results import NAMED
    from accelsim.files.formats import records

    rows = records(frame)
    names = [name.removesuffix(":max") for name in shown]
    inputs = [name for name in map(str, frame) if name.startswith("asked_")]
    unnamed = [name for name in inputs if name.removeprefix("asked_") not in frame]
    titles = list(dict.fromkeys([n for n in (*NAMED, *unnamed) if n in frame] + names))
    output.emit(
        rows,
        lambda _: _view(rows, titles, unit),
        columns=list(frame.columns),
        note=note,
        page=page,
    )


def _view(rows: list[Document], titles: list[str], unit: str) -> Listing:
    """A listing whose titles are names in a file, and stand as they are."""
    from accelsim.report.listing import Listing, one_line

    cells = [[one_line(written(unit or title, row[title])) for title in titles] for row in rows]
    headers = tuple(map(one_line, titles))
    return Listing(headers, cells, right=frozenset(headers[1:]), fold=frozenset(headers[:1]))
