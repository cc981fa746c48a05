"""What was learned from measured runs, and what it changes of an answer: for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType

from accelsim.plain import Document, Rows
from accelsim.quantity import say, written
from accelsim.report.listing import Listing
from accelsim.report.page import Page, Section, figure, points, trace
from accelsim.report.parts import COLOURS
from accelsim.result import Metric

_RUNS = (
    "~source | phase | model | device | stack | format=precision | >measured=measured_s | "
    ">predicted=predicted_s | >off={off_fraction} | note"
)
_SYSTEMS = (
    "phase | model | device | stack | driver | format=precision | >runs | dates | files | "
    ">off={off_fraction} | >shift={shift_fraction} | >90 % ±={spread_fraction} | "
    ">then ±={learned_spread_fraction}"
)
_SCORED = (
    "phase | >runs | >error={error_fraction} | >learned={learned_error_fraction} | "
    ">90 % holds={coverage_fraction} | >learned holds={learned_coverage_fraction} | "
    ">width={width_fraction} | >learned width={learned_width_fraction}"
)
_LEFT_OUT = (
    "~source | phase | model | device | >measured=measured_s | >predicted=predicted_s | "
    ">off={off_fraction} | >learned={learned_off_fraction}"
)
_CHANGES = "figure | >without | >90 %=without_ends | >with your runs=with | >90 % then=with_ends"
#: Figures that are shown before and after, where a result has them.
SHOWN = (
    *("latency_s", "time_to_first_token_s", "time_per_output_token_s", "throughput_per_s"),
    *("ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "output_tokens_per_s"),
    *("iteration_s", "samples_per_s", "tokens_per_s", "time_to_train_s"),
    *("energy_j", "cost_usd_per_million_tokens", "cost_usd_per_1000"),
)


def learned_view(rows: Rows) -> RenderableType:
    """Runs of a profile.

    Args:
        rows: As `accelsim.learning.learn.LearnedFiles.rows` has them.
    """
    shown = [
        {**row, "note": "far from all like it: it says nothing" if row["is_far"] else ""}
        for row in rows
    ]
    return Listing.of(_RUNS, shown)


def systems_view(rows: Rows) -> RenderableType:
    """Systems of a profile.

    Args:
        rows: As `accelsim.learning.learn.learned_systems` has them.
    """
    return Listing.of(_SYSTEMS, rows)


def scored_view(summary: Rows, rows: Rows) -> RenderableType:
    """Runs with and without what the others say.

    Args:
        summary: As `accelsim.learning.leave_one_out.ScoredRuns.summary` has it.
        rows: Its rows.
    """
    return Group(Listing.of(_SCORED, summary), "", Listing.of(_LEFT_OUT, rows))


def scored_page(summary: Rows, rows: Rows, command: str) -> Page:
    """The report of runs with and without what the others say.

    Args:
        summary: As `scored_view` takes it.
        rows: Likewise.
        command: Command that makes the page again.
    """
    ends = [end(row["measured_s"] for row in rows) for end in (min, max)]
    traces = [trace("equal", ends, ends, "lines", line={"color": "#7f8a94", "width": 1})]
    errors = {"as predicted": "off_fraction", "learned from the others": "learned_off_fraction"}
    for colour, (name, error) in zip(COLOURS, errors.items(), strict=False):
        drawn = [{**row, "time_s": row["measured_s"] / (1 + row[error])} for row in rows]
        marker = {"color": colour}
        traces.append(points(name, drawn, "measured_s", "time_s", text="{source}", marker=marker))
    picture = figure(traces, "measured time", "predicted time", "xy")
    form = (
        "{phase}: {runs} runs, median error {error_fraction}, {learned_error_fraction} learned; "
        "intervals hold {coverage_fraction}, {learned_coverage_fraction}."
    )
    text = "Each run is corrected by all others but those of its own line or file."
    table = Section.of("runs", "Predicted against measured", _LEFT_OUT, rows, text, picture)
    return Page("Runs of your own", tuple(say(form, row) for row in summary), (table,), command)


def changes(before: Mapping[str, Metric], after: Mapping[str, Metric]) -> list[Document]:
    """Figures without and with what was learned, one mapping a figure.

    Args:
        before: Metrics of the answer without the profile.
        after: With it.
    """
    rows = []
    for name in SHOWN:
        if name in after and after[name].value is not None:
            row: Document = {"figure": name}
            for which, metric in (("without", before[name]), ("with", after[name])):
                row |= {
                    f"{which}_value": metric.value,
                    f"{which}_low": metric.low,
                    f"{which}_high": metric.high,
                }
            rows.append(row)
    return rows


def changes_view(rows: Rows) -> RenderableType:
    """Figures without and with what was learned, side by side."""
    shown = []
    for row in rows:
        name = str(row["figure"]).partition(".")[0]
        texts: Document = {"figure": row["figure"]}
        for which in ("without", "with"):
            value, low, high = (
                written(name, row[f"{which}_{end}"]) for end in ("value", "low", "high")
            )
            texts[which] = value
            texts[f"{which}_ends"] = "" if row[f"{which}_low"] is None else f"{low} to {high}"
        shown.append(texts)
    return Listing.of(_CHANGES, shown)
