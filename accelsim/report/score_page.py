"""The page of a scoreboard: errors and coverage of every suite, predicted against measured with the
90 % interval, and what was refused or not scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from accelsim.plain import Document, Values
from accelsim.report.accuracy import score_rows
from accelsim.report.formats import grouped
from accelsim.report.page import Cell, DataTable, Page, Section, cell, figure
from accelsim.report.parts import MAX_ROWS, bars, cut, rows_section
from accelsim.report.quantity import decimal, percent, whole

if TYPE_CHECKING:
    from accelsim.report.parity import Series
    from accelsim.scoreboard.scores import Scoreboard

_FIELDS = {
    "mape_fraction": "MAPE",
    "median_ape_fraction": "median",
    "p90_ape_fraction": "p90",
    "max_ape_fraction": "largest",
    "interval_coverage_fraction": "in the 90 % interval",
    "roofline_mape_fraction": "plain roofline",
}
#: Rows of all suites together that parity figures draw.
_MOST_POINTS = 20_000
_MOST_OF_ONE = 6_000
#: Suites that the first words name one by one.
_MOST_SAID = 5
_ROW_TITLES = ("row", ">measured", ">predicted", ">low", ">high", ">error")


def score_page(
    document: Values,
    command: str,
    board: Scoreboard | None = None,
    device: str | None = None,
) -> Page:
    """The report of a validation.

    Args:
        document: The scoreboard as plain values.
        command: Command that makes the page again.
        board: Its rows, for the figures of predicted against measured; None where only figures
            were kept.
        device: Only rows of this device.
    """
    rows = score_rows(document, device)
    if device is not None:
        return _device_page(rows, command, device)
    suites = [row for row in rows if not row["group"]]
    groups = grouped((row for row in rows if row["group"]), itemgetter("suite"))
    refused = [
        {"suite": name, "rows": count, "why": why}
        for name, suite in document["suites"].items()
        for why, count in suite["refused"].items()
    ]
    skipped = [{"suite": name, "why": why} for name, why in document.get("skipped", {}).items()]
    sections = [
        _suites(suites) if suites else None,
        *(_parity(board) if board is not None else ()),
        *(
            _groups(f"groups-{name}", f"{name} by device and model", own)
            for name, own in groups.items()
        ),
        rows_section("refused", "Rows without an answer", refused),
        rows_section("skipped", "Suites not scored", skipped),
    ]
    return Page.of("Predicted against measured", _decision(document, suites), sections, command)


def _decision(document: Values, suites: list[Document]) -> list[str]:
    asked, answered = (
        sum(suite[count] for suite in document["suites"].values())
        for count in ("rows_asked", "rows_answered")
    )
    count = f"{len(suites)} suite{'s' * (len(suites) != 1)}"
    return [f"{count}, {answered:,} of {asked:,} rows answered.", *_said(suites)]


def _said(suites: Sequence[Values]) -> list[str]:
    """Each of few suites in a sentence; of many the median errors from least to largest."""
    if len(suites) <= _MOST_SAID:
        return [
            f"{row['suite']}: median error {percent(row['median_ape_fraction'])}, "
            f"{percent(row['interval_coverage_fraction'])} of the rows in their 90 % interval."
            for row in suites
        ]
    known = [row for row in suites if row["median_ape_fraction"] is not None]
    ordered = sorted(known, key=lambda row: float(row["median_ape_fraction"]))
    if not ordered:
        return []
    least, middle, most = ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]
    half, low, high = (percent(row["median_ape_fraction"]) for row in (middle, least, most))
    said = (
        f"Half of the suites have a median error of at most {half}; the least is {low} "
        f"({least['suite']}), the largest {high} ({most['suite']})."
    )
    return [said]


def _device_page(rows: list[Document], command: str, device: str) -> Page:
    """The page of one device."""
    wholes = [row for row in rows if row["group"] == "all"]
    sections = (_suites(wholes), _groups("rows", "All figures", rows))
    decision = tuple(
        f"{_named(row)}: median error {percent(row['median_ape_fraction'])} of "
        f"{row['rows_answered']:,} rows."
        for row in rows
        if row["group"] == "all" and row["rows_answered"]
    )
    return Page(
        f"Predicted against measured on {device}",
        decision or ("No row of it was answered.",),
        sections,
        command,
    )


def _named(row: Values) -> str:
    table = f" ({row['device']})" if row["device"] else ""
    return f"{row['suite']}{table}, {row['group']}".rstrip(", ")


def _groups(name: str, title: str, rows: list[Document]) -> Section:
    """A row for each device and operator or model."""
    cells = [
        (
            f"{row['device']}, {row['group']}",
            row["tier"] or "none",
            *(cell(float(row[field]), whole) for field in ("rows_asked", "rows_answered")),
            *(cell(row[field], percent) for field in (*_FIELDS, "bias_fraction")),
            row["refused"] or "",
        )
        for row in rows
    ]
    figures = (f">{words}" for words in (*_FIELDS.values(), "bias"))
    titles = ("device, group", "tier", ">rows asked", ">answered", *figures, "not answered")
    return Section(name, title, DataTable(titles, cut(cells)))


def _suites(rows: list[Document]) -> Section:
    wholes = [row for row in rows if row["group"] in {"", "all"} and row["rows_answered"]]
    series = {
        words: [None if row[field] is None else 100 * row[field] for row in wholes]
        for field, words in _FIELDS.items()
        if field != "max_ape_fraction"
    }
    cells = [(_named(row), *(cell(row[field], percent) for field in _FIELDS)) for row in rows]
    titles = ("suite", *(f">{words}" for words in _FIELDS.values()))
    names = [_named(row).removesuffix(", all") for row in wholes]
    drawn = bars(names, series, "%", rangemode="tozero")
    return Section("suites", "Errors by suite", DataTable(titles, cut(cells)), "", drawn)


def _parity(board: Scoreboard) -> list[Section]:
    """Predicted against measured of each suite, in the page's colours."""
    from accelsim.report.accuracy_pages import parity_figure
    from accelsim.report.parity import parity_series, sampling_note, title

    answered = [(score, series) for score in board.suites if (series := parity_series(score))]
    most = min(_MOST_OF_ONE, _MOST_POINTS // max(len(answered), 1))
    found = []
    for score, series in answered:
        drawn = parity_figure(score, series, most)
        own = figure(drawn["data"], xaxis=drawn["layout"]["xaxis"], yaxis=drawn["layout"]["yaxis"])
        table = DataTable(_ROW_TITLES, _farthest(series))
        name = f"parity-{score.suite.name}"
        note = sampling_note(series, max(1, most // len(series))) or "All rows drawn."
        text = f"{note.capitalize().rstrip('.')}; in the table the farthest off come first."
        found.append(Section(name, title(score), table, text, own))
    return found


def _farthest(series: Sequence[Series]) -> list[Sequence[str | Cell]]:
    """Rows of a suite by their error."""
    rows = [
        (one, place, abs(math.log(ratio)))
        for one in series
        for place, ratio in enumerate((one.predicted / one.measured).tolist())
    ]
    rows.sort(key=lambda row: -row[2])
    shown: list[Sequence[str | Cell]] = [
        (
            f"{one.device}, {one.group[i]}, {one.label[i]}".rstrip(", "),
            *(
                cell(float(column[i]), decimal)
                for column in (one.measured, one.predicted, one.low, one.high)
            ),
            cell(float(one.error[i]), percent),
        )
        for one, i, _ in rows[:MAX_ROWS]
    ]
    left = len(rows) - len(shown)
    more = [(f"{left:,} more, nearer", *[""] * (len(_ROW_TITLES) - 1))] if left else []
    return [*shown, *more]
