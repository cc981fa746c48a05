"""``accelsim measure next``: which runs would settle a plan's choice, and when to stop."""

from __future__ import annotations

from pathlib import Path

from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.option import argument, option


@with_output
def measure_next(
    output: ResultWriter,
    scenario: Path = argument("Scenario (YAML or JSON), as plan takes it.", "FILE"),
    learned: Path | None = option("Profile of your runs, from accelsim learn.", None, "FILE"),
    runs: int = option("Most runs.", 3),
    months: float = option("Months that the fleet is rented.", 1.0),
) -> None:
    """Say which runs are worth measuring before you rent a plan's fleet, and their price; or that
    none is.
    """
    from accelsim.handover.next_runs import measure_next as choose_runs
    from accelsim.report.handover import next_runs_view

    with output.progress("planning") as report:
        result = choose_runs(scenario, learned=learned, runs=runs, months=months, report=report)
    rows = result.figures()["runs"]
    columns = ("device", "device_count", "configuration", "run_s", "cost_usd", "line", "benchmark")
    output.emit(result, next_runs_view, rows=rows, columns=columns)
