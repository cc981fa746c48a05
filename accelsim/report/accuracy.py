"""The accuracy scoreboard as tables."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.plain import Rows, Values, grouped
from accelsim.report.listing import Listing
from accelsim.scoreboard.score_rows import refused_rows, score_rows

_ERRORS = (
    ">MAPE=mape_fraction?:shares | >median=median_ape_fraction?:shares | "
    ">p90=p90_ape_fraction?:shares"
    " | >max=max_ape_fraction?:shares | >bias=bias_fraction?:shares | >cover="
    "interval_coverage_fraction?:shares | >score=interval_score_fraction?:shares | "
    ">roofl.=roofline_mape_fraction?:shares"
)
#: Columns of tables.
_SUITES = (
    "suite | >systems=systems?:count | >rows=rows_asked:count | "
    f">answered=rows_answered:count | {_ERRORS}"
)
_GROUPS = f"operator or model=group | tier | >answered=rows_answered:count | {_ERRORS}"
_STACKS = (
    "stack | >rows=rows_asked:count | >answered=rows_answered:count | >bias=bias_ratio?:decimal | "
    ">median=median_ape_fraction?:shares | >p90=p90_ape_fraction?:shares | >max="
    "max_ape_fraction?:shares | >cover=interval_coverage_fraction?:shares | >beyond 1.5x="
    "beyond_1.5_fraction?:shares"
)
#: Pairs of systems that differ in one thing and are predicted in the right order.
_PAIRS = "suite | differs in=choice | >pairs | >in order=in_order_fraction:shares"


def accuracy_view(
    report: Values, device: str | None = None, *, groups: bool = False
) -> RenderableType:
    """A line per suite and why rows were refused; per device where one is named or `groups` is set.

    Args:
        report: Result of `accelsim.scoreboard.scoreboard_dict`.
        device: Only this device's groups.
        groups: Whether every group is shown.
    """
    rows = score_rows(report, device)
    views: list[RenderableType] = []
    if groups or device is not None:
        for name, of_suite in grouped(rows, itemgetter("suite")).items():
            views += ["", Text(name, style="bold cyan"), _group_table(of_suite)]
    for table in _tables(report, [row for row in rows if not row["group"]], device):
        if table.rows:
            views += ["", table]
    return Group(*views[1:])


def _tables(report: Values, totals: Rows, device: str | None) -> Iterator[Listing]:
    """A line per suite, pairs of systems, stacks, and what was refused or not scored."""
    suites = report["suites"] if device is None else {}
    pairs = [
        {"suite": name, **pair}
        for name, suite in suites.items()
        for pair in suite.get("pairs", ())
        if pair["pairs"]
    ]
    yield Listing.of(_SUITES, totals)
    yield Listing.of(_PAIRS, pairs)
    for name, suite in suites.items():
        yield Listing.of(f"{name}={_STACKS}", suite.get("stacks", ()))
    yield Listing.of("refused in=suite | >rows | ~why", refused_rows(suites))
    skipped = [{"suite": name, "why": why} for name, why in report.get("skipped", {}).items()]
    yield Listing.of("not scored=suite | ~why", skipped)


def _group_table(rows: Rows) -> Listing:
    """Groups of one suite that have rows; the device is named where there are several."""
    answered = [row for row in rows if row["group"] and row["rows_answered"]]
    device = "device | " if len({row["device"] for row in answered}) > 1 else ""
    return Listing.of(device + _GROUPS, answered)
