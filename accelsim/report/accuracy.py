"""The accuracy scoreboard as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType

from accelsim.report.listing import plain_table

__all__ = ["SCORE_COLUMNS", "accuracy_view", "score_rows"]

#: Columns of a score row.
SCORE_COLUMNS: Final = (
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
    "p90_ape_fraction",
    "max_ape_fraction",
    "bias_fraction",
    "kendall_tau",
    "interval_coverage_fraction",
    "interval_width_fraction",
    "roofline_mape_fraction",
    "refused",
)
_SHOWN: Final = (
    ("MAPE", "mape_fraction"),
    ("median", "median_ape_fraction"),
    ("p90", "p90_ape_fraction"),
    ("max", "max_ape_fraction"),
    ("bias", "bias_fraction"),
    ("cover", "interval_coverage_fraction"),
    ("roofl.", "roofline_mape_fraction"),
)


def score_rows(report: Mapping[str, Any], device: str | None = None) -> list[dict[str, Any]]:
    """One mapping per suite and per group of it.

    Args:
        report: Result of `accelsim.calibration.validation.scoreboard_dict`.
        device: Only groups of this device, by its catalogue name or its name in the tables; None for all.
    """
    rows: list[dict[str, Any]] = []
    for name, suite in report["suites"].items():
        groups = [group for group in suite["groups"] if _is_of(group, device)]
        if device is None:
            rows.append(_row(name, {"device": "", "profile": "", **suite}, ""))
        rows += [_row(name, group, group.get("operator") or group.get("model")) for group in groups]
    return rows


def _is_of(group: Mapping[str, Any], device: str | None) -> bool:
    if device is None:
        return True
    names = {str(group["device"]).lower(), str(group["profile"]).lower(), str(group["profile"]).partition("@")[0]}
    return device.lower() in names


def _row(suite: str, values: Mapping[str, Any], group: str | None) -> dict[str, Any]:
    computed = {"suite": suite, "group": group or "", "refused": _reasons(values["refused"])}
    return {name: computed[name] if name in computed else values[name] for name in SCORE_COLUMNS}


def _reasons(refused: Mapping[str, int]) -> str:
    return "; ".join(f"{count} {reason}" for reason, count in refused.items())


def accuracy_view(report: Mapping[str, Any], device: str | None = None, *, groups: bool = False) -> RenderableType:
    """A line per suite and why rows were refused; per device where one is named or `groups` is set.

    Args:
        report: Result of `accelsim.calibration.validation.scoreboard_dict`.
        device: Only this device's groups.
        groups: Whether every group is shown.
    """
    rows = score_rows(report, device)
    shown = [row for row in rows if groups or device is not None or not row["group"]]
    parts: list[RenderableType] = [_table(shown)]
    for name, suite in report["suites"].items():
        parts += [f"{name}: {count:,} rows refused: {reason}" for reason, count in suite["refused"].items()]
    parts += [f"{name}: not scored: {reason}" for name, reason in report.get("skipped", {}).items()]
    return Group(*parts)


def _table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Suite totals, or groups; a column that says the same in every line is left out."""
    names = [name for name in ("suite", "device", "group") if any(row[name] for row in rows)]
    if len(names) > 1 and len({row["device"] for row in rows}) == 1:
        names.remove("device")
    counts = ("rows_asked", "rows_answered") if names == ["suite"] else ("rows_answered",)
    headers = {"group": "operator or model", "rows_asked": "rows", "rows_answered": "answered"}
    columns = (*names, "tier", *counts)
    titles = [headers.get(name, name) for name in columns] + [title for title, _ in _SHOWN]
    table = plain_table(titles, right=range(len(names) + 1, len(titles)))
    table.padding = (0, 1, 0, 0)
    for row in rows:
        words = [str(row[name]) for name in (*names, "tier")]
        table.add_row(*words, *(f"{row[name]:,}" for name in counts), *_percents(row))
    return table


def _percents(row: Mapping[str, Any]) -> Iterable[str]:
    for _, field in _SHOWN:
        value = row[field]
        yield "" if value is None else f"{100 * value:.1f}"
