"""What was learned from measured runs, and what it changes of an answer: for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType

from accelsim.plain import Document, Values
from accelsim.quantity import say, written
from accelsim.report.listing import Listing
from accelsim.report.page import Page, Section, figure, trace
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
_CHANGES = "figure | >without | >90 %=ends | >with your runs=learned | >90 % then=ends_then"
#: Figures that are shown before and after, where a result has them.
SHOWN = (
    *("latency_s", "time_to_first_token_s", "time_per_output_token_s", "throughput_per_s"),
    *("ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "output_tokens_per_s"),
    *("iteration_s", "samples_per_s", "tokens_per_s", "time_to_train_s"),
    *("energy_j", "cost_usd_per_million_tokens", "cost_usd_per_1000"),
)


def learned_view(rows: Sequence[Values]) -> RenderableType:
    """Runs of a profile.

    Args:
        rows: As `accelsim.learning.learn.LearnedFiles.rows` has them.
    """
    shown = [
        {**row, "note": "far from all like it: it says nothing" if row["is_far"] else ""}
        for row in rows
    ]
    return Listing.of(_RUNS, shown)


def systems_view(rows: Sequence[Values]) -> RenderableType:
    """Systems of a profile.

    Args:
        rows: As `accelsim.learning.learn.learned_systems` has them.
    """
    return Listing.of(_SYSTEMS, rows)


def scored_view(summary: Sequence[Values], rows: Sequence[Values]) -> RenderableType:
    """Runs with and without what the others say.

    Args:
        summary: As `accelsim.learning.leave_one_out.ScoredRuns.summary` has it.
        rows: Its rows.
    """
    return Group(Listing.of(_SCORED, summary), "", Listing.of(_LEFT_OUT, rows))


def scored_page(summary: Sequence[Values], rows: Sequence[Values], command: str) -> Page:
    """The report of runs with and without what the others say.

    Args:
        summary: As `scored_view` takes it.
        rows: Likewise.
        command: Command that makes the page again.
    """
    measured = [row["measured_s"] for row in rows]
    names = [row["source"] for row in rows]
    ends = [min(measured), max(measured)]
    drawn = [trace("equal", ends, ends, "lines", line={"color": "#7f8a94", "width": 1})]
    for place, (name, off) in enumerate(
        (("as predicted", "off_fraction"), ("learned from the others", "learned_off_fraction"))
    ):
        times = [time / (1 + row[off]) for time, row in zip(measured, rows, strict=True)]
        mark = {"marker": {"color": COLOURS[place]}}
        drawn.append(trace(name, measured, times, text=names) | mark)
    picture = figure(drawn, "measured time", "predicted time", "xy")
    said = [
        say("{phase}: {runs} runs, median error {error_fraction}, {learned_error_fraction} ", row)
        + say("learned; intervals hold {coverage_fraction}, {learned_coverage_fraction}.", row)
        for row in summary
    ]
    text = "Each run is corrected by all others but those of its own line or file."
    table = Section.of("runs", "Predicted against measured", _LEFT_OUT, rows, text, picture)
    return Page("Runs of your own", tuple(said), (table,), command)


def changes(before: Mapping[str, Metric], after: Mapping[str, Metric]) -> list[Document]:
    """Figures without and with what was learned, one mapping a figure.

    Args:
        before: Metrics of the answer without the profile.
        after: With it.
    """
    names = [n for n in SHOWN if n in after and after[n].value is not None]
    return [
        {
            "figure": name,
            **{f"without_{part}": getattr(before[name], part) for part in ("value", "low", "high")},
            **{f"with_{part}": getattr(after[name], part) for part in ("value", "low", "high")},
        }
        for name in names
    ]


def changes_view(rows: Sequence[Values]) -> RenderableType:
    """Figures without and with what was learned, side by side."""
    shown = []
    for row in rows:
        name = str(row["figure"]).partition(".")[0]
        low_high = [
            [written(name, row[f"{which}_{end}"]) for end in ("value", "low", "high")]
            for which in ("without", "with")
        ]
        (without, *ends), (learned, *ends_then) = low_high
        shown.append(
            {
                "figure": row["figure"],
                "without": without,
                "ends": " to ".join(ends) if row["without_low"] is not None else "",
                "learned": learned,
                "ends_then": " to ".join(ends_then) if row["with_low"] is not None else "",
            }
        )
    return Listing.of(_CHANGES, shown)
