"""Runs claims and judges them, all others' verdicts and time among them."""

from __future__ import annotations

import time
from functools import cache

from accelsim.claims.checks import CHECKS
from accelsim.claims.claim import JudgedClaim, Reading, judge
from accelsim.claims.scenarios import claim_ids, claim_scenario, scenario_readings


def run_claim(name: str) -> JudgedClaim:
    """Run a claim's scenario and judge it; once in a process.

    Raises:
        UnknownNameError: If there is no such claim.
    """
    return timed_claim(name.upper())[0]


@cache
def timed_claim(name: str) -> tuple[JudgedClaim, float]:
    """A claim as `run_claim` judges it, and the seconds of the processor that it took.

    Raises:
        UnknownNameError: If there is no such claim.
    """
    start = time.process_time()
    claim = claim_scenario(name)
    readings = [reading for scenario in claim.readings for reading in scenario_readings(scenario)]
    if claim.check is not None:
        readings += _CHECKS[claim.check]()
    judged = judge(
        name.upper(),
        claim.title,
        claim.source,
        readings,
        claim.reason,
        is_measured=claim.measured,
    )
    return judged, time.process_time() - start


def _gallery() -> list[Reading]:
    """All other claims: the share with a verdict, and the time of the processor."""
    others = [name for name in claim_ids() if claim_scenario(name).check != "gallery"]
    timed = [timed_claim(name) for name in others]
    judged = sum(bool(claim.verdict) for claim, _ in timed)
    return [
        Reading("share of claims with a verdict", judged / len(others), 1.0),
        Reading("seconds of the processor", sum(time_s for _, time_s in timed), at_most=60.0),
    ]


_CHECKS = {**CHECKS, "gallery": _gallery}
