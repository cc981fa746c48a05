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

from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from math import isclose, isfinite

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
        value = self.simulated
        if value is None or isinstance(value, str) or isinstance(self.expected, str):
            return value is not None and value == self.expected
        if not isfinite(value):
            return False
        is_near = self.expected is None or isclose(
            value, self.expected, rel_tol=0.0, abs_tol=self.within * abs(self.expected)
        )
        is_above = self.at_least is None or value >= self.at_least
        return is_near and is_above and (self.at_most is None or value <= self.at_most)

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
    deciding = [one for one in readings if one.verified and one.simulated is not None]
    missed = [reading.missed for reading in deciding if not reading.holds]
    verdict = Verdict.CONDITIONAL
    if not deciding:
        verdict = Verdict.NOT_CHECKABLE
        reason = reason or next((one.note for one in readings if one.note), "nothing was verified")
    elif not missed:
        verdict = Verdict.CONDITIONAL if reason else Verdict.REPRODUCED
    elif len(missed) == len(deciding):
        verdict = Verdict.MISSED if is_measured else Verdict.REFUTED
        reason = "; ".join(filter(None, [", ".join(missed), reason]))
    else:
        held_count = len(deciding) - len(missed)
        summary = f"{held_count} of {len(deciding)} readings hold; missed: {', '.join(missed)}"
        reason = "; ".join(filter(None, [summary, reason]))
    if verdict is not Verdict.NOT_CHECKABLE:
        silent = [_without_figure(one) for one in readings if one.simulated is None]
        reason = "; ".join(filter(None, [reason, *silent]))
    return JudgedClaim(id_, title, source, verdict, reason, tuple(readings))


def _without_figure(reading: Reading) -> str:
    return f"no figure for {reading.name}" + (f" ({reading.note})" if reading.note else "")
