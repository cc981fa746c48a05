"""Lines that were checked, what fits on a board, what changes between two plans, and runs to
measure before a fleet is rented: for a terminal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.confidence.quantiles import Z90
from accelsim.plain import Document, Values
from accelsim.quantity import decimal, say, written
from accelsim.report.listing import Listing, filled, notes, panel

if TYPE_CHECKING:
    from accelsim.handover.check import LineCheck
    from accelsim.handover.difference import PlanDifference
    from accelsim.handover.fits import Fits
    from accelsim.handover.next_runs import NextRuns

_PROBLEMS = "option | ~problem | ~remedy"
_FLEETS = "fleet | >USD/month=cost_usd_per_month | >90 %=ends"
_RUNS = "device | >devices=device_count | ~configuration | >time=run_s | >price=cost_usd"
_WAYS = (
    "format=precision | stack | >weights=weight_bytes | >context={longest_context:whole} | "
    ">CPU layers={host_layers:whole} | >tokens/s={tokens_per_s:decimal} | "
    ">90 %={tokens_low_per_s:decimal} to {tokens_high_per_s:decimal} | "
    ">first token=time_to_first_token_s"
)
#: What the panel says of a line, row by row.
_LINES = {
    "program": "{program} {version}[, {workload}][ on {devices:whole} {device}]",
    "memory": "[{memory_bytes} on a device][{kv_cache_tokens:whole} tokens of cache]",
    "load": "[{load.users} users: ][{load.rate_per_s} requests/s: ]"
    "[{throughput_requests_per_s} requests/s, {output_tokens_per_s:number} tokens/s]"
    "[{iteration_s} an iteration, {tokens_per_s:number} tokens/s, MFU {mfu_fraction}]",
    "first token": "[{ttft_s.p50} median, {ttft_s.p99} p99]",
    "next tokens": "[{tpot_s.p50} median, {tpot_s.p99} p99]",
    "cost": "[{cost_usd_per_hour} an hour][, {cost_usd_per_million_tokens} per million tokens]"
    "[, {cost_usd_per_month} a month]",
}


def check_view(result: LineCheck) -> RenderableType:
    """A line: what speaks against it, what it gives and costs.

    Args:
        result: The line that was checked.
    """
    figures, count = result.figures(), len(result.problems)
    verdict = "fits" if result.fits else f"does not fit: {count} problem{'s' * (count > 1)}"
    problems = ("", Listing.of(_PROBLEMS, figures["problems"]), "") if count else ()
    lines = filled(_LINES, {**result.inputs, **figures})
    return Group(Text(verdict), *problems, panel("line", lines), *notes(result.notes))


def fits_view(result: Fits) -> RenderableType:
    """What of a model fits on a board: the best way first, then all of them.

    Args:
        result: The answer.
    """
    figures, best = result.figures(), result.best
    verdict = f"{result.workload} does not run on {result.device} with {result.context:,} tokens"
    if best is not None:
        cpu = f", {best.host_layers} layers on {result.host}" if best.host_layers else ""
        rate = f"{decimal(best.tokens_per_s)} tokens/s"
        verdict = f"{result.workload} on {result.device}: {best.precision}{cpu}, {rate}"
    memory = say("{device_memory_bytes}, of which a program gets {memory_available_bytes}", figures)
    lines = [("memory", memory), ("context", f"{result.context:,} tokens")]
    if best is not None and best.line:
        lines.append(("run it", best.line))
    running = [way for way in figures["ways"] if not way["reason"]]
    refused = [
        f"{way['stack']} {way['precision']}: {way['reason']}"
        for way in figures["ways"]
        if way["reason"]
    ]
    table = ("", Listing.of(_WAYS, running), "") if running else ()
    remarks = notes([*refused, *result.warnings])
    return Group(Text(verdict), panel("fits", lines), *table, *remarks)


def difference_view(result: PlanDifference) -> RenderableType:
    """What changes: a sentence, and a row for each change.

    Args:
        result: The two that were compared.
    """
    rows = [_change(row) for row in result.changes]
    table = Listing.of("~what | ~before | ~after | change | verdict", rows)
    return Group(Text(result.sentence), *(("", table) if rows else ()))


def _change(row: Values) -> Document:
    """Both sides and the change as texts; what is not said is empty."""
    from accelsim.handover.difference import name_words

    names = {"before": row["what"], "after": row["what"], "change_fraction": "signed"}
    texts = {
        field: "" if row[field] is None else written(name, row[field])
        for field, name in names.items()
    }
    return {**row, **texts, "what": name_words(row["what"]), "change": texts["change_fraction"]}


def next_runs_view(result: NextRuns) -> RenderableType:
    """The decision, what it may lose, the runs with their lines, or that it is safe.

    Args:
        result: The answer of `accelsim.handover.next_runs.measure_next`.
    """
    fleets = [
        {**row, "ends": f"x {math.exp(Z90 * row['log_sigma']):.2f}"} for row in result.alternatives
    ]
    views: list[RenderableType] = [Text(_sentence(result)), "", Listing.of(_FLEETS, fleets)]
    if result.runs:
        views += ["", Listing.of(_RUNS, result.figures()["runs"]), ""]
    for run in result.runs:
        lines = [f"  {line}" for line in (run.line, run.benchmark) if line]
        views += map(Text, (f"{run.device}:", *lines))
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
    measured = "one run" if count == 1 else f"{count} runs"
    return f"{chosen}. Measure {measured} for {paid}: they save {saves}."
