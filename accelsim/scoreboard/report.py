"""The scoreboard as plain data and as Markdown.

Figures are rounded to four digits so that a report that is written again differs only where a
figure does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from accelsim.plain import Document, Values, grouped
from accelsim.scoreboard.scored_rows import ScoredRows
from accelsim.scoreboard.scores import GroupScore, Scoreboard, SuiteScore
from accelsim.workloads.graph import FloatArray

_ROW_HEAD = ("suite", "device", "profile")
_ROW_TAIL = (
    "configuration",
    "tier",
    "measured_s",
    "predicted_s",
    "low_s",
    "high_s",
    "roofline_s",
    "error_fraction",
    "refusal",
)


def scoreboard_dict(board: Scoreboard) -> Document:
    """The scoreboard as plain values, ready for JSON."""
    return {
        "suites": {score.suite.name: _suite(score) for score in board.suites},
        "skipped": dict(board.skipped),
        "bad_data": [asdict(problem) for problem in board.problems],
    }


def _suite(score: SuiteScore) -> Document:
    head: Document = {
        "tier": score.tier,
        "title": score.suite.title,
        "rows_asked": score.rows_asked,
        "systems": score.systems,
        "rows_used_in_fit": score.rows_used_in_fit,
        "refused": dict(score.refused),
    }
    body = _rounded(asdict(score.figures))
    if score.suite.is_ranked:
        body["device_ranking_tau"] = _round(score.ranking_tau)
    if score.suite.findings is not None:
        body |= score.suite.findings(score.rows)
    key = score.suite.group_key
    return (
        head
        | body
        | {"notes": dict(score.notes), "groups": [_group(group, key) for group in score.groups]}
    )


def _group(group: GroupScore, key: str) -> Document:
    head: Document = {
        "device": group.device,
        "profile": group.profile or None,
        key: group.group,
        "tier": group.tier or "none",
        "rows_asked": group.rows_asked,
        "refused": dict(group.refused),
    }
    return head | _rounded(asdict(group.figures)) | {"is_view": group.is_view}


def _rounded(values: Values) -> Document:
    return {name: _round(value) for name, value in values.items()}


def _round(value: Any) -> Any:
    """Four digits; None for what is no number, as of an error relative to next to nothing."""
    if not isinstance(value, float):
        return value
    return round(value, 4) if math.isfinite(value) else None


def row_records(board: Scoreboard) -> Iterator[Document]:
    """Every row asked: what was measured and predicted, or why it was refused."""
    for columns in row_columns(board):
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))


def row_names(board: Scoreboard) -> tuple[str, ...]:
    """Names of the columns of `row_columns`, over all suites."""
    keys = dict.fromkeys(score.suite.group_key for score in board.suites)
    return (*_ROW_HEAD, *keys, *_ROW_TAIL)


def row_columns(board: Scoreboard) -> Iterator[dict[str, list[Any]]]:
    """The same as columns, one mapping per batch of rows."""
    for score in board.suites:
        for batch in score.rows:
            if len(batch):
                yield _row_columns(score, batch)


def _row_columns(score: SuiteScore, batch: ScoredRows) -> dict[str, list[Any]]:
    def always(value: str) -> list[Any]:
        return [value] * len(batch)

    head = zip(_ROW_HEAD, map(always, (score.suite.name, batch.device, batch.profile)), strict=True)
    error = batch.predicted_s / batch.measured_s - 1.0
    times = (
        batch.measured_s,
        batch.predicted_s,
        batch.low_s,
        batch.high_s,
        batch.roofline_s,
        error,
    )
    tail = (batch.label.tolist(), always(batch.tier), *map(_known, times), always(batch.refusal))
    return {
        **dict(head),
        score.suite.group_key: batch.group.tolist(),
        **dict(zip(_ROW_TAIL, tail, strict=True)),
    }


def _known(values: FloatArray) -> list[float | None]:
    """Plain numbers; None where there is none."""
    numbers = values.tolist()
    if np.isfinite(values).all():
        return numbers  # type: ignore[no-any-return]
    return [value if math.isfinite(value) else None for value in numbers]


_INTRODUCTION = """\
Written by `python -m tools.scoreboard`; do not edit. Errors are |predicted / measured - 1|; bias is above 0 where
predictions are too slow; coverage is the share of rows inside their 90 % interval, width its median relative to
the prediction, score the mean of width + 20 x what a row lies outside. Systems are the boards, models or engines
that are left out whole where an interval is made.
Roofline is the MAPE of max(FLOP / peak, bytes / bandwidth) on the same rows."""  # noqa: E501


def markdown(report: Values) -> str:
    """A report for people.

    Args:
        report: Result of `scoreboard_dict`.
    """
    suites = list(report["suites"].items())
    lines = ["# Accuracy", "", _INTRODUCTION, "", *_markdown_table(suites, "suite")]
    for name, suite in suites:
        lines += ["", f"## {name}: {suite['title']}", "", *_suite_notes(suite), ""]
        key = "operator" if suite["groups"] and "operator" in suite["groups"][0] else "model"
        shown = [
            (f"{group['device']} · {group[key]}", group)
            for group in suite["groups"]
            if group["rows_answered"]
        ]
        lines += _markdown_table(shown, f"device · {key}")
    return "\n".join(lines) + "\n"


def _suite_notes(suite: Values) -> list[str]:
    lines = [f"- {count:,} rows refused: {reason}" for reason, count in suite["refused"].items()]
    if used := suite["rows_used_in_fit"]:
        lines.append(f"- {used:,} rows of shapes that fits may have used are not scored")
    notes = grouped(suite["notes"], suite["notes"].__getitem__)
    lines += [f"- {', '.join(devices)}: {note}" for note, devices in notes.items()]
    if (ranking := suite.get("device_ranking_tau")) is not None:
        lines.append(f"- choosing the device: mean Kendall tau {ranking:.2f}")
    for knee in suite.get("knees", ()):
        at = f"measured at batch {knee['measured_batch']}, predicted at {knee['predicted_batch']}"
        lines.append(f"- knee of {knee['device']} {knee['sweep']}: {at}")
    return [f"- systems: {suite['systems']}", *(lines or ["- every row answered"])]


#: Figures of a table by the heading of their column.
_FIGURES = {
    "MAPE": "mape_fraction",
    "median": "median_ape_fraction",
    "p90": "p90_ape_fraction",
    "max": "max_ape_fraction",
    "bias": "bias_fraction",
    "tau": "kendall_tau",
    "coverage": "interval_coverage_fraction",
    "width": "interval_width_fraction",
    "score": "interval_score_fraction",
    "roofline": "roofline_mape_fraction",
}


def _markdown_table(rows: Sequence[tuple[str, Values]], first: str) -> list[str]:
    headers = " | ".join((first, "tier", "rows", "answered", *_FIGURES))
    lines = [f"| {headers} |", "|---|---|" + "---:|" * (len(_FIGURES) + 2)]
    for name, values in rows:
        cells = [name, values["tier"], f"{values['rows_asked']:,}", f"{values['rows_answered']:,}"]
        cells += [_cell(field, values[field]) for field in _FIGURES.values()]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(field: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if field == "kendall_tau" else f"{100 * value:.1f} %"
