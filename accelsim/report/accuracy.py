"""The accuracy scoreboard as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.plain import Document, Values, grouped
from accelsim.report.listing import Listing

#: Columns of a score row.
SCORE_COLUMNS = (
    "suite",
    "device",
    "profile",
    "group",
    "tier",
    "systems",
    "rows_asked",
    "rows_answered",
    "mape_fraction",
    "mape_noise_fraction",
    "median_ape_fraction",
    "median_noise_fraction",
    "p90_ape_fraction",
    "p90_noise_fraction",
    "max_ape_fraction",
    "bias_fraction",
    "kendall_tau",
    "interval_coverage_fraction",
    "interval_width_fraction",
    "interval_score_fraction",
    "roofline_mape_fraction",
    "refused",
)
_ERRORS = (
    ">MAPE=mape_fraction?:shares | >median=median_ape_fraction?:shares | "
    ">p90=p90_ape_fraction?:shares"
    " | >max=max_ape_fraction?:shares | >bias=bias_fraction?:shares | >cover="
    "interval_coverage_fraction?:shares | >score=interval_score_fraction?:shares | "
    ">roofl.=roofline_mape_fraction?:shares"
)
#: Columns of tables.
_SUITES = (
    "suite | tier | >systems=systems?:count | >rows=rows_asked:count | "
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


def score_rows(report: Values, device: str | None = None) -> list[Document]:
    """One mapping per suite and per group of it.

    Args:
        report: Result of `accelsim.scoreboard.scoreboard_dict`.
        device: Only groups of this device, by its catalogue name or its name in the tables; None
            for all.
    """
    rows: list[Document] = []
    for name, suite in report["suites"].items():
        groups = [group for group in suite["groups"] if _is_of(group, device)]
        if device is None:
            rows.append(_row(name, {"device": "", "profile": "", **suite}, ""))
        rows += [_row(name, group, group.get("operator") or group.get("model")) for group in groups]
    return rows


def _is_of(group: Values, device: str | None) -> bool:
    named, profile = str(group["device"]).lower(), str(group["profile"])
    names = {named, profile.lower(), profile.partition("@")[0]}
    return device is None or device.lower() in names


def _row(suite: str, values: Values, group: str | None) -> Document:
    computed = {"suite": suite, "group": group or "", "refused": _reasons(values["refused"])}
    return {
        name: computed[name] if name in computed else values.get(name) for name in SCORE_COLUMNS
    }


def _reasons(refused: Mapping[str, int]) -> str:
    return "; ".join(f"{count} {reason}" for reason, count in refused.items())


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
    suites = report["suites"] if device is None else {}
    pairs = [
        {"suite": name, **pair}
        for name, suite in suites.items()
        for pair in suite.get("pairs", ())
        if pair["pairs"]
    ]
    skipped = [{"suite": name, "why": why} for name, why in report.get("skipped", {}).items()]
    wholes = [row for row in rows if not row["group"]]
    stacks = [
        Listing.of(f"{name}={_STACKS}", suite["stacks"], "max | p90 | rows")
        for name, suite in suites.items()
        if suite.get("stacks")
    ]
    tables = (
        Listing.of(_SUITES, wholes, "roofl. | tier | score | bias | max | rows | cover | p90"),
        Listing.of(_PAIRS, pairs),
        *stacks,
        Listing.of("refused in=suite | >rows | ~why", refused_rows(suites)),
        Listing.of("not scored=suite | ~why", skipped),
    )
    blocks: list[list[RenderableType]] = []
    if groups or device is not None:
        for name, own in grouped(rows, itemgetter("suite")).items():
            blocks.append([Text(name, style="bold cyan"), _group_table(own)])
    blocks += [[table] for table in tables if table.rows]
    return Group(*[part for block in blocks for part in (Text(""), *block)][1:])


def refused_rows(suites: Values) -> list[Document]:
    """Rows of suites without an answer, by reason."""
    return [
        {"suite": name, "rows": count, "why": why}
        for name, suite in suites.items()
        for why, count in suite["refused"].items()
    ]


def _group_table(rows: Sequence[Values]) -> Listing:
    """Groups of one suite that have rows; the device is named where there are several."""
    answered = [row for row in rows if row["group"] and row["rows_answered"]]
    device = "device | " if len({row["device"] for row in answered}) > 1 else ""
    return Listing.of(device + _GROUPS, answered, "tier | bias | max | roofl. | cover | p90")
