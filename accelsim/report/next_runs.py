"""Runs to measure before a fleet is rented: for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.confidence.quantiles import Z90
from accelsim.quantity import written
from accelsim.report.listing import Listing

if TYPE_CHECKING:
    from accelsim.handover.next_runs import NextRuns

_FLEETS = "fleet | >USD/month=cost_usd_per_month | >90 %=ends"
_RUNS = "device | >devices=device_count | ~configuration | >time=run_s | >price=cost_usd"


def next_runs_view(result: NextRuns) -> RenderableType:
    """The decision, what it may lose, the runs with their lines, or that it is safe.

    Args:
        result: The answer of `accelsim.handover.next_runs.measure_next`.
    """
    document = result.figures()
    fleets = [
        {**row, "ends": f"x {math.exp(Z90 * row['log_sigma']):.2f}"} for row in result.alternatives
    ]
    views: list[RenderableType] = [
        Text(_sentence(result)),
        Text(""),
        Listing.of(_FLEETS, fleets),
    ]
    if result.runs:
        views += [Text(""), Listing.of(_RUNS, document["runs"]), Text("")]
    for run in result.runs:
        lines = [line for line in (run.line, run.benchmark) if line]
        views += [Text(f"{run.device}:"), *(Text(f"  {line}") for line in lines)]
    return Group(*views)


def _sentence(result: NextRuns) -> str:
    """What to do, in words."""
    over = "a month" if result.months == 1 else f"{result.months:g} months"
    loss = written("cost_usd", result.regret_usd)
    chosen = f"{result.decision} is the choice; over {over} it loses {loss} to the best on average"
    if not result.runs:
        return f"Stop: the decision is safe. {chosen}, and no runs save more than they cost."
    price = sum(run.cost_usd for run in result.runs)
    saves, paid = written("cost_usd", result.saves_usd), written("cost_usd", price)
    count = len(result.runs)
    runs = "one run" if count == 1 else f"{count} runs"
    return f"{chosen}. Measure {runs} for {paid}: they save {saves}."
