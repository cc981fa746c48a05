"""What an estimate on a device was validated on, in a sentence, from the accuracy report that ships with accelsim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from accelsim.datafile import data_root, read_json

__all__ = ["evidence", "shipped_report"]

_MAX_BYTES = 20_000_000
_WORDS = {"model": "whole-model runs", "operator": "operators"}


@lru_cache(maxsize=1)
def shipped_report() -> Mapping[str, Any]:
    """The accuracy report on the bulk tables; without suites where it is missing."""
    path = data_root() / "calibration" / "ACCURACY.json"
    return read_json(path, max_bytes=_MAX_BYTES) if path.is_file() else {"suites": {}}


def evidence(device: str, report: Mapping[str, Any] | None = None) -> str | None:
    """How far predictions on a device were from measurements.

    Args:
        device: Catalogue name, with or without a slice.
        report: Result of `scoreboard_dict`; the shipped one where None.

    Returns:
        "41 whole-model runs within 4 % (median), 11 % (p90)", models before operators; None where nothing was measured.
    """
    base = device.partition("@")[0]
    known = shipped_report() if report is None else report
    parts: list[str] = []
    for kind in ("model", "operator"):
        groups = [group for suite in known["suites"].values() for group in _totals(suite["groups"], base, kind)]
        parts += [_sentence(groups, kind)] if groups else []
    return "; ".join(parts) or None


def _totals(groups: Sequence[Mapping[str, Any]], device: str, kind: str) -> list[Mapping[str, Any]]:
    """A device's total in one suite: its view of all groups, or the one group it has."""
    own = [g for g in groups if kind in g and g["rows_answered"] and _base(g.get("profile")) == device]
    return [g for g in own if g[kind] == "all"] or [g for g in own if not g.get("is_view")]


def _base(name: str | None) -> str:
    return (name or "").partition("@")[0]


def _sentence(groups: list[Mapping[str, Any]], kind: str) -> str:
    """Median and 90th percentile; of several suites their means, weighted with rows."""
    rows = sum(group["rows_answered"] for group in groups)
    median = sum(group["median_ape_fraction"] * group["rows_answered"] for group in groups) / rows
    p90 = sum(group["p90_ape_fraction"] * group["rows_answered"] for group in groups) / rows
    return f"{rows:,} {_WORDS[kind]} within {median:.0%} (median), {p90:.0%} (p90)"
