"""Claims as a table, and as the page that shows every verdict with its readings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from accelsim.report.listing import Listing
from accelsim.report.page import Cell, DataTable, Page, Section, axis, figure

if TYPE_CHECKING:
    from accelsim.claims.claim import JudgedClaim, Reading

__all__ = ["claims_listing", "claims_page", "verdict_words"]


def verdict_words(claims: Iterable[JudgedClaim]) -> str:
    """How many claims came out how."""
    counts = Counter(claim.verdict.value for claim in claims)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def claims_listing(claims: Sequence[JudgedClaim]) -> Listing:
    """A row per claim: its verdict, its readings that hold, and what it is conditional on."""
    rows = [
        (claim.id, claim.verdict.value, _held(claim), claim.title, claim.reason) for claim in claims
    ]
    return Listing.of("claim | verdict | >holds | ~title | ~why", rows, "why", gap=2)


def _held(claim: JudgedClaim) -> str:
    return f"{sum(one.holds for one in claim.readings)}/{len(claim.readings)}"


def claims_page(claims: Sequence[JudgedClaim], command: str) -> Page:
    """The report of claims: verdicts, then every reading with its scenario.

    Args:
        claims: Judged claims.
        command: Command that makes the page again.
    """
    verdicts = [
        (claim.id, claim.verdict.value, claim.title, claim.reason, claim.source) for claim in claims
    ]
    readings = [_reading_cells(claim, one) for claim in claims for one in claim.readings]
    counts = Counter(claim.verdict.value for claim in claims)
    bars: dict[str, Any] = {"type": "bar", "x": list(counts), "y": list(counts.values())}
    drawn = figure([bars], xaxis=axis(""), yaxis=axis("claims"), height=300)
    shown = [(verdict, Cell(str(count), float(count))) for verdict, count in counts.items()]
    first, second, third = (
        DataTable(("verdict", ">claims"), shown),
        DataTable(("claim", "verdict", "title", "why", "source"), verdicts),
        DataTable(
            ("claim", "reading", ">expected", ">simulated", "accepted", "holds", "scenario"),
            readings,
        ),
    )
    sections = (
        Section("counts", "Verdicts", first, figure=drawn),
        Section("verdicts", "Claims", second),
        Section(
            "readings",
            "Readings",
            third,
            "To change a scenario, run it with accelsim estimate or accelsim train.",
        ),
    )
    decision = (f"Of {len(claims)} claims: {verdict_words(claims)}.",)
    return Page("Claims about CPUs, GPUs, FPGAs and ASICs", decision, sections, command)


def _reading_cells(claim: JudgedClaim, one: Reading) -> tuple[str | Cell, ...]:
    words = ", ".join(f"{name} {value}" for name, value in one.scenario.items())
    holds = ("yes" if one.holds else "no") if one.verified else "not evidence"
    return (
        claim.id,
        one.name,
        _value(one.expected),
        _value(one.simulated),
        one.tolerance,
        holds,
        words or one.note,
    )


def _value(value: float | str | None) -> str | Cell:
    if isinstance(value, str):
        return value
    return Cell("" if value is None else f"{value:.5g}", value)
