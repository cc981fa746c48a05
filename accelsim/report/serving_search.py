"""A search for the cheapest way to serve a load, as a table and as a page with its front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from accelsim.plain import Document, Values
from accelsim.report.calculator import LoadOption, calculator_section
from accelsim.report.listing import plain_table
from accelsim.report.page import Cell, DataTable, Page, Section, axis, cell, figure, label
from accelsim.report.parts import COLOURS, provenance_sections, rows_section
from accelsim.report.quantity import amount, duration, number, usd
from accelsim.report.result_page import known_devices
from accelsim.report.serving import month_words
from accelsim.serving.result import deployment_words

if TYPE_CHECKING:
    from accelsim.serving.search import ServingSearch

_LAYOUT = ("deployment", "seqs of tokens")
_TITLES = (*_LAYOUT, "TPOT", "TTFT", "tokens/s", "$/million", "per token")
_SIMULATED = (*_LAYOUT, "TPOT", "TTFT", "tokens/s", "$/million", "targets")
_MOST_ROWS = 12
_SECONDS_PER_HOUR = 3600.0


def search_view(result: ServingSearch) -> RenderableType:
    """What was simulated, the front, and what cannot run."""
    simulated = plain_table(_SIMULATED, right=range(len(_LAYOUT), len(_SIMULATED)))
    for row in result.simulated:
        simulated.add_row(*_layout(row), *_simulated(row))
    front = plain_table(_TITLES, right=range(len(_LAYOUT), len(_TITLES)))
    for row in result.pareto[:_MOST_ROWS]:
        front.add_row(*_layout(row), *(text for text, _ in _figures(row)))
    more = len(result.pareto) - _MOST_ROWS
    words = f"the front of cost and time per token at full batches{f', {more} more' * (more > 0)}"
    first = _deployed(result.best, result.best["instances"])
    month = f"{first}, a month: {month_words(result.best)}"
    parts: list[RenderableType] = [Text("simulated, cheapest first", style="bold"), simulated]
    parts.append(Text(month))
    parts += [Padding(Text(words, style="bold"), (1, 0, 0, 0)), front]
    if result.rejected:
        lines = "\n".join(f"{count:>8,}  {why}" for why, count in result.rejected.items())
        parts.append(Padding(Text(f"cannot run\n{lines}", style="dim"), (1, 0, 0, 0)))
    return Group(*parts, *(Text(f"caution: {warning}") for warning in result.warnings))


def _deployed(row: Values, instances: int | None = None) -> str:
    counts = int(row["replicas"]), int(row["devices"])
    return deployment_words(row["device"], *counts, row, instances)


def _layout(row: Values) -> list[str]:
    return [
        f"{_deployed(row)} {row['precision']}",
        f"{row['max_seqs']} of {row['max_batch_tokens']:,}",
    ]


def _simulated(row: Values) -> list[str]:
    return [
        duration(row["simulated_tpot_s"]),
        duration(row["simulated_ttft_s"]),
        number(row["simulated_tokens_per_s"]),
        usd(row["simulated_usd_per_million_tokens"]),
        "met" if row["meets_targets"] else "missed",
    ]


def _figures(row: Values) -> list[tuple[str, float | None]]:
    """Texts and numbers."""
    writers: dict[str, Callable[[float | None], str]] = {
        "tpot_s": duration,
        "ttft_s": duration,
        "tokens_per_s": number,
        "cost_usd_per_million_tokens": usd,
        "energy_j_per_token": partial(amount, unit="J"),
    }
    return [(write(row[name]), row[name]) for name, write in writers.items()]


def search_page(document: Values, command: str) -> Page:
    """The page of a search.

    Args:
        document: `ServingSearch.to_dict`, or the same read back.
        command: Command that makes it again.
    """
    best, front = document["best"], document["pareto"]
    words = (
        f"{_deployed(best, best['instances'])} {best['precision']} "
        f"(up to {best['max_seqs']} sequences) serve {document['workload']} for "
        f"{usd(best['simulated_usd_per_million_tokens'])} per million tokens, a token every "
        f"{duration(best['simulated_tpot_s'])}."
    )
    titles = (*_LAYOUT, *(f">{title}" for title in _TITLES[len(_LAYOUT) :]))
    rows: list[list[str | Cell]] = [
        [*_layout(row), *(Cell(text, value) for text, value in _figures(row))] for row in front
    ]
    rows += [_simulated_row(row) for row in document["simulated"]]
    section = Section(
        "front",
        "USD per million tokens against time per token",
        DataTable(titles, rows),
        "Configurations that no other beats in both, replicas at full batches; simulated ones as "
        "the load left them.",
        _picture(front, document["simulated"], document["inputs"].get("slo") or {}),
    )
    refused = [{"configurations": n, "why": why} for why, n in document["rejected"].items()]
    devices = known_devices([str(row["device"]) for row in front])
    about = {"inputs": document["inputs"], "provenance": document["provenance"], "device": "search"}
    sections = [
        section,
        *_costs(document["simulated"]),
        rows_section("rejected", "What cannot run", refused),
        *provenance_sections([about], devices),
    ]
    title = f"{document['workload']}: {document['considered_count']:,} ways to serve it"
    return Page.of(title, (words,), sections, command, document["warnings"])


def _simulated_row(row: Values) -> list[str | Cell]:
    """A configuration as the load left it; times to the first token and energy are not kept."""
    name, *about = _layout(row)
    return [
        *(f"{name}, simulated", *about),
        *(cell(row["simulated_tpot_s"], duration), ""),
        cell(row["simulated_tokens_per_s"], number),
        *(cell(row["simulated_usd_per_million_tokens"], usd), ""),
    ]


def _costs(simulated: Sequence[Values]) -> list[Section]:
    """Cost of other loads on the configurations that were simulated."""
    options = [
        LoadOption(
            f"replica of {' of '.join(_layout(row))}",
            row["simulated_tokens_per_s"] / row["replicas"],
            row["simulated_usd_per_million_tokens"]
            / 1e6
            * row["simulated_tokens_per_s"]
            / row["replicas"]
            * _SECONDS_PER_HOUR,
            devices=round(row["devices"] / row["replicas"]),
        )
        for row in simulated
        if row["simulated_usd_per_million_tokens"] and row["simulated_tokens_per_s"]
    ]
    if not options:
        return []
    text = "Replicas at the rate of the simulated load, which they need not be full at."
    load = simulated[0]["simulated_tokens_per_s"]
    return [calculator_section(options, load, "tokens", text, name="cost")]


def _picture(
    front: Sequence[Values],
    simulated: Sequence[Values],
    slo: Values,
) -> Document:
    devices = dict.fromkeys(row["device"] for row in front)
    traces = [
        _points(name, [row for row in front if row["device"] == name], "circle") for name in devices
    ]
    traces.append(_points("simulated", simulated, "x", "simulated_"))
    if slo.get("tpot_s") is not None:
        costs = [row["cost_usd_per_million_tokens"] for row in front]
        line = {"type": "scatter", "mode": "lines", "name": "target of time per token"}
        ends = {"x": [slo["tpot_s"]] * 2, "y": [min(costs), max(costs)]}
        traces.append(line | ends | {"line": {"dash": "dash", "color": COLOURS[6]}})
    return figure(
        traces,
        xaxis=axis("time per token, s", type="log"),
        yaxis=axis("USD per million tokens", type="log"),
    )


def _points(name: str, rows: Sequence[Values], symbol: str, prefix: str = "") -> Document:
    cost = "simulated_usd_per_million_tokens" if prefix else "cost_usd_per_million_tokens"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "x": [row[f"{prefix}tpot_s"] for row in rows],
        "y": [row[cost] for row in rows],
        "text": [label(" ".join(_layout(row))) for row in rows],
        "hovertemplate": "%{text}<br>%{x:.4g} s, %{y:.4g} USD<extra></extra>",
        "marker": {"symbol": symbol, "size": 10},
    }
