"""``accelsim plan`` and ``accelsim init``: what to rent for a load."""

from __future__ import annotations

from pathlib import Path

import typer

from accelsim.cli.entry import tell
from accelsim.cli.options import with_help
from accelsim.cli.result_writer import ResultWriter, with_handover
from accelsim.option import argument, option

#: Exit code where no fleet keeps all limits.
_NO_PLAN = 3


@with_handover
def plan(
    output: ResultWriter,
    scenario: Path = argument("Scenario (YAML or JSON); accelsim init writes one.", "FILE"),
) -> None:
    """Recommend the cheapest fleet for services and jobs, and say what certainty costs; exit code 3
    if no fleet keeps all limits.
    """
    from accelsim.capacity.plan import plan as recommend
    from accelsim.report.capacity import capacity_view, fleet_rows

    with output.progress("planning") as report:
        result = recommend(scenario, report=report)
    if output.folder is not None and result.recommended is not None:
        from datetime import UTC, datetime

        from accelsim.capacity.assignment import of_plan
        from accelsim.capacity.focus import focus_rows
        from accelsim.files.formats import csv_text

        today = datetime.now(tz=UTC).date()
        costs = focus_rows(result.recommended, result.scenario.name, today)
        output.hand_over(of_plan(result), {"focus.csv": csv_text(costs)})
    output.emit(result, capacity_view, rows=fleet_rows(result))
    if result.recommended is None:
        raise typer.Exit(_NO_PLAN)


@with_help
def init(
    out: Path = argument("File to write.", "FILE"),
    force: bool = option("Replace an existing file.", False),
) -> None:
    """Write a commented scenario to start from."""
    from accelsim.capacity.scenario_template import TEMPLATE
    from accelsim.files.output import write_text

    write_text(out, TEMPLATE, force=force)
    tell(f"wrote {out}; answer it with: accelsim plan {out}", dim=True)
