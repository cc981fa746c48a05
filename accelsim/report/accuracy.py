"""The accuracy scoreboard as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.plain import Document, Values
from accelsim.report.formats import grouped
from accelsim.report.listing import Listing

#: Columns of a score row.
SCORE_COLUMNS = (
    "suite",
    "device",
    "profile",
    "group",
    "tier",
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
    "roofline_mape_fraction",
    "refused",
)
_SHOWN = (
    ("MAPE", "mape_fraction"),
    ("median", "median_ape_fraction"),
    ("p90", "p90_ape_fraction"),
    ("max", "max_ape_fraction"),
    ("bias", "bias_fraction"),
    ("cover", "interval_coverage_fraction"),
    ("roofl.", "roofline_mape_fraction"),
)
_TITLES = " | ".join(f">{title}" for title, _ in _SHOWN)


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
    tables = (
        *(_stack_table(suite.get("stacks", ())) for suite in suites.values()),
        *(_pair_table(name, suite.get("pairs", ())) for name, suite in suites.items()),
        _suite_table([row for row in rows if not row["group"]]),
        Listing.of("refused in | >rows | ~why", _refused(suites)),
        Listing.of("not scored | ~why", list(report.get("skipped", {}).items())),
    )
    blocks = _suite_blocks(rows) if groups or device is not None else []
    blocks += [[table] for table in tables if table.rows]
    return Group(*[part for block in blocks for part in (Text(""), *block)][1:])


def _suite_blocks(rows: Sequence[Document]) -> list[list[RenderableType]]:
    """The groups of each suite."""
    suites = grouped(rows, itemgetter("suite")).items()
    return [[Text(name, style="bold cyan"), _group_table(own)] for name, own in suites]


def _stack_table(stacks: Sequence[Values]) -> Listing:
    """Figures per stack; bias is predicted over measured time."""
    cells = []
    for row in stacks:
        bias = row["bias_ratio"]
        shares = [row[field] for field in _STACK_FIELDS]
        cells.append(
            (
                row["stack"],
                f"{row['rows_asked']:,}",
                f"{row['rows_answered']:,}",
                "" if bias is None else f"{bias:.2f}",
                *("" if share is None else f"{100 * share:.1f}" for share in shares),
            )
        )
    titles = ">rows | >answered | >bias | >median | >p90 | >max | >cover | >beyond 1.5x"
    return Listing.of(f"stack | {titles}", cells, "max | p90 | rows")


def _pair_table(suite: str, pairs: Sequence[Values]) -> Listing:
    """Pairs of systems that differ in one thing and are predicted in the right order."""
    cells = [
        (suite, row["choice"], f"{row['pairs']:,}", f"{100 * row['in_order_fraction']:.1f}")
        for row in pairs
        if row["pairs"]
    ]
    return Listing.of("suite | differs in | >pairs | >in order", cells)


_STACK_FIELDS = (
    "median_ape_fraction",
    "p90_ape_fraction",
    "max_ape_fraction",
    "interval_coverage_fraction",
    "beyond_1.5_fraction",
)


def _refused(suites: Values) -> list[tuple[str, str, str]]:
    return [
        (name, f"{count:,}", reason)
        for name, suite in suites.items()
        for reason, count in suite["refused"].items()
    ]


def _suite_table(rows: Sequence[Values]) -> Listing:
    cells = [
        (
            row["suite"],
            row["tier"],
            f"{row['rows_asked']:,}",
            f"{row['rows_answered']:,}",
            *_percents(row),
        )
        for row in rows
    ]
    titles = f"suite | tier | >rows | >answered | {_TITLES}"
    return Listing.of(titles, cells, "bias | max | rows | cover | p90 | tier")


def _group_table(rows: Sequence[Values]) -> Listing:
    """Groups of one suite that have rows; the device is named where there are several."""
    answered = [row for row in rows if row["group"] and row["rows_answered"]]
    several = len({row["device"] for row in answered}) > 1
    cells = []
    for row in answered:
        names = (row["device"], row["group"]) if several else (row["group"],)
        cells.append((*names, row["tier"], f"{row['rows_answered']:,}", *_percents(row)))
    device = "device | " if several else ""
    titles = f"{device}operator or model | tier | >answered | {_TITLES}"
    return Listing.of(titles, cells, "tier | bias | max | roofl. | cover | p90")


def _percents(row: Values) -> Iterable[str]:
    for _, field in _SHOWN:
        value = row[field]
        yield "" if value is None else f"{100 * value:.1f}"
