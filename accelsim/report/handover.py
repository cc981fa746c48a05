"""Lines that were checked, what fits on a board, what changes between two plans: for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from accelsim.plain import Values
from accelsim.quantity import decimal, say, written
from accelsim.report.listing import Listing, panel

if TYPE_CHECKING:
    from accelsim.handover.check import LineCheck
    from accelsim.handover.difference import PlanDifference
    from accelsim.handover.fits import Fits

_PROBLEMS = "option | ~problem | ~remedy"
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
    figures = result.figures()
    known = {**result.inputs, **figures}
    count = len(result.problems)
    head = "fits" if result.fits else f"does not fit: {count} problem{'s' * (count > 1)}"
    lines = {title: said for title, words in _LINES.items() if (said := say(words, known))}
    problems = [Padding(Listing.of(_PROBLEMS, figures["problems"]), (1, 0))] * bool(count)
    notes = (Text(note, style="dim") for note in result.notes)
    return Group(Text(head), *problems, panel("line", lines.items()), *notes)


def fits_view(result: Fits) -> RenderableType:
    """What of a model fits on a board: the best way first, then all of them.

    Args:
        result: The answer.
    """
    figures, best = result.figures(), result.best
    running = [way for way in figures["ways"] if not way["reason"]]
    if best is None:
        head = f"{result.workload} does not run on {result.device} with {result.context:,} tokens"
    else:
        cpu = f", {best.host_layers} layers on {result.host}" if best.host_layers else ""
        rate = f"{decimal(best.tokens_per_s)} tokens/s"
        head = f"{result.workload} on {result.device}: {best.precision}{cpu}, {rate}"
    kept = "{device_memory_bytes}, of which a program gets {memory_available_bytes}"
    lines = [("memory", say(kept, figures)), ("context", f"{result.context:,} tokens")]
    if best is not None and best.line:
        lines.append(("run it", best.line))
    others = [
        Text(f"{w['stack']} {w['precision']}: {w['reason']}", style="dim")
        for w in figures["ways"]
        if w["reason"]
    ]
    notes = (Text(note, style="dim") for note in result.warnings)
    table = [Padding(Listing.of(_WAYS, running), (1, 0))]
    return Group(Text(head), panel("fits", lines), *table * bool(running), *others, *notes)


def difference_view(result: PlanDifference) -> RenderableType:
    """What changes: a sentence, and a row for each change.

    Args:
        result: The two that were compared.
    """
    from accelsim.handover.difference import name_words

    rows = [{**row, "what": name_words(row["what"]), **_shown(row)} for row in result.changes]
    table = Listing.of("~what | ~before | ~after | change | verdict", rows)
    return Group(Text(result.sentence), *[Padding(table, (1, 0, 0, 0))] * bool(rows))


def _shown(row: Values) -> dict[str, str]:
    """Both sides and the change as texts; what is not said is empty."""
    values = {"before": row["before"], "after": row["after"], "signed": row["change_fraction"]}
    texts = {
        side: "" if value is None else written("signed" if side == "signed" else row["what"], value)
        for side, value in values.items()
    }
    return {"before": texts["before"], "after": texts["after"], "change": texts["signed"]}
