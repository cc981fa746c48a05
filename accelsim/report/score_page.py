"""The page of a scoreboard: errors and coverage of every suite, predicted against measured with the
90 % interval, and what was refused or not scored.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from accelsim.plain import Document, Rows, Values, grouped
from accelsim.quantity import percent, say
from accelsim.report.page import Page, Section
from accelsim.report.parts import bars, rows_section
from accelsim.scoreboard.score_rows import refused_rows, score_rows

if TYPE_CHECKING:
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
_ROWS = (
    "row={device}[, {group}][, {label}] | >measured=measured:decimal | "
    ">predicted=predicted:decimal | >low=low:decimal | >high=high:decimal | >error=error_fraction"
)
_ERRORS = " | ".join(f">{title}={name}" for name, title in _FIELDS.items())
#: A suite's rows: the suite, its table, and their group.
_NAMED = "{suite}[ ({device})][, {group}]"


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
    by_suite = grouped((row for row in rows if row["group"]), itemgetter("suite"))
    skipped = [{"suite": name, "why": why} for name, why in document.get("skipped", {}).items()]
    sections = [
        _suites(suites) if suites else None,
        *(_parity(board) if board is not None else ()),
        *(
            _groups(f"groups-{name}", f"{name} by device and model", group)
            for name, group in by_suite.items()
        ),
        rows_section("refused", "Rows without an answer", refused_rows(document["suites"])),
        rows_section("skipped", "Suites not scored", skipped),
    ]
    counts = document["suites"].values()
    answered = (
        f"{len(suites)} suite{'s' * (len(suites) != 1)}, "
        f"{sum(suite['rows_answered'] for suite in counts):,} of "
        f"{sum(suite['rows_asked'] for suite in counts):,} rows answered."
    )
    decision = [answered, *_errors(suites)]
    return Page.of("Predicted against measured", decision, sections, command)


def _errors(suites: Rows) -> list[str]:
    """Each of few suites in a sentence; of many the median errors from least to largest."""
    if len(suites) <= _MOST_SAID:
        form = (
            "{suite}: median error {median_ape_fraction}, {interval_coverage_fraction} of the "
            "rows in their 90 % interval."
        )
        return [say(form, row) for row in suites]
    known = [row for row in suites if row["median_ape_fraction"] is not None]
    ordered = sorted(known, key=itemgetter("median_ape_fraction"))
    if not ordered:
        return []
    least, middle, most = ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]
    half, low, high = (percent(row["median_ape_fraction"]) for row in (middle, least, most))
    text = (
        f"Half of the suites have a median error of at most {half}; the least is {low} "
        f"({least['suite']}), the largest {high} ({most['suite']})."
    )
    return [text]


def _device_page(rows: list[Document], command: str, device: str) -> Page:
    """The page of one device."""
    totals = [row for row in rows if row["group"] == "all"]
    form = f"{_NAMED}: median error {{median_ape_fraction}} of {{rows_answered:count}} rows."
    decision = [say(form, row) for row in totals if row["rows_answered"]]
    sections = (_suites(totals), _groups("rows", "All figures", rows))
    title = f"Predicted against measured on {device}"
    return Page.of(title, decision or ("No row of it was answered.",), sections, command)


def _groups(name: str, title: str, rows: list[Document]) -> Section:
    """A row for each device and operator or model."""
    columns = (
        "device, group={device}[, {group}] | tier=tier_name | >rows asked=rows_asked:count | "
        ">answered="
        f"rows_answered:count | {_ERRORS} | >bias=bias_fraction | not answered=refused"
    )
    shown = [{**row, "tier_name": row["tier"] or "none"} for row in rows]
    return Section.of(name, title, columns, shown)


def _suites(rows: list[Document]) -> Section:
    totals = [row for row in rows if row["group"] in {"", "all"} and row["rows_answered"]]
    series = {
        title: [None if row[name] is None else 100 * row[name] for row in totals]
        for name, title in _FIELDS.items()
        if name != "max_ape_fraction"
    }
    names = [say(_NAMED, row).removesuffix(", all") for row in totals]
    picture = bars(names, series, "%", rangemode="tozero")
    columns = f"suite={_NAMED} | {_ERRORS}"
    return Section.of("suites", "Errors by suite", columns, rows, "", picture)


def _parity(board: Scoreboard) -> list[Section]:
    """Predicted against measured of each suite, in the page's colours."""
    from accelsim.report.parity import parity_figure, title
    from accelsim.scoreboard.device_rows import farthest, rows_by_device, sampling_note

    answered = [(score, series) for score in board.suites if (series := rows_by_device(score))]
    most = min(_MOST_OF_ONE, _MOST_POINTS // max(len(answered), 1))
    sections = []
    for score, series in answered:
        note = sampling_note(series, max(1, most // len(series))) or "All rows drawn."
        text = f"{note.capitalize().rstrip('.')}; in the table the farthest off come first."
        picture = parity_figure(series, score.suite.quantity, most)
        name = f"parity-{score.suite.name}"
        sections.append(Section.of(name, title(score), _ROWS, farthest(series), text, picture))
    return sections
