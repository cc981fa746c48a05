"""A search for the cheapest way to serve a load, as a table and as a page with its front."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.economics.load_cost import LoadOption
from accelsim.economics.result import SECONDS_PER_HOUR
from accelsim.plain import Document, Rows, Values, grouped
from accelsim.quantity import say
from accelsim.report.calculator import calculator_section
from accelsim.report.listing import Listing, notes
from accelsim.report.page import Page, Section, figure, limit_line, points
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
_REPLICA = "replica of {deployed} {precision} of {max_seqs} of {max_batch_tokens}"
_COST = "cost_usd_per_million_tokens"
_MOST_ROWS = 12


def search_view(result: ServingSearch) -> RenderableType:
    """What was simulated, the front, and what cannot run."""
    more = len(result.pareto) - _MOST_ROWS
    front = f"the front of cost and time per token at full batches{f', {more} more' * (more > 0)}"
    best = _deployed(result.best, result.best["instances"])
    rejected = [f"{count:>8,}  {reason}" for reason, count in result.rejected.items()]
    return Group(
        Text("simulated, cheapest first", style="bold"),
        Listing.of(_SIMULATED, _named(result.simulated), gap=2),
        Text(f"{best}, a month: {say(MONTH, result.best)}"),
        "",
        Text(front, style="bold"),
        Listing.of(_FRONT, _named(result.pareto[:_MOST_ROWS]), gap=2),
        *(notes(["", "cannot run", *rejected]) if rejected else ()),
        *(Text(f"caution: {warning}") for warning in result.warnings),
    )


def _deployed(row: Values, instances: int | None = None) -> str:
    replicas, prompt_replicas = int(row["replicas"]), int(row["prefill_replicas"])
    prompt_devices = prompt_replicas * int(row["prefill_tp"])
    devices = int(row["devices"]) - prompt_devices
    if not prompt_replicas:
        return deployment_words(row["device"], replicas, devices, row, instances)
    layout = {"tp": row["prefill_tp"]}
    prompts = deployment_words("", prompt_replicas, prompt_devices, layout).strip()
    return f"{deployment_words(row['device'], replicas, devices, row)} + {prompts} for prompts"


def _named(rows: Rows) -> list[Document]:
    """Configurations with what they are called."""
    verdicts = {True: "met", False: "missed", None: ""}
    return [
        {**row, "deployed": _deployed(row), "met": verdicts[row.get("meets_targets")]}
        for row in rows
    ]


def search_page(document: Values, command: str) -> Page:
    """The page of a search.

    Args:
        document: `ServingSearch.to_dict`, or the same read back.
        command: Command that makes it again.
    """
    best, slo = document["best"], document["inputs"].get("slo") or {}
    front, simulated = (_named(document[name]) for name in ("pareto", "simulated"))
    answer = say(
        "{deployed} {precision} (up to {max_seqs} sequences) serve {workload} for "
        "{simulated_usd_per_million_tokens} per million tokens, a token every "
        "{simulated_tpot_s}.",
        {**best, **document, "deployed": _deployed(best, best["instances"])},
    )
    as_left = [
        {
            **row,
            "tpot_s": row["simulated_tpot_s"],
            "tokens_per_s": row["simulated_tokens_per_s"],
            "cost_usd_per_million_tokens": row["simulated_usd_per_million_tokens"],
            "ttft_s": None,
            "energy_j_per_token": None,
            "deployed": f"{row['deployed']}, simulated",
        }
        for row in simulated
    ]
    text = (
        "Configurations that no other beats in both, replicas at full batches; simulated ones as "
        "the load left them."
    )
    title = "USD per million tokens against time per token"
    rows, picture = [*front, *as_left], _picture(front, as_left, slo.get("tpot_s"))
    refused = [{"configurations": n, "why": why} for why, n in document["rejected"].items()]
    devices = known_devices([str(row["device"]) for row in front])
    about = {"inputs": document["inputs"], "provenance": document["provenance"], "device": "search"}
    sections = [
        Section.of("front", title, _FRONT, rows, text, picture, most=len(rows)),
        _costs(simulated),
        rows_section("rejected", "What cannot run", refused),
        *provenance_sections([about], devices),
    ]
    title = f"{document['workload']}: {document['considered_count']:,} ways to serve it"
    return Page.of(title, (answer,), sections, command, document["warnings"])


def _costs(simulated: Rows) -> Section | None:
    """Cost of other loads on the configurations that were simulated.

    Estimate: replicas share the simulated rate and cost evenly.
    """
    options = []
    for row in simulated:
        usd_per_million = row["simulated_usd_per_million_tokens"]
        if usd_per_million and row["simulated_tokens_per_s"]:
            rate_per_s = row["simulated_tokens_per_s"] / row["replicas"]
            hourly_usd = usd_per_million / 1e6 * rate_per_s * SECONDS_PER_HOUR
            devices = round(row["devices"] / row["replicas"])
            options.append(LoadOption(say(_REPLICA, row), rate_per_s, hourly_usd, devices=devices))
    if not options:
        return None
    text = "Replicas at the rate of the simulated load, which they need not be full at."
    load_per_s = simulated[0]["simulated_tokens_per_s"]
    return calculator_section(options, load_per_s, "tokens", text, name="cost")


def _picture(front: Rows, simulated: Rows, target_s: float | None) -> Document:
    by_device = grouped(front, itemgetter("device"))
    traces = [_points(device, rows, "circle") for device, rows in by_device.items()]
    traces.append(_points("simulated", simulated, "x"))
    if target_s is not None:
        ends = [end(row[_COST] for row in front) for end in (min, max)]
        traces.append(limit_line("target of time per token", [target_s] * 2, ends))
    return figure(traces, "time per token", "USD per million tokens", "xy")


def _points(name: str, rows: Rows, symbol: str) -> Document:
    return points(
        name,
        rows,
        "tpot_s",
        _COST,
        text="{deployed} {precision} {max_seqs} of {max_batch_tokens}",
        hovertemplate="%{text}<br>%{x:.4g} s, %{y:.4g} USD<extra></extra>",
        marker={"symbol": symbol, "size": 10},
    )
