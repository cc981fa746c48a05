"""Figures of a scoreboard's document as flat rows: a suite each, and a group of it each."""

from __future__ import annotations

from collections.abc import Mapping

from accelsim.plain import Document, Values

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
    name, profile = str(group["device"]).lower(), str(group["profile"])
    names = {name, profile.lower(), profile.partition("@")[0]}
    return device is None or device.lower() in names


def _row(suite: str, values: Values, group: str | None) -> Document:
    computed = {"suite": suite, "group": group or "", "refused": _reasons(values["refused"])}
    return {
        name: computed[name] if name in computed else values.get(name) for name in SCORE_COLUMNS
    }


def _reasons(refused: Mapping[str, int]) -> str:
    return "; ".join(f"{count} {reason}" for reason, count in refused.items())


def refused_rows(suites: Values) -> list[Document]:
    """Rows of suites without an answer, by reason."""
    return [
        {"suite": name, "rows": count, "why": why}
        for name, suite in suites.items()
        for why, count in suite["refused"].items()
    ]
