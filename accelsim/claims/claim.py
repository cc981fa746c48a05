"""Claims, their readings, and the verdict on each.

A claim is a set of readings: quantities that it says something about. Each is held against what is
expected of it, exactly, within a tolerance, or as a bound. All hold: reproduced; none: refuted, or
missed where the figures were measured, as then the prediction is wrong; some: conditional, on those
that hold. Where a claim has a reservation, all holding is conditional
on it, and no verdict leaves it out. A claim without readings is not checkable, and says why.
Readings whose expected figure nobody has verified, and those that gave no figure, are shown and
decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from math import inf, isfinite

from accelsim.frozen import frozen
from accelsim.plain import Document, Values

#: Relative tolerance of what is expected to be exact: rounding of doubles.
EXACT = 1e-9


class Verdict(StrEnum):
    """What came out of a claim."""

    REPRODUCED = "reproduced"
    REFUTED = "refuted"
    MISSED = "missed"
    CONDITIONAL = "conditional"
    NOT_CHECKABLE = "not checkable"


@frozen
class Reading:
    """One quantity of a claim.

    Attributes:
        name: What it is, with its unit.
        simulated: What came out; None where nothing did.
        expected: Value it should have; None where only bounds are known.
        within: Relative tolerance around the expected value.
        at_least: Lower bound; None for none.
        at_most: Upper bound; None for none.
        verified: Whether the expected figure is evidence.
        scenario: What was run.
        note: Why nothing came out; empty where something did.
    """

    name: str
    simulated: float | str | None
    expected: float | str | None = None
    within: float = EXACT
    at_least: float | None = None
    at_most: float | None = None
    verified: bool = True
    scenario: Values = field(default_factory=dict)
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the quantity is what it should be."""
        value, expected = self.simulated, self.expected
        if value is None or isinstance(value, str) or isinstance(expected, str):
            return value is not None and value == expected
        if expected is not None and not abs(value - expected) <= self.within * abs(expected):
            return False
        low = -inf if self.at_least is None else self.at_least
        high = inf if self.at_most is None else self.at_most
        return isfinite(value) and low <= value <= high

    @property
    def tolerance(self) -> str:
        """In words, what is accepted."""
        bounds = [
            f"{bound_name} {bound:g}"
            for bound_name, bound in (("at least", self.at_least), ("at most", self.at_most))
            if bound is not None
        ]
        if self.expected is not None:
            is_exact = isinstance(self.expected, str) or self.within <= EXACT
            bounds.insert(0, "exact" if is_exact else f"±{100 * self.within:g} %")
        return ", ".join(bounds)

    @property
    def missed(self) -> str:
        """What came out and what was claimed, in words."""
        shown = [
            f"{value:.3g}" if isinstance(value, float) else str(value)
            for value in (self.simulated, self.expected)
            if value is not None
        ]
        return f"{self.name} is {', not '.join(shown)} ({self.tolerance})"

    def to_dict(self) -> Document:
        """Field by field, with whether it holds."""
        return {
            "name": self.name,
            "expected": self.expected,
            "simulated": self.simulated,
            "tolerance": self.tolerance,
            "holds": self.holds,
            "verified": self.verified,
            "scenario": dict(self.scenario),
            "note": self.note,
        }


@frozen
class JudgedClaim:
    """A claim with its verdict.

    Attributes:
        id: Its name.
        title: What it says.
        source: Where the expected figures come from.
        verdict: What came out.
        reason: On what it is conditional, its reservation, or why it cannot be checked.
        readings: What it rests on.
    """

    id: str
    title: str
    source: str
    verdict: Verdict
    reason: str
    readings: tuple[Reading, ...]

    def to_dict(self) -> Document:
        """Fields for JSON: lists of what was expected, simulated and accepted, by reading."""
        rows = [reading.to_dict() for reading in self.readings]
        listed = {
            name: {row["name"]: row[name] for row in rows}
            for name in ("expected", "simulated", "tolerance", "scenario")
        }
        return {
            "id": self.id,
            "title": self.title,
            "verdict": self.verdict.value,
            "reason": self.reason,
            **listed,
            "source": self.source,
            "readings": rows,
        }


def judge(
    id_: str,
    title: str,
    source: str,
    readings: Sequence[Reading],
    reason: str = "",
    *,
    is_measured: bool = False,
) -> JudgedClaim:
    """The verdict on a claim.

    Args:
        id_: Its name.
        title: What it says.
        source: Where the expected figures come from.
        readings: What came out.
        reason: Reservation about the readings; where none decides, why it cannot be checked.
        is_measured: Whether what is expected was measured.
    """
    deciding = [
        reading for reading in readings if reading.verified and reading.simulated is not None
    ]
    if not deciding:
        notes = (reading.note for reading in readings if reading.note)
        reason = reason or next(notes, "nothing was verified")
        return JudgedClaim(id_, title, source, Verdict.NOT_CHECKABLE, reason, tuple(readings))
    verdict, summary = _verdict(deciding, is_measured=is_measured)
    if reason and verdict is Verdict.REPRODUCED:
        verdict = Verdict.CONDITIONAL
    reasons = [summary, reason, *_without_figure(readings)]
    return JudgedClaim(
        id_, title, source, verdict, "; ".join(filter(None, reasons)), tuple(readings)
    )


def _verdict(deciding: Sequence[Reading], *, is_measured: bool) -> tuple[Verdict, str]:
    """What readings that decide come to, and what of them does not hold."""
    missed = [reading.missed for reading in deciding if not reading.holds]
    if not missed:
        return Verdict.REPRODUCED, ""
    if len(missed) == len(deciding):
        return Verdict.MISSED if is_measured else Verdict.REFUTED, ", ".join(missed)
    held = f"{len(deciding) - len(missed)} of {len(deciding)} readings hold"
    return Verdict.CONDITIONAL, f"{held}; missed: {', '.join(missed)}"


def _without_figure(readings: Sequence[Reading]) -> Iterator[str]:
    for reading in readings:
        if reading.simulated is None:
            yield f"no figure for {reading.name}" + (f" ({reading.note})" if reading.note else "")
