"""A line that was checked, and what changes between two plans, as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from accelsim.quantity import say
from accelsim.report.listing import Listing, panel

if TYPE_CHECKING:
    from accelsim.handover.check import LineCheck

_PROBLEMS = "option | ~problem | ~remedy"
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
