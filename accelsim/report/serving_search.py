"""A search for the cheapest way to serve a load, as a table and as a page with its front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from accelsim.economics.load_cost import LoadOption
from accelsim.plain import Document, Values
from accelsim.quantity import say
from accelsim.report.calculator import calculator_section
from accelsim.report.listing import Listing
from accelsim.report.page import DataTable, Page, Section, figure, limit_line, trace
from accelsim.report.parts import provenance_sections, rows_section
from accelsim.report.result_page import known_devices
from accelsim.report.serving import MONTH
from accelsim.serving.result import deployment_words

if TYPE_CHECKING:
    from accelsim.serving.search_result import ServingSearch

_LAYOUT = "~deployment={deployed} {precision} | >seqs of tokens={max_seqs} of {max_batch_tokens}"
_FRONT = (
    f"{_LAYOUT} | >TPOT=tpot_s? | >TTFT=ttft_s? | >tokens/s=tokens_per_s | >$/million="
    "cost_usd_per_million_tokens | >per token=energy_j_per_token?"
)
_SIMULATED = (
    f"{_LAYOUT} | >TPOT=simulated_tpot_s | >TTFT=simulated_ttft_s | >tokens/s="
    "simulated_tokens_per_s | >$/million=simulated_usd_per_million_tokens | "
    ">within 5 %=near_best_probability | >targets=met"
)
_MOST_ROWS = 12
_SECONDS_PER_HOUR = 3600.0


def search_view(result: ServingSearch) -> RenderableType:
    """What was simulated, the front, and what cannot run."""
    more = len(result.pareto) - _MOST_ROWS
    words = f"the front of cost and time per token at full batches{f', {more} more' * (more > 0)}"
    first = _deployed(result.best, result.best["instances"])
    parts: list[RenderableType] = [
        Text("simulated, cheapest first", style="bold"),
        Listing.of(_SIMULATED, _named(result.simulated), gap=2),
        Text(f"{first}, a month: {say(MONTH, result.best)}"),
        Padding(Text(words, style="bold"), (1, 0, 0, 0)),
        Listing.of(_FRONT, _named(result.pareto[:_MOST_ROWS]), gap=2),
    ]
    if result.rejected:
        lines = "\n".join(f"{count:>8,}  {why}" for why, count in result.rejected.items())
        parts.append(Padding(Text(f"cannot run\n{lines}", style="dim"), (1, 0, 0, 0)))
    return Group(*parts, *(Text(f"caution: {warning}") for warning in result.warnings))


def _deployed(row: Values, instances: int | None = None) -> str:
    replicas, prompts = int(row["replicas"]), int(row["prefill_replicas"])
    of_prompts = prompts * int(row["prefill_tp"])
    counts = replicas, int(row["devices"]) - of_prompts
    if not prompts:
        return deployment_words(row["device"], *counts, row, instances)
    further = deployment_words(row["device"], *counts, row)
    apart = deployment_words("", prompts, of_prompts, {"tp": row["prefill_tp"]}).strip()
    return f"{further} + {apart} for prompts"


def _named(rows: Sequence[Values]) -> list[Document]:
    """Configurations with what they are called."""
    met = {True: "met", False: "missed", None: ""}
    return [
        {**row, "deployed": _deployed(row), "met": met[row.get("meets_targets")]} for row in rows
    ]


def search_page(document: Values, command: str) -> Page:
    """The page of a search.

    Args:
        document: `ServingSearch.to_dict`, or the same read back.
        command: Command that makes it again.
    """
    best, front, simulated = (
        document["best"],
        _named(document["pareto"]),
        _named(document["simulated"]),
    )
    words = say(
        "{deployed} {precision} (up to {max_seqs} sequences) serve {workload} for "
        "{simulated_usd_per_million_tokens} per million tokens, a token every "
        "{simulated_tpot_s}.",
        {**best, **document, "deployed": _deployed(best, best["instances"])},
    )
    left = [
        {**row, **{name: row.get(f"simulated_{name}") for name in ("tpot_s", "tokens_per_s")}}
        | {"cost_usd_per_million_tokens": row["simulated_usd_per_million_tokens"]}
        | {"ttft_s": None, "energy_j_per_token": None, "deployed": f"{row['deployed']}, simulated"}
        for row in simulated
    ]
    section = Section(
        "front",
        "USD per million tokens against time per token",
        DataTable.of(_FRONT, [*front, *left], most=len(front) + len(left)),
        "Configurations that no other beats in both, replicas at full batches; simulated ones as "
        "the load left them.",
        _picture(front, left, document["inputs"].get("slo") or {}),
    )
    refused = [{"configurations": n, "why": why} for why, n in document["rejected"].items()]
    devices = known_devices([str(row["device"]) for row in front])
    about = {"inputs": document["inputs"], "provenance": document["provenance"], "device": "search"}
    sections = [
        section,
        *_costs(simulated),
        rows_section("rejected", "What cannot run", refused),
        *provenance_sections([about], devices),
    ]
    title = f"{document['workload']}: {document['considered_count']:,} ways to serve it"
    return Page.of(title, (words,), sections, command, document["warnings"])


def _costs(simulated: Sequence[Values]) -> list[Section]:
    """Cost of other loads on the configurations that were simulated."""
    options = []
    for row in simulated:
        price, rate = row["simulated_usd_per_million_tokens"], row["simulated_tokens_per_s"]
        if price and rate:
            each = rate / row["replicas"]
            options.append(
                LoadOption(
                    say(
                        "replica of {deployed} {precision} of {max_seqs} of {max_batch_tokens}", row
                    ),
                    each,
                    price / 1e6 * each * _SECONDS_PER_HOUR,
                    devices=round(row["devices"] / row["replicas"]),
                )
            )
    if not options:
        return []
    text = "Replicas at the rate of the simulated load, which they need not be full at."
    load = simulated[0]["simulated_tokens_per_s"]
    return [calculator_section(options, load, "tokens", text, name="cost")]


def _picture(front: Sequence[Values], simulated: Sequence[Values], slo: Values) -> Document:
    devices = dict.fromkeys(row["device"] for row in front)
    traces = [
        _points(name, [row for row in front if row["device"] == name], "circle") for name in devices
    ]
    traces.append(_points("simulated", simulated, "x"))
    if (target := slo.get("tpot_s")) is not None:
        costs = [row["cost_usd_per_million_tokens"] for row in front]
        ends = [min(costs), max(costs)]
        traces.append(limit_line("target of time per token", [target] * 2, ends))
    return figure(traces, "time per token", "USD per million tokens", "xy")


def _points(name: str, rows: Sequence[Values], symbol: str) -> Document:
    return trace(
        name,
        [row["tpot_s"] for row in rows],
        [row["cost_usd_per_million_tokens"] for row in rows],
        text=[say("{deployed} {precision} {max_seqs} of {max_batch_tokens}", row) for row in rows],
        hovertemplate="%{text}<br>%{x:.4g} s, %{y:.4g} USD<extra></extra>",
        marker={"symbol": symbol, "size": 10},
    )
