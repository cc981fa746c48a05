"""``accelsim workloads``: list, show and validate workloads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.option import argument, option

if TYPE_CHECKING:
    from accelsim.workloads.model import Workload

workloads = typer.Typer(
    name="workloads", help="List, show and validate workloads.", no_args_is_help=True
)


@workloads.command("list")
@with_output
def list_workloads(
    output: ResultWriter,
    task: str | None = option("Only this task.", metavar="NAME"),
) -> None:
    """List all workloads with their published parameter counts."""
    from accelsim.catalog.workloads import workload, workload_names
    from accelsim.report.workloads import workload_row, workloads_table

    rows = [workload_row(workload(name)) for name in workload_names()]
    rows = [row for row in rows if task is None or row["task"] == task.lower()]
    columns = () if rows else ("name",)
    output.emit(rows, workloads_table, columns=columns, note=f"{len(rows)} workloads")


@workloads.command("show")
@with_output
def show_workload(
    output: ResultWriter,
    name: str = argument("Workload name, alias or file."),
    operators: bool = option("Also show its layers, by group and kind.", False),
) -> None:
    """Show one workload: its size at the default run, and published figures beside ours."""
    from accelsim.catalog.workloads import workload
    from accelsim.report.workloads import workload_document, workload_view

    document = workload_document(workload(name), operators=operators)
    rows = document["operators"] if operators else None
    output.emit(document, workload_view, rows=rows)


@workloads.command("validate")
@with_output
def validate_workloads(
    output: ResultWriter,
    files: list[Path] | None = argument("Files; all known if none.", "[FILE]...", None),
) -> None:
    """Check workloads against the figures published of them; exits with 2 if one differs."""
    from accelsim.catalog.published_figures import check_figures
    from accelsim.report.workloads import checks_table

    rows = [check.to_dict() for workload in _selected(files) for check in check_figures(workload)]
    wrong = sum(not row["agrees"] for row in rows)
    columns = () if rows else ("workload", "quantity", "published", "ours", "agrees")
    note = f"{len(rows) - wrong} of {len(rows)} published figures agree"
    output.emit(rows, partial(checks_table, name="workload"), columns=columns, note=note)
    if wrong:
        raise typer.Exit(2)


def _selected(files: list[Path] | None) -> list[Workload]:
    from accelsim.catalog.workloads import load_workload_file, workload, workload_names

    if files:
        return [load_workload_file(path) for path in files]
    return [workload(name) for name in workload_names()]
