"""``accelsim plan diff``: what changes between two plans, and whether for the worse."""

from __future__ import annotations

from typing import Annotated

import typer

from accelsim.cli.check import LineWords
from accelsim.cli.entry import WORSE
from accelsim.cli.result_writer import ResultWriter, with_output
from accelsim.economics.device_price import PriceChoice
from accelsim.option import argument, option
from accelsim.plain import Document
from accelsim.serving.loads.arrivals import Arrivals

_SIDE = "Scenario, saved JSON of plan, serve, train or check, or a line of an engine or trainer."


@with_output
def plan_diff(
    output: ResultWriter,
    line_words: LineWords,
    load: Annotated[Document, Arrivals],
    price: PriceChoice,
    old: str = argument(_SIDE, "OLD"),
    new: str = argument("The same, that may take its place.", "NEW"),
    tolerance: float = option("Relative change below which two figures count as equal.", 0.01),
) -> None:
    """Say what changes in USD, kWh, p99 and risk between two plans; exit code 1 if anything gets
    worse.
    """
    from accelsim.handover.difference import difference
    from accelsim.report.handover import difference_view

    with output.progress("comparing"):
        result = difference(old, new, line_words.question(load, price), tolerance)
    rows = result.figures()["changes"]
    columns = ("what", "before", "after", "change_fraction", "verdict")
    output.emit(result, difference_view, rows=rows, columns=columns)
    if result.is_worse:
        raise typer.Exit(WORSE)
