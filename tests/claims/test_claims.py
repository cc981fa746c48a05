"""Verdicts follow from readings; every claim has one; what is exact is reproduced."""

from __future__ import annotations

import pytest

import accelsim
from accelsim.claims.claim import Reading, Verdict, judge
from accelsim.claims.run import _CHECKS, _gallery, run_claim, timed_claim
from accelsim.claims.scenarios import claim_ids, claim_scenario, scenario_figure
from accelsim.errors import InputError, UnknownNameError
from accelsim.estimation.options import options_and_price
from accelsim.estimation.resolution import resolve

YES, NO = Reading("yes", 1.0, 1.0), Reading("no", 1.1, 1.0)
#: Claims with an exact answer.
EXACT = ("S05", "S07", "S08", "S16", "S22", "S27", "S33", "S35", "S36", "S46", "S51", "S61", "S64")


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ([YES], Verdict.REPRODUCED),
        ([NO], Verdict.REFUTED),
        ([YES, NO], Verdict.CONDITIONAL),
        ([], Verdict.NOT_CHECKABLE),
        ([YES, Reading("x", 9.0, 1.0, verified=False)], Verdict.REPRODUCED),
        ([Reading("x", 1.0, 1.0, verified=False)], Verdict.NOT_CHECKABLE),
        ([YES, Reading("x", None, 1.0)], Verdict.REPRODUCED),
        ([Reading("x", float("nan"), at_least=0.0)], Verdict.REFUTED),
    ],
)
def test_a_verdict_follows_from_the_readings_that_are_evidence(readings, verdict):
    assert judge("S", "t", "s", readings).verdict is verdict


def test_a_prediction_that_is_off_a_measurement_is_missed():
    """It says nothing against what was measured."""
    assert judge("S", "t", "s", [NO], is_measured=True).verdict is Verdict.MISSED
    assert judge("S", "t", "s", [YES], is_measured=True).verdict is Verdict.REPRODUCED


def test_a_conditional_verdict_names_what_does_not_hold_and_what_gave_no_figure():
    reason = judge("S", "t", "s", [YES, NO, Reading("silent", None, 1.0)]).reason
    assert reason == "1 of 2 readings hold; missed: no is 1.1, not 1 (exact); no figure for silent"


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ([YES], Verdict.CONDITIONAL),
        ([NO], Verdict.REFUTED),
        ([YES, NO], Verdict.CONDITIONAL),
        ([], Verdict.NOT_CHECKABLE),
    ],
)
def test_a_reservation_stays_in_every_verdict(readings, verdict):
    claim = judge("S", "t", "s", readings, "measured live")
    assert claim.verdict is verdict
    assert claim.reason.endswith("measured live")


def test_claims_measured_where_they_run_say_so():
    for name in ("S20", "S23", "S66"):
        assert "measured on this machine now" in claim_scenario(name).reason


def test_the_time_of_the_gallery_is_that_of_its_claims_also_where_they_have_run(monkeypatch):
    monkeypatch.setattr("accelsim.claims.run.claim_ids", lambda: ("S05", "S10", "S66"))
    taken = [timed_claim(name)[1] for name in ("S05", "S10")]
    assert min(taken) > 0
    assert _gallery()[1].simulated == pytest.approx(sum(taken))


def test_published_points_that_cannot_be_held_against_a_run_are_named():
    by_name = {one.name: one for one in run_claim("S14").readings}
    assert not by_name["FCN-5 step"].verified
    assert "FCN-5" in run_claim("S14").reason
    assert "at most the 48 of xeon-platinum-8168" in run_claim("S47").reason


@pytest.mark.parametrize(
    ("reading", "holds"),
    [
        (Reading("a", 1.04, 1.0, within=0.05), True),
        (Reading("a", 1.06, 1.0, within=0.05), False),
        (Reading("a", 0.0, 0.0), True),
        (Reading("a", 5.0, at_least=5.0, at_most=6.0), True),
        (Reading("a", 6.1, at_least=5.0, at_most=6.0), False),
        (Reading("a", "memory", "memory"), True),
        (Reading("a", "memory", "compute"), False),
        (Reading("a", None), False),
    ],
)
def test_a_reading_holds_within_its_tolerance_and_bounds(reading, holds):
    assert reading.holds is holds


@pytest.mark.parametrize("name", EXACT)
def test_exact_claims_are_reproduced(name):
    claim = run_claim(name)
    assert [one.name for one in claim.readings if not one.holds] == []
    assert claim.verdict is Verdict.REPRODUCED


def test_every_claim_can_be_run_or_says_why_not():
    assert len(claim_ids()) == 66
    for name in claim_ids():
        one = claim_scenario(name)
        assert one.check in {None, *_CHECKS}
        assert one.readings or one.check or one.reason
    used = [claim_scenario(name).check for name in claim_ids()]
    assert set(_CHECKS) <= set(used)
    with pytest.raises(UnknownNameError, match="claims list"):
        claim_scenario("S99")


def test_scenarios_are_runs_that_options_allow():
    """A reading without a figure decides nothing: only what is meant to be refused may be."""
    refused = {}
    for name in claim_ids():
        for one in claim_scenario(name).readings:
            is_train = bool({"gpus", "cluster"} & set(one.run))
            if one.figure == "refused" or one.figure.startswith("device.") or is_train:
                continue
            key, found = next(iter((one.sweep or {"": [None]}).items()))
            for run in (dict(one.run), {**one.run, **(one.over or {})}):
                for value in found:
                    words = {**run, **({key: value} if key else {})}
                    model, device = words.pop("model"), words.pop("device")
                    options, _ = options_and_price(None, None, words)
                    try:
                        resolve(model, device, options)
                    except InputError as error:
                        refused[name, one.name] = str(error)
    assert set(refused) == {("S47", "CPU in images/s")}


def test_a_peak_per_watt_is_unknown_where_the_power_is():
    assert scenario_figure({"figure": "device.peak_per_w.fp32", "device": "apple-m1-max"}) is None
    assert scenario_figure({"figure": "device.peak_per_w.fp32", "device": "t4"}) > 1e10


def test_a_reading_of_a_claim_is_what_an_estimate_says():
    by_name = {one.name: one for one in run_claim("S10").readings}
    run = accelsim.estimate("resnet-50", "t4", batch=64, precision="fp16")
    assert by_name["T4 fp16 images/s, batch 64"].simulated == run.throughput_per_s
